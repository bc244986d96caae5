//! Divides the noise of a trial into what arises inside its window and what differs between trials, and
//! computes the window that is worth its time.
//!
//! The model for the logs of a rate is condition + block + trial + window. The residual of the two-way
//! layout ([`crate::spread`]) holds the last two; the variance of a window's mean is estimated from its
//! slices ([`Scatter`]), under the mean autocorrelation of all windows; blocks and trials follow by the
//! method of moments from the mean squares (S. R. Searle, G. Casella, C. E. McCulloch, Variance
//! Components, Wiley 1992, chapter 4). A negative estimate counts as 0. The length of a window that gives
//! the narrowest interval in a given time is from Kalibera and Jones, "Rigorous benchmarking in
//! reasonable time", ISMM 2013.
//!
//! Assumptions: the noise is about the same under all conditions, and slices depend on their neighbors
//! only. Slower oscillations inside a window count as differences between trials. What is constant for a
//! condition, such as where its files lie, is in none of these components; [`coverage`] computes what
//! that costs. Kalibera and Jones show how much such constants may hide.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::spread;
use crate::steady::Scatter;
use crate::summary::mean;

/// One trial: the log of its rate, and the scatter of the slices of its window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    pub block: u32,
    pub log: f64,
    pub window: Scatter,
}

/// Variances of logs, all 0 or larger; the square root is about the relative standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Components {
    /// Between blocks, common to all conditions: it cancels in ratios.
    pub block: f64,
    /// Between trials of one block and condition, beyond what their windows explain.
    pub trial: f64,
    /// Variance of a window's mean, from the noise inside the window.
    pub window: f64,
    /// Degrees of freedom of `trial` and `window` together.
    pub freedom: usize,
}

/// Estimates the components from the trials of each condition. `None` without two conditions that have
/// two blocks in common, or if all trials are equal.
pub fn estimate(conditions: &[Vec<Observation>]) -> Option<Components> {
    let logs: Vec<Vec<(u32, f64)>> =
        conditions.iter().map(|trials| trials.iter().map(|t| (t.block, t.log)).collect()).collect();
    let noise = spread::pooled(&logs)?;
    // `sd_log` describes the difference of two trials.
    let residual = noise.sd_log.powi(2) / 2.0;
    let windows = || conditions.iter().flatten().map(|t| t.window);
    let autocorrelation = mean(&windows().map(|w| w.autocorrelation).collect::<Vec<_>>())?;
    let windows: Vec<f64> = windows().map(|w| w.variance_of_mean(autocorrelation)).collect();
    let inside = mean(&windows).filter(|v| v.is_finite())?.min(residual);
    let block = between_blocks(&logs, residual);
    Some(Components { block, trial: residual - inside, window: inside, freedom: noise.freedom })
}

/// From the mean square of the blocks' means of residuals from their conditions' means.
fn between_blocks(conditions: &[Vec<(u32, f64)>], residual: f64) -> f64 {
    let mut residuals: Vec<(u32, f64)> = Vec::new();
    for trials in conditions {
        let center = mean(&trials.iter().map(|t| t.1).collect::<Vec<_>>()).unwrap_or(0.0);
        residuals.extend(trials.iter().map(|(block, log)| (*block, log - center)));
    }
    residuals.sort_by_key(|r| r.0);
    let blocks: Vec<Vec<f64>> = residuals
        .chunk_by(|a, b| a.0 == b.0)
        .map(|block| block.iter().map(|r| r.1).collect())
        .collect();
    let (count, trials) = (blocks.len() as f64, residuals.len() as f64);
    let weighted = |block: &Vec<f64>| mean(block).unwrap_or(0.0).powi(2) * block.len() as f64;
    let squares: f64 = blocks.iter().map(weighted).sum();
    // Trials of a block, on average.
    let size = trials / count;
    ((squares / (count - 1.0) - residual) / size).max(0.0)
}

/// A window's length in seconds, and the time that it takes to the same interval, as a share of now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BestWindow {
    pub seconds: f64,
    pub time: f64,
}

impl Components {
    /// The share of a trial's noise that lies between trials: longer windows do not reduce it.
    pub fn share_between_trials(&self) -> f64 {
        self.trial / (self.trial + self.window)
    }

    /// The window of at least `shortest` seconds that gives the same interval in the least time, if a trial
    /// now takes `window` seconds of window and `outside` seconds of everything else. `None` if one of the
    /// variances is 0, because then the formula has no minimum.
    pub fn best_window(&self, window: f64, outside: f64, shortest: f64) -> Option<BestWindow> {
        let per_second = self.window * window;
        if self.trial <= 0.0 || per_second <= 0.0 || outside <= 0.0 {
            return None;
        }
        let cost = |seconds: f64| (outside + seconds) * (self.trial + per_second / seconds);
        let seconds = (outside * per_second / self.trial).sqrt().max(shortest);
        Some(BestWindow { seconds, time: cost(seconds) / cost(window) })
    }
}

/// How often a 95 % interval of the mean ratio of `blocks` pairs holds the truth if each of the two
/// conditions has a layout of its own, drawn once: `layout` is the standard deviation between layouts,
/// `noise` the noise of a trial, both of logs. Exact for normal noise and Student's interval, which is close to
/// the interval of the signed-rank test. `None` for fewer than two blocks or a noise of 0.
pub fn coverage(layout: f64, noise: f64, blocks: usize) -> Option<f64> {
    let freedom = blocks.checked_sub(1).filter(|f| *f > 0)? as f64;
    if noise <= 0.0 {
        return None;
    }
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    // The mean is off by this many times the standard error that the interval assumes; the quotient of the
    // two still has Student's distribution, because the estimate of that error does not see the layout.
    let factor = (1.0 + blocks as f64 * (layout / noise).powi(2)).sqrt();
    Some(1.0 - 2.0 * student.sf(student.inverse_cdf(0.975) / factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::rng::normal;
    use crate::steady::scatter;

    const SLICES: usize = 30;

    /// Standard deviations between blocks, between trials, and of one slice, whose neighbors correlate by `r`.
    struct Truth {
        block: f64,
        trial: f64,
        slice: f64,
        r: f64,
    }

    fn experiment(
        rng: &mut SplitMix64,
        conditions: usize,
        blocks: u32,
        truth: &Truth,
    ) -> Vec<Vec<Observation>> {
        let drift: Vec<f64> = (0..blocks).map(|_| truth.block * normal(rng)).collect();
        let mut trial = |level: f64, block: u32| {
            let log = level + drift[block as usize - 1] + truth.trial * normal(rng);
            let mut last = normal(rng);
            let slices: Vec<f64> = (0..SLICES)
                .map(|_| {
                    last = truth.r * last + (1.0 - truth.r * truth.r).sqrt() * normal(rng);
                    (log + truth.slice * last).exp()
                })
                .collect();
            let window = scatter(&slices).unwrap();
            Observation { block, log: mean(&slices).unwrap().ln(), window }
        };
        let arm = |c: usize| (1..=blocks).map(|b| (c as f64, b)).collect::<Vec<_>>();
        (0..conditions)
            .map(|c| arm(c).into_iter().map(|(level, block)| trial(level, block)).collect())
            .collect()
    }

    /// Mean estimates over many experiments.
    fn estimated(truth: &Truth) -> Components {
        let mut rng = SplitMix64::new(4);
        let mut sum = Components { block: 0.0, trial: 0.0, window: 0.0, freedom: 0 };
        for _ in 0..400 {
            let found = estimate(&experiment(&mut rng, 4, 8, truth)).unwrap();
            sum.block += found.block / 400.0;
            sum.trial += found.trial / 400.0;
            sum.window += found.window / 400.0;
            sum.freedom = found.freedom;
        }
        sum
    }

    fn is_within(found: f64, truth: f64, share: f64) -> bool {
        (found / truth - 1.0).abs() < share
    }

    #[test]
    fn the_components_are_recovered() {
        let truth = Truth { block: 0.03, trial: 0.02, slice: 0.08, r: 0.0 };
        let found = estimated(&truth);
        assert_eq!(found.freedom, 21);
        assert!(is_within(found.block, 0.03f64.powi(2), 0.12), "{found:?}");
        assert!(is_within(found.trial, 0.02f64.powi(2), 0.12), "{found:?}");
        // Independent slices: a thirtieth of a slice's variance, a little more for the corrected bias.
        assert!(is_within(found.window, 0.08f64.powi(2) / 30.0, 0.25), "{found:?}");
    }

    #[test]
    fn slices_that_depend_on_their_neighbors_are_not_taken_for_independent() {
        let truth = Truth { block: 0.0, trial: 0.02, slice: 0.04, r: 0.6 };
        let found = estimated(&truth);
        // The variance of the mean of an autocorrelated series of this length.
        let weights: f64 =
            (1..SLICES).map(|k| (1.0 - k as f64 / 30.0) * 0.6f64.powi(k as i32)).sum();
        let window = 0.04f64.powi(2) / 30.0 * (1.0 + 2.0 * weights);
        assert!(is_within(found.window, window, 0.25), "{found:?} {window}");
        assert!(is_within(found.trial, 0.02f64.powi(2), 0.2), "{found:?}");
        assert!(found.block < 0.1 * 0.02f64.powi(2), "{found:?}");
    }

    #[test]
    fn share_between_trials_follows_the_variance_between_trials() {
        let none = estimated(&Truth { block: 0.0, trial: 0.0, slice: 0.1, r: 0.0 });
        assert!(none.share_between_trials() < 0.25, "{none:?}");
        let all = estimated(&Truth { block: 0.0, trial: 0.05, slice: 0.02, r: 0.0 });
        assert!(all.share_between_trials() > 0.98, "{all:?}");
    }

    #[test]
    fn too_few_trials_have_no_components() {
        let window = Scatter { points: 30, variance: 3e-3, autocorrelation: 0.0 };
        let one = |block, log| Observation { block, log, window };
        assert_eq!(estimate(&[]), None);
        assert_eq!(estimate(&[vec![one(1, 1.0), one(2, 1.1)]]), None);
        let nan = Observation { window: Scatter { variance: f64::NAN, ..window }, ..one(1, 1.0) };
        assert_eq!(estimate(&[vec![nan, one(2, 1.1)], vec![one(1, 2.0), one(2, 2.0)]]), None);
    }

    #[test]
    fn the_best_window_is_the_cheapest() {
        // Kalibera and Jones: sqrt(outside * variance of a second / variance of a trial).
        let c = Components { block: 0.0, trial: 4e-4, window: 1e-4, freedom: 10 };
        let best = c.best_window(60.0, 15.0, 1.0).unwrap();
        assert!((best.seconds - (15.0 * 60.0 / 4.0f64).sqrt()).abs() < 1e-9, "{best:?}");
        let cost = |s: f64| (15.0 + s) * (4e-4 + 1e-4 * 60.0 / s) / (75.0 * 5e-4);
        assert!((best.time - cost(15.0)).abs() < 1e-12 && best.time < 1.0);
        assert!(cost(10.0) > best.time && cost(25.0) > best.time);
        assert_eq!(
            c.best_window(60.0, 15.0, 20.0).map(|b| (b.seconds, b.time)),
            Some((20.0, cost(20.0)))
        );
        assert_eq!(Components { trial: 0.0, ..c }.best_window(60.0, 15.0, 1.0), None);
    }

    /// 1 % between layouts against 2 % between trials: 20 blocks cover 60 %.
    #[test]
    fn a_layout_drawn_once_is_not_in_the_interval() {
        assert!((coverage(0.0, 0.02, 6).unwrap() - 0.95).abs() < 1e-9);
        assert!((coverage(0.01, 0.02, 20).unwrap() - 0.60).abs() < 0.005);
        assert_eq!(coverage(0.01, 0.02, 1), None);
        assert_eq!(coverage(0.01, 0.0, 6), None);
        let mut rng = SplitMix64::new(9);
        for (layout, blocks) in [(0.01, 20usize), (0.01, 6), (0.02, 10)] {
            let truth = coverage(layout, 0.02, blocks).unwrap();
            let covers = |_: &u32| {
                let constant = layout * (normal(&mut rng) - normal(&mut rng));
                let pairs: Vec<f64> = (0..blocks)
                    .map(|_| constant + 0.02 * (normal(&mut rng) - normal(&mut rng)))
                    .collect();
                let center = mean(&pairs).unwrap();
                let variance =
                    pairs.iter().map(|p| (p - center).powi(2)).sum::<f64>() / (blocks - 1) as f64;
                let student = StudentsT::new(0.0, 1.0, (blocks - 1) as f64).unwrap();
                center.abs() <= student.inverse_cdf(0.975) * (variance / blocks as f64).sqrt()
            };
            let found = (0..4_000u32).filter(covers).count() as f64 / 4_000.0;
            assert!((found - truth).abs() < 0.025, "{layout} {blocks}: {found} {truth}");
        }
    }
}
