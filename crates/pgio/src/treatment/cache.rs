//! `cache = "cold" | "warm"`: what is in memory when a trial begins.
//!
//! Cold: PostgreSQL is stopped, the kernel's page cache emptied, PostgreSQL started. Warm: every
//! table and index of the data set is read into shared_buffers by pg_prewarm; the extension is
//! created in a transaction that is rolled back, so nothing of it is ever left behind. A warm-up
//! comes after either, and what it reads is no longer cold.
//!
//! What was there is not put back: a cache is nobody's setting. Next: [`resident`], which finds out
//! how much of the data set is in memory.

mod resident;

use std::cell::Cell;
use std::path::Path;

use postgres::Client;

use self::resident::{Relations, Resident};
use super::{
    Cost, Kind, Machines, Outlook, Step, Stranger, Touch, Treatment, TreatmentError, Undone, World,
    body, stopped,
};
use crate::config::experiment::TreatmentSpec;
use crate::config::nearest;
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::check_writable;
use crate::results::change::{Change, Subject};
use crate::results::model::{Evidence, When};
use crate::units::human;

pub(super) const KIND: Kind = Kind {
    name: "cache",
    help: "before each trial: \"cold\" (PostgreSQL restarted, the host's page cache dropped) or \"warm\" (the data set read by pg_prewarm)",
    parse,
    undo,
};

const NAMES: &[&str] = &["cold", "warm"];
const IN_MEMORY: &str = "data set in memory";
const WARMED_UP: &str = "data set in memory after the warm-up";
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// More of the data set than this in memory is no cold start; the sessions of a trial read a little
/// while they are made ready.
const COLD: f64 = 0.1;
/// Less than this is no warm one.
const WARM: f64 = 0.9;

#[derive(Debug)]
enum Cache {
    Cold {
        /// The server's clock before it was stopped last, in seconds since the epoch.
        asked: Cell<f64>,
        /// Whether it has been read since then: the next reading is of after the warm-up.
        read: Cell<bool>,
    },
    Warm,
}

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    match spec.body.as_str() {
        Some("cold") => Ok(Box::new(Cache::Cold { asked: Cell::new(0.0), read: Cell::new(false) })),
        Some("warm") => Ok(Box::new(Cache::Warm)),
        Some(other) => {
            let message = format!("cannot be `{other}`; {}", nearest(other, NAMES));
            Err(body::error(spec, KIND.name, &message))
        }
        None => Err(body::error(spec, KIND.name, "must be \"cold\" or \"warm\"")),
    }
}

impl Treatment for Cache {
    fn changes(&self) -> Vec<Change> {
        let value = match self {
            Cache::Cold { .. } => "cold",
            Cache::Warm => "warm",
        };
        vec![Change::new(None, Subject::Cache, "cache", value)]
    }

    fn costs(&self) -> Vec<Cost> {
        match self {
            Cache::Cold { .. } => vec![Cost::Restart],
            Cache::Warm => Vec::new(),
        }
    }

    fn intents(&self) -> Vec<String> {
        vec![
            match self {
                Cache::Cold { .. } => {
                    "cache = cold by a stop of PostgreSQL, the host's drop_caches and a start"
                }
                Cache::Warm => "cache = warm by pg_prewarm of all of the data set",
            }
            .to_owned(),
        ]
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let relations = Relations::of_data_set(world.admin()?)?;
        let now = match Resident::look(world, &relations) {
            _ if relations.is_empty() => "no data set".to_owned(),
            Ok(found) => found.to_string(),
            Err(_) => "unknown".to_owned(),
        };
        let (then, how) = match self {
            Cache::Cold { .. } => ("cold", "by a restart and the host's drop_caches"),
            Cache::Warm => ("warm", "by pg_prewarm"),
        };
        Ok(vec![Outlook { what: KIND.name.to_owned(), now, then: then.to_owned(), how }])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        match self {
            Cache::Cold { .. } => check_drop(machines),
            Cache::Warm => Ok(()),
        }
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        match self {
            Cache::Cold { .. } => check_cold(world),
            Cache::Warm => check_warm(world),
        }
    }

    /// A server of the user's that is stopped has to be started again.
    fn touches(&self, _world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        Ok(match self {
            Cache::Cold { .. } => vec![Touch::Server],
            Cache::Warm => Vec::new(),
        })
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        match self {
            Cache::Cold { asked, read } => {
                let clock = "SELECT extract(epoch FROM clock_timestamp())::float8";
                let now = world.admin()?.query_one(clock, &[]);
                asked.set(now.map_err(failed("read the server's clock"))?.get(0));
                read.set(false);
                Ok(vec![stopped::step(world, "a cold cache")?])
            }
            Cache::Warm => Ok(Vec::new()),
        }
    }

    fn apply(&self, world: &mut World<'_>, _step: &Step) -> Result<(), TreatmentError> {
        stopped::apply(world)
    }

    /// Of a cold cache, whose server is down now.
    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(None)?;
        let drop = CommandLine::new("sh").args(["-c", "sync; echo 3 >\"$1\"", "sh", DROP_CACHES]);
        let dropped = host.run(&drop);
        // Whatever came of it, the server is not left down.
        world.start("a cold cache")?;
        dropped?;
        Ok(())
    }

    fn rest(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        match self {
            Cache::Cold { .. } => Ok(()),
            Cache::Warm => {
                let admin = world.admin()?;
                let relations = Relations::of_data_set(admin)?;
                resident::prewarm(admin, &relations)
            }
        }
    }

    /// Only before: the work itself fills the cache.
    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence> {
        if when != When::Before {
            return Vec::new();
        }
        let mut all = Vec::new();
        let mut what = IN_MEMORY;
        if let Cache::Cold { asked, read } = self {
            if read.replace(true) {
                what = WARMED_UP;
            }
            all.extend(world.admin().ok().map(|admin| started(admin, asked.get())));
        }
        all.extend(
            self.resident(world, what)
                .unwrap_or_else(|error| vec![evidence(what, format!("unknown: {error}"), None)]),
        );
        all
    }
}

impl Cache {
    fn resident(&self, world: &mut World<'_>, what: &str) -> Result<Vec<Evidence>, TreatmentError> {
        let relations = Relations::of_data_set(world.admin()?)?;
        if relations.is_empty() {
            return Ok(Vec::new());
        }
        let found = Resident::look(world, &relations)?;
        let (holds, wanted) = match self {
            Cache::Cold { .. } => (found.most().map(|most| most <= COLD), "at most 10 %"),
            Cache::Warm => {
                (found.most().map(|most| most >= WARM), "at least 90 % in one of the two")
            }
        };
        let said = found.to_string();
        if what == WARMED_UP {
            return Ok(vec![evidence(what, said, None)]);
        }
        // What is found is the expectation itself where it is good enough.
        let expected = holds.map(|holds| if holds { said.clone() } else { wanted.to_owned() });
        Ok(vec![evidence(what, said, expected)])
    }
}

fn evidence(what: &str, found: String, expected: Option<String>) -> Evidence {
    Evidence { when: When::Before, what: what.to_owned(), found, expected }
}

/// That the server runs since after its cache was asked to be cold. As numbers: a time zone's name
/// may be another zone's, too.
fn started(admin: &mut Client, asked: f64) -> Evidence {
    let sql = "SELECT pg_postmaster_start_time()::text, to_timestamp($1)::text, \
               extract(epoch FROM pg_postmaster_start_time())::float8 > $1";
    let what = "start of PostgreSQL";
    match admin.query_one(sql, &[&asked]) {
        Ok(row) => {
            let (at, earliest, later): (String, String, bool) =
                (row.get(0), row.get(1), row.get(2));
            let expected = if later { at.clone() } else { format!("after {earliest}") };
            evidence(what, at, Some(expected))
        }
        Err(_) => evidence(what, "unreadable".to_owned(), Some("readable".to_owned())),
    }
}

fn check_cold(world: &mut World<'_>) -> Result<(), TreatmentError> {
    world.control("a cold cache")?;
    check_drop(&world.machines())
}

fn check_drop(machines: &Machines<'_>) -> Result<(), TreatmentError> {
    let host = machines.host(None)?;
    let file = Path::new(DROP_CACHES);
    Ok(check_writable(&*host, host.name(), "a cold cache", &[file], None)?)
}

fn check_warm(world: &mut World<'_>) -> Result<(), TreatmentError> {
    let admin = world.admin()?;
    let relations = Relations::of_data_set(admin)?;
    if relations.is_empty() {
        return Err(TreatmentError::Refused(
            "there is no data set of pgio's in the database that could be read into memory: a warm cache is for the workload slob".to_owned(),
        ));
    }
    resident::check_extension(admin)?;
    let buffers: i64 = admin
        .query_one("SELECT pg_size_bytes(current_setting('shared_buffers'))", &[])
        .map_err(failed("read shared_buffers"))?
        .get(0);
    let bytes = relations.bytes();
    let memory = resident::memory(world)?;
    if let Some(memory) = memory.filter(|m| bytes > buffers.unsigned_abs().max(*m)) {
        return Err(TreatmentError::Refused(format!(
            "the data set ({}) fits neither into shared_buffers ({}) nor into the host's memory ({}): it cannot be warm",
            human::bytes(bytes),
            human::bytes(buffers.unsigned_abs()),
            human::bytes(memory)
        )));
    }
    Ok(())
}

fn failed(doing: &str) -> impl FnOnce(postgres::Error) -> TreatmentError {
    let doing = doing.to_owned();
    move |source| TreatmentError::Postgres { doing, source }
}

/// Its only step is that of a stopped server, which has an undo of its own.
fn undo(_: &mut World<'_>, _: &Step, _: Stranger) -> Result<Undone, TreatmentError> {
    Ok(Undone::PutBack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::treatment::test_support::in_words;

    #[test]
    fn two_words_and_no_other() {
        let parsed = |body: toml::Value| {
            let spec = TreatmentSpec { kind: KIND.name.to_owned(), body, line: 3 };
            parse(&spec).map(|t| in_words(t.as_ref())).map_err(|e| e.to_string())
        };
        assert_eq!(parsed("cold".into()).unwrap(), ["cache = cold"]);
        assert_eq!(parsed("warm".into()).unwrap(), ["cache = warm"]);
        let said = parsed("could".into()).unwrap_err();
        assert_eq!(said, "line 3: cache: cannot be `could`; the nearest valid one is `cold`");
        assert_eq!(parsed(true.into()).unwrap_err(), "line 3: cache: must be \"cold\" or \"warm\"");
    }
}
