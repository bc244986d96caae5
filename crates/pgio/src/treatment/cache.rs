//! `cache = "cold" | "warm"`: what is in memory when a trial begins.
//!
//! Cold: PostgreSQL is stopped, the kernel's page cache dropped, PostgreSQL started. Warm: pg_prewarm
//! reads every table and index of the data set into shared_buffers; the extension is
//! created in a transaction that is rolled back, so nothing of it remains. The warm-up
//! comes after either, and warms what it reads.
//!
//! The former content of the cache is not restored. Next: [`resident`], which measures
//! how much of the data set is in memory.

mod resident;

use std::path::Path;

use postgres::Client;

use self::resident::{Relations, Resident};
use super::context::{Context, Machines};
use super::contract::{Cost, Declared, InForce, Kind, Prepared, Preview, Treatment};
use super::error::TreatmentError;
use super::journal::Journal;
use super::record::Record;
use super::resource::Touch;
use super::step::Step;
use super::{body, stopped};
use crate::config::experiment::TreatmentSpec;
use crate::config::nearest;
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::check_writable;
use pgio_results::change::{Change, Subject};
use pgio_results::model::{Evidence, When};
use pgio_results::units::human;

const NAME: &str = "cache";

pub(super) const KIND: Kind = Kind {
    name: NAME,
    help: "before each trial: \"cold\" (PostgreSQL restarted, the host's page cache dropped) or \"warm\" (the data set read by pg_prewarm)",
    parse,
    read,
};

const NAMES: &[&str] = &["cold", "warm"];
const IN_MEMORY: &str = "data set in memory";
const WARMED_UP: &str = "data set in memory after the warm-up";
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const PURPOSE: &str = "a cold cache";

/// Largest share of the data set in memory for a cold start; the sessions of a trial read a little
/// while they are prepared.
const MAX_COLD_SHARE: f64 = 0.1;
/// Smallest share for a warm cache.
const MIN_WARM_SHARE: f64 = 0.9;

#[derive(Debug, Clone, Copy)]
enum Cache {
    Cold,
    Warm,
}

#[derive(Debug)]
struct ColdCache {
    /// The server's clock before it was stopped, in seconds since the epoch.
    stopped_after: f64,
    /// Whether evidence was read since: the next reading comes after the warm-up.
    was_read: bool,
}

#[derive(Debug)]
struct WarmCache;

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    match spec.body.as_str() {
        Some("cold") => Ok(Box::new(Cache::Cold)),
        Some("warm") => Ok(Box::new(Cache::Warm)),
        Some(other) => {
            let message = format!("cannot be `{other}`; {}", nearest(other, NAMES));
            Err(body::error(spec, NAME, &message))
        }
        None => Err(body::error(spec, NAME, "must be \"cold\" or \"warm\"")),
    }
}

impl Treatment for Cache {
    fn declared(&self) -> Declared {
        let (value, costs, intent) = match self {
            Cache::Cold => (
                "cold",
                vec![Cost::Restart],
                "cache = cold by a stop of PostgreSQL, the host's drop_caches and a start",
            ),
            Cache::Warm => {
                ("warm", Vec::new(), "cache = warm by pg_prewarm of all of the data set")
            }
        };
        Declared {
            changes: vec![Change::new(None, Subject::Cache, NAME, value)],
            intents: vec![intent.to_owned()],
            costs,
            round_trip: None,
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let relations = Relations::of_data_set(context.admin()?)?;
        let now = match Resident::measure(context, &relations) {
            _ if relations.is_empty() => "no data set".to_owned(),
            Ok(found) => found.to_string(),
            Err(_) => "unknown".to_owned(),
        };
        let (then, how) = match self {
            Cache::Cold => ("cold", "by a restart and the host's drop_caches"),
            Cache::Warm => ("warm", "by pg_prewarm"),
        };
        Ok(vec![Preview { what: NAME.to_owned(), now, then: then.to_owned(), how }])
    }

    /// A server of the user's that is stopped must be started again.
    fn touches(&self, _context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        Ok(match self {
            Cache::Cold => vec![Touch::Server],
            Cache::Warm => Vec::new(),
        })
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        match self {
            Cache::Cold => check_drop_caches(machines),
            Cache::Warm => Ok(()),
        }
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        match self {
            Cache::Cold => check_cold(context)?,
            Cache::Warm => check_warm(context)?,
        }
        context.layout.is_warmed = matches!(self, Cache::Warm);
        Ok(Box::new(*self))
    }
}

impl Prepared for Cache {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        match self {
            Cache::Cold => Ok(Box::new(ColdCache::make(context, journal)?)),
            Cache::Warm => {
                let admin = context.admin()?;
                let relations = Relations::of_data_set(admin)?;
                resident::prewarm(admin, &relations)?;
                Ok(Box::new(WarmCache))
            }
        }
    }
}

impl ColdCache {
    fn make(context: &mut Context<'_>, journal: &mut Journal) -> Result<ColdCache, TreatmentError> {
        let clock = "SELECT extract(epoch FROM clock_timestamp())::float8";
        let now = context.admin()?.query_one(clock, &[]);
        let stopped_after =
            now.map_err(TreatmentError::postgres("read the server's clock"))?.try_get(0)?;
        stopped::stop(context, journal, PURPOSE)?;
        let host = context.host(None)?;
        let drop = CommandLine::new("sh").args(["-c", "sync; echo 3 >\"$1\"", "sh", DROP_CACHES]);
        let dropped = host.run(&drop);
        // Start the server again even after a failure.
        context.start_server(PURPOSE)?;
        dropped?;
        Ok(ColdCache { stopped_after, was_read: false })
    }
}

/// Evidence is read before the window only: the work itself fills the cache.
impl InForce for ColdCache {
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        if when != When::Before {
            return Vec::new();
        }
        let mut all = Vec::new();
        all.extend(context.admin().ok().map(|admin| start_evidence(admin, self.stopped_after)));
        let was_read = std::mem::replace(&mut self.was_read, true);
        let what = if was_read { WARMED_UP } else { IN_MEMORY };
        all.extend(memory_evidence(context, what, |found| {
            if was_read { None } else { Some((found <= MAX_COLD_SHARE, "at most 10 %")) }
        }));
        all
    }
}

impl InForce for WarmCache {
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        if when != When::Before {
            return Vec::new();
        }
        let expected = |found| Some((found >= MIN_WARM_SHARE, "at least 90 % in one of the two"));
        memory_evidence(context, IN_MEMORY, expected).into_iter().collect()
    }
}

/// Returns none without a data set.
fn measure_resident(context: &mut Context<'_>) -> Result<Option<Resident>, TreatmentError> {
    let relations = Relations::of_data_set(context.admin()?)?;
    if relations.is_empty() {
        return Ok(None);
    }
    Resident::measure(context, &relations).map(Some)
}

/// Reads how much of the data set is in memory. `expected` gets the share in the cache that holds more, and
/// returns whether that is right and the expected value; none if no value is expected.
fn memory_evidence(
    context: &mut Context<'_>,
    what: &str,
    expected: impl Fn(f64) -> Option<(bool, &'static str)>,
) -> Option<Evidence> {
    match measure_resident(context) {
        Ok(None) => None,
        Err(error) => Some(evidence(what, format!("unknown: {error}"), None)),
        Ok(Some(found)) => {
            let text = found.to_string();
            // A share that is good enough is its own expectation.
            let expected = found
                .larger_share()
                .and_then(expected)
                .map(|(holds, wanted)| if holds { text.clone() } else { wanted.to_owned() });
            Some(evidence(what, text, expected))
        }
    }
}

fn evidence(what: &str, found: String, expected: Option<String>) -> Evidence {
    Evidence { when: When::Before, what: what.to_owned(), found, expected }
}

/// Proves that the server was started after its cache was dropped. Compares numbers: a time zone's name
/// may be ambiguous.
fn start_evidence(admin: &mut Client, asked: f64) -> Evidence {
    let sql = "SELECT pg_postmaster_start_time()::text, to_timestamp($1)::text, \
               extract(epoch FROM pg_postmaster_start_time())::float8 > $1";
    let what = "start of PostgreSQL";
    let row = admin.query_one(sql, &[&asked]);
    match row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))) {
        Ok((at, earliest, later)) => {
            let (at, earliest, later): (String, String, bool) = (at, earliest, later);
            let expected = if later { at.clone() } else { format!("after {earliest}") };
            evidence(what, at, Some(expected))
        }
        Err(_) => evidence(what, "unreadable".to_owned(), Some("readable".to_owned())),
    }
}

fn check_cold(context: &mut Context<'_>) -> Result<(), TreatmentError> {
    context.control(PURPOSE)?;
    check_drop_caches(&context.machines())
}

fn check_drop_caches(machines: &Machines<'_>) -> Result<(), TreatmentError> {
    let host = machines.host(None)?;
    let file = Path::new(DROP_CACHES);
    Ok(check_writable(&*host, host.name(), PURPOSE, &[file], None)?)
}

fn check_warm(context: &mut Context<'_>) -> Result<(), TreatmentError> {
    let admin = context.admin()?;
    let relations = Relations::of_data_set(admin)?;
    if relations.is_empty() {
        return Err(TreatmentError::Refused(
            "the database has no pgio data set to warm; load one with `pgio setup` (cache = \"warm\" needs the workload slob)".to_owned(),
        ));
    }
    resident::check_extension(admin)?;
    let buffers: i64 = admin
        .query_one("SELECT pg_size_bytes(current_setting('shared_buffers'))", &[])
        .map_err(TreatmentError::postgres("read shared_buffers"))?
        .try_get(0)?;
    let bytes = relations.bytes();
    let memory = resident::host_memory(context)?;
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

/// The treatment's only step is that of a stopped server, which has its own kind.
fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    Err(record.misread("a cache has no step").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::treatment::test_support::in_words;

    #[test]
    fn cache_accepts_only_cold_and_warm() {
        let parsed = |body: toml::Value| {
            let spec = TreatmentSpec { kind: NAME.to_owned(), body, line: 3 };
            parse(&spec).map(|t| in_words(t.as_ref())).map_err(|e| e.to_string())
        };
        assert_eq!(parsed("cold".into()).unwrap(), ["cache = cold"]);
        assert_eq!(parsed("warm".into()).unwrap(), ["cache = warm"]);
        let shown = parsed("could".into()).unwrap_err();
        assert_eq!(shown, "line 3: cache: cannot be `could`; the nearest valid one is `cold`");
        assert_eq!(parsed(true.into()).unwrap_err(), "line 3: cache: must be \"cold\" or \"warm\"");
    }
}
