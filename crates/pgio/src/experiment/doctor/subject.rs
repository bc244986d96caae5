//! What the doctor checks: the servers that an experiment or pgio.conf names, and the work to be run
//! there. Follows from files and the environment alone; connects to no server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::command::CommandSpec;
use crate::config::experiment::{
    self, ControlMethod, HostSpec, Target, WorkloadKind, WorkloadSpec,
};
use crate::config::resolve::Extent;
use crate::config::{CommitSettings, ConnectString, Layer, kinds};
use crate::experiment::application::Job;
use crate::experiment::state;
use crate::experiment::target::{self, ConnectionKeys};
use crate::feature;
use crate::treatment::{self, Treatments};
use pgio_connect::{ConnectError, ConnectParams};
use pgio_results::Warning;

/// Everything that a run would use.
#[derive(Debug, Default)]
pub struct Scope {
    pub(super) hosts: BTreeMap<String, HostSpec>,
    pub(super) subjects: Vec<Subject>,
    /// Workloads of the kind `command`, by name.
    pub(super) commands: Vec<(String, CommandSpec)>,
}

/// A server and the work to be run there.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) title: String,
    pub(super) access: ServerAccess,
    /// The name of its host, if the experiment names one.
    pub(super) host: Option<String>,
    /// The device under test, if the experiment names one.
    pub(super) device: Option<String>,
    /// How pgio may stop and start it.
    pub(super) control: Option<ControlMethod>,
    pub(super) work: Vec<Work>,
    pub(super) conditions: Vec<Condition>,
}

#[derive(Debug)]
pub(super) enum ServerAccess {
    Server(Box<ConnectParams>),
    /// A private server, not created yet: only its programs can be checked.
    Private {
        major: Option<u32>,
        /// Directories in which it will be created; none means the default.
        directories: Vec<PathBuf>,
    },
}

/// One workload, as far as known without the data set.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) kind: WorkloadKind,
    pub(super) layer: Layer,
}

#[derive(Debug)]
pub(super) struct Condition {
    pub(super) name: String,
    pub(super) treatments: Treatments,
}

impl Scope {
    /// Returns what `pgio run` would use. `warn` receives what libpq would ignore in the connection
    /// parameters.
    pub fn from_keys(
        given: ConnectionKeys,
        warn: &mut dyn FnMut(&Warning),
    ) -> Result<Scope, ConnectError> {
        let params = resolve(&given.connect_string(), warn)?;
        let subject = Subject {
            title: format!("Server: {}", params.describe()),
            access: ServerAccess::Server(Box::new(params)),
            host: None,
            device: None,
            control: None,
            work: vec![Work { kind: kinds::SLOB, layer: given.layer }],
            conditions: Vec::new(),
        };
        Ok(Scope { subjects: vec![subject], ..Scope::default() })
    }

    /// Returns what `pgio compare` would use. `warn` receives what libpq would ignore in the connection
    /// parameters.
    pub fn from_experiment(
        job: &Job,
        warn: &mut dyn FnMut(&Warning),
    ) -> Result<Scope, ConnectError> {
        let experiment = &job.experiment;
        let targets = experiment.targets.iter().map(|(name, target)| (Some(name), Some(target)));
        // Without a target, pgio.conf or the environment names the server.
        let none = experiment.targets.is_empty().then_some((None, None));
        let subjects = targets.chain(none);
        let subjects = subjects.map(|(name, target)| subject_of_target(job, name, target, warn));
        let subjects = subjects.collect::<Result<_, _>>()?;
        let companions: Vec<_> = feature::companions(job).collect();
        let beside = companions.iter().flat_map(|companions| companions.work());
        let commands = experiment.workloads.iter().chain(beside);
        let commands = commands.filter_map(|w| Some((w.name.clone(), w.command.clone()?)));
        let commands = commands.collect();
        Ok(Scope { subjects, hosts: experiment.hosts.clone(), commands })
    }
}

impl Subject {
    /// Warm-up and window of the longest workload; none if only transactions are counted.
    pub(super) fn longest(&self) -> Option<Duration> {
        self.work.iter().filter_map(Work::length).max()
    }

    pub(super) fn writes(&self) -> bool {
        self.work.iter().any(|w| w.kind.def().writes || w.writes())
    }

    /// Whether every condition sets it.
    pub(super) fn declares(&self, setting: &str) -> bool {
        let declares = |condition: &Condition| treatment::declares(&condition.treatments, setting);
        !self.conditions.is_empty() && self.conditions.iter().all(declares)
    }
}

impl Work {
    fn writes(&self) -> bool {
        self.layer.update_pct > Some(0) || self.layer.insert_pct.is_some_and(|pct| !pct.is_zero())
    }

    fn length(&self) -> Option<Duration> {
        let settings = CommitSettings::resolve(self.layer.clone()).ok()?;
        match settings.extent {
            Extent::Time(_) if self.layer.work_loop.is_some() => None,
            Extent::Time(window) => Some(window + settings.warmup),
            Extent::Transactions(_) | Extent::Calls(_) => None,
        }
    }
}

fn resolve(
    text: &ConnectString,
    warn: &mut dyn FnMut(&Warning),
) -> Result<ConnectParams, ConnectError> {
    target::params_with_warnings(text, &state::new_run_id(), warn)
}

fn subject_of_target(
    job: &Job,
    name: Option<&String>,
    target: Option<&Target>,
    warn: &mut dyn FnMut(&Warning),
) -> Result<Subject, ConnectError> {
    let (host, device, control) = match target {
        Some(Target::Server { host, device, control, .. }) => {
            (host.clone(), device.clone(), control.clone())
        }
        _ => (None, None, None),
    };
    let access = match target {
        Some(Target::Private(private)) => {
            let directories = private.directories().cloned().collect();
            ServerAccess::Private { major: private.major, directories }
        }
        Some(Target::Server { dsn, .. }) => ServerAccess::Server(Box::new(resolve(dsn, warn)?)),
        None => ServerAccess::Server(Box::new(resolve(&job.base_keys.connect_string(), warn)?)),
    };
    let what = match &access {
        ServerAccess::Server(params) => params.describe(),
        ServerAccess::Private { .. } => "a private one".to_owned(),
    };
    let title = match name.filter(|_| job.experiment.targets.len() > 1) {
        Some(name) => format!("Server {name}: {what}"),
        None => format!("Server: {what}"),
    };
    let here = |c: &experiment::Condition| match name {
        Some(name) => c.targets().any(|target| target == name),
        None => c.target.is_none(),
    };
    let mut conditions = Vec::new();
    let e = &job.experiment;
    for condition in e.conditions.iter().filter(|c| here(c)) {
        // Axes that change conditions are the same for each workload.
        let mut seen = Vec::new();
        for workload in e.workloads.iter().take(1) {
            for point in workload.points(e.combination) {
                let specs = workload.treatments_at(condition, &point);
                if !seen.contains(&specs) {
                    let treatments = job.treatments.get(&specs);
                    conditions.push(Condition { name: condition.name.clone(), treatments });
                    seen.push(specs);
                }
            }
        }
    }
    let runs_here = |w: &&WorkloadSpec| job.experiment.conditions_of(w).any(here);
    let mut work: Vec<Work> = Vec::new();
    for w in e.workloads.iter().filter(runs_here) {
        let layers = w.points(e.combination).into_iter().map(|point| w.layer_at(&point));
        let layers = layers.map(|layer| layer.over(job.base_keys.layer.clone()));
        work.extend(layers.map(|layer| Work { kind: w.kind, layer }));
    }
    Ok(Subject { title, access, host, device, control, work, conditions })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second server's parameters follow `last`.
    fn scope(last: &str) -> (Result<Scope, ConnectError>, Vec<String>) {
        let text = format!(
            "[targets.a]\ndsn = 'host=h user=u dbname=d sslcert=/no/such/cert'\n\
             [targets.b]\ndsn = 'host=h user=u dbname=d {last}'\n\
             [workload]\nkind = 'commit'\n\
             [[condition]]\nname = 'first'\ntarget = 'a'\n\
             [[condition]]\nname = 'second'\ntarget = 'b'\n"
        );
        let job = Job::parse(&text, "x.toml", "x", ConnectionKeys::default()).unwrap();
        let mut warnings = Vec::new();
        let scope = Scope::from_experiment(&job, &mut |warning| warnings.push(warning.to_string()));
        (scope, warnings)
    }

    #[test]
    fn a_server_has_the_conditions_that_name_it() {
        let (scope, _) = scope("port=5433");
        let subjects = scope.unwrap().subjects;
        let titles: Vec<&str> = subjects.iter().map(|s| s.title.as_str()).collect();
        assert!(titles[0].starts_with("Server a: ") && titles[1].starts_with("Server b: "));
        let conditions = subjects.iter().flat_map(|s| s.conditions.iter().map(|c| &c.name));
        assert_eq!(conditions.collect::<Vec<_>>(), ["first", "second"]);
        assert!(subjects.iter().all(Subject::writes));
    }

    #[test]
    fn warnings_precede_the_error_of_a_later_server() {
        let (scope, warnings) = scope("sslmode=sometimes");
        assert!(scope.is_err());
        assert!(warnings[0].contains("/no/such/cert"), "{warnings:?}");
    }
}
