//! The servers that share a window: whether their environments stayed the same.
//!
//! A trial's own environment describes its first server. Further servers are judged by the same rules, each
//! against itself: the server of the same target under the baseline, or else in the condition's other trials.

use std::collections::BTreeMap;

use super::environment::{Expected, ObservedFacts, verdict};
use super::tally::{CellId, Tally, further};
use pgio_results::store::Manifest;
use pgio_results::{Check, Trial};

/// What the further servers of each cell are expected to have; computed once.
pub(super) struct FurtherServers<'a> {
    tally: &'a Tally,
    manifest: &'a Manifest,
    expected: BTreeMap<(CellId, String), Option<Expected<'a>>>,
}

impl<'a> FurtherServers<'a> {
    pub(super) fn new(tally: &'a Tally, manifest: &'a Manifest) -> FurtherServers<'a> {
        FurtherServers { tally, manifest, expected: BTreeMap::new() }
    }

    /// Compares the environments of a trial's further servers with what is expected.
    pub(super) fn check(&mut self, cell: CellId, trial: &Trial) -> Option<Check> {
        let FurtherServers { tally, manifest, .. } = *self;
        let mut differing = Vec::new();
        let mut unread = Vec::new();
        for (name, part) in further(trial) {
            let key = (cell, name.to_owned());
            let known =
                self.expected.entry(key).or_insert_with(|| expected(tally, manifest, cell, name));
            let Some(expected) = known else { continue };
            let storage = part.telemetry.as_ref().map_or(&[][..], |t| &t.storage);
            let differences =
                expected.differences(ObservedFacts { facts: &part.environment, storage });
            differing.extend(differences.into_iter().map(|text| format!("{name}: {text}")));
            if expected.is_unread(&part.environment) {
                unread.push(name);
            }
        }
        let hosts = (!unread.is_empty()).then(|| format!("the host of {}", unread.join(", ")));
        verdict(&differing, hosts.as_deref())
    }
}

fn expected<'a>(
    tally: &'a Tally,
    manifest: &'a Manifest,
    cell: CellId,
    name: &str,
) -> Option<Expected<'a>> {
    let (condition, point) = cell;
    let own = tally.further(cell, name)?;
    let number = manifest.conditions.iter().position(|c| c.name == manifest.baseline);
    let baseline = number.and_then(|number| {
        let there = tally.further((number, point), name)?;
        let is_same = there.target == own.target;
        is_same.then(|| (there.usual(), &manifest.conditions[number]))
    });
    Some(Expected { own: own.usual(), baseline, info: &manifest.conditions[condition] })
}

#[cfg(test)]
mod tests {
    use super::super::{Across, checks as all_checks};
    use crate::test_support::{experiment, trial};
    use pgio_results::change::Change;
    use pgio_results::store::StoredExperiment;
    use pgio_results::test_support::target_result;
    use pgio_results::{CheckVerdict, Trial};

    /// Trials of one condition on two servers; `facts` are the second one's.
    fn trials(facts: &[(&str, &str)]) -> Vec<Trial> {
        let each = facts.iter().zip(1..);
        each.map(|((fact, value), block)| {
            let mut trial = trial("both", block, &[]);
            for name in ["a", "b"] {
                trial.targets.insert(name.to_owned(), target_result(None));
            }
            trial.server.clone_from(&trial.targets["a"].server);
            let second = trial.targets.get_mut("b").unwrap();
            second.server.target = "host b".to_owned();
            second.environment.insert((*fact).to_owned(), (*value).to_owned());
            trial
        })
        .collect()
    }

    fn found(facts: &[(&str, &str)]) -> Vec<(usize, String)> {
        let stored = experiment(&["both"], trials(facts));
        let all = all_checks(&stored.manifest, &stored.trials).into_iter();
        let differing = all.filter(|(_, check)| check.id == "environment-differs");
        differing.map(|(number, check)| (number, check.message)).collect()
    }

    #[test]
    fn a_setting_of_a_further_server_that_changed_is_found() {
        let same = ("setting.work_mem", "4MB");
        assert_eq!(found(&[same, same, same]), []);
        let message = |trials| format!("b: setting.work_mem is 8MB here and 4MB in {trials}");
        let other = ("setting.work_mem", "8MB");
        let usual = message("most of its trials");
        assert_eq!(found(&[same, other, same]), [(1, usual.clone())]);
        // The first trial is no better reference than another one.
        assert_eq!(found(&[other, same, same]), [(0, usual)]);
    }

    #[test]
    fn a_changed_server_is_invalid_in_the_loop_unless_tolerated() {
        let same = ("setting.work_mem", "4MB");
        let mut stored = experiment(&["both"], trials(&[same, ("setting.work_mem", "8MB"), same]));
        let verdicts = |stored: &StoredExperiment| -> Vec<CheckVerdict> {
            let across = Across::new(&stored.manifest, &stored.trials);
            let found = across.checks(&stored.manifest, stored.trials.iter().enumerate());
            found.into_iter().map(|(_, check)| check.verdict).collect()
        };
        assert_eq!(verdicts(&stored), [CheckVerdict::Invalid]);
        stored.manifest.rules.tolerate = vec!["environment-differs".to_owned()];
        assert_eq!(verdicts(&stored), [CheckVerdict::Warning]);
    }

    #[test]
    fn a_host_that_was_not_read_is_a_warning_and_no_difference() {
        let mut all = trials(&[("setting.work_mem", "4MB"); 4]);
        for (n, trial) in all.iter_mut().enumerate() {
            let facts = &mut trial.targets.get_mut("b").unwrap().environment;
            if n != 2 {
                facts.insert("host.kernel".to_owned(), "6.1.0".to_owned());
                facts.insert("host.governor".to_owned(), "performance".to_owned());
            }
        }
        let stored = experiment(&["both"], all);
        let found = all_checks(&stored.manifest, &stored.trials);
        let [(2, check)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(check.verdict, CheckVerdict::Warning);
        let start = "the host of b did not answer before the window";
        assert!(check.message.starts_with(start), "{}", check.message);
    }

    #[test]
    fn a_further_server_must_be_as_under_the_baseline_unless_that_is_declared() {
        let mut all = trials(&[("setting.work_mem", "4MB"); 3]);
        let other = trials(&[("setting.work_mem", "8MB"); 3]);
        all.extend(other.into_iter().map(|mut trial| {
            trial.place.as_mut().unwrap().condition = "on".to_owned();
            trial
        }));
        let mut stored = experiment(&["both", "on"], all);
        stored.manifest.baseline = "both".to_owned();
        let found = |stored: &StoredExperiment| all_checks(&stored.manifest, &stored.trials);
        let all = found(&stored);
        assert_eq!(all.len(), 3, "{all:?}");
        assert_eq!(all[0].1.message, "b: setting.work_mem is 8MB here and 4MB under `both`");
        stored.manifest.conditions[1].changes = vec![Change::server("work_mem", "8MB")];
        assert_eq!(found(&stored), []);
    }

    #[test]
    fn data_drift_is_judged_for_each_server_separately() {
        let mut all = trials(&[("setting.work_mem", "4MB"), ("setting.work_mem", "4MB")]);
        let data = |bytes: u64| {
            let full = pgio_results::test_support::full_trial().dataset;
            full.map(|data| pgio_results::model::DatasetInfo { bytes_before: bytes, ..data })
        };
        // Alone on the first server, then with another one.
        let mut alone = trial("alone", 1, &[]);
        alone.dataset = data(100);
        for trial in &mut all {
            trial.dataset = data(200);
            trial.server.target.clone_from(&alone.server.target);
            for (name, part) in &mut trial.targets {
                part.server.target =
                    if name == "a" { alone.server.target.clone() } else { "b".into() };
                part.dataset = data(100);
            }
        }
        all.insert(0, alone);
        let drift = |all: Vec<Trial>| {
            let stored = experiment(&["alone", "both"], all);
            let found = all_checks(&stored.manifest, &stored.trials).into_iter();
            found.filter(|(_, check)| check.id == "data-drift").map(|(n, _)| n).collect::<Vec<_>>()
        };
        assert_eq!(drift(all.clone()), [0; 0]);
        all[2].targets.get_mut("b").unwrap().dataset = data(120);
        assert_eq!(drift(all), [2]);
    }
}
