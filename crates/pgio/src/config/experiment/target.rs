//! `[target]`, or several `[targets.NAME]`: the servers that conditions use.
//!
//! This module only parses; `pg` finds and starts servers and connects to them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::hosts::{self, HostSpec};
use super::key::section;
use super::limits;
use super::private::{self, PrivateTarget, absolute};
use super::section::Section;
use crate::config::value::{self, ConfigError, ConnectString};

section! { keys, "[target], [targets.NAME]",
    "The server, or several servers that conditions select by `target`. Without a target, pgio.conf and then the PG* variables apply. [targets] may have an `inventory`, an array of names or a command that prints one host a line, and keys for each node with {name} in them.";
    dsn: Parsed<ConnectString>("a database name, a conninfo string or a URI", |text| Ok(ConnectString::new(text))),
        "connection to the server; set either dsn or private";
    host: Parsed<String>("local or a NAME of [hosts]", text) or "this machine, if the server is found on it",
        "machine that runs the server";
    standby_host: Parsed<String>("local or a NAME of [hosts]", text), "machine that runs the standby";
    device: Parsed<String>("a name such as sdb or /dev/mapper/vg0-pg", label),
        "block device to measure: data and WAL must be on it";
    control: Parsed<ControlMethod>("pg_ctl or systemctl UNIT", ControlMethod::parse),
        "how pgio may stop and start the server; by default pgio never stops it";
    private: Switch = false,
        "start a private PostgreSQL server and remove it at the end; set either private or dsn";
    pg: Whole<u32>(private::OLDEST_MAJOR..=99) or "the newest installed",
        "major version of a private server";
    initdb: Texts("a list of options such as [\"--data-checksums\"]"),
        "further options of initdb for a private server";
    postgres: Raw("a table of settings such as { shared_buffers = \"4GB\" }"),
        "settings of all servers of a private target, under every condition";
    standby: Switch = false, "give a private server a synchronous standby";
    standbys: Raw("a number, or a list of tables"),
        "standbys of a private server, named standby1, standby2 … or as listed; without synchronous_standby_names, commits wait for the first";
    directory: Parsed<PathBuf>("an absolute path", absolute) or "/var/tmp",
        "parent directory of a private server's data directory";
    wal_directory: Parsed<PathBuf>("an absolute path", absolute) or "inside the data directory",
        "parent directory of the WAL of a private primary";
}

/// Keys that are valid with `private = true` only.
const PRIVATE: [&str; 7] = [
    keys::pg.name,
    keys::initdb.name,
    keys::postgres.name,
    keys::directory.name,
    keys::wal_directory.name,
    keys::standby.key.name,
    keys::standbys.name,
];

/// Keys of a server of the user's that a private one cannot have.
const OWN: [&str; 4] =
    [keys::host.name, keys::standby_host.name, keys::device.name, keys::control.name];

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
    fn parse(text: &str) -> Result<ControlMethod, String> {
        let mut words = text.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("pg_ctl"), None, None) => Ok(ControlMethod::PgCtl),
            (Some("systemctl"), Some(unit), None) if !unit.starts_with('-') => {
                // systemctl completes the name in the same way.
                let unit =
                    if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
                Ok(ControlMethod::Systemctl { unit })
            }
            _ => Err("must be \"pg_ctl\" or \"systemctl UNIT\", such as \"systemctl postgresql@15-main\"".to_owned()),
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
                    value::check_name(name).map_err(|message| targets.error(name, message))?;
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
    section.refuse_keys_outside(&keys::SECTION)?;
    let dsn = section.read(&keys::dsn)?;
    if section.get(&keys::private)? {
        if dsn.is_some() {
            let message = "conflicts with private = true; keep only one of them";
            return Err(section.error(&keys::dsn, message));
        }
        if let Some(key) = OWN.into_iter().find(|key| section.has(key)) {
            return Err(section.error(key, "cannot be set with private = true"));
        }
        return Ok(Target::Private(private::parse(section)?));
    }
    if let Some(key) = PRIVATE.into_iter().find(|key| section.has(key)) {
        return Err(section.error(key, "requires private = true"));
    }
    match dsn {
        Some(dsn) => Ok(Target::Server {
            dsn,
            host: hosts::named(section, &keys::host, hosts)?,
            standby_host: hosts::named(section, &keys::standby_host, hosts)?,
            device: section.read(&keys::device)?,
            control: section.read(&keys::control)?,
        }),
        None => Err(section.header_error("requires dsn = \"...\" or private = true")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::config::experiment::tests::{condition_error, error_of, read, server};
    use crate::config::experiment::{ControlMethod, HostSpec, SINGLE_TARGET, Target, parse};

    #[test]
    fn a_single_target_applies_to_all_conditions() {
        for text in ["[target]\ndsn = 'pgio'", "[targets.one]\ndsn = 'pgio'"] {
            let experiment = read(&format!("{text}\n[[condition]]\nname = 'a'\n"));
            let name = experiment.conditions[0].target.as_ref().unwrap();
            assert_eq!(experiment.targets[name], server("pgio"));
        }
    }

    #[test]
    fn targets_name_their_hosts() {
        let experiment = read(
            "[hosts.db1]\nssh = 'postgres@db1'\n[hosts.db2]\nssh = 'db2'\nssh_config = '/x/ssh'\n\
             [hosts.here]\n[targets.a]\ndsn = 'x'\nhost = 'db1'\nstandby_host = 'db2'\ndevice = 'vdb'\n\
             [targets.b]\ndsn = 'y'\nhost = 'local'\n\
             [[condition]]\nname = 'a'\ntarget = 'a'\n",
        );
        let db2 =
            HostSpec { ssh: Some("db2".to_owned()), ssh_config: Some(PathBuf::from("/x/ssh")) };
        assert_eq!(experiment.hosts["db2"], db2);
        assert_eq!(db2.absolute(), db2);
        let here = std::env::current_dir().unwrap();
        let relative = HostSpec { ssh_config: Some(PathBuf::from("x/ssh")), ..db2 };
        assert_eq!(relative.absolute().ssh_config, Some(here.join("x/ssh")));
        assert_eq!(experiment.hosts["here"], HostSpec::default());
        let Target::Server { host, standby_host, device, .. } = &experiment.targets["a"] else {
            panic!()
        };
        assert_eq!((host.as_deref(), standby_host.as_deref()), (Some("db1"), Some("db2")));
        assert_eq!(device.as_deref(), Some("vdb"));
        let Target::Server { host, .. } = &experiment.targets["b"] else { panic!() };
        assert_eq!(host.as_deref(), Some("local"), "requires no section");
    }

    #[test]
    fn control_takes_pg_ctl_or_systemctl_with_a_unit() {
        let control = |text: &str| {
            let file =
                format!("[target]\ndsn = 'x'\ncontrol = '{text}'\n[[condition]]\nname = 'a'\n");
            parse(&file, "x.toml", "x", &[], &[])
        };
        let method = |text: &str| match &control(text).unwrap().targets[SINGLE_TARGET] {
            Target::Server { control, .. } => control.clone().unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(method("pg_ctl"), ControlMethod::PgCtl);
        let unit = |name: &str| ControlMethod::Systemctl { unit: name.to_owned() };
        assert_eq!(method("systemctl postgresql@15-main"), unit("postgresql@15-main.service"));
        assert_eq!(method("systemctl pg.service"), unit("pg.service"));
        for wrong in
            ["", "pg_ctl restart", "systemctl", "systemctl a b", "systemctl --user", "service"]
        {
            let error = control(wrong).unwrap_err().to_string();
            assert!(
                error.starts_with("x.toml:3: target.control: must be \"pg_ctl\" or"),
                "{error}"
            );
        }
    }

    #[test]
    fn errors_in_hosts_name_the_line() {
        for (lines, expected) in cases! {
            "[target]\ndsn = 'x'\nhost = 'db1'"
                => "x.toml:3: target.host: `db1` is not a host; add [hosts.db1] with ssh = \"user@host\"";
            "[hosts.db1]\n[target]\ndsn = 'x'\nstandby_host = 'db2'"
                => "x.toml:4: target.standby_host: `db2` is not a host; the nearest valid one is `db1`";
            "[hosts.db1]\nport = 22" => "x.toml:2: hosts.db1.port: is an unknown key; valid names: ssh, ssh_config";
            "[hosts.db1]\nssh = 'a -p 22'"
                => "x.toml:2: hosts.db1.ssh: must be one word, such as \"postgres@db1\"; write ports and keys in ~/.ssh/config or in ssh_config";
            "[hosts.db1]\nssh_config = 'x'" => "x.toml:2: hosts.db1.ssh_config: requires ssh = \"user@host\"";
            "[hosts.local]\nssh = 'a'"
                => "x.toml:2: hosts.local.ssh: cannot be set for `local`, which is always this machine; use another name";
            "[hosts.local]\n[hosts.db1]\nssh = 'db1'\n[hosts.db2]"
                => "x.toml:1: hosts.local: is this machine, because it has no ssh, and so is `db2`; write ssh = \"user@host\" in one of them, or remove one";
            "[hosts.'a b']" => "x.toml:1: hosts.a b: is not a valid host name; use one word";
            "[hosts]\ndb1 = 'x'" => "x.toml:2: hosts.db1: must be a table, but is of type string";
            "[hosts.db1]\n[target]\nprivate = true\nhost = 'db1'"
                => "x.toml:4: target.host: cannot be set with private = true";
        } {
            assert_eq!(error_of(lines), expected);
        }
    }

    #[test]
    fn faulty_targets_are_refused_with_line_and_key() {
        for (lines, message) in cases! {
            "[target]\ndsn = 'a'\n[targets.b]\ndsn = 'b'"
                => "3: targets: conflicts with [target]; rename [target] to [targets.NAME]";
            "[target]" => "1: target: requires dsn = \"...\" or private = true";
            "[target]\nprivate = true\ndsn = 'a'"
                => "3: target.dsn: conflicts with private = true; keep only one of them";
            "[target]\ndsn = 'a'\npg = 18" => "3: target.pg: requires private = true";
            "[target]\nprivate = true\ndirectory = 'here'"
                => "3: target.directory: must be an absolute path, such as \"/mnt/disk\"";
            "[target]\nprivate = true\npg = 9" => "3: target.pg: must be a whole number from 13 to 99, not `9`";
            "[targets.b]\ndsn = 'b'\n[targets.c]\ndsn = 'c'"
                => "5: condition: has no target; set target to one of b, c";
        } {
            assert_eq!(error_of(lines), format!("x.toml:{message}"));
        }
        assert_eq!(
            condition_error("name = 'b'\ntarget = 'east'"),
            "x.toml:5: condition.target: `east` is not a target; add [targets.east]"
        );
        assert_eq!(
            condition_error("name = 'b'\ntarget = 'eats'\n[targets.east]\ndsn = ''"),
            "x.toml:5: condition.target: `eats` is not a target; the nearest valid one is `east`"
        );
    }
}
