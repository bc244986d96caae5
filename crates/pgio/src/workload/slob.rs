//! The workload `slob`: visits to single blocks, reads and updates in a seeded mix, and the other
//! features of SLOB: skewed visits, scans, think time, inserts and deletes.
//!
//! Every session runs a block of static SQL ([`body`]) that is generated from the settings. It works on
//! one table; if there are fewer sessions than tables, on its share of them in turn ([`tables`]). The
//! access path is pinned by session settings and then checked by EXPLAIN, because a plan chosen freely
//! by the optimizer would be an undeclared difference. Next: [`draw`] determines which blocks are
//! visited, [`measured`] computes the metrics.

mod body;
pub mod draw;
mod measured;
pub(super) mod tables;

use std::sync::Arc;

use pgio_connect::Client;

use super::client::ClientWork;
use super::shared::Proof;
use super::{
    EngineError, Participants, Script, SessionPool, Sessions, Setup, Totals, Workload, client,
    weave,
};
use crate::config::Engine;
use crate::config::resolve::Extent;
use crate::dataset;
use pgio_results::model::{DatasetInfo, WorkloadInfo};
use pgio_results::units::BLOCK_BYTES;
pub use tables::{Slob, check_scan_table};

impl Workload for Slob {
    fn info(&self) -> WorkloadInfo {
        let mut info = WorkloadInfo {
            kind: "slob".to_owned(),
            primary_metric: measured::primary(&self.settings).to_owned(),
            keys: measured::keys(&self.settings),
        };
        let engine = self.settings.engine.keys().into_iter();
        info.keys.extend(engine.map(|(name, value)| (name.to_owned(), value)));
        info
    }

    fn extent(&self) -> Extent {
        self.settings.extent()
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
                let calls = client::assemble::slob_calls(&self);
                let table = |number: u32| self.qualified(&format!("pgio{number}"));
                let tables = (1..=self.settings.tables()).map(table).collect();
                let proof = Proof::Scanned { tables };
                ClientWork { calls, settings, proof }.prepare(setup, admin)
            }
        }
    }

    /// A commit without WAL has nothing to flush.
    fn commits_wait_for_flush(&self) -> bool {
        !self.loaded.layout.unlogged && (self.updates() || self.has_turnover())
    }

    fn weave_obstacle(&self) -> Option<&'static str> {
        // The end of a slice commits what is pending: transactions would be as short as slices.
        if self.settings.commit_every != 1 && self.updates() {
            return Some(
                "with commit_every other than 1, the end of a slice would commit a transaction early",
            );
        }
        weave::obstacle(&self.settings.engine, self.settings.extent())
    }

    fn sessions(self: Arc<Self>) -> Option<Arc<dyn Sessions>> {
        Some(self)
    }

    fn before_trial(&self, admin: &mut Client) -> Result<(), pgio_connect::Error> {
        if self.has_turnover() {
            let unlogged = self.loaded.layout.unlogged;
            tables::create_turnover_table(admin, &self.schema, self.count(), unlogged)
        } else {
            Ok(())
        }
    }

    fn dataset(&self, admin: &mut Client) -> Result<Option<DatasetInfo>, pgio_connect::Error> {
        let bytes = dataset::size(admin)?;
        Ok(Some(DatasetInfo {
            tables: self.settings.tables(),
            scale: self.loaded.scale.clone(),
            blocks_per_table: self.loaded.blocks,
            seed: self.loaded.seed,
            layout: self.loaded.layout,
            bytes_before: bytes,
            bytes_after: bytes,
            bytes_used: self.bytes_used(),
        }))
    }

    fn metrics(&self, totals: &Totals, seconds: f64) -> Vec<(&'static str, Option<f64>)> {
        let mut metrics = measured::metrics(&self.settings, totals, seconds);
        if let Engine::Client(settings) = &self.settings.engine {
            metrics.extend(client::metrics(settings, totals, seconds));
        }
        metrics
    }

    fn clean_up(&self, admin: &mut Client) -> Result<(), pgio_connect::Error> {
        if self.has_turnover() {
            tables::remove_turnover_table(admin, &self.schema)
        } else {
            Ok(())
        }
    }
}

impl Sessions for Slob {
    fn count(&self) -> u32 {
        self.settings.sessions()
    }

    fn passes(&self) -> u32 {
        self.settings.tables_per_session()
    }

    fn script(&self, session: u32) -> Script {
        let name = |number: u32| format!("pgio{number}");
        let numbers = self.tables(session);
        let tables: Vec<String> = numbers.clone().map(|n| self.qualified(&name(n))).collect();
        let (table, own, rotation) = match &tables[..] {
            [own] => (name(*numbers.start()), own.clone(), Vec::new()),
            _ => {
                let [first, last] = [*numbers.start(), *numbers.end()].map(name);
                (format!("{first} to {last}"), "{table}".to_owned(), tables.clone())
            }
        };
        Script {
            body: body::body(self, session, &own),
            plans: self.plans(&tables),
            pins: self.pins().into_iter().map(|(name, value)| (name.into(), value)).collect(),
            privileges: self.privileges(&tables).into_iter().map(|(t, p)| (t, p.into())).collect(),
            rotation,
            one_transaction: self.settings.commit_every == 0 && self.updates(),
            delay: self.delay(session),
            after_slice: self.has_turnover().then(|| tables::vacuum_statement(&self.schema)),
            table,
        }
    }
}

impl Slob {
    /// Bytes of the rows that the sessions draw; `None` if these are all that were loaded.
    fn bytes_used(&self) -> Option<u64> {
        let (tables, blocks) = (self.settings.tables(), self.settings.scale.blocks());
        let is_part = tables < self.loaded.tables || blocks < self.loaded.blocks;
        is_part.then(|| u64::from(tables) * blocks * BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Layer;
    use crate::config::resolve::SlobSettings;
    use crate::workload::sql;
    use pgio_results::units::Layout;

    fn slob(tables: u32, sessions: Option<u32>) -> Slob {
        let num_schemas = Some(tables);
        let layer = Layer { num_schemas, sessions, ..Layer::default() };
        Slob {
            settings: SlobSettings::resolve(layer).unwrap(),
            schema: "public".to_owned(),
            loaded: dataset::Mark {
                version: 3,
                scale: "8M".to_owned(),
                blocks: 1024,
                tables,
                seed: 1,
                layout: Layout::default(),
            },
        }
    }

    #[test]
    fn each_table_has_a_session_however_few_they_are() {
        for (tables, sessions) in [(1, 1), (7, 3), (8, 8), (4096, 64), (4096, 4095), (8192, 1)] {
            let slob = slob(tables, Some(sessions));
            let all: Vec<u32> = (0..sessions).flat_map(|s| slob.tables(s)).collect();
            assert!(all.into_iter().eq(1..=tables), "{tables} {sessions}");
            let most = (0..sessions).map(|s| slob.tables(s).count()).max();
            assert_eq!(most, Some(slob.passes() as usize), "{tables} {sessions}");
        }
        // More sessions start again at the first table.
        assert_eq!(slob(2, Some(5)).tables(4), 1..=1);
    }

    #[test]
    fn commits_of_reads_and_of_unlogged_tables_wait_for_no_flush() {
        let waits = |update_pct, unlogged| {
            let layer = Layer { update_pct: Some(update_pct), ..Layer::default() };
            let mut slob =
                Slob { settings: SlobSettings::resolve(layer).unwrap(), ..slob(1, None) };
            slob.loaded.layout.unlogged = unlogged;
            slob.commits_wait_for_flush()
        };
        assert!(waits(30, false));
        assert!(!waits(0, false));
        assert!(!waits(30, true));
    }

    #[test]
    fn a_share_of_the_tables_is_visited_in_turn() {
        let script = slob(7, Some(3)).script(1);
        assert_eq!((&*script.table, script.rotation.len()), ("pgio3 to pgio4", 2));
        assert!(script.body.contains("FROM {table} "), "{}", script.body);
        assert_eq!(script.plans.len(), 2);
        let alone = slob(7, None).script(1);
        assert_eq!((&*alone.table, alone.rotation.len()), ("pgio2", 0));
        assert!(alone.body.contains("\"public\".\"pgio2\"") && !alone.body.contains("{table}"));
    }

    #[test]
    fn sessions_connect_evenly_over_the_ramp() {
        let layer = Layer {
            ramp: Some(Duration::from_secs(3)),
            warmup: Some(Duration::from_secs(3)),
            sessions: Some(4),
            ..Layer::default()
        };
        let slob = Slob { settings: SlobSettings::resolve(layer).unwrap(), ..slob(1, None) };
        let delays: Vec<Duration> = (0..4).map(|session| slob.script(session).delay).collect();
        assert_eq!(delays, [0, 1, 2, 3].map(Duration::from_secs));
    }

    #[test]
    fn a_part_of_the_data_is_recorded_as_such() {
        let bytes_used = |tables, scale: &str, loaded| {
            let scale = Some(scale.parse().unwrap());
            let layer = Layer { num_schemas: Some(tables), scale, ..Layer::default() };
            let settings = SlobSettings::resolve(layer).unwrap();
            let mut slob = Slob { settings, ..slob(loaded, None) };
            slob.loaded.blocks = 4096;
            slob.bytes_used()
        };
        assert_eq!(bytes_used(4, "32M", 4), None);
        assert_eq!(bytes_used(4, "8M", 4), Some(32 << 20));
        assert_eq!(bytes_used(1, "32M", 4), Some(32 << 20));
    }

    /// The loop without optional keys: a feature that is not used costs nothing.
    #[test]
    fn unused_features_are_not_in_the_loop() {
        const LOOP: &str = "
            IF random() < 0.3 THEN
                k := 1 + floor(random() * update_span)::bigint;
                t0 := clock_timestamp();
                EXIT WHEN t0 >= until_at;
                UPDATE {table} SET scratch = scratch + 1 WHERE mykey = k;
                GET DIAGNOSTICS n = ROW_COUNT;
                {record_update}
                rows_updated := rows_updated + n;
                t0 := clock_timestamp();
                COMMIT;
                {record_commit}
            ELSE
                k := 1 + floor(random() * read_span)::bigint;
                t0 := clock_timestamp();
                EXIT WHEN t0 >= until_at;
                SELECT scratch INTO n FROM {table} WHERE mykey = k;
                GET DIAGNOSTICS n = ROW_COUNT;
                {record_read}
                blocks_read := blocks_read + n;
            END IF;";
        let lines = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.trim().to_owned()).filter(|l| !l.is_empty()).collect()
        };
        let layer = Layer {
            update_pct: Some(30),
            work_unit: Some(1),
            update_work_unit: Some(1),
            ..Layer::default()
        };
        let settings = SlobSettings::resolve(layer).unwrap();
        let body = Slob { settings, ..slob(1, None) }.script(0).body;
        let (_, rest) = body.split_once("    LOOP\n").unwrap();
        let (found, _) = rest.split_once("    END LOOP;").unwrap();
        let record = |class| sql::record(class, "t0");
        let expected = sql::fill(
            LOOP,
            &[
                ("record_update", &record("update")),
                ("record_commit", &record("commit")),
                ("record_read", &record("read")),
                ("table", "\"public\".\"pgio1\""),
            ],
        );
        assert_eq!(lines(found), lines(&expected));
    }
}
