//! JUnit XML, the form of test results that CI systems show: a case for each condition.
//!
//! One experiment: a condition that is worse by more than the margin fails, one without a valid trial is an
//! error, and an undecided one is skipped. Two sides: a case for each rule and condition. Times are not
//! given, because a trial's length says nothing. Text is escaped here; control characters, which XML cannot
//! hold, are spelled out before.

use std::fmt::Write;

use super::outcomes::failure;
use super::{format, sentence};
use crate::analysis::across::gate::{Change, Rule, Ruling};
use crate::analysis::{Analysis, Comparison, Gate, State};

/// What a case shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed(String),
    Errored(String),
    Skipped(String),
}

#[derive(Debug, Clone)]
struct Case {
    name: String,
    outcome: Outcome,
    /// Shown whatever the outcome.
    output: String,
}

/// The workloads of an experiment, a suite for each.
pub fn experiments(analyses: &[&Analysis]) -> String {
    document(analyses.iter().map(|a| (a.experiment.clone(), cases(a))))
}

/// New runs against old ones, a suite for each rule.
pub fn rulings(experiment: &str, rules: &[(Rule, Vec<Ruling>)]) -> String {
    document(rules.iter().map(|(rule, rulings)| {
        let cases = rulings.iter().map(|ruling| case(rule, ruling)).collect();
        (format!("{experiment}: {}", shown(rule)), cases)
    }))
}

/// `commits/s slower by more than 5 %`
pub fn shown(rule: &Rule) -> String {
    let metric = rule.metric.as_ref().map_or_else(String::new, |m| format::metric_name(m) + " ");
    let change = match rule.change {
        Change::Slower => "slower",
        Change::Changed => "changed",
    };
    format!("{metric}{change} by more than {}", super::margin::share(rule.share))
}

fn cases(analysis: &Analysis) -> Vec<Case> {
    let case = |condition: &crate::analysis::Condition| {
        let compared = analysis.primary(&condition.name);
        let output = match compared {
            Some(_) => sentence::sentence(analysis, &condition.name),
            None => String::new(),
        };
        let without_trial = [State::Failed, State::NoValidTrial].contains(&condition.state);
        let outcome = match failure(analysis, condition) {
            Some(why) if without_trial => Outcome::Errored(why),
            _ => compared.map_or(Outcome::Passed, |c| of_comparison(analysis, c)),
        };
        Case { name: condition.name.clone(), outcome, output }
    };
    analysis.conditions.iter().map(case).collect()
}

/// Without a margin nothing can fail.
fn of_comparison(analysis: &Analysis, c: &Comparison) -> Outcome {
    let share = c.margin.map(super::margin::share).unwrap_or_default();
    let than = format!("worse than {} by more than {share}", analysis.baseline);
    match c.gate {
        Some(Gate::Fail) if !analysis.is_aa(&c.condition) => Outcome::Failed(than),
        Some(Gate::Undecided) => Outcome::Skipped(format!("undecided whether {than}")),
        _ => Outcome::Passed,
    }
}

fn case(rule: &Rule, ruling: &Ruling) -> Case {
    let c = &ruling.comparison;
    let size = match (c.ratio, c.interval.sides()) {
        (Some(ratio), Some((low, high))) => format::change_with_interval(ratio, low, high),
        (Some(ratio), None) => format::change(ratio),
        (None, _) => format::NONE.to_owned(),
    };
    let metric = format::metric_name(&ruling.metric);
    let output = format!("{metric} of the new runs against the old ones: {size}");
    let outcome = match ruling.gate {
        Gate::Pass => Outcome::Passed,
        Gate::Fail => Outcome::Failed(format!("{}: {size}", shown(rule))),
        Gate::Undecided => {
            let why = ruling.obstacle.clone().unwrap_or(size);
            Outcome::Skipped(format!("undecided whether {}: {why}", shown(rule)))
        }
    };
    Case { name: ruling.condition.clone(), outcome, output }
}

fn document(suites: impl Iterator<Item = (String, Vec<Case>)>) -> String {
    let mut text =
        String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"pgio\">\n");
    for (name, cases) in suites {
        suite(&mut text, &name, &cases);
    }
    text + "</testsuites>\n"
}

fn suite(text: &mut String, name: &str, cases: &[Case]) {
    let count = |wanted: fn(&Outcome) -> bool| cases.iter().filter(|c| wanted(&c.outcome)).count();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">",
        escaped(name),
        cases.len(),
        count(|o| matches!(o, Outcome::Failed(_))),
        count(|o| matches!(o, Outcome::Errored(_))),
        count(|o| matches!(o, Outcome::Skipped(_))),
    );
    for case in cases {
        let (name, suite) = (escaped(&case.name), escaped(name));
        let _ = writeln!(text, "    <testcase name=\"{name}\" classname=\"{suite}\">");
        let (tag, message) = match &case.outcome {
            Outcome::Passed => ("", ""),
            Outcome::Failed(why) => ("failure", why.as_str()),
            Outcome::Errored(why) => ("error", why.as_str()),
            Outcome::Skipped(why) => ("skipped", why.as_str()),
        };
        if !tag.is_empty() {
            let _ = writeln!(text, "      <{tag} message=\"{}\"/>", escaped(message));
        }
        if !case.output.is_empty() {
            let _ = writeln!(text, "      <system-out>{}</system-out>", escaped(&case.output));
        }
        text.push_str("    </testcase>\n");
    }
    text.push_str("  </testsuite>\n");
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable::line(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => safe.push(char::REPLACEMENT_CHARACTER),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::across::{across, gate};
    use crate::analysis::analyse;
    use crate::analysis::test_support::{demo, stored_runs};

    #[test]
    fn an_experiment_has_a_case_for_each_condition() {
        let mut stored = demo();
        stored.manifest.rules.matters = Some(0.05);
        let text = experiments(&[&analyse(&stored)]);
        let suite = "<testsuite name=\"sync-commit\" tests=\"4\" failures=\"1\" errors=\"0\"";
        assert!(text.contains(suite), "{text}");
        assert!(
            text.contains("<failure message=\"worse than local by more than 5 %\"/>"),
            "{text}"
        );
        stored.manifest.name = "a<b&\"c\"\u{1b}".to_owned();
        for trial in
            stored.trials.iter_mut().filter(|t| t.place.as_ref().unwrap().condition == "on")
        {
            trial.outcome = pgio_results::Outcome::Failed { error: "connection reset".to_owned() };
        }
        let text = experiments(&[&analyse(&stored)]);
        assert!(
            text.contains("name=\"a&lt;b&amp;&quot;c&quot;") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(text.contains("errors=\"1\"") && text.contains("<error message="), "{text}");
    }

    #[test]
    fn a_rule_is_a_suite() {
        let level = |run: u32| 0.8 + 0.002 * f64::from(run);
        let (old, new) = (stored_runs(3, |run| level(run) + 0.2), stored_runs(3, level));
        let rule = Rule { metric: None, change: Change::Slower, share: 0.05 };
        let found = gate::judge(&across(&old, &new), &rule).unwrap();
        let text = rulings("x", &[(rule.clone(), found)]);
        assert!(
            text.contains(
                "<testsuite name=\"x: slower by more than 5 %\" tests=\"3\" failures=\"3\""
            ),
            "{text}"
        );
        let found = gate::judge(&across(&old[..1], &new), &rule).unwrap();
        let text = rulings("x", &[(rule, found)]);
        assert!(text.contains("skipped=\"3\"") && text.contains("3 new and 1 old runs"), "{text}");
    }
}
