//! `[hosts.NAME]`: machines that are watched, and how to get there.
//!
//! Only what the file says; `host` connects. `[target]` says which of them is the server's.

use std::collections::BTreeMap;
use std::path::{self, PathBuf};

use serde::{Deserialize, Serialize};

use super::limits;
use super::section::Section;
use crate::config::error::{ConfigError, nearest};
use crate::config::name;
use crate::config::sections;

/// This machine's name in results, whether the file names it or not.
const THIS_MACHINE: &str = "local";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpec {
    /// What is given to ssh, such as `postgres@db1`; absent: this machine.
    pub ssh: Option<String>,
    /// A configuration file for ssh instead of ~/.ssh/config.
    pub ssh_config: Option<PathBuf>,
}

impl HostSpec {
    /// The same for whoever stands in another directory than this process, as `pgio undo` may.
    #[must_use]
    pub fn absolute(&self) -> HostSpec {
        // Without a present directory the file could not be found from here either.
        let of = |path: &PathBuf| path::absolute(path).unwrap_or_else(|_| path.clone());
        HostSpec { ssh: self.ssh.clone(), ssh_config: self.ssh_config.as_ref().map(of) }
    }
}

pub(super) fn parse(root: &Section<'_>) -> Result<BTreeMap<String, HostSpec>, ConfigError> {
    let Some(hosts) = root.section("hosts")? else { return Ok(BTreeMap::new()) };
    hosts.at_most(limits::HOSTS)?;
    let mut found = BTreeMap::new();
    for name in hosts.keys() {
        let Some(section) = hosts.section(name)? else { continue };
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(hosts.error(name, "is no name for a host: use one word"));
        }
        name::check(name).map_err(|message| hosts.error(name, message))?;
        let spec = host(&section)?;
        if name == THIS_MACHINE && spec.ssh.is_some() {
            let message = "contradicts the name `local`, which is this machine: use another name";
            return Err(section.error("ssh", message));
        }
        found.insert(name.to_owned(), spec);
    }
    refuse_two_that_are_here(&hosts, &found)?;
    Ok(found)
}

/// What is meant for one of them would be done to the other.
fn refuse_two_that_are_here(
    hosts: &Section<'_>,
    found: &BTreeMap<String, HostSpec>,
) -> Result<(), ConfigError> {
    let mut here = found.iter().filter(|(_, spec)| spec.ssh.is_none()).map(|(name, _)| name);
    match (here.next(), here.next()) {
        (Some(one), Some(other)) => Err(hosts.error(
            other,
            format!(
                "is this machine, as it has no ssh, and so is `{one}`: write ssh = \"user@host\" in one of the two, or leave it out"
            ),
        )),
        _ => Ok(()),
    }
}

fn host(section: &Section<'_>) -> Result<HostSpec, ConfigError> {
    section.only_keys_of(&sections::HOST)?;
    let ssh = section.string("ssh")?;
    if let Some(destination) = ssh
        && (destination.is_empty()
            || destination.contains(|c: char| c.is_whitespace() || c.is_control()))
    {
        let message = "must be one word as ssh takes it, such as \"postgres@db1\"; a port or a key \
                       belongs into ~/.ssh/config or ssh_config";
        return Err(section.error("ssh", message));
    }
    let ssh_config = section.string("ssh_config")?;
    if ssh.is_none() && ssh_config.is_some() {
        return Err(section.error("ssh_config", "has no use without ssh = \"user@host\""));
    }
    Ok(HostSpec { ssh: ssh.map(str::to_owned), ssh_config: ssh_config.map(PathBuf::from) })
}

/// A key whose value is the name of a host of the experiment.
pub(super) fn named(
    section: &Section<'_>,
    key: &str,
    hosts: &BTreeMap<String, HostSpec>,
) -> Result<Option<String>, ConfigError> {
    let Some(name) = section.string(key)? else { return Ok(None) };
    if name == THIS_MACHINE || hosts.contains_key(name) {
        return Ok(Some(name.to_owned()));
    }
    let names: Vec<&str> = hosts.keys().map(String::as_str).collect();
    Err(section.error(
        key,
        match names.as_slice() {
            [] => format!("`{name}` is no host: write [hosts.{name}] with ssh = \"user@host\""),
            _ => format!("`{name}` is no host; {}", nearest(name, &names)),
        },
    ))
}
