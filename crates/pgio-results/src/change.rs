//! A change made by a condition, and the environment facts that it explains.
//!
//! A treatment declares what it changes as [`Change`]s; the manifest stores them, and checks
//! compare their fields. `Display` is for people and is never parsed. The names of environment
//! facts are defined here, both for the code that finds facts and for the code that checks them, so
//! that "declared" means equality.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::telemetry::Storage;

/// One setting of one subject, and its value under a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// Name of the host in the experiment; absent for the server's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub subject: Subject,
    /// Such as `synchronous_commit`, `write_iops` or `al-extents`.
    pub setting: String,
    /// The value in readable form.
    pub value: String,
}

/// The subject of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// A PostgreSQL setting.
    Server,
    /// A DRBD resource; the setting `connection` is its connection and protocol.
    Drbd { resource: String },
    /// I/O limits of a block device.
    Device { path: String },
    /// Mount options; without a path, of the mount that contains the data directory.
    Mount { path: Option<String> },
    /// A new file system for the server's files: `data`, or `tablespace NAME`.
    FileSystem { role: String },
    /// Memory withheld from the server.
    Memory,
    /// A network link of an interface, or through a relay.
    Link { interface: Option<String> },
    /// The state of caches before the window.
    Cache,
    /// How a private server was built: the version of PostgreSQL.
    Version,
    /// An option of initdb; the value is empty if it takes none.
    Initdb,
    /// `directory` or `wal_directory` of a private server.
    Directory,
    /// A standby of a private server.
    Standby { name: String },
    /// User-defined commands; the setting is their name.
    Command,
}

/// The setting that combines a DRBD resource's connection and protocol, which form one factor.
pub const CONNECTION: &str = "connection";

impl Change {
    pub fn server(setting: impl Into<String>, value: impl Into<String>) -> Change {
        Change::new(None, Subject::Server, setting, value)
    }

    pub fn new(
        host: Option<&str>,
        subject: Subject,
        setting: impl Into<String>,
        value: impl Into<String>,
    ) -> Change {
        let host = host.map(str::to_owned);
        Change { host, subject, setting: setting.into(), value: value.into() }
    }

    /// Whether it sets this PostgreSQL setting.
    pub fn sets(&self, setting: &str) -> bool {
        self.subject == Subject::Server && self.setting == setting
    }

    /// Whether both change the same setting, possibly to different values.
    pub fn is_of_same_setting(&self, other: &Change) -> bool {
        (&self.host, &self.subject, &self.setting) == (&other.host, &other.subject, &other.setting)
    }

    /// Whether the change explains an environment fact. `storage` describes the server's
    /// directories in the trial of that fact.
    pub fn decides(&self, fact: &str, storage: &[Storage]) -> bool {
        match &self.subject {
            Subject::Server => {
                let derived = DERIVED.iter().filter(|(_, source)| *source == self.setting);
                let derived = derived.map(|(setting, _)| *setting);
                derived.chain([self.setting.as_str()]).any(|name| fact == fact::setting(name))
            }
            Subject::Drbd { resource } if self.setting == CONNECTION => {
                fact::is_on_any_host(fact, &fact::drbd_protocol(resource))
            }
            Subject::Drbd { resource } => {
                fact::is_on_any_host(fact, &fact::drbd_option(resource, &self.setting))
            }
            Subject::FileSystem { role } => {
                let roles = roles_on_same_mount(storage, |s| s.role == *role);
                let all = roles.chain([role.as_str()]);
                all.flat_map(device_facts).any(|name| name == fact)
            }
            Subject::Mount { path } => {
                let is_mounted_there = |s: &Storage| match path {
                    None => s.role == DATA,
                    Some(path) => s.mount_point == *path,
                };
                // Without telemetry it is unknown which other directories are on the same mount.
                let unknown = storage.is_empty().then_some(DATA);
                let roles = roles_on_same_mount(storage, is_mounted_there).chain(unknown);
                roles.map(fact::mount).any(|name| name == fact)
            }
            Subject::Version => fact::setting_of(fact).is_some_and(follows_from_version),
            Subject::Initdb => fact::setting_of(fact)
                .is_some_and(|s| follows_from_initdb(s, &self.setting, &self.value)),
            Subject::Directory => {
                let roles =
                    if self.setting == "wal_directory" { &["wal"][..] } else { &[DATA, "wal"] };
                roles.iter().copied().flat_map(device_facts).any(|name| name == fact)
            }
            Subject::Standby { .. } => {
                fact == fact::setting("synchronous_standby_names") || fact::is_of_standby(fact)
            }
            // What a user's command changes is unknown; pgio has no treatment of its own for these.
            Subject::Command => fact::is_changed_by_commands(fact),
            // No fact of the environment shows these.
            Subject::Device { .. } | Subject::Memory | Subject::Link { .. } | Subject::Cache => {
                false
            }
        }
    }

    /// All its texts, for sanitizing them before output.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let subject = match &mut self.subject {
            Subject::Drbd { resource: text }
            | Subject::Device { path: text }
            | Subject::FileSystem { role: text }
            | Subject::Mount { path: Some(text) }
            | Subject::Standby { name: text }
            | Subject::Link { interface: Some(text) } => Some(text),
            Subject::Server
            | Subject::Mount { path: None }
            | Subject::Memory
            | Subject::Link { interface: None }
            | Subject::Cache
            | Subject::Version
            | Subject::Initdb
            | Subject::Directory
            | Subject::Command => None,
        };
        [&mut self.setting, &mut self.value].into_iter().chain(subject).chain(&mut self.host)
    }
}

/// The role of the data directory.
const DATA: &str = "data";

/// Settings that the server derives from another one: the derived setting and its source.
const DERIVED: &[(&str, &str)] = &[
    ("wal_buffers", "shared_buffers"),
    ("shared_memory_size", "shared_buffers"),
    ("shared_memory_size_in_huge_pages", "shared_buffers"),
];

/// The facts of the device on which files of this role lie.
fn device_facts(role: &str) -> [String; 3] {
    [fact::mount(role), fact::scheduler(role), fact::read_ahead(role)]
}

/// The roles on the same mount as a matching one.
fn roles_on_same_mount(
    storage: &[Storage],
    wanted: impl Fn(&Storage) -> bool,
) -> impl Iterator<Item = &str> {
    let points: Vec<&str> =
        storage.iter().filter(|s| wanted(s)).map(|s| s.mount_point.as_str()).collect();
    let on_same_mount = storage.iter().filter(move |s| points.contains(&s.mount_point.as_str()));
    on_same_mount.map(|s| s.role.as_str())
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { host, subject, setting, value } = self;
        let on = host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
        match subject {
            Subject::Server | Subject::Cache => write!(f, "{setting} = {value}"),
            Subject::Memory => write!(f, "{setting}{on} = {value}"),
            Subject::Drbd { resource } if setting == CONNECTION => {
                write!(f, "DRBD {resource} = {value}")
            }
            Subject::Drbd { resource } => write!(f, "{setting} of DRBD {resource} = {value}"),
            Subject::Device { path } => write!(f, "{setting} of {path}{on} = {value}"),
            Subject::Mount { .. } => write!(f, "mount option {setting} = {value}"),
            Subject::FileSystem { role } if role == DATA => {
                write!(f, "mount of the data directory = {value}")
            }
            Subject::FileSystem { .. } => write!(f, "tablespace of the data set = {value}"),
            Subject::Link { interface: Some(name) } => write!(f, "link of {name}{on} = {value}"),
            Subject::Link { interface: None } => write!(f, "link by a relay = {value}"),
            Subject::Version => write!(f, "PostgreSQL {value}"),
            Subject::Initdb if value.is_empty() => write!(f, "initdb {setting}"),
            Subject::Initdb => write!(f, "initdb {setting}={value}"),
            Subject::Directory => write!(f, "{setting} = {value}"),
            Subject::Standby { name } => write!(f, "standby {name} ({value})"),
            Subject::Command => write!(f, "command {setting}{on}"),
        }
    }
}

/// Names of environment facts.
pub mod fact {
    /// Present if a reading of the server's clock takes 300 ns or more.
    pub const SLOW_CLOCK: &str = "clock.slow";

    /// A setting of the host, such as `host.vm.dirty_ratio`.
    pub fn host(name: &str) -> String {
        format!("host.{name}")
    }

    pub fn setting(name: &str) -> String {
        format!("setting.{name}")
    }

    /// The mount that contains the server's files of a role: `data`, `wal`, `tablespace NAME`.
    pub fn mount(role: &str) -> String {
        format!("{role}.mount")
    }

    pub fn scheduler(role: &str) -> String {
        format!("{role}.scheduler")
    }

    /// Read-ahead in kB of the devices below a role's files.
    pub fn read_ahead(role: &str) -> String {
        format!("{role}.read_ahead")
    }

    /// A setting, as configured, of the standby in this data directory.
    pub fn standby(directory: &str, setting: &str) -> String {
        format!("{STANDBY}{directory}.{setting}")
    }

    const STANDBY: &str = "standby.";

    /// Whether the fact is [`standby`] of any standby on any host.
    pub fn is_of_standby(fact: &str) -> bool {
        !is_setting(fact) && (fact.starts_with(STANDBY) || fact.contains(".standby."))
    }

    /// Reads [`standby`] on any host: the part that names the standby, and the setting.
    pub fn setting_of_standby(fact: &str) -> Option<(&str, &str)> {
        fact.rsplit_once('.').filter(|_| is_of_standby(fact))
    }

    /// Whether a user's command may be meant to change it: settings of the kernel, and of standbys.
    pub(super) fn is_changed_by_commands(fact: &str) -> bool {
        let names = ["host.governor", "host.transparent_hugepage"];
        let is_kernels = fact.ends_with(".read_ahead") || fact.contains("host.vm.");
        is_kernels && !is_setting(fact)
            || is_of_standby(fact)
            || fact.ends_with(".scheduler")
            || names.contains(&fact)
    }

    pub fn drbd_protocol(resource: &str) -> String {
        format!("drbd.protocol.{resource}")
    }

    /// All network options of its connections except the protocol.
    pub fn drbd_network(resource: &str) -> String {
        drbd_option(resource, "net")
    }

    pub fn drbd_option(resource: &str, option: &str) -> String {
        format!("drbd.{resource}.{option}")
    }

    /// Whether the fact is there only while its replication is connected: [`drbd_network`] of any resource on any host.
    pub fn is_of_connection(fact: &str) -> bool {
        fact.contains("drbd.") && fact.ends_with(".net")
    }

    pub fn is_setting(fact: &str) -> bool {
        setting_of(fact).is_some()
    }

    /// The name of the setting, if the fact is one.
    pub fn setting_of(fact: &str) -> Option<&str> {
        fact.strip_prefix("setting.")
    }

    /// A fact about a host other than the server's.
    pub fn on_host(host: &str, fact: &str) -> String {
        format!("{host}.{fact}")
    }

    /// Whether `found` is this fact on the server's host or on another host.
    pub(super) fn is_on_any_host(found: &str, fact: &str) -> bool {
        found.strip_suffix(fact).is_some_and(|host| host.is_empty() || host.ends_with('.'))
    }
}

// Settings that initdb writes into postgresql.conf differ between versions, so they are no difference of their own. The
// tables err by omission: what they lack is named as different.

/// Settings that initdb writes whatever its options, and settings of which a version reports that it chose the
/// value itself.
const WRITTEN: &[&str] = &[
    "autovacuum_worker_slots",
    "DateStyle",
    "default_text_search_config",
    "dynamic_shared_memory_type",
    "lc_messages",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "log_timezone",
    "max_connections",
    "max_stack_depth",
    "max_wal_size",
    "min_wal_size",
    "shared_buffers",
    "TimeZone",
    "wal_buffers",
];

/// Options of initdb, with the settings that they decide.
const OPTIONS: &[(&[&str], &[&str])] = &[
    (&["--data-checksums", "-k", "--no-data-checksums"], &["data_checksums"]),
    (&["--wal-segsize"], &["wal_segment_size", "min_wal_size", "max_wal_size", "wal_buffers"]),
    (&["--text-search-config", "-T"], &["default_text_search_config"]),
    (&["--lc-messages", "--locale", "--no-locale"], &["lc_messages"]),
    (&["--lc-monetary", "--locale", "--no-locale"], &["lc_monetary"]),
    (&["--lc-numeric", "--locale", "--no-locale"], &["lc_numeric"]),
    (&["--lc-time", "--locale", "--no-locale"], &["lc_time"]),
];

/// Whether the setting may differ between two versions that were set up alike. Checksums are not among
/// these: users who compare versions must know them.
fn follows_from_version(setting: &str) -> bool {
    WRITTEN.contains(&setting)
}

/// Whether an option of initdb, such as `--wal-segsize` with the value `64`, decides the setting.
fn follows_from_initdb(setting: &str, option: &str, value: &str) -> bool {
    let decides = |(options, settings): &(&[&str], &[&str])| {
        options.contains(&option) && settings.contains(&setting)
    };
    let is_set = ["-c", "--set"].contains(&option)
        && value.split_once('=').is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case(setting));
    is_set || OPTIONS.iter().any(decides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(mounts: &[(&str, &str)]) -> Vec<Storage> {
        let one = |(role, point): &(&str, &str)| Storage {
            role: (*role).to_owned(),
            mount_point: (*point).to_owned(),
            ..Storage::default()
        };
        mounts.iter().map(one).collect()
    }

    fn option(path: Option<&str>) -> Change {
        let subject = Subject::Mount { path: path.map(str::to_owned) };
        Change::new(None, subject, "barrier", "barrier=0")
    }

    #[test]
    fn a_mount_option_explains_only_its_own_mount() {
        let apart = storage(&[("data", "/srv/pg"), ("wal", "/srv/wal")]);
        assert!(option(None).decides("data.mount", &apart));
        assert!(!option(None).decides("wal.mount", &apart));
        assert!(option(Some("/srv/wal")).decides("wal.mount", &apart));
        assert!(!option(Some("/srv/wal")).decides("data.mount", &apart));
        assert!(!option(None).decides("data.scheduler", &apart));
        let together = storage(&[("data", "/srv"), ("wal", "/srv")]);
        assert!(option(None).decides("wal.mount", &together));
    }

    #[test]
    fn a_new_file_system_explains_mount_and_scheduler_of_its_directories() {
        let subject = Subject::FileSystem { role: "data".to_owned() };
        let change = Change::new(None, subject, "file system", "xfs on /dev/vdb");
        let apart = storage(&[("data", "/pg"), ("wal", "/wal"), ("tablespace a", "/a")]);
        for (fact, decided) in [
            ("data.mount", true),
            ("data.scheduler", true),
            ("data.read_ahead", true),
            ("wal.read_ahead", false),
            ("wal.mount", false),
            ("tablespace a.mount", false),
            ("host.kernel", false),
        ] {
            assert_eq!(change.decides(fact, &apart), decided, "{fact}");
        }
    }

    #[test]
    fn a_command_explains_settings_of_the_kernel_and_of_standbys_only() {
        let change = Change::new(None, Subject::Command, "scheduler", "scheduler");
        for fact in
            ["data.scheduler", "data.read_ahead", "host.vm.dirty_ratio", "db2.standby./srv/s.fsync"]
        {
            assert!(change.decides(fact, &[]), "{fact}");
        }
        for fact in ["host.kernel", "data.mount", "setting.fsync", "drbd.protocol.r0"] {
            assert!(!change.decides(fact, &[]), "{fact}");
        }
    }

    #[test]
    fn a_setting_explains_itself_and_derived_settings() {
        let change = Change::server("shared_buffers", "1GB");
        assert!(change.decides("setting.shared_buffers", &[]));
        assert!(change.decides("setting.wal_buffers", &[]));
        assert!(!change.decides("setting.work_mem", &[]));
        let extension = Change::server("auto_explain.log_timing", "on");
        assert!(extension.decides("setting.auto_explain.log_timing", &[]));
        assert!(!extension.decides("setting.log_timing", &[]));
    }

    #[test]
    fn a_drbd_change_explains_only_its_own_setting_on_each_host() {
        let drbd = |setting: &str| {
            Change::new(None, Subject::Drbd { resource: "r0".to_owned() }, setting, "C")
        };
        assert!(drbd(CONNECTION).decides("drbd.protocol.r0", &[]));
        assert!(drbd(CONNECTION).decides("db2.drbd.protocol.r0", &[]));
        assert!(!drbd(CONNECTION).decides("drbd.protocol.r00", &[]));
        assert!(!drbd(CONNECTION).decides("drbd.r0.al-extents", &[]));
        assert!(drbd("al-extents").decides("db2.drbd.r0.al-extents", &[]));
        assert!(!drbd("al-extents").decides("drbd.protocol.r0", &[]));
    }

    #[test]
    fn initdb_options_explain_only_the_settings_they_decide() {
        assert!(follows_from_initdb("wal_segment_size", "--wal-segsize", "64"));
        assert!(follows_from_initdb("data_checksums", "-k", ""));
        assert!(!follows_from_initdb("data_checksums", "--wal-segsize", "64"));
        assert!(follows_from_initdb("work_mem", "--set", "work_mem=8MB"));
        assert!(!follows_from_initdb("work_mem", "--set", "fsync=off"));
        assert!(follows_from_version("shared_buffers") && !follows_from_version("data_checksums"));
    }
}
