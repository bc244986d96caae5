//! What accompanies trials, from before their warm-up to after their window: what a feature must offer for that.
//!
//! [`Companions`] is what a file asks for; `application` prepares it with each workload as a [`Companion`], and `live`
//! begins and ends an [`Accompaniment`] with each trial.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, Instant};

use super::application::{Job, OpenError, TargetServer};
use super::event::Observer;
use super::live::{LiveCell, LiveError};
use super::trial::OutputFiles;
use crate::config::experiment::{AA_SUFFIX, WorkloadSpec};
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::treatment::Resource;
use crate::workload::Progress;
use pgio_results::model::Trial;

/// What an experiment file asks for beside its trials.
pub trait Companions: Debug {
    /// Sentences for `--plan`.
    fn plan_lines(&self) -> Vec<String>;

    /// The workloads among them.
    fn work(&self) -> Vec<&WorkloadSpec>;

    /// Refuses what could not be prepared, without changing anything. Returns what they take from the servers that
    /// exist, which are `servers`.
    fn check(
        &self,
        job: &Job,
        servers: &BTreeMap<String, TargetServer>,
        hosts: &Hosts,
        observe: &mut Observer<'_>,
    ) -> Result<Vec<Reservation>, OpenError>;

    /// Prepares those that accompany a workload.
    fn prepare(
        &self,
        run: &Accompanied<'_>,
        observe: &mut Observer<'_>,
    ) -> Result<Box<dyn Companion>, OpenError>;
}

/// The workload that is accompanied.
#[derive(Debug, Clone, Copy)]
pub struct Accompanied<'a> {
    pub job: &'a Job,
    pub workload: &'a WorkloadSpec,
    pub cells: &'a [LiveCell],
    pub servers: &'a BTreeMap<String, TargetServer>,
    pub run_id: &'a str,
    pub stop: &'a Stop,
}

/// Ready to accompany the trials of a workload.
pub trait Companion: Debug {
    /// What it takes from servers.
    fn reservations(&self) -> Vec<Reservation>;

    /// Has on disk, in `dir`, what `undo` needs to remove what it will create.
    fn journal(&mut self, dir: &Path, experiment: &str) -> Result<(), LiveError>;

    /// Begins beside a condition; returns when it works or has failed. A failure never ends the trial.
    fn begin(&self, condition: &str, seed: u64, stop: &Stop) -> Box<dyn Accompaniment + '_>;

    /// Removes what it created, as far as servers answer; the journal keeps the rest.
    fn clean_up(&mut self);
}

/// A companion during a trial. Dropping it ends it.
pub trait Accompaniment: Debug {
    /// Host and a backend of each server that it uses.
    fn backends(&self) -> &[(String, i32)];

    /// Ends it and adds what it did, with its checks, to the trial of this number. Returns what its programs wrote.
    fn end(
        self: Box<Self>,
        window: WindowStart,
        stop: &Stop,
        number: usize,
        trial: &mut Trial,
    ) -> OutputFiles;
}

/// Connections that a companion takes from a server beside some conditions.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// What takes them, for messages.
    pub what: &'static str,
    pub conditions: Vec<String>,
    pub server: Resource,
    pub connections: u32,
}

/// Returns the connections that companions take from a server beside a condition, and which companions. Two targets may
/// be databases of one server.
pub fn connections_beside(
    all: &[Reservation],
    condition: &str,
    server: &Resource,
) -> (u32, Vec<&'static str>) {
    let here = all.iter().filter(|r| r.server == *server && is_beside(&r.conditions, condition));
    let mut what: Vec<&str> = here.clone().map(|r| r.what).collect();
    what.dedup();
    (here.fold(0_u32, |sum, r| sum.saturating_add(r.connections)), what)
}

/// Whether a companion of these conditions accompanies this one: also the second copy of a named baseline, which must
/// not differ from the first.
pub fn is_beside(conditions: &[String], condition: &str) -> bool {
    let original = condition.strip_suffix(AA_SUFFIX).unwrap_or(condition);
    conditions.iter().any(|name| name == condition || name == original)
}

/// Begins all companions of a condition.
pub(super) fn begin<'a>(
    all: &'a [Box<dyn Companion>],
    condition: &str,
    seed: u64,
    stop: &Stop,
) -> Vec<Box<dyn Accompaniment + 'a>> {
    all.iter().map(|companion| companion.begin(condition, seed, stop)).collect()
}

/// Hosts and backends of the servers that they use.
pub(super) fn backends(all: &[Box<dyn Accompaniment + '_>]) -> Vec<(String, i32)> {
    all.iter().flat_map(|running| running.backends()).cloned().collect()
}

/// Ends them. Returns what their programs wrote.
pub(super) fn end(
    all: Vec<Box<dyn Accompaniment + '_>>,
    window: WindowStart,
    stop: &Stop,
    number: usize,
    trial: &mut Trial,
) -> OutputFiles {
    all.into_iter().flat_map(|running| running.end(window, stop, number, trial)).collect()
}

/// When the judged window opened, as seen from its progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct WindowStart(pub Option<Instant>);

impl WindowStart {
    pub fn note(&mut self, progress: &Progress) {
        self.0.get_or_insert_with(|| {
            let now = Instant::now();
            now.checked_sub(Duration::from_secs_f64(progress.elapsed)).unwrap_or(now)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companions_take_connections_of_their_server_in_their_conditions() {
        let server = |number: &str| Resource::server(&format!("{number} at port 5432"));
        let takes = |conditions: &[&str], number, connections| {
            let conditions = conditions.iter().map(|name| (*name).to_owned()).collect();
            Reservation { what: "work", conditions, server: server(number), connections }
        };
        let all = [takes(&["alone", "noisy"], "7", 31), takes(&["noisy"], "7", 5)];
        let beside =
            |condition: &str, number| connections_beside(&all, condition, &server(number)).0;
        assert_eq!([beside("alone", "7"), beside("noisy", "7")], [31, 36]);
        // The second copy of a condition is measured beside the same work.
        assert_eq!(beside("alone (A/A)", "7"), 31);
        assert_eq!(beside("noisy", "8"), 0, "another server");
        assert_eq!(connections_beside(&all, "noisy", &server("7")).1, ["work"], "named once");
        let elsewhere = [takes(&["alone", "noisy"], "7", 31), takes(&["noisy"], "8", 5)];
        assert_eq!(connections_beside(&elsewhere, "noisy", &server("8")).0, 5);
    }
}
