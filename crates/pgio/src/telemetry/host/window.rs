//! Computes stored values from snapshots: rates over a window, and series from tick to tick. Pure.
//!
//! Rates cover the time between the two snapshots nearest to the ends of the window; normally these
//! are the ones requested by marks. A counter that decreased (a device was removed and added again)
//! has no rate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pgio_results::telemetry::{DeviceUse, HostUse, IoRates, ProcessIo, Track};

use super::io::{Bytes, Moved};
use super::processes::{Processes, Watch};
use crate::feature;
use crate::host::clock::seconds_between;
use crate::host::diskstats::{self, Disk, SECTOR_BYTES};
use crate::host::proc::{self, CpuTimes, Interface, Stat};
use crate::telemetry::observer::{Interval, Samples, Sections};

/// Resolution of the host's uptime, in seconds.
const UPTIME_STEP: f64 = 0.01;

/// Number of other programs that are named.
const PROGRAMS: usize = 3;

/// Two snapshots and the time between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) from: &'a Snapshot,
    pub(super) to: &'a Snapshot,
    pub(super) seconds: f64,
}

/// The load of processes other than the servers, this program, the kernel and the sampling.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ForeignLoad {
    pub(super) cores: f64,
    /// Cores that others' sessions on the servers used, if there were any.
    pub(super) session_cores: Option<f64>,
    /// Share of the time in which the servers' processes waited for a core, see [`HostUse::run_delay`].
    pub(super) run_delay: Option<f64>,
    pub(super) io: Option<ProcessIo>,
}

impl<'a> Span<'a> {
    pub(super) fn between(from: &'a Snapshot, to: &'a Snapshot) -> Option<Span<'a>> {
        let seconds = to.at.checked_duration_since(from.at)?.as_secs_f64();
        let seconds = match from.uptime.zip(to.uptime) {
            Some((from, to)) => correct_by_uptime(seconds, to - from),
            None => seconds,
        };
        (seconds > 0.0).then_some(Span { from, to, seconds })
    }

    /// The snapshots nearest to both moments, unless they are the same.
    pub(super) fn nearest(
        snapshots: &[&'a Snapshot],
        opened: Instant,
        closed: Instant,
    ) -> Option<Span<'a>> {
        let to = |moment| snapshots.iter().min_by_key(|s| distance(s.at, moment));
        Span::between(to(opened)?, to(closed)?)
    }

    /// The samples of the span for observers.
    pub(super) fn samples<'s>(
        &self,
        host: &'s str,
        greeting: &'s str,
        all: &[&'s Snapshot],
    ) -> Samples<'s> {
        let inside = all.iter().filter(|s| (self.from.at..=self.to.at).contains(&s.at));
        let inside = inside.map(|s| &s.observed).collect();
        Samples { host, greeting, inside, seconds: self.seconds }
    }

    pub(super) fn fill_usage(&self, usage: &mut HostUse, hertz: f64) {
        usage.cores = Some(self.to.stat.cores);
        usage.cpu = shares(self.from.stat.cpu, self.to.stat.cpu);
        usage.memory = self.to.memory.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
        usage.pressure = combine_maps(&self.from.pressure, &self.to.pressure, |from, to| {
            Some((self.rate(*from, *to)? / 1e6).min(1.0))
        });
        usage.devices = self.devices();
        usage.network = combine_maps(&self.from.network, &self.to.network, |from, to| {
            let received = self.rate(from.received_bytes, to.received_bytes)?;
            Some((received, self.rate(from.sent_bytes, to.sent_bytes)?))
        });
        let sampling = self.to.sampling_ticks.checked_sub(self.from.sampling_ticks);
        usage.sampling_cpu_seconds = sampling.map(|ticks| ticks as f64 / hertz);
    }

    /// Use of each device, by the kernel's name; devices that were never used are left out.
    pub(super) fn devices(&self) -> BTreeMap<String, DeviceUse> {
        combine_maps(&self.from.disks, &self.to.disks, |from, to| {
            to.was_used().then(|| self.device(from, to)).flatten()
        })
    }

    fn device(&self, from: &Disk, to: &Disk) -> Option<DeviceUse> {
        let reads = to.reads.checked_sub(from.reads)?;
        let writes = to.writes.checked_sub(from.writes)?;
        let flushes = match (from.flushes, to.flushes) {
            (Some((n, ms)), Some((m, until))) => {
                Some((m.checked_sub(n)?, milliseconds(ms, until)?))
            }
            _ => None,
        };
        let each = |n: u64, ms: u64| (n > 0).then(|| ms as f64 / 1e3 / n as f64);
        let sectors = |from: u64, to: u64| Some(self.rate(from, to)? * SECTOR_BYTES as f64);
        let busy = milliseconds(from.busy_ms, to.busy_ms)? as f64 / 1e3 / self.seconds;
        Some(DeviceUse {
            reads_per_second: reads as f64 / self.seconds,
            writes_per_second: writes as f64 / self.seconds,
            merged_writes_per_second: self.rate(from.writes_merged, to.writes_merged)?,
            read_bytes_per_second: sectors(from.sectors_read, to.sectors_read)?,
            written_bytes_per_second: sectors(from.sectors_written, to.sectors_written)?,
            flushes_per_second: flushes.map(|(n, _)| n as f64 / self.seconds),
            read_seconds: each(reads, milliseconds(from.read_ms, to.read_ms)?),
            write_seconds: each(writes, milliseconds(from.write_ms, to.write_ms)?),
            flush_seconds: flushes.and_then(|(n, ms)| each(n, ms)),
            // Our clock and the kernel's may disagree on a short span.
            utilisation: busy.min(1.0),
        })
    }

    /// Whether some processes are missing in a list of processes, while the kernel's counters include
    /// theirs.
    pub(super) fn hides_processes(&self) -> bool {
        let lists = [&self.from.processes, &self.to.processes];
        lists.into_iter().flatten().any(|processes| !processes.shows_all_users())
    }

    /// How the load of others met the servers between two marks. The error is the pid of a backend that is
    /// not a PostgreSQL process on this host.
    pub(super) fn foreign_load(
        &self,
        watch: &Watch,
        ours: &BTreeSet<i32>,
        hertz: f64,
    ) -> Option<Result<ForeignLoad, i32>> {
        let (from, to) = (self.from.processes.as_ref()?, self.to.processes.as_ref()?);
        let mut roots = BTreeSet::new();
        for backend in &watch.backend_pids {
            // A backend that ended meanwhile is in the first snapshot.
            match from.postmaster_of(*backend).or_else(|| to.postmaster_of(*backend)) {
                Some(postmaster) => roots.insert(postmaster),
                None => return Some(Err(*backend)),
            };
        }
        roots.extend(from.standby_postmasters(watch).chain(to.standby_postmasters(watch)));
        let waited = to.mean_wait_of(&roots, from);
        let servers = roots.clone();
        roots.extend(ours);
        let moved = to.io_since(from, &servers, &roots);
        let known = to.ticks_since(from, &roots);
        // The two are counted at slightly different moments; do not go below 0.
        let foreign = self.busy_ticks(from, to).saturating_sub(known);
        let cores = foreign as f64 / hertz / self.seconds;
        let run_delay = waited.map(|seconds| (seconds / self.seconds).min(1.0));
        let io = moved.map(|moved| self.io(moved));
        let session_cores = (!watch.foreign_pids.is_empty())
            .then(|| to.own_ticks_since(from, &watch.foreign_pids) as f64 / hertz / self.seconds);
        Some(Ok(ForeignLoad { cores, session_cores, run_delay, io }))
    }

    /// CPU ticks of all processes, those that came and ended in the meantime included. The kernel counts a
    /// processor's time by what runs when its clock ticks, and what interrupts took apart. The times of
    /// processes are exact and contain interrupts, so they sum to up to a tenth more.
    ///
    /// The kernel's counters are read before and after the processes are listed, during which servers work
    /// on. The lower bound is over the time between the lists: what a server did during the first list is
    /// not in the server's own time, and would be taken for another's.
    fn busy_ticks(&self, from: &Processes, to: &Processes) -> u64 {
        let (before, until) = (self.from.stat, self.to.stat);
        let since = |from: Stat, to: Stat, of: fn(&CpuTimes) -> u64| {
            of(&to.cpu).saturating_sub(of(&from.cpu))
        };
        let least = since(self.from.stat_after.unwrap_or(before), until, CpuTimes::in_processes);
        let until = self.to.stat_after.unwrap_or(until);
        let charged: [fn(&CpuTimes) -> u64; 3] =
            [CpuTimes::in_processes, |cpu| cpu.irq, |cpu| cpu.softirq];
        let most = charged.map(|of| since(before, until, of));
        let most = most.into_iter().fold(0, u64::saturating_add);
        to.all_ticks_since(from).clamp(least, most.max(least))
    }

    fn io(&self, moved: Moved) -> ProcessIo {
        let per_second = |bytes: u64| bytes as f64 / self.seconds;
        let both = |b: Bytes| IoRates { read: per_second(b.read), written: per_second(b.written) };
        let waiting: u64 =
            ["dirty", "writeback"].iter().filter_map(|name| self.from.memory.get(name)).sum();
        let mut largest: Vec<(String, u64)> = moved.by_program.into_iter().collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        largest.truncate(PROGRAMS);
        ProcessIo {
            own: moved.own.map(both),
            others: both(moved.others),
            dirty_before: per_second(waiting),
            programs: largest.into_iter().map(|(name, b)| (name, per_second(b))).collect(),
            unreadable: moved.unreadable as u64,
        }
    }

    fn rate(&self, from: u64, to: u64) -> Option<f64> {
        Some(to.checked_sub(from)? as f64 / self.seconds)
    }
}

/// Dates each snapshot by the host's uptime, which is read with the counters. The middle of a slow answer
/// may be long after that, because a mark lists all processes after the counters: the closing mark of a
/// short window on a busy host would be further from the window's end than the opening mark. The quickest
/// answer sets the difference between the clocks; no snapshot is dated outside its request and answer.
///
/// A container may show whole seconds, which are too coarse: such uptimes are removed.
pub(super) fn date_by_uptime(snapshots: &mut [Snapshot]) {
    if snapshots.iter().filter_map(|s| s.uptime).all(|uptime| uptime.fract() == 0.0) {
        snapshots.iter_mut().for_each(|s| s.uptime = None);
        return;
    }
    let dated = snapshots.iter().filter_map(|s| Some((s.error, s.at, s.uptime?)));
    let Some((_, at, uptime)) = dated.min_by_key(|(error, ..)| *error) else {
        return;
    };
    for snapshot in snapshots {
        let Some(later) = snapshot.uptime.map(|own| own - uptime) else {
            continue;
        };
        let apart = Duration::try_from_secs_f64(later.abs()).unwrap_or_default();
        let moment = if later < 0.0 { at.checked_sub(apart) } else { at.checked_add(apart) };
        let (middle, error) = (snapshot.at, snapshot.error);
        if let Some((first, moment)) = middle.checked_sub(error).zip(moment) {
            snapshot.at = moment.clamp(first, middle + error);
        }
    }
}

/// The time between the counters of two snapshots. Where every answer was slow, their dates may be off by
/// as much as the quickest of them took, and rates over a short window would be wrong by that much. The
/// host's uptime is read together with the counters, in steps of [`UPTIME_STEP`].
fn correct_by_uptime(by_answers: f64, by_uptime: f64) -> f64 {
    if by_uptime > 0.0 {
        by_answers.clamp(by_uptime - UPTIME_STEP, by_uptime + UPTIME_STEP)
    } else {
        // The host was booted again.
        by_answers
    }
}

/// Combines the values of the keys present in both maps.
fn combine_maps<K: ToString + Ord, V, T>(
    from: &BTreeMap<K, V>,
    to: &BTreeMap<K, V>,
    take: impl Fn(&V, &V) -> Option<T>,
) -> BTreeMap<String, T> {
    let combine = |(name, now): (&K, &V)| Some((name.to_string(), take(from.get(name)?, now)?));
    to.iter().filter_map(combine).collect()
}

/// Shares of the time of all CPUs; they sum to 1.
pub(super) fn shares(from: CpuTimes, to: CpuTimes) -> BTreeMap<String, f64> {
    let part = |of: fn(&CpuTimes) -> u64| of(&to).saturating_sub(of(&from));
    let parts = [
        ("user", part(|c| c.user) + part(|c| c.nice)),
        ("system", part(|c| c.system) + part(|c| c.irq) + part(|c| c.softirq)),
        ("iowait", part(|c| c.iowait)),
        ("steal", part(|c| c.steal)),
        ("idle", part(|c| c.idle)),
    ];
    let total: u64 = parts.iter().map(|(_, ticks)| ticks).sum();
    if total == 0 {
        return BTreeMap::new();
    }
    parts.map(|(name, ticks)| (name.to_owned(), ticks as f64 / total as f64)).into()
}

/// Difference of two counters, which have 32 bits on most kernels.
fn milliseconds(from: u64, to: u64) -> Option<u64> {
    let small = from <= u64::from(u32::MAX);
    to.checked_sub(from).or_else(|| small.then(|| to + (1 << 32) - from))
}

pub(super) fn distance(a: Instant, b: Instant) -> Duration {
    a.saturating_duration_since(b).max(b.saturating_duration_since(a))
}

type Quantity = (&'static str, &'static str, fn(&DeviceUse) -> Option<f64>);

const DEVICE_QUANTITIES: &[Quantity] = &[
    ("reads_per_second", "reads/s", |d| Some(d.reads_per_second)),
    ("writes_per_second", "writes/s", |d| Some(d.writes_per_second)),
    ("flushes_per_second", "flushes/s", |d| d.flushes_per_second),
    ("utilisation", "share", |d| Some(d.utilisation)),
];

/// Times are seconds after `opened`. Idle devices have no tracks.
pub(super) fn tracks<'a>(host: &str, snapshots: &'a [Snapshot], opened: Instant) -> Vec<Track> {
    let spans: Vec<Span<'a>> =
        snapshots.windows(2).filter_map(|pair| Span::between(&pair[0], &pair[1])).collect();
    let at: Vec<f64> = spans.iter().map(|span| seconds_between(opened, span.to.at)).collect();
    let track = |subject: &str, name: &str, unit: &str, values: Vec<Option<f64>>| Track {
        source: host.to_owned(),
        subject: subject.to_owned(),
        name: name.to_owned(),
        unit: unit.to_owned(),
        at: at.clone(),
        values,
    };

    let cpu: Vec<BTreeMap<String, f64>> =
        spans.iter().map(|span| shares(span.from.stat.cpu, span.to.stat.cpu)).collect();
    let share = |names: &[&str]| -> Vec<Option<f64>> {
        let sum = |shares: &BTreeMap<_, _>| {
            let parts: Option<Vec<f64>> = names.iter().map(|n| shares.get(*n).copied()).collect();
            parts.map(|parts| parts.iter().sum())
        };
        cpu.iter().map(sum).collect()
    };
    let dirty = spans.iter().map(|span| span.to.memory.get("dirty").map(|bytes| *bytes as f64));
    let mut tracks = vec![
        track("", "busy_share", "share", share(&["user", "system"])),
        track("", "steal_share", "share", share(&["steal"])),
        track("", "dirty_bytes", "bytes", dirty.collect()),
    ];

    let devices: Vec<BTreeMap<String, DeviceUse>> = spans.iter().map(Span::devices).collect();
    let active: BTreeSet<&String> = devices
        .iter()
        .flatten()
        .filter(|(_, usage)| is_active(usage))
        .map(|(name, _)| name)
        .collect();
    for device in active {
        for (name, unit, take) in DEVICE_QUANTITIES {
            let values: Vec<Option<f64>> =
                devices.iter().map(|at| at.get(device).and_then(take)).collect();
            if values.iter().any(Option::is_some) {
                tracks.push(track(device, name, unit, values));
            }
        }
    }
    let interval = |span: &Span<'a>| {
        let (from, to) = (&span.from.observed, &span.to.observed);
        Interval { from, to, seconds: span.seconds }
    };
    let intervals: Vec<Interval<'_>> = spans.iter().map(interval).collect();
    for (subject, name, unit, values) in feature::observers().flat_map(|o| (o.tracks)(&intervals)) {
        tracks.push(track(&subject, name, unit, values));
    }
    tracks
}

fn is_active(usage: &DeviceUse) -> bool {
    let flushes = usage.flushes_per_second.unwrap_or(0.0);
    usage.reads_per_second + usage.writes_per_second + flushes > 0.0
}

#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    /// On this machine's clock, halfway between request and answer until [`date_by_uptime`].
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
    /// What observers read.
    pub(super) observed: Sections,
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
        let sections = feature::observers().flat_map(|observer| observer.sections);
        let observed =
            sections.filter_map(|name| Some((*name, files.remove(name)?.to_owned()))).collect();
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
            observed,
            sampling_ticks: own.map(|process| process.ticks()).sum(),
            processes: (!all.is_empty())
                .then(|| Processes::parse(all, walreceivers, schedstats).with_io(ios)),
        })
    }

    pub(super) fn with_error(self, error: Duration) -> Snapshot {
        Snapshot { error, ..self }
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
