//! Divides the noise of a trial into what arises inside its window and what differs between trials, and
//! computes the window that is worth its time.
//!
//! The model for the logs of a rate is condition + block + trial + window. The residual of the two-way
//! layout ([`crate::spread`]) holds the last two; the variance of a window's mean is estimated from its
//! slices ([`Scatter`]), under the mean autocorrelation of all windows; blocks and trials follow by the
//! method of moments from the mean squares (S. R. Searle, G. Casella, C. E. McCulloch, Variance
//! Components, Wiley 1992, chapter 4). A negative estimate counts as 0. The length of a window that gives
//! the narrowest interval in a given time is that of Kalibera and Jones, "Rigorous benchmarking in
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
    // `sd_log` is that of the difference of two trials.
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
/// `noise` that of a trial, both of logs. Exact for normal noise and Student's interval, which is close to
/// that of the signed-rank test. `None` for fewer than two blocks or a noise of 0.
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
mod tests;
