//! Where the noise of the primary metric arises: between blocks, between the trials of a block, or inside
//! their windows; and whether other windows would be worth their time.
//!
//! `benchmath::components` divides the noise. Only rates that the slices of a window count can be
//! divided. What is constant for a condition is in none of the parts; `layout` warns of it.

use benchmath::components::{self, Components, Observation};
use benchmath::steady::scatter;
use benchmath::summary::mean;
use serde::{Deserialize, Serialize};

use super::pairing::{ByCondition, ConditionTrials};
use super::{pilot, steady};
use pgio_results::change::Subject;
use pgio_results::store::{Manifest, StoredExperiment};

/// With fewer degrees of freedom, the estimated noise is off by more than half too often.
const MIN_FREEDOM: usize = 5;
/// Other windows are advised only if they take at most this share of the time to the same interval.
pub(super) const WORTHWHILE: f64 = 0.8;
/// Shorter windows are never advised: nothing could be said about trends inside them.
pub(super) const SHORTEST_WINDOW: f64 = 10.0;

/// Rates that slices count.
const COUNTED: &[&str] = &[
    "block_visits_per_second",
    "updates_per_second",
    "update_calls_per_second",
    "commits_per_second",
    "transactions_per_second",
    "messages_per_minute",
];

/// The noise of the primary metric, by where it arises. Standard deviations are relative: 0.02 is 2 %.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Variance {
    /// Between blocks, common to all conditions; it cancels in ratios.
    pub between_blocks: f64,
    /// Between trials of one block, beyond the noise inside their windows.
    pub between_trials: f64,
    /// Deviation of a window's mean, from the noise inside the window.
    pub inside_windows: f64,
    /// The share of a trial's variance that lies between trials.
    pub share_between_trials: f64,
    /// Degrees of freedom of the trials.
    pub freedom: usize,
    /// What differs between trials beside chance.
    pub renewal: Renewal,
    /// The window in seconds that reaches the same interval in the least time, if that is worthwhile.
    pub best_window_seconds: Option<f64>,
    /// The time that it takes, as a share of the time with the present windows.
    pub best_window_time: Option<f64>,
}

/// What each trial began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Renewal {
    /// The data as the last trial left them: all trials have the same layout.
    SameData,
    /// The same data and, in at least one condition, emptied caches.
    ColdCache,
    /// Newly loaded data: layouts are part of the noise between trials.
    NewData,
}

pub(super) fn estimate(
    stored: &StoredExperiment,
    by_condition: &ByCondition<'_>,
) -> Option<Variance> {
    let manifest = &stored.manifest;
    let primary = manifest.primary_metric.as_str();
    if !COUNTED.contains(&primary) {
        return None;
    }
    let conditions: Vec<Vec<Observation>> =
        by_condition.values().map(|condition| observations(condition, primary)).collect();
    let found = components::estimate(&conditions).filter(|c| c.freedom >= MIN_FREEDOM)?;
    let best = best_window(stored, by_condition, &found);
    Some(Variance {
        between_blocks: found.block.sqrt(),
        between_trials: found.trial.sqrt(),
        inside_windows: found.window.sqrt(),
        share_between_trials: found.share_between_trials(),
        freedom: found.freedom,
        renewal: renewal(manifest),
        best_window_seconds: best.map(|b| b.0),
        best_window_time: best.map(|b| b.1),
    })
}

fn observations(condition: &ConditionTrials<'_>, primary: &str) -> Vec<Observation> {
    let values: Vec<(u32, f64)> = condition.values_by_block(primary).collect();
    let observation = |(block, trial): (u32, &pgio_results::Trial)| {
        let (_, value) = *values.iter().find(|(b, v)| *b == block && *v > 0.0)?;
        let window = scatter(&steady::rates(trial, primary)?)?;
        Some(Observation { block, log: value.ln(), window })
    };
    condition.by_block().filter_map(observation).collect()
}

/// The window's seconds and its share of the time.
fn best_window(
    stored: &StoredExperiment,
    by_condition: &ByCondition<'_>,
    found: &Components,
) -> Option<(f64, f64)> {
    let windows: Vec<f64> =
        by_condition.values().flat_map(ConditionTrials::valid).map(|t| t.window.seconds).collect();
    let window = mean(&windows)?;
    let outside = pilot::seconds_between_starts(stored)? - window;
    let best = found.best_window(window, outside, SHORTEST_WINDOW)?;
    (best.time <= WORTHWHILE).then_some((best.seconds, best.time))
}

/// Whether each trial begins on newly loaded data.
pub(super) fn reloads(manifest: &Manifest) -> bool {
    matches!(manifest.rules.reset.as_str(), "reload" | "recreate")
}

fn renewal(manifest: &Manifest) -> Renewal {
    let mut changes = manifest.conditions.iter().flat_map(|c| &c.changes);
    if reloads(manifest) {
        Renewal::NewData
    } else if changes.any(|c| c.subject == Subject::Cache) {
        Renewal::ColdCache
    } else {
        Renewal::SameData
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use crate::test_support::demo;
    use benchmath::rng::SplitMix64;
    use pgio_results::model::Slice;

    /// The demo with windows of 30 s whose seconds scatter by this share, and trials that start every
    /// 40 s.
    fn timed(scatter: f64, reset: &str) -> StoredExperiment {
        let mut rng = SplitMix64::new(3);
        let mut stored = demo();
        stored.manifest.rules.reset = reset.to_owned();
        for (n, trial) in stored.trials.iter_mut().enumerate() {
            let rate = trial.metrics["commits_per_second"].value.unwrap();
            let mut slice = |second: u32| {
                let factor = 1.0 + scatter * (2.0 * rng.next_f64() - 1.0);
                let commits = (rate * factor) as u64;
                Slice { at: f64::from(second), seconds: 1.0, commits, ..Slice::default() }
            };
            trial.timeline = (1..=31).map(&mut slice).collect();
            trial.window.seconds = 30.0;
            let seconds = 40 * n;
            trial.started_at = format!(
                "2026-01-01T{:02}:{:02}:{:02}Z",
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60
            );
        }
        stored
    }

    #[test]
    fn noise_between_trials_asks_for_blocks_and_shorter_windows() {
        let found = analyze(&timed(0.02, "reload")).variance.unwrap();
        // The demo's trials scatter by 2 to 3 %.
        assert!((0.015..0.035).contains(&found.between_trials), "{found:?}");
        assert!(found.share_between_trials > 0.95, "{found:?}");
        assert_eq!((found.renewal, found.freedom), (Renewal::NewData, 15));
        assert_eq!(found.best_window_seconds, Some(SHORTEST_WINDOW));
        assert!(found.best_window_time.is_some_and(|time| time < 0.6), "{found:?}");
    }

    #[test]
    fn noise_inside_windows_is_distinguished() {
        let found = analyze(&timed(0.3, "checkpoint")).variance.unwrap();
        // Thirty seconds that scatter by 17 % each.
        assert!((0.02..0.045).contains(&found.inside_windows), "{found:?}");
        assert!(found.share_between_trials < 0.7, "{found:?}");
        assert_eq!(found.renewal, Renewal::SameData);
    }

    #[test]
    fn there_is_no_variance_of_a_metric_that_slices_do_not_count() {
        assert_eq!(analyze(&demo()).variance, None, "no slices");
        let mut stored = timed(0.02, "checkpoint");
        stored.manifest.primary_metric = "commit_latency_mean".to_owned();
        assert_eq!(analyze(&stored).variance, None);
    }

    #[test]
    fn a_cold_cache_is_named() {
        let mut stored = timed(0.02, "checkpoint");
        let cold = pgio_results::change::Change::new(None, Subject::Cache, "cache", "cold");
        stored.manifest.conditions[2].changes.push(cold);
        assert_eq!(analyze(&stored).variance.unwrap().renewal, Renewal::ColdCache);
    }
}
