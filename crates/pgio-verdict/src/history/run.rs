//! One run in a history: what is left of a stored experiment when many are read.
//!
//! The values are as in the report: the typical trial of each condition, at the middle point of a sweep,
//! over the trials that count. The results database stores the same record, so that a history from
//! directories and one from the database agree.

use std::collections::{BTreeMap, BTreeSet};

use pgio_results::change::Change;
use pgio_results::metrics::{self, DeclaredMetric, MetricDef};
use pgio_results::store::StoredExperiment;
use serde::{Deserialize, Serialize};

use super::super::across::reasons;
use super::super::{cross, pairing, totals};

/// One execution of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub run_id: String,
    pub experiment: String,
    /// RFC 3339.
    pub created_at: String,
    pub baseline: String,
    pub primary_metric: String,
    /// The metrics that the experiment's command prints.
    pub metrics: Vec<DeclaredMetric>,
    /// The workload and its data, by name; runs that differ here have no common history.
    pub work: BTreeMap<String, String>,
    /// The window, the baseline's server and environment, and the version of pgio, by name.
    pub facts: BTreeMap<String, String>,
    /// All trials, also those that do not count. A copy of a run that was continued has fewer.
    pub trials: usize,
    /// In the manifest's order.
    pub conditions: Vec<RunCondition>,
}

/// A condition of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunCondition {
    pub name: String,
    /// As text, such as `synchronous_commit = local`.
    pub treatments: String,
    /// Trials that count.
    pub trials: usize,
    /// By metric, in base units.
    pub values: BTreeMap<String, f64>,
    /// Metrics of which only a lower bound is known: the window's end cut off operations.
    #[serde(default)]
    pub bounded: BTreeSet<String>,
}

impl Run {
    /// Summarizes a stored experiment; `None` without any trial, because nothing ran.
    pub fn from_stored(stored: &StoredExperiment) -> Option<Run> {
        let judged = cross::judged(stored);
        let manifest = &judged.manifest;
        let run_id = judged.trials.first()?.run_id.clone();
        let by_condition = pairing::by_condition(manifest, &judged.trials);
        let conditions = manifest.conditions.iter().map(|info| {
            let condition = &by_condition[info.name.as_str()];
            let (mut values, mut bounded) = (BTreeMap::new(), BTreeSet::new());
            for (name, metric) in totals::values(condition, manifest) {
                match metric.value.filter(|v| v.is_finite()) {
                    // A lower bound is not a value.
                    Some(_) if metric.at_least => {
                        bounded.insert(name);
                    }
                    Some(value) => {
                        values.insert(name, value);
                    }
                    None => {}
                }
            }
            RunCondition {
                name: info.name.clone(),
                treatments: info
                    .changes
                    .iter()
                    .map(Change::to_string)
                    .collect::<Vec<_>>()
                    .join("; "),
                trials: condition.valid().count(),
                values,
                bounded,
            }
        });
        let (mut work, mut facts) = (BTreeMap::new(), BTreeMap::new());
        if let Some(trial) = reasons::first(&judged) {
            work.extend(reasons::work(trial));
            facts.extend(reasons::data_seed(trial));
            facts.extend(reasons::window(trial));
        }
        facts.extend(reasons::server(&judged));
        facts.extend(reasons::environment(&judged));
        facts.insert("pgio".to_owned(), manifest.pgio.clone());
        facts.insert("blocks".to_owned(), manifest.blocks.to_string());
        Some(Run {
            run_id,
            experiment: manifest.name.clone(),
            created_at: manifest.created_at.clone(),
            baseline: manifest.baseline.clone(),
            primary_metric: manifest.primary_metric.clone(),
            metrics: manifest.metrics.clone(),
            work,
            facts,
            trials: stored.trials.len(),
            conditions: conditions.collect(),
        })
    }

    pub fn definition(&self, metric: &str) -> Option<MetricDef<'_>> {
        metrics::find(&self.metrics, metric)
    }

    pub fn condition(&self, name: &str) -> Option<&RunCondition> {
        self.conditions.iter().find(|c| c.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{demo, experiment};
    use pgio_results::Trial;

    #[test]
    fn a_run_has_the_values_of_its_report() {
        let stored = demo();
        let run = Run::from_stored(&stored).unwrap();
        let analysis = crate::analyze(&stored);
        assert_eq!(run.conditions.len(), 4);
        for condition in &run.conditions {
            let reported = analysis.condition(&condition.name).unwrap();
            assert_eq!(condition.trials, 6);
            assert_eq!(
                reported.metrics["commits_per_second"].value,
                Some(condition.values["commits_per_second"])
            );
        }
        assert_eq!(run.work["workload"], "slob");
        assert_eq!(run.facts["server version"], "15.14");
        assert_eq!(run.run_id, stored.trials[0].run_id);
        assert_eq!(run.trials, stored.trials.len());
        assert_eq!(Run::from_stored(&experiment(&["local"], Vec::new())), None);
    }

    /// Conditions may run on servers of different versions, and their order is drawn for each run.
    #[test]
    fn the_facts_are_those_of_the_baseline_whichever_condition_ran_first() {
        let mut stored = demo();
        let condition = |t: &Trial| t.place.as_ref().map(|p| p.condition.clone());
        for t in &mut stored.trials {
            if condition(t).as_deref() == Some("on") {
                t.server.version = "18.1".to_owned();
                t.server.target = "host=newer".to_owned();
            }
        }
        let first = Run::from_stored(&stored).unwrap();
        stored.trials.swap(0, 3);
        assert_eq!(condition(&stored.trials[0]).as_deref(), Some("on"));
        assert_eq!(Run::from_stored(&stored).unwrap().facts, first.facts);
        assert_eq!(first.facts["server version"], "15.14");
    }
}
