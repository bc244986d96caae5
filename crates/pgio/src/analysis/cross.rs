//! Checks of a trial that need the other trials: was the environment the same, did a checkpoint
//! hit some and not others, did the data grow, did one read from the cache what another had fetched.
//! A burn-in trial is no part of any of them.
//!
//! Applied before trials are paired, so that what fails here is left out like any other INVALID
//! trial. Only faults are returned; a trial that already carries a check of the same name keeps
//! its own. The experiment loop asks after each trial to decide on repeating one, so a verdict may
//! change as more trials come. Next: `pairing` for what counts, `findings` for the experiment as a
//! whole.

mod carry_over;
mod checkpoints;

use std::collections::BTreeMap;

use crate::results::checks::tolerate;
use crate::results::store::{ConditionInfo, Manifest, Stored};
use crate::results::sweep::Point;
use crate::results::{Check, CheckVerdict, Outcome, Trial};
use crate::units::human;

/// The data may be larger than before the first trial by this much.
const GROWTH: f64 = 0.05;

/// Differences told one by one; more would hide the first.
const TOLD: usize = 5;

/// Settings that the server works out from another one.
const FOLLOWS: &[(&str, &str)] = &[
    ("wal_buffers", "shared_buffers"),
    ("shared_memory_size", "shared_buffers"),
    ("shared_memory_size_in_huge_pages", "shared_buffers"),
];

/// What is wrong, by the trial's index, in their order. Of trials that did not complete nothing is said.
pub fn checks(manifest: &Manifest, trials: &[Trial]) -> Vec<(usize, Check)> {
    let mut found = growth(trials);
    found.extend(carry_over::checks(trials));
    for point in manifest.points() {
        found.extend(environment(manifest, trials, point));
        found.extend(checkpoints::checks(manifest, trials, point));
    }
    found.sort_by_key(|(i, _)| *i);
    for (_, check) in &mut found {
        tolerate(check, &manifest.rules.tolerate);
    }
    found.retain(|(i, check)| {
        let trial = &trials[*i];
        let told = |c: &Check| c.id == check.id && c.verdict != CheckVerdict::Ok;
        trial.outcome == Outcome::Complete && !trial.checks.iter().any(told)
    });
    found
}

/// The same results with these checks in the trials' records.
pub(super) fn judged(stored: &Stored) -> Stored {
    let mut judged = stored.clone();
    for (i, check) in checks(&stored.manifest, &stored.trials) {
        judged.trials[i].checks.push(check);
    }
    judged
}

fn condition(trial: &Trial) -> Option<&str> {
    trial.place.as_ref().map(|p| p.condition.as_str())
}

fn is_at(trial: &Trial, point: &Point) -> bool {
    trial.place.as_ref().is_some_and(|p| p.point == *point && !p.is_burn_in())
}

/// Of the trials at one point: an axis may change what is found.
fn environment(manifest: &Manifest, trials: &[Trial], point: &Point) -> Vec<(usize, Check)> {
    let described =
        |t: &&Trial| t.outcome == Outcome::Complete && !t.environment.is_empty() && is_at(t, point);
    let of = |name: &str| -> Vec<&Trial> {
        trials.iter().filter(described).filter(|t| condition(t) == Some(name)).collect()
    };
    let Some(baseline) = manifest.conditions.iter().find(|c| c.name == manifest.baseline) else {
        return Vec::new();
    };
    let theirs = of(&baseline.name);
    let mut found = Vec::new();
    for info in &manifest.conditions {
        let ours = of(&info.name);
        let Some(first) = ours.first() else { continue };
        // On another server everything may differ; that is then part of what is compared.
        let same_server = theirs.first().is_none_or(|t| t.server.target == first.server.target);
        let reference = Reference {
            own: usual(&ours),
            baseline: usual(if theirs.is_empty() { &ours } else { &theirs }),
            declared: [info, baseline],
            same_server,
        };
        for (i, trial) in trials.iter().enumerate() {
            if described(&trial) && condition(trial) == Some(info.name.as_str()) {
                found.extend(reference.differs(trial, &baseline.name).map(|check| (i, check)));
            }
        }
        if !same_server {
            found.extend(other_server(&reference, (&ours, &theirs), trials, info, point));
        }
    }
    found
}

/// What each name of the environment should be in a trial.
struct Reference<'a> {
    own: BTreeMap<&'a str, Option<&'a str>>,
    baseline: BTreeMap<&'a str, Option<&'a str>>,
    declared: [&'a ConditionInfo; 2],
    same_server: bool,
}

impl Reference<'_> {
    fn differs(&self, trial: &Trial, baseline: &str) -> Option<Check> {
        let mut differences = Vec::new();
        for name in
            self.own.keys().chain(self.baseline.keys().filter(|k| !self.own.contains_key(*k)))
        {
            let own = !self.same_server || self.is_declared(name);
            let (expected, of) = if own || condition(trial) == Some(baseline) {
                (&self.own, "in most of its trials".to_owned())
            } else {
                (&self.baseline, format!("under `{baseline}`"))
            };
            let expected = expected.get(name).copied().flatten();
            let found = trial.environment.get(*name).map(String::as_str);
            if found != expected && !is_gone(name, [found, expected]) {
                differences.push(format!(
                    "{name} is {} here and {} {of}",
                    shown(found),
                    shown(expected)
                ));
            }
        }
        (!differences.is_empty()).then(|| {
            Check::invalid(
                "environment-differs",
                told(&differences),
                "make it the same, or declare it as a treatment of a condition",
            )
        })
    }

    fn is_declared(&self, name: &str) -> bool {
        let treatments = || self.declared.iter().flat_map(|c| &c.treatments);
        let leads = FOLLOWS.iter().find(|(follower, _)| is_called(name, follower)).map(|f| f.1);
        treatments().any(|t| names_in(t).any(|n| is_called(name, n) || leads == Some(n)))
    }
}

/// Options of a DRBD connection go with it; that it is gone is told by its protocol.
fn is_gone(name: &str, values: [Option<&str>; 2]) -> bool {
    name.contains("drbd.") && name.ends_with(".net") && values.contains(&None)
}

/// The words of a treatment before its value: `synchronous_commit = on` names the setting.
fn names_in(treatment: &str) -> impl Iterator<Item = &str> {
    treatment.split('=').next().unwrap_or_default().split_whitespace()
}

/// `setting.fsync` is called `fsync`, and `setting.auto_explain.log_timing`
/// `auto_explain.log_timing`.
fn is_called(name: &str, called: &str) -> bool {
    name.strip_suffix(called).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn shown(value: Option<&str>) -> &str {
    match value {
        None => "absent",
        Some("") => "empty",
        Some(value) => value,
    }
}

fn told(differences: &[String]) -> String {
    let mut text = differences[..differences.len().min(TOLD)].join("; ");
    if differences.len() > TOLD {
        text += &format!("; and {} more", differences.len() - TOLD);
    }
    text
}

/// The most frequent value of each name, the earliest of equally frequent ones; a name that a
/// trial does not have is absent there, which for a setting means its default.
fn usual<'a>(trials: &[&'a Trial]) -> BTreeMap<&'a str, Option<&'a str>> {
    let names = trials.iter().flat_map(|t| t.environment.keys());
    let mut found = BTreeMap::new();
    for name in names {
        found.entry(name.as_str()).or_insert_with(|| {
            let values: Vec<Option<&str>> =
                trials.iter().map(|t| t.environment.get(name).map(String::as_str)).collect();
            let count = |value: &Option<&str>| values.iter().filter(|v| *v == value).count();
            // max_by_key takes the last of equals.
            values.iter().rev().max_by_key(|v| count(v)).copied().flatten()
        });
    }
    found
}

/// Said of every trial there, so that it is told once for the condition.
fn other_server(
    reference: &Reference<'_>,
    (ours, theirs): (&[&Trial], &[&Trial]),
    trials: &[Trial],
    info: &ConditionInfo,
    point: &Point,
) -> Vec<(usize, Check)> {
    let (Some(here), Some(there)) = (ours.first(), theirs.first()) else { return Vec::new() };
    let names = reference.own.keys().chain(reference.baseline.keys());
    let mut differing: Vec<&str> =
        names.filter(|n| reference.own.get(*n) != reference.baseline.get(*n)).copied().collect();
    differing.sort_unstable();
    differing.dedup();
    let names = match differing.len() {
        0 => "nothing recorded of the environment differs".to_owned(),
        _ => told(&differing.iter().map(|n| format!("{n} differs")).collect::<Vec<_>>()),
    };
    let check = Check::warning(
        "environment-differs",
        format!(
            "`{}` runs on {}, the baseline on {}: {names}; all of it is part of the effect",
            info.name, here.server.target, there.server.target
        ),
        "compare conditions of one server where you can",
    );
    let is_here = |t: &Trial| condition(t) == Some(info.name.as_str()) && is_at(t, point);
    trials.iter().enumerate().filter(|(_, t)| is_here(t)).map(|(i, _)| (i, check.clone())).collect()
}

/// Each server's trials against the first of them.
fn growth(trials: &[Trial]) -> Vec<(usize, Check)> {
    let mut first: BTreeMap<&str, u64> = BTreeMap::new();
    let mut found = Vec::new();
    for (i, trial) in trials.iter().enumerate().filter(|(_, t)| !t.is_burn_in()) {
        let Some(data) = &trial.dataset else { continue };
        let began = *first.entry(&trial.server.target).or_insert(data.bytes_before);
        let grown = data.bytes_before as f64 / began.max(1) as f64 - 1.0;
        if grown > GROWTH {
            let check = Check::invalid(
                "data-drift",
                format!(
                    "the data set had grown by {:.0} % since the first trial, from {} to {}",
                    grown * 100.0,
                    human::bytes(began),
                    human::bytes(data.bytes_before)
                ),
                "put reset = \"reload\" under [experiment], so that every trial begins with the \
                 same data",
            );
            found.push((i, check));
        }
    }
    found
}

#[cfg(test)]
mod tests;
