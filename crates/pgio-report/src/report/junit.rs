//! JUnit XML, the form of test results that CI systems show: a case for each condition.
//!
//! One experiment: the cases are the rulings of the `gate`. A condition that is worse by more than the margin,
//! or failed in more trials, fails; one without a valid trial is an error, and an undecided one is skipped. Two
//! sides: a case for each rule and condition, by the rulings of `pgio_verdict::across::gate`. Times are not given,
//! because a trial's length says nothing. Text is escaped here; control characters, which XML cannot hold, are
//! spelled out before.

use std::fmt::Write;

use super::across::ruling_reasons;
use super::format;
use super::lead::failure;
use super::margin::{self, ConditionRuling};
use super::statement::Statement;
use pgio_verdict::across::gate::{self as rules, Change, Rule};
use pgio_verdict::{Analysis, Condition, Gate};

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
pub fn rulings(experiment: &str, judged: &[(Rule, Vec<rules::RuleResult>)]) -> String {
    document(judged.iter().map(|(rule, rulings)| {
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
    format!("{metric}{change} by more than {}", margin::share(rule.share))
}

fn cases(analysis: &Analysis) -> Vec<Case> {
    let case = |(condition, ruling): (&Condition, ConditionRuling)| {
        let compared = analysis.primary(&condition.name);
        let sentence = compared.map(|_| Statement::new(analysis, &condition.name).long());
        let not_judged = compared.filter(|c| !c.judged).map(|_| "not judged.".to_owned());
        let outcome = match ruling {
            ConditionRuling::Pass => Outcome::Passed,
            ConditionRuling::NotJudged => match failure(analysis, condition) {
                Some(why) => Outcome::Skipped(format!("not judged: {why}")),
                None => Outcome::Passed,
            },
            ConditionRuling::Fail(reasons) => Outcome::Failed(reasons.join("; ")),
            ConditionRuling::Undecided(reasons) => Outcome::Skipped(reasons.join("; ")),
            ConditionRuling::NotMeasured(why) => Outcome::Errored(why),
        };
        let output = not_judged.into_iter().chain(sentence).collect::<Vec<_>>().join(" ");
        Case { name: condition.name.clone(), outcome, output }
    };
    margin::rulings(analysis).into_iter().map(case).collect()
}

fn case(rule: &Rule, ruling: &rules::RuleResult) -> Case {
    let c = &ruling.comparison;
    let change = |ratio| format::change_as_known(ratio, c.interval, None).to_string();
    let size = c.ratio.map_or_else(|| format::NONE.to_owned(), change);
    let metric = format::metric_name(&ruling.metric);
    let output = format!("{metric} of the new runs against the old ones: {size}");
    let outcome = match ruling.gate {
        Gate::Pass => Outcome::Passed,
        Gate::Fail => {
            let is_beyond = ruling.by_interval == Gate::Fail;
            let beyond = is_beyond.then(|| format!("{}: {size}", shown(rule)));
            let all: Vec<String> = beyond.into_iter().chain(ruling_reasons(ruling)).collect();
            Outcome::Failed(all.join("; "))
        }
        Gate::Undecided => {
            let why = ruling_reasons(ruling).unwrap_or(size);
            Outcome::Skipped(format!("possibly {}: {why}", shown(rule)))
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
    use crate::report;
    use pgio_results::store::StoredExperiment;
    use pgio_results::{Check, Trial};
    use pgio_verdict::across::across;
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::{demo, set, stored_runs};

    #[test]
    fn an_experiment_has_a_case_for_each_condition() {
        let mut stored = demo();
        stored.manifest.rules.matters = Some(0.05);
        let text = experiments(&[&analyze(&stored)]);
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
            trial.checks.push(Check::invalid("steal", "30 %", "measure elsewhere"));
        }
        let text = experiments(&[&analyze(&stored)]);
        assert!(
            text.contains("name=\"a&lt;b&amp;&quot;c&quot;") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(text.contains("errors=\"1\"") && text.contains("<error message="), "{text}");
    }

    /// The demo with other trials of one condition in the first blocks, of six.
    fn changed(condition: &str, blocks: u32, change: impl Fn(&mut Trial)) -> StoredExperiment {
        let mut stored = demo();
        let is_it = |t: &Trial| {
            t.place.as_ref().is_some_and(|p| p.condition == condition && p.block <= blocks)
        };
        stored.trials.iter_mut().filter(|t| is_it(t)).for_each(change);
        stored
    }

    fn fail(trial: &mut Trial) {
        trial.outcome = pgio_results::Outcome::Failed { error: "connection reset".to_owned() };
    }

    fn times(factor: f64) -> impl Fn(&mut Trial) {
        move |trial| {
            let rate = trial.metrics["commits_per_second"].value.unwrap();
            set(trial, "commits_per_second", rate * factor);
        }
    }

    #[test]
    fn cases_and_gate_never_contradict_each_other() {
        let judging = |name: &str| {
            let mut stored = demo();
            stored.manifest.rules.judge = vec![name.to_owned()];
            stored
        };
        let invalid = |t: &mut Trial| t.checks.push(Check::invalid("steal", "30 %", "elsewhere"));
        let all = [
            ("as it is", 0.05, demo(), Gate::Fail),
            ("all fast", 0.2, changed("on", 6, times(3.0)), Gate::Pass),
            ("a narrow margin", 0.01, changed("on", 6, times(3.0)), Gate::Undecided),
            ("the slow one is not judged", 0.2, judging("remote_write"), Gate::Pass),
            ("nothing is judged", 0.2, judging("nobody"), Gate::Undecided),
            ("the twin differs", 0.05, changed("local-aa", 6, times(0.5)), Gate::Undecided),
            ("one fails always", 0.5, changed("remote_write", 6, fail), Gate::Fail),
            ("one fails mostly", 0.5, changed("remote_write", 5, fail), Gate::Fail),
            ("no valid trial", 0.2, changed("on", 6, invalid), Gate::Undecided),
            ("no valid baseline", 0.2, changed("local", 6, invalid), Gate::Undecided),
            ("too few blocks", 0.2, changed("on", 4, invalid), Gate::Undecided),
        ];
        for (what, matters, mut stored, wanted) in all {
            stored.manifest.rules.matters = Some(matters);
            let analysis = analyze(&stored);
            let gated = report::gate(&analysis).unwrap();
            assert_eq!(gated.gate, wanted, "{what}: {}", gated.why);
            let cases = cases(&analysis);
            let is_failed = |case: &Case| matches!(case.outcome, Outcome::Failed(_));
            let is_open =
                |case: &Case| matches!(case.outcome, Outcome::Skipped(_) | Outcome::Errored(_));
            assert_eq!(cases.iter().any(is_failed), wanted == Gate::Fail, "{what}: {cases:?}");
            let is_any_open = cases.iter().any(is_open);
            assert!(is_any_open || wanted != Gate::Undecided, "{what}: {cases:?}");
            assert!(!is_any_open || wanted != Gate::Pass, "{what}: {cases:?}");
        }
    }

    #[test]
    fn unjudged_conditions_pass_and_a_differing_twin_skips_all_cases() {
        let mut stored = demo();
        stored.manifest.rules.matters = Some(0.05);
        stored.manifest.rules.judge = vec!["remote_write".to_owned()];
        let judged = cases(&analyze(&stored));
        assert_eq!((judged[3].name.as_str(), &judged[3].outcome), ("on", &Outcome::Passed));
        assert!(
            judged[3].output.starts_with("not judged. on: costs at least half of the commits"),
            "{judged:?}"
        );
        let mut stored = changed("local-aa", 6, times(0.5));
        stored.manifest.rules.matters = Some(0.05);
        let analysis = analyze(&stored);
        let why = report::gate(&analysis).unwrap().sentence();
        assert!(
            cases(&analysis).iter().all(|case| case.outcome == Outcome::Skipped(why.clone())),
            "{why}"
        );
    }

    #[test]
    fn each_rule_is_a_junit_suite() {
        let level = |run: u32| 0.8 + 0.002 * f64::from(run);
        let (old, new) = (stored_runs(3, |run| level(run) + 0.2), stored_runs(3, level));
        let rule = Rule { metric: None, change: Change::Slower, share: 0.05 };
        let found = rules::judge(&across(&old, &new, &[]), &rule).unwrap();
        let text = rulings("x", &[(rule.clone(), found)]);
        assert!(
            text.contains(
                "<testsuite name=\"x: slower by more than 5 %\" tests=\"3\" failures=\"3\""
            ),
            "{text}"
        );
        let found = rules::judge(&across(&old[..1], &new, &[]), &rule).unwrap();
        let text = rulings("x", &[(rule, found)]);
        assert!(text.contains("skipped=\"3\"") && text.contains("3 new and 1 old runs"), "{text}");
    }

    #[test]
    fn failed_trials_and_missing_runs_are_cases_that_do_not_pass() {
        let runs = |fails: fn(usize, u32) -> bool| {
            let mut runs = stored_runs(4, |run| 1.0 + 0.004 * f64::from(run % 3));
            for (number, run) in (1..).zip(&mut runs) {
                for t in &mut run.trials {
                    let place = t.place.as_ref().unwrap();
                    if place.condition == "on" && fails(number, place.block) {
                        fail(t);
                    }
                }
            }
            runs
        };
        let rule = Rule { metric: None, change: Change::Slower, share: 0.05 };
        let shown = |new: &[StoredExperiment]| {
            let found = rules::judge(&across(&runs(|_, _| false), new, &[]), &rule).unwrap();
            rulings("x", &[(rule.clone(), found)])
        };
        let text = shown(&runs(|run, _| run == 2));
        let why = "<skipped message=\"possibly slower by more than 5 %: failed in 4 of 16 trials of the new runs, \
                   in 0 of 16 of the old ones, p = 0.10; new run 2 of 4 has no valid trial with \
                   commits_per_second\"/>";
        assert!(text.contains(why) && text.contains("failures=\"0\""), "{text}");
        let text = shown(&runs(|_, block| block > 2));
        let why = "<failure message=\"failed in 8 of 16 trials of the new runs, in 0 of 16 of the old ones, \
                   p = 0.002\"/>";
        assert!(text.contains(why) && text.contains("skipped=\"0\""), "{text}");
    }
}
