//! `[hosts.NAME]`: machines that pgio observes, and how to reach them.
//!
//! This module only parses; `host` connects. `[target]` selects the server's host.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{self, PathBuf};

use serde::{Deserialize, Serialize};

use super::key::{Key, Parsed, section};
use super::limits;
use super::section::Section;
use crate::config::drivers::{
    DriverEngine, DriverSpec, MAX_DRIVERS, Named, Spread, parse_cpu, parse_engine,
};
use crate::config::value::{self, ConfigError, nearest};

section! { keys, "[hosts.NAME]",
    "A machine that pgio observes or that a condition changes. `local` is always this machine. [hosts] may have an `inventory`, as [targets] may; `ssh` is then \"{name}\" unless set.";
    ssh: Parsed<String>("a destination such as postgres@db1", destination) or "this machine", "destination for ssh";
    ssh_config: Parsed<PathBuf>("a path", |text| Ok(text.into())) or "~/.ssh/config", "configuration file for ssh";
}

section! { driver_keys, "[drivers]",
    "Several processes that generate the load together. Without it, pgio alone does.";
    engine: Parsed<Named>("local:N, slurm:N, kubernetes:N, run:COMMAND or run:N:COMMAND", parse_engine) or "none; --drivers",
        "what starts the N drivers; COMMAND contains {drive}, the driver's command, and may contain {n}";
    count: Whole<u32>(1..=MAX_DRIVERS), "number of drivers if the engine is run:COMMAND";
    spread: Parsed<Spread>("sessions or target", spread_named) or "sessions",
        "what is divided among the drivers: sessions gives each a range of every server's sessions; target gives each server drivers of its own";
    image: Parsed<String>("the name of an image", text) or "none; --image",
        "container image for Kubernetes drivers; it must contain the same program file";
    cpu: Parsed<String>("a number of cores, or of thousandths of one with m", parse_cpu) or "1",
        "CPU that each driver pod requests, such as \"500m\"";
    listen: Parsed<SocketAddr>("ADDRESS:PORT", listen_address) or "a free port on all addresses, for local drivers on the loopback",
        "where pgio listens for its drivers";
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

/// The keys of `[drivers]`, below the flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverKeys {
    pub engine: Option<Named>,
    pub count: Option<u32>,
    pub image: Option<String>,
    pub cpu: Option<String>,
    pub spread: Option<Spread>,
    pub listen: Option<SocketAddr>,
}

impl DriverKeys {
    /// Returns what the flags and the file ask for together; `None` without an engine.
    pub fn resolve(
        &self,
        engine: Option<Named>,
        image: Option<String>,
    ) -> Result<Option<DriverSpec>, String> {
        let by_flag = engine.is_some();
        let Some(engine) = engine.or_else(|| self.engine.clone()) else {
            return match image {
                Some(_) => Err("--image needs --drivers kubernetes:N".to_owned()),
                None => Ok(None),
            };
        };
        // The file's image is for the file's engine.
        let file_image =
            self.image.clone().filter(|_| !by_flag || matches!(engine.0, DriverEngine::Kubernetes));
        if !by_flag {
            self.check_engine(&engine)?;
        }
        let mut spec = DriverSpec::new(engine, self.count, image.or(file_image), self.listen)?;
        if let Some(cpu) = &self.cpu {
            spec.cpu.clone_from(cpu);
        }
        spec.spread = self.spread.unwrap_or_default();
        Ok(Some(spec))
    }

    /// Refuses keys of the file that its engine does not use.
    fn check_engine(&self, (engine, named): &Named) -> Result<(), String> {
        match (named, self.count) {
            (Some(named), Some(count)) if *named != count => {
                return Err(format!(
                    "engine starts {named} drivers and count is {count}; delete count"
                ));
            }
            _ => {}
        }
        match engine {
            DriverEngine::Kubernetes => Ok(()),
            _ if self.cpu.is_some() => Err("cpu is only for kubernetes:N; delete it".to_owned()),
            _ => Ok(()),
        }
    }
}

pub(super) fn parse_drivers(root: &Section<'_>) -> Result<DriverKeys, ConfigError> {
    let Some(section) = root.section("drivers")? else { return Ok(DriverKeys::default()) };
    section.refuse_keys_outside(&driver_keys::SECTION)?;
    Ok(DriverKeys {
        engine: section.read(&driver_keys::engine)?,
        count: section.read(&driver_keys::count)?,
        spread: section.read(&driver_keys::spread)?,
        image: section.read(&driver_keys::image)?,
        cpu: section.read(&driver_keys::cpu)?,
        listen: section.read(&driver_keys::listen)?,
    })
}

fn spread_named(text: &str) -> Result<Spread, String> {
    let named = Spread::ALL.iter().find(|(name, _)| *name == text).map(|(_, spread)| *spread);
    let why = || format!("`{text}` is not a way to spread the work; write sessions or target");
    named.ok_or_else(why)
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is not ADDRESS:PORT, such as 10.0.0.1:7432"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_the_engine_does_not_use_are_refused() {
        let keys = DriverKeys {
            engine: parse_engine("slurm:4").ok(),
            count: Some(8),
            ..DriverKeys::default()
        };
        let error = keys.resolve(None, None).unwrap_err();
        assert_eq!(error, "engine starts 4 drivers and count is 8; delete count");
        let by_flag = keys.resolve(parse_engine("local:2").ok(), None).unwrap().unwrap();
        assert_eq!(by_flag.count, 2, "the file's keys are for its own engine");
        let keys = DriverKeys { count: None, cpu: Some("2".to_owned()), ..keys };
        assert_eq!(
            keys.resolve(None, None).unwrap_err(),
            "cpu is only for kubernetes:N; delete it"
        );
    }
}
