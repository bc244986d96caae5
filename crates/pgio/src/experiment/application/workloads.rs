//! What leads from a kind of workload to its code, and the work of the core's kinds prepared on a target's server.
//!
//! Next: `servers` prepares once per layer of the sweep; `validation` checks the keys where no server exists yet.

use std::sync::Arc;

use pgio_connect::Client;
use pgio_results::metrics::MetricDef;

use super::error::OpenError;
use super::servers::TargetServer;
use crate::config::experiment::{WorkloadKind, WorkloadSpec};
use crate::config::{CommandSettings, CommitSettings, Layer, LoadSettings, SlobSettings, kinds};
use crate::dataset::DatasetError;
use crate::experiment::event::{Event, Observer};
use crate::experiment::slob;
use crate::feature::{self, Feature};
use crate::host::stop::Stop;
use crate::host::{Host, Hosts, LOCAL};
use crate::pg::server::Server;
use crate::workload::command::{self, LastSetup, Lines};
use crate::workload::commit::Commit;
use crate::workload::{self, Command, EngineError, PartKind, Workload};

/// Where the work runs, and what the workloads of one target share.
#[derive(Debug)]
pub struct WorkPlace<'a> {
    pub(crate) target: &'a TargetServer,
    pub(crate) server: &'a Server,
    pub(crate) last_setup: &'a LastSetup,
    /// Whether to load the data set into a private cluster.
    pub(crate) load: bool,
    /// The experiment's seed, for a data set whose keys name none.
    pub(crate) seed: u64,
    /// Whether other processes generate the load, on hosts of their own.
    pub(crate) others: bool,
    pub(crate) stop: &'a Stop,
}

/// A kind of workload and its code.
#[derive(Debug)]
pub struct WorkloadCode {
    pub kind: WorkloadKind,
    /// Refuses hosts that lack its programs, before a server is started; the flag says whether other processes run it.
    pub check_programs: fn(&WorkloadSpec, bool, &Hosts) -> Result<(), OpenError>,
    /// Prepares the work of one layer.
    pub prepare: Prepare,
    /// How a driver does its part, if several processes can share it.
    pub part: Option<PartKind>,
}

pub(crate) type Prepare = fn(
    &WorkloadSpec,
    Layer,
    &WorkPlace<'_>,
    &mut Client,
    &mut Observer<'_>,
) -> Result<Arc<dyn Workload>, OpenError>;

pub(crate) static SLOB: Feature = Feature {
    name: "slob",
    workloads: &[WorkloadCode {
        kind: kinds::SLOB,
        check_programs: |_, _, _| Ok(()),
        prepare: prepare_slob,
        part: Some(workload::CLIENT_PART),
    }],
    ..Feature::NONE
};

pub(crate) static COMMIT: Feature = Feature {
    name: "commit",
    workloads: &[WorkloadCode {
        kind: kinds::COMMIT,
        check_programs: |_, _, _| Ok(()),
        prepare: |_, layer, place, admin, _| Ok(Arc::new(commit(layer, place, admin)?)),
        part: Some(workload::CLIENT_PART),
    }],
    ..Feature::NONE
};

pub(crate) static COMMAND: Feature = Feature {
    name: "command",
    workloads: &[WorkloadCode {
        kind: kinds::COMMAND,
        check_programs,
        prepare: |spec, layer, place, admin, _| {
            Ok(Arc::new(command(spec, layer, place, admin)?.with_last_setup(place.last_setup)))
        },
        part: Some(command::PART),
    }],
    ..Feature::NONE
};

/// Returns the code of a kind.
pub(crate) fn code(kind: WorkloadKind) -> &'static WorkloadCode {
    let code = feature::workloads().find(|code| code.kind == kind);
    code.expect("a kind comes from the list of all")
}

/// Checks that the host of a command has its programs.
fn check_programs(spec: &WorkloadSpec, others: bool, hosts: &Hosts) -> Result<(), OpenError> {
    let Some(command) = &spec.command else { return Ok(()) };
    let name = command.host.as_deref().unwrap_or(LOCAL);
    let host = match hosts.get(name) {
        Some(host) => Arc::clone(host),
        None if name == LOCAL => Arc::new(Host::local()),
        None => return Err(OpenError::UnknownHost { name: name.to_owned(), example: "" }),
    };
    let checked = command::check_programs(command, Lines::for_experiment(others), &host);
    Ok(checked.map_err(EngineError::from)?)
}

/// Prepares `slob` on the loaded data set; a private server is loaded first.
fn prepare_slob(
    _: &WorkloadSpec,
    layer: Layer,
    place: &WorkPlace<'_>,
    admin: &mut Client,
    observe: &mut Observer<'_>,
) -> Result<Arc<dyn Workload>, OpenError> {
    if place.target.cluster.is_some() && place.load {
        // A cluster created again for --resume gets the same data.
        let mut layer = layer.clone();
        layer.seed.get_or_insert(place.seed);
        load_private(&layer, place, admin, observe)?;
    }
    let (slob, warnings) = slob::loaded(layer, admin)?;
    warnings.iter().for_each(|warning| observe(Event::Warns(warning)));
    Ok(Arc::new(slob))
}

/// Prepares `commit`; its table is created in the schema of the session.
fn commit(layer: Layer, place: &WorkPlace<'_>, admin: &mut Client) -> Result<Commit, OpenError> {
    let schema = place.server.schema.clone().ok_or(DatasetError::NoSchema)?;
    let commit = Commit { settings: CommitSettings::resolve(layer)?, schema };
    commit.check(admin)?;
    Ok(commit)
}

/// Prepares a command on the host that it names, else on this machine.
fn command(
    spec: &WorkloadSpec,
    layer: Layer,
    place: &WorkPlace<'_>,
    admin: &mut Client,
) -> Result<Command, OpenError> {
    let target = place.target;
    let command = spec.command.clone().expect("the parser gives every command its lines");
    let name = command.host.as_deref().unwrap_or(LOCAL);
    let host = target.hosts.get(name).cloned().ok_or_else(|| OpenError::UnknownHost {
        name: name.to_owned(),
        example: " with ssh = \"user@host\"",
    })?;
    let settings = CommandSettings::resolve(command, layer);
    let lines = Lines::for_experiment(place.others);
    let command = Command::new(settings, (host, lines), &target.params, admin);
    Ok(command.map_err(EngineError::from)?)
}

fn load_private(
    layer: &Layer,
    place: &WorkPlace<'_>,
    admin: &mut Client,
    observe: &mut Observer<'_>,
) -> Result<(), OpenError> {
    let spec = slob::load_spec(&LoadSettings::resolve(layer.clone())?);
    // Refuse work that cannot run before loading its data set.
    SlobSettings::resolve(layer.clone())?;
    slob::load(admin, &place.target.params, &spec, place.stop, &mut |event| {
        observe(Event::Loads(&event));
    })?;
    Ok(())
}

/// The hint for a metric that workloads of this kind never measure.
pub(super) const OTHER_METRIC: &str = "; choose a metric that it measures (docs/KEYS.md)";

/// Returns why no trial can have the metric, as far as its kind and its keys tell: nothing where a server or a host has
/// it, else what to change. A metric that is never measured would leave every condition undecided after all blocks.
/// `layers` are the workload's keys at each of its points.
pub(super) fn obstacle(
    kind: WorkloadKind,
    layers: &[Layer],
    metric: &MetricDef<'_>,
) -> Option<&'static str> {
    if (kind.def().measures)(metric) {
        return (kind.def().lacks)(metric, layers);
    }
    WorkloadKind::all().any(|other| (other.def().measures)(metric)).then_some(OTHER_METRIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::metrics;

    #[test]
    fn metrics_are_measurable_by_the_workloads_that_do_the_work() {
        let updates = [Layer { update_pct: Some(20), ..Layer::default() }];
        let by = |name: &str| {
            let metric = metrics::definition(name).unwrap();
            let kinds =
                WorkloadKind::all().filter(|kind| obstacle(*kind, &updates, metric).is_none());
            kinds.map(WorkloadKind::name).collect::<Vec<_>>()
        };
        let all: Vec<&str> = WorkloadKind::all().map(WorkloadKind::name).collect();
        assert!(["slob", "commit"].iter().all(|kind| by("commits_per_second").contains(kind)));
        assert!(!by("commits_per_second").contains(&"command"));
        assert_eq!(by("transaction_latency_p99"), ["commit"]);
        assert_eq!(by("read_latency_p99"), ["slob"]);
        assert_eq!(by("device_writes_per_second"), all, "of the server's device");
        assert_eq!(by("riops"), all);
    }
}
