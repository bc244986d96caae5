//! A margin of 5 %, and effects whose side of it is certain. Each commit waits for `commit_delay`
//! before it flushes, 20 ms under the baseline. A delay of 20.2 ms adds at most 1 % to a commit, and
//! one of 22.5 ms more than 5 % if the flush itself takes less than 30 ms. Telemetry is off, as in
//! `commit_delay`.

use super::rounds::{Plan, scratch};
use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::cli::{output, signals};
use pgio_verdict::{Analysis, Comparison, Decision, Gate};

/// `commit_delay` of the baseline, in microseconds.
const BASELINE: u32 = 20_000;
/// Name, `commit_delay`, and the right answers.
const CONDITIONS: [(&str, u32, (Decision, Gate)); 2] = [
    ("near", 20_200, (Decision::DoesNotMatter, Gate::Pass)),
    ("far", 22_500, (Decision::Matters, Gate::Fail)),
];
/// At most one decision in twenty may be wrong or open.
const REQUIRED: f64 = 0.95;

fn text(plan: &Plan) -> String {
    let mut text = format!(
        "{}matters = \"5%\"\ntelemetry = \"0\"\nprimary = \"transaction_latency_mean\"\n\n\
         [target]\nprivate = true\n\n[workload]\nkind = \"commit\"\nsessions = 1\n",
        plan.head("margin", false)
    );
    let others = CONDITIONS.iter().map(|(name, delay, _)| (*name, *delay));
    for (name, delay) in [("base", BASELINE)].into_iter().chain(others) {
        text += &format!(
            "\n[[condition]]\nname = \"{name}\"\n\
             postgres = {{ commit_delay = {delay}, commit_siblings = 0 }}\n"
        );
    }
    text
}

pub(super) fn run(plan: &Plan) -> Outcome {
    let stop = signals::stop_on_signals()?;
    let scratch = scratch()?;
    let text = text(plan);
    output::line("experiment  condition      ratio  95 % interval         decision          gate");
    let mut analyses = Vec::new();
    for number in 1..=plan.experiments {
        let round = plan.round(&format!("{number:03}"), scratch.path(), &stop)?;
        let analysis = round.analysis(&text)?;
        for (name, ..) in CONDITIONS {
            output::line(&line(number, &analysis, name));
        }
        analyses.push(analysis);
    }
    sum_up(&analyses, plan.required.max(REQUIRED))
}

fn sum_up(analyses: &[Analysis], share: f64) -> Outcome {
    let required = (analyses.len() as f64 * share).floor() as usize;
    let mut enough = true;
    let counts = CONDITIONS.map(|(name, _, expected)| {
        let found: Vec<_> = analyses.iter().map(|analysis| answers(analysis, name)).collect();
        let right = found.iter().filter(|answers| **answers == expected).count();
        let open = found.iter().filter(|(decision, _)| *decision == Decision::Undecided).count();
        enough &= right >= required;
        format!("{name}: {right} right, {open} undecided, {} wrong", found.len() - right - open)
    });
    let text = format!("{} of {} experiments each", counts.join("; "), analyses.len());
    if !enough {
        return Err(Failure::message(FAILED, text));
    }
    output::line(&text);
    Ok(())
}

fn answers(analysis: &Analysis, condition: &str) -> (Decision, Gate) {
    let found = analysis.primary(condition);
    let decision = found.and_then(|c| c.decision).unwrap_or(Decision::Undecided);
    (decision, found.and_then(|c| c.gate).unwrap_or(Gate::Undecided))
}

fn line(number: usize, analysis: &Analysis, condition: &str) -> String {
    let found = analysis.primary(condition);
    let value = |of: fn(&Comparison) -> Option<f64>| found.and_then(of).unwrap_or(f64::NAN);
    let (decision, gate) = answers(analysis, condition);
    format!(
        "{number:10}  {condition:9}  {:9.4}  {:8.4} to {:8.4}  {:16}  {gate:?}",
        value(|c| c.ratio),
        value(|c| c.interval.low),
        value(|c| c.interval.high),
        format!("{decision:?}")
    )
}
