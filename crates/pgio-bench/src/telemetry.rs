//! Measures the cost of telemetry: the same work with and without it, in turn.
//!
//! The first run of each pair alternates, so that a machine that slows down favors neither. Reads from
//! shared buffers are the worst case: they have no waiting time in which telemetry could run.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benchmath::effect::{self, Decision, Paired};
use pgio_connect::Client;

use super::server::{Bench, metric};
use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::cli::{flags, output};
use pgio::config::{ConnectString, Layer};
use pgio::host::Hosts;
use pgio::pg::private::VersionRequest;
use pgio::telemetry::{Survey, TelemetrySources};
use pgio::workload::Workload;
use pgio_results::model::Trial;
use pgio_results::units::{self, Scale};

const ALPHA: f64 = 0.05;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Pairs of runs
    #[arg(long, default_value_t = 10)]
    blocks: usize,
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u64,
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::parse_duration)]
    cadence: Duration,
    /// Busy sessions; with as many as cores, telemetry has no core of its own
    #[arg(long, default_value_t = 1)]
    sessions: u32,
    #[arg(long, value_name = "VERSION")]
    pg: Option<VersionRequest>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let Args { blocks, seconds, cadence, sessions, pg } = *args;
    let window = Duration::from_secs(seconds);
    let settings = [("shared_buffers", "512MB"), ("autovacuum", "off")];
    let mut bench = Bench::start(pg, &settings)?;
    let scale: Scale = "64M".parse().expect("a valid size");
    bench.load(&scale, 1, false)?;
    let layer = Layer {
        update_pct: Some(0),
        work_unit: Some(1),
        num_schemas: Some(1),
        num_threads: Some(sessions),
        run_time: Some(window),
        ..Layer::default()
    };
    let workload: Arc<dyn Workload> = Arc::new(bench.loaded(layer)?);
    let (params, server, hosts) = (&bench.params, &bench.server, &Hosts::new());
    let survey = Survey { params, server, cadence, hosts, host: None };
    let sources = TelemetrySources::survey(&survey, &mut bench.admin);
    let mut backends = Backends::new(&bench)?;
    let warmup = Duration::from_millis(300);
    // Cache all data before the measurement.
    bench.trial(&workload, warmup)?;

    let (mut with, mut without, mut observed) = (Vec::new(), Vec::new(), Vec::new());
    for block in 0..blocks {
        for telemetry in [block % 2 == 0, block % 2 == 1] {
            let trial = if telemetry {
                bench.observed_trial(&workload, warmup, Some(&sources), &mut |_| {
                    backends.sample();
                })?
            } else {
                bench.trial(&workload, warmup)?
            };
            let rate = metric(&trial, "block_visits_per_second");
            if telemetry {
                with.push(rate);
                backends.end_trial();
                observed.push(trial);
            } else {
                without.push(rate);
            }
        }
    }
    print_ratio(&with, &without);
    print_costs(&observed, window.as_secs_f64());
    output::line(&format!("sampling sessions on the server   {:.2} % of a core", backends.share()));
    Ok(())
}

fn print_ratio(with: &[f64], without: &[f64]) {
    let paired = Paired::new(with, without).expect("each block has both");
    let c = effect::compare(paired, ALPHA);
    let decision = match c.decision {
        Decision::Above => "faster with telemetry",
        Decision::Below => "slower with telemetry",
        Decision::NoDifference => "no difference shown",
        Decision::TooFewBlocks => "too few blocks to decide",
        Decision::NotApplicable => "no ratio",
    };
    let shown = |n: Option<f64>| n.map_or_else(|| "?".to_owned(), |n| format!("{n:.4}"));
    output::line(&format!(
        "block visits/s with telemetry / without, {} blocks: {} ({} to {}, {:.0} %): {decision}",
        c.blocks,
        shown(c.ratio),
        shown(c.low),
        shown(c.high),
        100.0 * (1.0 - ALPHA),
    ));
}

/// Means over the observed windows.
fn print_costs(observed: &[Trial], window: f64) {
    let telemetry = || observed.iter().filter_map(|t| t.telemetry.as_ref());
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let waits = || telemetry().filter_map(|t| t.waits.as_ref());
    output::line(&format!(
        "waits: {:.1} looks a second, {} of {} missed",
        mean(waits().map(|w| w.hertz).collect()),
        waits().map(|w| w.missed_rounds).sum::<u64>(),
        waits().map(|w| w.missed_rounds + w.rounds).sum::<u64>(),
    ));
    let share = |seconds: Vec<f64>| 100.0 * mean(seconds) / window;
    let own = telemetry().filter_map(|t| t.sampling_cpu_seconds).collect();
    output::line(&format!("sampling threads of this program  {:.2} % of a core", share(own)));
    let names: std::collections::BTreeSet<&String> =
        telemetry().flat_map(|t| t.hosts.keys()).collect();
    for name in names {
        let used = telemetry().filter_map(|t| t.hosts.get(name)?.sampling_cpu_seconds).collect();
        output::line(&format!("sampling on host {name:<16} {:.2} % of a core", share(used)));
    }
}

/// The server processes of the samplers, watched from outside; they run on this machine.
struct Backends {
    client: Client,
    own: i32,
    begun: Option<(Instant, Duration)>,
    last: Option<(Instant, Duration)>,
    spent: Duration,
    used: Duration,
}

impl Backends {
    fn new(bench: &Bench) -> Result<Backends, Failure> {
        let own = |e| Failure::new(FAILED, e).context("cannot watch the samplers");
        let text = ConnectString::new(bench.cluster.primary_conninfo());
        let params = flags::params(&text, &bench.run_id)?;
        let mut client = pgio_connect::connect(&params)?;
        let pid = client.query_one("SELECT pg_backend_pid()", &[]).map_err(own)?.get(0);
        Ok(Backends {
            client,
            own: pid,
            begun: None,
            last: None,
            spent: Duration::ZERO,
            used: Duration::ZERO,
        })
    }

    fn sample(&mut self) {
        if self.begun.is_some() && self.last.is_some_and(|(at, _)| at.elapsed().as_millis() < 500) {
            return;
        }
        let sql = "SELECT pid FROM pg_stat_activity WHERE pid <> $1 \
                   AND query ~ 'pg_stat_get_activity|pg_stat_replication'";
        let Ok(rows) = self.client.query(sql, &[&self.own]) else { return };
        let used = rows.iter().map(|row| cpu_time(row.get(0))).sum();
        self.last = Some((Instant::now(), used));
        self.begun.get_or_insert((Instant::now(), used));
    }

    /// Their sessions end with the trial.
    fn end_trial(&mut self) {
        if let (Some((from, before)), Some((to, after))) = (self.begun.take(), self.last.take()) {
            self.spent += to - from;
            self.used += after.saturating_sub(before);
        }
    }

    fn share(&self) -> f64 {
        100.0 * self.used.as_secs_f64() / self.spent.as_secs_f64().max(1e-9)
    }
}

/// CPU time since the process began.
fn cpu_time(pid: i32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|n| n.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}
