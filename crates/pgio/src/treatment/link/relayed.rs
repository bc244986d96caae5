//! The standby of a private cluster fetches its WAL through a relay of ours.
//!
//! Its primary_conninfo is pointed at a socket that the relay listens at, and put back by taking
//! that line away. Nothing of it outlives the cluster, so nothing is journaled on disk.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use serde_json::json;

use super::KIND;
use super::relay::{Relay, Way};
use super::shape::Shape;
use crate::files::Directory;
use crate::pg::quote::literal;
use crate::results::change::{Change, Subject};
use crate::results::model::{Evidence, When};
use crate::treatment::{Outlook, Pair, Step, Touch, Treatment, TreatmentError, Undone, World};
use crate::units::human;

const HOW: &str = "by a relay in pgio, each way";

const WHAT: &str = "primary_conninfo of the standby";

/// Below the cluster's directory.
const RELAY: &str = "relay";

/// For the standby to stream again after it has been pointed elsewhere.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Relayed {
    shape: Shape,
    held: RefCell<Option<Held>>,
}

struct Held {
    relay: Relay,
    directory: String,
    standby: Client,
    /// Passed when evidence was read before the window.
    before: u64,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held").field(&self.relay).finish()
    }
}

impl Relayed {
    pub(super) fn new(shape: Shape) -> Relayed {
        Relayed { shape, held: RefCell::new(None) }
    }
}

fn pair(world: &World<'_>) -> Result<Pair, TreatmentError> {
    world.control.as_ref().and_then(|control| control.pair()).ok_or_else(|| {
        TreatmentError::Refused(
            "relay = true needs [target] with private = true and standby = true; between servers of yours use tc netem: interface = \"…\"".to_owned(),
        )
    })
}

fn connect(pair: &Pair) -> Result<Client, TreatmentError> {
    Client::connect(&pair.standby, NoTls).map_err(failed("reach the private standby"))
}

fn failed(doing: &'static str) -> impl FnOnce(postgres::Error) -> TreatmentError {
    move |source| TreatmentError::Postgres { doing: doing.to_owned(), source }
}

/// Points the standby elsewhere; absent: where its own configuration says.
fn point(standby: &mut Client, conninfo: Option<&str>) -> Result<(), TreatmentError> {
    let sql = match conninfo {
        Some(text) => format!("ALTER SYSTEM SET primary_conninfo = {}", literal(text)),
        None => "ALTER SYSTEM RESET primary_conninfo".to_owned(),
    };
    standby.batch_execute(&sql).map_err(failed("point the standby elsewhere"))?;
    standby.batch_execute("SELECT pg_reload_conf()").map_err(failed("reload the standby"))
}

/// Where the standby streams from, by what it says itself.
fn source(standby: &mut Client) -> Result<Option<String>, postgres::Error> {
    let sql = "SELECT sender_host FROM pg_stat_wal_receiver WHERE status = 'streaming'";
    Ok(standby.query_opt(sql, &[])?.and_then(|row| row.get(0)))
}

/// Until it streams from there, and commits of the primary wait for it again.
fn wait(
    standby: &mut Client,
    primary: &mut Client,
    directory: &Path,
) -> Result<(), TreatmentError> {
    let waiting = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
    let deadline = Instant::now() + PATIENCE;
    loop {
        let from = source(standby).map_err(failed("ask the standby where it streams from"))?;
        let there = from.as_deref().is_some_and(|from| Path::new(from) == directory);
        let count: i64 =
            primary.query_one(waiting, &[]).map_err(failed("ask for the standby"))?.get(0);
        if there && count > 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(TreatmentError::NotInForce {
                what: "the relay".to_owned(),
                seconds: PATIENCE.as_secs(),
                why: format!("the standby streams from {}", from.as_deref().unwrap_or("nowhere")),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Relayed {
    /// In a new directory, which the server's user gets when nothing more is to be done in it: a link
    /// that he planted there would be followed by root.
    fn listen(&self, pair: &Pair, directory: &Path) -> io::Result<Relay> {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let made = Directory::open_exactly(&pair.directory)?.make_new_below(RELAY, 0o700)?;
        let server = fs::symlink_metadata(&pair.primary_socket)?;
        let socket = directory.join(pair.primary_socket.file_name().unwrap_or_default());
        let Shape { delay, jitter, rate, .. } = self.shape;
        let relay = Relay::start(&socket, &pair.primary_socket, Way { delay, jitter, rate })?;
        lchown(&socket, Some(server.uid()), Some(server.gid()))?;
        made.set_owner(Some(server.uid()), Some(server.gid()))?;
        Ok(relay)
    }
}

impl Treatment for Relayed {
    fn changes(&self) -> Vec<Change> {
        let subject = Subject::Link { interface: None };
        vec![Change::new(None, subject, "shape", self.shape.to_string())]
    }

    fn intents(&self) -> Vec<String> {
        vec![format!(
            "the way between primary and standby = {} {HOW} (primary_conninfo of the standby)",
            self.shape
        )]
    }

    fn outlook(&self, _world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        Ok(vec![Outlook {
            what: "the way between primary and standby".to_owned(),
            now: "direct".to_owned(),
            then: self.shape.to_string(),
            how: HOW,
        }])
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        pair(world).map(drop)
    }

    /// The relay belongs to a private cluster and goes with it.
    fn touches(&self, _world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        Ok(Vec::new())
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        let directory = pair(world)?.directory.join(RELAY);
        Ok(vec![Step {
            kind: KIND.name.to_owned(),
            what: WHAT.to_owned(),
            host: None,
            prior: json!(null),
            ours: json!(directory),
        }])
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        let pair = pair(world)?;
        let directory = Path::new(step.ours.as_str().unwrap_or_default());
        let io = |e: io::Error| TreatmentError::Refused(format!("cannot start the relay: {e}"));
        self.held.take();
        let relay = self.listen(&pair, directory).map_err(io)?;
        let mut standby = connect(&pair)?;
        let own: String = standby
            .query_one("SELECT reset_val FROM pg_settings WHERE name = 'primary_conninfo'", &[])
            .map_err(failed("read primary_conninfo of the standby"))?
            .get(0);
        // Of two values for one keyword libpq takes the later.
        point(&mut standby, Some(&format!("{own} host='{}'", directory.display())))?;
        let directory = directory.display().to_string();
        *self.held.borrow_mut() = Some(Held { relay, directory, standby, before: 0 });
        Ok(())
    }

    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        match &mut *self.held.borrow_mut() {
            Some(held) => wait(&mut held.standby, world.admin()?, Path::new(&held.directory)),
            None => Ok(()),
        }
    }

    fn verify(&self, _world: &mut World<'_>, when: When) -> Vec<Evidence> {
        let mut held = self.held.borrow_mut();
        let expected = format!("through the relay ({})", self.shape);
        let Some(held) = held.as_mut() else {
            let found = "no relay".to_owned();
            return vec![Evidence { when, what: WHAT.to_owned(), found, expected: Some(expected) }];
        };
        let found = match source(&mut held.standby) {
            Ok(Some(from)) if from == held.directory => expected.clone(),
            Ok(Some(from)) => format!("from {from}"),
            Ok(None) => "not at all".to_owned(),
            Err(_) => "unreadable".to_owned(),
        };
        let what = "how the standby streams".to_owned();
        let mut all = vec![Evidence { when, what, found, expected: Some(expected) }];
        let passed = held.relay.bytes();
        match when {
            When::Before => held.before = passed,
            When::During => {}
            When::After => all.push(Evidence {
                when,
                what: "passed through the relay, both ways".to_owned(),
                found: human::bytes(passed - held.before),
                expected: None,
            }),
        }
        all
    }

    fn round_trip(&self) -> Option<Duration> {
        Some(self.shape.delay * 2)
    }

    fn taken_back(&self) {
        self.held.take();
    }
}

/// Only within the run that did it: what the cluster had goes with the cluster.
pub(super) fn undo(world: &mut World<'_>) -> Result<Undone, TreatmentError> {
    let pair = pair(world)?;
    let mut standby = connect(&pair)?;
    point(&mut standby, None)?;
    let own = pair.primary_socket.parent().unwrap_or(Path::new("/")).to_owned();
    wait(&mut standby, world.admin()?, &own)?;
    Ok(Undone::PutBack)
}
