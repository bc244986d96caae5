//! What the doctor checks: the servers that an experiment or pgio.conf names, and the work to be run
//! there. Reads files only; connects to no server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::exit::Failure;
use crate::cli::flags::{ForDoctor, Source};
use crate::cli::{connection, jobs};
use crate::config::command::CommandSpec;
use crate::config::experiment::{
    self, ControlMethod, HostSpec, Target, WorkloadKind, WorkloadSpec,
};
use crate::config::resolve::Extent;
use crate::config::{CommitSettings, Layer};
use crate::experiment::application::Job;
use crate::experiment::state;
use crate::treatment::{self, Treatments};
use pgio_connect::ConnectParams;

/// Everything that a run would use.
#[derive(Debug, Default)]
pub(super) struct Scope {
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

pub(super) fn scope(
    experiment: Option<&Path>,
    source: &Source<ForDoctor>,
) -> Result<Scope, Failure> {
    match experiment {
        Some(file) => scope_of_experiment(file),
        None => Ok(Scope { subjects: vec![subject_of_conf(source)?], ..Scope::default() }),
    }
}

fn subject_of_conf(source: &Source<ForDoctor>) -> Result<Subject, Failure> {
    let given = connection::given(source)?;
    let params = connection::params_of(&given, &state::new_run_id())?;
    let layer = given.layer;
    Ok(Subject {
        title: format!("Server: {}", params.describe()),
        access: ServerAccess::Server(Box::new(params)),
        host: None,
        device: None,
        control: None,
        work: vec![Work { kind: WorkloadKind::Slob, layer }],
        conditions: Vec::new(),
    })
}

fn scope_of_experiment(file: &Path) -> Result<Scope, Failure> {
    let job = jobs::read(file)?;
    let targets = job.experiment.targets.iter().map(|(name, target)| (Some(name), Some(target)));
    // Without a target, pgio.conf or the environment names the server.
    let none = job.experiment.targets.is_empty().then_some((None, None));
    let subjects = targets.chain(none).map(|(name, target)| subject_of_target(&job, name, target));
    let commands = job.experiment.workloads.iter();
    let commands = commands.filter_map(|w| Some((w.name.clone(), w.command.clone()?))).collect();
    let hosts = job.experiment.hosts.clone();
    Ok(Scope { subjects: subjects.collect::<Result<_, _>>()?, hosts, commands })
}

fn subject_of_target(
    job: &Job,
    name: Option<&String>,
    target: Option<&Target>,
) -> Result<Subject, Failure> {
    let run_id = state::new_run_id();
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
        Some(Target::Server { dsn, .. }) => {
            ServerAccess::Server(Box::new(connection::params(dsn, &run_id)?))
        }
        None => ServerAccess::Server(Box::new(connection::params_of(&job.below, &run_id)?)),
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
            for point in workload.points(e.sweep) {
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
        let layers = w.points(e.sweep).into_iter().map(|point| w.layer_at(&point));
        let layers = layers.map(|layer| layer.over(job.below.layer.clone()));
        work.extend(layers.map(|layer| Work { kind: w.kind, layer }));
    }
    Ok(Subject { title, access, host, device, control, work, conditions })
}
