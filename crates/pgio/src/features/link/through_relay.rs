//! Makes the standby of a private cluster fetch its WAL through a relay.
//!
//! Its primary_conninfo points at the socket of the relay; ALTER SYSTEM RESET undoes that.
//! The change ends with the cluster, so nothing is journaled on disk.

use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use pgio_connect::Client;

use super::netem::KIND;
use super::qdisc::LinkSettings;
use super::relay::{Impairment, Relay};
use crate::pg::{literal, session};
use crate::treatment::context::{Context, Pair};
use crate::treatment::contract::{Declared, InForce, Prepared, Preview, Treatment, failed_reading};
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::resource::Touch;
use crate::treatment::step::{Label, OnConflict, StepOf, Undo, Undone, carry_out};
use pgio_results::change::{Change, Subject};
use pgio_results::files::Directory;
use pgio_results::model::{Evidence, When};
use pgio_results::units::human;

const HOW: &str = "by a relay in pgio, each way";

const LABEL: &str = "primary_conninfo of the standby";

/// The relay's directory below the cluster's.
const RELAY: &str = "relay";

/// How long the standby may take to stream again after its primary_conninfo changed.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(super) struct RelayTreatment {
    pub(super) shape: LinkSettings,
}

/// The relay of a trial.
struct RelayInForce {
    shape: LinkSettings,
    relay: Relay,
    directory: String,
    standby: Client,
    /// Bytes that had passed when evidence was read before the window.
    before: u64,
}

impl std::fmt::Debug for RelayInForce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Relayed").field(&self.relay).finish()
    }
}

/// The standby connects to a socket in this directory.
pub(super) type RelayStep = StepOf<(), PathBuf>;

impl Undo for RelayStep {
    const KIND: &'static str = KIND;

    /// Read back only within the run that created it, since it ends with the cluster.
    fn undo(&self, context: &mut Context<'_>, _: OnConflict) -> Result<Undone, TreatmentError> {
        let pair = pair(context)?;
        let mut standby = session::open_private(&pair.standby).map_err(TreatmentError::Connect)?;
        set_primary_conninfo(&mut standby, None)?;
        let own = pair.primary_socket.parent().unwrap_or(Path::new("/")).to_owned();
        wait_until_streaming(&mut standby, context.admin()?, &own)?;
        Ok(Undone::Restored)
    }
}

impl RelayStep {
    fn apply(&self, pair: &Pair, shape: &LinkSettings) -> Result<RelayInForce, TreatmentError> {
        let io = |e: io::Error| TreatmentError::Refused(format!("cannot start the relay: {e}"));
        let directory = &self.ours;
        let relay = start_relay(pair, directory, shape).map_err(io)?;
        let mut standby = session::open_private(&pair.standby).map_err(TreatmentError::Connect)?;
        let own: String = standby
            .query_one("SELECT reset_val FROM pg_settings WHERE name = 'primary_conninfo'", &[])
            .map_err(TreatmentError::postgres("read primary_conninfo of the standby"))?
            .try_get(0)?;
        // libpq takes the later of two values of one keyword.
        set_primary_conninfo(&mut standby, Some(&format!("{own} host='{}'", directory.display())))?;
        let directory = directory.display().to_string();
        Ok(RelayInForce { shape: shape.clone(), relay, directory, standby, before: 0 })
    }
}

fn pair(context: &Context<'_>) -> Result<Pair, TreatmentError> {
    context.control.as_ref().and_then(|control| control.pair()).ok_or_else(|| {
        TreatmentError::Refused(
            "relay = true requires [target] with private = true and one standby (standby = true); between your own servers use tc netem: interface = \"…\"".to_owned(),
        )
    })
}

/// Sets the standby's primary_conninfo; none: from its own configuration.
fn set_primary_conninfo(
    standby: &mut Client,
    conninfo: Option<&str>,
) -> Result<(), TreatmentError> {
    let sql = match conninfo {
        Some(text) => format!("ALTER SYSTEM SET primary_conninfo = {}", literal(text)),
        None => "ALTER SYSTEM RESET primary_conninfo".to_owned(),
    };
    standby.batch_execute(&sql).map_err(TreatmentError::postgres("point the standby elsewhere"))?;
    standby
        .batch_execute("SELECT pg_reload_conf()")
        .map_err(TreatmentError::postgres("reload the standby"))
}

/// The directory of the socket that the standby streams from.
fn streaming_source(standby: &mut Client) -> Result<Option<String>, pgio_connect::Error> {
    let sql = "SELECT sender_host FROM pg_stat_wal_receiver WHERE status = 'streaming'";
    Ok(standby.query_opt(sql, &[])?.map(|row| row.try_get(0)).transpose()?.flatten())
}

/// Waits until the standby streams from this directory and is synchronous again, if commits wait for one.
fn wait_until_streaming(
    standby: &mut Client,
    primary: &mut Client,
    directory: &Path,
) -> Result<(), TreatmentError> {
    let is_served = "SELECT current_setting('synchronous_standby_names') = '' OR EXISTS \
                     (SELECT FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))";
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let from = streaming_source(standby)
            .map_err(TreatmentError::postgres("query the server that the standby streams from"))?;
        let there = from.as_deref().is_some_and(|from| Path::new(from) == directory);
        let served: bool = primary
            .query_one(is_served, &[])
            .map_err(TreatmentError::postgres("query the state of the standby"))?
            .try_get(0)?;
        if there && served {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(TreatmentError::NotInForce {
                what: "the relay".to_owned(),
                seconds: TIMEOUT.as_secs(),
                why: if there {
                    "no standby became synchronous".to_owned()
                } else {
                    format!("the standby streams from {}", from.as_deref().unwrap_or("nowhere"))
                },
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Listens in a new directory, which the server's user gets last: root would follow a link that
/// this user planted there.
fn start_relay(pair: &Pair, directory: &Path, shape: &LinkSettings) -> io::Result<Relay> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let made = Directory::open_no_follow(&pair.directory)?.create_subdirectory(RELAY, 0o700)?;
    let server = fs::symlink_metadata(&pair.primary_socket)?;
    let socket = directory.join(pair.primary_socket.file_name().unwrap_or_default());
    let LinkSettings { delay, jitter, rate, .. } = *shape;
    let relay = Relay::start(&socket, &pair.primary_socket, Impairment { delay, jitter, rate })?;
    lchown(&socket, Some(server.uid()), Some(server.gid()))?;
    made.set_owner(Some(server.uid()), Some(server.gid()))?;
    Ok(relay)
}

impl Treatment for RelayTreatment {
    fn declared(&self) -> Declared {
        let subject = Subject::Link { interface: None };
        let intent = format!(
            "the link between primary and standby = {} {HOW} (primary_conninfo of the standby)",
            self.shape
        );
        Declared {
            changes: vec![Change::new(None, subject, "shape", self.shape.to_string())],
            intents: vec![intent],
            costs: Vec::new(),
            round_trip: Some(self.shape.delay * 2),
        }
    }

    fn preview(&self, _context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        Ok(vec![Preview {
            what: "the link between primary and standby".to_owned(),
            now: "direct".to_owned(),
            then: self.shape.to_string(),
            how: HOW,
        }])
    }

    /// The relay belongs to a private cluster and ends with it.
    fn touches(&self, _context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        Ok(Vec::new())
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        pair(context)?;
        Ok(Box::new(self.clone()))
    }
}

impl Prepared for RelayTreatment {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let pair = pair(context)?;
        let ours = pair.directory.join(RELAY);
        let step = RelayStep { label: Label::on_server(LABEL), prior: (), ours };
        let mut relayed = carry_out(journal, &step, || step.apply(&pair, &self.shape))?;
        wait_until_streaming(&mut relayed.standby, context.admin()?, &step.ours)?;
        Ok(Box::new(relayed))
    }
}

impl InForce for RelayInForce {
    fn verify(&mut self, _context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        let expected = format!("through the relay ({})", self.shape);
        let what = "how the standby streams";
        let streams = |found: String| {
            let (what, expected) = (what.to_owned(), Some(expected.clone()));
            Evidence { when, what, found, expected }
        };
        let mut all = vec![match streaming_source(&mut self.standby) {
            Ok(Some(from)) if from == self.directory => streams(expected.clone()),
            Ok(Some(from)) => streams(format!("from {from}")),
            Ok(None) => streams("not at all".to_owned()),
            Err(_) => failed_reading(when, what),
        }];
        let passed = self.relay.bytes();
        match when {
            When::Before => self.before = passed,
            When::During => {}
            When::After => all.push(Evidence {
                when,
                what: "passed through the relay, both ways".to_owned(),
                found: human::bytes(passed - self.before),
                expected: None,
            }),
        }
        all
    }
}
