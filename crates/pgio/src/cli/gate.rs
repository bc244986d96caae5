//! `--matters` and `--gate`: a margin from the command line, and an exit code for scripts that says whether any condition
//! is worse than the baseline by more than that margin.

use std::str::FromStr;

use super::exit::{Failure, Outcome, UNDECIDED, USAGE, WORSE};
use super::output;
use crate::config::value;
use benchmath::margin::Margin;
use pgio_report::report::{self, GateResult};
use pgio_verdict::{Analysis, Gate};

/// A margin as a share of the baseline's value, such as `5%`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MarginArg {
    /// As it was written.
    pub(crate) text: String,
    pub(crate) share: f64,
}

impl FromStr for MarginArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = value::share(text).filter(|share| Margin::from_share(*share).is_some());
        let share = share.ok_or("must be a share from 0.1% to 50% such as 5%")?;
        Ok(MarginArg { text: text.to_owned(), share })
    }
}

/// Refuses a gate without a margin.
pub(crate) fn check_margin(gate: bool, margin: Option<f64>) -> Outcome {
    if gate { required_margin("--gate", margin).map(drop) } else { Ok(()) }
}

/// `what` needs the margin, for the error without one.
pub(crate) fn required_margin(what: &str, margin: Option<f64>) -> Result<f64, Failure> {
    let hint = "add matters = \"5%\" to [experiment], or --matters 5%";
    let refused = || Failure::message(USAGE, format!("{what}: no margin is named; {hint}"));
    margin.ok_or_else(refused)
}

/// Fails if any experiment's gate does. What passes is noted on stderr, so that stdout has the report
/// alone.
pub(crate) fn outcome(analyses: &[&Analysis]) -> Outcome {
    let gated: Vec<(&str, GateResult)> =
        analyses.iter().filter_map(|a| Some((a.experiment.as_str(), report::gate(a)?))).collect();
    let why = |gate: Gate| -> String {
        let matching = gated.iter().filter(|(_, gated)| gated.gate == gate);
        let reason = |(name, gated): &(&str, GateResult)| match analyses.len() {
            1 => gated.why.clone(),
            _ => format!("{name}: {}", gated.why),
        };
        matching.map(reason).collect::<Vec<_>>().join(". ")
    };
    let has = |gate| gated.iter().any(|(_, gated)| gated.gate == gate);
    if has(Gate::Fail) {
        Err(Failure::message(WORSE, format!("gate failed: {}", why(Gate::Fail))))
    } else if has(Gate::Undecided) {
        Err(Failure::message(UNDECIDED, format!("gate undecided: {}", why(Gate::Undecided))))
    } else {
        output::note(&format!("gate passed: {}", why(Gate::Pass)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_a_share_up_to_a_half() {
        let share = |text: &str| text.parse::<MarginArg>().map(|m| m.share);
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("2.5 %"), Ok(0.025));
        assert_eq!(share("50%"), Ok(0.5));
        for wrong in ["0%", "51%", "5", "-5%", "", "%", "nan%", "inf%", "five%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_gate_needs_a_margin() {
        assert!(check_margin(false, None).is_ok() && check_margin(true, Some(0.05)).is_ok());
        let refused = check_margin(true, None).unwrap_err();
        assert_eq!(refused.code(), USAGE);
    }
}
