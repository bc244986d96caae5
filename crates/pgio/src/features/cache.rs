//! `cache = "cold" | "warm"`: what is in memory when a trial begins.
//!
//! Cold: PostgreSQL is stopped, the kernel's page cache dropped, PostgreSQL started. Warm: pg_prewarm
//! reads every table and index of the data set into shared_buffers; the extension is
//! created in a transaction that is rolled back, so nothing of it remains. The warm-up
//! comes after either, and warms what it reads.
//!
//! The former content of the cache is not restored. Next: [`resident`], which measures
//! how much of the data set is in memory.

use std::fmt;
use std::path::Path;

use pgio_connect::{Client, Transaction};

use crate::config::experiment::TreatmentSpec;
use crate::config::nearest;
use crate::dataset::mark;
use crate::feature::Feature;
use crate::host::exec::{CommandLine, Exec};
use crate::host::proc;
use crate::host::rights::check_writable;
use crate::pg;
use crate::pg::server::directories;
use crate::pg::session::{is_trusted, is_trusted_schema};
use crate::treatment::context::{Context, Machines};
use crate::treatment::contract::{Cost, Declared, InForce, Kind, Prepared, Preview, Treatment};
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::resource::Touch;
use crate::treatment::step::{Record, Step};
use crate::treatment::{body, other_steps};
use pgio_results::change::{Change, Subject};
use pgio_results::model::{Evidence, When};
use pgio_results::units::human;

const NAME: &str = "cache";

pub(super) static FEATURE: Feature = Feature {
    name: "cache",
    treatments: &[KIND],
    examples: &[example!("page-cache")],
    ..Feature::NONE
};

const KIND: Kind = Kind {
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
        let relations = Relations::find(context.admin()?)?;
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
                let relations = Relations::find(admin)?;
                prewarm(admin, &relations)?;
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
        other_steps::stop_server(context, journal, PURPOSE)?;
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
    let relations = Relations::find(context.admin()?)?;
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
    let relations = Relations::find(admin)?;
    if relations.is_empty() {
        return Err(TreatmentError::Refused(
            "the database has no pgio data set to warm; load one with `pgio setup` (cache = \"warm\" needs the workload slob)".to_owned(),
        ));
    }
    check_extension(admin)?;
    let buffers: i64 = admin
        .query_one("SELECT pg_size_bytes(current_setting('shared_buffers'))", &[])
        .map_err(TreatmentError::postgres("read shared_buffers"))?
        .try_get(0)?;
    let bytes = relations.bytes;
    let memory = host_memory(context)?;
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

/// The treatment's only step is the stopped server, which has its own kind.
fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    Err(record.misread("a cache has no step").into())
}

const RELATIONS: &str = include_str!("cache/sql/relations.sql");
const BUFFERED: &str = include_str!("cache/sql/buffered.sql");
const RESIDENT: &str = include_str!("cache/resident.sh");

const PREWARM: &str = "pg_prewarm";
const BUFFERCACHE: &str = "pg_buffercache";

/// The data set's tables that workloads read, and their indexes.
#[derive(Debug, Clone, Default)]
struct Relations {
    oids: Vec<u32>,
    /// The first file of each, relative to the data directory.
    files: Vec<String>,
    bytes: u64,
}

impl Relations {
    fn find(client: &mut Client) -> Result<Relations, TreatmentError> {
        let asking = "find the data set";
        let names = names(&mark::find(client).map_err(TreatmentError::postgres(asking))?);
        let rows = client.query(RELATIONS, &[&names]).map_err(TreatmentError::postgres(asking))?;
        let mut relations = Relations::default();
        for row in &rows {
            relations.oids.push(row.try_get("oid")?);
            relations.files.push(row.try_get("file")?);
            relations.bytes += row.try_get::<_, i64>("bytes")?.unsigned_abs();
        }
        Ok(relations)
    }

    fn is_empty(&self) -> bool {
        self.oids.is_empty()
    }
}

/// Returns the names of the marked tables that workloads read; nothing reads pgio_base.
fn names(found: &[mark::Named]) -> Vec<String> {
    let marked = found.iter().filter(|named| named.mark.is_some()).map(|named| named.part);
    let read = marked.filter(|part| match part {
        mark::Part::Table(_) | mark::Part::Scan => true,
        mark::Part::Base => false,
    });
    read.map(|part| part.to_string()).collect()
}

/// Shares of the data set's bytes, 0 to 1; absent where they could not be measured.
#[derive(Debug, Clone, Copy, Default)]
struct Resident {
    buffers: Option<f64>,
    page_cache: Option<f64>,
}

impl Resident {
    fn measure(
        context: &mut Context<'_>,
        relations: &Relations,
    ) -> Result<Resident, TreatmentError> {
        Ok(Resident {
            buffers: buffered_share(context.admin()?, relations),
            page_cache: page_cache_share(context, relations)?,
        })
    }

    /// The larger of the two, since either cache can hold all of the data set.
    fn larger_share(self) -> Option<f64> {
        self.buffers.into_iter().chain(self.page_cache).max_by(f64::total_cmp)
    }
}

impl fmt::Display for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |share: Option<f64>| match share {
            Some(share) => format!("{:.0} %", share * 100.0),
            None => "an unknown part".to_owned(),
        };
        let (buffers, page_cache) = (share(self.buffers), share(self.page_cache));
        write!(f, "{buffers} in shared_buffers, {page_cache} in the page cache")
    }
}

/// Returns none if pg_buffercache is not installed or this role may not use it.
fn buffered_share(client: &mut Client, relations: &Relations) -> Option<f64> {
    let mut transaction = client.transaction().ok()?;
    let schema = with_extension(&mut transaction, BUFFERCACHE).ok()?;
    let sql = pg::fill(BUFFERED, &[("schema", &pg::identifier(&schema))]);
    let bytes: i64 = transaction.query_one(&sql, &[&relations.oids]).ok()?.try_get(0).ok()?;
    // Dropping the transaction rolls it back.
    Some(bytes as f64 / relations.bytes.max(1) as f64)
}

fn page_cache_share(
    context: &mut Context<'_>,
    relations: &Relations,
) -> Result<Option<f64>, TreatmentError> {
    let directories = directories(context.admin()?)
        .map_err(TreatmentError::postgres("query the data directory"))?;
    let Some(data) = directories.into_iter().find(|d| d.role == "data") else { return Ok(None) };
    let Ok(host) = context.host(None) else { return Ok(None) };
    let files = relations.files.iter().map(|file| format!("{}/{file}", data.path));
    let ask = CommandLine::new("sh").args(["-c", RESIDENT, "sh"]).args(files);
    let text = host.run(&ask)?;
    let resident: Option<u64> = text.lines().map(|line| line.trim().parse::<u64>().ok()).sum();
    let seen = !text.trim().is_empty();
    Ok(resident.filter(|_| seen).map(|bytes| bytes as f64 / relations.bytes.max(1) as f64))
}

/// The memory of the server's host, if that is known.
fn host_memory(context: &Context<'_>) -> Result<Option<u64>, TreatmentError> {
    let Ok(host) = context.host(None) else { return Ok(None) };
    let text = host.run(&CommandLine::new("cat").arg("/proc/meminfo"))?;
    Ok(proc::parse_meminfo(&text).get("total").copied())
}

fn prewarm(client: &mut Client, relations: &Relations) -> Result<(), TreatmentError> {
    let reading = "read the data set into memory";
    let mut transaction = client.transaction().map_err(TreatmentError::postgres(reading))?;
    let schema =
        with_extension(&mut transaction, PREWARM).map_err(TreatmentError::postgres(reading))?;
    let function = pg::qualified(&schema, PREWARM);
    // All arguments with their types, since others may have a function of fewer arguments in that schema.
    let sql = format!(
        "SELECT {function}($1::oid::regclass, 'buffer'::text, 'main'::text, NULL::bigint, NULL::bigint)"
    );
    for oid in &relations.oids {
        transaction.execute(&sql, &[oid]).map_err(TreatmentError::postgres(reading))?;
    }
    transaction.rollback().map_err(TreatmentError::postgres(reading))
}

/// Refuses if [`prewarm`] would fail.
fn check_extension(client: &mut Client) -> Result<(), TreatmentError> {
    let asking = "look for the extension pg_prewarm";
    let existing = client
        .query_opt("SELECT FROM pg_available_extensions WHERE name = $1", &[&PREWARM])
        .map_err(TreatmentError::postgres(asking))?;
    if existing.is_none() {
        return Err(TreatmentError::Refused(
            "the extension pg_prewarm is not installed on the server: install PostgreSQL's contrib package there".to_owned(),
        ));
    }
    let mut transaction = client.transaction().map_err(TreatmentError::postgres(asking))?;
    with_extension(&mut transaction, PREWARM).map(drop).map_err(TreatmentError::postgres(
        "create extension pg_prewarm; as a superuser, run CREATE EXTENSION pg_prewarm once",
    ))
}

/// Returns the schema of the extension, which exists until the transaction ends.
fn with_extension(
    transaction: &mut Transaction<'_>,
    name: &str,
) -> Result<String, pgio_connect::Error> {
    const TEMPORARY_SCHEMA: &str = "pgio_rolled_back";
    // Otherwise creating it fails.
    let find = format!(
        "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace \
         WHERE e.extname = $1 AND {} AND {}",
        is_trusted("e.extowner"),
        is_trusted_schema("n.nspowner")
    );
    let existing = transaction.query_opt(&find, &[&name])?;
    if let Some(row) = existing {
        return row.try_get(0);
    }
    transaction.batch_execute(&format!(
        "CREATE SCHEMA {TEMPORARY_SCHEMA}; CREATE EXTENSION {name} SCHEMA {TEMPORARY_SCHEMA}"
    ))?;
    Ok(TEMPORARY_SCHEMA.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::mark::{Mark, Named, Part};
    use crate::treatment::test_support::described;
    use pgio_results::units::Layout;

    #[test]
    fn cache_accepts_only_cold_and_warm() {
        let read = |body| described(NAME, body).unwrap();
        assert_eq!(read("'cold'"), ["cache = cold"]);
        assert_eq!(read("'warm'"), ["cache = warm"]);
        let error = |body| described(NAME, body).unwrap_err();
        assert_eq!(
            error("'could'"),
            "line 7: cache: cannot be `could`; the nearest valid one is `cold`"
        );
        assert_eq!(error("true"), "line 7: cache: must be \"cold\" or \"warm\"");
    }

    #[test]
    fn the_data_set_in_memory_includes_the_table_for_scans() {
        let mark = Mark {
            version: mark::VERSION,
            scale: "8M".to_owned(),
            blocks: 1024,
            tables: 1,
            seed: 1,
            layout: Layout::default(),
        };
        let named =
            |part, mark| Named { part, mark, owner: "app".to_owned(), owned: true, bytes: 8 << 20 };
        let ours =
            [Part::Base, Part::Scan, Part::Table(1)].map(|part| named(part, Some(mark.clone())));
        let mut found = ours.to_vec();
        found.push(named(Part::Table(2), None));
        assert_eq!(names(&found), ["pgio_scan", "pgio1"]);
    }
}
