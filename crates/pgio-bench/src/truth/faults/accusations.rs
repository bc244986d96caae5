//! What an analysis accuses an experiment of, and what it must contain.

use std::collections::BTreeSet;
use std::fmt;

use pgio_results::CheckVerdict;
use pgio_verdict::Analysis;

/// The part of the note about full-page images by which it is recognized.
const IMAGES: &str = "full-page images";
/// States the number of blocks, which is the plan's and no fault.
const TOO_FEW_BLOCKS: &str = "too-few-blocks";

/// What must be found.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    /// This check with this verdict (or a worse one), of a trial of this condition, or of any if it names none.
    Check {
        id: &'static str,
        verdict: CheckVerdict,
        condition: Option<&'static str>,
        or_worse: bool,
    },
    /// The note that WAL consists mostly of full-page images.
    ImagesNote,
}

impl Expected {
    pub(super) const fn invalid(id: &'static str, condition: Option<&'static str>) -> Expected {
        Expected::Check { id, verdict: CheckVerdict::Invalid, condition, or_worse: false }
    }

    pub(super) const fn warning(id: &'static str, condition: Option<&'static str>) -> Expected {
        Expected::Check { id, verdict: CheckVerdict::Warning, condition, or_worse: false }
    }

    /// A warning, or invalid: how much is a question of the machine.
    pub(super) const fn any(id: &'static str, condition: Option<&'static str>) -> Expected {
        Expected::Check { id, verdict: CheckVerdict::Warning, condition, or_worse: true }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Check { id, verdict, .. } => write!(f, "{id} ({})", word(*verdict)),
            Expected::ImagesNote => write!(f, "{IMAGES} (note)"),
        }
    }
}

fn word(verdict: CheckVerdict) -> &'static str {
    match verdict {
        CheckVerdict::Ok => "ok",
        CheckVerdict::Warning => "warning",
        CheckVerdict::Invalid => "invalid",
    }
}

/// All failed checks of an experiment.
#[derive(Debug)]
pub(super) struct Accusations {
    found: Vec<(String, CheckVerdict, Option<String>)>,
    images: bool,
    /// Each message, for a healthy experiment that is accused.
    pub(super) messages: Vec<String>,
}

impl Accusations {
    pub(super) fn new(analysis: &Analysis) -> Accusations {
        let all = || analysis.checks.iter().filter(|c| c.id != TOO_FEW_BLOCKS);
        Accusations {
            found: all().map(|c| (c.id.clone(), c.verdict, c.condition.clone())).collect(),
            images: analysis.notes.iter().any(|note| note.contains(IMAGES)),
            messages: all().map(|c| format!("{}: {}", c.id, c.message)).collect(),
        }
    }

    /// The same without these checks.
    pub(super) fn without(mut self, tolerated: &[String]) -> Accusations {
        self.found.retain(|(id, ..)| !tolerated.contains(id));
        let is_tolerated = |m: &str| tolerated.iter().any(|id| m.starts_with(&format!("{id}: ")));
        self.messages.retain(|message| !is_tolerated(message));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn contains(&self, expected: &Expected) -> bool {
        match expected {
            Expected::ImagesNote => self.images,
            Expected::Check { id, verdict, condition, or_worse } => {
                self.found.iter().any(|found| {
                    let is_there = condition.is_none() || *condition == found.2.as_deref();
                    let is_right = found.1 == *verdict || (*or_worse && found.1 > *verdict);
                    found.0 == *id && is_right && is_there
                })
            }
        }
    }
}

impl fmt::Display for Accusations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |(id, verdict, _): &(String, CheckVerdict, Option<String>)| {
            format!("{id} ({})", word(*verdict))
        };
        let mut names: BTreeSet<String> = self.found.iter().map(named).collect();
        if self.images {
            names.insert(format!("{IMAGES} (note)"));
        }
        if names.is_empty() {
            f.write_str("nothing")
        } else {
            f.write_str(&names.into_iter().collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: &str, verdict: CheckVerdict, condition: Option<&str>) -> Accusations {
        let found = vec![(id.to_owned(), verdict, condition.map(str::to_owned))];
        Accusations { found, images: false, messages: vec![format!("{id}: why")] }
    }

    #[test]
    fn a_fault_is_found_only_with_its_check_verdict_and_condition() {
        let expected = Expected::invalid("durability", Some("b"));
        let invalid = CheckVerdict::Invalid;
        assert!(found("durability", invalid, Some("b")).contains(&expected));
        assert!(!found("durability", invalid, Some("a")).contains(&expected));
        assert!(!found("durability", CheckVerdict::Warning, Some("b")).contains(&expected));
        assert!(!found("storage", invalid, Some("b")).contains(&expected));
        assert!(!found("storage", invalid, None).contains(&Expected::ImagesNote));
        let any = Expected::any("foreign-load", None);
        assert!(found("foreign-load", invalid, None).contains(&any));
        assert!(found("foreign-load", CheckVerdict::Warning, None).contains(&any));
    }

    #[test]
    fn a_tolerated_check_is_no_accusation() {
        let some = || found("foreign-load", CheckVerdict::Warning, None);
        assert!(some().without(&["foreign-load".to_owned()]).is_empty());
        assert!(!some().without(&["steal".to_owned()]).is_empty());
        assert_eq!(some().to_string(), "foreign-load (warning)");
    }
}
