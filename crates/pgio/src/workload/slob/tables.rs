//! The tables of each session, and what a session needs there: plans, privileges and settings.
//!
//! Inserts and deletes use a queue of rows besides the data set, which itself keeps every row. In a table with
//! one row per block, a deleted row leaves a block that only VACUUM frees, and a newly inserted row takes another
//! block: in the data set's tables, every pair would move a row to the table's end. Therefore the pairs use the
//! table `pgio_turnover`, which is created for each trial: each session alternately inserts at the head of its
//! own queue and deletes at its tail, and vacuums between two slices, as autovacuum would in time. The table
//! always holds [`DEPTH`] rows per session, and its file additionally holds the deleted rows of a slice or two.
//!
//! Scans read the whole table `pgio_scan`, which `pgio setup` creates with SCAN_SCALE. The table has no index, so
//! a sequential scan is the only plan; this is checked like the other plans. A scan is one operation of any
//! length: the window ends when the last scan has ended.

use std::ops::RangeInclusive;
use std::time::Duration;

use pgio_connect::Client;

use crate::config::resolve::SlobSettings;
use crate::config::value::Access;
use crate::dataset;
use crate::dataset::mark::SLOB_TABLE;
use crate::pg::session::{Owners, find_untrusted};
use crate::workload::sql::{self, fill};
use crate::workload::{EngineError, PlanCheck};

/// The workload `slob` on a verified data set.
#[derive(Debug, Clone)]
pub struct Slob {
    pub settings: SlobSettings,
    /// The schema of the tables.
    pub schema: String,
    pub loaded: dataset::Mark,
}

impl Slob {
    /// Returns the numbers of a session's tables; several if there are fewer sessions than tables.
    pub(super) fn tables(&self, session: u32) -> RangeInclusive<u32> {
        let (tables, sessions) = (self.settings.tables(), self.settings.sessions());
        if sessions >= tables {
            // The first NUM_SCHEMAS sessions have one table each; further sessions start again at the first.
            let own = session % tables + 1;
            return own..=own;
        }
        let up_to = |sessions_before: u32| {
            (u64::from(sessions_before) * u64::from(tables) / u64::from(sessions)) as u32
        };
        up_to(session) + 1..=up_to(session + 1)
    }

    /// Returns the qualified name of the hot table, if any.
    pub(super) fn hot_table(&self) -> Option<String> {
        let hot = self.settings.features.hot_table.as_ref()?;
        Some(sql::qualified(&self.schema, &format!("pgio{}", hot.number)))
    }

    pub(super) fn has_turnover(&self) -> bool {
        !self.settings.features.turnover_pct.is_zero()
    }

    pub(super) fn updates(&self) -> bool {
        self.settings.update_pct > 0
    }

    pub(super) fn plans(&self, tables: &[String]) -> Vec<PlanCheck> {
        let s = &self.settings;
        let node = match s.access {
            Access::Index => "Index Scan",
            Access::Bitmap => "Bitmap Heap Scan",
        };
        let check = |verb: &str, unit: u64| PlanCheck {
            statement: format!("{verb} WHERE {}", key_range("$1", unit)),
            parameters: vec![1],
            node: node.into(),
        };
        let mut plans = Vec::new();
        for table in tables.iter().cloned().chain(self.hot_table()) {
            plans.push(check(&format!("SELECT count(*) FROM {table}"), s.work_unit));
            if self.updates() {
                let update = format!("UPDATE {table} SET scratch = scratch + 1");
                plans.push(check(&update, s.update_work_unit));
            }
        }
        if self.has_turnover() {
            plans.push(check(&format!("DELETE FROM {}", self.qualified(TURNOVER_TABLE)), 1));
        }
        if !s.features.scan_pct.is_zero() {
            let statement = format!("SELECT count(*) FROM {}", self.qualified(SCAN_TABLE));
            plans.push(PlanCheck { statement, parameters: Vec::new(), node: "Seq Scan".into() });
        }
        plans
    }

    pub(super) fn privileges(&self, tables: &[String]) -> Vec<(String, &'static str)> {
        let needed: &[&str] = if self.updates() { &["SELECT", "UPDATE"] } else { &["SELECT"] };
        let tables = tables.iter().cloned().chain(self.hot_table());
        let each = |table: String| needed.iter().map(move |privilege| (table.clone(), *privilege));
        let mut all: Vec<_> = tables.flat_map(each).collect();
        if !self.settings.features.scan_pct.is_zero() {
            all.push((self.qualified(SCAN_TABLE), "SELECT"));
        }
        all
    }

    pub(super) fn qualified(&self, table: &str) -> String {
        sql::qualified(&self.schema, table)
    }

    /// Returns when a session connects within the ramp: the first one at once, the last one at its end.
    pub(super) fn delay(&self, session: u32) -> Duration {
        let ramp = self.settings.features.ramp;
        ramp.mul_f64(f64::from(session) / f64::from((self.settings.sessions() - 1).max(1)))
    }

    pub(super) fn pins(&self) -> Vec<(&'static str, String)> {
        let bitmap = self.settings.access == Access::Bitmap;
        let on = |yes: bool| if yes { "on" } else { "off" }.to_owned();
        let mut pins = vec![
            ("enable_indexscan", on(!bitmap)),
            ("enable_bitmapscan", on(bitmap)),
            ("enable_seqscan", on(false)),
            ("enable_indexonlyscan", on(false)),
            ("plan_cache_mode", "force_generic_plan".to_owned()),
            ("max_parallel_workers_per_gather", "0".to_owned()),
            ("jit", on(false)),
        ];
        if self.settings.batch > 1 {
            pins.extend([("enable_hashjoin", on(false)), ("enable_mergejoin", on(false))]);
        }
        if self.settings.commit_every == 0 && self.updates() {
            // Row locks last until the end of the window; a session that waits for one must continue.
            pins.push(("lock_timeout", "500ms".to_owned()));
        }
        pins
    }
}

/// Returns the `WHERE` condition for exactly `unit` keys from `first`: equality for one, else a closed range.
pub(crate) fn key_range(first: &str, unit: u64) -> String {
    match unit {
        1 => format!("mykey = {first}"),
        _ => format!("mykey BETWEEN {first} AND {first} + {}", unit - 1),
    }
}

pub(super) const TURNOVER_TABLE: &str = "pgio_turnover";

/// Rows per session.
pub(super) const DEPTH: u64 = 64;
/// Keys per session: more than it can ever insert.
const KEYS: u64 = 1 << 40;

pub(super) fn first_key(session: u32) -> u64 {
    u64::from(session) * KEYS
}

/// Creates the table, logged or unlogged like the data set.
pub(super) fn create_turnover_table(
    admin: &mut Client,
    schema: &str,
    sessions: u32,
    unlogged: bool,
) -> Result<(), pgio_connect::Error> {
    remove_turnover_table(admin, schema)?;
    admin.batch_execute(&fill(
        sql::TURNOVER_TABLE,
        &[
            ("table", &sql::qualified(schema, TURNOVER_TABLE)),
            ("unlogged", if unlogged { "UNLOGGED " } else { "" }),
            ("mark", SLOB_TABLE),
            ("keys_each", &KEYS.to_string()),
            ("sessions", &sessions.to_string()),
            ("depth", &DEPTH.to_string()),
        ],
    ))
}

/// Drops only a table with pgio's mark; otherwise CREATE fails.
pub(super) fn remove_turnover_table(
    admin: &mut Client,
    schema: &str,
) -> Result<(), pgio_connect::Error> {
    if sql::is_marked(admin, schema, TURNOVER_TABLE, SLOB_TABLE)? {
        admin.batch_execute(&format!("DROP TABLE {}", sql::qualified(schema, TURNOVER_TABLE)))
    } else {
        Ok(())
    }
}

/// Returns the VACUUM that a session runs between two slices. It skips a table that another session is
/// vacuuming, and does not truncate the file, which would need an exclusive lock.
pub(super) fn vacuum_statement(schema: &str) -> String {
    format!("VACUUM (SKIP_LOCKED, TRUNCATE off) {}", sql::qualified(schema, TURNOVER_TABLE))
}

pub(super) const SCAN_TABLE: &str = "pgio_scan";

/// Refuses, before anything is run, if pgio's table does not exist or may run code of others.
pub fn check_scan_table(admin: &mut Client, schema: &str) -> Result<(), EngineError> {
    let failed = |source| EngineError::Postgres { doing: "finding pgio_scan", source };
    let row = admin.query_one(sql::SCAN_TABLE, &[&schema, &SCAN_TABLE]).map_err(failed)?;
    if !row.try_get::<_, bool>(0)? {
        return Err(EngineError::NoScanTable);
    }
    let found = find_untrusted(admin, schema, &[SCAN_TABLE], Owners::Trusted).map_err(failed)?;
    found.map_or(Ok(()), |untrusted| Err(EngineError::Untrusted(untrusted)))
}
