//! Equal conditions on a small table in shared buffers. A verdict for any condition is a false alarm,
//! so each experiment is judged by the condition that differs most from the baseline.

use super::rounds::{Plan, RoundResult, run_rounds};
use super::server::CACHED_READS;
use pgio::cli::exit::Outcome;
use pgio_report::analysis::Comparison;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    plan: Plan,
    /// Number of equal conditions, including the baseline
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=20))]
    conditions: u32,
}

pub(super) fn run(args: &Args) -> Outcome {
    let names: Vec<String> = (1..=args.conditions).map(|n| format!("equal-{n}")).collect();
    let mut text = args.plan.head("aa", false) + "\n[target]\nprivate = true\n" + CACHED_READS;
    for name in &names {
        text += &format!("\n[[condition]]\nname = \"{name}\"\n");
    }
    run_rounds(&args.plan, "ratio", |round| {
        let analysis = round.analysis(&text)?;
        let compared = names[1..].iter().filter_map(|name| analysis.primary(name));
        let p = |c: &Comparison| c.p_adjusted.unwrap_or(1.0);
        let furthest = compared.min_by(|a, b| p(a).total_cmp(&p(b)));
        let remark = furthest.map(|c| format!("p {:.3}", p(c))).unwrap_or_default();
        Ok(RoundResult { remark, ..RoundResult::for_ratio(furthest, 1.0) })
    })
}
