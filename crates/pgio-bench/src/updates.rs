//! Checks that the data set keeps its size under work: four sessions, one table, half updates.

use std::sync::Arc;
use std::time::Duration;

use super::server::{Bench, metric};
use pgio::cli::exit::Outcome;
use pgio::cli::output;
use pgio::config::Layer;
use pgio::pg::private::VersionRequest;
use pgio::workload::Workload;
use pgio_results::units::{Scale, human};

pub(super) fn run(window: Duration, pg: Option<VersionRequest>) -> Outcome {
    let scale: Scale = "200M".parse().expect("a valid size");
    let mut bench = Bench::start(pg, &[])?;
    bench.load(&scale, 1, false)?;
    let layer = Layer {
        update_pct: Some(50),
        work_unit: Some(8),
        update_work_unit: Some(8),
        num_schemas: Some(1),
        num_threads: Some(4),
        run_time: Some(window),
        ..Layer::default()
    };
    let workload: Arc<dyn Workload> = Arc::new(bench.loaded(layer)?);
    let trial = bench.trial(&workload, Duration::ZERO)?;
    let size = trial.dataset.as_ref().map_or((0, 0), |d| (d.bytes_before, d.bytes_after));
    output::line(&format!(
        "{} sessions ended of 4, {:.0} rows/s updated, {:.0} deadlocks, size {} before and {} after ({:+.2} %)",
        trial.sessions.len(),
        metric(&trial, "updates_per_second"),
        metric(&trial, "deadlocks"),
        human::bytes(size.0),
        human::bytes(size.1),
        100.0 * (size.1 as f64 / size.0.max(1) as f64 - 1.0),
    ));
    Ok(())
}
