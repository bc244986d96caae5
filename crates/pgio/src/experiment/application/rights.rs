//! Refuses conditions that this user may not apply, before a server is started and a data set is
//! loaded into it.
//!
//! Queries the hosts only; the treatments' `check` comes later and checks
//! everything. Next: `servers`.

use super::cells::cells;
use super::error::OpenError;
use super::job::Job;
use crate::config::experiment::{Experiment, Target};
use crate::experiment::error::LiveError;
use crate::experiment::live::LiveCell;
use crate::host::{Hosts, LOCAL};
use crate::treatment::Machines;

pub(super) fn check(job: &Job, hosts: &Hosts) -> Result<(), OpenError> {
    for workload in &job.experiment.workloads {
        for cell in cells(job, workload)? {
            for target in cell.targets() {
                check_cell(&job.experiment, &cell, target, hosts)?;
            }
        }
    }
    Ok(())
}

fn check_cell(
    e: &Experiment,
    cell: &LiveCell,
    target: &str,
    hosts: &Hosts,
) -> Result<(), LiveError> {
    let server = match e.targets.get(target) {
        Some(Target::Private(_)) => Some(LOCAL),
        Some(Target::Server { host, .. }) => host.as_deref(),
        None => None,
    };
    // The server's host is found later, and the rights there are checked then.
    if server.is_none() {
        return Ok(());
    }
    let machines = Machines { hosts, server };
    for treatment in cell.treatments.iter() {
        treatment.check_rights(&machines).map_err(|source| LiveError::Treatment {
            condition: cell.title.clone(),
            source: Box::new(source),
        })?;
    }
    Ok(())
}
