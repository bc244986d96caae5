//! An episode: a stretch of a series at another level than before and after it.
//!
//! Pettitt's test looks for one change point, so a drop that recovers half-way through hardly moves it.
//! Here every stretch is compared with what precedes it and with what follows it, by Student's t on
//! logarithms, and the smaller difference counts: a step or a trend differs from one side only. The clearest
//! stretch is judged (the epidemic alternative of Levin and Kline, Statistics in Medicine 4, 1985). The p value
//! is multiplied by the number of stretches to choose from (Bonferroni's inequality).

use super::{MIN_LEVEL_POINTS, logs, p_value, without_outliers};
use crate::summary;

/// Fewest points before an episode, and after it.
const MIN_POINTS_PER_SIDE: usize = 2;

/// The stretch that differs most from both sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Episode {
    /// Index of its first point, and of the first one after it.
    pub from: usize,
    pub to: usize,
    /// Its level relative to the nearer of those before and after it: -0.8 is a drop by 80 %. Ratio of medians;
    /// not finite if the other level is 0.
    pub change: f64,
    /// Two-sided, an upper bound.
    pub p: f64,
    pub effective_points: f64,
}

/// `None` if the series is too short for an episode, its median is not positive, or no stretch differs from
/// both sides in the same direction.
pub(super) fn clearest(values: &[f64]) -> Option<Episode> {
    let logs = without_outliers(&logs(values)?);
    let points = logs.len();
    let center = summary::mean(&logs)?;
    let mut sums = vec![0.0];
    let mut sum = 0.0;
    for log in &logs {
        sum += log - center;
        sums.push(sum);
    }
    let mean = |from: usize, to: usize| (sums[to] - sums[from]) / (to - from) as f64;
    // Both differences, the nearer one first, with the error of each for points of variance 1.
    let contrast = |from: usize, to: usize| {
        let inside = mean(from, to);
        let side = |other: f64, count: usize| {
            let error = (1.0 / (to - from) as f64 + 1.0 / count as f64).sqrt();
            (inside - other, error)
        };
        let (before, after) = (side(mean(0, from), from), side(mean(to, points), points - to));
        let is_nearer = (before.0 / before.1).abs() <= (after.0 / after.1).abs();
        (before.0 * after.0 > 0.0).then_some(if is_nearer { before } else { after })
    };
    let mut best: Option<(usize, usize, f64, f64)> = None;
    for from in MIN_POINTS_PER_SIDE..points {
        for to in from + MIN_LEVEL_POINTS..(points + 1).saturating_sub(MIN_POINTS_PER_SIDE) {
            let Some((difference, error)) = contrast(from, to) else { continue };
            if best.is_none_or(|b| (difference / error).abs() > (b.2 / b.3).abs()) {
                best = Some((from, to, difference, error));
            }
        }
    }
    let (from, to, difference, error) = best?;
    let levels = [mean(0, from), mean(from, to), mean(to, points)].map(|level| level + center);
    let residuals: Vec<f64> = logs
        .iter()
        .enumerate()
        .map(|(i, log)| log - levels[usize::from(i >= from) + usize::from(i >= to)])
        .collect();
    let choices = (points * (points - 1) / 2) as f64;
    let (p, effective_points) = p_value(&residuals, levels.len(), difference / error, choices);
    Some(Episode { from, to, change: change(values, from, to), p, effective_points })
}

/// Outliers are not cut off here: that would make a large change smaller.
fn change(values: &[f64], from: usize, to: usize) -> f64 {
    let [before, inside, after] = [&values[..from], &values[from..to], &values[to..]]
        .map(|part| summary::median(part).unwrap_or(f64::NAN));
    let (early, late) = (inside / before - 1.0, inside / after - 1.0);
    if early.abs() <= late.abs() { early } else { late }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::rng::normal;

    /// Noise of 5 % around 100, of which each value contains `memory` times the previous one.
    fn noise(n: usize, memory: f64, rng: &mut SplitMix64) -> Vec<f64> {
        let mut last = 5.0 * normal(rng);
        let mut next = || {
            last = memory * last + 5.0 * (1.0 - memory * memory).sqrt() * normal(rng);
            100.0 + last
        };
        (0..n).map(|_| next()).collect()
    }

    fn with_drop(mut values: Vec<f64>, from: usize, to: usize, left: f64) -> Vec<f64> {
        values[from..to].iter_mut().for_each(|v| *v *= left);
        values
    }

    #[test]
    fn an_episode_has_its_ends_and_its_size() {
        let mut rng = SplitMix64::new(1);
        let found = clearest(&with_drop(noise(60, 0.0, &mut rng), 20, 40, 0.7)).unwrap();
        assert_eq!((found.from, found.to), (20, 40));
        assert!((found.change + 0.3).abs() < 0.03 && found.p < 1e-6, "{found:?}");
        // Without any scatter, and down to nothing.
        let found = clearest(&with_drop(vec![100.0; 20], 5, 9, 0.0)).unwrap();
        assert_eq!((found.from, found.to), (5, 9));
        assert!(found.p < 1e-9, "{found:?}");
        assert_eq!(clearest(&[0.0; 20]), None);
        assert_eq!(clearest(&[5.0; 20]), None);
    }

    #[test]
    fn drops_that_recover_are_found() {
        for (n, from, to, left, memory, least) in [
            (30, 8, 22, 0.2, 0.3, 0.95),
            (30, 8, 22, 0.2, 0.6, 0.85),
            (30, 14, 28, 0.2, 0.3, 0.90),
            (60, 20, 40, 0.8, 0.3, 0.90),
        ] {
            let mut rng = SplitMix64::new(3);
            let is_found = |_: &i32| {
                let values = with_drop(noise(n, memory, &mut rng), from, to, left);
                clearest(&values).is_some_and(|e| e.p <= 0.002)
            };
            let found = f64::from((0..300).filter(is_found).count() as u32) / 300.0;
            assert!(found >= least, "{n}, {from} to {to}, {left}, memory {memory}: {found}");
        }
    }

    #[test]
    fn a_step_a_trend_and_outliers_are_no_episodes() {
        let mut rng = SplitMix64::new(5);
        let mut accused = [0; 3];
        for _ in 0..200 {
            let step = with_drop(noise(30, 0.3, &mut rng), 14, 30, 0.5);
            let mut trend = noise(30, 0.3, &mut rng);
            (0..).zip(&mut trend).for_each(|(i, v)| *v -= 2.0 * f64::from(i));
            let outliers = with_drop(noise(30, 0.3, &mut rng), 11, 13, 0.1);
            for (count, values) in accused.iter_mut().zip([step, trend, outliers]) {
                *count += i32::from(clearest(&values).is_some_and(|e| e.p <= 0.002));
            }
        }
        // Two outliers beside a low value are three low values.
        assert!(accused.iter().all(|count| *count <= 4), "{accused:?} of 200");
    }
}
