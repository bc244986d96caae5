//! Commands of an experiment: checks that their programs, and the scripts that these read, exist on the
//! hosts they run on.

use std::sync::Arc;

use super::section::Section;
use crate::config::command::CommandSpec;
use crate::host::{Host, Hosts, LOCAL, called};
use crate::pg::words;
use crate::workload::command::{Lines, check_programs};
use pgio_results::Check;

/// Returns one section for all commands; none if there is no command.
pub(super) fn section(commands: &[(String, CommandSpec)], hosts: &Hosts) -> Option<Section> {
    if commands.is_empty() {
        return None;
    }
    let checks = commands.iter().map(|(name, spec)| check(name, spec, hosts)).collect();
    Some(Section { title: "Commands".to_owned(), checks })
}

fn check(name: &str, spec: &CommandSpec, hosts: &Hosts) -> Check {
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
