//! Attributes CPU time to servers and programs: all processes of a host at one moment, as a forest.
//!
//! The time of a process that ends is added to its parent, so the sum over a process and its
//! descendants never shrinks while the root runs. Next: [`super::window`] subtracts two snapshots.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::proc::pid_stat::{self, Process};

/// A process that ran for less than this many seconds did not do the work whose delay matters.
const RAN: f64 = 0.01;

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
    /// Nanoseconds that each process ran, and that it waited for a core while ready to run.
    scheduled: BTreeMap<i32, Scheduled>,
    /// Bytes that each process and its ended children read from devices and wrote to files.
    moved: BTreeMap<i32, u64>,
}

#[derive(Debug, Clone, Copy)]
struct Scheduled {
    ran: u64,
    waited: u64,
}

impl Processes {
    /// `walreceivers`: paths /proc/PID/cmdline, one per line. `schedstats`: lines of /proc/PID/schedstat,
    /// each after its path and a colon.
    pub(super) fn parse(stats: &str, walreceivers: &str, schedstats: &str) -> Processes {
        let scheduled = |line: &str| {
            let (path, times) = line.split_once(':')?;
            let mut times = times.split_ascii_whitespace().map(str::parse);
            let (ran, waited) = (times.next()?.ok()?, times.next()?.ok()?);
            Some((pid(path)?, Scheduled { ran, waited }))
        };
        Processes {
            moved: BTreeMap::new(),
            scheduled: schedstats.lines().filter_map(scheduled).collect(),
            by_pid: pid_stat::parse_all(stats).into_iter().map(|p| (p.pid, p)).collect(),
            walreceivers: walreceivers.lines().filter_map(pid).collect(),
        }
    }

    /// `ios`: lines of /proc/PID/io, each after its path and a colon.
    pub(super) fn with_io(mut self, ios: &str) -> Processes {
        let mut cancelled = BTreeMap::new();
        for line in ios.lines() {
            let mut words = line.split(':').map(str::trim);
            let (Some(path), Some(name), Some(bytes)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if let (Some(pid), Ok(bytes)) = (pid(path), bytes.parse::<u64>()) {
                let sums =
                    if name == "cancelled_write_bytes" { &mut cancelled } else { &mut self.moved };
                *sums.entry(pid).or_default() += bytes;
            }
        }
        // Pages of files that were truncated or removed before they were written.
        for (pid, bytes) in cancelled {
            let moved = self.moved.entry(pid).or_default();
            *moved = moved.saturating_sub(bytes);
        }
        self
    }

    /// Bytes moved by these processes and their descendants, and by all others. The bytes of a process
    /// that ends are added to its parent, so both sums grow unless the parent cannot be read. `None` if
    /// the kernel does not account for them.
    pub(super) fn moved(&self, roots: &BTreeSet<i32>) -> Option<(u64, u64)> {
        let own: BTreeSet<i32> = self.below(roots).iter().map(|process| process.pid).collect();
        let (mut ours, mut others) = (0u64, 0u64);
        for (pid, bytes) in &self.moved {
            let sum = if own.contains(pid) { &mut ours } else { &mut others };
            *sum = sum.saturating_add(*bytes);
        }
        (!self.moved.is_empty()).then_some((ours, others))
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
        self.below(roots).iter().fold(0, |sum: u64, process| sum.saturating_add(process.ticks()))
    }

    /// Seconds that the descendants of these processes waited for a core since an earlier moment, as the
    /// mean of those that ran at least [`RAN`] seconds. `None` if none did.
    pub(super) fn waited_below(&self, roots: &BTreeSet<i32>, earlier: &Processes) -> Option<f64> {
        let since = |process: &&Process| {
            let (now, then) =
                (self.scheduled.get(&process.pid)?, earlier.scheduled.get(&process.pid)?);
            let ran = now.ran.checked_sub(then.ran)? as f64 / 1e9;
            let waited = now.waited.checked_sub(then.waited)? as f64 / 1e9;
            (ran >= RAN).then_some(waited)
        };
        let all: Vec<f64> = self.below(roots).iter().filter_map(since).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }

    /// These processes and their descendants.
    fn below(&self, roots: &BTreeSet<i32>) -> Vec<&Process> {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for process in self.by_pid.values() {
            children.entry(process.parent).or_default().push(process.pid);
        }
        let mut todo: Vec<i32> = roots.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        while let Some(pid) = todo.pop() {
            if let Some(process) = self.by_pid.get(&pid)
                && seen.insert(pid)
            {
                found.push(process);
                todo.extend(children.get(&pid).into_iter().flatten());
            }
        }
        found
    }

    fn postgres(&self, pid: i32) -> Option<&Process> {
        let is_postgres =
            |p: &&Process| p.name.contains("postgres") || p.name.contains("postmaster");
        self.by_pid.get(&pid).filter(is_postgres)
    }
}

/// The process of a path /proc/PID/FILE.
fn pid(path: &str) -> Option<i32> {
    path.strip_prefix("/proc/")?.split('/').next()?.parse().ok()
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
            Processes::parse(&text, "/proc/201/cmdline\n/proc/300/cmdline\n/proc/x/cmdline\n", "");
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
        let container = Processes::parse(&line(2, "sh", 1, 5, 5), "", "");
        assert_eq!(container.kernel(), None);
    }

    #[test]
    fn bytes_are_divided_between_ours_and_others() {
        let stats = line(100, "postgres", 1, 0, 0)
            + &line(101, "postgres", 100, 0, 0)
            + &line(300, "dd", 1, 0, 0);
        let ios = "/proc/101/io:read_bytes: 4096\n/proc/101/io:write_bytes: 8192\n\
                   /proc/101/io:cancelled_write_bytes: 1000\n/proc/300/io:write_bytes: 77\nx\n";
        let all = Processes::parse(&stats, "", "").with_io(ios);
        assert_eq!(all.moved(&[100].into()), Some((4096 + 8192 - 1000, 77)));
        assert_eq!(Processes::parse(&stats, "", "").moved(&[100].into()), None);
    }

    #[test]
    fn waiting_for_a_core_is_the_mean_of_the_servers_busy_processes() {
        let stats = [100, 101, 102, 103]
            .map(|pid| line(pid, "postgres", if pid == 100 { 1 } else { 100 }, 0, 0));
        let stats = stats.concat() + &line(300, "sh", 1, 0, 0);
        let at = |times: &[(i32, u64, u64)]| {
            let lines = times.iter().map(|(pid, ran, waited)| {
                format!("/proc/{pid}/schedstat:{} {} 7\n", ran * 1_000_000, waited * 1_000_000)
            });
            Processes::parse(&stats, "", &lines.collect::<String>())
        };
        let before = at(&[(101, 50, 10), (102, 0, 0), (103, 5, 5), (300, 0, 0)]);
        // 103 hardly ran, 300 is foreign.
        let after = at(&[(101, 250, 310), (102, 100, 100), (103, 6, 900), (300, 900, 900)]);
        let waited = after.waited_below(&[100].into(), &before).unwrap();
        assert!((waited - 0.2).abs() < 1e-12, "{waited}");
        assert_eq!(
            after.waited_below(&[100].into(), &at(&[])),
            None,
            "the kernel does not account for it"
        );
        assert_eq!(before.waited_below(&[100].into(), &before), None, "none ran");
    }
}
