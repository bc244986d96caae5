//! The workload `ticks`: one `SELECT 1` at each tick of pgio's own clock.
//!
//! It shows what a workload as a feature needs; tests/dummy.rs tests it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgio_connect::Client;
use serde_json::json;

use crate::config::Layer;
use crate::config::keys::{Use, own_keys, required};
use crate::config::kinds::{PLAIN, WINDOW, WorkloadDef, WorkloadKind};
use crate::config::resolve::{Extent, ResolveError};
use crate::config::value::Kind;
use crate::experiment::application::WorkloadCode;
use crate::feature::Feature;
use crate::host::stop::Stop;
use crate::workload::clock::{Start, wait_until};
use crate::workload::participants::{Participants, Setup, WindowEvent, WindowOutcome};
use crate::workload::window::{Listener, OpenWindow, WindowPlan};
use crate::workload::{EngineError, SessionSettings, Workload};
use pgio_results::histogram::Histogram;
use pgio_results::latency::Class;
use pgio_results::model::WorkloadInfo;

pub(crate) static FEATURE: Feature = Feature {
    name: "ticks",
    workloads: &[WorkloadCode {
        kind: KIND,
        check_programs: |_, _, _| Ok(()),
        prepare: |_, layer, _, _, _| Ok(Arc::new(Ticks::resolve(layer)?)),
        part: None,
    }],
    examples: &[("ticks", include_str!("ticks.toml"))],
    ..Feature::NONE
};

const KIND: WorkloadKind = WorkloadKind(&WorkloadDef {
    name: "ticks",
    keys: &[WINDOW],
    own: keys::ALL,
    reset: "nothing: a tick leaves nothing",
    check_keys: |layer| Ticks::resolve(layer).map(drop),
    measures: |metric| metric.name == "commits_per_second",
    indivisible: |_, _, _| Some("`ticks` has one clock; leave out the drivers".to_owned()),
    writing: |_, _| None,
    ..PLAIN
});

own_keys! {
    every: Duration, Kind::Duration { zero: false }, Some("10ms"),
        "time between two ticks, at most 1s";
}

#[derive(Debug, Clone, Copy)]
struct Ticks {
    every: Duration,
    run_time: Duration,
}

impl Ticks {
    fn resolve(layer: Layer) -> Result<Ticks, ResolveError> {
        let all = layer.with_defaults(Use::Work(KIND));
        let every = required(keys::every.of(&all));
        // pgio sees an order to stop between two ticks.
        if every > Duration::from_secs(1) {
            return Err(ResolveError::Workload("every must be at most 1s".to_owned()));
        }
        Ok(Ticks { every, run_time: required(all.run_time) })
    }

    /// Calls `tick` at each tick between two moments; what was missed is not made up for.
    fn run(
        &self,
        (start, end): (Instant, Instant),
        stop: &Stop,
        mut tick: impl FnMut() -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let mut due = start + self.every;
        while due <= end {
            wait_until(due);
            if stop.requested() {
                return Err(EngineError::Stopped);
            }
            tick()?;
            due = (due + self.every).max(Instant::now());
        }
        Ok(())
    }
}

fn ask(client: &mut Client) -> Result<(), EngineError> {
    let asked = client.batch_execute("SELECT 1");
    asked.map_err(|source| EngineError::Postgres { doing: "a tick", source })
}

impl Workload for Ticks {
    fn info(&self) -> WorkloadInfo {
        WorkloadInfo {
            kind: KIND.name().to_owned(),
            primary_metric: "commits_per_second".to_owned(),
            keys: BTreeMap::from([("every".to_owned(), json!(self.every.as_secs_f64()))]),
        }
    }

    fn extent(&self) -> Extent {
        Extent::Time(self.run_time)
    }

    fn session_settings(&self) -> SessionSettings {
        SessionSettings::Nowhere
    }

    fn commits_wait_for_flush(&self) -> bool {
        false
    }

    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        let now = Instant::now();
        self.run((now, now + setup.warmup), &setup.stop, || ask(admin))?;
        Ok(Box::new(Prepared(*self, setup)))
    }
}

struct Prepared(Ticks, Setup);

impl Participants for Prepared {
    fn run(
        self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: Listener<'_>,
    ) -> Result<WindowOutcome, EngineError> {
        let Prepared(ticks, setup) = *self;
        let start = Start::agree_on_window(setup.opener.as_ref(), admin, Duration::ZERO)?;
        let mut window = OpenWindow::open(admin, start, WindowPlan::new(extent, 1, 1), listener);
        let (end, mut latency) = (start.at + ticks.run_time, Histogram::default());
        let ran = ticks.run((start.at, end), &setup.stop, || {
            let asked = Instant::now();
            ask(window.admin())?;
            let now = Instant::now();
            latency.record((now - asked).as_nanos() as f64);
            window.progress.commits += 1;
            window.progress.covered = (now - start.at).as_secs_f64();
            window.report_progress(now);
            Ok(())
        });
        let ended = if ran.is_ok() { end.max(Instant::now()) } else { Instant::now() };
        wait_until(ended);
        window.close(ended);
        // The core computes the rate from it.
        window.outcome.totals.histograms.insert(Class::Commit.name().to_owned(), latency);
        window.outcome.seconds = (ended - start.at).as_secs_f64();
        window.outcome.error = ran.err();
        Ok(window.into_outcome())
    }
}
