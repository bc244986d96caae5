//! An experiment file on its way to being run: parsed, then one experiment for each workload.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::targets::Reached;
use super::telling::Teller;
use crate::cli::exit::{Failure, TRIAL, USAGE};
use crate::cli::{Outcome, connection, state};
use crate::config::experiment::{self, AA_SUFFIX, Experiment, Target, WorkloadSpec};
use crate::experiment::environment;
use crate::experiment::live::{self, Happening, Live, LiveCondition};
use crate::experiment::plan::plan;
use crate::experiment::run::{Ended, run as run_plan};
use crate::host::stop::Stop;
use crate::pg::private::VersionRequest;
use crate::results::store::{ConditionInfo, MANIFEST_SCHEMA, Manifest, Store};
use crate::results::{checks, metrics};
use crate::treatment;
use crate::treatment::journal::{self, Journal};

/// An experiment file on its way to being run.
#[derive(Debug)]
pub(in crate::cli) struct Job {
    pub(in crate::cli) experiment: Experiment,
    text: String,
    pub(super) seed: u64,
    /// ./pgio.conf, below the file's own keys.
    pub(super) below: connection::Given,
}

impl Job {
    pub(in crate::cli) fn parse(text: &str, file: &str, stem: &str) -> Result<Job, Failure> {
        let experiment =
            experiment::parse(text, file, stem, &treatment::names(), &checks::tolerable())?;
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
    pub(super) fn conditions(
        &self,
        workload: &WorkloadSpec,
    ) -> Result<Vec<LiveCondition>, Failure> {
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

    /// Runs every workload and returns the directories of their results.
    pub(in crate::cli) fn run(
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
            let (Target::Server { dsn }, Some(reached)) = (target, servers.get(name)) else {
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
