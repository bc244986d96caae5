//! Whether stored results are a pilot of an experiment file, for `pgio plan`.
//!
//! Compares what the results store with what the file would run, without a server. Baseline, conditions,
//! primary metric and workload must be the same; other differences are only listed, because noise and
//! duration may depend on them. `pgio_verdict::pilot` plans from the pilot.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::cells::{cells, varied};
use super::estimate::estimate_trial;
use super::file_changes::{differences, values_by_path};
use super::job::Job;
use super::manifest::NOT_STORED;
use crate::config::experiment::WorkloadSpec;
use crate::treatment::{self, TreatmentError};
use pgio_results::store::{Manifest, StoredExperiment};

/// Keys that change neither the trials nor their noise, or that [`mismatches`] compares.
const IGNORED_KEYS: &[&str] = &[
    "experiment.baseline",
    "experiment.aa",
    "experiment.primary",
    "experiment.name",
    "experiment.seed",
    "experiment.blocks",
    "experiment.max_blocks",
    "experiment.precision",
    "experiment.effect",
    "experiment.matters",
    "experiment.judge",
    "experiment.also_judge",
    "experiment.repeats",
    "experiment.tolerate",
];

/// Finds the workload of the file that these results are of.
pub fn workload_of<'a>(job: &'a Job, manifest: &Manifest) -> Option<&'a WorkloadSpec> {
    match job.experiment.workloads.as_slice() {
        [only] => Some(only),
        several => {
            // The name of the results ends with the workload's; of two that fit, the longer is right.
            let fits = |w: &&WorkloadSpec| manifest.name.ends_with(&format!(" {}", w.name));
            several.iter().filter(fits).max_by_key(|w| w.name.len())
        }
    }
}

/// Describes what makes these the results of another experiment; empty for a pilot of this one. `stored` was read
/// with its names on one line; `text` is the file that is stored with the results.
pub fn mismatches(
    job: &Job,
    spec: &WorkloadSpec,
    stored: &StoredExperiment,
    text: Option<&str>,
) -> Result<Vec<String>, TreatmentError> {
    let (e, manifest) = (&job.experiment, &stored.manifest);
    let mut found = Vec::new();
    let mut compare = |what: &str, was: &str, is: &str| {
        if was != is {
            found.push(format!("{what} was `{was}` and is `{is}`"));
        }
    };
    compare("the baseline", &manifest.baseline, &printable::line(&e.baseline));
    if let Some(trial) = stored.trials.first() {
        let default = trial.workload.primary_metric.as_str();
        let is = e.primary.as_deref().unwrap_or(default);
        compare("the primary metric", &manifest.primary_metric, is);
        compare("the kind of workload", &trial.workload.kind, spec.kind.name());
    }
    found.extend(condition_mismatches(job, spec, manifest)?);
    if let Some(text) = text.filter(|text| *text != NOT_STORED) {
        found.extend(file_differences(text, &job.text, is_of_workload));
    }
    Ok(found)
}

/// Describes the other differences between the stored file and the new one.
pub fn remarks(job: &Job, text: Option<&str>) -> Vec<String> {
    match text.filter(|text| *text != NOT_STORED) {
        Some(text) => file_differences(text, &job.text, |key| {
            !IGNORED_KEYS.contains(&key) && !is_of_workload(key) && !key.starts_with("condition")
        }),
        None => vec!["its file is not stored, so its workload could not be compared".to_owned()],
    }
}

/// Estimates the mean duration of a trial as `compare --plan` does; none if a window ends with the work.
pub fn estimated_trial(job: &Job, spec: &WorkloadSpec) -> Result<Option<Duration>, TreatmentError> {
    let cells = cells(job, spec)?;
    let all: Option<Vec<Duration>> =
        cells.iter().map(|cell| Some(estimate_trial(job, spec, cell)?.total())).collect();
    let count = u32::try_from(cells.len()).unwrap_or(u32::MAX).max(1);
    Ok(all.map(|all| all.iter().sum::<Duration>() / count))
}

fn is_of_workload(key: &str) -> bool {
    key.starts_with("workload") || key.starts_with("axis")
}

fn file_differences(stored: &str, now: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let keys: BTreeSet<String> = [stored, now]
        .into_iter()
        .filter_map(values_by_path)
        .flat_map(BTreeMap::into_keys)
        .collect();
    let others: Vec<&str> = keys.iter().map(String::as_str).filter(|key| !wanted(key)).collect();
    differences(stored, now, &others)
}

/// Compares the conditions at the middle point by name and by what they change.
fn condition_mismatches(
    job: &Job,
    spec: &WorkloadSpec,
    manifest: &Manifest,
) -> Result<Vec<String>, TreatmentError> {
    let varied = varied(&job.experiment, spec)?;
    let at_middle = |point| varied.as_ref().is_none_or(|s| s.middle() == point);
    let cells = cells(job, spec)?;
    let now: BTreeMap<Cow<'_, str>, Vec<String>> = cells
        .iter()
        .filter(|c| at_middle(&c.cell.point))
        .map(|c| {
            let changes = treatment::changes(&c.treatments);
            let texts =
                changes.iter().map(|change| printable::line(&change.to_string()).into_owned());
            (printable::line(&c.cell.condition), texts.collect())
        })
        .collect();
    let then: BTreeMap<&str, Vec<String>> =
        manifest.conditions.iter().map(|c| (c.name.as_str(), c.treatments())).collect();
    let names: BTreeSet<&str> =
        then.keys().copied().chain(now.keys().map(|name| &**name)).collect();
    let list = |changes: &[String]| match changes {
        [] => "nothing".to_owned(),
        some => some.join(", "),
    };
    let differs = |name: &str| match (then.get(name), now.get(name)) {
        (Some(was), Some(is)) if was != is => Some(format!(
            "the condition `{name}` changed {} and now changes {}",
            list(was),
            list(is)
        )),
        (Some(_), None) => Some(format!("the condition `{name}` is only in the pilot")),
        (None, Some(_)) => Some(format!("the condition `{name}` is not in the pilot")),
        _ => None,
    };
    Ok(names.into_iter().filter_map(differs).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::manifest::manifest;
    use crate::experiment::application::scripted::{COMMITS, first, job};
    use pgio_results::store::{self, Store};
    use pgio_results::test_support::full_trial;

    /// Results of this file, of one trial.
    fn pilot(text: &str) -> (StoredExperiment, String) {
        let job = job(text);
        let (spec, cells) = first(&job);
        let varied = varied(&job.experiment, spec).unwrap();
        let primary = job.experiment.primary.clone();
        let primary = primary.unwrap_or_else(|| "commits_per_second".to_owned());
        let rules = &job.experiment.rules;
        let mut trial = full_trial();
        trial.workload.kind = "commit".to_owned();
        trial.workload.primary_metric = "commits_per_second".to_owned();
        let stored = StoredExperiment {
            manifest: manifest(&job, spec, &cells, varied, rules, BTreeMap::new(), primary),
            trials: vec![trial],
            torn: false,
            judged: false,
        };
        (stored, job.text)
    }

    /// What differs if the pilot was run from `then`.
    fn mismatches_of(then: &str, now: &str) -> Vec<String> {
        let (stored, text) = pilot(then);
        let job = job(now);
        mismatches(&job, &job.experiment.workloads[0], &stored, Some(&text)).unwrap()
    }

    fn remarks_of(then: &str, now: &str) -> Vec<String> {
        remarks(&job(now), Some(&pilot(then).1))
    }

    #[test]
    fn a_pilot_may_differ_in_blocks_and_rules_alone() {
        let then = COMMITS.replace("blocks = 6", "blocks = 2\nname = 'pilot'");
        let now = COMMITS.replace("seed = 7", "matters = '5%'");
        assert_eq!(mismatches_of(&then, &now), [""; 0]);
        assert_eq!(remarks_of(&then, &now), [""; 0]);
        let longer = COMMITS.replace("'10s'", "'60s'");
        assert_eq!(mismatches_of(&then, &longer), [""; 0]);
        assert_eq!(remarks_of(&then, &longer), ["experiment.duration was \"10s\" and is \"60s\""]);
    }

    #[test]
    fn a_pilot_of_another_experiment_is_refused_with_the_differences() {
        let head = |keys: &str| COMMITS.replace("seed = 7", keys);
        let differs = |now: &str, expected: &[&str]| {
            assert_eq!(mismatches_of(COMMITS, now), expected, "{now}");
        };
        differs(
            &head("baseline = 'on'"),
            &[
                "the baseline was `local` and is `on`",
                "the condition `local (A/A)` is only in the pilot",
                "the condition `on (A/A)` is not in the pilot",
            ],
        );
        differs(&head("aa = false"), &["the condition `local (A/A)` is only in the pilot"]);
        differs(
            &head("primary = 'commit_latency_p99'"),
            &["the primary metric was `commits_per_second` and is `commit_latency_p99`"],
        );
        differs(&format!("{COMMITS}sessions = 4\n"), &["workload.sessions = 4 was added"]);
        let third = "[[condition]]\nname = 'off'\npostgres = { synchronous_commit = 'off' }\n";
        let local = head("baseline = 'local'");
        differs(&format!("{local}{third}"), &["the condition `off` is not in the pilot"]);
        let (mut stored, text) = pilot(COMMITS);
        stored.manifest.conditions[2].changes.clear();
        let job = job(COMMITS);
        let spec = &job.experiment.workloads[0];
        let found = mismatches(&job, spec, &stored, Some(&text)).unwrap();
        let changes = "the condition `on` changed nothing and now changes synchronous_commit = on";
        assert_eq!(found, [changes]);
    }

    #[test]
    fn conditions_with_invisible_characters_are_recognized() {
        // With a zero-width joiner; the first condition is the baseline.
        let condition =
            "[[condition]]\nname = 'o\u{200d}ff'\npostgres = { synchronous_commit = 'off' }\n";
        let text = format!("{COMMITS}{condition}");
        let (written, file) = pilot(&text);
        let dir = tempfile::tempdir().unwrap();
        let mut results = Store::create(dir.path(), &file, &written.manifest).unwrap();
        results.append(&written.trials[0]).unwrap();
        let stored = store::read(dir.path()).unwrap();
        assert_eq!(stored.manifest.baseline, "o\\u{200d}ff");
        let job = job(&text);
        let spec = &job.experiment.workloads[0];
        assert_eq!(mismatches(&job, spec, &stored, Some(&file)).unwrap(), [""; 0]);
    }

    #[test]
    fn results_belong_to_the_workload_whose_name_they_end_with() {
        let one = job(COMMITS);
        let manifest = |name: &str| Manifest { name: name.to_owned(), ..pilot(COMMITS).0.manifest };
        assert!(workload_of(&one, &manifest("anything")).is_some());
        let two = COMMITS.replace("[workload]\n", "[[workload]]\nname = 'a'\n")
            + "[[workload]]\nname = 'b a'\nkind = 'commit'\n";
        let two = job(&two);
        let name = |of: &str| workload_of(&two, &manifest(of)).map(|spec| spec.name.as_str());
        assert_eq!([name("x a"), name("x b a"), name("x c")], [Some("a"), Some("b a"), None]);
    }

    #[test]
    fn a_trial_without_a_start_is_estimated() {
        let job = job(COMMITS);
        let estimate = estimated_trial(&job, &job.experiment.workloads[0]).unwrap().unwrap();
        assert!(estimate > Duration::from_secs(12), "{estimate:?}");
    }
}
