//! A target with `private = true`: the servers that pgio creates for an experiment.
//!
//! This module only parses; `pg::private` creates and removes the servers.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::key::{Whole, section};
use super::limits;
use super::section::Section;
use super::target::keys as target;
use crate::config::value::{ConfigError, nearest};

/// The oldest supported major version of PostgreSQL.
pub(super) const OLDEST_MAJOR: u32 = 13;

section! { keys, "standbys of [target], [targets.NAME]",
    "A standby of a private server: a table of the list `standbys`, or `[[targets.NAME.standbys]]`.";
    name: Parsed<String>("letters, digits and _", text) or "required", "name for synchronous_standby_names";
    directory: Parsed<PathBuf>("an absolute path", absolute) or "the primary's",
        "parent directory of the standby's data directory";
    from: Parsed<String>("a standby listed before", text) or "the primary", "server that it streams from";
    apply_delay: Time(ZERO) = Duration::ZERO,
        "recovery_min_apply_delay; with remote_apply, commits wait for it";
    archive: Switch = false,
        "archive the WAL that it receives, beside its data (archive_mode = always)";
    postgres: Raw("a table of settings") or "those of the target",
        "settings of this standby, over those of the target";
}

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
        let standbys = self.standbys.iter().filter_map(|s| s.directory.as_ref());
        self.directory.iter().chain(&self.wal_directory).chain(standbys)
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
    let major = section.read(&target::pg)?;
    let initdb = section.read(&target::initdb)?.unwrap_or_default();
    check_initdb(&initdb).map_err(|message| section.error(&target::initdb, message))?;
    Ok(PrivateTarget {
        major,
        initdb,
        settings: settings(section, &target::postgres)?,
        directory: section.read(&target::directory)?,
        wal_directory: section.read(&target::wal_directory)?,
        standbys: standbys(section)?,
    })
}

pub(super) fn absolute(text: &str) -> Result<PathBuf, String> {
    if text.starts_with('/') && !text.chars().any(char::is_control) {
        Ok(text.into())
    } else {
        Err("must be an absolute path, such as \"/mnt/disk\"".to_owned())
    }
}

/// Reads `postgres = { NAME = VALUE }`.
fn settings(section: &Section<'_>, key: &str) -> Result<Vec<(String, String)>, ConfigError> {
    let Some(table) = section.section(key)? else { return Ok(Vec::new()) };
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
    let key = target::standbys.name;
    let single = section.get(&target::standby)?;
    if single && section.has(key) {
        return Err(section.error(key, "conflicts with standby = true; keep only one of them"));
    }
    if single {
        return Ok(vec![StandbyTarget::named("standby")]);
    }
    if !section.is_list(key) {
        let count = section.read_as(key, &Whole(0..=limits::STANDBYS as u64))?.unwrap_or(0);
        return Ok((1..=count).map(|n| StandbyTarget::named(format!("standby{n}"))).collect());
    }
    let mut all: Vec<StandbyTarget> = Vec::new();
    for standby in section.sections_within(key, limits::STANDBYS)? {
        let standby = parse_standby(&standby, &all)?;
        all.push(standby);
    }
    Ok(all)
}

fn parse_standby(
    section: &Section<'_>,
    before: &[StandbyTarget],
) -> Result<StandbyTarget, ConfigError> {
    section.refuse_keys_outside(&keys::SECTION)?;
    let Some(name) = section.read(&keys::name)? else {
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
        return Err(section.error(&keys::name, rule));
    }
    if RESERVED_NAMES.iter().chain(&KEYWORDS).any(|word| *word == name) {
        return Err(section
            .error(&keys::name, format!("cannot be `{name}`, which has a meaning of its own")));
    }
    let names: Vec<&str> = before.iter().map(|s| s.name.as_str()).collect();
    if names.contains(&name.as_str()) {
        return Err(
            section.error(&keys::name, format!("`{name}` is already a standby of this target"))
        );
    }
    let from = section.read(&keys::from)?;
    if let Some(from) = from.as_deref().filter(|from| !names.contains(from)) {
        let hint = if names.is_empty() {
            "this is the first standby; remove `from`".to_owned()
        } else {
            nearest(from, &names)
        };
        return Err(section.error(
            &keys::from,
            format!("`{from}` is not a standby listed before this one; {hint}"),
        ));
    }
    let apply_delay = section.get(&keys::apply_delay)?;
    if apply_delay > MAX_DELAY {
        let most = MAX_DELAY.as_secs() / 3600;
        return Err(section.error(&keys::apply_delay, format!("must be at most {most}h")));
    }
    Ok(StandbyTarget {
        name,
        directory: section.read(&keys::directory)?,
        from,
        apply_delay,
        archive: section.get(&keys::archive)?,
        settings: settings(section, &keys::postgres)?,
    })
}

/// Options that pgio sets itself or that leave no server: long, short, and the remedy.
const RESERVED_OPTIONS: &[(&str, &str, &str)] = &[
    ("--pgdata", "-D", "set directory instead"),
    ("--waldir", "-X", "set wal_directory instead"),
    ("--username", "-U", "the superuser is postgres"),
    ("--auth", "-A", TRUST_REASON),
    ("--auth-host", "", TRUST_REASON),
    ("--auth-local", "", TRUST_REASON),
    ("--pwprompt", "-W", TRUST_REASON),
    ("--pwfile", "", TRUST_REASON),
    ("--no-sync", "-N", "pgio sets it; the server itself runs with fsync"),
    ("--sync-only", "-S", NO_SERVER_REASON),
    ("--show", "-s", NO_SERVER_REASON),
    ("--help", "-?", NO_SERVER_REASON),
    ("--version", "-V", NO_SERVER_REASON),
];

const TRUST_REASON: &str = "only pgio's user can enter the directory of the socket";
const NO_SERVER_REASON: &str = "it creates no server";

/// The name of an option without its value; `None` for a value of the option before.
pub fn initdb_option_name(argument: &str) -> Option<&str> {
    if argument.starts_with("--") {
        return argument.split('=').next();
    }
    let mut letters = argument.char_indices().skip(2);
    // A short option may have its value attached.
    argument.starts_with('-').then(|| &argument[..letters.next().map_or(argument.len(), |l| l.0)])
}

/// The error completes a sentence that begins with the key.
pub(super) fn check_initdb(arguments: &[String]) -> Result<(), String> {
    let mut may_be_value = false;
    for argument in arguments {
        let Some(name) = initdb_option_name(argument) else {
            if !may_be_value {
                return Err(format!("must be a list of options, and `{argument}` is none"));
            }
            may_be_value = false;
            continue;
        };
        if let Some((_, _, remedy)) =
            RESERVED_OPTIONS.iter().find(|(long, short, _)| [*long, *short].contains(&name))
        {
            return Err(format!("must not contain `{name}`: {remedy}"));
        }
        may_be_value = !argument.contains('=');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::experiment::tests::{error_of, read};
    use crate::config::experiment::{PrivateTarget, SINGLE_TARGET, StandbyTarget, Target};

    #[test]
    fn options_of_pgio_and_plain_words_are_refused() {
        let check = |arguments: &[&str]| {
            let owned: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
            check_initdb(&owned)
        };
        assert_eq!(check(&["--data-checksums", "--wal-segsize=64", "-E", "UTF8", "-k"]), Ok(()));
        assert_eq!(check(&["--locale", "C", "-EUTF8"]), Ok(()));
        let error = check(&["--waldir=/srv/wal"]).unwrap_err();
        assert_eq!(error, "must not contain `--waldir`: set wal_directory instead");
        for own in ["-D", "-D/srv", "--pgdata"] {
            assert!(check(&[own, "/srv"]).unwrap_err().contains("set directory instead"), "{own}");
        }
        for word in ["checksums", "", "é"] {
            assert!(check(&[word]).unwrap_err().contains("is none"), "{word}");
        }
        assert!(check(&["--wal-segsize=64", "x"]).unwrap_err().contains("`x` is none"));
        assert_eq!(initdb_option_name("-é1"), Some("-é"));
    }

    fn private(lines: &str) -> PrivateTarget {
        let file = format!("[target]\nprivate = true\n{lines}\n[[condition]]\nname = 'a'\n");
        match &read(&file).targets[SINGLE_TARGET] {
            Target::Private(private) => private.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_private_target_is_read_with_settings_and_standbys() {
        let target = private(
            "pg = 18\ninitdb = ['--data-checksums', '--wal-segsize=64']\n\
             postgres = { shared_buffers = '4GB', Jit = false, max_wal_senders = 20 }\n\
             directory = '/srv/fast'\nwal_directory = '/srv/wal'\n\
             standbys = [{ name = 'a' }, { name = 'b', directory = '/srv/slow', apply_delay = '1500ms', \
             archive = true, from = 'a', postgres = { fsync = false } }]",
        );
        assert_eq!((target.major, target.initdb.len()), (Some(18), 2));
        let settings: Vec<(&str, &str)> =
            target.settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            settings,
            [("shared_buffers", "4GB"), ("jit", "off"), ("max_wal_senders", "20")]
        );
        let directories: Vec<_> = target.directories().map(|d| d.to_str().unwrap()).collect();
        assert_eq!(directories, ["/srv/fast", "/srv/wal", "/srv/slow"]);
        let b = StandbyTarget {
            directory: Some("/srv/slow".into()),
            from: Some("a".to_owned()),
            apply_delay: Duration::from_millis(1500),
            archive: true,
            settings: vec![("fsync".to_owned(), "off".to_owned())],
            ..StandbyTarget::named("b")
        };
        assert_eq!(target.standbys, [StandbyTarget::named("a"), b]);
    }

    #[test]
    fn standbys_may_be_a_number_or_tables() {
        let names = |lines: &str| -> Vec<String> {
            private(lines).standbys.into_iter().map(|s| s.name).collect()
        };
        assert_eq!(names(""), [""; 0]);
        assert_eq!(names("standby = true"), ["standby"]);
        assert_eq!(names("standbys = 2"), ["standby1", "standby2"]);
        assert_eq!(names("standbys = 0"), [""; 0]);
        let tables = "[[target.standbys]]\nname = 'east'\n[[target.standbys]]\nname = 'west'";
        assert_eq!(names(tables), ["east", "west"]);
    }

    #[test]
    fn errors_name_the_line_and_the_remedy() {
        let long = "s".repeat(41);
        for (lines, expected) in cases! {
            "standbys = [{ name = 'a' }, { name = 'a' }]"
                => "target.standbys.name: `a` is already a standby of this target";
            "standbys = [{ name = 'a', apply_delay = 'soon' }]" => "target.standbys.apply_delay: `soon`";
            "standbys = [{ name = 'a', apply_delay = '600h' }]" => "target.standbys.apply_delay: must be at most 596h";
            "standbys = [{ name = 'a', from = 'b' }, { name = 'b' }]"
                => "target.standbys.from: `b` is not a standby listed before this one; this is the first standby; remove `from`";
            "standbys = [{ name = 'east' }, { name = 'b', from = 'eats' }]"
                => "target.standbys.from: `eats` is not a standby listed before this one; the nearest valid one is `east`";
            "standbys = [{ directory = '/srv' }]" => "target.standbys: requires name = \"...\"";
            "standbys = [{ name = 'run' }]" => "target.standbys.name: cannot be `run`";
            "standbys = [{ name = 'any' }]" => "target.standbys.name: cannot be `any`";
            "standbys = [{ name = 'a-b' }]" => "target.standbys.name: must be a name for";
            "standbys = [{ name = 'a', port = 1 }]" => "target.standbys.port: is an unknown key";
            "standbys = 9" => "target.standbys: must be a whole number from 0 to 8, not `9`";
            "standbys = 'two'" => "target.standbys: must be a whole number";
            "standby = true\nstandbys = 2" => "target.standbys: conflicts with standby = true; keep only one of them";
            "initdb = ['-D', '/srv']" => "target.initdb: must not contain `-D`: set directory instead";
            "initdb = '--data-checksums'" => "target.initdb: must be an array of strings";
            "wal_directory = 'wal'" => "target.wal_directory: must be an absolute path";
            "postgres = { port = 5 }"
                => "target.postgres.port: cannot be set for a private server: a private server has its own";
            "postgres = { a = [1] }" => "target.postgres.a: must be one line of text";
            "postgres = { \"a'\" = 1 }" => "target.postgres.a': is not the name of a setting";
            "postgres = { a = \"x\\ny\" }" => "target.postgres.a: must be one line of text";
            "postgres = { a = 1, A = 2 }" => "target.postgres.A: is set twice";
            "postgres = 'fsync'" => "target.postgres: must be a table";
        } {
            let error = error_of(&format!("[target]\nprivate = true\n{lines}"));
            let line = 2 + lines.lines().count();
            assert!(error.starts_with(&format!("x.toml:{line}: {expected}")), "{lines}: {error}");
        }
        let error =
            error_of(&format!("[target]\nprivate = true\nstandbys = [{{ name = '{long}' }}]"));
        assert!(error.contains("at most 40"), "{error}");
        for key in ["initdb = []", "postgres = {}", "wal_directory = '/w'", "standbys = 2"] {
            let error = error_of(&format!("[target]\ndsn = 'x'\n{key}"));
            assert!(error.ends_with("requires private = true"), "{error}");
        }
    }
}
