//! Parsers for files in /proc, pure, so that they work with text from any host. Disks and mounts have files of their
//! own: [`super::diskstats`], [`super::storage`].
//!
//! Units are the kernel's (ticks, sectors, milliseconds; kB are converted to bytes) and are part of
//! the names. Counters only grow; callers compute rates. Parsers never panic and skip invalid lines.
//! Next: `telemetry::host` computes differences.

use std::collections::BTreeMap;

/// Ticks of all processors since boot. `user` and `nice` include guest time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    pub user: u64,
    pub nice: u64,
    pub system: u64,
    pub idle: u64,
    pub iowait: u64,
    pub irq: u64,
    pub softirq: u64,
    pub steal: u64,
}

impl CpuTimes {
    pub fn total(&self) -> u64 {
        let work = self.in_processes().saturating_add(self.irq).saturating_add(self.softirq);
        [self.idle, self.iowait, self.steal].into_iter().fold(work, u64::saturating_add)
    }

    /// Returns the time that the kernel charged to processes.
    pub fn in_processes(&self) -> u64 {
        self.user.saturating_add(self.nice).saturating_add(self.system)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    pub cpu: CpuTimes,
    /// Processors online.
    pub cores: u32,
}

/// Parses /proc/stat.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let mut stat = None;
    let mut cores = 0;
    for line in text.lines().filter(|line| line.starts_with("cpu")) {
        let mut words = line.split_ascii_whitespace();
        if words.next() == Some("cpu") {
            stat = cpu(&words.map_while(|word| word.parse().ok()).collect::<Vec<u64>>());
        } else {
            cores += 1;
        }
    }
    stat.map(|cpu| Stat { cpu, cores })
}

fn cpu(n: &[u64]) -> Option<CpuTimes> {
    let [user, nice, system, idle, iowait, irq, softirq, ..] = *n else { return None };
    // Steal time exists since Linux 2.6.11.
    let steal = n.get(7).copied().unwrap_or(0);
    Some(CpuTimes { user, nice, system, idle, iowait, irq, softirq, steal })
}

/// Returns the microseconds since boot during which at least one task waited for a resource (PSI), from
/// /proc/pressure/{cpu,io,memory}.
pub fn stalled_us(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// Names in /proc/meminfo, and of pgio.
const MEMINFO_NAMES: &[(&str, &str)] = &[
    ("MemTotal", "total"),
    ("MemFree", "free"),
    ("MemAvailable", "available"),
    ("Cached", "cached"),
    ("Dirty", "dirty"),
    ("Writeback", "writeback"),
];

/// Returns values in bytes by pgio's names.
pub fn parse_meminfo(text: &str) -> BTreeMap<&'static str, u64> {
    text.lines().filter_map(meminfo_line).collect()
}

fn meminfo_line(line: &str) -> Option<(&'static str, u64)> {
    let (name, value) = line.split_once(':')?;
    let (_, ours) = MEMINFO_NAMES.iter().find(|(theirs, _)| *theirs == name)?;
    let kilobytes: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    Some((ours, kilobytes.checked_mul(1024)?))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interface {
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// Returns the interfaces of /proc/net/dev by name.
pub fn parse_net_dev(text: &str) -> BTreeMap<String, Interface> {
    text.lines().filter_map(net_dev_line).collect()
}

fn net_dev_line(line: &str) -> Option<(String, Interface)> {
    // Split at the last colon, because an alias such as eth0:1 contains one.
    let (name, counters) = line.rsplit_once(':')?;
    let mut numbers = counters.split_ascii_whitespace().map(str::parse);
    let received_bytes = numbers.next()?.ok()?;
    let sent_bytes = numbers.nth(7)?.ok()?;
    Some((name.trim().to_owned(), Interface { received_bytes, sent_bytes }))
}

/// A process, as in /proc/PID/stat (proc_pid_stat(5)).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Name of the program, truncated to 15 bytes.
    pub name: String,
    /// Ticks of the process, and of children that have ended and were waited for.
    pub own_ticks: u64,
    pub children_ticks: u64,
    /// Ticks from boot to the start of the process; together with the pid they identify a process.
    pub started_ticks: u64,
}

impl Process {
    pub fn ticks(&self) -> u64 {
        self.own_ticks.saturating_add(self.children_ticks)
    }
}

/// Parses concatenated /proc/PID/stat. A process whose name contains a newline is skipped; such names do not
/// occur in practice.
pub fn parse_processes(text: &str) -> Vec<Process> {
    text.lines().filter_map(parse_process).collect()
}

pub fn parse_process(line: &str) -> Option<Process> {
    // The name may contain any characters, parentheses and spaces included.
    let (pid, rest) = line.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first element is field 3 of the manual page.
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    // The kernel uses a signed type for the time of children.
    let children = |field: usize| {
        Some(u64::try_from(fields.get(field - 3)?.parse::<i64>().ok()?).unwrap_or(0))
    };
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        name: name.to_owned(),
        own_ticks: ticks(14)?.saturating_add(ticks(15)?),
        children_ticks: children(16)?.saturating_add(children(17)?),
        started_ticks: ticks(22).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::host::{diskstats, storage};

    #[test]
    fn proc_stat_is_parsed_into_cores_and_times() {
        let text = "cpu  100 1 50 800 20 3 4 5 60 0\ncpu0 50 1 25 400 10 3 4 5 60 0\n\
                    cpu1 50 0 25 400 10 0 0 0 0 0\nintr 12 0 0\nctxt 99\n";
        let stat = parse_stat(text).unwrap();
        assert_eq!(stat.cores, 2);
        assert_eq!((stat.cpu.in_processes(), stat.cpu.total()), (151, 983));
        assert_eq!((stat.cpu.idle, stat.cpu.iowait, stat.cpu.steal), (800, 20, 5));
        assert_eq!(parse_stat("cpu  100 1 50 800\n"), None);
    }

    #[test]
    fn memory_is_bytes() {
        let text = "MemTotal:       24684084 kB\nMemFree:  100 kB\nDirty:         4 kB\n\
                    HugePages_Total:       0\n";
        let memory = parse_meminfo(text);
        assert_eq!(memory["total"], 24_684_084 * 1024);
        assert_eq!(memory["dirty"], 4096);
        assert_eq!(memory.len(), 3);
    }

    #[test]
    fn pressure_uses_the_line_some() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        assert_eq!(stalled_us(text), Some(1234));
        assert_eq!(stalled_us(""), None);
    }

    #[test]
    fn proc_net_dev_is_parsed_for_each_interface() {
        let text = "Inter-|   Receive                      |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n\
                    \x20   lo: 1000 10 0 0 0 0 0 0 2000 10 0 0 0 0 0 0\n\
                    eth0:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n";
        let interfaces = parse_net_dev(text);
        assert_eq!(interfaces.len(), 2);
        assert_eq!((interfaces["lo"].received_bytes, interfaces["lo"].sent_bytes), (1000, 2000));
        assert_eq!((interfaces["eth0"].received_bytes, interfaces["eth0"].sent_bytes), (5, 6));
    }

    #[test]
    fn process_names_may_contain_any_character() {
        let line = "42 (a) b (c)) S 7 42 42 0 -1 0 10 20 0 0 100 23 4 5 20 0 1 0 999 0\n";
        let process = parse_process(line).unwrap();
        assert_eq!((process.pid, process.parent, process.name.as_str()), (42, 7, "a) b (c)"));
        assert_eq!((process.own_ticks, process.children_ticks), (123, 9));
        let own = parse_process(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        assert_eq!(u32::try_from(own.pid), Ok(std::process::id()));
    }

    #[test]
    fn files_of_this_machine_are_parsed() {
        let read = |name: &str| fs::read_to_string(Path::new("/proc").join(name)).unwrap();
        assert!(parse_stat(&read("stat")).unwrap().cores > 0);
        assert!(parse_meminfo(&read("meminfo"))["total"] > 0);
        assert!(parse_net_dev(&read("net/dev")).contains_key("lo"));
        let mounts = storage::parse_mounts(&read("self/mountinfo"));
        assert_eq!(
            storage::containing(&mounts, Path::new("/proc/self")).unwrap().file_system,
            "proc"
        );
    }

    #[test]
    fn fuzzed_files_are_parsed() {
        let samples = [
            "   8       0 sda 10 1 200 30 40 2 600 70 0 90 100 5 0 8 1 7 3\n 259 0 nvme0c0n1 1 1 2 3 4 2 6 7 0 9 1\n",
            "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nbtime 1700000000\nprocs_blocked 1\n",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=99\n",
            "MemTotal:       24650540 kB\nMemAvailable: 1 kB\nDirty:  12 kB\nHugePages_Total: 0\n",
            "Inter-|   Receive\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n    lo:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
            "22 1 7:0 / / rw,noatime shared:1 - ext4 /dev/loop0 rw\n23 22 0:5 /a\\040b /a rw - tmpfs tmpfs rw\n",
            "77 (a b) c) S 1 77 77 0 -1 0 0 0 0 0 5 6 7 8 20 0 1 0 12345 1 1\n78 (sh) R 77 77\n",
        ];
        pgio_fuzz::fuzz(&samples, |bytes| all(&String::from_utf8_lossy(bytes)));
    }

    proptest! {
        #[test]
        fn counters_round_trip(n in proptest::collection::vec(0..u64::MAX / 4, 17)) {
            let line = n.iter().fold("8 0 sda".to_owned(), |line, n| format!("{line} {n}"));
            let disk = diskstats::parse(&line)["sda"];
            prop_assert_eq!((disk.reads, disk.writes, disk.busy_ms), (n[0], n[4], n[9]));
            prop_assert_eq!(disk.flushes, Some((n[15], n[16])));
        }
    }

    fn all(text: &str) {
        for disk in diskstats::parse(text).values() {
            disk.was_used();
        }
        if let Some(stat) = parse_stat(text) {
            stat.cpu.total();
        }
        parse_meminfo(text);
        stalled_us(text);
        parse_net_dev(text);
        storage::containing(&storage::parse_mounts(text), Path::new("/a"));
        for process in parse_processes(text) {
            process.ticks();
        }
    }
}
