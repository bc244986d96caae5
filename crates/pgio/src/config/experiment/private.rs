//! A target with `private = true`: the servers that pgio creates for an experiment.
//!
//! This module only parses; `pg::private` creates and removes the servers.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::section::Section;
use super::{initdb, limits};
use crate::config::error::{ConfigError, nearest};
use crate::config::sections;

/// The oldest supported major version of PostgreSQL.
const OLDEST_MAJOR: u64 = 13;

/// Keys that are valid with `private = true` only.
pub(super) const KEYS: [&str; 7] =
    ["pg", "initdb", "postgres", "directory", "wal_directory", "standby", "standbys"];

/// `recovery_min_apply_delay` is an integer of milliseconds.
const MAX_DELAY: Duration = Duration::from_millis(i32::MAX as u64);

/// Names that files of a private cluster have, so that no standby can have them.
pub const RESERVED_NAMES: [&str; 5] = ["primary", "marker", "cluster", "run", "wal"];

/// Keywords of `synchronous_standby_names`.
const KEYWORDS: [&str; 2] = ["any", "first"];

/// Length of a standby's name; PostgreSQL cuts longer ones at 63.
const MAX_NAME_LENGTH: usize = 40;

/// Settings that pgio needs for itself, and the remedy.
const RESERVED_SETTINGS: &[(&str, &str)] = &[
    ("data_directory", "set directory instead"),
    ("recovery_min_apply_delay", "set apply_delay of a standby instead"),
    ("primary_conninfo", "set from of a standby instead"),
    ("primary_slot_name", "pgio keeps enough WAL without a slot"),
    ("hot_standby", "pgio reads from every standby"),
    ("listen_addresses", OWN_VALUE),
    ("port", OWN_VALUE),
    ("unix_socket_directories", OWN_VALUE),
    ("unix_socket_permissions", OWN_VALUE),
    ("unix_socket_group", OWN_VALUE),
    ("cluster_name", OWN_VALUE),
    ("hba_file", OWN_VALUE),
    ("ident_file", OWN_VALUE),
    ("config_file", OWN_VALUE),
    ("external_pid_file", OWN_VALUE),
    ("include", OWN_VALUE),
    ("include_dir", OWN_VALUE),
    ("include_if_exists", OWN_VALUE),
];

const OWN_VALUE: &str = "a private server has its own";

/// A private cluster that exists only during the experiment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrivateTarget {
    /// Major version of PostgreSQL; absent: the newest installed.
    pub major: Option<u32>,
    /// Further options of initdb.
    pub initdb: Vec<String>,
    /// Settings of all its servers, under every condition.
    pub settings: Vec<(String, String)>,
    /// Parent of the cluster's directory; absent: /var/tmp.
    pub directory: Option<PathBuf>,
    /// Parent of the directory with the primary's WAL; absent: inside the data.
    pub wal_directory: Option<PathBuf>,
    pub standbys: Vec<StandbyTarget>,
}

impl PrivateTarget {
    /// All directories that the file names.
    pub fn directories(&self) -> impl Iterator<Item = &PathBuf> {
        let of_standbys = self.standbys.iter().filter_map(|s| s.directory.as_ref());
        self.directory.iter().chain(&self.wal_directory).chain(of_standbys)
    }
}

/// A standby of a private cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyTarget {
    /// Its `application_name`, by which `synchronous_standby_names` names it.
    pub name: String,
    /// Parent of the directory with its data; absent: the cluster's.
    pub directory: Option<PathBuf>,
    /// The standby that it streams from; absent: the primary.
    pub from: Option<String>,
    /// `recovery_min_apply_delay`.
    pub apply_delay: Duration,
    /// Whether it archives the WAL that it receives, into a directory beside its data.
    pub archive: bool,
    /// Settings of its own.
    pub settings: Vec<(String, String)>,
}

impl StandbyTarget {
    pub fn named(name: impl Into<String>) -> StandbyTarget {
        StandbyTarget {
            name: name.into(),
            directory: None,
            from: None,
            apply_delay: Duration::ZERO,
            archive: false,
            settings: Vec::new(),
        }
    }
}

pub(super) fn parse(section: &Section<'_>) -> Result<PrivateTarget, ConfigError> {
    let major = section.whole_number("pg", OLDEST_MAJOR..=99)?;
    let initdb = section.strings("initdb")?.unwrap_or_default();
    initdb::check(&initdb).map_err(|message| section.error("initdb", message))?;
    Ok(PrivateTarget {
        major: major.and_then(|n| u32::try_from(n).ok()),
        initdb,
        settings: settings(section)?,
        directory: directory(section, "directory")?,
        wal_directory: directory(section, "wal_directory")?,
        standbys: standbys(section)?,
    })
}

fn directory(section: &Section<'_>, key: &str) -> Result<Option<PathBuf>, ConfigError> {
    let Some(text) = section.string(key)? else { return Ok(None) };
    if text.starts_with('/') && !text.chars().any(char::is_control) {
        Ok(Some(text.into()))
    } else {
        Err(section.error(key, "must be an absolute path, such as \"/mnt/disk\""))
    }
}

/// Reads `postgres = { NAME = VALUE }`.
fn settings(section: &Section<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    const KEY: &str = "postgres";
    let Some(table) = section.section(KEY)? else { return Ok(Vec::new()) };
    let mut all: Vec<(String, String)> = Vec::new();
    for name in table.keys() {
        let lower = name.to_ascii_lowercase();
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.$".contains(c);
        if !lower.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            || !lower.chars().all(plain)
        {
            return Err(table.error(name, "is not the name of a setting"));
        }
        if let Some((_, remedy)) = RESERVED_SETTINGS.iter().find(|(own, _)| *own == lower) {
            return Err(table.error(name, format!("cannot be set for a private server: {remedy}")));
        }
        if all.iter().any(|(other, _)| *other == lower) {
            return Err(table.error(name, "is set twice"));
        }
        let value = match table.value(name)? {
            toml::Value::String(text) if !text.chars().any(char::is_control) => text,
            toml::Value::Boolean(yes) => if yes { "on" } else { "off" }.to_owned(),
            toml::Value::Integer(n) => n.to_string(),
            toml::Value::Float(n) => n.to_string(),
            _ => {
                let message = "must be one line of text, a number or true or false";
                return Err(table.error(name, message));
            }
        };
        all.push((lower, value));
    }
    Ok(all)
}

/// Reads `standby = true`, or `standbys` as a number or a list.
fn standbys(section: &Section<'_>) -> Result<Vec<StandbyTarget>, ConfigError> {
    const KEY: &str = "standbys";
    let single = section.boolean("standby")?.unwrap_or(false);
    if single && section.has(KEY) {
        return Err(section.error(KEY, "conflicts with standby = true; keep only one of them"));
    }
    if single {
        return Ok(vec![StandbyTarget::named("standby")]);
    }
    if !section.has(KEY) {
        return Ok(Vec::new());
    }
    if !section.is_list(KEY) {
        let count = section.whole_number(KEY, 0..=limits::STANDBYS as u64)?.unwrap_or(0);
        return Ok((1..=count).map(|n| StandbyTarget::named(format!("standby{n}"))).collect());
    }
    let mut all: Vec<StandbyTarget> = Vec::new();
    for standby in section.sections_within(KEY, limits::STANDBYS)? {
        let standby = parse_standby(&standby, &all)?;
        all.push(standby);
    }
    Ok(all)
}

fn parse_standby(
    section: &Section<'_>,
    before: &[StandbyTarget],
) -> Result<StandbyTarget, ConfigError> {
    section.refuse_keys_outside(&sections::STANDBY)?;
    let Some(name) = section.string("name")? else {
        return Err(section.header_error("requires name = \"...\""));
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase())
        || !name.chars().all(plain)
        || name.len() > MAX_NAME_LENGTH
    {
        let rule = format!(
            "must be a name for synchronous_standby_names: a letter a to z, then letters, digits and `_`, at most {MAX_NAME_LENGTH}"
        );
        return Err(section.error("name", rule));
    }
    if RESERVED_NAMES.contains(&name) || KEYWORDS.contains(&name) {
        return Err(
            section.error("name", format!("cannot be `{name}`, which has a meaning of its own"))
        );
    }
    let names: Vec<&str> = before.iter().map(|s| s.name.as_str()).collect();
    if names.contains(&name) {
        return Err(section.error("name", format!("`{name}` is already a standby of this target")));
    }
    let from = section.string("from")?;
    if let Some(from) = from.filter(|from| !names.contains(from)) {
        let hint = if names.is_empty() {
            "this is the first standby; remove `from`".to_owned()
        } else {
            nearest(from, &names)
        };
        return Err(section
            .error("from", format!("`{from}` is not a standby listed before this one; {hint}")));
    }
    let apply_delay = section.duration("apply_delay", true)?.unwrap_or_default();
    if apply_delay > MAX_DELAY {
        let most = MAX_DELAY.as_secs() / 3600;
        return Err(section.error("apply_delay", format!("must be at most {most}h")));
    }
    Ok(StandbyTarget {
        name: name.to_owned(),
        directory: directory(section, "directory")?,
        from: from.map(str::to_owned),
        apply_delay,
        archive: section.boolean("archive")?.unwrap_or(false),
        settings: settings(section)?,
    })
}
