//! Measures the CPU time and memory of pgio while many sessions wait for the server.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::server::Bench;
use pgio::cli::exit::Outcome;
use pgio::cli::output;
use pgio::config::resolve::Extent;
use pgio::pg::private::VersionRequest;
use pgio::workload::{
    EngineError, Participants, Script, SessionPool, Sessions, Setup, Totals, Workload,
};
use pgio_results::model::{DatasetInfo, WorkloadInfo};
use pgio_results::units::human;

const WINDOW: Duration = Duration::from_secs(20);

/// Sessions that wait inside their slices, as they do for a slow device.
#[derive(Debug)]
struct Waiting(u32);

impl Workload for Waiting {
    fn info(&self) -> WorkloadInfo {
        WorkloadInfo {
            kind: "waiting".to_owned(),
            primary_metric: String::new(),
            keys: BTreeMap::new(),
        }
    }

    fn extent(&self) -> Extent {
        Extent::Time(WINDOW)
    }

    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        Ok(Box::new(SessionPool::assemble(&(self as Arc<dyn Sessions>), setup, admin)?))
    }

    fn before_trial(&self, _: &mut Client) -> Result<(), pgio_connect::Error> {
        Ok(())
    }

    fn dataset(&self, _: &mut Client) -> Result<Option<DatasetInfo>, pgio_connect::Error> {
        Ok(None)
    }

    fn metrics(&self, _: &Totals, _: f64) -> Vec<(&'static str, Option<f64>)> {
        Vec::new()
    }

    fn clean_up(&self, _: &mut Client) -> Result<(), pgio_connect::Error> {
        Ok(())
    }
}

impl Sessions for Waiting {
    fn count(&self) -> u32 {
        self.0
    }

    fn script(&self, _: u32) -> Script {
        Script {
            table: String::new(),
            pins: Vec::new(),
            body: include_str!("waiting.sql").to_owned(),
            plans: Vec::new(),
            privileges: Vec::new(),
            ..Script::default()
        }
    }
}

pub(super) fn run(sessions: u32, pg: Option<VersionRequest>) -> Outcome {
    let connections = (sessions + 20).to_string();
    let mut bench = Bench::start(pg, &[("max_connections", &connections)])?;
    let workload: Arc<dyn Workload> = Arc::new(Waiting(sessions));
    // Measure between the first and the last progress event, which excludes connecting 200 sessions.
    let (begun, mut span) = (Instant::now(), None);
    bench.observed_trial(&workload, Duration::ZERO, None, &mut |_| {
        let now = (begun.elapsed(), cpu());
        let (first, _) = *span.get_or_insert((now, now));
        span = Some((first, now));
    })?;
    let ((from, cpu_from), (to, cpu_to)) = span.unwrap_or_default();
    let took = (to - from).as_secs_f64();
    output::line(&format!(
        "{sessions} waiting sessions for {took:.1} s: {:.2} % of a core, {} of memory at most",
        100.0 * (cpu_to - cpu_from).as_secs_f64() / took,
        human::bytes(peak_memory()),
    ));
    Ok(())
}

/// Returns the user and system time of this process so far.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, the program's name, may contain blanks; it ends with the last parenthesis.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs_f64((ticks(11) + ticks(12)) as f64 / per_second as f64)
}

fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok());
    1024 * kilobytes.unwrap_or(0_u64)
}
