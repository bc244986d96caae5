//! Notes a large share of full-page images in the baseline's WAL, if the primary metric depends on WAL.
//!
//! After a checkpoint, the first change of each page logs the whole page. With a CHECKPOINT before each
//! window, all windows are at the start of a cycle, which has most images. Effects on WAL are then larger
//! than over a whole cycle.

use benchmath::summary::mean;

use super::pairing::{ConditionTrials, value};
use pgio_results::store::Manifest;

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
    use crate::analysis::analyze;
    use crate::analysis::test_support::{demo, set};

    #[test]
    fn a_large_share_is_noted_where_the_wal_is_judged() {
        let of = |share: f64, primary: &str, mode: &str| {
            let mut stored = demo();
            stored.manifest.primary_metric = primary.to_owned();
            stored.manifest.rules.checkpoint = mode.to_owned();
            stored.trials.iter_mut().for_each(|t| set(t, "wal_fpi_share", share));
            analyze(&stored).notes.into_iter().find(|n| n.contains("full-page images"))
        };
        let note = of(0.85, "commits_per_second", "before").unwrap();
        assert!(note.starts_with("up to 85 % of the baseline's WAL is full-page images"), "{note}");
        assert!(of(0.85, "commits_per_second", "").is_some(), "an earlier record");
        assert_eq!(of(0.3, "commits_per_second", "before"), None);
        assert_eq!(of(0.85, "commits_per_second", "spread"), None);
        assert_eq!(of(0.85, "block_visits_per_second", "before"), None);
    }
}
