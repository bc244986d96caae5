//! Predicts the commit latency of a level of synchronous_commit from flush and round trip alone.
//!
//! The probes run without PostgreSQL, one write at a time. A commit at `local` waits for one local
//! flush, `remote_write` also for a round trip, `on` also for the standby's flush, `remote_apply` for at
//! least as much, and `off` for nothing. What the standby's process takes is unknown, so of a commit that waits
//! for it the prediction is a lower bound. Concurrent commits share flushes, so the prediction holds for a
//! single session. The probes run before any treatment, so there is no prediction if a condition or the
//! baseline changes anything that they do not cover, such as a device limit, even if both do, or if a
//! probe is missing, or if a synchronous standby may have been hidden from the role. The delay of a link
//! treatment is included, and so is a primary that does not flush (fsync = off).

use benchmath::summary;

use crate::condition::differing_factors;
use crate::pairing::ConditionTrials;
use pgio_results::Trial;
use pgio_results::change::{Change, Subject, fact};
use pgio_results::model::Facts;
use pgio_results::store::ConditionInfo;
use pgio_results::telemetry::{Probes, StandbyLag};
use pgio_results::units::human;
use serde::{Deserialize, Serialize};

const SETTING: &str = "synchronous_commit";
/// The setting that makes commits wait for standbys.
const STANDBY_NAMES: &str = "synchronous_standby_names";

/// The latency predicted from flush and round trip, as measured without PostgreSQL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Predicted {
    pub seconds: f64,
    /// Half-width of its 95 % interval, from the variation of the probes.
    #[serde(default)]
    pub error: Option<f64>,
    /// Whether the actual latency is higher by an unknown amount.
    pub at_least: bool,
    /// The sum in words.
    pub from: String,
}

/// The steps that a commit waits for, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Flush,
    RoundTrip,
    StandbyFlush,
}

type Side<'a, 'b> = (&'b ConditionInfo, &'b ConditionTrials<'a>);

pub(super) fn predict(class: &str, ours: Side<'_, '_>, theirs: Side<'_, '_>) -> Option<Predicted> {
    let is_commit = matches!(class, "commit" | "transaction");
    let factors = differing_factors(ours.0, theirs.0);
    let only_the_level = factors.iter().all(|f| f.change.sets(SETTING));
    if !is_commit || factors.is_empty() || !only_the_level {
        return None;
    }
    if ![ours.0, theirs.0].iter().all(|info| is_predictable(info)) {
        return None;
    }
    let (level, from) = (level(ours)?, level(theirs)?);
    if from == "remote_apply" {
        return None;
    }
    let replicated = has_synchronous_standby(ours.1);
    let (more, less) = without_common(&steps(&level, replicated)?, &steps(&from, replicated)?);
    let trials: Vec<&Trial> = ours.1.valid().chain(theirs.1.valid()).collect();
    let added = words(&trials, &more, "")?.join(" + ");
    let mut from = words(&trials, &less, "less the ")?;
    if !added.is_empty() {
        from.insert(0, added);
    }
    if from.is_empty() {
        from.push("both wait for the same".to_owned());
    }
    Some(Predicted {
        seconds: sum(&trials, &more)? - sum(&trials, &less)?,
        error: error(&trials, &[more.as_slice(), &less].concat()),
        at_least: is_lower_bound(&more),
        from: from.join(", "),
    })
}

/// Whether the probes, which ran before the first trial without any treatment, tell what a commit waits
/// for: a treatment that changes anything but the level and the link, such as a device limit, may change
/// the time of a flush.
fn is_predictable(info: &ConditionInfo) -> bool {
    let is_covered = |change: &Change| match &change.subject {
        Subject::Link { .. } => true,
        _ => [SETTING, "fsync", STANDBY_NAMES].iter().any(|s| change.sets(s)),
    };
    info.changes.iter().all(is_covered)
}

/// Predicts the latency of a single commit under a condition.
pub fn alone(info: &ConditionInfo, condition: &ConditionTrials<'_>) -> Option<Predicted> {
    if !is_predictable(info) {
        return None;
    }
    let level = level((info, condition))?;
    let steps = steps(&level, has_synchronous_standby(condition))?;
    let trials: Vec<&Trial> = condition.valid().collect();
    let mut from = words(&trials, &steps, "")?;
    if from.is_empty() {
        from.push("it waits for nothing".to_owned());
    }
    let seconds = sum(&trials, &steps)?;
    Some(Predicted {
        seconds,
        error: error(&trials, &steps),
        at_least: is_lower_bound(&steps),
        from: from.join(" + "),
    })
}

/// A standby also has to wake up, receive and write, and at remote_apply to replay, which no probe measures.
fn is_lower_bound(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::RoundTrip | Step::StandbyFlush))
}

fn sum(trials: &[&Trial], steps: &[Step]) -> Option<f64> {
    // The sum of no floats is -0.
    steps.iter().try_fold(0.0, |sum, step| Some(sum + measured(trials, *step)?))
}

/// Errors of independent probes add by their squares, errors of one probe that serves both flushes by
/// themselves; the round trip is the kernel's own estimate.
fn error(trials: &[&Trial], steps: &[Step]) -> Option<f64> {
    let step_seconds = |step: &Step| {
        let errors = trials.iter().filter_map(|t| {
            let p = probes(t)?;
            match step {
                Step::Flush if t.server.fsync == "off" => Some(0.0),
                Step::Flush => p.flush_error_seconds,
                Step::RoundTrip => Some(0.0),
                Step::StandbyFlush => p.standby_flush_error_seconds,
            }
        });
        summary::median(&errors.collect::<Vec<_>>())
    };
    let errors: Vec<f64> = steps.iter().map(step_seconds).collect::<Option<_>>()?;
    // The sum of no floats is -0.
    Some(if trials.iter().any(|t| probes(t).is_some_and(|p| p.shared_flush)) {
        errors.iter().fold(0.0, |sum, error| sum + error)
    } else {
        errors.iter().fold(0.0_f64, |sum, error| sum.hypot(*error))
    })
}

fn probes(trial: &Trial) -> Option<&Probes> {
    trial.telemetry.as_ref()?.probes.as_ref()
}

fn words(trials: &[&Trial], steps: &[Step], sign: &str) -> Option<Vec<String>> {
    let word = |s: &Step| {
        Some(format!("{sign}{} {}", name(*s), human::latency(measured(trials, *s)? * 1e9)))
    };
    steps.iter().map(word).collect()
}

/// The level in force: as declared, or else as all sessions read it back.
fn level((info, condition): Side<'_, '_>) -> Option<String> {
    let declared = info.changes.iter().rfind(|change| change.sets(SETTING));
    let declared = declared.map(|change| change.value.to_ascii_lowercase());
    declared.or_else(|| {
        let mut read = condition.valid().filter_map(|t| t.settings.get(SETTING));
        let first = read.next()?;
        read.all(|other| other == first).then(|| first.clone())
    })
}

/// Whether any trial had a synchronous standby; `None` if unknown.
fn has_synchronous_standby(condition: &ConditionTrials<'_>) -> Option<bool> {
    let mut found = Some(false);
    for trial in condition.valid() {
        match waits_for_standby(trial) {
            Some(true) => return Some(true),
            known => found = found.and(known),
        }
    }
    found
}

fn waits_for_standby(trial: &Trial) -> Option<bool> {
    let standbys = || trial.telemetry.iter().flat_map(|t| t.standbys.values());
    if standbys().any(StandbyLag::was_synchronous) {
        return Some(true);
    }
    // A role without pg_read_all_stats sees the state of no standby, so one that is seen means that none is hidden.
    let sees_all = standbys().any(|standby| standby.from.is_none());
    let names = fact::setting(STANDBY_NAMES);
    // Only settings that are not the default are stored, and the default is empty.
    let requires_none = |facts: &Facts| {
        let is_known = facts.keys().any(|name| fact::is_setting(name));
        is_known && facts.get(&names).is_none_or(|names| names.trim().is_empty())
    };
    let none_required = requires_none(&trial.environment)
        && trial.targets.values().all(|target| requires_none(&target.environment));
    (sees_all || none_required).then_some(false)
}

/// Without a synchronous standby, the remote levels wait only for the local flush.
fn steps(level: &str, replicated: Option<bool>) -> Option<Vec<Step>> {
    Some(match level {
        "off" => Vec::new(),
        "local" => vec![Step::Flush],
        "on" | "remote_write" | "remote_apply" if !replicated? => vec![Step::Flush],
        "remote_write" => vec![Step::Flush, Step::RoundTrip],
        "on" | "remote_apply" => vec![Step::Flush, Step::RoundTrip, Step::StandbyFlush],
        _ => return None,
    })
}

fn without_common(a: &[Step], b: &[Step]) -> (Vec<Step>, Vec<Step>) {
    let only = |a: &[Step], b: &[Step]| a.iter().filter(|s| !b.contains(s)).copied().collect();
    (only(a, b), only(b, a))
}

fn name(step: Step) -> &'static str {
    match step {
        Step::Flush => "flush",
        Step::RoundTrip => "round trip",
        Step::StandbyFlush => "standby's flush",
    }
}

/// The median over the trials.
fn measured(trials: &[&Trial], step: Step) -> Option<f64> {
    let probe = |trial: &&Trial| {
        let p = probes(trial)?;
        match step {
            Step::Flush if trial.server.fsync == "off" => Some(0.0),
            Step::Flush => p.flush_seconds,
            Step::RoundTrip => Some(p.round_trip_seconds? + p.link_seconds.unwrap_or(0.0)),
            Step::StandbyFlush => p.standby_flush_seconds,
        }
    };
    let values: Vec<f64> = trials.iter().filter_map(probe).collect();
    summary::median(&values)
}
