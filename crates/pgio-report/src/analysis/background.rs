//! What background work did beside each condition: its rate over the trials that count.
//!
//! It is not judged. It tells whether a neighbor was as loud in every trial.

use std::collections::BTreeMap;

use benchmath::summary::mean;
use serde::{Deserialize, Serialize};

use super::pairing::ByCondition;
use pgio_results::model::BackgroundUse;
use pgio_results::store::Manifest;

/// One background workload beside one condition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackgroundRate {
    pub condition: String,
    pub name: String,
    /// The target that it worked on.
    pub target: String,
    /// The standby of that target, if it worked on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<String>,
    pub kind: String,
    /// The name of its rate.
    pub metric: String,
    pub mean: Option<f64>,
    pub lowest: Option<f64>,
    pub highest: Option<f64>,
    pub trials: usize,
}

pub(super) fn all(manifest: &Manifest, by_condition: &ByCondition<'_>) -> Vec<BackgroundRate> {
    let mut all = Vec::new();
    for condition in &manifest.conditions {
        let Some(trials) = by_condition.get(condition.name.as_str()) else { continue };
        let mut found: BTreeMap<&String, Vec<&BackgroundUse>> = BTreeMap::new();
        for (name, used) in trials.valid().flat_map(|trial| &trial.background) {
            found.entry(name).or_default().push(used);
        }
        all.extend(found.into_iter().map(|(name, used)| {
            let values: Vec<f64> = used.iter().filter_map(|u| u.value).collect();
            BackgroundRate {
                condition: condition.name.clone(),
                name: name.clone(),
                target: used[0].target.clone(),
                standby: used[0].standby.clone(),
                kind: used[0].kind.clone(),
                metric: used[0].metric.clone(),
                mean: mean(&values),
                lowest: values.iter().copied().reduce(f64::min),
                highest: values.iter().copied().reduce(f64::max),
                trials: used.len(),
            }
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyze;
    use crate::analysis::test_support::demo;

    #[test]
    fn the_rate_is_shown_with_its_range_beside_the_condition_that_had_it() {
        let mut stored = demo();
        let noisy = stored.manifest.conditions[2].name.clone();
        let is_used = |t: &&mut pgio_results::Trial| t.is_of(&noisy);
        for (n, trial) in stored.trials.iter_mut().filter(is_used).enumerate() {
            let value = Some(if n == 0 { 100.0 } else { 200.0 });
            let used = BackgroundUse {
                target: "n1".to_owned(),
                kind: "slob".to_owned(),
                metric: "block_visits_per_second".to_owned(),
                value,
                ..BackgroundUse::default()
            };
            trial.background.insert("load".to_owned(), used);
        }
        let found = analyze(&stored).background;
        assert_eq!(found.len(), 1, "only beside one condition: {found:?}");
        let load = &found[0];
        assert_eq!((&load.condition, load.name.as_str()), (&noisy, "load"));
        assert_eq!((load.lowest, load.highest), (Some(100.0), Some(200.0)));
        assert!(load.mean.unwrap() > 100.0 && load.trials > 1);
    }
}
