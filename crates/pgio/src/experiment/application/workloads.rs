//! The table that leads from a kind of workload to its code, and the work of an experiment prepared on a target's
//! server.
//!
//! Next: `servers` prepares once per layer of the sweep; `validation` checks the keys where no server exists yet.

use std::sync::Arc;

use pgio_connect::Client;

use super::error::OpenError;
use super::servers::TargetServer;
use crate::config::experiment::{WorkloadKind, WorkloadSpec};
use crate::config::resolve::resolve_mail;
use crate::config::{
    CommandSettings, CommitSettings, DeviceSettings, Layer, LoadSettings, SlobSettings,
};
use crate::dataset::DatasetError;
use crate::experiment::event::{Event, Observer};
use crate::experiment::slob;
use crate::host::stop::Stop;
use crate::host::{Host, Hosts, LOCAL};
use crate::pg::server::Server;
use crate::workload::command::{self, LastSetup, Lines};
use crate::workload::commit::Commit;
use crate::workload::device::bench;
use crate::workload::{Command, Device, Mail, Workload};

/// Where the work runs, and what the workloads of one target share.
pub(super) struct WorkPlace<'a> {
    pub(super) target: &'a TargetServer,
    pub(super) server: &'a Server,
    pub(super) last_setup: &'a LastSetup,
    /// Whether to load the data set into a private cluster.
    pub(super) load: bool,
    /// The experiment's seed, for a data set whose keys name none.
    pub(super) seed: u64,
    /// Whether drivers generate the load, on hosts of their own.
    pub(super) drivers: bool,
    pub(super) stop: &'a Stop,
}

/// The code of a kind.
struct WorkloadCode {
    /// Refuses keys that contradict each other, without a server.
    check_keys: fn(Layer) -> Result<(), OpenError>,
    prepare: Prepare,
}

type Prepare = fn(
    &WorkloadSpec,
    Layer,
    &WorkPlace<'_>,
    &mut Client,
    &mut Observer<'_>,
) -> Result<Arc<dyn Workload>, OpenError>;

/// The table: one entry per kind.
fn code(kind: WorkloadKind) -> WorkloadCode {
    match kind {
        WorkloadKind::Slob => WorkloadCode { check_keys: check_slob, prepare: prepare_slob },
        WorkloadKind::Commit => WorkloadCode {
            check_keys: |layer| Ok(CommitSettings::resolve(layer).map(drop)?),
            prepare: |_, layer, place, admin, _| Ok(Arc::new(commit(layer, place, admin)?)),
        },
        WorkloadKind::Device => WorkloadCode {
            check_keys: |_| Ok(()),
            prepare: |_, layer, place, _, _| Ok(Arc::new(device(layer, place)?)),
        },
        WorkloadKind::Command => WorkloadCode {
            check_keys: |_| Ok(()),
            prepare: |spec, layer, place, admin, _| {
                Ok(Arc::new(command(spec, layer, place, admin)?.with_last_setup(place.last_setup)))
            },
        },
        WorkloadKind::Mail => WorkloadCode {
            check_keys: |layer| Ok(resolve_mail(layer, "").map(drop)?),
            prepare: |_, layer, place, _, _| Ok(Arc::new(mail(layer, place.target)?)),
        },
    }
}

/// Checks the keys of one layer as far as possible without a server.
pub(super) fn check_keys(kind: WorkloadKind, layer: Layer) -> Result<(), OpenError> {
    (code(kind).check_keys)(layer)
}

/// Checks that the host of a command, or this one of a `device`, has its programs.
pub(super) fn check_programs(
    spec: &WorkloadSpec,
    drivers: bool,
    hosts: &Hosts,
) -> Result<(), OpenError> {
    if spec.kind.def().tests_device && !drivers {
        bench::check_installed(&Host::local())?;
    }
    let Some(command) = &spec.command else { return Ok(()) };
    let name = command.host.as_deref().unwrap_or(LOCAL);
    let host = match hosts.get(name) {
        Some(host) => Arc::clone(host),
        None if name == LOCAL => Arc::new(Host::local()),
        None => return Err(OpenError::UnknownHost { name: name.to_owned(), example: "" }),
    };
    Ok(command::check_programs(command, Lines::for_experiment(drivers), &host)?)
}

/// Prepares the work of one layer.
pub(super) fn prepare(
    spec: &WorkloadSpec,
    layer: Layer,
    place: &WorkPlace<'_>,
    admin: &mut Client,
    observe: &mut Observer<'_>,
) -> Result<Arc<dyn Workload>, OpenError> {
    (code(spec.kind).prepare)(spec, layer, place, admin, observe)
}

fn check_slob(layer: Layer) -> Result<(), OpenError> {
    slob::load_spec(&LoadSettings::resolve(layer.clone())?);
    SlobSettings::resolve(layer)?;
    Ok(())
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

/// Prepares `device` on the target's host; without one it runs on this machine, or `servers` refuses it.
fn device(layer: Layer, place: &WorkPlace<'_>) -> Result<Device, OpenError> {
    let target = place.target;
    let name = target.host.as_deref().unwrap_or(LOCAL);
    let host = target.hosts.get(name).cloned().unwrap_or_else(|| Arc::new(Host::local()));
    let device = Device::new(DeviceSettings::resolve(layer), target.device.as_deref(), host)?;
    if !place.drivers {
        device.check_place()?;
    }
    Ok(device)
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
    let lines = Lines::for_experiment(place.drivers);
    Ok(Command::new(settings, (host, lines), &target.params, admin)?)
}

/// Prepares `mail`; its directories are on the target's host unless the file names another.
fn mail(layer: Layer, target: &TargetServer) -> Result<Mail, OpenError> {
    let settings = resolve_mail(layer, &target.name)?;
    let named = settings.maildir.as_ref().and_then(|maildir| maildir.host.clone());
    let host = match named.or_else(|| target.host.clone()) {
        None => Arc::new(Host::local()),
        Some(name) => target.hosts.get(&name).cloned().ok_or(OpenError::NoMailHost(name))?,
    };
    Ok(Mail::new(settings, host))
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
