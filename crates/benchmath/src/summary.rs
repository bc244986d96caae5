//! Descriptive statistics of one sample: mean, spread, median, quantiles, geometric mean.
//!
//! For inference see `signed_rank` and `student`. Every function returns `None` if the statistic
//! does not exist, instead of a NaN that would appear in a report. Values are finite, in any unit.

/// Arithmetic mean; `None` without values.
///
/// Sums the distances from the first value, so that the mean of equal values is exactly that value
/// and their spread exactly zero; checks for "no spread" rely on this.
pub fn mean(values: &[f64]) -> Option<f64> {
    let first = *values.first()?;
    let beyond: f64 = values.iter().map(|v| v - first).sum();
    Some(first + beyond / values.len() as f64)
}

/// Sample standard deviation (divisor n - 1, two passes); `None` for fewer than two values.
pub fn sd(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let center = mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - center).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Middle value, or the mean of the two middle values; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    median_of_sorted(&sorted(values))
}

/// Quantile of type 7 (linear between order statistics, the default of R and NumPy): Hyndman and
/// Fan, "Sample quantiles in statistical packages", American Statistician 50(4), 1996.
///
/// `None` without values, or for a `q` outside [0, 1].
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(values), q)
}

/// Geometric mean, for ratios and rates; `None` without values, or if a value is not positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.iter().any(|v| !v.is_finite() || *v <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
    mean(&logs).map(f64::exp)
}

pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

pub(crate) fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[sorted.len() / 2 - 1], upper))
}

pub(crate) fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    if sorted.is_empty() || !(0.0..=1.0).contains(&q) {
        return None;
    }
    let position = q * (sorted.len() - 1) as f64;
    let below = sorted[position.floor() as usize];
    let above = sorted[position.ceil() as usize];
    Some(below + (above - below) * position.fract())
}

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

    /// Differences of Student's sleep data, R's `sleep`.
    const SLEEP: [f64; 10] = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];

    fn close(got: Option<f64>, wanted: f64) {
        let got = got.unwrap();
        assert!((got - wanted).abs() < 1e-9 * wanted.abs().max(1.0), "{got} is not {wanted}");
    }

    #[test]
    fn known_answers() {
        close(mean(&SLEEP), 1.58);
        close(sd(&SLEEP), 1.229_995_483_27);
        close(median(&SLEEP), 1.3);
        close(median(&[3.0, 1.0, 2.0]), 2.0);
        close(quantile(&SLEEP, 0.25), 1.05);
        close(quantile(&SLEEP, 0.75), 1.7);
        close(quantile(&SLEEP, 0.1), 0.72);
        close(geometric_mean(&[1.0, 4.0, 16.0]), 4.0);
    }

    #[test]
    fn ends_of_the_range_are_the_extremes() {
        close(quantile(&SLEEP, 0.0), 0.0);
        close(quantile(&SLEEP, 1.0), 4.6);
        assert_eq!(quantile(&SLEEP, 1.1), None);
        assert_eq!(quantile(&SLEEP, f64::NAN), None);
    }

    #[test]
    fn undefined_statistics_are_none() {
        assert_eq!(mean(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(sd(&[1.0]), None);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn equal_values_have_exactly_no_spread() {
        // A plain sum of these values divided by 7 differs from 0.1 in the last bit.
        assert_eq!(mean(&[0.1; 7]), Some(0.1));
        assert_eq!(sd(&[0.1; 7]), Some(0.0));
    }

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
