//! Warns of a spread that the design cannot see: conditions that lie on different servers or devices whose
//! layout was drawn once.
//!
//! Where the files of a cluster lie on their device, how a file system has aged, and which cells of a
//! flash device hold them is then constant over all blocks. It is part of the effect, and more blocks do
//! not average it out, so the interval is too narrow. `benchmath::components` computes by how much.

use std::collections::BTreeSet;

use benchmath::components::coverage;
use benchmath::spread::Spread;
use benchmath::summary::mean;

use super::comparison::Comparison;
use super::condition::Finding;
use super::pairing::{ByCondition, ConditionTrials, value};
use super::variance::reloads;
use pgio_results::store::Manifest;
use pgio_results::telemetry::Storage;
use pgio_results::{CheckVerdict, Trial};

/// The spread between layouts for which the coverage is shown.
const EXAMPLE_SPREAD: f64 = 0.01;
/// The coverage is shown if it is below this.
const MAX_SHOWN_COVERAGE: f64 = 0.94;

const REMEDY: &str = "put reset = \"reload\" under [experiment], so that every trial has a layout of its \
                      own, or repeat the whole experiment on newly created servers and judge the runs with \
                      `pgio report A1 A2 A3 --against B1 B2 B3`";

/// One finding for each condition that lies elsewhere than the baseline.
pub(super) fn findings(
    manifest: &Manifest,
    trials: &ByCondition<'_>,
    comparisons: &[Comparison],
    spread: Option<&Spread>,
) -> Vec<Finding> {
    if reloads(manifest) {
        return Vec::new();
    }
    let first = |name: &str| trials.get(name)?.valid().next().map(DataLocation::new);
    let Some(baseline) = first(&manifest.baseline) else { return Vec::new() };
    let elsewhere = manifest.conditions.iter().filter_map(|info| {
        let how = first(&info.name)?.differs(&baseline)?;
        let primary = comparisons.iter().find(|c| c.primary && c.condition == info.name);
        let example = primary.zip(spread).and_then(|(c, spread)| coverage_example(c.blocks, spread));
        Some(Finding {
            id: "layout".to_owned(),
            verdict: CheckVerdict::Warning,
            condition: Some(info.name.clone()),
            trial: None,
            message: format!(
                "`{}` {how} `{}`, and their layouts are the same in all blocks: no interval contains the \
                 spread between layouts{}",
                info.name,
                manifest.baseline,
                example.unwrap_or_default()
            ),
            remedy: REMEDY.to_owned(),
        })
    });
    elsewhere.collect()
}

fn coverage_example(blocks: usize, spread: &Spread) -> Option<String> {
    let noise = spread.sd_log / std::f64::consts::SQRT_2;
    let covered =
        coverage(EXAMPLE_SPREAD, noise, blocks).filter(|covered| *covered < MAX_SHOWN_COVERAGE)?;
    Some(format!(
        "; if layouts differ by 1 %, an interval called 95 % holds the truth in {:.0} % of experiments",
        covered * 100.0
    ))
}

/// Where a trial's data lie.
struct DataLocation<'a> {
    server: &'a str,
    /// Host and device of each directory with data, if telemetry found them.
    devices: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> DataLocation<'a> {
    fn new(trial: &'a Trial) -> DataLocation<'a> {
        let storage = trial.telemetry.as_ref().map_or(&[][..], |t| &t.storage);
        let devices = |s: &'a Storage| {
            let tops = s.stacks().filter_map(|stack| stack.first());
            tops.map(|device| (s.host.as_str(), device.name.as_str()))
        };
        let devices = storage.iter().flat_map(devices).collect();
        DataLocation { server: &trial.server.target, devices }
    }

    fn differs(&self, other: &DataLocation<'_>) -> Option<String> {
        if self.server != other.server {
            return Some("runs on another server than".to_owned());
        }
        let known = !self.devices.is_empty() && !other.devices.is_empty();
        let names = |place: &DataLocation<'_>| {
            place.devices.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
        };
        (known && self.devices != other.devices)
            .then(|| format!("lies on other devices ({}, not {}) than", names(self), names(other)))
    }
}

// Notes a large share of full-page images in the baseline's WAL, if the primary metric depends on WAL.
//
// After a checkpoint, the first change of each page logs the whole page. With a CHECKPOINT before each
// window, all windows are at the start of a cycle, which has most images. Effects on WAL are then larger
// than over a whole cycle.

/// The note appears from this share on.
const MIN_SHARE: f64 = 0.5;

/// Parts of the names of metrics that depend on WAL.
const WAL_BOUND: &[&str] = &["commit", "transaction", "update", "wal_"];

pub(super) fn note(manifest: &Manifest, baseline: Option<&ConditionTrials<'_>>) -> Option<String> {
    let primary = &manifest.primary_metric;
    // Windows of whole cycles have the long-run share of images.
    if manifest.rules.checkpoint == "spread" || !WAL_BOUND.iter().any(|part| primary.contains(part))
    {
        return None;
    }
    let shares: Vec<f64> =
        baseline?.valid().filter_map(|trial| value(trial, "wal_fpi_share")).collect();
    let share = mean(&shares).filter(|share| *share >= MIN_SHARE)?;
    Some(format!(
        "up to {:.0} % of the baseline's WAL is full-page images (an estimate by whole blocks), which are \
         most frequent after a checkpoint: effects on WAL overstate the long-run cost; checkpoint = \"spread\" measures \
         whole checkpoint cycles",
        share * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use crate::test_support::demo;
    use pgio_results::store::StoredExperiment;
    use pgio_results::telemetry::{Device, Telemetry};

    fn found(stored: &StoredExperiment) -> Vec<(Option<String>, String)> {
        let all = analyze(stored).checks.into_iter().filter(|f| f.id == "layout");
        all.map(|f| (f.condition, f.message)).collect()
    }

    fn changed(condition: &str, change: impl Fn(&mut Trial)) -> StoredExperiment {
        let mut stored = demo();
        let is_its = |t: &&mut Trial| t.is_of(condition);
        stored.trials.iter_mut().filter(is_its).for_each(change);
        stored
    }

    fn on_device(trial: &mut Trial, name: &str) {
        let device = Device { name: name.to_owned(), ..Device::default() };
        let storage =
            Storage { role: "data".to_owned(), devices: vec![device], ..Storage::default() };
        trial.telemetry = Some(Telemetry { storage: vec![storage], ..Telemetry::default() });
    }

    #[test]
    fn conditions_on_one_server_are_not_accused() {
        assert_eq!(found(&demo()), []);
        let mut stored = demo();
        stored.trials.iter_mut().for_each(|t| on_device(t, "vda"));
        assert_eq!(found(&stored), []);
    }

    #[test]
    fn another_server_that_was_laid_out_once_is_reported_with_its_cost() {
        let mut stored = changed("on", |t| t.server.target = "host=db2".to_owned());
        let all = found(&stored);
        assert_eq!(all.len(), 1, "{all:?}");
        let (condition, message) = &all[0];
        assert_eq!(condition.as_deref(), Some("on"));
        assert!(message.starts_with("`on` runs on another server than `local`"), "{message}");
        assert!(message.contains("holds the truth in 8"), "{message}");
        stored.manifest.rules.reset = "reload".to_owned();
        assert_eq!(found(&stored), [], "each trial has a layout of its own");
    }

    #[test]
    fn a_condition_on_other_devices_is_reported_with_them() {
        let mut stored = changed("on", |t| on_device(t, "loop7"));
        assert_eq!(found(&stored), [], "where the others lie is unknown");
        for trial in &mut stored.trials {
            if trial.telemetry.is_none() {
                on_device(trial, "vda");
            }
        }
        let all = found(&stored);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].1.contains("`on` lies on other devices (loop7, not vda)"), "{}", all[0].1);
    }

    use crate::test_support::set;

    #[test]
    fn a_large_share_is_noted_where_the_wal_is_judged() {
        let note_at = |share: f64, primary: &str, mode: &str| {
            let mut stored = demo();
            stored.manifest.primary_metric = primary.to_owned();
            stored.manifest.rules.checkpoint = mode.to_owned();
            stored.trials.iter_mut().for_each(|t| set(t, "wal_fpi_share", share));
            analyze(&stored).notes.into_iter().find(|n| n.contains("full-page images"))
        };
        let note = note_at(0.85, "commits_per_second", "before").unwrap();
        assert!(note.starts_with("up to 85 % of the baseline's WAL is full-page images"), "{note}");
        assert!(note_at(0.85, "commits_per_second", "").is_some(), "an earlier record");
        assert_eq!(note_at(0.3, "commits_per_second", "before"), None);
        assert_eq!(note_at(0.85, "commits_per_second", "spread"), None);
        assert_eq!(note_at(0.85, "block_visits_per_second", "before"), None);
    }
}
