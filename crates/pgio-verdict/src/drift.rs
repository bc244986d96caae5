//! Whether the primary metric rises or falls over the blocks: under all conditions alike, or under one
//! condition against the baseline.
//!
//! The first cancels in the ratios, because conditions are compared within a block, but absolute values
//! then depend on when they were measured. The second does not cancel: the effect itself depends on how
//! long the experiment ran. `benchmath::drift` has the test, and only a relevant change is reported.

use std::collections::{BTreeMap, BTreeSet};

use benchmath::{drift, holm};
use serde::{Deserialize, Serialize};

use super::condition::Finding;
use super::pairing::{ByCondition, PairedTrials};
use pgio_results::CheckVerdict;
use pgio_results::store::Manifest;
use pgio_results::thresholds::{TREND, TREND_LEVEL};

const ID: &str = "trial-trend";

/// A test of the primary metric for a trend over the blocks (Mann-Kendall).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Drift {
    /// The condition whose ratio to the baseline was tested; null for the values of all conditions.
    pub condition: Option<String>,
    pub blocks: usize,
    /// Kendall's tau: 1 if every later value is larger, -1 if every later value is smaller.
    pub tau: f64,
    /// The change from the first block to the last: 0.1 is a rise by 10 %.
    pub change: f64,
    /// Two-sided, of this test alone.
    pub p: f64,
    /// Adjusted for the number of conditions by Holm's method.
    pub p_adjusted: f64,
}

/// The test of all conditions together, then one for each condition; those that have too few blocks are
/// missing.
pub(super) fn all(manifest: &Manifest, trials: &ByCondition<'_>) -> Vec<Drift> {
    let metric = manifest.primary_metric.as_str();
    let values: Vec<Vec<(u32, f64)>> =
        trials.values().map(|condition| logs(condition.values_by_block(metric))).collect();
    let mut found: Vec<Drift> = tested(None, &values).into_iter().collect();
    let Some(baseline) = trials.get(manifest.baseline.as_str()) else { return found };
    let others = manifest.conditions.iter().filter(|c| c.name != manifest.baseline);
    let ratios = others.filter_map(|info| {
        let pairs = PairedTrials::new(trials.get(info.name.as_str())?, baseline).values(metric);
        let ratios = pairs.condition.iter().zip(&pairs.baseline).map(|(own, other)| own / other);
        tested(Some(&info.name), &[logs(pairs.blocks.iter().copied().zip(ratios))])
    });
    let mut ratios: Vec<Drift> = ratios.collect();
    let adjusted = holm::adjust(&ratios.iter().map(|drift| drift.p).collect::<Vec<_>>());
    for (drift, adjusted) in ratios.iter_mut().zip(adjusted) {
        drift.p_adjusted = adjusted;
    }
    found.extend(ratios);
    found
}

fn logs(values: impl Iterator<Item = (u32, f64)>) -> Vec<(u32, f64)> {
    let logs = values.map(|(block, value)| (block, value.ln()));
    logs.filter(|(_, log)| log.is_finite()).collect()
}

fn tested(condition: Option<&str>, series: &[Vec<(u32, f64)>]) -> Option<Drift> {
    let blocks: BTreeSet<u32> = series.iter().flatten().map(|(block, _)| *block).collect();
    let aligned = |values: &Vec<(u32, f64)>| -> Vec<Option<f64>> {
        let values: BTreeMap<u32, f64> = values.iter().copied().collect();
        blocks.iter().map(|block| values.get(block).copied()).collect()
    };
    let found = drift::test(&series.iter().map(aligned).collect::<Vec<_>>())?;
    Some(Drift {
        condition: condition.map(str::to_owned),
        blocks: found.blocks,
        tau: found.tau,
        change: (found.slope * (found.blocks - 1) as f64).exp_m1(),
        p: found.p,
        p_adjusted: found.p,
    })
}

/// The trends that are significant and relevant.
pub(super) fn findings(manifest: &Manifest, drifts: &[Drift]) -> Vec<Finding> {
    let margin = manifest.rules.matters.unwrap_or(TREND.0).min(TREND.0);
    let matters = |d: &&Drift| d.p_adjusted <= TREND_LEVEL && d.change.abs() >= margin;
    drifts.iter().filter(matters).map(|drift| finding(manifest, drift)).collect()
}

fn finding(manifest: &Manifest, drift: &Drift) -> Finding {
    let verb = if drift.change > 0.0 { "rose" } else { "fell" };
    let moved = format!(
        "{verb} by {:.0} % from the first block to the last (p = {:.4}, {} blocks)",
        drift.change.abs() * 100.0,
        drift.p_adjusted,
        drift.blocks
    );
    let metric = &manifest.primary_metric;
    let (message, remedy) = match &drift.condition {
        None => (
            format!(
                "{metric} of all conditions {moved}: ratios compare trials of one block and hold, absolute \
                 values do not"
            ),
            "lengthen the warm-up, and look for what changes with time: growing data, a filling cache, a \
             device's burst credit",
        ),
        Some(name) => (
            format!(
                "{metric} of `{name}` relative to `{}` {moved}: the effect depends on how long the \
                 experiment has run, so no single ratio describes it",
                manifest.baseline
            ),
            "use reset = \"reload\" if the data change, or run until the effect is level",
        ),
    };
    Finding {
        id: ID.to_owned(),
        verdict: CheckVerdict::Warning,
        condition: drift.condition.clone(),
        trial: None,
        message,
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::demo;
    use crate::{Analysis, analyze};

    /// The demo with its rates multiplied, by block (from 0) and condition.
    fn drifting(factor: impl Fn(u32, &str) -> f64) -> Analysis {
        let mut stored = demo();
        for trial in &mut stored.trials {
            let place = trial.place.as_ref().unwrap();
            let factor = factor(place.block - 1, &place.condition);
            let rate = trial.metrics.get_mut("commits_per_second").unwrap();
            rate.value = rate.value.map(|value| value * factor);
        }
        analyze(&stored)
    }

    fn found(analysis: &Analysis) -> Vec<(Option<&str>, &str)> {
        let ours = analysis.checks.iter().filter(|f| f.id == ID);
        ours.map(|f| (f.condition.as_deref(), f.message.as_str())).collect()
    }

    #[test]
    fn a_level_experiment_has_no_trend_and_stores_its_tests() {
        let analysis = drifting(|_, _| 1.0);
        assert_eq!(found(&analysis), []);
        let conditions: Vec<Option<&str>> =
            analysis.drifts.iter().map(|d| d.condition.as_deref()).collect();
        assert_eq!(conditions, [None, Some("local-aa"), Some("remote_write"), Some("on")]);
        assert!(analysis.drifts.iter().all(|d| d.blocks == 6 && d.p_adjusted >= d.p));
    }

    #[test]
    fn a_machine_that_slows_down_is_reported_once_and_its_ratios_hold() {
        let analysis = drifting(|block, _| 0.93f64.powi(block.cast_signed()));
        let found = found(&analysis);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, None);
        let start = "commits_per_second of all conditions fell by 29 %";
        assert!(found[0].1.starts_with(start) && found[0].1.contains("hold"), "{}", found[0].1);
    }

    #[test]
    fn an_effect_that_grows_with_time_is_reported_for_its_condition() {
        let analysis = drifting(
            |block, name| if name == "on" { 0.9f64.powi(block.cast_signed()) } else { 1.0 },
        );
        let found = found(&analysis);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, Some("on"));
        assert!(found[0].1.contains("relative to `local` fell by 4"), "{}", found[0].1);
    }

    #[test]
    fn the_change_of_many_blocks_is_that_from_the_first_to_the_last() {
        let series: Vec<(u32, f64)> = (1..=1000).map(|n| (n, f64::from(n) * -0.001)).collect();
        let found = tested(None, &[series.clone(), series[4..].to_vec()]).unwrap();
        assert_eq!((found.blocks, found.tau), (1000, -1.0));
        assert!((found.change - f64::exp_m1(-0.999)).abs() < 1e-9, "{}", found.change);
    }

    #[test]
    fn changes_too_small_to_matter_are_not_reported_unless_the_margin_is_smaller() {
        let drift = |change: f64| Drift {
            condition: None,
            blocks: 6,
            tau: 1.0,
            change,
            p: 0.003,
            p_adjusted: 0.003,
        };
        let mut manifest = demo().manifest;
        assert_eq!(findings(&manifest, &[drift(0.04)]), []);
        assert_eq!(findings(&manifest, &[drift(-0.06)]).len(), 1);
        manifest.rules.matters = Some(0.02);
        assert_eq!(findings(&manifest, &[drift(0.04)]).len(), 1);
    }
}
