//! An estimate with its interval, and the check of a significance level.
//!
//! Common type of the methods that report both (`student`, `welch`, `totals`). Each method's file
//! describes how its interval is computed.

/// An estimate and its closed interval, on the same scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Whether the interval contains `value`; its ends belong to it.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Converts from the log scale to ratios. The order is preserved.
    pub fn exp(self) -> Self {
        Self { estimate: self.estimate.exp(), low: self.low.exp(), high: self.high.exp() }
    }
}

/// Panics on an invalid level: no test has a level of 0 or 1, and a NaN would silently decide
/// nothing. Callers must validate user input earlier.
pub(crate) fn assert_probability(name: &str, value: f64) {
    assert!(value > 0.0 && value < 1.0, "{name} is {value}, it must be between 0 and 1");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_belong_to_the_interval() {
        let interval = Interval { estimate: 0.1, low: 0.0, high: 0.2 };
        assert!(interval.contains(0.0) && interval.contains(0.2));
        assert!(!interval.contains(-1e-300) && !interval.contains(0.3));
        assert!(interval.exp().contains(1.0));
    }

    #[test]
    #[should_panic(expected = "alpha is NaN")]
    fn a_level_that_is_not_a_number_panics() {
        assert_probability("alpha", f64::NAN);
    }
}
