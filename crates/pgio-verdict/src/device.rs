//! Describes and compares the results of `pgio device`: a round is a block, a run a trial.
//!
//! Test and interval are as for an experiment's conditions. Each fio test answers its own question, so
//! nothing is adjusted for the number of tests, and reports mention that.

use std::collections::BTreeMap;

use benchmath::summary;
use serde::{Deserialize, Serialize};

use super::compare::by_ratio;
use super::comparison::Comparison;
use super::pairing::Pairs;
use pgio_results::metrics::definition;
use pgio_results::model::{DeviceRecord, DeviceRun, DeviceTest};

/// Results of one test: at each place, and compared.
#[derive(Debug, Clone)]
pub struct TestResult {
    pub test: DeviceTest,
    /// In the record's order of places.
    pub places: Vec<Described>,
    /// The first place compared with the second.
    pub comparison: Option<Comparison>,
}

/// Runs of one test at one place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Described {
    pub runs: usize,
    /// Median of the test's metric; `lowest` and `highest` are its extremes.
    pub median: Option<f64>,
    pub lowest: Option<f64>,
    pub highest: Option<f64>,
    /// Medians of all metrics.
    pub medians: BTreeMap<String, f64>,
}

/// In the record's order of tests.
pub fn results(record: &DeviceRecord) -> Vec<TestResult> {
    record.tests.iter().map(|test| result(record, test)).collect()
}

fn result(record: &DeviceRecord, test: &DeviceTest) -> TestResult {
    let runs_at = |place: usize| -> Vec<&DeviceRun> {
        record.runs.iter().filter(|r| r.test == test.name && r.place == place).collect()
    };
    let places: Vec<Vec<&DeviceRun>> = (0..record.places.len()).map(runs_at).collect();
    let comparison = match places.as_slice() {
        [place, baseline] => definition(&test.metric).map(|def| {
            let mut comparison = by_ratio(def, &pairs(place, baseline, &test.metric)).comparison;
            comparison.condition.clone_from(&record.places[0].name);
            comparison.primary = true;
            comparison
        }),
        _ => None,
    };
    let places = places.iter().map(|runs| described(runs, &test.metric)).collect();
    TestResult { test: test.clone(), places, comparison }
}

/// The rounds in which both places have a run.
fn pairs(place: &[&DeviceRun], baseline: &[&DeviceRun], metric: &str) -> Pairs {
    let value = |runs: &[&DeviceRun], round: u32| {
        runs.iter().find(|r| r.round == round)?.metrics.get(metric).copied()
    };
    let mut pairs = Pairs::default();
    for round in place.iter().map(|run| run.round) {
        if let (Some(ours), Some(theirs)) = (value(place, round), value(baseline, round)) {
            pairs.blocks.push(round);
            pairs.condition.push(ours);
            pairs.baseline.push(theirs);
        }
    }
    pairs
}

fn described(runs: &[&DeviceRun], metric: &str) -> Described {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.iter().flat_map(|run| &run.metrics) {
        values.entry(name.clone()).or_default().push(*value);
    }
    let places = values.get(metric).cloned().unwrap_or_default();
    Described {
        runs: runs.len(),
        median: summary::median(&places),
        lowest: places.iter().copied().reduce(f64::min),
        highest: places.iter().copied().reduce(f64::max),
        medians: values
            .into_iter()
            .filter_map(|(name, values)| Some((name, summary::median(&values)?)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use pgio_results::test_support::device_record;

    #[test]
    fn six_rounds_of_half_the_speed_decide_and_five_cannot() {
        let found = results(&device_record(6, 0.5));
        let [throughput, latency] = found.as_slice() else { panic!("two tests: {found:?}") };
        assert_eq!(throughput.places.iter().map(|p| p.runs).collect::<Vec<_>>(), [6, 6]);
        let c = throughput.comparison.as_ref().unwrap();
        assert_eq!((c.verdict, c.blocks), (Verdict::Slower, 6));
        assert!((c.ratio.unwrap() - 0.501).abs() < 1e-3, "{c:?}");
        assert_eq!(latency.comparison.as_ref().unwrap().verdict, Verdict::Slower);
        let place = &throughput.places[1];
        assert_eq!(
            (place.lowest, place.median, place.highest),
            (Some(1e8), Some(1.025e8), Some(1.05e8))
        );

        let few = &results(&device_record(5, 0.5))[0];
        assert_eq!(few.comparison.as_ref().unwrap().verdict, Verdict::TooFewBlocks);
    }

    #[test]
    fn a_round_cut_short_is_left_out_of_the_comparison() {
        let mut record = device_record(7, 0.5);
        let last = record.runs.iter().rposition(|r| r.place == 1 && r.test == "throughput-1048576");
        record.runs.remove(last.unwrap());
        let found = &results(&record)[0];
        assert_eq!(found.comparison.as_ref().unwrap().blocks, 6);
        assert_eq!(found.places[0].runs, 7);
    }

    #[test]
    fn one_place_is_compared_with_nothing() {
        let mut record = device_record(3, 1.0);
        record.places.truncate(1);
        record.runs.retain(|r| r.place == 0);
        assert!(results(&record).iter().all(|r| r.comparison.is_none() && r.places.len() == 1));
    }
}
