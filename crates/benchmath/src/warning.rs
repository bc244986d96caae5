//! What a reader should doubt about a comparison, as values: what, why, what to try.
//!
//! They travel with the result, so that every report shows them; nothing here prints. `effect`
//! decides when one is due.

use std::fmt;

/// One reason for doubt. Blocks are numbered from 1, as reports number them.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// No test at the asked level exists for so few blocks.
    TooFewBlocks { blocks: usize, fewest: usize },
    /// A value of 0 or below has no ratio, so the whole comparison has none.
    NotPositive { block: usize, condition: f64, baseline: f64 },
    /// A value is infinite or not a number.
    NotFinite { block: usize },
    /// All log-ratios are the same.
    NoSpread,
    /// One block's log-ratio lies far from all others.
    WildBlock { block: usize },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewBlocks { blocks, fewest } => write!(
                f,
                "{blocks} block(s) cannot decide anything: chance alone puts all of them on one \
                 side too often; run at least {fewest}"
            ),
            Self::NotPositive { block, condition, baseline } => write!(
                f,
                "no ratio: block {block} has {condition} against {baseline} and a ratio needs two \
                 positive values; judge the difference, or lengthen the window until events occur \
                 in every trial"
            ),
            Self::NotFinite { block } => write!(
                f,
                "no ratio: block {block} has a value that is not a finite number, so something \
                 was divided by nothing; look at that trial's record"
            ),
            Self::NoSpread => write!(
                f,
                "all blocks show the same ratio to a billionth: real trials vary, so the metric \
                 is probably capped or coarse; check for a rate limit, or lengthen the window"
            ),
            Self::WildBlock { block } => write!(
                f,
                "block {block} is far from the others: it hardly moves the estimate but may be \
                 a sign of disturbance; look at what else the machine did during its trials, and \
                 add blocks rather than drop this one"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_warning_says_what_why_and_what_to_try() {
        for warning in [
            Warning::TooFewBlocks { blocks: 3, fewest: 6 },
            Warning::NotPositive { block: 2, condition: 0.0, baseline: 5.0 },
            Warning::NotFinite { block: 2 },
            Warning::NoSpread,
            Warning::WildBlock { block: 4 },
        ] {
            let text = warning.to_string();
            let (what, rest) = text.split_once(": ").expect("what, then why");
            let (why, attempt) = rest.split_once("; ").expect("why, then what to try");
            assert!(!what.is_empty() && !why.is_empty() && !attempt.is_empty());
            assert!(!text.ends_with('.') && !text.contains("  "), "{text}");
        }
    }

    #[test]
    fn numbers_are_named() {
        let text = Warning::NotPositive { block: 2, condition: 0.0, baseline: 5.5 }.to_string();
        assert!(text.contains("block 2 has 0 against 5.5"), "{text}");
        let text = Warning::TooFewBlocks { blocks: 3, fewest: 6 }.to_string();
        assert!(text.contains("3 block(s)") && text.contains("at least 6"), "{text}");
    }
}
