//! Parses one answer of a host: all its counters at one moment.
//!
//! [`super::window`] computes the differences.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::processes::Processes;
use crate::host::diskstats::{self, Disk};
use crate::host::drbd::{DrbdError, State, status};
use crate::host::proc::{self, Interface, Stat};
use crate::pg::words;

#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    /// On this machine's clock, halfway between request and answer until [`super::window::date_by_uptime`].
    pub(super) at: Instant,
    /// Half the time between request and answer.
    pub(super) error: Duration,
    /// Seconds since the host's boot, right before its counters were read.
    pub(super) uptime: Option<f64>,
    pub(super) stat: Stat,
    /// The same right after the processes were listed, if they were.
    pub(super) stat_after: Option<Stat>,
    pub(super) disks: BTreeMap<String, Disk>,
    pub(super) memory: BTreeMap<&'static str, u64>,
    /// Stall time in microseconds, by resource.
    pub(super) pressure: BTreeMap<&'static str, u64>,
    pub(super) network: BTreeMap<String, Interface>,
    pub(super) drbd: Vec<State>,
    /// Why DRBD's state could not be read.
    pub(super) drbd_unreadable: Option<String>,
    /// CPU ticks of the sampling shell, its children and its sshd.
    pub(super) sampling_ticks: u64,
    /// All processes, if this snapshot was requested by a mark.
    pub(super) processes: Option<Processes>,
}

const PRESSURES: &[&str] = &["cpu", "io", "memory"];

impl Snapshot {
    /// `None` without /proc/stat, which every Linux has: the answer is unusable.
    pub(super) fn parse(text: &str, at: Instant) -> Option<Snapshot> {
        let mut files = files(text);
        let pressure = |resource: &&'static str| {
            let text = files.get(format!("/proc/pressure/{resource}").as_str())?;
            Some((*resource, proc::stalled_us(text)?))
        };
        let pressure = PRESSURES.iter().filter_map(pressure).collect();
        let stat = proc::parse_stat(files.remove("/proc/stat")?)?;
        let mut take = |name: &str| files.remove(name).unwrap_or("");
        let uptime = take("/proc/uptime").split_ascii_whitespace().next();
        let uptime = uptime.and_then(|s| s.parse().ok());
        let disks = diskstats::parse(take("/proc/diskstats"));
        let memory = proc::parse_meminfo(take("/proc/meminfo"));
        let network = proc::parse_net_dev(take("/proc/net/dev"));
        let drbd = drbd_states(files.remove("/proc/drbd"), files.remove("drbd"));
        let (drbd, drbd_unreadable) = match drbd {
            Ok(states) => (states, None),
            Err(error) => (Vec::new(), Some(words::sentence(&error))),
        };
        let mut take = |name: &str| files.remove(name).unwrap_or("");
        let all = take("processes");
        let stat_after = proc::parse_stat(take("stat after processes"));
        let walreceivers = take("walreceivers");
        let (schedstats, ios) = (take("schedstats"), take("ios"));
        // The remaining files belong to the shell and its sshd.
        let own = files.values().filter_map(|text| proc::parse_process(text));
        Some(Snapshot {
            at,
            error: Duration::ZERO,
            uptime,
            stat,
            stat_after,
            disks,
            memory,
            pressure,
            network,
            drbd,
            drbd_unreadable,
            sampling_ticks: own.map(|process| process.ticks()).sum(),
            processes: (!all.is_empty())
                .then(|| Processes::parse(all, walreceivers, schedstats).with_io(ios)),
        })
    }

    pub(super) fn with_error(self, error: Duration) -> Snapshot {
        Snapshot { error, ..self }
    }
}

/// States from /proc/drbd (module 8.4) or from drbdsetup's JSON (module 9).
fn drbd_states(proc_drbd: Option<&str>, json: Option<&str>) -> Result<Vec<State>, DrbdError> {
    match (proc_drbd, json) {
        (_, Some(json)) => status::parse_status(json),
        (Some(text), None) => status::parse_proc(text),
        (None, None) => Ok(Vec::new()),
    }
}

/// Splits the text at `==> NAME <==` lines.
fn files(text: &str) -> BTreeMap<&str, &str> {
    let mut files = BTreeMap::new();
    let mut rest = text;
    while let Some((name, after)) =
        rest.split_once("==> ").and_then(|(_, rest)| rest.split_once(" <==\n"))
    {
        let end = after.find("==> ").unwrap_or(after.len());
        files.insert(name, &after[..end]);
        rest = &after[end..];
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_text_by_file_name() {
        let found = files("==> a <==\n1\n2\n\n==> b c <==\n==> d <==\n3");
        assert_eq!(found["a"], "1\n2\n\n");
        assert_eq!((found["b c"], found["d"]), ("", "3"));
        assert!(files("").is_empty() && files("==> x").is_empty());
    }

    #[test]
    fn an_answer_without_proc_stat_is_none() {
        assert!(Snapshot::parse("==> /proc/meminfo <==\n", Instant::now()).is_none());
        let text = "==> /proc/stat <==\ncpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8\n\n\
                    ==> /proc/77/stat <==\n77 (sh) S 1 77 77 0 -1 0 0 0 0 0 5 6 7 8 20 0\n";
        let snapshot = Snapshot::parse(text, Instant::now()).unwrap();
        assert_eq!((snapshot.stat.cores, snapshot.sampling_ticks), (1, 26));
        assert!(snapshot.processes.is_none() && snapshot.pressure.is_empty());
    }

    #[test]
    fn without_drbd_there_are_no_states() {
        let version = Some("version: 9.2.1 (api:2/proto:86-122)\n");
        for (text, json) in [(None, None), (version, None), (version, Some("[\n]\n"))] {
            assert!(drbd_states(text, json).unwrap().is_empty());
        }
        assert!(drbd_states(version, Some("")).is_err(), "drbdsetup printed nothing");
    }

    #[test]
    fn fuzzed_answers_are_parsed() {
        let sample = "==> /proc/uptime <==\n12.34 56.78\n==> /proc/stat <==\ncpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8\n\n\
                      ==> /proc/diskstats <==\n 8 0 sda 10 1 200 30 40 2 600 70 0 90 100\n==> /proc/meminfo <==\nDirty: 1 kB\n\
                      ==> /proc/pressure/io <==\nsome avg10=0.00 avg60=0.00 avg300=0.00 total=9\n==> /proc/drbd <==\n\
                      version: 8.4.11 (api:1/proto:86-101)\n==> /proc/77/stat <==\n77 (sh) S 1 77 77 0 -1 0 0 0 0 0 5 6 7 8\n";
        pgio_fuzz::fuzz(&[sample], |bytes| {
            Snapshot::parse(&String::from_utf8_lossy(bytes), Instant::now());
        });
    }
}
