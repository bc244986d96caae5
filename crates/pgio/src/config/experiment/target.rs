//! `[target]`, or several `[targets.NAME]`: the servers that conditions run on.
//!
//! Only what the file says; finding, starting and connecting is done in `pg`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::hosts::{self, HostSpec};
use super::limits;
use super::section::Section;
use crate::config::error::ConfigError;
use crate::config::name;
use crate::config::sections;
use crate::config::value::ConnectString;

/// The name of the one `[target]`.
pub const SINGLE_TARGET: &str = "target";

/// The oldest PostgreSQL that pgio runs on.
const OLDEST_MAJOR: u64 = 13;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Server {
        dsn: ConnectString,
        /// Names in the experiment's hosts; absent: not known, so no device is watched.
        host: Option<String>,
        standby_host: Option<String>,
        /// The block device to be measured, by the kernel's name: data and WAL must lie on it.
        device: Option<String>,
        /// Absent: the server is never stopped.
        control: Option<ControlWay>,
    },
    /// A cluster of our own for the length of the experiment.
    Private {
        /// PostgreSQL's major version; absent: the newest at hand.
        major: Option<u32>,
        standby: bool,
        /// Where its directory is made; absent: in /var/tmp.
        directory: Option<PathBuf>,
    },
}

/// By what a server of the user's may be stopped and started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlWay {
    PgCtl,
    Systemctl { unit: String },
}

impl ControlWay {
    fn parse(text: &str) -> Option<ControlWay> {
        let mut words = text.split_whitespace();
        match (words.next()?, words.next(), words.next()) {
            ("pg_ctl", None, None) => Some(ControlWay::PgCtl),
            ("systemctl", Some(unit), None) if !unit.starts_with('-') => {
                // As systemctl itself completes it.
                let unit =
                    if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
                Some(ControlWay::Systemctl { unit })
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
            Err(targets.error_here("stands beside [target]: make that one [targets.NAME] too"))
        }
        (Some(single), None) => {
            Ok(BTreeMap::from([(SINGLE_TARGET.to_owned(), target(&single, hosts)?)]))
        }
        (None, Some(targets)) => {
            targets.at_most(limits::TARGETS)?;
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
    section.only_keys_of(&sections::TARGET)?;
    let dsn = section.string("dsn")?;
    if section.boolean("private")?.unwrap_or(false) {
        if dsn.is_some() {
            return Err(section.error("dsn", "contradicts private = true: keep one of the two"));
        }
        if let Some(key) =
            ["host", "standby_host", "device", "control"].into_iter().find(|key| section.has(key))
        {
            return Err(section.error(key, "is for a server of yours: a private one is here"));
        }
        let major = section.whole("pg", OLDEST_MAJOR..=99)?;
        return Ok(Target::Private {
            major: major.and_then(|n| u32::try_from(n).ok()),
            standby: section.boolean("standby")?.unwrap_or(false),
            directory: directory(section)?,
        });
    }
    if let Some(key) = ["pg", "standby", "directory"].into_iter().find(|key| section.has(key)) {
        return Err(section.error(key, "is for private = true only"));
    }
    match dsn {
        Some(dsn) => Ok(Target::Server {
            dsn: ConnectString::new(dsn),
            host: hosts::named(section, "host", hosts)?,
            standby_host: hosts::named(section, "standby_host", hosts)?,
            device: section.name("device")?,
            control: control(section)?,
        }),
        None => Err(section.error_here("needs dsn = \"...\" or private = true")),
    }
}

fn directory(section: &Section<'_>) -> Result<Option<PathBuf>, ConfigError> {
    let Some(text) = section.string("directory")? else { return Ok(None) };
    match text.starts_with('/') {
        true => Ok(Some(text.into())),
        false => Err(section.error("directory", "must be an absolute path, such as \"/mnt/disk\"")),
    }
}

fn control(section: &Section<'_>) -> Result<Option<ControlWay>, ConfigError> {
    let Some(text) = section.string("control")? else { return Ok(None) };
    let way = ControlWay::parse(text);
    way.map(Some).ok_or_else(|| {
        section.error(
            "control",
            "must be \"pg_ctl\" or \"systemctl UNIT\", such as \"systemctl postgresql@15-main\"",
        )
    })
}
