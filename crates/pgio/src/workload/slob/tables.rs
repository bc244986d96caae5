//! The tables of each session, and what a session needs there: plans, privileges and settings.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{scan, turnover};
use crate::config::resolve::SlobSettings;
use crate::config::value::Access;
use crate::dataset;
use crate::workload::{PlanCheck, sql};

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
            plans.push(check(&format!("DELETE FROM {}", self.qualified(turnover::TABLE)), 1));
        }
        if !s.features.scan_pct.is_zero() {
            let statement = format!("SELECT count(*) FROM {}", self.qualified(scan::TABLE));
            plans.push(PlanCheck { statement, parameters: Vec::new(), node: "Seq Scan".into() });
        }
        plans
    }

    pub(super) fn privileges(&self, tables: &[String]) -> Vec<(String, &'static str)> {
        let needed: &[&str] = if self.updates() { &["SELECT", "UPDATE"] } else { &["SELECT"] };
        let tables = tables.iter().cloned().chain(self.hot_table());
        let of = |table: String| needed.iter().map(move |privilege| (table.clone(), *privilege));
        let mut all: Vec<_> = tables.flat_map(of).collect();
        if !self.settings.features.scan_pct.is_zero() {
            all.push((self.qualified(scan::TABLE), "SELECT"));
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
