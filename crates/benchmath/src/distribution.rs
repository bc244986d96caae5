//! Expected values of the distributions that pgio draws from.
//!
//! Closed forms come from statrs; nothing is estimated.

use statrs::distribution::{ChiSquared, ContinuousCDF};
use statrs::function::erf::erfc;

/// The share of a standard normal distribution below `z`.
pub fn normal_cdf(z: f64) -> f64 {
    0.5 * erfc(-z / std::f64::consts::SQRT_2)
}

/// The p of Pearson's chi-squared test that the counts come from these shares.
///
/// Assumes independent draws and at least five expected draws per cell (Cochran 1954); rarer cells
/// are merged with their neighbors. `None` for fewer than two such cells.
pub fn fit_p(counts: &[u64], shares: &[f64]) -> Option<f64> {
    let draws = counts.iter().sum::<u64>() as f64;
    let whole: f64 = shares.iter().sum();
    let (mut statistic, mut cells) = (0.0, 0_u32);
    let (mut observed, mut expected) = (0.0, 0.0);
    for (count, share) in counts.iter().zip(shares) {
        observed += *count as f64;
        expected += draws * share / whole;
        if expected >= 5.0 {
            statistic += (observed - expected) * (observed - expected) / expected;
            cells += 1;
            (observed, expected) = (0.0, 0.0);
        }
    }
    let freedom = ChiSquared::new(f64::from(cells.checked_sub(1)?)).ok()?;
    Some(freedom.sf(statistic))
}

/// The sum of 1 / k^exponent for k from 1 to n.
///
/// Sums the first ten thousand terms directly and the rest by the Euler-Maclaurin formula, whose
/// next term is then below 1e-16.
pub fn harmonic(n: u64, exponent: f64) -> f64 {
    const EXACT: u64 = 10_000;
    let term = |k: f64| k.powf(-exponent);
    let head: f64 = (1..=n.min(EXACT)).rev().map(|k| term(k as f64)).sum();
    if n <= EXACT {
        return head;
    }
    let (from, to) = (EXACT as f64, n as f64);
    let integral = if exponent == 1.0 {
        (to / from).ln()
    } else {
        (to.powf(1.0 - exponent) - from.powf(1.0 - exponent)) / (1.0 - exponent)
    };
    let slope = |k: f64| -exponent * k.powf(-exponent - 1.0);
    head + integral + (term(to) - term(from)) / 2.0 + (slope(to) - slope(from)) / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert!((normal_cdf(1.0) - normal_cdf(-1.0) - 0.682_689_492_137_086).abs() < 1e-10);
        assert!((normal_cdf(1.959_963_984_540_054) - 0.975).abs() < 1e-10);
        // Harmonic numbers, published with many digits.
        assert!((harmonic(10, 1.0) - 2.928_968_253_968_254).abs() < 1e-12);
        assert!((harmonic(1_000_000, 1.0) - 14.392_726_722_865_724).abs() < 1e-9);
        assert_eq!(harmonic(1000, 0.0), 1000.0);
    }

    #[test]
    fn the_formula_continues_the_direct_sum() {
        for exponent in [0.0, 0.5, 0.99, 1.0, 1.2, 3.0] {
            let summed: f64 = (1..=50_000u64).rev().map(|k| (k as f64).powf(-exponent)).sum();
            let found = harmonic(50_000, exponent);
            assert!((found / summed - 1.0).abs() < 1e-11, "{exponent}: {found} is not {summed}");
        }
    }

    #[test]
    fn uneven_counts_have_a_small_p() {
        // Statistic 4 with 1 degree of freedom.
        assert!((fit_p(&[60, 40], &[1.0, 1.0]).unwrap() - 0.0455).abs() < 1e-4);
        assert_eq!(fit_p(&[100, 200, 300], &[1.0, 2.0, 3.0]), Some(1.0));
        assert!(fit_p(&[200, 200, 300], &[1.0, 2.0, 3.0]).unwrap() < 1e-8);
        // Three cells are too small and are merged.
        assert_eq!(fit_p(&[94, 2, 2, 2], &[94.0, 2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(fit_p(&[4, 4], &[1.0, 1.0]), None);
    }
}
