//! Doubts about a comparison as values: what, why, what to try.
//!
//! They are part of the result, so that every report shows them. `effect` decides when to warn;
//! this module prints nothing.

use std::fmt;

/// One reason for doubt. Blocks are numbered from 1, as in reports.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// With so few blocks, no test at the requested level exists.
    TooFewBlocks { blocks: usize, fewest: usize },
    /// A value is 0 or negative, so the comparison has no ratio.
    NotPositive { block: usize, condition: f64, baseline: f64 },
    /// A value is infinite or not a number.
    NotFinite { block: usize },
    /// All log-ratios are equal.
    NoSpread,
    /// One block's log-ratio is far from all others.
    OutlierBlock { block: usize },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewBlocks { blocks, fewest } => write!(
                f,
                "{blocks} block(s) are too few to decide: by chance alone, all of them are on one \
                                 side too often; run at least {fewest}"
            ),
            Self::NotPositive { block, condition, baseline } => write!(
                f,
                "no ratio: block {block} has {condition} against {baseline}, and a ratio requires two \
                                 positive values; judge the difference, or lengthen the window until events occur \
                                 in every trial"
            ),
            Self::NotFinite { block } => write!(
                f,
                "no ratio: block {block} has a value that is not finite, probably due to a division \
                                 by zero; check the trial's record"
            ),
            Self::NoSpread => write!(
                f,
                "all blocks have the same ratio to a billionth: real trials vary, so the metric \
                                 is probably limited or too coarse; check for a rate limit, or lengthen the window"
            ),
            Self::OutlierBlock { block } => write!(
                f,
                "block {block} is far from the others: it barely affects the estimate but may \
                                 indicate a disturbance; check what else the machine did during its trials, and \
                                 add blocks instead of removing this one"
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
            Warning::OutlierBlock { block: 4 },
        ] {
            let text = warning.to_string();
            let (what, rest) = text.split_once(": ").expect("what, then why");
            let (why, attempt) = rest.split_once("; ").expect("why, then what to try");
            assert!(!what.is_empty() && !why.is_empty() && !attempt.is_empty());
            assert!(!text.ends_with('.') && !text.contains("  "), "{text}");
        }
    }

    #[test]
    fn warnings_contain_their_numbers() {
        let text = Warning::NotPositive { block: 2, condition: 0.0, baseline: 5.5 }.to_string();
        assert!(text.contains("block 2 has 0 against 5.5"), "{text}");
        let text = Warning::TooFewBlocks { blocks: 3, fewest: 6 }.to_string();
        assert!(text.contains("3 block(s)") && text.contains("at least 6"), "{text}");
    }
}
