//! A margin of 5 %, and effects whose side of it is certain. Each commit waits for `commit_delay`
//! before it flushes, 20 ms under the baseline. A delay of 20.2 ms adds at most 1 % to a commit, and
//! one of 22.5 ms more than 5 % if the flush itself takes less than 30 ms. Telemetry is off, as in
//! `commit_delay`.

use super::rounds::{Plan, Round, scratch};
use pgio::cli::exit::{FAILED, Failure, Outcome};
use pgio::cli::{output, signals};
use pgio_report::analysis::{Analysis, Decision, Gate};

/// Name, `commit_delay` in microseconds, and the right answers.
const CONDITIONS: [(&str, u32, Decision, Gate); 2] = [
    ("near", 20_200, Decision::DoesNotMatter, Gate::Pass),
    ("far", 22_500, Decision::Matters, Gate::Fail),
];
/// At most one decision in twenty may be wrong or open.
const REQUIRED: f64 = 0.95;

fn text(plan: &Plan) -> String {
    let mut text = format!(
        "{}matters = \"5%\"\ntelemetry = \"0\"\nprimary = \"transaction_latency_mean\"\n\n\
         [target]\nprivate = true\n\n[workload]\nkind = \"commit\"\nsessions = 1\n",
        plan.head("margin", false)
    );
    for (name, delay) in
        [("base", 20_000), (CONDITIONS[0].0, CONDITIONS[0].1), (CONDITIONS[1].0, CONDITIONS[1].1)]
    {
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
    let (mut right, mut open, mut wrong) = ([0; 2], [0; 2], [0; 2]);
    for number in 1..=plan.experiments {
        let out = plan.out.as_deref().unwrap_or(scratch.path()).join(format!("{number:03}"));
        let round = Round { out, stop: &stop, pg: plan.pg };
        round.go_on()?;
        let analysis = round.analysis(&text)?;
        for (i, (name, _, decision, gate)) in CONDITIONS.iter().enumerate() {
            let (found, passed) = answers(&analysis, name);
            output::line(&line(number, &analysis, name));
            match found {
                Decision::Undecided => open[i] += 1,
                _ if (found, passed) == (*decision, *gate) => right[i] += 1,
                _ => wrong[i] += 1,
            }
        }
    }
    let counts: Vec<String> = (0..2)
        .map(|i| {
            let name = CONDITIONS[i].0;
            format!("{name}: {} right, {} undecided, {} wrong", right[i], open[i], wrong[i])
        })
        .collect();
    let text = format!("{} of {} experiments each", counts.join("; "), plan.experiments);
    let required = (plan.experiments as f64 * REQUIRED).floor() as usize;
    match right.iter().all(|n| *n >= required) {
        true => output::line(&text),
        false => return Err(Failure::message(FAILED, text)),
    }
    Ok(())
}

fn answers(analysis: &Analysis, condition: &str) -> (Decision, Gate) {
    let found = analysis.primary(condition);
    let decision = found.and_then(|c| c.decision).unwrap_or(Decision::Undecided);
    (decision, found.and_then(|c| c.gate).unwrap_or(Gate::Undecided))
}

fn line(number: usize, analysis: &Analysis, condition: &str) -> String {
    let found = analysis.primary(condition);
    let value = |of: fn(&pgio_report::analysis::Comparison) -> Option<f64>| {
        found.and_then(of).unwrap_or(f64::NAN)
    };
    let (decision, gate) = answers(analysis, condition);
    format!(
        "{number:10}  {condition:9}  {:9.4}  {:8.4} to {:8.4}  {:16}  {gate:?}",
        value(|c| c.ratio),
        value(|c| c.interval.low),
        value(|c| c.interval.high),
        format!("{decision:?}")
    )
}
