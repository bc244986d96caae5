//! A lock blocks an open loop until after the window's end: the calls that were due meanwhile must be
//! in its p99, just as with the same lock inside the window.
//!
//! Each trial is an experiment of one window on a private server, and the lock gives the truth: one
//! call in a hundred waits at least for the lock's duration minus a hundredth of the window.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::rounds::{Round, opened_at, private, scratch};
use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::cli::{output, signals};
use pgio::experiment::event::Event;
use pgio::pg::private::VersionRequest;
use pgio_results::Metric;
use pgio_results::units::{exact_duration, human};

const METRIC: &str = "transaction_latency_p99";
const LOCK: &str = "BEGIN; LOCK TABLE pgio_commit IN ACCESS EXCLUSIVE MODE";
/// The share of the expected latency that must be seen: the machine may delay both the lock and the
/// calls.
const REQUIRED: f64 = 0.85;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(long, value_name = "N", default_value_t = 5)]
    trials: usize,
    /// Length of each window
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Seconds from the window's start to the lock; default: 0.4 s before the end
    #[arg(long, value_name = "SECONDS")]
    at: Option<f64>,
    /// Seconds that the lock is held
    #[arg(long, value_name = "SECONDS", default_value_t = 0.45)]
    hold: f64,
    /// Calls per second
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rate: u64,
    #[arg(long, value_name = "VERSION")]
    pg: Option<VersionRequest>,
}

impl Args {
    fn at(&self) -> f64 {
        self.at.unwrap_or(self.seconds - 0.4).max(0.0)
    }

    /// Returns the minimum wait in seconds of the slowest hundredth of the window's calls.
    fn truth(&self) -> f64 {
        self.hold - self.seconds / 100.0
    }

    fn text(&self, dsn: &str) -> String {
        let window = exact_duration(Duration::from_secs_f64(self.seconds));
        format!(
            "[experiment]\nname = \"tail\"\nblocks = 1\nduration = \"{window}\"\nwarmup = \"500ms\"\n\
             aa = false\ntelemetry = \"0\"\nrepeats = 0\nprimary = \"{METRIC}\"\n\n\
             [target]\ndsn = \"{dsn}\"\n\n[workload]\nkind = \"commit\"\nsessions = 4\n\
             engine = \"client\"\nrate = {}\n\n[[condition]]\nname = \"locked\"\n",
            self.rate
        )
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    if args.truth() <= 0.0 || args.at() >= args.seconds {
        let text = "the lock must begin inside the window, and last longer than a hundredth of it";
        return Err(Failure::message(FAILED, text));
    }
    let cluster = private(args.pg, None, &[("synchronous_commit", "off")])?;
    let dsn = cluster.primary_conninfo();
    let stop = signals::stop_on_signals()?;
    let dir = scratch()?;
    output::line(&format!(
        "trial  p99           (a lock of {} s at {} s of {})",
        args.hold,
        args.at(),
        args.seconds
    ));
    let mut missed = 0;
    for number in 1..=args.trials {
        let out = dir.path().join(format!("{number:03}"));
        let round = Round { out, stop: &stop, pg: args.pg };
        round.check_interrupted()?;
        let p99 = one(args, &round, &dsn)?;
        let seen = p99.value.unwrap_or_default();
        let enough = seen >= REQUIRED * args.truth();
        missed += usize::from(!enough);
        let mark = if p99.at_least { "≥ " } else { "" };
        let judged = if enough { "" } else { "  MISSED" };
        output::line(&format!("{number:5}  {mark}{}{judged}", human::latency(seen * 1e9)));
    }
    let text = format!(
        "{} of {} trials show at least {}",
        args.trials - missed,
        args.trials,
        human::latency(REQUIRED * args.truth() * 1e9)
    );
    if missed > 0 {
        return Err(Failure::message(FAILED, text));
    }
    output::line(&text);
    Ok(())
}

fn one(args: &Args, round: &Round<'_>, dsn: &str) -> Result<Metric, Failure> {
    let mut client = Client::connect(dsn).map_err(failed)?;
    let (opened, when) = mpsc::channel::<Instant>();
    let (at, hold) = (args.at(), args.hold);
    let wait_for =
        |moment: Instant| thread::sleep(moment.saturating_duration_since(Instant::now()));
    let locker = thread::spawn(move || -> Result<(), pgio_connect::Error> {
        // The trial may fail before its window.
        let Ok(opened) = when.recv() else { return Ok(()) };
        wait_for(opened + Duration::from_secs_f64(at));
        client.batch_execute(LOCK)?;
        thread::sleep(Duration::from_secs_f64(hold));
        client.batch_execute("COMMIT")
    });
    let analysis = round.analyze_with_events(&args.text(dsn), &mut |event| {
        if let Event::Progress { progress, .. } = event {
            // The event is repeated; only the first one counts.
            let _ = opened.send(opened_at(progress));
        }
    });
    drop(opened);
    let locked = locker.join();
    let analysis = analysis?;
    locked.map_err(|_| failed(anyhow::anyhow!("its thread ended")))?.map_err(failed)?;
    let metric = analysis.condition("locked").and_then(|c| c.metrics.get(METRIC)).cloned();
    metric.ok_or_else(|| failed(anyhow::anyhow!("the trial has no {METRIC} that counts")))
}

fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(FAILED, error).context("cannot hold a lock against the window")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio::experiment::application::Job;
    use pgio::experiment::target::ConnectionKeys;

    #[test]
    fn the_default_lock_must_delay_the_slowest_hundredth_by_350_ms() {
        let args = Args { trials: 1, seconds: 10.0, at: None, hold: 0.45, rate: 1000, pg: None };
        assert!((args.at() - 9.6).abs() < 1e-9 && (args.truth() - 0.35).abs() < 1e-9);
        assert!(args.text("host=here").contains("duration = \"10s\""));
        Job::parse(&args.text("host=here"), "tail.toml", "tail", ConnectionKeys::default())
            .unwrap();
    }
}
