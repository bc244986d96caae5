//! The table that leads from a kind of workload to its code, and the work of an experiment prepared on a target's
//! server.
//!
//! Next: `opening` prepares once per layer of the sweep; `validation` checks the keys where no server exists yet.

use std::sync::Arc;

use postgres::Client;

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
use crate::host::{Host, LOCAL};
use crate::pg::server::Server;
use crate::workload::command::{LastSetup, Lines};
use crate::workload::commit::Commit;
use crate::workload::{Command, Device, Mail, Workload};

/// Where the work runs, and what the workloads of one target share.
pub(super) struct WorkPlace<'a> {
    pub(super) on: &'a TargetServer,
    pub(super) server: &'a Server,
    pub(super) made: &'a LastSetup,
    /// The spec of the data set to load into a private cluster.
    pub(super) load: bool,
    /// The experiment's seed, for a data set whose keys name none.
    pub(super) seed: u64,
    /// Whether drivers generate the load, on hosts of their own.
    pub(super) drivers: bool,
    pub(super) stop: &'a Stop,
}

/// The code of a kind.
struct Code {
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
fn code(kind: WorkloadKind) -> Code {
    match kind {
        WorkloadKind::Slob => Code { check_keys: check_slob, prepare: prepare_slob },
        WorkloadKind::Commit => Code {
            check_keys: |layer| Ok(CommitSettings::resolve(layer).map(drop)?),
            prepare: |_, layer, place, admin, _| Ok(Arc::new(commit(layer, place, admin)?)),
        },
        WorkloadKind::Device => Code {
            check_keys: |_| Ok(()),
            prepare: |_, layer, place, _, _| Ok(Arc::new(device(layer, place)?)),
        },
        WorkloadKind::Command => Code {
            check_keys: |_| Ok(()),
            prepare: |spec, layer, place, admin, _| {
                Ok(Arc::new(command(spec, layer, place, admin)?.with_last_setup(place.made)))
            },
        },
        WorkloadKind::Mail => Code {
            check_keys: |layer| Ok(resolve_mail(layer, "").map(drop)?),
            prepare: |_, layer, place, _, _| Ok(Arc::new(mail(layer, place.on)?)),
        },
    }
}

/// Checks the keys of one layer as far as possible without a server.
pub(super) fn check_keys(kind: WorkloadKind, layer: Layer) -> Result<(), OpenError> {
    (code(kind).check_keys)(layer)
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
    if place.on.cluster.is_some() && place.load {
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

/// Prepares `device` on the target's host; without one it runs on this machine, or `opening` refuses it.
fn device(layer: Layer, place: &WorkPlace<'_>) -> Result<Device, OpenError> {
    let on = place.on;
    let name = on.host.as_deref().unwrap_or(LOCAL);
    let host = on.hosts.get(name).cloned().unwrap_or_else(|| Arc::new(Host::local()));
    let device = Device::new(DeviceSettings::resolve(layer), on.device.as_deref(), host)?;
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
    let on = place.on;
    let command = spec.command.clone().expect("the parser gives every command its lines");
    let name = command.host.as_deref().unwrap_or(LOCAL);
    let host = on.hosts.get(name).cloned().ok_or_else(|| OpenError::UnknownHost {
        name: name.to_owned(),
        example: " with ssh = \"user@host\"",
    })?;
    let settings = CommandSettings::resolve(command, layer);
    let lines = Lines::for_experiment(place.drivers);
    Ok(Command::new(settings, (host, lines), &on.params, admin)?)
}

/// Prepares `mail`; its directories are on the target's host unless the file names another.
fn mail(layer: Layer, on: &TargetServer) -> Result<Mail, OpenError> {
    let settings = resolve_mail(layer, &on.name)?;
    let named = settings.maildir.as_ref().and_then(|maildir| maildir.host.clone());
    let host = match named.or_else(|| on.host.clone()) {
        None => Arc::new(Host::local()),
        Some(name) => on.hosts.get(&name).cloned().ok_or(OpenError::NoMailHost(name))?,
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
    slob::load(admin, &place.on.params, &spec, place.stop, &mut |event| {
        observe(Event::Loads(&event));
    })?;
    Ok(())
}
