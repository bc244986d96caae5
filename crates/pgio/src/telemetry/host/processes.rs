//! Attributes CPU time to servers and programs: all processes of a host at one moment, as a forest.
//!
//! The time of a process that ends is added to its parent, so the sum over a process and its
//! descendants never shrinks while the root runs. Next: [`super::window`] subtracts two snapshots.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::proc::pid_stat::{self, Process};

/// Servers whose processes do not count as foreign load on this host.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// One or more backends of each server under test that should run on this host. Standbys need
    /// not be listed: they are found by their walreceiver.
    pub backend_pids: Vec<i32>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Processes {
    by_pid: BTreeMap<i32, Process>,
    walreceivers: Vec<i32>,
}

impl Processes {
    /// `walreceivers`: paths /proc/PID/cmdline, one per line.
    pub(super) fn parse(stats: &str, walreceivers: &str) -> Processes {
        let pid = |line: &str| line.strip_prefix("/proc/")?.split('/').next()?.parse().ok();
        Processes {
            by_pid: pid_stat::parse_all(stats).into_iter().map(|p| (p.pid, p)).collect(),
            walreceivers: walreceivers.lines().filter_map(pid).collect(),
        }
    }

    /// The postmaster of a backend; `None` if the process does not belong to PostgreSQL.
    pub(super) fn postmaster_of(&self, backend: i32) -> Option<i32> {
        let parent = self.postgres(backend)?.parent;
        self.postgres(parent).map(|postmaster| postmaster.pid)
    }

    /// Postmasters of servers that replicate from another server.
    pub(super) fn standby_postmasters(&self) -> impl Iterator<Item = i32> {
        self.walreceivers.iter().filter_map(|pid| self.postmaster_of(*pid))
    }

    /// Parent of the kernel threads; on an otherwise idle host their work belongs to the measured
    /// system.
    pub(super) fn kernel(&self) -> Option<i32> {
        let kthreadd = self.by_pid.get(&2)?;
        (kthreadd.parent == 0 && kthreadd.name == "kthreadd").then_some(2)
    }

    /// CPU ticks of these processes and their descendants; each process counts once.
    pub(super) fn ticks_below(&self, roots: &BTreeSet<i32>) -> u64 {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for process in self.by_pid.values() {
            children.entry(process.parent).or_default().push(process.pid);
        }
        let mut todo: Vec<i32> = roots.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let mut ticks: u64 = 0;
        while let Some(pid) = todo.pop() {
            if let Some(process) = self.by_pid.get(&pid)
                && seen.insert(pid)
            {
                ticks = ticks.saturating_add(process.ticks());
                todo.extend(children.get(&pid).into_iter().flatten());
            }
        }
        ticks
    }

    fn postgres(&self, pid: i32) -> Option<&Process> {
        let is_postgres =
            |p: &&Process| p.name.contains("postgres") || p.name.contains("postmaster");
        self.by_pid.get(&pid).filter(is_postgres)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: i32, name: &str, parent: i32, own: u64, children: u64) -> String {
        format!("{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 {own} 0 {children} 0 20 0 1 0 5\n")
    }

    #[test]
    fn finds_servers_and_the_kernel_and_sums_their_ticks() {
        let text = [
            line(1, "systemd", 0, 1, 1000),
            line(2, "kthreadd", 0, 1, 0),
            line(3, "kworker/0:1", 2, 4, 0),
            line(100, "postgres", 1, 10, 20),
            line(101, "postgres", 100, 30, 0),
            line(102, "postgres", 100, 40, 5),
            line(200, "postgres", 1, 7, 0),
            line(201, "postgres", 200, 8, 0),
            line(300, "sh", 1, 9, 0),
        ]
        .concat();
        let all =
            Processes::parse(&text, "/proc/201/cmdline\n/proc/300/cmdline\n/proc/x/cmdline\n");
        assert_eq!(all.postmaster_of(101), Some(100));
        assert_eq!(all.postmaster_of(300), None, "not PostgreSQL");
        assert_eq!(all.postmaster_of(100), None, "a postmaster is not a backend");
        assert_eq!(all.postmaster_of(999), None);
        assert_eq!(
            all.standby_postmasters().collect::<Vec<_>>(),
            [200],
            "grep is not a walreceiver"
        );
        assert_eq!(all.kernel(), Some(2));
        let sum = |roots: &[i32]| all.ticks_below(&roots.iter().copied().collect());
        assert_eq!(sum(&[100]), 10 + 20 + 30 + 40 + 5);
        assert_eq!(sum(&[100, 101, 2]), 105 + 5, "no process counts twice");
        assert_eq!(sum(&[999]), 0);
        let container = Processes::parse(&line(2, "sh", 1, 5, 5), "");
        assert_eq!(container.kernel(), None);
    }
}
