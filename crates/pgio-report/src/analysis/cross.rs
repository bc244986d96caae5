//! Checks of a trial that need the other trials: was the environment the same, did a checkpoint
//! hit some and not others, did the data grow, did one read from the cache what another had fetched.
//! A burn-in trial is no part of any of them.
//!
//! Applied before trials are paired, so that what fails here is left out like any other INVALID
//! trial. Only faults are returned; a trial that already carries a check of the same name keeps
//! its own. The experiment loop asks after each block to decide on repeating a trial, so a verdict may
//! change as more trials come; [`Across`] is added to and never computed anew. Next: `tally` for the
//! counts, `pairing` for what counts, `findings` for the experiment as a whole.

mod carry_over;
mod checkpoints;
mod tally;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use self::tally::{CellId, Environment, Tally, cell, is_described};
use pgio_results::change::fact;
use pgio_results::checks::tolerate;
use pgio_results::model::Facts;
use pgio_results::store::{ConditionInfo, Manifest, StoredExperiment};
use pgio_results::units::human;
use pgio_results::{Check, CheckVerdict, Outcome, Trial};

/// The data may be larger than before the first trial by this much.
const GROWTH: f64 = 0.05;

/// Differences told one by one; more would hide the first.
const TOLD: usize = 5;

/// The trials so far, as far as a verdict on one of them needs the others.
#[derive(Debug, Clone, Default)]
pub struct Across(Tally);

impl Across {
    pub fn of(manifest: &Manifest, trials: &[Trial]) -> Across {
        let mut across = Across::default();
        trials.iter().for_each(|trial| across.add(manifest, trial));
        across
    }

    pub fn add(&mut self, manifest: &Manifest, trial: &Trial) {
        self.0.add(manifest, trial);
    }

    /// What is wrong with these trials, by their indexes and in their order. The work goes with their
    /// number, not with that of all trials.
    pub fn checks<'a>(
        &self,
        manifest: &Manifest,
        trials: impl IntoIterator<Item = (usize, &'a Trial)>,
    ) -> Vec<(usize, Check)> {
        let mut references = BTreeMap::new();
        let mut found = Vec::new();
        // Of trials that did not complete nothing is said.
        let complete =
            trials.into_iter().filter(|(_, t)| t.outcome == Outcome::Complete && !t.is_burn_in());
        for (i, trial) in complete {
            let mut all: Vec<Check> = self.growth(trial).into_iter().collect();
            let cell = trial.place.as_ref().and_then(|place| cell(manifest, place));
            if let Some(cell) = cell {
                let reference = references
                    .entry(cell)
                    .or_insert_with(|| Reference::of(&self.0, manifest, cell));
                if let Some(reference) = reference {
                    all.extend(reference.checks(trial));
                }
                all.extend(checkpoints::check(manifest, &self.0, trial, cell));
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

    /// Each server's trials against the first of them.
    fn growth(&self, trial: &Trial) -> Option<Check> {
        let data = trial.dataset.as_ref()?;
        let began = self.0.first_bytes(&trial.server.target)?;
        let grown = data.bytes_before as f64 / began.max(1) as f64 - 1.0;
        (grown > GROWTH).then(|| {
            Check::invalid(
                "data-drift",
                format!(
                    "the data set had grown by {:.0} % since the first trial, from {} to {}",
                    grown * 100.0,
                    human::bytes(began),
                    human::bytes(data.bytes_before)
                ),
                "put reset = \"reload\" under [experiment], so that every trial begins with the \
                 same data",
            )
        })
    }
}

/// What is wrong with every trial, by its index, in their order.
pub fn checks(manifest: &Manifest, trials: &[Trial]) -> Vec<(usize, Check)> {
    let mut found = Across::of(manifest, trials).checks(manifest, trials.iter().enumerate());
    found.extend(carry_over::checks(trials));
    found.sort_by_key(|(i, _)| *i);
    found
}

/// Puts these checks into the trials' records, once.
pub fn judge(stored: &mut StoredExperiment) {
    if stored.judged {
        return;
    }
    for (i, check) in checks(&stored.manifest, &stored.trials) {
        stored.trials[i].checks.push(check);
    }
    stored.judged = true;
}

/// The same results with these checks in the trials' records.
pub(super) fn judged(stored: &StoredExperiment) -> Cow<'_, StoredExperiment> {
    if stored.judged {
        return Cow::Borrowed(stored);
    }
    let mut judged = stored.clone();
    judge(&mut judged);
    Cow::Owned(judged)
}

/// What each name of the environment should be in a trial of a condition at a point.
struct Reference<'a> {
    own: BTreeMap<&'a str, Option<&'a str>>,
    baseline: BTreeMap<&'a str, Option<&'a str>>,
    info: &'a ConditionInfo,
    baseline_info: &'a ConditionInfo,
    same_server: bool,
    /// That it runs on another server, said of every trial there, so that it is told once for the condition.
    elsewhere: Option<Check>,
    /// The last trial's environment and what was wrong with it: the next one hardly ever differs. Where
    /// its directories lie is part of the environment, by its mounts.
    last: Option<(Arc<Facts>, Option<Check>)>,
}

impl<'a> Reference<'a> {
    fn of(tally: &'a Tally, manifest: &'a Manifest, cell: CellId) -> Option<Reference<'a>> {
        let (condition, point) = cell;
        let number = manifest.conditions.iter().position(|c| c.name == manifest.baseline)?;
        let ours = tally.environment(cell)?;
        let theirs = tally.environment((number, point));
        let (info, baseline_info) = (&manifest.conditions[condition], &manifest.conditions[number]);
        // On another server everything may differ; that is then part of what is compared.
        let there = theirs.filter(|theirs| theirs.target != ours.target);
        let (own, baseline) = (ours.usual(), theirs.unwrap_or(ours).usual());
        let elsewhere = there.map(|there| other_server((&own, ours), (&baseline, there), info));
        let same_server = there.is_none();
        Some(Reference { own, baseline, info, baseline_info, same_server, elsewhere, last: None })
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
        let found = self.compared(trial);
        self.last = Some((Arc::clone(&trial.environment), found.clone()));
        found
    }

    fn compared(&self, trial: &Trial) -> Option<Check> {
        let baseline = &self.baseline_info.name;
        let mut differences = Vec::new();
        for name in
            self.own.keys().chain(self.baseline.keys().filter(|k| !self.own.contains_key(*k)))
        {
            let found = trial.environment.get(*name).map(String::as_str);
            let own = || !self.same_server || self.is_declared(name, trial);
            // What is as under both needs no look at what is declared.
            let of = |map: &BTreeMap<&str, Option<&'a str>>| map.get(name).copied().flatten();
            if found == of(&self.own) && found == of(&self.baseline) {
                continue;
            }
            let (expected, of) = if self.info.name == *baseline || own() {
                (of(&self.own), "in most of its trials".to_owned())
            } else {
                (of(&self.baseline), format!("under `{baseline}`"))
            };
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

    /// Whether a change of the condition's, or of the baseline's, decides this fact of the trial.
    fn is_declared(&self, fact: &str, trial: &Trial) -> bool {
        let storage = trial.telemetry.as_ref().map_or(&[][..], |t| &t.storage);
        let mut changes = [self.info, self.baseline_info].into_iter().flat_map(|c| &c.changes);
        changes.any(|change| change.decides(fact, storage))
    }
}

/// Options of a DRBD connection go with it; that it is gone is told by its protocol.
fn is_gone(name: &str, values: [Option<&str>; 2]) -> bool {
    fact::is_drbd_network(name) && values.contains(&None)
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

fn other_server(
    (own, here): (&BTreeMap<&str, Option<&str>>, &Environment),
    (baseline, there): (&BTreeMap<&str, Option<&str>>, &Environment),
    info: &ConditionInfo,
) -> Check {
    let names = own.keys().chain(baseline.keys());
    let mut differing: Vec<&str> =
        names.filter(|n| own.get(*n) != baseline.get(*n)).copied().collect();
    differing.sort_unstable();
    differing.dedup();
    let names = match differing.len() {
        0 => "nothing recorded of the environment differs".to_owned(),
        _ => told(&differing.iter().map(|n| format!("{n} differs")).collect::<Vec<_>>()),
    };
    Check::warning(
        "environment-differs",
        format!(
            "`{}` runs on {}, the baseline on {}: {names}; all of it is part of the effect",
            info.name, here.target, there.target
        ),
        "compare conditions of one server where you can",
    )
}

#[cfg(test)]
mod tests;
