//! What a change endangers: acknowledged commits, or the cluster itself.
//!
//! A gain that is bought with the data must not be read without its price. The change alone decides, by its subject,
//! setting and value, or a fact of the environment, as a server may be configured so already; whether a standby was
//! synchronous, the analysis adds. Commands are the user's, and unknown.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::change::{CONNECTION, Change, Subject, fact};

/// Of two dangers, the later is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Danger {
    /// The peer may lack commits that a synchronous one has.
    FailoverLosesCommits,
    CrashLosesCommits,
    /// Damage is deleted, or passes for data.
    HidesDamage,
    PowerCutCorrupts,
}

impl Danger {
    pub fn what(self) -> &'static str {
        match self {
            Danger::FailoverLosesCommits => "a failover can lose acknowledged commits",
            Danger::CrashLosesCommits => "a crash can lose acknowledged commits",
            Danger::HidesDamage => "damaged data can be deleted or pass unnoticed",
            Danger::PowerCutCorrupts => "a power cut can corrupt the cluster",
        }
    }
}

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unsafe: {}", self.what())
    }
}

impl Change {
    pub fn danger(&self) -> Option<Danger> {
        let value = self.value.trim().to_ascii_lowercase();
        match &self.subject {
            Subject::Server => from_setting(&self.setting.to_ascii_lowercase(), &value),
            Subject::Drbd { .. } if self.setting == CONNECTION => {
                // With protocol B only the failure of both nodes loses what the peer had in memory.
                let is_behind = value == "disconnected" || value.ends_with("protocol a");
                is_behind.then_some(Danger::FailoverLosesCommits)
            }
            Subject::Drbd { .. } => from_drbd_option(&self.setting, &value),
            Subject::Mount { .. } | Subject::FileSystem { .. } => from_mount(&value),
            Subject::Initdb
            | Subject::Device { .. }
            | Subject::Memory
            | Subject::Link { .. }
            | Subject::Cache
            | Subject::Version
            | Subject::Directory
            | Subject::Standby { .. }
            | Subject::Command => None,
        }
    }
}

/// Mount options with which flushes do not reach the device, or data not before its metadata; file systems without a
/// journal, by name or by arguments of mkfs.
const MOUNTED_UNSAFELY: [&str; 10] = [
    "barrier=0",
    "nobarrier",
    "data=writeback",
    "journal_async_commit",
    "nointegrity",
    "^has_journal",
    "-o^has_journal",
    "none",
    "ext2",
    "-text2",
];

/// What a fact of the environment shows: a server may be configured so without any change of the experiment.
pub fn from_fact(name: &str, value: &str) -> Option<Danger> {
    let value = value.trim().to_ascii_lowercase();
    if let Some(setting) = fact::setting_of(name) {
        // Without standbys the list is empty.
        return from_setting(setting, &value).filter(|_| setting != "synchronous_standby_names");
    }
    // It may be the standby of another server; the check `standby-durability` names it.
    if fact::is_of_standby(name) {
        return None;
    }
    if name.contains("drbd.protocol.") {
        return value.split(" | ").any(|p| p == "a").then_some(Danger::FailoverLosesCommits);
    }
    match name.rsplit_once('.')? {
        (_, "mount") => from_mount(&value),
        (of, option) if of.contains("drbd.") => {
            value.split(" | ").find_map(|value| from_drbd_option(option, value))
        }
        _ => None,
    }
}

fn from_drbd_option(name: &str, value: &str) -> Option<Danger> {
    let flushes = ["disk-barrier", "disk-flushes", "md-flushes"];
    (flushes.contains(&name) && is_off(value)).then_some(Danger::PowerCutCorrupts)
}

/// What mount options endanger, or a new file system with its arguments of mkfs.
fn from_mount(value: &str) -> Option<Danger> {
    let mut words = value.split([',', ' ', '(', ')']);
    words.any(|word| MOUNTED_UNSAFELY.contains(&word)).then_some(Danger::PowerCutCorrupts)
}

/// `value` is in lower case.
fn from_setting(name: &str, value: &str) -> Option<Danger> {
    match name {
        "fsync" | "full_page_writes" if is_off(value) => Some(Danger::PowerCutCorrupts),
        "synchronous_commit" if is_off(value) => Some(Danger::CrashLosesCommits),
        "synchronous_commit" if value == "local" => Some(Danger::FailoverLosesCommits),
        "synchronous_standby_names" if value.is_empty() => Some(Danger::FailoverLosesCommits),
        "zero_damaged_pages"
        | "ignore_checksum_failure"
        | "ignore_invalid_pages"
        | "data_sync_retry"
            if is_on(value) =>
        {
            Some(Danger::HidesDamage)
        }
        _ => None,
    }
}

/// As PostgreSQL reads a Boolean: by the beginning of a word.
fn is_off(value: &str) -> bool {
    value == "0" || value.len() >= 2 && "off".starts_with(value) || begins(value, ["false", "no"])
}

fn is_on(value: &str) -> bool {
    value == "1" || value == "on" || begins(value, ["true", "yes"])
}

fn begins(value: &str, words: [&str; 2]) -> bool {
    !value.is_empty() && words.iter().any(|word| word.starts_with(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_knows_what_it_endangers() {
        let server = |name: &str, value: &str| Change::server(name, value).danger();
        for value in ["off", "OF", "false", "f", "no", "0"] {
            assert_eq!(server("fsync", value), Some(Danger::PowerCutCorrupts), "{value}");
        }
        assert_eq!(server("Full_Page_Writes", "off"), Some(Danger::PowerCutCorrupts));
        assert_eq!(server("synchronous_commit", "off"), Some(Danger::CrashLosesCommits));
        assert_eq!(server("synchronous_commit", "local"), Some(Danger::FailoverLosesCommits));
        assert_eq!(server("synchronous_standby_names", ""), Some(Danger::FailoverLosesCommits));
        assert_eq!(server("zero_damaged_pages", "on"), Some(Danger::HidesDamage));
        for (name, value) in [
            ("fsync", "on"),
            ("fsync", "o"),
            ("synchronous_commit", "on"),
            ("synchronous_commit", "remote_write"),
            ("data_sync_retry", "off"),
            ("work_mem", "0"),
        ] {
            assert_eq!(server(name, value), None, "{name}");
        }
        let danger = |subject: Subject, name: &str, value: &str| {
            Change::new(None, subject, name, value).danger()
        };
        let mount = |value| danger(Subject::Mount { path: None }, "barrier", value);
        for value in ["barrier=0", "nobarrier", "data=writeback"] {
            assert_eq!(mount(value), Some(Danger::PowerCutCorrupts), "{value}");
        }
        assert_eq!((mount("barrier=1"), mount("noatime")), (None, None));
        let made = |value: &str| {
            danger(Subject::FileSystem { role: "data".to_owned() }, "file system", value).is_some()
        };
        for arguments in ["-O ^has_journal", "-O extent,^has_journal", "-O^has_journal", "-t ext2"]
        {
            assert!(made(&format!("ext4 (mkfs {arguments}) on /dev/vdb")), "{arguments}");
        }
        assert!(!made("ext4 on /dev/vdb") && !made("ext4 (mkfs -E nodiscard) on /dev/vdb"));
        let drbd = |name, value| danger(Subject::Drbd { resource: "r0".to_owned() }, name, value);
        assert_eq!(drbd("disk-flushes", "no"), Some(Danger::PowerCutCorrupts));
        assert_eq!(drbd("disk-flushes", "yes"), None);
        assert_eq!(drbd(CONNECTION, "disconnected"), Some(Danger::FailoverLosesCommits));
        assert_eq!(drbd(CONNECTION, "connected by protocol A"), Some(Danger::FailoverLosesCommits));
        assert_eq!(drbd(CONNECTION, "connected by protocol C"), None);
        assert!(Danger::PowerCutCorrupts > Danger::CrashLosesCommits);
    }

    #[test]
    fn a_fact_of_the_environment_shows_what_is_endangered_already() {
        for (name, value, danger) in [
            ("setting.fsync", "off", Some(Danger::PowerCutCorrupts)),
            ("setting.synchronous_commit", "off", Some(Danger::CrashLosesCommits)),
            ("setting.data_sync_retry", "on", Some(Danger::HidesDamage)),
            ("setting.synchronous_standby_names", "", None),
            ("db2.standby./srv/b.fsync", "off", None),
            ("data.mount", "ext4 rw,nobarrier on /data", Some(Danger::PowerCutCorrupts)),
            ("wal.mount", "ext2 rw on /wal", Some(Danger::PowerCutCorrupts)),
            ("data.mount", "ext4 rw,relatime on /none", None),
            ("drbd.protocol.r0", "A", Some(Danger::FailoverLosesCommits)),
            ("db2.drbd.protocol.r0", "C", None),
            ("db2.drbd.r0.md-flushes", "no", Some(Danger::PowerCutCorrupts)),
            ("drbd.r0.al-extents", "0", None),
            ("host.kernel", "6.1.0", None),
        ] {
            assert_eq!(from_fact(name, value), danger, "{name} = {value}");
        }
    }
}
