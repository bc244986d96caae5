//! The servers of an experiment: found or started, connected, with the workload ready to run there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use postgres::Client;

use super::cells::layers;
use super::job::Job;
use crate::cli::exit::{FAILED, Failure, REFUSED, USAGE};
use crate::cli::output::{self, Status};
use crate::cli::{Outcome, clusters, connection, run, setup};
use crate::config::experiment::{ControlMethod, Target, WorkloadKind, WorkloadSpec};
use crate::config::{
    CommandSettings, CommitSettings, ConnectString, DeviceSettings, Layer, LoadSettings,
    MailSettings, SlobSettings,
};
use crate::dataset::DatasetError;
use crate::experiment::{live, reset};
use crate::host::stop::Stop;
use crate::host::{Host, Hosts, LOCAL};
use crate::pg::connect::ConnectParams;
use crate::pg::control::Controller;
use crate::pg::private::{PrivateCluster, Spec, VersionRequest};
use crate::pg::server::{self, Server};
use crate::treatment::Resource;
use crate::workload::command::Made;
use crate::workload::commit::Commit;
use crate::workload::mail::MailError;
use crate::workload::{Command, Device, Mail, Workload};

/// A server that the experiment found or started.
#[derive(Debug)]
pub(super) struct Reached {
    /// As in the file; empty where pgio.conf or the environment says where it is.
    name: String,
    pub(super) params: ConnectParams,
    pub(super) cluster: Option<Arc<PrivateCluster>>,
    /// The block device that is to be measured.
    device: Option<String>,
    /// By what it may be stopped.
    control: Option<ControlMethod>,
    /// All of the experiment's, for its scene.
    pub(super) hosts: Hosts,
    /// Names in `hosts`, as the file says.
    pub(super) host: Option<String>,
    pub(super) standby_host: Option<String>,
}

/// What a server is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Run,
    Look,
}

impl Reached {
    fn plain(
        name: &str,
        params: ConnectParams,
        cluster: Option<Arc<PrivateCluster>>,
        hosts: &Hosts,
    ) -> Reached {
        Reached {
            name: name.to_owned(),
            params,
            cluster,
            device: None,
            control: None,
            hosts: hosts.clone(),
            host: None,
            standby_host: None,
        }
    }
}

pub(super) fn params_of(servers: &BTreeMap<String, Reached>) -> BTreeMap<String, ConnectParams> {
    servers.iter().map(|(name, reached)| (name.clone(), reached.params.clone())).collect()
}

impl Job {
    /// How to reach the servers that are there; asks none of them.
    pub(super) fn params(&self, run_id: &str) -> Result<BTreeMap<String, ConnectParams>, Failure> {
        let mut all = BTreeMap::new();
        if self.experiment.targets.is_empty() {
            all.insert(String::new(), self.below.params(run_id)?);
        }
        for (name, target) in &self.experiment.targets {
            if let Target::Server { dsn, .. } = target {
                all.insert(name.clone(), connection::params(dsn, run_id)?);
            }
        }
        Ok(all)
    }

    /// These, and those that are started now.
    pub(super) fn open_servers(
        &self,
        params: BTreeMap<String, ConnectParams>,
        run_id: &str,
        pg: Option<VersionRequest>,
    ) -> Result<BTreeMap<String, Reached>, Failure> {
        let hosts = self.hosts()?;
        self.check_rights(&hosts)?;
        let mut servers = self.found_servers(params, &hosts);
        for (name, target) in &self.experiment.targets {
            if let Target::Private { major, standby, directory } = target {
                let version = pg.or(major.map(VersionRequest::major));
                let cluster = start_private(version, *standby, directory.clone())?;
                let dsn = ConnectString::new(cluster.primary_conninfo());
                let params = connection::params(&dsn, run_id)?;
                let reached = Reached::plain(name, params, Some(cluster), &hosts);
                servers.insert(name.clone(), reached);
            }
        }
        Ok(servers)
    }

    /// Those that are there without us.
    pub(super) fn found_servers(
        &self,
        params: BTreeMap<String, ConnectParams>,
        hosts: &Hosts,
    ) -> BTreeMap<String, Reached> {
        let reached = |(name, params): (String, _)| {
            let plain = Reached::plain(&name, params, None, hosts);
            let reached = match self.experiment.targets.get(&name) {
                Some(Target::Server { device, control, host, standby_host, .. }) => Reached {
                    device: device.clone(),
                    control: control.clone(),
                    host: host.clone(),
                    standby_host: standby_host.clone(),
                    ..plain
                },
                _ => plain,
            };
            (name, reached)
        };
        params.into_iter().map(reached).collect()
    }

    /// The work of one layer, ready to run there; `load` says whether a private cluster has no data
    /// set yet.
    fn workload(
        &self,
        (spec, layer): (&WorkloadSpec, Layer),
        (reached, server, made): (&Reached, &Server, &Made),
        admin: &mut Client,
        load: bool,
        stop: &Stop,
    ) -> Result<Arc<dyn Workload>, Failure> {
        let layer = layer.over(self.below.layer.clone());
        let workload: Arc<dyn Workload> = match spec.kind {
            WorkloadKind::Slob => {
                if reached.cluster.is_some() && load {
                    // A cluster that is made again for --resume gets the same data.
                    let mut layer = layer.clone();
                    layer.seed.get_or_insert(self.seed);
                    load_private(&layer, reached, admin, stop)?;
                }
                Arc::new(run::loaded_slob(layer, admin)?)
            }
            WorkloadKind::Commit => {
                let schema = server.schema.clone().ok_or(DatasetError::NoSchema)?;
                let commit = Commit { settings: CommitSettings::resolve(layer)?, schema };
                commit.check(admin)?;
                Arc::new(commit)
            }
            WorkloadKind::Device => Arc::new(device(layer, reached)?),
            WorkloadKind::Command => Arc::new(command(spec, layer, reached, admin)?.beside(made)),
            WorkloadKind::Mail => Arc::new(mail(layer, reached)?),
        };
        Ok(workload)
    }

    /// The server of a target with the workload ready to run there.
    pub(super) fn target(
        &self,
        spec: &WorkloadSpec,
        reached: &Reached,
        run_id: &str,
        stop: &Stop,
    ) -> Result<live::Target, Failure> {
        let opened = live::open_admin(&reached.params, run_id)?;
        self.target_by(opened, spec, reached, Purpose::Run, stop)
    }

    /// The same by a session that can only read, with no data set loaded and nothing probed.
    pub(super) fn target_as_it_is(
        &self,
        spec: &WorkloadSpec,
        reached: &Reached,
        stop: &Stop,
    ) -> Result<live::Target, Failure> {
        let opened = live::open_reader(&reached.params)?;
        self.target_by(opened, spec, reached, Purpose::Look, stop)
    }

    fn target_by(
        &self,
        (mut admin, server): (Client, Server),
        spec: &WorkloadSpec,
        reached: &Reached,
        purpose: Purpose,
        stop: &Stop,
    ) -> Result<live::Target, Failure> {
        output::warn_all(&server.warnings);
        let mut workloads = Vec::new();
        let made = Made::default();
        for layer in layers(spec, self.experiment.sweep) {
            let load = workloads.is_empty() && purpose == Purpose::Run;
            let there = (reached, &server, &made);
            workloads.push(self.workload((spec, layer), there, &mut admin, load, stop)?);
        }
        let probing = purpose == Purpose::Run;
        let work = workloads[0].as_ref();
        let scene = self.scene(spec, reached, &server, &mut admin, work, probing);
        let seen = || Some(scene.as_ref()?.server_host()?.name().to_owned());
        let host = match &reached.cluster {
            Some(_) => Some(LOCAL.to_owned()),
            None => reached.host.clone().or_else(seen),
        };
        if spec.kind == WorkloadKind::Device && host.is_none() {
            return Err(Failure::message(
                REFUSED,
                "where the server runs is not known, and no other machine's device is measured in its place: set host in [target]",
            ));
        }
        let control = reached.control.as_ref();
        let control = control.map(|way| controller(way, host.as_deref(), reached, &mut admin));
        let identity = server::identity(&mut admin).map_err(live::LiveError::from)?;
        Ok(live::Target {
            identity: Resource::server(&identity),
            touches: BTreeSet::new(),
            params: reached.params.clone(),
            control: control.transpose()?,
            scene,
            admin,
            server,
            workloads,
            cluster: reached.cluster.clone(),
            host,
            // Of the workload `device` it is the place, and not where data and WAL must lie.
            device: reached.device.clone().filter(|_| spec.kind != WorkloadKind::Device),
            reset: reset::Way::default(),
        })
    }
}

/// On the target's own host; without one named it is here, or it is refused later.
fn device(layer: Layer, reached: &Reached) -> Result<Device, Failure> {
    let name = reached.host.as_deref().unwrap_or(LOCAL);
    let host = reached.hosts.get(name).cloned().unwrap_or_else(|| Arc::new(Host::local()));
    Ok(Device::new(DeviceSettings::resolve(layer), reached.device.as_deref(), host)?)
}

/// On the host that it names, else here.
fn command(
    spec: &WorkloadSpec,
    layer: Layer,
    reached: &Reached,
    admin: &mut Client,
) -> Result<Command, Failure> {
    let command = spec.command.clone().expect("the parser gives every command its lines");
    let name = command.host.as_deref().unwrap_or(LOCAL);
    let unknown = || {
        let text =
            format!("host `{name}` is not known: write [hosts.{name}] with ssh = \"user@host\"");
        Failure::message(USAGE, text)
    };
    let host = reached.hosts.get(name).cloned().ok_or_else(unknown)?;
    let settings = CommandSettings::resolve(command, layer);
    Ok(Command::new(settings, host, &reached.params, admin)?)
}

/// Its directories are on the target's host, where the file names no other.
fn mail(layer: Layer, reached: &Reached) -> Result<Mail, Failure> {
    let settings = MailSettings::resolve(layer, &reached.name)?;
    let named = settings.maildir.as_ref().and_then(|maildir| maildir.host.clone());
    let host = match named.or_else(|| reached.host.clone()) {
        None => Arc::new(Host::local()),
        Some(name) => reached.hosts.get(&name).cloned().ok_or(MailError::NoHost(name))?,
    };
    Ok(Mail::new(settings, host))
}

/// Looked for before anything is changed.
fn controller(
    way: &ControlMethod,
    host: Option<&str>,
    reached: &Reached,
    admin: &mut Client,
) -> Result<Controller, Failure> {
    let Some((name, host)) = host.and_then(|name| Some((name, reached.hosts.get(name)?))) else {
        let unknown = "control in [target] needs to know where the server runs: set host there too";
        return Err(Failure::message(REFUSED, unknown));
    };
    Ok(Controller::find(admin, name, host.clone(), way)?)
}

fn start_private(
    pg: Option<VersionRequest>,
    standby: bool,
    base_dir: Option<PathBuf>,
) -> Result<Arc<PrivateCluster>, Failure> {
    let exe = std::env::current_exe()
        .map_err(|e| Failure::new(FAILED, e).context("cannot find pgio's own program file"))?;
    let mut status = Status::new();
    status.show("starting PostgreSQL …");
    let cluster = PrivateCluster::start(&Spec { pg, standby, base_dir, ..Spec::new(exe) })?;
    clusters::note(&cluster)?;
    Ok(Arc::new(cluster))
}

fn load_private(layer: &Layer, reached: &Reached, admin: &mut Client, stop: &Stop) -> Outcome {
    let spec = setup::load_spec(&LoadSettings::resolve(layer.clone())?);
    // What would not run is not worth loading.
    SlobSettings::resolve(layer.clone())?;
    setup::load(admin, &reached.params, &spec, stop, false)?;
    Ok(())
}
