//! Runs an experiment file: one experiment for each workload, one after the other.
//!
//! Everything that can refuse runs before the first change: unfinished runs, the results directory, the
//! servers, other runs, each condition. Events go to one observer; results are in the store. Next:
//! `workload_run` runs one workload.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use super::cells::cells;
use super::error::RunError;
use super::job::Job;
use super::resume;
use super::servers;
use super::validation;
use super::workload_run::SharedRun;
use crate::experiment::event::{Event, Observer};
use crate::experiment::{admin, clusters, environment, state};
use crate::host::stop::Stop;
use crate::pg::private::VersionRequest;
use crate::treatment::journal::Claims;
use pgio_results::store::Store;

/// Whether the directory is new or holds an interrupted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    New,
    Resume,
}

/// The results directory and the stop flag of a run.
#[derive(Debug)]
pub struct Run<'a> {
    pub out: &'a Path,
    pub start: Start,
    pub stop: &'a Stop,
    /// Version of private servers whose target names none.
    pub pg: Option<VersionRequest>,
}

/// Runs every workload and returns the directories of their results.
pub fn perform(
    job: &Job,
    run: &Run<'_>,
    observe: &mut Observer<'_>,
) -> Result<Vec<PathBuf>, RunError> {
    let dirs = workloads(job, run, observe);
    // Private servers are removed by now, whatever the outcome.
    clusters::forget_removed();
    dirs
}

fn workloads(
    job: &Job,
    run: &Run<'_>,
    observe: &mut Observer<'_>,
) -> Result<Vec<PathBuf>, RunError> {
    job.check_generators()?;
    let run_id = state::new_run_id();
    let params = servers::params(job, &run_id, observe)?;
    for other in admin::refuse_unfinished(params.values())? {
        observe(Event::OtherInterrupted(&other));
    }
    environment::held().iter().for_each(|held| observe(Event::Warns(&held.warning)));
    // Check rights before a server is started and a data set is loaded.
    for workload in &job.experiment.workloads {
        let dir = job.dir_of(run.out, workload);
        match run.start {
            Start::New => Store::check_free(&dir)?,
            Start::Resume => resume::check_file(job, &dir, &params)?,
        }
    }
    let servers = servers::open(job, params, &run_id, run.pg, run.stop, observe)?;
    // A later workload must not be refused after others have run for hours.
    for workload in job.experiment.workloads.iter().skip(1).filter(|_| run.start == Start::New) {
        validation::inspect(job, workload, &cells(job, workload)?, &servers, &mut |_| {})?;
    }
    // Claims are held to the end, also between two workloads.
    let mut claims = Claims::default();
    let shared = SharedRun {
        job,
        run_id: &run_id,
        resumes: run.start == Start::Resume,
        stop: run.stop,
        servers: &servers,
        generators: OnceCell::new(),
    };
    one_after_the_other(&job.experiment.workloads, run.stop, |workload| {
        let dir = job.dir_of(run.out, workload);
        shared.run_workload(workload, &dir, &mut claims, observe)?;
        Ok(dir)
    })
}

/// Returns the directories of all workloads. A stop between two workloads is an error as one inside a workload is: the
/// results of the first alone must not pass for the experiment's.
fn one_after_the_other<T>(
    workloads: &[T],
    stop: &Stop,
    mut run: impl FnMut(&T) -> Result<PathBuf, RunError>,
) -> Result<Vec<PathBuf>, RunError> {
    let mut dirs = Vec::new();
    for workload in workloads {
        if stop.requested() {
            return Err(RunError::Interrupted);
        }
        dirs.push(run(workload)?);
    }
    Ok(dirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stop is requested at the end of this workload, counted from 1, as by the observer or a last undo.
    fn stopped_after(number: usize) -> (usize, Result<Vec<PathBuf>, RunError>) {
        let stop = Stop::new();
        let mut ended = 0;
        let dirs = one_after_the_other(&["one", "two"], &stop, |name| {
            ended += 1;
            if ended == number {
                stop.request();
            }
            Ok(PathBuf::from(name))
        });
        (ended, dirs)
    }

    #[test]
    fn a_stop_between_two_workloads_interrupts_the_run() {
        let (ended, dirs) = stopped_after(1);
        assert!(matches!(dirs, Err(RunError::Interrupted)), "{dirs:?}");
        assert_eq!(ended, 1);
    }

    #[test]
    fn a_stop_after_the_last_workload_leaves_nothing_to_run() {
        for number in [2, 3] {
            let (ended, dirs) = stopped_after(number);
            assert_eq!(ended, 2);
            assert_eq!(dirs.unwrap(), ["one", "two"].map(PathBuf::from));
        }
    }
}
