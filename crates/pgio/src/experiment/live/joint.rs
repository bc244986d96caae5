//! The trial of a condition on several servers in one window.
//!
//! [`check`] refuses servers that cannot share a window: the same server twice, other data sets, clocks that cannot be
//! read well enough. Next: `experiment::trial::joint`, which runs the trial.

use std::collections::BTreeMap;

use super::Live;
use crate::config::resolve::Extent;
use crate::experiment::companion::{self, WindowStart};
use crate::experiment::event::Event;
use crate::experiment::live::LiveError;
use crate::experiment::plan::{Planned, trial_seed};
use crate::experiment::results::place;
use crate::experiment::target::Target;
use crate::experiment::trial::{self, JointTrial, Request};
use crate::experiment::trial_checks;
use crate::pg::words;
use crate::treatment;
use crate::workload::clock::ClockReading;
use pgio_results::joint;
use pgio_results::model::{DatasetInfo, Metric, Trial};
use pgio_results::thresholds::PARTICIPANTS_APART;

impl Live<'_> {
    /// Runs the trial of a condition with several servers; keeps samples for the next `store`.
    pub(super) fn joint_trial(&mut self, planned: &Planned) -> Trial {
        let cell = &self.results.cells[planned.cell];
        let names: Vec<&String> = cell.targets().collect();
        let place = place(&self.results.experiment, cell, planned);
        let manifest = &self.results.stored.manifest;
        let asked = joint::judged_metrics(&manifest.primary_metric, &manifest.rules.also_judge);
        let declared = treatment::changes(&cell.treatments);
        let Planned { block, attempt, .. } = *planned;
        let seed = trial_seed(self.seed, &self.workload, &cell.cell, block, attempt);
        let condition = &cell.cell.condition;
        let beside = companion::begin(&self.companions, condition, seed, &self.stop);
        let stop = self.stop.child();
        let mut targets: Vec<(usize, &String, &mut Target)> = (self.targets.iter_mut())
            .filter_map(|(name, target)| {
                Some((names.iter().position(|n| *n == name)?, name, target))
            })
            .collect();
        targets.sort_by_key(|(position, ..)| *position);
        let (mut requests, mut admins, mut in_force) = (Vec::new(), Vec::new(), Vec::new());
        let mut devices = Vec::new();
        for (position, name, target) in targets {
            let prepared = match position {
                0 => &self.checked.prepared[planned.cell],
                _ => &self.checked.prepared_further[&(planned.cell, name.clone())],
            };
            in_force.push(match position {
                0 => std::mem::take(&mut self.in_force),
                _ => self.further_servers.take(name),
            });
            // Hosts are sampled once for all servers.
            if let (0, Some(sources)) = (position, &mut target.sources) {
                sources.watch_neighbors(companion::backends(&beside));
            }
            devices.extend(target.device.clone().map(|device| (name.clone(), device)));
            let request = Request {
                run_id: &self.run_id,
                place: Some(place.clone()),
                params: &target.params,
                server: &target.server,
                workload: &target.workloads[cell.work],
                declared: &declared,
                reads_settings: self.checked.any_session_settings,
                session_settings: prepared.iter().flat_map(|p| p.session_settings()).collect(),
                warmup: self.warmup,
                checkpoint: self.results.rules.checkpoint,
                seed,
                stop: &stop,
                sources: target.sources.as_ref(),
                hosts: &self.hosts,
                server_host: target.host.as_deref(),
                private: target.cluster.is_some(),
                member: None,
                generator: self.generators.get(name).cloned().unwrap_or_default(),
            };
            requests.push((name.clone(), request));
            admins.push(&mut target.admin);
        }
        let joint = JointTrial { requests, stop: &stop, asked: &asked };
        let observe = &mut *self.results.observe;
        let title = cell.title.as_str();
        let mut window = WindowStart::default();
        let mut progress = |progress| {
            window.note(&progress);
            observe(Event::Progress { condition: title, progress });
        };
        let measured = trial::run_joint(joint, &mut in_force, admins, &mut progress);
        let mut trial = measured.trial;
        let number = self.results.stored.trials.len() + 1;
        self.results.output = companion::end(beside, window, &self.stop, number, &mut trial);
        self.results.series = measured.series;
        trial.checks.extend(storage(&trial, &devices));
        self.results.end(planned, &mut trial, None);
        // What is in force lasts until it is undone.
        self.in_force = in_force.into_iter().flatten().collect();
        trial
    }

    /// Whether some condition has several servers, so that the metrics of single servers are compared.
    pub(super) fn compares_servers(&self) -> bool {
        self.results.cells.iter().any(|cell| !cell.further_targets.is_empty())
    }

    /// Adds to the trial of a single server the metrics by which it is compared with itself beside others.
    pub(super) fn add_own_metrics(&self, trial: &mut Trial, name: &str) {
        let manifest = &self.results.stored.manifest;
        let asked = joint::judged_metrics(&manifest.primary_metric, &manifest.rules.also_judge);
        for metric in joint::compared_metrics(&asked) {
            if let Some(found) = trial.metrics.get(metric).cloned() {
                trial.metrics.insert(joint::metric_name(metric, name), found);
            }
        }
        if trial.metrics.contains_key(asked[0]) {
            let share = Metric::new(Some(1.0), "share");
            trial.metrics.insert(joint::metric_name(joint::SHARE, name), share);
        }
    }
}

/// Checks that each server with a device under test has its files there.
fn storage(trial: &Trial, devices: &[(String, String)]) -> Option<pgio_results::Check> {
    let found = devices.iter().map(|(name, device)| {
        let telemetry = trial.targets.get(name).and_then(|target| target.telemetry.as_ref());
        let storage = telemetry.map(|t| t.storage.as_slice()).unwrap_or_default();
        let check = trial_checks::lies_on(storage, device);
        pgio_results::Check { message: format!("{name}: {}", check.message), ..check }
    });
    found.max_by_key(|check| check.verdict)
}

/// Refuses servers that cannot be measured together; skips targets that are not among these.
pub(super) fn check(
    title: &str,
    names: &[&String],
    work: usize,
    targets: &mut BTreeMap<String, Target>,
) -> Result<(), LiveError> {
    let refused = |why| LiveError::Joint { condition: title.to_owned(), why };
    let mut first: Option<(&String, Option<DatasetInfo>)> = None;
    for name in names.iter().copied() {
        let same = |other: &&String| {
            let identity = |name: &String| targets.get(name).map(|target| &target.identity);
            *other != name && identity(other).is_some() && identity(other) == identity(name)
        };
        if let Some(other) = names.iter().copied().take_while(|n| *n != name).find(same) {
            return Err(refused(format!("targets `{other}` and `{name}` are the same server")));
        }
        let Some(target) = targets.get_mut(name) else { continue };
        check_clock(work, target).map_err(|why| refused(format!("target `{name}`: {why}")))?;
        let data = target.workloads[work].dataset(&mut target.admin)?;
        match &first {
            None => first = Some((name, data)),
            Some((other, known)) => {
                if let Some(what) = difference(known.as_ref(), data.as_ref()) {
                    let why = format!("the data sets of `{other}` and `{name}` differ: {what}");
                    return Err(refused(why));
                }
            }
        }
    }
    Ok(())
}

/// Refuses a server whose start could not be known to a hundredth of the window.
fn check_clock(work: usize, target: &mut Target) -> Result<(), String> {
    let Extent::Time(window) = target.workloads[work].extent() else {
        return Err("a number of transactions has no common end; name a duration".to_owned());
    };
    let reading = ClockReading::take(&mut target.admin).map_err(|e| words::sentence(&e))?;
    let error = reading.round_trip / 2;
    if error > window.mul_f64(PARTICIPANTS_APART.0) {
        return Err(format!(
            "its clock can be read to {:.0} ms only, more than 1 % of the window; use windows of at least {:.0} s",
            error.as_secs_f64() * 1e3,
            (error.as_secs_f64() / PARTICIPANTS_APART.0).ceil()
        ));
    }
    Ok(())
}

/// Names what differs between two data sets.
fn difference(one: Option<&DatasetInfo>, other: Option<&DatasetInfo>) -> Option<String> {
    let (one, other) = (one?, other?);
    let facts = |data: &DatasetInfo| {
        [
            ("tables", data.tables.to_string()),
            ("scale", data.scale.clone()),
            ("blocks", data.blocks_per_table.to_string()),
            ("rows", data.layout.to_string()),
        ]
    };
    let pairs = facts(one).into_iter().zip(facts(other));
    let mut differing = pairs.filter(|(a, b)| a.1 != b.1);
    differing.next().map(|((what, one), (_, other))| format!("{what} {one} and {other}"))
}
