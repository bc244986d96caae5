//! Recognizes a machine independently of the names that it is given.

use std::fs;

use serde::{Deserialize, Serialize};

/// Distinguishes machines independently of their names. Fields are empty if unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// The boot id, unique per boot of a kernel.
    pub(super) boot: String,
    /// The pid namespace.
    pids: String,
    /// The network namespace; containers on the same kernel usually have different ones.
    network: String,
    /// The host name that the kernel reports.
    pub(super) name: String,
}

/// A machine as it is known after a reboot and under any name of an experiment. Fields are empty if unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The host name that the kernel reports.
    #[serde(default)]
    pub name: String,
    /// The machine id of systemd.
    #[serde(default)]
    id: String,
}

impl Machine {
    pub fn this() -> Machine {
        let file = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Machine { name: file("/proc/sys/kernel/hostname"), id: file("/etc/machine-id") }
    }

    /// Whether it is certainly not the other one. A name may change, so it counts only without an id.
    pub fn is_another(&self, other: &Machine) -> bool {
        let differ = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
        if self.id.is_empty() || other.id.is_empty() {
            differ(&self.name, &other.name)
        } else {
            self.id != other.id
        }
    }
}

impl Identity {
    /// Prints the input of [`Identity::parse`].
    pub(super) const SCRIPT: &str = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo
        readlink /proc/self/ns/pid || echo
        readlink /proc/self/ns/net || echo
        cat /proc/sys/kernel/hostname 2>/dev/null || echo";

    pub(super) fn parse(text: &str) -> Identity {
        let mut lines = text.lines().map(|line| line.trim().to_owned());
        let mut next = || lines.next().unwrap_or_default();
        Identity { boot: next(), pids: next(), network: next(), name: next() }
    }

    pub(super) fn current() -> Identity {
        let file = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let link = |path| fs::read_link(path).unwrap_or_default().to_string_lossy().into_owned();
        Identity {
            boot: file("/proc/sys/kernel/random/boot_id"),
            pids: link("/proc/self/ns/pid"),
            network: link("/proc/self/ns/net"),
            name: file("/proc/sys/kernel/hostname"),
        }
    }

    pub(super) fn shares_pids(&self, other: &Identity) -> bool {
        self.boot == other.boot && self.pids == other.pids
    }

    /// The same, but unknown fields prove nothing.
    pub(super) fn certainly_shares_pids(&self, other: &Identity) -> bool {
        !self.boot.is_empty() && !self.pids.is_empty() && self.shares_pids(other)
    }

    /// Returns whether both are the same machine for certain. Containers on the same kernel differ in some
    /// fields; unknown fields prove nothing.
    pub(super) fn is_certainly(&self, other: &Identity) -> bool {
        !self.boot.is_empty() && !self.network.is_empty() && self == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_known_by_its_id_and_without_one_by_its_name() {
        let machine = |name: &str, id: &str| Machine { name: name.to_owned(), id: id.to_owned() };
        let this = machine("db1", "a");
        assert!(this.is_another(&machine("db1", "b")));
        assert!(!this.is_another(&machine("db2", "a")), "renamed");
        assert!(this.is_another(&machine("db2", "")) && !this.is_another(&machine("db1", "")));
        assert!(!this.is_another(&Machine::default()), "unknown");
        assert!(!Machine::this().is_another(&Machine::this()));
    }
}
