//! Who may not do what a condition asks for hears of it first: before a server is started, and before
//! a data set is loaded into it.
//!
//! Asks the hosts alone, and only for what can be told without a server; the treatments' `check`
//! comes later and looks at everything. Next: `targets`.

use super::job::Job;
use crate::cli::Outcome;
use crate::config::experiment::Target;
use crate::experiment::live::{LiveCell, LiveError};
use crate::host::{Hosts, LOCAL};
use crate::treatment::Machines;

impl Job {
    pub(super) fn check_rights(&self, hosts: &Hosts) -> Outcome {
        for workload in &self.experiment.workloads {
            for cell in self.cells(workload)? {
                self.check_rights_of(&cell, hosts)?;
            }
        }
        Ok(())
    }

    fn check_rights_of(&self, cell: &LiveCell, hosts: &Hosts) -> Outcome {
        let server = match self.experiment.targets.get(&cell.target) {
            Some(Target::Private { .. }) => Some(LOCAL),
            Some(Target::Server { host, .. }) => host.as_deref(),
            None => None,
        };
        // Where it runs is found out later, and so is what may be done there.
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
}
