//! The interval of an estimate, within which the true value is expected.
//!
//! Both sides are null if there are too few values; one side is null if only a bound is known. An end of a ratio's
//! interval that is further than a factor of 100 from no change is no bound, and null. In stored JSON both sides are
//! beside the estimate, so the type itself has no description there.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// The 95 % interval; of what is judged in a family, at the level that the family leaves it. Null with too
    /// few values, and on the side that a bound leaves open.
    /// A ratio's end beyond a factor of 100 is null as well.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
}

/// An end of a ratio's interval beyond this factor bounds nothing, and a ratio beyond it is not written in digits.
pub const MAX_FACTOR: f64 = 100.0;

impl Interval {
    pub const UNKNOWN: Interval = Interval { low: None, high: None };

    pub fn new(low: f64, high: f64) -> Interval {
        Interval { low: Some(low), high: Some(high) }
    }

    /// The interval of a ratio.
    pub fn from_ratio(low: impl Into<Option<f64>>, high: impl Into<Option<f64>>) -> Interval {
        let is_bound = |low: &f64| low.is_finite() && *low >= 1.0 / MAX_FACTOR;
        Interval {
            low: low.into().filter(is_bound),
            high: high.into().filter(|high| *high <= MAX_FACTOR),
        }
    }

    /// Both sides, if both are known.
    pub fn sides(self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }

    /// Whether the value is known to be outside.
    pub fn excludes(self, value: f64) -> bool {
        self.low.is_some_and(|low| value < low) || self.high.is_some_and(|high| value > high)
    }
}

impl From<Option<benchmath::interval::Interval>> for Interval {
    fn from(found: Option<benchmath::interval::Interval>) -> Interval {
        found.map_or(Interval::UNKNOWN, |i| Interval::new(i.low, i.high))
    }
}

impl From<Option<(f64, f64)>> for Interval {
    fn from(sides: Option<(f64, f64)>) -> Interval {
        sides.map_or(Interval::UNKNOWN, |(low, high)| Interval::new(low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_beyond_a_factor_of_100_is_no_bound() {
        assert_eq!(Interval::from_ratio(0.5, 2.0), Interval::new(0.5, 2.0));
        assert_eq!(Interval::from_ratio(5.3e-171, 1.2e170), Interval::UNKNOWN);
        assert_eq!(
            Interval::from_ratio(0.5, f64::INFINITY),
            Interval { low: Some(0.5), high: None }
        );
        assert_eq!(Interval::from_ratio(f64::NAN, None), Interval::UNKNOWN);
    }

    #[test]
    fn a_bound_excludes_one_side_alone() {
        let at_least = Interval { low: Some(1.0), high: None };
        assert!(at_least.excludes(0.9) && !at_least.excludes(9.0));
        assert!(!Interval::UNKNOWN.excludes(0.0));
        assert_eq!(Interval::new(1.0, 2.0).sides(), Some((1.0, 2.0)));
        assert_eq!(at_least.sides(), None);
    }
}
