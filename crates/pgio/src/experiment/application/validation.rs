//! What `--plan` refuses: all that `compare` would refuse before its first change, with the same sentences
//! and exit codes. It changes nothing: sessions can only read, no data set is loaded, no directory is
//! made, nothing is probed or journaled, and a private server is not started.
//!
//! Of a private server only what can be told without it is checked; [`Job::validate`] returns what remains
//! open, for the plan to say.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::cells::layers;
use super::job::Job;
use super::targets::Reached;
use crate::cli::exit::{Failure, USAGE};
use crate::cli::{Outcome, journals, setup};
use crate::config::experiment::{Target, WorkloadKind, WorkloadSpec};
use crate::config::{CommitSettings, DeviceSettings, LoadSettings, MailSettings, SlobSettings};
use crate::experiment::live;
use crate::host::stop::Stop;
use crate::host::{Host, Hosts, LOCAL};
use crate::pg::private::{self, VersionRequest};
use crate::results::store::Store;
use crate::workload::command::check_programs;

impl Job {
    /// Refuses what could not be run; says what could not be checked.
    pub(super) fn validate(&self, out: &Path) -> Result<Vec<String>, Failure> {
        let params = self.params("plan")?;
        journals::refuse_unfinished(params.values())?;
        for workload in &self.experiment.workloads {
            Store::check_free(&self.dir_of(out, workload))?;
        }
        let hosts = self.hosts()?;
        self.check_rights(&hosts)?;
        let servers = self.found_servers(params, &hosts);
        for workload in &self.experiment.workloads {
            self.validate_workload(workload, &servers, &hosts)?;
        }
        self.validate_private()
    }

    fn validate_workload(
        &self,
        spec: &WorkloadSpec,
        servers: &BTreeMap<String, Reached>,
        hosts: &Hosts,
    ) -> Outcome {
        let stop = Stop::new();
        let cells = self.cells(spec)?;
        let mut rules = self.experiment.rules.clone();
        rules.reset = self.experiment.reset_of(spec).clone();
        let mut targets = BTreeMap::new();
        for (name, reached) in servers {
            if cells.iter().any(|c| c.target == *name) {
                targets.insert(name.clone(), self.target_as_it_is(spec, reached, &stop)?);
            }
        }
        live::check(&cells, &mut targets, hosts, &rules, &stop)?;
        if cells.iter().any(|cell| !servers.contains_key(&cell.target)) {
            self.validate_work(spec, hosts)?;
        }
        Ok(())
    }

    /// The work on a server that is not there yet.
    fn validate_work(&self, spec: &WorkloadSpec, hosts: &Hosts) -> Outcome {
        for layer in layers(spec, self.experiment.sweep) {
            let layer = layer.over(self.below.layer.clone());
            match spec.kind {
                WorkloadKind::Slob => {
                    setup::load_spec(&LoadSettings::resolve(layer.clone())?);
                    SlobSettings::resolve(layer)?;
                }
                WorkloadKind::Commit => {
                    CommitSettings::resolve(layer)?;
                }
                WorkloadKind::Device => {
                    DeviceSettings::resolve(layer);
                }
                WorkloadKind::Mail => {
                    MailSettings::resolve(layer, "")?;
                }
                WorkloadKind::Command => {}
            }
        }
        let Some(command) = &spec.command else { return Ok(()) };
        let name = command.host.as_deref().unwrap_or(LOCAL);
        let host = match hosts.get(name) {
            Some(host) => Arc::clone(host),
            None if name == LOCAL => Arc::new(Host::local()),
            None => {
                let text = format!("host `{name}` is not known: write [hosts.{name}]");
                return Err(Failure::message(USAGE, text));
            }
        };
        Ok(check_programs(command, &host)?)
    }

    fn validate_private(&self) -> Result<Vec<String>, Failure> {
        let mut open = Vec::new();
        for (name, target) in &self.experiment.targets {
            let Target::Private { major, directory, .. } = target else { continue };
            if let Some(directory) = directory {
                private::check_base(directory)?;
            }
            let programs = match private::find_installed(major.map(VersionRequest::major))? {
                Some(found) => format!("PostgreSQL {}", found.version),
                None => "a PostgreSQL that will be downloaded".to_owned(),
            };
            open.push(format!(
                "[{name}] is {programs}, not started for the plan: what only the running server can refuse, such as a setting that it does not know, is refused when the experiment begins."
            ));
        }
        Ok(open)
    }
}
