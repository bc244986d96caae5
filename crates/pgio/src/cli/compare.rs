//! `pgio compare`: runs an experiment file, and prints its table.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use postgres::Client;

use super::exit::{FAILED, FILES, Failure, TRIAL, USAGE};
use super::output::{self, Status};
use super::{Outcome, connection, report, run, setup, signals, state};
use crate::config::experiment::{self, AA_SUFFIX, Experiment, Target, WorkloadKind, WorkloadSpec};
use crate::config::resolve::Extent;
use crate::config::{CommitSettings, ConnectString, Layer, LoadSettings, SlobSettings};
use crate::dataset::DatasetError;
use crate::experiment::environment;
use crate::experiment::live::{self, Happening, Live, LiveCondition};
use crate::experiment::plan::{Planned, plan};
use crate::experiment::run::{Ended, run as run_plan};
use crate::host::stop::Stop;
use crate::host::{Host, LOCAL};
use crate::pg::private::{PrivateCluster, Spec, VersionRequest};
use crate::pg::server::Server;
use crate::results::metrics;
use crate::results::model::Outcome as TrialOutcome;
use crate::results::store::{ConditionInfo, MANIFEST_SCHEMA, Manifest, Store};
use crate::telemetry::{Hosts, Scene, Standby, Survey};
use crate::treatment;
use crate::treatment::journal::{self, Journal};
use crate::units::exact_duration;
use crate::workload::Workload;
use crate::workload::commit::Commit;

/// Windows of all trials together, from which on it is worth a second or two to measure flush and
/// round trip beside them.
const WORTH_A_PROBE: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The experiment file; `pgio example` prints some to start from
    experiment: PathBuf,
    /// Keep the results here instead of pgio-results/NAME-TIME
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print every trial and every change it would make, and touch nothing
    #[arg(long)]
    plan: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let text = fs::read_to_string(&args.experiment).map_err(|e| {
        Failure::new(FILES, e).context(format!("cannot read {}", args.experiment.display()))
    })?;
    let file = args.experiment.display().to_string();
    let stem = args.experiment.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into());
    let job = Job::parse(&text, &file, &stem)?;
    if args.plan {
        output::print(&job.plan_text());
        return Ok(());
    }
    let stop = signals::stop_on_signals()?;
    let out = args.out.clone().unwrap_or_else(|| state::new_results_dir(&job.experiment.name));
    let dirs = job.run(&out, &stop, None)?;
    for dir in &dirs {
        output::print(&report::text(&report::analyse(dir)?));
        output::line(&format!("Results: {}", dir.display()));
    }
    Ok(())
}

/// An experiment file on its way to being run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) experiment: Experiment,
    text: String,
    seed: u64,
    /// ./pgio.conf, below the file's own keys.
    below: connection::Given,
}

impl Job {
    pub(super) fn parse(text: &str, file: &str, stem: &str) -> Result<Job, Failure> {
        let experiment = experiment::parse(text, file, stem, &treatment::names())?;
        let unknown = |primary: &&String| metrics::definition(primary).is_none();
        if let Some(primary) = experiment.primary.as_ref().filter(unknown) {
            let names: Vec<&str> = metrics::METRICS.iter().map(|m| m.name).collect();
            let names = names.join(", ");
            return Err(Failure::message(
                USAGE,
                format!("{file}: primary: no metric `{primary}`; there are {names}"),
            ));
        }
        for condition in &experiment.conditions {
            treatment::parse_all(&condition.treatments)?;
        }
        let seed = experiment.seed.unwrap_or_else(state::new_seed);
        let below = connection::conf_only()?;
        Ok(Job { experiment, text: text.to_owned(), seed, below })
    }

    /// The conditions a workload runs under, the baseline's twin right after it.
    fn conditions(&self, workload: &WorkloadSpec) -> Result<Vec<LiveCondition>, Failure> {
        let mut all = Vec::new();
        for condition in self.experiment.conditions_of(workload) {
            let is_baseline = condition.name == self.experiment.baseline;
            let twin = (is_baseline && self.experiment.aa)
                .then(|| format!("{}{AA_SUFFIX}", condition.name));
            for name in [Some(condition.name.clone()), twin].into_iter().flatten() {
                let treatments = treatment::parse_all(&condition.treatments)?;
                let target = condition.target.clone().unwrap_or_default();
                all.push(LiveCondition { name, target, treatments });
            }
        }
        Ok(all)
    }

    /// `--plan`: read from the file alone.
    fn plan_text(&self) -> String {
        let e = &self.experiment;
        let mut text = format!(
            "Experiment {}: {} blocks, seed {}, baseline {}.\n",
            e.name, e.blocks, self.seed, e.baseline
        );
        for workload in &e.workloads {
            // The file was parsed with these treatments already.
            let Ok(conditions) = self.conditions(workload) else { continue };
            let window = workload.layer.run_time.unwrap_or(e.duration);
            let warmup = workload.layer.warmup.unwrap_or(e.warmup);
            let length = match workload.layer.transactions {
                Some(n) => format!("{n} transactions"),
                None => format!("a window of {}", exact_duration(window)),
            };
            text += &format!(
                "\nWorkload {} ({}): {} of warm-up, then {length}.\n",
                workload.name,
                workload.kind.name(),
                exact_duration(warmup)
            );
            for c in &conditions {
                let changes: Vec<String> = c.treatments.iter().flat_map(|t| t.describe()).collect();
                let changes =
                    if changes.is_empty() { "nothing".to_owned() } else { changes.join(", ") };
                text += &format!("  {} changes {changes}\n", c.name);
            }
            for p in plan(conditions.len(), e.blocks, self.seed) {
                text += &format!(
                    "  block {:2}, trial {}: {}\n",
                    p.block, p.position, conditions[p.condition].name
                );
            }
            let trials = conditions.len() as f64 * f64::from(e.blocks);
            if workload.layer.transactions.is_none() {
                let total = trials * (window.as_secs_f64() + warmup.as_secs_f64());
                text += &format!("  {trials} trials, {total:.0} s of warm-up and windows\n");
            }
        }
        text
    }

    /// Runs every workload and returns the directories of their results.
    pub(super) fn run(
        &self,
        out: &Path,
        stop: &Stop,
        pg: Option<VersionRequest>,
    ) -> Result<Vec<PathBuf>, Failure> {
        journal::check_finished(&state::journal_dir())?;
        let run_id = state::new_run_id();
        let mut servers = self.open_servers(&run_id, pg)?;
        let mut dirs = Vec::new();
        for workload in &self.experiment.workloads {
            let dir = match self.experiment.workloads.len() {
                1 => out.to_owned(),
                _ => out.join(&workload.name),
            };
            self.run_workload(workload, &dir, &run_id, &mut servers, stop)?;
            dirs.push(dir);
            if stop.requested() {
                break;
            }
        }
        Ok(dirs)
    }

    fn open_servers(
        &self,
        run_id: &str,
        pg: Option<VersionRequest>,
    ) -> Result<BTreeMap<String, Reached>, Failure> {
        let mut servers = BTreeMap::new();
        let hosts = self.hosts()?;
        let reached = |params, cluster| Reached {
            params,
            cluster,
            hosts: hosts.clone(),
            host: None,
            standby_host: None,
        };
        if self.experiment.targets.is_empty() {
            servers.insert(String::new(), reached(self.below.params(run_id)?, None));
        }
        for (name, target) in &self.experiment.targets {
            let reached = match target {
                Target::Server { dsn, host, standby_host } => Reached {
                    host: host.clone(),
                    standby_host: standby_host.clone(),
                    ..reached(connection::params(dsn, run_id)?, None)
                },
                Target::Private { major, standby } => {
                    let version = pg.or(major.map(VersionRequest::major));
                    let cluster = start_private(version, *standby)?;
                    let dsn = ConnectString::new(cluster.primary_conninfo());
                    reached(connection::params(&dsn, run_id)?, Some(cluster))
                }
            };
            servers.insert(name.clone(), reached);
        }
        Ok(servers)
    }

    fn run_workload(
        &self,
        spec: &WorkloadSpec,
        dir: &Path,
        run_id: &str,
        servers: &mut BTreeMap<String, Reached>,
        stop: &Stop,
    ) -> Outcome {
        let conditions = self.conditions(spec)?;
        let mut targets = BTreeMap::new();
        for (name, reached) in servers.iter() {
            if conditions.iter().any(|c| c.target == *name) {
                targets.insert(name.clone(), self.target(spec, reached, run_id, stop)?);
            }
        }
        let plan = plan(conditions.len(), self.experiment.blocks, self.seed);
        let name = self.name_of(spec);
        let manifest = self.manifest(&name, &conditions, &mut targets);
        let mut teller = Teller::new(plan.len(), self.experiment.blocks);
        let mut observe = |happening: Happening<'_>| teller.tell(&happening);
        let mut stage = Live {
            run_id: run_id.to_owned(),
            experiment: name,
            targets,
            conditions,
            warmup: spec.layer.warmup.unwrap_or(self.experiment.warmup),
            journal: Journal::new(&state::journal_dir(), run_id),
            store: None,
            series: None,
            stop: stop.clone(),
            observe: &mut observe,
        };
        stage.check()?;
        stage.store = Some(Store::create(dir, &self.stored_text(servers), &manifest)?);
        let ended = run_plan(&plan, &mut stage);
        stage.clean_up();
        stage.finish()?;
        match ended? {
            Ended::Complete => Ok(()),
            Ended::Interrupted => {
                eprintln!("pgio: what is complete is kept in {}", dir.display());
                Err(Failure::interrupted())
            }
            Ended::Failing(error) => Err(Failure::message(TRIAL, error)
                .context(format!("three trials failed in a row; see {}", dir.display()))),
        }
    }

    /// The server of a target with the workload ready to run there.
    fn target(
        &self,
        spec: &WorkloadSpec,
        reached: &Reached,
        run_id: &str,
        stop: &Stop,
    ) -> Result<live::Target, Failure> {
        let (mut admin, server) = live::open_admin(&reached.params, run_id)?;
        output::warn_all(&server.warnings);
        let layer = spec.layer.clone().over(self.below.layer.clone());
        let workload: Arc<dyn Workload> = match spec.kind {
            WorkloadKind::Slob => {
                if reached.cluster.is_some() {
                    load_private(&layer, reached, &mut admin, stop)?;
                }
                Arc::new(run::loaded_slob(layer, &mut admin)?)
            }
            WorkloadKind::Commit => {
                let schema = server.schema.clone().ok_or(DatasetError::NoSchema)?;
                let commit = Commit { settings: CommitSettings::resolve(layer), schema };
                commit.check(&mut admin)?;
                Arc::new(commit)
            }
        };
        let scene = (!self.experiment.telemetry.is_zero()).then(|| {
            let conditions = self.experiment.conditions_of(spec).count();
            self.scene(reached, &server, &mut admin, workload.as_ref(), conditions)
        });
        Ok(live::Target {
            params: reached.params.clone(),
            scene,
            admin,
            server,
            workload,
            cluster: reached.cluster.clone(),
        })
    }

    /// What is observed on a target.
    fn scene(
        &self,
        reached: &Reached,
        server: &Server,
        admin: &mut Client,
        workload: &dyn Workload,
        conditions: usize,
    ) -> Scene {
        let survey = Survey {
            params: &reached.params,
            server,
            cadence: self.experiment.telemetry,
            hosts: &reached.hosts,
            host: reached.host.as_deref(),
        };
        let mut scene = Scene::survey(&survey, admin);
        // A second for each log is out of proportion to an experiment of seconds.
        let window = match workload.extent() {
            Extent::Time(window) => window,
            Extent::Transactions(_) => Duration::MAX,
        };
        let trials =
            u32::try_from(conditions).unwrap_or(u32::MAX).saturating_mul(self.experiment.blocks);
        let commits = workload.info().primary_metric == "commits_per_second";
        if commits && window.saturating_mul(trials) >= WORTH_A_PROBE {
            let data = reached.cluster.as_ref().and_then(|c| c.standby_data_dir());
            let host = match &reached.standby_host {
                Some(host) => Some(host.as_str()),
                None => data.is_some().then_some(LOCAL),
            };
            let standby = host.map(|host| Standby { host, data: data.as_deref() });
            scene.measure_expected(standby, admin);
        }
        scene
    }

    /// Every host of the file, reached before anything is changed.
    fn hosts(&self) -> Result<Hosts, Failure> {
        let mut hosts = Hosts::from([(LOCAL.to_owned(), Arc::new(Host::local()))]);
        for (name, spec) in &self.experiment.hosts {
            hosts.insert(name.clone(), Arc::new(Host::connect(name, spec)?));
        }
        Ok(hosts)
    }

    /// One experiment a workload: several in a file are told apart by their names.
    fn name_of(&self, spec: &WorkloadSpec) -> String {
        match self.experiment.workloads.len() {
            1 => self.experiment.name.clone(),
            _ => format!("{} {}", self.experiment.name, spec.name),
        }
    }

    fn manifest(
        &self,
        name: &str,
        conditions: &[LiveCondition],
        targets: &mut BTreeMap<String, live::Target>,
    ) -> Manifest {
        let e = &self.experiment;
        let mut environment = BTreeMap::new();
        let mut primary = e.primary.clone();
        let several = targets.len() > 1;
        for (name, target) in targets.iter_mut() {
            let prefix = if several { format!("{name}.") } else { String::new() };
            for (key, value) in environment::describe(&mut target.admin, &target.server) {
                environment.insert(format!("{prefix}{key}"), value);
            }
            primary.get_or_insert_with(|| target.workload.info().primary_metric);
        }
        let aa = e.aa.then(|| format!("{}{AA_SUFFIX}", e.baseline));
        Manifest {
            schema: MANIFEST_SCHEMA.to_owned(),
            pgio: env!("CARGO_PKG_VERSION").to_owned(),
            name: name.to_owned(),
            created_at: Timestamp::now().to_string(),
            seed: self.seed,
            blocks: e.blocks,
            baseline: e.baseline.clone(),
            aa,
            primary_metric: primary.unwrap_or_default(),
            conditions: conditions
                .iter()
                .map(|c| ConditionInfo {
                    name: c.name.clone(),
                    treatments: c.treatments.iter().flat_map(|t| t.describe()).collect(),
                })
                .collect(),
            environment,
        }
    }

    /// The file as run, without what a dsn may hold of a secret.
    fn stored_text(&self, servers: &BTreeMap<String, Reached>) -> String {
        let mut text = self.text.clone();
        for (name, target) in &self.experiment.targets {
            let (Target::Server { dsn, .. }, Some(reached)) = (target, servers.get(name)) else {
                continue;
            };
            if reached.params.password.is_some() {
                text = text.replace(dsn.expose(), &reached.params.without_secrets());
            }
        }
        let leaked = servers
            .values()
            .filter_map(|r| r.params.password.as_ref())
            .any(|p| !p.expose().is_empty() && text.contains(p.expose()));
        if leaked { "# not stored: it holds a password\n".to_owned() } else { text }
    }
}

/// A server that the experiment found or started.
#[derive(Debug)]
struct Reached {
    params: crate::pg::connect::ConnectParams,
    cluster: Option<Arc<PrivateCluster>>,
    hosts: Hosts,
    /// By the file; names in `hosts`.
    host: Option<String>,
    standby_host: Option<String>,
}

pub(super) fn start_private(
    pg: Option<VersionRequest>,
    standby: bool,
) -> Result<Arc<PrivateCluster>, Failure> {
    let exe = std::env::current_exe()
        .map_err(|e| Failure::new(FAILED, e).context("cannot find pgio's own program file"))?;
    let mut status = Status::new();
    status.show("starting PostgreSQL …");
    let cluster = PrivateCluster::start(&Spec { pg, standby, ..Spec::new(exe) })?;
    Ok(Arc::new(cluster))
}

fn load_private(layer: &Layer, reached: &Reached, admin: &mut Client, stop: &Stop) -> Outcome {
    let spec = setup::load_spec(&LoadSettings::resolve(layer.clone()));
    // What would not run is not worth loading.
    SlobSettings::resolve(layer.clone())?;
    setup::load(admin, &reached.params, &spec, stop, false)?;
    Ok(())
}

/// Says on stderr how far an experiment is.
#[derive(Debug)]
struct Teller {
    status: Status,
    trials: usize,
    done: usize,
    blocks: u32,
}

impl Teller {
    fn new(trials: usize, blocks: u32) -> Teller {
        Teller { status: Status::new(), trials, done: 0, blocks }
    }

    fn tell(&mut self, happening: &Happening<'_>) {
        match happening {
            Happening::Begins { planned, condition } => self.show(planned, condition, ""),
            Happening::Progress { condition, progress } => {
                let rate = |n: u64| n as f64 / progress.elapsed.max(1e-3);
                let text = format!(
                    "trial {} of {}: {condition}, {:.0} s, {:.0} commits/s",
                    self.done + 1,
                    self.trials,
                    progress.elapsed,
                    rate(progress.commits),
                );
                self.status.show(&text);
            }
            Happening::Ended { planned, trial } => {
                self.done += 1;
                if let TrialOutcome::Failed { error } = &trial.outcome {
                    self.status.clear();
                    let place = trial.place.as_ref().map_or("", |p| p.condition.as_str());
                    eprintln!("pgio: block {}, {place}: failed: {error}", planned.block);
                }
                let block_done = (self.done * self.blocks as usize).is_multiple_of(self.trials);
                if !self.status.is_live() && block_done {
                    eprintln!("pgio: {} of {} trials", self.done, self.trials);
                }
            }
        }
    }

    fn show(&mut self, planned: &Planned, condition: &str, more: &str) {
        let text = format!(
            "trial {} of {}: block {} of {}, {condition}{more}",
            self.done + 1,
            self.trials,
            planned.block,
            self.blocks
        );
        self.status.show(&text);
    }
}
