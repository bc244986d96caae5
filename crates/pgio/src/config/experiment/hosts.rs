//! `[hosts.NAME]`: machines that pgio observes, and how to reach them.
//!
//! This module only parses; `host` connects. `[target]` selects the server's host.

use std::collections::BTreeMap;
use std::path::{self, PathBuf};

use serde::{Deserialize, Serialize};

use super::key::{Key, Parsed, section};
use super::limits;
use super::section::Section;
use crate::config::value::{self, ConfigError, nearest};

section! { keys, "[hosts.NAME]",
    "A machine that pgio observes or that a condition changes. `local` is always this machine. [hosts] may have an `inventory`, as [targets] may; `ssh` is then \"{name}\" unless set.";
    ssh: Parsed<String>("a destination such as postgres@db1", destination) or "this machine", "destination for ssh";
    ssh_config: Parsed<PathBuf>("a path", |text| Ok(text.into())) or "~/.ssh/config", "configuration file for ssh";
}

/// The name of this machine in files and results.
const THIS_MACHINE: &str = "local";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpec {
    /// Destination for ssh, such as `postgres@db1`; absent: this machine.
    pub ssh: Option<String>,
    /// Configuration file for ssh; absent: ~/.ssh/config.
    pub ssh_config: Option<PathBuf>,
}

impl HostSpec {
    /// Makes paths absolute, because `pgio undo` may run in another directory.
    #[must_use]
    pub fn absolute(&self) -> HostSpec {
        // Without a current directory, the relative path does not work here either.
        let absolute = |path: &PathBuf| path::absolute(path).unwrap_or_else(|_| path.clone());
        HostSpec { ssh: self.ssh.clone(), ssh_config: self.ssh_config.as_ref().map(absolute) }
    }
}

pub(super) fn parse(root: &Section<'_>) -> Result<BTreeMap<String, HostSpec>, ConfigError> {
    let Some(hosts) = root.section("hosts")? else { return Ok(BTreeMap::new()) };
    hosts.limit_entries(limits::HOSTS)?;
    let mut specs = BTreeMap::new();
    for name in hosts.keys() {
        let Some(section) = hosts.section(name)? else { continue };
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(hosts.error(name, "is not a valid host name; use one word"));
        }
        value::check_name(name).map_err(|message| hosts.error(name, message))?;
        let spec = host(&section)?;
        if name == THIS_MACHINE && spec.ssh.is_some() {
            let message =
                "cannot be set for `local`, which is always this machine; use another name";
            return Err(section.error(&keys::ssh, message));
        }
        specs.insert(name.to_owned(), spec);
    }
    refuse_two_local(&hosts, &specs)?;
    Ok(specs)
}

/// Refuses two names for this machine: a change for one would also affect the other.
fn refuse_two_local(
    hosts: &Section<'_>,
    specs: &BTreeMap<String, HostSpec>,
) -> Result<(), ConfigError> {
    let mut local = specs.iter().filter(|(_, spec)| spec.ssh.is_none()).map(|(name, _)| name);
    match (local.next(), local.next()) {
        (Some(one), Some(other)) => Err(hosts.error(
            other,
            format!(
                "is this machine, because it has no ssh, and so is `{one}`; write ssh = \"user@host\" in one of them, or remove one"
            ),
        )),
        _ => Ok(()),
    }
}

fn host(section: &Section<'_>) -> Result<HostSpec, ConfigError> {
    section.refuse_keys_outside(&keys::SECTION)?;
    let (ssh, ssh_config) = (section.read(&keys::ssh)?, section.read(&keys::ssh_config)?);
    if ssh.is_none() && ssh_config.is_some() {
        return Err(section.error(&keys::ssh_config, "requires ssh = \"user@host\""));
    }
    Ok(HostSpec { ssh, ssh_config })
}

fn destination(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let message = "must be one word, such as \"postgres@db1\"; write ports and keys in \
                       ~/.ssh/config or in ssh_config";
        return Err(message.to_owned());
    }
    Ok(text.to_owned())
}

/// Reads a key whose value is the name of a host.
pub(super) fn named(
    section: &Section<'_>,
    key: &Key<Parsed<String>>,
    hosts: &BTreeMap<String, HostSpec>,
) -> Result<Option<String>, ConfigError> {
    let Some(name) = section.read(key)? else { return Ok(None) };
    if name == THIS_MACHINE || hosts.contains_key(&name) {
        return Ok(Some(name));
    }
    let names: Vec<&str> = hosts.keys().map(String::as_str).collect();
    Err(section.error(
        key,
        match names.as_slice() {
            [] => format!("`{name}` is not a host; add [hosts.{name}] with ssh = \"user@host\""),
            _ => format!("`{name}` is not a host; {}", nearest(&name, &names)),
        },
    ))
}
