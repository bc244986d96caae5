//! Who may not do what a condition asks for hears of it first: before a server is started, and before
//! a data set is loaded into it.
//!
//! Asks the hosts alone, and only for what can be told without a server; the treatments' `check`
//! comes later and looks at everything. Next: `targets`.

use super::job::Job;
use crate::cli::Outcome;
use crate::config::experiment::Target;
use crate::experiment::live::LiveError;
use crate::host::{Hosts, LOCAL};
use crate::treatment::{self, Machines};

impl Job {
    pub(super) fn check_rights(&self, hosts: &Hosts) -> Outcome {
        for condition in &self.experiment.conditions {
            let target = condition.target.as_deref().unwrap_or_default();
            let server = match self.experiment.targets.get(target) {
                Some(Target::Private { .. }) => Some(LOCAL),
                Some(Target::Server { host, .. }) => host.as_deref(),
                None => None,
            };
            // Where it runs is found out later, and so is what may be done there.
            if server.is_none() {
                continue;
            }
            let machines = Machines { hosts, server };
            for treatment in treatment::parse_all(&condition.treatments)? {
                treatment.check_rights(&machines).map_err(|source| LiveError::Treatment {
                    condition: condition.name.clone(),
                    source: Box::new(source),
                })?;
            }
        }
        Ok(())
    }
}
