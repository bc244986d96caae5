//! Describes one condition: the number of trials, and each metric's value over those that count.
//!
//! The value describes the typical trial: the geometric mean of the trials' values if all are positive,
//! because effects are ratios, and the arithmetic mean otherwise. This applies to mean, percentiles and
//! maximum of a latency as well. Percentiles below the clock's resolution have no value, and those
//! of too few operations are left out. `compare`
//! compares conditions.

use std::collections::{BTreeMap, BTreeSet};

use benchmath::summary::{geometric_mean, mean};

use super::condition::{Condition, State, differing_factors};
use super::pairing::ConditionTrials;
use super::{degraded, steady, tail};
use pgio_results::change::{Change, fact};
use pgio_results::danger::{Danger, from_fact};
use pgio_results::metrics;
use pgio_results::model::Trial;
use pgio_results::store::{ConditionInfo, Manifest};
use pgio_results::{CheckVerdict, Metric};

pub(super) fn describe(
    info: &ConditionInfo,
    manifest: &Manifest,
    condition: &ConditionTrials<'_>,
) -> Condition {
    let baseline = manifest.conditions.iter().find(|c| c.name == manifest.baseline);
    let (checks_passed, checks_total) = checks(condition);
    Condition {
        name: info.name.clone(),
        treatments: info.treatments(),
        factors: baseline.map(|b| factors(info, b)).unwrap_or_default(),
        danger: danger(&info.changes, condition),
        trials: condition.all.len(),
        invalid: condition.invalid().len(),
        failed: condition.failed().len(),
        valid: condition.valid().count(),
        server_starts: server_starts(condition),
        counted: condition.counted().map(|(line, _)| line).collect(),
        state: State::default(),
        shares: Vec::new(),
        steady: steady::count(condition, &manifest.primary_metric),
        metrics: values(condition, manifest),
        checks_passed,
        checks_total,
    }
}

const COMMIT_LEVEL: &str = "synchronous_commit";

/// Without a synchronous standby a failover loses commits under any condition.
fn danger(changes: &[Change], condition: &ConditionTrials<'_>) -> Option<Danger> {
    let trials = || condition.all.iter().map(|(_, trial)| *trial);
    let names = fact::setting("synchronous_standby_names");
    let has_standby = || {
        trials().any(|t| t.environment.get(&names).is_some_and(|names| !names.is_empty()))
            || trials().filter_map(|t| t.telemetry.as_ref()).any(|t| {
                t.standbys.values().any(|s| ["sync", "quorum"].contains(&s.sync_state.as_str()))
            })
    };
    let applies = |sets_level: bool, danger: &Danger| {
        !sets_level || *danger != Danger::FailoverLosesCommits || has_standby()
    };
    let declared = changes.iter().filter_map(|change| {
        change.danger().filter(|danger| applies(change.sets(COMMIT_LEVEL), danger))
    });
    // Where neither a change nor the sessions set something else, the server is configured so already.
    let is_set = |trial: &Trial, name: &str| {
        trial.settings.contains_key(name) || changes.iter().any(|change| change.sets(name))
    };
    // Most trials of a condition are configured alike.
    let mut configured: Vec<&Trial> = trials().collect();
    configured.dedup_by(|a, b| a.environment == b.environment && a.settings == b.settings);
    let found = configured.iter().flat_map(|trial| {
        let facts = trial.environment.iter().map(|(name, value)| (name.as_str(), value));
        let facts =
            facts.filter(|(name, _)| !fact::setting_of(name).is_some_and(|s| is_set(trial, s)));
        facts.filter_map(|(name, value)| {
            from_fact(name, value).filter(|d| applies(name == fact::setting(COMMIT_LEVEL), d))
        })
    });
    let pinned =
        configured.iter().flat_map(|trial| trial.settings.iter()).filter_map(|(name, value)| {
            let danger = Change::server(name, value).danger();
            danger.filter(|danger| applies(name == COMMIT_LEVEL, danger))
        });
    // A private server may have been built with them.
    let off = |t: &Trial| t.server.fsync == "off" || t.server.full_page_writes == "off";
    let built = trials().any(off).then_some(Danger::PowerCutCorrupts);
    // A way to flush may be none on this device.
    let lies = |t: &Trial| {
        let check = t.checks.iter().find(|check| check.id == "lying-cache");
        check.is_some_and(|check| check.verdict != CheckVerdict::Ok)
    };
    let flushes_otherwise = changes.iter().any(|change| change.sets("wal_sync_method"));
    let unflushed = (flushes_otherwise && trials().any(lies)).then_some(Danger::PowerCutCorrupts);
    declared.chain(found).chain(pinned).chain(built).chain(unflushed).max()
}

fn factors(info: &ConditionInfo, baseline: &ConditionInfo) -> Vec<String> {
    differing_factors(info, baseline).iter().map(ToString::to_string).collect()
}

pub(super) fn values(
    condition: &ConditionTrials<'_>,
    manifest: &Manifest,
) -> BTreeMap<String, Metric> {
    let declared = &manifest.metrics;
    let mut found = degraded::metrics(condition, &manifest.primary_metric);
    for def in metrics::all(declared) {
        if !condition.has_metric(def.name)
            || !condition.valid().any(|t| t.metrics.contains_key(def.name))
        {
            continue;
        }
        // The latency of single operations.
        if tail::too_short(std::iter::once(condition), &def).is_some() {
            continue;
        }
        let values = condition.values(def.name);
        let value = central(&values).filter(|_| !tail::is_coarse(condition, &def));
        let at_least = condition.is_bounded(def.name);
        found.insert(def.name.to_owned(), Metric { at_least, ..Metric::new(value, def.unit) });
    }
    found
}

fn server_starts(condition: &ConditionTrials<'_>) -> usize {
    let start = |t: &&Trial| Some((t.server.target.clone(), t.server.started?));
    condition.valid().filter_map(|t| start(&t)).collect::<BTreeSet<_>>().len()
}

fn central(values: &[f64]) -> Option<f64> {
    geometric_mean(values).or_else(|| mean(values))
}

/// The number of checks that passed in the last attempt of every block, and the number of all checks.
fn checks(condition: &ConditionTrials<'_>) -> (usize, usize) {
    let mut names = BTreeSet::new();
    let mut not_passed = BTreeSet::new();
    for check in condition.last_attempts().flat_map(|t| &t.checks) {
        names.insert(&check.id);
        if check.verdict != CheckVerdict::Ok {
            not_passed.insert(&check.id);
        }
    }
    (names.len() - not_passed.len(), names.len())
}
