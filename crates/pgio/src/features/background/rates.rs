//! What background work did beside each condition: its rate over the trials that count.
//!
//! It is not judged. It tells whether a neighbor was as loud in every trial.

use std::collections::BTreeMap;

use benchmath::summary::mean;
use pgio_report::report::Section;
use pgio_report::report::format::{self, NONE};
use pgio_report::report::html::table;
use pgio_report::report::table::{Table, columns};
use pgio_results::Trial;
use pgio_results::model::CompanionUse;
use pgio_results::store::{Manifest, StoredExperiment};
use pgio_verdict::{Analysis, pairing};
use serde::{Deserialize, Serialize};

const TITLE: &str = "Background work";

/// Its field in the schema of an analysis.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct Field {
    /// Background work by condition; empty without any.
    #[schemars(default, skip_serializing_if = "Vec::is_empty")]
    background: Vec<BackgroundRate>,
}

/// One background workload beside one condition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct BackgroundRate {
    condition: String,
    name: String,
    /// The target that it worked on.
    target: String,
    /// The standby of that target, if it worked on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    standby: Option<String>,
    kind: String,
    /// The name of its rate.
    metric: String,
    mean: Option<f64>,
    lowest: Option<f64>,
    highest: Option<f64>,
    trials: usize,
}

pub(super) fn section(stored: &StoredExperiment, _: &Analysis) -> Option<Section> {
    let all = rates(&stored.manifest, &stored.trials);
    if all.is_empty() {
        return None;
    }
    let table = shown(&all);
    Some(Section {
        explains: true,
        body: table::render(&table, TITLE),
        tables: vec![table],
        ..Section::new(super::NAME, TITLE, &all)
    })
}

fn rates(manifest: &Manifest, trials: &[Trial]) -> Vec<BackgroundRate> {
    let by_condition = pairing::by_condition_at(manifest, trials, manifest.middle());
    let mut all = Vec::new();
    for condition in &manifest.conditions {
        let Some(trials) = by_condition.get(condition.name.as_str()) else { continue };
        let mut found: BTreeMap<&String, Vec<&CompanionUse>> = BTreeMap::new();
        for (name, used) in trials.valid().flat_map(|trial| &trial.companions) {
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

/// What ran beside which condition, and how much it did.
fn shown(all: &[BackgroundRate]) -> Table {
    let row = |n: &BackgroundRate| {
        let shown = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), format::number);
        vec![
            n.condition.clone(),
            n.name.clone(),
            match &n.standby {
                Some(standby) => format!("{}, {standby}", n.target),
                None => n.target.clone(),
            },
            n.kind.clone(),
            format::metric_name(&n.metric),
            shown(n.mean),
            format!("{} … {}", shown(n.lowest), shown(n.highest)),
            n.trials.to_string(),
        ]
    };
    Table {
        title: TITLE.to_owned(),
        columns: columns("condition | beside it | on | workload | metric | > mean | > range | > trials"),
        rows: all.iter().map(row).collect(),
        notes: vec![
            "Background work is not judged; a wide range means that the neighbor was not equally loud in all trials."
                .to_owned(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_report::directories::LoadedReport;
    use pgio_report::report::{self, text};
    use pgio_verdict::test_support::demo;

    #[test]
    fn the_rate_is_shown_with_its_range_beside_the_condition_that_had_it() {
        let mut stored = demo();
        let noisy = stored.manifest.conditions[2].name.clone();
        let is_used = |t: &&mut Trial| t.is_of(&noisy);
        for (n, trial) in stored.trials.iter_mut().filter(is_used).enumerate() {
            let value = Some(if n == 0 { 100.0 } else { 200.0 });
            let used = CompanionUse {
                target: "n1".to_owned(),
                kind: "slob".to_owned(),
                metric: "block_visits_per_second".to_owned(),
                value,
                ..CompanionUse::default()
            };
            trial.companions.insert("load".to_owned(), used);
        }
        let found = rates(&stored.manifest, &stored.trials);
        assert_eq!(found.len(), 1, "only beside one condition: {found:?}");
        let load = &found[0];
        assert_eq!((&load.condition, load.name.as_str()), (&noisy, "load"));
        assert_eq!((load.lowest, load.highest), (Some(100.0), Some(200.0)));
        assert!(load.mean.unwrap() > 100.0 && load.trials > 1);
        let loaded = LoadedReport::new(std::path::Path::new("x"), stored, &[section]);
        let json = serde_json::to_value(&loaded.analysis).unwrap();
        assert_eq!(json["background"][0]["name"], "load");
        let tables = report::document(loaded.report()).tables;
        assert_eq!(tables.last().unwrap().title, TITLE, "after what explains the effects");
        assert!(text::render(&report::document(loaded.report())).contains("not judged"));
    }

    #[test]
    fn a_neighbor_shows_its_server_and_its_rate() {
        assert!(rates(&demo().manifest, &demo().trials).is_empty());
        let table = shown(&[BackgroundRate {
            condition: "noisy".to_owned(),
            name: "load".to_owned(),
            target: "n1".to_owned(),
            metric: "commits_per_second".to_owned(),
            mean: Some(150.0),
            lowest: Some(100.0),
            trials: 6,
            ..BackgroundRate::default()
        }]);
        assert_eq!(table.rows[0].len(), table.columns.len());
        assert_eq!(table.rows[0][2], "n1");
        assert_eq!(table.rows[0][4], "commits/s");
        assert!(table.rows[0][6].starts_with("100") && table.rows[0][6].ends_with(NONE));
    }
}
