//! Measures the cost of drawing a key: a PL/pgSQL loop with the draw of `slob` against the same loop
//! without it, in turn, in one session that reads no table.
//!
//! The clock is the CPU time of the server process, which other processes barely change, or the elapsed
//! time if the kernel does not report CPU time.

use std::fs;
use std::time::{Duration, Instant};

use super::server::{Bench, spread};
use pgio::cli::exit::{Failure, Outcome, TRIAL};
use pgio::cli::output;
use pgio::config::resolve::{HotSpot, KeyDistribution};
use pgio::config::value::Decimal;
use pgio::pg::private::VersionRequest;
use pgio::workload::slob::draw::{Draw, bench_block};

/// 4 GB: more keys than a table of shares could hold.
const KEYS: u64 = 524_288;

pub(super) fn run(draws: u32, rounds: usize, pg: Option<VersionRequest>) -> Outcome {
    let mut bench = Bench::start(pg, &[("autovacuum", "off")])?;
    let clock = Clock::new(&mut bench)?;
    output::line(&format!(
        "{draws} draws of {KEYS} keys in a loop, {rounds} pairs of loops, {}\n",
        clock.name()
    ));
    output::line("draw             µs per draw");
    for (name, visits) in all() {
        let draw = Draw { visits: &visits, keys: KEYS, unit: 1 };
        let mut costs = Vec::new();
        // The first pair is a warm-up and is not counted.
        for round in 0..=rounds {
            let seed = round as f64 / (rounds + 1) as f64;
            let mut spent =
                |drawn| clock.spent(&mut bench, &bench_block(&draw, draws, seed, drawn));
            let (without, with) = (spent(false)?, spent(true)?);
            let cost = with.as_secs_f64() - without.as_secs_f64();
            if round > 0 {
                costs.push(cost * 1e6 / f64::from(draws));
            }
        }
        output::line(&format!("{name:15}  {}", spread(&costs, 3)));
    }
    Ok(())
}

fn all() -> [(&'static str, KeyDistribution); 6] {
    let zipf = |n| KeyDistribution::Zipf { exponent: Decimal::from_thousandths(n) };
    let spot = HotSpot { offset: KEYS / 2, blocks: KEYS / 100, pct: Decimal::whole(90) };
    [
        ("uniform", KeyDistribution::Uniform),
        ("hot spot", KeyDistribution::HotSpot(spot)),
        ("zipf 0.8", zipf(800)),
        ("zipf 1", zipf(1000)),
        ("zipf 1.2", zipf(1200)),
        (
            "gaussian",
            KeyDistribution::Gaussian { mean: Decimal::whole(50), sd: Decimal::whole(10) },
        ),
    ]
}

enum Clock {
    /// The kernel's file with the time in nanoseconds.
    Processor(String),
    Wall,
}

impl Clock {
    fn new(bench: &mut Bench) -> Result<Clock, Failure> {
        let row = bench.admin.query_one("SELECT pg_backend_pid()", &[]);
        let pid: i32 =
            row.map_err(|e| Failure::new(TRIAL, e).context("the server does not answer"))?.get(0);
        let file = format!("/proc/{pid}/schedstat");
        Ok(processor_time(&file).map_or(Clock::Wall, |_| Clock::Processor(file)))
    }

    fn name(&self) -> &'static str {
        match self {
            Clock::Processor(_) => "processor time of the server",
            Clock::Wall => "elapsed time",
        }
    }

    fn spent(&self, bench: &mut Bench, block: &str) -> Result<Duration, Failure> {
        let now = |begun: Instant| match self {
            Clock::Processor(file) => processor_time(file).unwrap_or_default(),
            Clock::Wall => begun.elapsed(),
        };
        let begun = Instant::now();
        let before = now(begun);
        bench
            .admin
            .batch_execute(block)
            .map_err(|e| Failure::new(TRIAL, e).context("a loop of draws failed"))?;
        Ok(now(begun).saturating_sub(before))
    }
}

fn processor_time(file: &str) -> Option<Duration> {
    let text = fs::read_to_string(file).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
