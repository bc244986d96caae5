//! Checks of a trial that need the other trials: whether the environment was the same, whether only some
//! trials had a checkpoint, whether the data grew, and whether a trial profited from the cache that another one filled.
//! Checks of others are added by [`register`]. Burn-in trials are ignored.
//!
//! These checks run before trials are paired, so that a trial they invalidate is excluded like any
//! other. Only failed checks are returned; a trial that already has a failed check of the same name
//! keeps its own. The experiment loop runs them after each block to decide on repeats, so a verdict may
//! change as more trials come; [`Across`] is updated incrementally. Next: `tally` for the
//! counts, `pairing` for what counts, `findings` for the experiment as a whole.

mod carry_over;
mod environment;
mod servers;
mod tally;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use pgio_results::change::Subject;
use pgio_results::checks::{DATA_DRIFT, decides_checkpoints, remedy, tolerate};
use pgio_results::metrics::{self, DeclaredMetric, Direction};
use pgio_results::model::Facts;
use pgio_results::store::{ConditionInfo, Manifest, StoredExperiment};
use pgio_results::thresholds::DATA_GREW;
use pgio_results::units::human;
use pgio_results::{Check, CheckVerdict, Outcome, Trial};

use self::environment::{
    Expected, ObservedFacts, Pair, Usual, compare_facts, join_differences, verdict,
};
use self::servers::FurtherServers;
use self::tally::{
    CellId, Environment, Tally, cell, checkpoints_begun, data_sets, had_checkpoint, is_described,
};
use crate::condition::differing_factors;

/// Aggregates of the trials so far, as needed to judge one of them.
#[derive(Debug, Clone, Default)]
pub struct Across(Tally);

impl Across {
    pub fn new(manifest: &Manifest, trials: &[Trial]) -> Across {
        let mut across = Across::default();
        trials.iter().for_each(|trial| across.add(manifest, trial));
        across
    }

    pub fn add(&mut self, manifest: &Manifest, trial: &Trial) {
        self.0.add(manifest, trial);
    }

    /// Returns the failed checks of these trials with their indexes, in order. The cost depends on their
    /// number, not on the number of all trials.
    pub fn checks<'a>(
        &self,
        manifest: &Manifest,
        trials: impl IntoIterator<Item = (usize, &'a Trial)>,
    ) -> Vec<(usize, Check)> {
        let mut references = BTreeMap::new();
        let mut further = FurtherServers::new(&self.0, manifest);
        let mut found = Vec::new();
        // Incomplete trials are not checked.
        let complete =
            trials.into_iter().filter(|(_, t)| t.outcome == Outcome::Complete && !t.is_burn_in());
        for (i, trial) in complete {
            let mut all: Vec<Check> = self.growth(trial).into_iter().collect();
            let cell = trial.place.as_ref().and_then(|place| cell(manifest, place));
            if let Some(cell) = cell {
                let reference = references
                    .entry(cell)
                    .or_insert_with(|| Reference::new(&self.0, manifest, cell));
                if let Some(reference) = reference {
                    all.extend(reference.checks(trial));
                }
                all.extend(further.check(cell, trial));
                all.extend(check(manifest, &self.0, trial, cell));
            }
            let known = |c: &Check| {
                trial.checks.iter().any(|own| own.id == c.id && own.verdict != CheckVerdict::Ok)
            };
            for mut check in all.into_iter().filter(|c| !known(c)) {
                tolerate(&mut check, &manifest.rules.tolerate);
                found.push((i, check));
            }
        }
        found
    }

    /// Compares the data size with the size in the server's first trial; of several servers the one that grew most.
    fn growth(&self, trial: &Trial) -> Option<Check> {
        let growth = data_sets(trial).into_iter().filter_map(|(target, data)| {
            let began = self.0.first_bytes(target)?;
            Some((data.bytes_before as f64 / began.max(1) as f64 - 1.0, began, data))
        });
        let (grown, began, data) = growth.max_by(|a, b| a.0.total_cmp(&b.0))?;
        (grown > DATA_GREW.0).then(|| {
            Check::invalid(
                DATA_DRIFT,
                format!(
                    "the data set had grown by {:.0} % since the first trial, from {} to {}",
                    grown * 100.0,
                    human::bytes(began),
                    human::bytes(data.bytes_before)
                ),
                remedy(DATA_DRIFT),
            )
        })
    }
}

/// Attributes the effect of each condition whose private server is not the baseline's.
pub(super) fn attributions(manifest: &Manifest, trials: &[Trial]) -> Vec<String> {
    let tally = Across::new(manifest, trials).0;
    let place = |name: &str| manifest.conditions.iter().position(|c| c.name == name);
    let Some(baseline) = place(&manifest.baseline) else { return Vec::new() };
    let point = manifest.points().iter().position(|p| p == manifest.middle()).unwrap_or(0);
    let Some(there) = tally.environment((baseline, point)) else { return Vec::new() };
    let attribution = |(number, info): (usize, &ConditionInfo)| {
        let ours = tally.environment((number, point)).filter(|o| o.target != there.target)?;
        let (own, usual) = (ours.usual(), there.usual());
        let (facts, baseline) = ((&own, &usual), &manifest.conditions[baseline]);
        let servers = (ours.target.as_str(), there.target.as_str());
        Pair { manifest, info, baseline, facts, servers }.attribution()
    };
    manifest.conditions.iter().enumerate().filter_map(attribution).collect()
}

/// Judges the trials of an experiment; returns failed checks, each with the index of its trial.
pub type CrossCheck = fn(&[Trial]) -> Vec<(usize, Check)>;

static FURTHER: OnceLock<Vec<CrossCheck>> = OnceLock::new();

/// Adds checks to those of this module, once for the whole program.
pub fn register(checks: Vec<CrossCheck>) {
    FURTHER.get_or_init(|| checks);
}

/// Returns the failed checks of all trials with their indexes, in order.
pub fn checks(manifest: &Manifest, trials: &[Trial]) -> Vec<(usize, Check)> {
    let mut found = Across::new(manifest, trials).checks(manifest, trials.iter().enumerate());
    found.extend(carry_over::checks(trials));
    let others = FURTHER.get().into_iter().flatten();
    found.extend(others.flat_map(|check| check(trials)));
    found.sort_by_key(|(i, _)| *i);
    found
}

/// Adds these checks to the trials, once.
pub fn judge(stored: &mut StoredExperiment) {
    if stored.judged {
        return;
    }
    for (i, check) in checks(&stored.manifest, &stored.trials) {
        stored.trials[i].checks.push(check);
    }
    let StoredExperiment { manifest, trials, .. } = stored;
    declare_unknown(&mut manifest.metrics, trials);
    stored.judged = true;
}

/// Declares metrics that this program does not know, such as those of a feature that it was built without: they are
/// compared, and neither direction is better.
fn declare_unknown(declared: &mut Vec<DeclaredMetric>, trials: &[Trial]) {
    for (name, metric) in trials.iter().flat_map(|trial| &trial.metrics) {
        if metrics::find(declared, name).is_none() {
            let (name, unit) = (name.clone(), metric.unit.clone());
            declared.push(DeclaredMetric { name, unit, better: Direction::Neutral, of: None });
        }
    }
}

/// Returns the results with these checks added to the trials.
pub(super) fn judged(stored: &StoredExperiment) -> Cow<'_, StoredExperiment> {
    if stored.judged {
        return Cow::Borrowed(stored);
    }
    let mut judged = stored.clone();
    judge(&mut judged);
    Cow::Owned(judged)
}

/// The expected environment of a trial of one cell.
struct Reference<'a> {
    expected: Expected<'a>,
    /// The warning that the condition runs on another server than the baseline; each of its trials has it.
    elsewhere: Option<Check>,
    /// The last trial's environment and its check, as a cache: the next trial's rarely differs. The
    /// environment includes the mounts, so it covers where the directories are.
    last: Option<(Arc<Facts>, Option<Check>)>,
}

impl<'a> Reference<'a> {
    fn new(tally: &'a Tally, manifest: &'a Manifest, cell: CellId) -> Option<Reference<'a>> {
        let (condition, point) = cell;
        let number = manifest.conditions.iter().position(|c| c.name == manifest.baseline)?;
        let ours = tally.environment(cell)?;
        let theirs = tally.environment((number, point));
        let (info, baseline_info) = (&manifest.conditions[condition], &manifest.conditions[number]);
        // On another server everything may differ; the differences are then part of the comparison.
        let there = theirs.filter(|theirs| theirs.target != ours.target);
        let (own, baseline) = (ours.usual(), theirs.unwrap_or(ours).usual());
        let elsewhere = there.and_then(|there| {
            let facts = (&own, &baseline);
            let servers = (ours.target.as_str(), there.target.as_str());
            let pair = Pair { manifest, info, baseline: baseline_info, facts, servers };
            if pair.is_declared() {
                pair.check()
            } else {
                let here = RecordedServer { usual: &own, environment: ours };
                let there = RecordedServer { usual: &baseline, environment: there };
                Some(other_server(&here, &there, info))
            }
        });
        let baseline = there.is_none().then_some((baseline, baseline_info));
        Some(Reference { expected: Expected { own, baseline, info }, elsewhere, last: None })
    }

    fn checks(&mut self, trial: &Trial) -> impl Iterator<Item = Check> {
        let differs = if is_described(trial) { self.differs(trial) } else { None };
        differs.into_iter().chain(self.elsewhere.clone())
    }

    fn differs(&mut self, trial: &Trial) -> Option<Check> {
        if let Some((last, found)) = &self.last
            && *last == trial.environment
        {
            return found.clone();
        }
        let storage = trial.telemetry.as_ref().map_or(&[][..], |t| &t.storage);
        let differences =
            self.expected.differences(ObservedFacts { facts: &trial.environment, storage });
        let unread = self.expected.is_unread(&trial.environment).then_some("the server's host");
        let found = verdict(&differences, unread);
        self.last = Some((Arc::clone(&trial.environment), found.clone()));
        found
    }
}

/// A server as the trials of one cell recorded it.
struct RecordedServer<'a> {
    /// The usual values of `environment`.
    usual: &'a Usual<'a>,
    environment: &'a Environment,
}

/// Warns that a condition runs on another server than the baseline.
fn other_server(
    here: &RecordedServer<'_>,
    there: &RecordedServer<'_>,
    info: &ConditionInfo,
) -> Check {
    let facts = compare_facts(here.usual, there.usual);
    let differing: Vec<String> = facts.into_iter().map(|fact| fact.text).collect();
    let what = match differing.len() {
        0 => "the recorded environment does not differ".to_owned(),
        _ => join_differences(&differing),
    };
    Check::warning(
        "environment-differs",
        format!(
            "`{}` runs on {}, the baseline on {}: {what}; all of it is part of the effect",
            info.name, here.environment.target, there.environment.target
        ),
        "compare conditions on one server if possible",
    )
}

// Checks whether only some trials had a checkpoint inside the window. If no condition decides when checkpoints
// happen, that is chance, and the report warns. If a condition changes max_wal_size or a similar setting,
// checkpoints are part of its effect, under the condition as well as under the baseline; so they are if pgio forces
// none.

const ID: &str = "checkpoint-in-one-condition";

fn check(manifest: &Manifest, tally: &Tally, trial: &Trial, cell: CellId) -> Option<Check> {
    if !had_checkpoint(trial) {
        return None;
    }
    let effects = effects(manifest);
    let by_chance = |condition: usize| {
        let name = manifest.conditions.get(condition).map(|c| c.name.as_str());
        name.is_some_and(|name| !effects.contains_key(name))
    };
    let counts = tally.checkpoints(cell.1, by_chance);
    let is_usual = counts.with_checkpoint * 2 > counts.counted;
    let began = format!(
        "{} began inside the window",
        counted_checkpoints(checkpoints_begun(trial).unwrap_or_default())
    );
    let name = trial.place.as_ref().map_or("", |p| p.condition.as_str());
    let setting = effects.get(name).cloned();
    if let Some(effect) = setting.or_else(|| compared(manifest, name, &effects)) {
        let message = format!("{began}: {effect}, so this is part of the effect");
        let remedy = "lengthen the window to measure their cost more exactly";
        return Some(Check::warning(ID, message, remedy));
    }
    if is_usual {
        return None;
    }
    let mode = &manifest.rules.checkpoint;
    let (message, remedy) = if ["spread", "none"].contains(&mode.as_str()) {
        (
            format!("{began}: with checkpoint = \"{mode}\" the server decides when"),
            "make windows long enough that each contains the same number",
        )
    } else {
        (
            format!(
                "{began}, as in {} of {} trials: checkpoints slow only some trials",
                counts.with_checkpoint, counts.counted
            ),
            "raise max_wal_size and checkpoint_timeout, or make windows long enough that each \
             contains several",
        )
    };
    Some(Check::warning(ID, message, remedy))
}

/// Conditions with a setting that decides checkpoints and differs from the baseline, with the setting.
fn effects(manifest: &Manifest) -> BTreeMap<&str, String> {
    let Some(baseline) = manifest.conditions.iter().find(|c| c.name == manifest.baseline) else {
        return BTreeMap::new();
    };
    let deciding = |info: &ConditionInfo| {
        let factors = differing_factors(info, baseline).into_iter().map(|f| f.change);
        let mut settings = factors.filter(|c| c.subject == Subject::Server).map(|c| &c.setting);
        let name = settings.find(|name| decides_checkpoints(name))?;
        Some(format!("`{}` and `{}` differ in {name}", info.name, baseline.name))
    };
    let others = manifest.conditions.iter().filter(|c| c.name != baseline.name);
    others.filter_map(|info| Some((info.name.as_str(), deciding(info)?))).collect()
}

/// The baseline and its twin have the other half of such an effect.
fn compared(manifest: &Manifest, name: &str, effects: &BTreeMap<&str, String>) -> Option<String> {
    let is_baseline = name == manifest.baseline || manifest.aa.as_deref() == Some(name);
    effects.values().next().filter(|_| is_baseline).cloned()
}

fn counted_checkpoints(n: f64) -> String {
    if n == 1.0 { "a checkpoint".to_owned() } else { format!("{n} checkpoints") }
}
