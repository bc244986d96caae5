//! `[target]`, or several `[targets.NAME]`: the servers that conditions use.
//!
//! This module only parses; `pg` finds and starts servers and connects to them.

use std::collections::BTreeMap;

use super::hosts::{self, HostSpec};
use super::limits;
use super::private::{self, PrivateTarget};
use super::section::Section;
use crate::config::error::ConfigError;
use crate::config::name;
use crate::config::sections;
use crate::config::value::ConnectString;

/// The name of a single `[target]`.
pub const SINGLE_TARGET: &str = "target";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Server {
        dsn: ConnectString,
        /// A name in the experiment's hosts; absent: unknown, so pgio observes no device.
        host: Option<String>,
        standby_host: Option<String>,
        /// Kernel name of the block device to measure: data and WAL must be on it.
        device: Option<String>,
        /// Absent: pgio never stops the server.
        control: Option<ControlMethod>,
    },
    Private(PrivateTarget),
}

/// How pgio may stop and start a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlMethod {
    PgCtl,
    Systemctl { unit: String },
}

impl ControlMethod {
    fn parse(text: &str) -> Option<ControlMethod> {
        let mut words = text.split_whitespace();
        match (words.next()?, words.next(), words.next()) {
            ("pg_ctl", None, None) => Some(ControlMethod::PgCtl),
            ("systemctl", Some(unit), None) if !unit.starts_with('-') => {
                // systemctl completes the name in the same way.
                let unit =
                    if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
                Some(ControlMethod::Systemctl { unit })
            }
            _ => None,
        }
    }
}

pub(super) fn parse(
    root: &Section<'_>,
    hosts: &BTreeMap<String, HostSpec>,
) -> Result<BTreeMap<String, Target>, ConfigError> {
    match (root.section("target")?, root.section("targets")?) {
        (Some(_), Some(targets)) => {
            Err(targets.header_error("conflicts with [target]; rename [target] to [targets.NAME]"))
        }
        (Some(single), None) => {
            Ok(BTreeMap::from([(SINGLE_TARGET.to_owned(), target(&single, hosts)?)]))
        }
        (None, Some(targets)) => {
            targets.limit_entries(limits::TARGETS)?;
            let names = targets.keys().into_iter();
            names
                .filter_map(|name| Some((name, targets.section(name).transpose()?)))
                .map(|(name, section)| {
                    name::check(name).map_err(|message| targets.error(name, message))?;
                    Ok((name.to_owned(), target(&section?, hosts)?))
                })
                .collect()
        }
        (None, None) => Ok(BTreeMap::new()),
    }
}

fn target(
    section: &Section<'_>,
    hosts: &BTreeMap<String, HostSpec>,
) -> Result<Target, ConfigError> {
    section.refuse_keys_outside(&sections::TARGET)?;
    let dsn = section.string("dsn")?;
    if section.boolean("private")?.unwrap_or(false) {
        if dsn.is_some() {
            return Err(
                section.error("dsn", "conflicts with private = true; keep only one of them")
            );
        }
        if let Some(key) =
            ["host", "standby_host", "device", "control"].into_iter().find(|key| section.has(key))
        {
            return Err(section.error(key, "cannot be set with private = true"));
        }
        return Ok(Target::Private(private::parse(section)?));
    }
    if let Some(key) = private::KEYS.into_iter().find(|key| section.has(key)) {
        return Err(section.error(key, "requires private = true"));
    }
    match dsn {
        Some(dsn) => Ok(Target::Server {
            dsn: ConnectString::new(dsn),
            host: hosts::named(section, "host", hosts)?,
            standby_host: hosts::named(section, "standby_host", hosts)?,
            device: section.name("device")?,
            control: control(section)?,
        }),
        None => Err(section.header_error("requires dsn = \"...\" or private = true")),
    }
}

fn control(section: &Section<'_>) -> Result<Option<ControlMethod>, ConfigError> {
    let Some(text) = section.string("control")? else { return Ok(None) };
    let method = ControlMethod::parse(text);
    method.map(Some).ok_or_else(|| {
        section.error(
            "control",
            "must be \"pg_ctl\" or \"systemctl UNIT\", such as \"systemctl postgresql@15-main\"",
        )
    })
}
