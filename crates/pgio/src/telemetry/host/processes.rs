//! Attributes CPU time to servers and programs: all processes of a host at one moment, as a forest.
//!
//! The time of a process that ends is added to its parent, so the sum over a process and its
//! descendants never shrinks while the root runs. The time of a kernel thread is added to none. Next:
//! [`super::window`] computes rates.

use std::collections::{BTreeMap, BTreeSet};

use super::io::{Moved, ProcessIoCounters, pid};
use crate::host::proc::{self, Process};

/// A process that ran for less than this many seconds did not do the work whose delay matters.
const MIN_RUN_SECONDS: f64 = 0.01;

/// Servers whose processes do not count as foreign load on this host.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// One or more backends of each server under test that should run on this host. Standbys need
    /// not be listed: they are found by their walreceiver.
    pub backend_pids: Vec<i32>,
    /// System identifiers of the servers under test, whose standbys count as well. `None` if one is
    /// unknown, and then all standbys count.
    pub system_identifiers: Option<BTreeSet<String>>,
    /// Sessions of others on these servers.
    pub foreign_pids: BTreeSet<i32>,
}

impl Watch {
    /// Whether a standby with this system identifier belongs to the servers, or may.
    fn may_include(&self, identifier: Option<&str>) -> bool {
        let known = self.system_identifiers.as_ref().zip(identifier);
        known.is_none_or(|(servers, own)| servers.contains(own))
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Processes {
    by_pid: BTreeMap<i32, Process>,
    /// Each with its system identifier, if pgio may read it.
    walreceivers: Vec<(i32, Option<String>)>,
    /// Nanoseconds that each process ran, and that it waited for a core while ready to run.
    scheduled: BTreeMap<i32, Scheduled>,
    io: ProcessIoCounters,
}

#[derive(Debug, Clone, Copy)]
struct Scheduled {
    ran: u64,
    waited: u64,
}

impl Processes {
    /// `walreceivers`: paths /proc/PID, one per line, each before its system identifier if that is known.
    /// `schedstats`: lines of /proc/PID/schedstat, each after its path and a colon.
    pub(super) fn parse(stats: &str, walreceivers: &str, schedstats: &str) -> Processes {
        let scheduled = |line: &str| {
            let (path, times) = line.split_once(':')?;
            let mut times = times.split_ascii_whitespace().map(str::parse);
            let (ran, waited) = (times.next()?.ok()?, times.next()?.ok()?);
            Some((pid(path)?, Scheduled { ran, waited }))
        };
        let receiver = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            Some((pid(words.next()?)?, words.next().map(str::to_owned)))
        };
        Processes {
            io: ProcessIoCounters::default(),
            scheduled: schedstats.lines().filter_map(scheduled).collect(),
            by_pid: proc::parse_processes(stats).into_iter().map(|p| (p.pid, p)).collect(),
            walreceivers: walreceivers.lines().filter_map(receiver).collect(),
        }
    }

    /// `ios`: lines of /proc/PID/io, each after its path and a colon.
    pub(super) fn with_io(mut self, ios: &str) -> Processes {
        self.io = ProcessIoCounters::parse(ios);
        self
    }

    /// What processes moved since an earlier moment. The kernel's own threads belong to neither side: they
    /// write journals and write back what others dirtied. `servers` are postmasters, `roots` these and pgio.
    pub(super) fn io_since(
        &self,
        earlier: &Processes,
        servers: &BTreeSet<i32>,
        roots: &BTreeSet<i32>,
    ) -> Option<Moved> {
        let kernel = BTreeSet::from_iter(self.kernel_thread_parent());
        let pids = |of: &Processes, roots: &BTreeSet<i32>| -> BTreeSet<i32> {
            of.descendants_of(roots).iter().map(|process| process.pid).collect()
        };
        let mut own = pids(self, roots);
        own.extend(pids(earlier, roots));
        let threads = pids(self, &kernel);
        let others = self.by_pid.keys().filter(|pid| !own.contains(pid) && !threads.contains(pid));
        let others = others.filter_map(|pid| Some((*pid, self.by_pid.get(pid)?.name.as_str())));
        let parent = |pid: i32| earlier.by_pid.get(&pid).map(|process| process.parent);
        let mut moved = self.io.moved_since(&earlier.io, &own, &others.collect(), &parent)?;
        // A standby may have come or gone in the meantime.
        let is_read = |of: &Processes, pid| !of.by_pid.contains_key(pid) || of.io.has(*pid);
        if !servers.iter().all(|pid| is_read(self, pid) && is_read(earlier, pid)) {
            moved.own = None;
        }
        Some(moved)
    }

    /// Whether the processes of other users are shown, which the mount option hidepid may prevent. Every pid
    /// namespace has a first process.
    pub(super) fn shows_all_users(&self) -> bool {
        self.by_pid.contains_key(&1)
    }

    /// The postmaster of what is said to be a backend; `None` if the process does not belong to a server. A server's
    /// processes are forks of its first one and have the name of its program, whichever that is.
    pub(super) fn postmaster_of(&self, backend: i32) -> Option<i32> {
        let backend = self.by_pid.get(&backend)?;
        let parent = self.by_pid.get(&backend.parent)?;
        (parent.name == backend.name).then_some(parent.pid)
    }

    /// Postmasters of the standbys of the servers under test.
    pub(super) fn standby_postmasters(&self, watch: &Watch) -> impl Iterator<Item = i32> {
        let receivers = self.walreceivers.iter();
        receivers
            .filter(move |(_, identifier)| watch.may_include(identifier.as_deref()))
            .filter_map(|(pid, _)| self.postmaster_of(*pid))
    }

    /// Parent of the kernel threads; on an otherwise idle host their work belongs to the measured
    /// system.
    pub(super) fn kernel_thread_parent(&self) -> Option<i32> {
        let kthreadd = self.by_pid.get(&2)?;
        (kthreadd.parent == 0 && kthreadd.name == "kthreadd").then_some(2)
    }

    /// CPU ticks that these processes, their descendants and the kernel's threads used since an earlier
    /// moment; each process counts once. What ended and has no parent that is left is not counted: without
    /// its last reading, all its time since its start would be subtracted from the others'.
    pub(super) fn ticks_since(&self, earlier: &Processes, roots: &BTreeSet<i32>) -> u64 {
        let lasts = |pid: &i32| match (self.by_pid.get(pid), earlier.by_pid.get(pid)) {
            (Some(now), Some(then)) => now.started_ticks == then.started_ticks,
            _ => false,
        };
        let lasting = roots.iter().copied().filter(lasts).collect();
        let servers =
            self.ticks_of_descendants(roots).saturating_sub(earlier.ticks_of_descendants(&lasting));
        let threads = self.descendants_of(&BTreeSet::from_iter(self.kernel_thread_parent()));
        let thread_ticks = |thread: &Process| {
            let before = earlier.by_pid.get(&thread.pid).filter(|_| lasts(&thread.pid));
            thread.ticks().saturating_sub(before.map_or(0, Process::ticks))
        };
        threads.into_iter().map(thread_ticks).fold(servers, u64::saturating_add)
    }

    /// CPU ticks of these processes alone, as far as they are left at the end.
    pub(super) fn own_ticks_since(&self, earlier: &Processes, pids: &BTreeSet<i32>) -> u64 {
        let since = |pid: &i32| {
            let now = self.by_pid.get(pid)?;
            let then = earlier.by_pid.get(pid).filter(|p| p.started_ticks == now.started_ticks);
            Some(now.ticks().saturating_sub(then.map_or(0, Process::ticks)))
        };
        pids.iter().filter_map(since).sum()
    }

    /// [`Processes::ticks_since`] for all processes of the host.
    pub(super) fn all_ticks_since(&self, earlier: &Processes) -> u64 {
        let kernel = self.kernel_thread_parent();
        let is_root = |process: &&Process| {
            !self.by_pid.contains_key(&process.parent) && Some(process.pid) != kernel
        };
        let roots = self.by_pid.values().filter(is_root).map(|process| process.pid).collect();
        self.ticks_since(earlier, &roots)
    }

    /// CPU ticks of these processes and their descendants; each process counts once.
    fn ticks_of_descendants(&self, roots: &BTreeSet<i32>) -> u64 {
        self.descendants_of(roots)
            .iter()
            .fold(0, |sum: u64, process| sum.saturating_add(process.ticks()))
    }

    /// Seconds that the descendants of these processes waited for a core since an earlier moment, as the
    /// mean of those that ran at least [`MIN_RUN_SECONDS`] seconds. `None` if none did.
    pub(super) fn mean_wait_of(&self, roots: &BTreeSet<i32>, earlier: &Processes) -> Option<f64> {
        let since = |process: &&Process| {
            let (now, then) =
                (self.scheduled.get(&process.pid)?, earlier.scheduled.get(&process.pid)?);
            let ran = now.ran.checked_sub(then.ran)? as f64 / 1e9;
            let waited = now.waited.checked_sub(then.waited)? as f64 / 1e9;
            (ran >= MIN_RUN_SECONDS).then_some(waited)
        };
        let all: Vec<f64> = self.descendants_of(roots).iter().filter_map(since).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }

    /// These processes and their descendants.
    fn descendants_of(&self, roots: &BTreeSet<i32>) -> Vec<&Process> {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for process in self.by_pid.values() {
            children.entry(process.parent).or_default().push(process.pid);
        }
        let mut pending: Vec<i32> = roots.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        while let Some(pid) = pending.pop() {
            if let Some(process) = self.by_pid.get(&pid)
                && seen.insert(pid)
            {
                found.push(process);
                pending.extend(children.get(&pid).into_iter().flatten());
            }
        }
        found
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
            line(400, "edb-postgres", 1, 0, 0),
            line(401, "edb-postgres", 400, 0, 0),
        ]
        .concat();
        let all = Processes::parse(&text, "/proc/201 7\n/proc/300 \n/proc/x 7\n", "");
        assert_eq!((all.postmaster_of(101), all.postmaster_of(401)), (Some(100), Some(400)));
        assert_eq!(all.postmaster_of(300), None, "not PostgreSQL");
        assert_eq!(all.postmaster_of(100), None, "a postmaster is not a backend");
        assert_eq!(all.postmaster_of(999), None);
        let standbys = |identifier: Option<&str>| {
            let system_identifiers = identifier.map(|own| BTreeSet::from([own.to_owned()]));
            let watch = Watch { system_identifiers, ..Watch::default() };
            all.standby_postmasters(&watch).collect::<Vec<_>>()
        };
        assert_eq!(standbys(Some("7")), [200], "sh is not a walreceiver");
        assert_eq!(standbys(Some("8")), [0; 0], "of another cluster");
        assert_eq!(standbys(None), [200], "the cluster of a server is unknown");
        assert_eq!(all.kernel_thread_parent(), Some(2));
        let sum = |roots: &[i32]| all.ticks_of_descendants(&roots.iter().copied().collect());
        assert_eq!(sum(&[100]), 10 + 20 + 30 + 40 + 5);
        assert_eq!(sum(&[100, 101, 2]), 105 + 5, "no process counts twice");
        assert_eq!(sum(&[999]), 0);
        let container = Processes::parse(&line(2, "sh", 1, 5, 5), "", "");
        assert_eq!(container.kernel_thread_parent(), None);
        assert!(all.shows_all_users() && !container.shows_all_users());
    }

    #[test]
    fn ended_processes_do_not_reduce_the_time_of_the_others() {
        let system = line(1, "systemd", 0, 0, 0) + &line(2, "kthreadd", 0, 0, 0);
        let server = |backend: u64, children: u64| {
            line(100, "postgres", 1, 0, children) + &line(101, "postgres", 100, backend, 0)
        };
        let all = |parts: &[String]| Processes::parse(&(system.clone() + &parts.concat()), "", "");
        let worker = |ticks| line(3, "kworker/u8:4-writeback", 2, ticks, 0);
        let before = all(&[server(500, 0), worker(2200), line(200, "postgres", 1, 900, 0)]);
        let since = |parts: &[String], roots: &[i32]| {
            all(parts).ticks_since(&before, &roots.iter().copied().collect())
        };
        assert_eq!(since(&[server(600, 0), worker(2250)], &[100]), 100 + 50);
        assert_eq!(since(&[server(600, 0)], &[100]), 100, "the worker ended");
        assert_eq!(since(&[server(600, 0), worker(2250)], &[100, 200]), 150, "a standby ended");
        let backend_ended = line(100, "postgres", 1, 0, 530);
        assert_eq!(since(&[backend_ended, worker(2200)], &[100]), 30, "its parent has its time");
        let foreign = all(&[server(600, 0)]).own_ticks_since(&before, &[101, 999].into());
        assert_eq!(foreign, 100, "without what has ended");
    }

    #[test]
    fn process_io_is_divided_between_our_servers_and_others() {
        let stats = line(2, "kthreadd", 0, 0, 0)
            + &line(3, "jbd2", 2, 0, 0)
            + &line(100, "postgres", 1, 0, 0)
            + &line(101, "postgres", 100, 0, 0)
            + &line(300, "dd", 1, 0, 0);
        let at = |bytes: u64| {
            let io = |pid: i32| {
                format!("/proc/{pid}/io:write_bytes: {bytes}\n/proc/{pid}/io:wchar: {bytes}\n")
            };
            Processes::parse(&stats, "", "").with_io(&[3, 100, 101, 300].map(io).concat())
        };
        let servers = BTreeSet::from([100]);
        let moved = at(5000).io_since(&at(1000), &servers, &servers).unwrap();
        assert_eq!(moved.own.unwrap().written, 8000);
        assert_eq!((moved.others.written, moved.by_program["dd"]), (4000, 4000));
        let gone = BTreeSet::from([100, 999]);
        let moved = at(5000).io_since(&at(1000), &gone, &gone).unwrap();
        assert_eq!(moved.own.unwrap().written, 8000, "a standby that ended");
        let pgio = BTreeSet::from([300]);
        let others = Processes::parse(&stats, "", "").with_io("/proc/300/io:wchar: 1\n");
        let moved = others.io_since(&others, &servers, &pgio).unwrap();
        assert_eq!(moved.own, None, "pgio can be read, the server cannot");
        let unknown = Processes::parse(&stats, "", "");
        assert_eq!(unknown.io_since(&unknown, &servers, &servers), None);
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
        let waited = after.mean_wait_of(&[100].into(), &before).unwrap();
        assert!((waited - 0.2).abs() < 1e-12, "{waited}");
        assert_eq!(
            after.mean_wait_of(&[100].into(), &at(&[])),
            None,
            "the kernel does not account for it"
        );
        assert_eq!(before.mean_wait_of(&[100].into(), &before), None, "none ran");
    }
}
