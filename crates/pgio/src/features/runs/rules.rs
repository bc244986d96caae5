//! `--fail-if`: rules from the command line, and an exit code for scripts that says whether the new runs break one.

use std::str::FromStr;

use crate::cli::exit::{Failure, Outcome, UNDECIDED, USAGE, WORSE};
use crate::cli::output;
use crate::config::value;
use benchmath::margin::Margin;
use pgio_report::report::{across, junit};
use pgio_verdict::Gate;
use pgio_verdict::across::Across;
use pgio_verdict::across::gate::{self, Change, Rule, RuleError, RuleResult};

const RULE_SYNTAX: &str = "must be slower:SHARE or changed:SHARE, perhaps after METRIC:, with a share from 0.1% \
     to 50%, such as slower:5% or commit_latency_p99:slower:10%";

/// A rule as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RuleArg(pub(super) Rule);

impl FromStr for RuleArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').map(str::trim).collect();
        let (metric, change, share) = match parts.as_slice() {
            [change, share] => (None, *change, *share),
            [metric, change, share] if !metric.is_empty() => {
                (Some((*metric).to_owned()), *change, *share)
            }
            _ => return Err(RULE_SYNTAX.to_owned()),
        };
        let change = match change {
            "slower" => Change::Slower,
            "changed" => Change::Changed,
            _ => return Err(RULE_SYNTAX.to_owned()),
        };
        let share = value::share(share).filter(|share| Margin::from_share(*share).is_some());
        Ok(RuleArg(Rule { metric, change, share: share.ok_or(RULE_SYNTAX)? }))
    }
}

/// A rule with its answers.
pub(super) type RuleResults = Vec<(Rule, Vec<RuleResult>)>;

/// Applies the rules; `--gate` adds a rule for the margin.
pub(super) fn judge(
    across: &Across,
    rules: &[RuleArg],
    margin: Option<f64>,
) -> Result<RuleResults, Failure> {
    let margin_rule = margin.map(|share| Rule { metric: None, change: Change::Slower, share });
    let rules = rules.iter().map(|rule| rule.0.clone()).chain(margin_rule);
    rules.map(|rule| Ok((rule.clone(), gate::judge(across, &rule)?))).collect()
}

/// Fails if any rule is broken. What passes is noted on stderr, so that stdout has the report alone.
pub(super) fn outcome(judged: &RuleResults) -> Outcome {
    let rules_with = |wanted: Gate| {
        let rule_text = |(rule, rulings): &(Rule, Vec<RuleResult>)| {
            let names: Vec<String> =
                rulings.iter().filter(|r| r.gate == wanted).map(ruling_text).collect();
            (!names.is_empty()).then(|| format!("{}: {}", junit::shown(rule), names.join(", ")))
        };
        judged.iter().filter_map(rule_text).collect::<Vec<_>>().join("; ")
    };
    let (broken, undecided) = (rules_with(Gate::Fail), rules_with(Gate::Undecided));
    if !broken.is_empty() {
        Err(Failure::message(WORSE, format!("gate failed: {broken}")))
    } else if !undecided.is_empty() {
        Err(Failure::message(UNDECIDED, format!("gate undecided: possibly {undecided}")))
    } else {
        output::note("gate passed: the new runs break no rule");
        Ok(())
    }
}

fn ruling_text(ruling: &RuleResult) -> String {
    match across::ruling_reasons(ruling) {
        Some(why) => format!("{} ({why})", ruling.condition),
        None => ruling.condition.clone(),
    }
}

impl From<RuleError> for Failure {
    fn from(error: RuleError) -> Failure {
        Failure::new(USAGE, error).context("--fail-if")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_a_direction_and_a_share_and_perhaps_a_metric() {
        let rule = |text: &str| text.parse::<RuleArg>().map(|rule| rule.0);
        let slower = Rule { metric: None, change: Change::Slower, share: 0.05 };
        assert_eq!(rule("slower:5%"), Ok(slower.clone()));
        assert_eq!(rule("changed: 5 %"), Ok(Rule { change: Change::Changed, ..slower.clone() }));
        let p99 = Rule { metric: Some("commit_latency_p99".to_owned()), share: 0.1, ..slower };
        assert_eq!(rule("commit_latency_p99:slower:10%"), Ok(p99));
        for wrong in [
            "",
            "slower",
            "slower:",
            "slower:5",
            "5%",
            "faster:5%",
            "slower:0%",
            "slower:60%",
            "a:b:c:5%",
            ":slower:5%",
        ] {
            assert_eq!(rule(wrong), Err(RULE_SYNTAX.to_owned()), "{wrong}");
        }
    }
}
