//! What drawing a key costs: a PL/pgSQL loop with the draw of `slob` in it against the same loop
//! without, in turn, in one session that reads no table.

use std::time::{Duration, Instant};

use super::{Bench, spread};
use crate::cli::exit::{Failure, TRIAL};
use crate::cli::{Outcome, output};
use crate::config::resolve::{HotSpot, Visits};
use crate::config::value::Decimal;
use crate::pg::private::VersionRequest;
use crate::workload::slob::draw::{Draw, benched};

/// 4 GB: more keys than any short cut could hold.
const KEYS: u64 = 524_288;

pub(super) fn run(draws: u32, rounds: usize, pg: Option<VersionRequest>) -> Outcome {
    let mut bench = Bench::start(pg, &[("autovacuum", "off")])?;
    output::line(&format!("{draws} draws of {KEYS} keys in a loop, {rounds} pairs of loops\n"));
    output::line("draw             µs per draw");
    for (name, visits) in all() {
        let draw = Draw { visits: &visits, keys: KEYS, unit: 1 };
        let mut costs = Vec::new();
        // The first pair warms up and is not counted.
        for round in 0..=rounds {
            let seed = round as f64 / (rounds + 1) as f64;
            let [without, with] =
                [false, true].map(|drawn| timed(&mut bench, &benched(&draw, draws, seed, drawn)));
            let cost = with?.saturating_sub(without?);
            if round > 0 {
                costs.push(cost.as_secs_f64() * 1e6 / f64::from(draws));
            }
        }
        output::line(&format!("{name:15}  {}", spread(&costs, 3)));
    }
    Ok(())
}

fn all() -> [(&'static str, Visits); 6] {
    let thousandths = |n: u32| Decimal::of_thousandths(n);
    let zipf = |n| Visits::Zipf { exponent: thousandths(n) };
    let spot = HotSpot { offset: KEYS / 2, blocks: KEYS / 100, pct: Decimal::whole(90) };
    [
        ("uniform", Visits::Uniform),
        ("hot spot", Visits::HotSpot(spot)),
        ("zipf 0.8", zipf(800)),
        ("zipf 1", zipf(1000)),
        ("zipf 1.2", zipf(1200)),
        ("gaussian", Visits::Gaussian { mean: Decimal::whole(50), sd: Decimal::whole(10) }),
    ]
}

fn timed(bench: &mut Bench, block: &str) -> Result<Duration, Failure> {
    let begun = Instant::now();
    bench
        .admin
        .batch_execute(block)
        .map_err(|e| Failure::new(TRIAL, e).context("a loop of draws failed"))?;
    Ok(begun.elapsed())
}
