//! The servers that share a window: whether their environments stayed the same.
//!
//! A trial's own environment is that of its first server, which is compared with the baseline's. Further servers are
//! compared with themselves: with the first trial of the same condition.

use std::collections::{BTreeMap, BTreeSet};

use super::tally::{CellId, cell};
use pgio_results::model::Facts;
use pgio_results::store::Manifest;
use pgio_results::{Check, Outcome, Trial};

/// Returns the trials in which the environment of a further server differs from that of the condition's first trial.
pub(super) fn checks(manifest: &Manifest, trials: &[Trial]) -> Vec<(usize, Check)> {
    let mut first: BTreeMap<(CellId, &str), &Facts> = BTreeMap::new();
    let mut found = Vec::new();
    for (number, trial) in trials.iter().enumerate() {
        let counts = trial.outcome == Outcome::Complete && !trial.is_burn_in();
        let place = trial.place.as_ref().filter(|_| counts);
        let Some(cell) = place.and_then(|place| cell(manifest, place)) else { continue };
        let changes = &manifest.conditions[cell.0].changes;
        let further =
            trial.targets.iter().filter(|(_, part)| part.server.target != trial.server.target);
        let mut differing = Vec::new();
        for (name, part) in further {
            let known: &Facts = first.entry((cell, name)).or_insert(&part.environment);
            let storage = part.telemetry.as_ref().map_or(&[][..], |t| &t.storage);
            for fact in differences(known, &part.environment) {
                if !changes.iter().any(|change| change.decides(fact, storage)) {
                    let [now, before] = [&part.environment, known].map(|facts| shown(facts, fact));
                    differing.push(format!(
                        "{name}: {fact} is {now} here and {before} in its first trial"
                    ));
                }
            }
        }
        if !differing.is_empty() {
            let remedy = "make the environment equal, or declare the difference as a treatment";
            let message = differing.join("; ");
            found.push((number, Check::invalid("environment-differs", message, remedy)));
        }
    }
    found
}

/// Returns the names of facts that differ.
fn differences<'a>(one: &'a Facts, other: &'a Facts) -> BTreeSet<&'a str> {
    let names = one.keys().chain(other.keys());
    names.filter(|name| one.get(*name) != other.get(*name)).map(String::as_str).collect()
}

fn shown<'a>(facts: &'a Facts, fact: &str) -> &'a str {
    facts.get(fact).map_or("absent", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::super::checks as all_checks;
    use crate::analysis::test_support::{experiment, trial};
    use pgio_results::Trial;
    use pgio_results::test_support::target_result;

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
        let of_id = all.filter(|(_, check)| check.id == "environment-differs");
        of_id.map(|(number, check)| (number, check.message)).collect()
    }

    #[test]
    fn a_setting_of_a_further_server_that_changed_is_found() {
        let same = ("setting.work_mem", "4MB");
        assert_eq!(found(&[same, same, same]), []);
        let message = "b: setting.work_mem is 8MB here and 4MB in its first trial".to_owned();
        assert_eq!(found(&[same, ("setting.work_mem", "8MB"), same]), [(1, message)]);
    }

    #[test]
    fn the_data_of_several_servers_is_no_growth_of_one() {
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
