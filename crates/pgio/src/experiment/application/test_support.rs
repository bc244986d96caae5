//! Experiment files for the tests of this module.

use super::cells::cells;
use super::job::{Job, JobError};
use crate::config::experiment::WorkloadSpec;
use crate::experiment::connection::ConnectionKeys;
use crate::experiment::live::LiveCell;

/// Two conditions on a private server; `before` stands above them.
pub(super) fn try_job(before: &str) -> Result<Job, JobError> {
    let text = format!(
        "{before}\n[[condition]]\nname = 'local'\npostgres = {{ synchronous_commit = 'local' }}\n\
         [[condition]]\nname = 'on'\npostgres = {{ synchronous_commit = 'on' }}\n"
    );
    Job::parse(&text, "x.toml", "x", ConnectionKeys::default())
}

pub(super) fn job(before: &str) -> Job {
    try_job(before).unwrap_or_else(|error| panic!("{error}"))
}

/// Six blocks of commits, with A/A and burn-in.
pub(super) const COMMITS: &str = "[experiment]\nblocks = 6\nduration = '10s'\nwarmup = '2s'\nseed = 7\n\
                                  [target]\nprivate = true\n[workload]\nkind = 'commit'\n";

pub(super) fn first(job: &Job) -> (&WorkloadSpec, Vec<LiveCell>) {
    let spec = &job.experiment.workloads[0];
    (spec, cells(job, spec).unwrap())
}
