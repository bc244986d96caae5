//! The width of the primary intervals, which `precision =` limits.
//!
//! The experiment loop checks it between blocks to decide whether to run another; the report warns if the
//! limit of blocks was reached first.

use super::comparison::Comparison;

/// The width of the primary intervals.
#[derive(Debug, Clone, PartialEq)]
pub enum Width {
    /// The widest half-width, of a ratio (0.05 is ±5 %), and its condition.
    Widest(String, f64),
    /// This condition has no interval yet.
    None(String),
}

impl Width {
    pub fn is_within(&self, precision: f64) -> bool {
        matches!(self, Width::Widest(_, half) if *half <= precision)
    }

    /// Compares it with the requested precision, in words.
    pub fn describe(&self, precision: f64) -> String {
        let requested = precision * 100.0;
        match self {
            Width::Widest(_, half) if self.is_within(precision) => format!(
                "the widest interval is ±{:.1} %, within the requested ±{requested:.1} %",
                half * 100.0
            ),
            Width::Widest(condition, half) => format!(
                "the widest interval is ±{:.1} % (`{condition}`), wider than the requested ±{requested:.1} %",
                half * 100.0
            ),
            Width::None(condition) => {
                format!("`{condition}` has no interval yet; requested precision: ±{requested:.1} %")
            }
        }
    }
}

/// Over all comparisons, including that with the A/A twin; `None` if there is nothing to compare.
pub fn width(comparisons: &[Comparison]) -> Option<Width> {
    let mut widest: Option<(String, f64)> = None;
    for c in comparisons.iter().filter(|c| c.primary) {
        let (Some(low), Some(high)) = (c.interval.low, c.interval.high) else {
            return Some(Width::None(c.condition.clone()));
        };
        let half = half_width(low, high);
        if !half.is_finite() {
            return Some(Width::None(c.condition.clone()));
        }
        if widest.as_ref().is_none_or(|(_, w)| half > *w) {
            widest = Some((c.condition.clone(), half));
        }
    }
    widest.map(|(condition, half)| Width::Widest(condition, half))
}

/// p with high / low = (1 + p) / (1 - p): the interval is its middle ± p.
pub fn half_width(low: f64, high: f64) -> f64 {
    (high - low) / (high + low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::analysis::test_support::demo;

    #[test]
    fn the_widest_interval_decides() {
        let mut stored = demo();
        let Some(Width::Widest(condition, half)) = width(&analyse(&stored).comparisons) else {
            panic!("six blocks have intervals");
        };
        let analysis = analyse(&stored);
        let c = analysis.primary(&condition).unwrap();
        assert!(
            (c.interval.high.unwrap() / c.interval.low.unwrap() - (1.0 + half) / (1.0 - half))
                .abs()
                < 1e-9
        );
        assert!(Width::Widest(condition.clone(), half).is_within(half));
        assert!(!Width::Widest(condition, half).is_within(half * 0.99));
        // Every comparison counts: one without an interval is infinitely wide.
        stored
            .trials
            .retain(|t| t.place.as_ref().is_some_and(|p| p.condition != "on" || p.block < 4));
        let found = width(&analyse(&stored).comparisons);
        assert_eq!(found, Some(Width::None("on".to_owned())));
    }

    #[test]
    fn the_width_is_described_in_per_cent() {
        let widest = |half| Width::Widest("on".to_owned(), half);
        insta::assert_snapshot!(widest(0.062).describe(0.05), @"the widest interval is ±6.2 % (`on`), wider than the requested ±5.0 %");
        insta::assert_snapshot!(widest(0.04).describe(0.05), @"the widest interval is ±4.0 %, within the requested ±5.0 %");
        insta::assert_snapshot!(Width::None("on".to_owned()).describe(0.05), @"`on` has no interval yet; requested precision: ±5.0 %");
    }
}
