//! An estimate with the interval around it, and the check of a significance level.
//!
//! The shape shared by the methods that report both (`student`, `welch`, `totals`). It says
//! nothing of how the interval was made; each method's own file does.

/// An estimate and a closed interval for it, all three on the same scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies inside; the ends belong to the interval.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// From the log scale to ratios. Order is kept, so an interval stays one.
    pub fn exp(self) -> Self {
        Self { estimate: self.estimate.exp(), low: self.low.exp(), high: self.high.exp() }
    }
}

/// A level of 0 or 1 has no test, and a NaN would silently decide nothing: both are mistakes of
/// the calling code, which checks what people write long before it comes here.
pub(crate) fn assert_probability(name: &str, value: f64) {
    assert!(value > 0.0 && value < 1.0, "{name} is {value}, it must lie between 0 and 1");
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
    fn a_level_that_is_not_a_number_is_refused() {
        assert_probability("alpha", f64::NAN);
    }
}
