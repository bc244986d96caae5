//! The table that leads from a kind of workload to its code, and the work of an experiment prepared on a target's
//! server.
//!
//! Next: `servers` prepares once per layer of the sweep; `validation` checks the keys where no server exists yet.

use std::sync::Arc;

use pgio_connect::Client;
use pgio_results::latency::{Class, Work};
use pgio_results::metrics::{Kind, MetricDef};

use super::error::OpenError;
use super::servers::TargetServer;
use crate::config::experiment::{WorkloadKind, WorkloadSpec};
use crate::config::resolve::resolve_mail;
use crate::config::value::Decimal;
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
use crate::workload::{Command, Device, EngineError, Mail, Workload};

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
        bench::check_installed(&Host::local()).map_err(EngineError::from)?;
    }
    let Some(command) = &spec.command else { return Ok(()) };
    let name = command.host.as_deref().unwrap_or(LOCAL);
    let host = match hosts.get(name) {
        Some(host) => Arc::clone(host),
        None if name == LOCAL => Arc::new(Host::local()),
        None => return Err(OpenError::UnknownHost { name: name.to_owned(), example: "" }),
    };
    let checked = command::check_programs(command, Lines::for_experiment(drivers), &host);
    Ok(checked.map_err(EngineError::from)?)
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
fn device(layer: Layer, place: &WorkPlace<'_>) -> Result<Device, EngineError> {
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
    let command = Command::new(settings, (host, lines), &target.params, admin);
    Ok(command.map_err(EngineError::from)?)
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

// Which metrics a workload can measure at all, as far as its kind and its mix of calls tell. A metric that is never
// measured would leave every condition undecided after all blocks. What a server or a host measures comes with every
// workload.

/// A call of `slob` on which a metric depends.
#[derive(Debug, Clone, Copy)]
enum Call {
    Read,
    Update,
    Scan,
    Turnover,
}

/// The hint for a metric that workloads of this kind never measure.
pub(super) const OTHER_METRIC: &str = "; choose a metric that it measures (docs/KEYS.md)";

/// Returns why no trial can have the metric: nothing where another kind of workload has it, else what to
/// change. `layers` are the workload's keys at each of its points.
pub(super) fn obstacle(
    kind: WorkloadKind,
    layers: &[Layer],
    metric: &MetricDef<'_>,
) -> Option<&'static str> {
    use WorkloadKind::{Command, Commit, Device, Mail, Slob};
    let has_prefix =
        |prefixes: &[&str]| prefixes.iter().any(|prefix| metric.name.starts_with(prefix));
    let (kinds, calls): (&[WorkloadKind], &[Call]) = match metric.kind {
        Kind::Work(Work::Messages) | Kind::Latency(Class::Delivery, _) => (&[Mail], &[]),
        Kind::Latency(Class::Device, _) => (&[Device], &[]),
        Kind::Work(Work::BlockVisits) => (&[Slob], &[Call::Read, Call::Update]),
        Kind::Work(Work::RowsUpdated) | Kind::Latency(Class::Update, _) => {
            (&[Slob], &[Call::Update])
        }
        Kind::Latency(Class::Read, _) => (&[Slob], &[Call::Read]),
        Kind::Latency(Class::Scan, _) => (&[Slob], &[Call::Scan]),
        Kind::Latency(Class::Insert | Class::Delete, _) => (&[Slob], &[Call::Turnover]),
        Kind::Latency(Class::Transaction, _) => (&[Commit], &[]),
        Kind::Work(Work::Commits) | Kind::Latency(Class::Commit, _) => {
            (&[Slob, Commit], &[Call::Update, Call::Turnover])
        }
        Kind::Quantity if has_prefix(&["mail_"]) => (&[Mail], &[]),
        Kind::Quantity if has_prefix(&["device_bytes_", "device_operations_"]) => (&[Device], &[]),
        Kind::Quantity if has_prefix(&["blocks_scanned_"]) => (&[Slob], &[Call::Scan]),
        Kind::Quantity if has_prefix(&["inserts_", "deletes_"]) => (&[Slob], &[Call::Turnover]),
        _ => return None,
    };
    if !kinds.contains(&kind) {
        return Some(OTHER_METRIC);
    }
    match kind {
        Slob if !calls.is_empty()
            && !layers.iter().any(|l| calls.iter().any(|c| c.occurs_in(l))) =>
        {
            Some(hint(calls))
        }
        Slob | Commit | Device | Command | Mail => None,
    }
}

impl Call {
    /// Returns whether a workload with these keys makes it.
    fn occurs_in(self, keys: &Layer) -> bool {
        let updates = f64::from(keys.update_pct.unwrap_or(0)) / 100.0;
        let share = |key: Option<Decimal>| key.map_or(0.0, |pct| pct.share());
        let (scans, inserts) = (share(keys.scan_pct), share(keys.insert_pct));
        match self {
            Call::Read => updates + scans + inserts + share(keys.delete_pct) < 1.0 - 1e-9,
            Call::Update => updates > 0.0,
            Call::Scan => scans > 0.0,
            Call::Turnover => inserts > 0.0,
        }
    }
}

fn hint(calls: &[Call]) -> &'static str {
    match calls {
        [Call::Update, ..] => ", because it changes nothing: set update_pct above 0",
        [Call::Scan, ..] => ", because it scans nothing: set scan_pct above 0",
        [Call::Turnover, ..] => {
            ", because it inserts nothing: set insert_pct and delete_pct above 0"
        }
        [Call::Read, ..] | [] => ", because it reads nothing: lower the percentages of other calls",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::metrics;

    fn layer(update_pct: u8, scan_pct: &str, insert_pct: &str) -> Layer {
        let mut layer = Layer { update_pct: Some(update_pct), ..Layer::default() };
        for (name, text) in
            [("scan_pct", scan_pct), ("insert_pct", insert_pct), ("delete_pct", insert_pct)]
        {
            crate::config::Key::named(name).unwrap().set(&mut layer, text).unwrap();
        }
        layer
    }

    #[test]
    fn metrics_are_measurable_by_the_workloads_that_do_the_work() {
        use WorkloadKind::{Command, Commit, Device, Mail, Slob};
        let all = [Slob, Commit, Device, Command, Mail];
        let everything = [layer(20, "10", "10")];
        let by = |name: &str| {
            let metric = metrics::definition(name).unwrap();
            let measures = |kind: &WorkloadKind| obstacle(*kind, &everything, metric).is_none();
            all.into_iter().filter(measures).collect::<Vec<_>>()
        };
        assert_eq!(by("messages_per_minute"), [Mail]);
        assert_eq!(by("delivery_latency_p99"), [Mail]);
        assert_eq!(by("device_operations_per_second"), [Device]);
        assert_eq!(by("commits_per_second"), [Slob, Commit]);
        assert_eq!(by("read_latency_p99"), [Slob]);
        assert_eq!(by("blocks_scanned_per_second"), [Slob]);
        assert_eq!(by("device_writes_per_second"), all, "of the server's device");
        assert_eq!(by("riops"), all);
    }

    #[test]
    fn slob_measures_the_calls_of_its_mix() {
        let found = |name: &str, layers: &[Layer]| {
            obstacle(WorkloadKind::Slob, layers, metrics::definition(name).unwrap()).is_none()
        };
        let [reads, updates, turnover, scans] =
            [layer(0, "0", "0"), layer(100, "0", "0"), layer(0, "0", "5"), layer(0, "100", "0")]
                .map(|layer| [layer]);
        for name in ["commits_per_second", "commit_latency_p99"] {
            assert_eq!(
                [&reads, &updates, &turnover, &scans].map(|l| found(name, l)),
                [false, true, true, false]
            );
        }
        assert_eq!([&reads, &updates].map(|l| found("update_latency_p99", l)), [false, true]);
        assert_eq!([&reads, &updates].map(|l| found("read_latency_p99", l)), [true, false]);
        assert_eq!([&reads, &scans].map(|l| found("scan_latency_p99", l)), [false, true]);
        assert_eq!([&reads, &scans].map(|l| found("block_visits_per_second", l)), [true, false]);
        assert_eq!([&reads, &turnover].map(|l| found("inserts_per_second", l)), [false, true]);
        // One point of a sweep is enough.
        let sweep = [reads, updates].concat();
        assert!(found("commits_per_second", &sweep) && found("read_latency_p99", &sweep));
    }
}
