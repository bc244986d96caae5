//! What is missing or would spoil a measurement, found before anything is measured; each with a remedy.
//!
//! [`Scope`] is what a run would use; [`examine`] checks it, one [`Section`] for each subject. Changes
//! nothing: ends no session and creates no table. What only a trial can show is judged there
//! (`trial_checks`).
//!
//! One file per subject, in one shape: it gathers facts first; each check is a function of the facts.
//! Prints nothing. Next: `cli::doctor` shows the sections.

mod machine;
mod server;
mod storage;
mod subject;

use std::sync::Arc;

pub use self::subject::Scope;
use crate::config::command::CommandSpec;
use crate::host::{Host, Hosts, LOCAL, called};
use crate::pg::words;
use crate::workload::command::{Lines, check_programs};
use pgio_results::Check;

/// Checks pgio's own surroundings, the machines, the commands and the servers, in this order. Takes a
/// second for each machine.
pub fn examine(scope: &Scope) -> Vec<Section> {
    let (machines, hosts) = machine::sections(&scope.hosts);
    let mut sections = vec![machine::surroundings()];
    sections.extend(machines);
    sections.extend(commands(&scope.commands, &hosts));
    sections.extend(scope.subjects.iter().map(|subject| server::section(subject, &hosts)));
    sections
}

/// What was found on one subject: this machine, a host, a server; in the order in which they are shown.
#[derive(Debug)]
pub struct Section {
    pub title: String,
    pub checks: Vec<Check>,
}

/// Checks that the programs of commands, and the scripts that these read, exist on the hosts they run on.
/// Returns one section for all commands; none if there is no command.
fn commands(commands: &[(String, CommandSpec)], hosts: &Hosts) -> Option<Section> {
    if commands.is_empty() {
        return None;
    }
    let checks = commands.iter().map(|(name, spec)| check_command(name, spec, hosts)).collect();
    Some(Section { title: "Commands".to_owned(), checks })
}

fn check_command(name: &str, spec: &CommandSpec, hosts: &Hosts) -> Check {
    const ID: &str = "command-programs";
    let on = spec.host.as_deref().unwrap_or(LOCAL);
    let host = match hosts.get(on) {
        Some(host) => Arc::clone(host),
        None if on == LOCAL => Arc::new(Host::local()),
        None => {
            let what =
                format!("workload {name} runs on host {on}, which is unknown or unreachable");
            return Check::invalid(
                ID,
                what,
                format!("write [hosts.{on}], or find out why it cannot be reached"),
            );
        }
    };
    match check_programs(spec, Lines::All, &host) {
        Ok(()) => {
            let preset = spec.preset.as_ref().map_or(String::new(), |p| format!(" (preset {p})"));
            Check::ok(
                ID,
                format!("workload {name}{preset}: its programs and files exist on {}", called(on)),
            )
        }
        Err(error) => Check::invalid(
            ID,
            format!("workload {name}: {}", words::sentence(&error)),
            "install what is missing, or correct the command; `pgio compare` refuses it",
        ),
    }
}
