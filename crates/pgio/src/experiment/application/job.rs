//! An experiment file, parsed and checked: what it asks for, and under which seed.
//!
//! Only text is looked at, so that a mistake in the file is refused before anything else happens.

use std::path::{Path, PathBuf};

use super::cells;
use crate::config::ConfigError;
use crate::config::experiment::{self, Experiment, WorkloadSpec};
use crate::experiment::connection::GivenKeys;
use crate::experiment::state;
use crate::results::{checks, metrics};
use crate::treatment::{self, TreatmentError};
use crate::workload::command;

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{file}: workload.metric: `{name}` is a metric of pgio's own: take another name")]
    OwnMetric { file: String, name: String },
    #[error("{file}: {key}: no metric `{metric}`; there are {names}")]
    NoMetric { file: String, key: &'static str, metric: String, names: String },
    #[error("{file}")]
    Treatment { file: String, source: TreatmentError },
}

/// An experiment file, ready to be run.
#[derive(Debug)]
pub struct Job {
    pub experiment: Experiment,
    pub(super) text: String,
    pub seed: u64,
    /// Of ./pgio.conf, below the file's own.
    pub below: GivenKeys,
}

impl Job {
    /// `file` is what errors call it, `stem` the experiment's name where the text has none. A seed is drawn where
    /// the text has none.
    pub fn parse(text: &str, file: &str, stem: &str, below: GivenKeys) -> Result<Job, JobError> {
        let experiment =
            experiment::parse(text, file, stem, &treatment::names(), &checks::tolerable())?;
        check_metrics(&experiment, file)?;
        cells::check_treatments(&experiment)
            .map_err(|source| JobError::Treatment { file: file.to_owned(), source })?;
        let seed = experiment.seed.unwrap_or_else(state::new_seed);
        Ok(Job { experiment, text: text.to_owned(), seed, below })
    }

    /// Where a workload's results are.
    pub fn dir_of(&self, out: &Path, workload: &WorkloadSpec) -> PathBuf {
        match self.experiment.workloads.len() {
            1 => out.to_owned(),
            _ => out.join(&workload.name),
        }
    }

    /// Each workload is an experiment of its own; several in a file differ in their names.
    pub(super) fn name_of(&self, spec: &WorkloadSpec) -> String {
        match self.experiment.workloads.len() {
            1 => self.experiment.name.clone(),
            _ => format!("{} {}", self.experiment.name, spec.name),
        }
    }
}

fn check_metrics(experiment: &Experiment, file: &str) -> Result<(), JobError> {
    let mut declared = Vec::new();
    for spec in experiment.workloads.iter().filter_map(|w| w.command.as_ref()) {
        declared.extend(command::declared(spec));
    }
    if let Some(taken) = declared.iter().find(|m| metrics::definition(&m.name).is_some()) {
        return Err(JobError::OwnMetric { file: file.to_owned(), name: taken.name.clone() });
    }
    let also = experiment.rules.question.also_judge.iter().map(|name| ("also_judge", name));
    let named = experiment.primary.iter().map(|name| ("primary", name)).chain(also);
    for (key, metric) in named {
        if metrics::find(&declared, metric).is_none() {
            let names: Vec<&str> = metrics::all(&declared).map(|m| m.name).collect();
            let (file, metric) = (file.to_owned(), metric.clone());
            return Err(JobError::NoMetric { file, key, metric, names: names.join(", ") });
        }
    }
    Ok(())
}
