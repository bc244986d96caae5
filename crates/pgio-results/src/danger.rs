//! What a change endangers: acknowledged commits, or the cluster itself.
//!
//! A gain that is bought with the data must not be read without its price. The change alone decides, by its subject,
//! setting and value; whether a standby was synchronous, the analysis adds. Commands are the user's, and unknown.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::change::{CONNECTION, Change, Subject};

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

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Danger::FailoverLosesCommits => "unsafe: a failover can lose acknowledged commits",
            Danger::CrashLosesCommits => "unsafe: a crash can lose acknowledged commits",
            Danger::HidesDamage => "unsafe: damaged data can be deleted or pass unnoticed",
            Danger::PowerCutCorrupts => "unsafe: a power cut can corrupt the cluster",
        })
    }
}

impl Change {
    pub fn danger(&self) -> Option<Danger> {
        let value = self.value.trim().to_ascii_lowercase();
        match &self.subject {
            Subject::Server => of_setting(&self.setting.to_ascii_lowercase(), &value),
            Subject::Drbd { .. } if self.setting == CONNECTION => {
                // With protocol B only the failure of both nodes loses what the peer had in memory.
                let is_behind = value == "disconnected" || value.ends_with("protocol a");
                is_behind.then_some(Danger::FailoverLosesCommits)
            }
            Subject::Drbd { .. } => {
                let flushes = ["disk-barrier", "disk-flushes", "md-flushes"];
                (flushes.contains(&self.setting.as_str()) && is_off(&value))
                    .then_some(Danger::PowerCutCorrupts)
            }
            Subject::Mount { .. } | Subject::FileSystem { .. } => {
                let mut words = value.split([',', ' ']);
                words
                    .any(|word| MOUNTED_UNSAFELY.contains(&word))
                    .then_some(Danger::PowerCutCorrupts)
            }
            Subject::Initdb
            | Subject::Device { .. }
            | Subject::Memory
            | Subject::Link { .. }
            | Subject::Cache
            | Subject::Version
            | Subject::Directory
            | Subject::Standby { .. }
            | Subject::Command
            | Subject::Text => None,
        }
    }
}

/// Mount options with which flushes do not reach the device, or data not before its metadata.
const MOUNTED_UNSAFELY: [&str; 5] =
    ["barrier=0", "nobarrier", "data=writeback", "journal_async_commit", "nointegrity"];

/// `value` is in lower case.
fn of_setting(name: &str, value: &str) -> Option<Danger> {
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
        let of = |subject: Subject, name: &str, value: &str| {
            Change::new(None, subject, name, value).danger()
        };
        let mount = |value| of(Subject::Mount { path: None }, "barrier", value);
        for value in ["barrier=0", "nobarrier", "data=writeback"] {
            assert_eq!(mount(value), Some(Danger::PowerCutCorrupts), "{value}");
        }
        assert_eq!((mount("barrier=1"), mount("noatime")), (None, None));
        let drbd = |name, value| of(Subject::Drbd { resource: "r0".to_owned() }, name, value);
        assert_eq!(drbd("disk-flushes", "no"), Some(Danger::PowerCutCorrupts));
        assert_eq!(drbd("disk-flushes", "yes"), None);
        assert_eq!(drbd(CONNECTION, "disconnected"), Some(Danger::FailoverLosesCommits));
        assert_eq!(drbd(CONNECTION, "connected by protocol A"), Some(Danger::FailoverLosesCommits));
        assert_eq!(drbd(CONNECTION, "connected by protocol C"), None);
        assert!(Danger::PowerCutCorrupts > Danger::CrashLosesCommits);
    }
}
