//! The workload `commit`: single-row INSERT transactions, one after the other, on either engine.
//!
//! The table is created for each trial, so that every trial starts with an empty file. It carries
//! pgio's mark, so that `destroy` finds it after a killed run.

use std::collections::BTreeMap;
use std::sync::Arc;

use pgio_connect::Client;
use serde_json::json;

use super::client::ClientWork;
use super::shared::Proof;
use super::sql::{self, fill};
use super::{
    CreatedTable, EngineError, Participants, Script, SessionPool, Sessions, Setup, Totals,
    Workload, client, weave,
};
use crate::config::Engine;
use crate::config::resolve::{CommitSettings, Extent};
use crate::dataset::mark::COMMIT_TABLE;
use crate::pg::session::{Owners, find_untrusted};
use pgio_results::latency;
use pgio_results::latency::Class;
use pgio_results::model::WorkloadInfo;

pub const TABLE: &str = "pgio_commit";

#[derive(Debug, Clone)]
pub struct Commit {
    pub settings: CommitSettings,
    /// The schema of the table.
    pub schema: String,
}

impl Commit {
    /// Refuses, before anything is created, if the user has a relation of this name.
    pub fn check(&self, admin: &mut Client) -> Result<(), EngineError> {
        let row = admin.query_one("SELECT to_regclass($1) IS NOT NULL", &[&self.qualified()]);
        let failed = |source| EngineError::Postgres { doing: "looking for the table", source };
        let taken: bool = row.map_err(failed)?.try_get(0)?;
        if taken && !self.is_ours(admin).map_err(failed)? {
            return Err(EngineError::NotOurs(self.qualified()));
        }
        let found = find_untrusted(admin, &self.schema, &[TABLE], Owners::Trusted);
        found.map_err(failed)?.map_or(Ok(()), |untrusted| Err(EngineError::Untrusted(untrusted)))
    }

    fn is_ours(&self, admin: &mut Client) -> Result<bool, pgio_connect::Error> {
        sql::is_marked(admin, &self.schema, TABLE, COMMIT_TABLE)
    }

    pub(super) fn qualified(&self) -> String {
        sql::qualified(&self.schema, TABLE)
    }
}

impl Workload for Commit {
    fn info(&self) -> WorkloadInfo {
        let s = &self.settings;
        let mut keys = BTreeMap::from([
            ("sessions".to_owned(), json!(s.sessions)),
            ("rows_per_transaction".to_owned(), json!(s.rows_per_transaction)),
            ("payload".to_owned(), json!(s.payload)),
            ("index".to_owned(), json!(s.index)),
        ]);
        keys.extend(s.engine.keys().into_iter().map(|(name, value)| (name.to_owned(), value)));
        if let Extent::Transactions(n) = s.extent {
            keys.insert("transactions".to_owned(), json!(n));
        }
        WorkloadInfo {
            kind: "commit".to_owned(),
            // The rate is given, so only the latency differs.
            primary_metric: match s.engine.pace() {
                Some(pace) => {
                    let calls = s.extent.calls_at(pace.rate as f64, s.sessions);
                    latency::primary(Class::Transaction, calls).to_owned()
                }
                None => "commits_per_second".to_owned(),
            },
            keys,
        }
    }

    fn extent(&self) -> Extent {
        self.settings.extent
    }

    fn connections(&self) -> u32 {
        self.count()
    }

    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        match self.settings.engine {
            Engine::Server => {
                Ok(Box::new(SessionPool::assemble(&(self as Arc<dyn Sessions>), setup, admin)?))
            }
            Engine::Client(settings) => {
                let calls = client::assemble::commit_calls(&self);
                let (table, rows) = (self.qualified(), self.settings.rows_per_transaction);
                let proof = Proof::Inserted { table, rows: u64::from(rows) };
                ClientWork { calls, settings, proof }.prepare(setup, admin)
            }
        }
    }

    fn weave_obstacle(&self) -> Option<&'static str> {
        weave::obstacle(&self.settings.engine, self.settings.extent)
    }

    fn sessions(self: Arc<Self>) -> Option<Arc<dyn Sessions>> {
        Some(self)
    }

    fn before_trial(&self, admin: &mut Client) -> Result<(), pgio_connect::Error> {
        self.clean_up(admin)?;
        let table = self.qualified();
        let key = if self.settings.index {
            "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        } else {
            ""
        };
        let values = [("table", table.as_str()), ("key", key), ("mark", COMMIT_TABLE)];
        admin.batch_execute(&fill(sql::COMMIT_TABLE, &values))
    }

    fn metrics(&self, totals: &Totals, seconds: f64) -> Vec<(&'static str, Option<f64>)> {
        let commits = totals.count("commit");
        let rows = commits as f64 * f64::from(self.settings.rows_per_transaction);
        let mut metrics = vec![
            ("rows_per_second", Some(rows / seconds)),
            (
                "seconds_per_10000_transactions",
                (commits > 0).then(|| seconds * 10_000.0 / commits as f64),
            ),
        ];
        if let Engine::Client(settings) = &self.settings.engine {
            metrics.extend(client::metrics(settings, totals, seconds));
        }
        metrics
    }

    fn created_table(&self) -> Option<CreatedTable> {
        Some(CreatedTable { schema: self.schema.clone(), name: TABLE, mark: COMMIT_TABLE })
    }

    fn clean_up(&self, admin: &mut Client) -> Result<(), pgio_connect::Error> {
        // Drop only a table with pgio's mark; otherwise CREATE fails.
        if self.is_ours(admin)? {
            admin.batch_execute(&format!("DROP TABLE {}", self.qualified()))
        } else {
            Ok(())
        }
    }
}

impl Sessions for Commit {
    fn count(&self) -> u32 {
        self.settings.sessions
    }

    fn script(&self, _session: u32) -> Script {
        let s = &self.settings;
        let insert = match s.rows_per_transaction {
            1 => sql::INSERT_ONE,
            _ => sql::INSERT_SEVERAL,
        };
        let payload = match s.payload {
            0 => "NULL".to_owned(),
            n => sql::literal(&"X".repeat(n as usize)),
        };
        let body = fill(
            sql::COMMIT_WORKLOAD,
            &[
                ("statement", insert.trim_end()),
                ("commit", sql::COMMIT.trim_end()),
                ("record_commit", &sql::record("commit", "t0")),
                ("record_transaction", &sql::record("transaction", "t1")),
                ("table", &self.qualified()),
                ("payload", &payload),
                ("rows_per_transaction", &s.rows_per_transaction.to_string()),
            ],
        );
        Script {
            table: TABLE.to_owned(),
            pins: vec![("jit".into(), "off".to_owned())],
            body,
            plans: Vec::new(),
            // The role owns the table.
            privileges: Vec::new(),
            ..Script::default()
        }
    }
}
