//! A change that a condition makes, and the facts of the environment that follow from it.
//!
//! A treatment says what it changes by [`Change`]; the manifest stores it, and whoever asks what was
//! declared compares its parts. `Display` is for people and is never read back. Facts of the
//! environment have the names that are made here, by whoever finds a fact and by whoever asks for
//! it, so that "declared" is equality.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::telemetry::Storage;

/// One setting of one subject, and the value that it has under a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// The host's name in the experiment; absent: the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub subject: Subject,
    /// Such as `synchronous_commit`, `write_iops` or `al-extents`.
    pub setting: String,
    /// As people write it.
    pub value: String,
}

/// What a change is made to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// PostgreSQL's settings.
    Server,
    /// A DRBD resource; its connection with the protocol is the setting [`CONNECTION`].
    Drbd { resource: String },
    /// The limits of a block device.
    Device { path: String },
    /// The options of a mount; without a path of the one under the data directory.
    Mount { path: Option<String> },
    /// A new file system for what the server keeps: `data`, or `tablespace NAME`.
    FileSystem { role: String },
    /// Memory that the server does not get.
    Memory,
    /// A network link: of an interface, or through a relay.
    Link { interface: Option<String> },
    /// What is cached before the window.
    Cache,
    /// Commands of the user's, of which the setting is the name.
    Command,
    /// What an earlier version told in words that say no more.
    Words,
}

/// The setting of a DRBD resource's connection and protocol, which are one factor.
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

    /// Whether it gives this setting of PostgreSQL a value.
    pub fn sets(&self, setting: &str) -> bool {
        self.subject == Subject::Server && self.setting == setting
    }

    /// Whether both give one setting a value, maybe not the same.
    pub fn is_of_same_setting(&self, other: &Change) -> bool {
        self.subject != Subject::Words
            && (&self.host, &self.subject, &self.setting)
                == (&other.host, &other.subject, &other.setting)
    }

    /// Whether a fact of the environment follows from it. `storage` says where the server's
    /// directories lie in the trial that the fact is of.
    pub fn decides(&self, fact: &str, storage: &[Storage]) -> bool {
        match &self.subject {
            Subject::Server => {
                let follows = FOLLOWS.iter().filter(|(_, leads)| *leads == self.setting);
                let follows = follows.map(|(follower, _)| *follower);
                follows.chain([self.setting.as_str()]).any(|name| fact == fact::setting(name))
            }
            Subject::Drbd { resource } if self.setting == CONNECTION => {
                fact::is_on_any_host(fact, &fact::drbd_protocol(resource))
            }
            Subject::Drbd { resource } => {
                fact::is_on_any_host(fact, &fact::drbd_option(resource, &self.setting))
            }
            Subject::FileSystem { role } => {
                let roles = roles_beside(storage, |s| s.role == *role);
                let all = roles.chain([role.as_str()]);
                all.flat_map(|r| [fact::mount(r), fact::scheduler(r)]).any(|name| name == fact)
            }
            Subject::Mount { path } => {
                let is_there = |s: &Storage| match path {
                    None => s.role == DATA,
                    Some(path) => s.mount_point == *path,
                };
                // Without the telemetry nobody knows what else lies there.
                let unknown = storage.is_empty().then_some(DATA);
                let roles = roles_beside(storage, is_there).chain(unknown);
                roles.map(fact::mount).any(|name| name == fact)
            }
            _ => false,
        }
    }

    /// All its texts, for whoever makes them fit to be printed.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let of_subject = match &mut self.subject {
            Subject::Drbd { resource: text }
            | Subject::Device { path: text }
            | Subject::FileSystem { role: text }
            | Subject::Mount { path: Some(text) }
            | Subject::Link { interface: Some(text) } => Some(text),
            _ => None,
        };
        [&mut self.setting, &mut self.value].into_iter().chain(of_subject).chain(&mut self.host)
    }
}

/// The role of the data directory.
const DATA: &str = "data";

/// Settings that the server works out from another one: the follower and the one it follows.
const FOLLOWS: &[(&str, &str)] = &[
    ("wal_buffers", "shared_buffers"),
    ("shared_memory_size", "shared_buffers"),
    ("shared_memory_size_in_huge_pages", "shared_buffers"),
];

/// The roles that lie on one mount with a wanted one.
fn roles_beside(
    storage: &[Storage],
    wanted: impl Fn(&Storage) -> bool,
) -> impl Iterator<Item = &str> {
    let points: Vec<&str> =
        storage.iter().filter(|s| wanted(s)).map(|s| s.mount_point.as_str()).collect();
    let there = storage.iter().filter(move |s| points.contains(&s.mount_point.as_str()));
    there.map(|s| s.role.as_str())
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
            Subject::Command => write!(f, "command {setting}{on}"),
            Subject::Words => f.write_str(setting),
        }
    }
}

/// Names of facts of the environment.
pub mod fact {
    pub fn setting(name: &str) -> String {
        format!("setting.{name}")
    }

    /// Of what the server keeps: `data`, `wal`, `tablespace NAME`.
    pub fn mount(role: &str) -> String {
        format!("{role}.mount")
    }

    pub fn scheduler(role: &str) -> String {
        format!("{role}.scheduler")
    }

    pub fn drbd_protocol(resource: &str) -> String {
        format!("drbd.protocol.{resource}")
    }

    /// All options of its connections but the protocol.
    pub fn drbd_network(resource: &str) -> String {
        drbd_option(resource, "net")
    }

    pub fn drbd_option(resource: &str, option: &str) -> String {
        format!("drbd.{resource}.{option}")
    }

    /// Whether it is [`drbd_network`] of any resource on any host.
    pub fn is_drbd_network(fact: &str) -> bool {
        fact.contains("drbd.") && fact.ends_with(".net")
    }

    pub fn is_setting(fact: &str) -> bool {
        fact.starts_with("setting.")
    }

    /// A fact of another host than the server's.
    pub fn on_host(host: &str, fact: &str) -> String {
        format!("{host}.{fact}")
    }

    /// Whether it is this fact of the server's host or of another.
    pub(super) fn is_on_any_host(found: &str, fact: &str) -> bool {
        found.strip_suffix(fact).is_some_and(|host| host.is_empty() || host.ends_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(places: &[(&str, &str)]) -> Vec<Storage> {
        let one = |(role, point): &(&str, &str)| Storage {
            role: (*role).to_owned(),
            mount_point: (*point).to_owned(),
            ..Storage::default()
        };
        places.iter().map(one).collect()
    }

    fn option(path: Option<&str>) -> Change {
        let subject = Subject::Mount { path: path.map(str::to_owned) };
        Change::new(None, subject, "barrier", "barrier=0")
    }

    #[test]
    fn a_mount_option_decides_its_own_mount_and_no_other() {
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
    fn a_new_file_system_decides_mount_and_scheduler_of_what_lies_on_it() {
        let subject = Subject::FileSystem { role: "data".to_owned() };
        let change = Change::new(None, subject, "file system", "xfs on /dev/vdb");
        let apart = storage(&[("data", "/pg"), ("wal", "/wal"), ("tablespace a", "/a")]);
        for (fact, decided) in [
            ("data.mount", true),
            ("data.scheduler", true),
            ("wal.mount", false),
            ("tablespace a.mount", false),
            ("host.kernel", false),
        ] {
            assert_eq!(change.decides(fact, &apart), decided, "{fact}");
        }
    }

    #[test]
    fn a_setting_decides_itself_and_what_follows_it() {
        let change = Change::server("shared_buffers", "1GB");
        assert!(change.decides("setting.shared_buffers", &[]));
        assert!(change.decides("setting.wal_buffers", &[]));
        assert!(!change.decides("setting.work_mem", &[]));
        let extension = Change::server("auto_explain.log_timing", "on");
        assert!(extension.decides("setting.auto_explain.log_timing", &[]));
        assert!(!extension.decides("setting.log_timing", &[]));
    }

    #[test]
    fn drbd_decides_on_each_host_what_it_names_and_no_more() {
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
}
