//! `slob`: random visits to single blocks, reads and updates in a seeded mix.
//!
//! Every session works on one table by a block of static SQL (sql/slob.sql), made for the
//! settings at hand. The access path is pinned by session settings and then checked by EXPLAIN,
//! since a plan that the optimizer chose freely would be an undeclared difference.

use std::collections::BTreeMap;
use std::sync::Arc;

use postgres::Client;
use serde_json::json;

use super::sql::{self, fill};
use super::{
    EngineError, Gang, PlanCheck, Ready, Script, Sessions, Setup, Totals, Workload, client,
};
use crate::config::Engine;
use crate::config::resolve::{Extent, SlobSettings};
use crate::config::value::Access;
use crate::dataset;
use crate::results::model::{DatasetInfo, WorkloadInfo};

/// `slob` on a data set that has been verified.
#[derive(Debug, Clone)]
pub struct Slob {
    pub settings: SlobSettings,
    /// The schema of the tables.
    pub schema: String,
    pub loaded: dataset::Mark,
}

impl Slob {
    fn table(&self, session: u32) -> String {
        // Sessions go round the tables, so that the first NUM_SCHEMAS have one table each.
        format!("pgio{}", session % self.settings.num_schemas + 1)
    }

    fn read_only(&self) -> bool {
        self.settings.update_pct == 0
    }

    fn body(&self, table: &str) -> String {
        let s = &self.settings;
        let read = match (s.batch, s.work_unit) {
            (2.., _) => sql::READ_BATCH,
            (_, 1) => sql::READ_ONE,
            _ => sql::READ_RANGE,
        };
        let (update, commit, owed) = match s.commit_every {
            // One statement takes its row locks in key order, so it can wait but not deadlock.
            1 => (sql::UPDATE_PLAIN, sql::COMMIT, ""),
            0 => (sql::UPDATE_RETRY, "", ""),
            _ => (sql::UPDATE_RETRY, sql::COMMIT_EVERY, sql::COMMIT_OWED),
        };
        // A transaction that has to last over the window cannot be rolled back from inside.
        let roll_back = if s.commit_every == 0 { "" } else { sql::ROLL_BACK };
        fill(
            sql::SLOB,
            &[
                ("read", read.trim_end()),
                ("update", update.trim_end()),
                ("commit", commit.trim_end()),
                ("last_commit", owed.trim_end()),
                ("roll_back", roll_back.trim_end()),
                ("commit", sql::COMMIT.trim_end()),
                ("record_read", &sql::record("read", "t0")),
                ("record_update", &sql::record("update", "t0")),
                ("record_commit", &sql::record("commit", "t0")),
                ("update_where", &key_range("k", s.update_work_unit)),
                ("table", table),
                ("keys", &s.scale.blocks().to_string()),
                ("is_update", &is_update(s.update_pct)),
                ("work_unit_less_one", &(s.work_unit - 1).to_string()),
                ("work_unit", &s.work_unit.to_string()),
                ("update_work_unit", &s.update_work_unit.to_string()),
                ("commit_every", &s.commit_every.to_string()),
                ("batch", &s.batch.to_string()),
            ],
        )
    }

    fn plans(&self, table: &str) -> Vec<PlanCheck> {
        let s = &self.settings;
        let node = match s.access {
            Access::Index => "Index Scan",
            Access::Bitmap => "Bitmap Heap Scan",
        };
        let check = |verb: &str, unit: u64| PlanCheck {
            statement: format!("{verb} WHERE {}", key_range("$1", unit)),
            parameters: vec![1],
            node,
        };
        let mut plans = vec![check(&format!("SELECT count(*) FROM {table}"), s.work_unit)];
        if !self.read_only() {
            let update = format!("UPDATE {table} SET scratch = scratch + 1");
            plans.push(check(&update, s.update_work_unit));
        }
        plans
    }

    fn privileges(&self, table: &str) -> Vec<(String, &'static str)> {
        let needed: &[&str] = if self.read_only() { &["SELECT"] } else { &["SELECT", "UPDATE"] };
        needed.iter().map(|privilege| (table.to_owned(), *privilege)).collect()
    }

    fn pins(&self) -> Vec<(&'static str, String)> {
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
        if self.settings.commit_every == 0 && !self.read_only() {
            // Row locks last to the window's end here: a session that waits for one must go on.
            pins.push(("lock_timeout", "500ms".to_owned()));
        }
        pins
    }
}

/// The draw of the mix, where there is something to draw.
fn is_update(pct: u8) -> String {
    match pct {
        0 => "false".to_owned(),
        100 => "true".to_owned(),
        n => format!("random() < {}", f64::from(n) / 100.0),
    }
}

/// `WHERE` for exactly `unit` keys from `first` on: equality for one, else a closed range.
pub(super) fn key_range(first: &str, unit: u64) -> String {
    match unit {
        1 => format!("mykey = {first}"),
        _ => format!("mykey BETWEEN {first} AND {first} + {}", unit - 1),
    }
}

impl Workload for Slob {
    fn info(&self) -> WorkloadInfo {
        let s = &self.settings;
        let primary =
            if self.read_only() { "block_visits_per_second" } else { "commits_per_second" };
        // With one transaction a session there is no rate of commits to speak of.
        let primary = if s.commit_every == 0 { "block_visits_per_second" } else { primary };
        // At a rate that is given, what differs is how long each call takes.
        let primary = match (s.engine.is_paced(), self.read_only()) {
            (false, _) => primary,
            (true, true) => "read_latency_p99",
            (true, false) => "update_latency_p99",
        };
        let mut info = WorkloadInfo {
            kind: "slob".to_owned(),
            primary_metric: primary.to_owned(),
            keys: BTreeMap::from([
                ("update_pct".to_owned(), json!(s.update_pct)),
                ("num_schemas".to_owned(), json!(s.num_schemas)),
                ("num_threads".to_owned(), json!(s.num_threads)),
                ("work_unit".to_owned(), json!(s.work_unit)),
                ("update_work_unit".to_owned(), json!(s.update_work_unit)),
                ("scale".to_owned(), json!(s.scale.to_string())),
                ("access".to_owned(), json!(s.access.name())),
                ("commit_every".to_owned(), json!(s.commit_every)),
                ("batch".to_owned(), json!(s.batch)),
            ]),
        };
        info.keys.extend(s.engine.keys().into_iter().map(|(name, v)| (name.to_owned(), v)));
        info
    }

    fn extent(&self) -> Extent {
        Extent::Time(self.settings.run_time)
    }

    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Ready>, EngineError> {
        match self.settings.engine {
            Engine::Server => {
                Ok(Box::new(Gang::assemble(&(self as Arc<dyn Sessions>), setup, admin)?))
            }
            Engine::Client(settings) => {
                client::assemble(client::slob::calls(&self), settings, setup, admin)
            }
        }
    }

    fn before_trial(&self, _admin: &mut Client) -> Result<(), postgres::Error> {
        Ok(())
    }

    fn dataset(&self, admin: &mut Client) -> Result<Option<DatasetInfo>, postgres::Error> {
        let bytes = dataset::size(admin)?;
        Ok(Some(DatasetInfo {
            tables: self.settings.num_schemas,
            scale: self.loaded.scale.clone(),
            blocks_per_table: self.loaded.blocks,
            seed: self.loaded.seed,
            bytes_before: bytes,
            bytes_after: bytes,
        }))
    }

    fn metrics(&self, totals: &Totals, seconds: f64) -> Vec<(&'static str, Option<f64>)> {
        let per_second = |n: u64| Some(n as f64 / seconds);
        let (reads, updates) = (totals.count("read"), totals.count("update"));
        let mut metrics = vec![("block_visits_per_second", per_second(totals.block_visits()))];
        if let Engine::Client(settings) = &self.settings.engine {
            metrics.extend(client::metrics(settings, totals, seconds));
        }
        if !self.read_only() {
            metrics.extend([
                ("updates_per_second", per_second(totals.rows_updated)),
                ("update_calls_per_second", per_second(updates)),
                ("update_pct_measured", share(updates, reads + updates)),
                ("deadlocks", Some(totals.deadlocks as f64)),
            ]);
        }
        metrics
    }

    fn clean_up(&self, _admin: &mut Client) -> Result<(), postgres::Error> {
        Ok(())
    }
}

impl Sessions for Slob {
    fn count(&self) -> u32 {
        self.settings.num_schemas * self.settings.num_threads
    }

    fn script(&self, session: u32) -> Script {
        let table = self.table(session);
        let qualified = sql::qualified(&self.schema, &table);
        Script {
            body: self.body(&qualified),
            plans: self.plans(&qualified),
            pins: self.pins(),
            privileges: self.privileges(&qualified),
            one_transaction: self.settings.commit_every == 0 && !self.read_only(),
            table,
        }
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}
