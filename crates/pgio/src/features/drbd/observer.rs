//! Summarizes DRBD from a host's samples: states as observed, counters as rates. Pure.
//!
//! Counters of a device are summed over its peers; states are kept per peer. The counters of a
//! re-established connection start at 0; such a span has no rate. Next: [`super::status`] for the parsing,
//! [`super::facts`] for the configuration.

use std::collections::{BTreeMap, BTreeSet};

use super::facts;
use super::state::{DrbdError, State, device};
use super::status;
use crate::pg::words;
use crate::telemetry::observer::{Interval, Observer, Samples, Sections, Values};
use pgio_results::Warning;
use pgio_results::telemetry::{DrbdState, DrbdUse, HostUse};

pub(super) const OBSERVER: Observer = Observer {
    name: "drbd",
    sampling: include_str!("sample.sh"),
    sections: &[PROC, STATUS],
    summarize,
    tracks,
    environment: include_str!("environment.sh"),
    facts: facts::read,
    asks_peers: facts::is_present,
};

const PROC: &str = "/proc/drbd";
/// Printed with module 9 alone.
const STATUS: &str = "drbd";

const KIB: f64 = 1024.0;

/// Backing disk and resource by minor number; only root may read them. sample.sh prints them once.
#[derive(Debug, Clone, Default)]
pub(super) struct Disks(BTreeMap<u32, (String, String)>);

impl Disks {
    /// Parses lines `drbd MINOR DISK RESOURCE`.
    pub(super) fn parse(greeting: &str) -> Disks {
        let line = |line: &str| {
            let mut words = line.strip_prefix("drbd ")?.splitn(3, ' ');
            let minor = words.next()?.parse().ok()?;
            Some((minor, (words.next()?.to_owned(), words.next()?.to_owned())))
        };
        Disks(greeting.lines().filter_map(line).collect())
    }
}

/// States from /proc/drbd (module 8.4) or from drbdsetup's JSON (module 9).
fn states(sample: &Sections) -> Result<Vec<State>, DrbdError> {
    match (sample.get(PROC), sample.get(STATUS)) {
        (_, Some(json)) => status::parse_status(json),
        (Some(text), None) => status::parse_proc(text),
        (None, None) => Ok(Vec::new()),
    }
}

/// Adds the use of each DRBD device, by the kernel's name. Warns if its state could not be read at some moments of the
/// window, so that nothing is known of them.
fn summarize(samples: &Samples<'_>, usage: &mut HostUse) -> Vec<Warning> {
    let disks = Disks::parse(samples.greeting);
    let mut reasons = Vec::new();
    let inside = samples.inside.iter().map(|sample| {
        states(sample).unwrap_or_else(|error| {
            reasons.push(words::sentence(&error));
            Vec::new()
        })
    });
    let inside: Vec<Vec<State>> = inside.collect();
    let minors: BTreeSet<u32> = inside.iter().flatten().map(|state| state.minor).collect();
    let devices = minors.into_iter();
    usage.drbd = devices
        .map(|minor| (device(minor), device_use(minor, &inside, samples.seconds, &disks)))
        .collect();
    let what = format!(
        "the state of DRBD on host {} could not be read in {} of {} samples",
        samples.host,
        reasons.len(),
        inside.len()
    );
    let remedy = "run pgio as root there, and install drbd-utils that match the kernel module";
    let why = reasons.into_iter().next();
    why.map(|why| Warning::new(what, why, remedy)).into_iter().collect()
}

fn device_use(minor: u32, inside: &[Vec<State>], seconds: f64, disks: &Disks) -> DrbdUse {
    let moments: Vec<Moment> = inside.iter().filter_map(|s| Moment::new(s, minor)).collect();
    let mean = |of: fn(&Moment) -> u64| {
        moments.iter().map(|m| of(m) as f64).sum::<f64>() / moments.len().max(1) as f64
    };
    let max = |of: fn(&Moment) -> u64| moments.iter().map(of).max().unwrap_or_default();
    let state = inside.iter().flatten().find(|s| s.minor == minor);
    let disk = disks.0.get(&minor);
    let ends = inside.first().zip(inside.last());
    let rates = ends.map_or_else(Rates::default, |(from, to)| Rates::new(from, to, seconds, minor));
    DrbdUse {
        resource: state.and_then(|s| s.resource.clone()).or_else(|| disk.map(|d| d.1.clone())),
        backing: disk.map(|d| d.0.clone()),
        sent_bytes_per_second: rates.sent,
        received_bytes_per_second: rates.received,
        al_writes_per_second: rates.al_writes,
        pending_mean: mean(|m| m.pending),
        pending_max: max(|m| m.pending),
        unacked_mean: mean(|m| m.unacked),
        unacked_max: max(|m| m.unacked),
        out_of_sync_bytes_before: moments.first().map_or(0, |m| m.out_of_sync_kib * 1024),
        out_of_sync_bytes_after: moments.last().map_or(0, |m| m.out_of_sync_kib * 1024),
        connected_anew: count_reconnects(&moments),
        states: distinct_states(inside, minor),
    }
}

/// The kernel counts sectors in 32 bits; a counter that falls from close below the limit wrapped
/// around.
const RANGE_KIB: u64 = 1 << 31;
const WRAP_MARGIN_KIB: u64 = 1 << 26;

/// Counters fall if the connection was closed and created by command; after an automatic reconnect
/// they continue.
fn count_reconnects(moments: &[Moment]) -> u64 {
    let fell = |from: u64, to: u64| to < from && from < RANGE_KIB - WRAP_MARGIN_KIB;
    let reconnected = |pair: &&[Moment]| {
        fell(pair[0].sent_kib, pair[1].sent_kib) || fell(pair[0].received_kib, pair[1].received_kib)
    };
    moments.windows(2).filter(reconnected).count() as u64
}

fn distinct_states(inside: &[Vec<State>], minor: u32) -> Vec<DrbdState> {
    let mut seen: Vec<DrbdState> = Vec::new();
    for s in inside.iter().flatten().filter(|s| s.minor == minor) {
        let state = DrbdState {
            role: s.role.clone(),
            peer_role: s.peer_role.clone(),
            connection: s.connection.clone(),
            replication: s.replication.clone(),
            disk: s.disk.clone(),
            peer_disk: s.peer_disk.clone(),
            protocol: s.protocol.clone(),
            suspended: s.suspended,
            congested: s.congested,
            samples: 0,
        };
        let known = seen.iter().position(|k| DrbdState { samples: 0, ..k.clone() } == state);
        let at = known.unwrap_or_else(|| {
            seen.push(state);
            seen.len() - 1
        });
        seen[at].samples += 1;
    }
    seen
}

/// Counters of a device at one moment, summed over all peers.
#[derive(Debug, Default, Clone, Copy)]
struct Moment {
    sent_kib: u64,
    received_kib: u64,
    al_writes: u64,
    pending: u64,
    unacked: u64,
    out_of_sync_kib: u64,
}

impl Moment {
    fn new(states: &[State], minor: u32) -> Option<Moment> {
        let mut states = states.iter().filter(|s| s.minor == minor).peekable();
        states.peek()?;
        Some(states.fold(Moment::default(), |sum, s| Moment {
            sent_kib: sum.sent_kib + s.sent_kib,
            received_kib: sum.received_kib + s.received_kib,
            // Counted per device: the same for each peer.
            al_writes: s.al_writes,
            pending: sum.pending + s.pending,
            unacked: sum.unacked + s.unacked,
            out_of_sync_kib: sum.out_of_sync_kib + s.out_of_sync_kib,
        }))
    }
}

#[derive(Debug, Default)]
struct Rates {
    sent: Option<f64>,
    received: Option<f64>,
    al_writes: Option<f64>,
}

impl Rates {
    fn new(from: &[State], to: &[State], seconds: f64, minor: u32) -> Rates {
        let both = Moment::new(from, minor).zip(Moment::new(to, minor));
        let Some((from, to)) = both else { return Rates::default() };
        let rate = |from: u64, to: u64| Some(to.checked_sub(from)? as f64 / seconds);
        Rates {
            sent: rate(from.sent_kib, to.sent_kib).map(|kib| kib * KIB),
            received: rate(from.received_kib, to.received_kib).map(|kib| kib * KIB),
            al_writes: rate(from.al_writes, to.al_writes),
        }
    }
}

type Quantity = (&'static str, &'static str, fn(&Rates, Moment) -> Option<f64>);

const QUANTITIES: &[Quantity] = &[
    ("drbd_sent_bytes_per_second", "bytes/s", |r, _| r.sent),
    ("drbd_received_bytes_per_second", "bytes/s", |r, _| r.received),
    ("drbd_al_writes_per_second", "writes/s", |r, _| r.al_writes),
    ("drbd_pending", "requests", |_, m| Some(m.pending as f64)),
    ("drbd_unacked", "requests", |_, m| Some(m.unacked as f64)),
    ("drbd_out_of_sync_bytes", "bytes", |_, m| Some(m.out_of_sync_kib as f64 * KIB)),
];

fn tracks(intervals: &[Interval<'_>]) -> Vec<Values> {
    let read = |sample| states(sample).unwrap_or_default();
    let each = intervals.iter().map(|i| (read(i.from), read(i.to), i.seconds));
    let each: Vec<(Vec<State>, Vec<State>, f64)> = each.collect();
    let minors: BTreeSet<u32> =
        each.iter().flat_map(|(_, to, _)| to).map(|state| state.minor).collect();
    let mut all = Vec::new();
    for minor in minors {
        for (name, unit, take) in QUANTITIES {
            let values = each.iter().map(|(from, to, seconds)| {
                take(&Rates::new(from, to, *seconds, minor), Moment::new(to, minor)?)
            });
            all.push((device(minor), *name, *unit, values.collect()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(drbd: &str) -> Sections {
        let text = format!("version: 8.4.11 (api:1/proto:86-101)\n{drbd}\n");
        [(PROC, text)].into()
    }

    /// A second lies between two samples.
    fn summarized(greeting: &str, all: &[Sections]) -> (HostUse, Vec<Warning>) {
        let inside: Vec<&Sections> = all.iter().collect();
        let seconds = (all.len() - 1) as f64;
        let mut usage = HostUse::default();
        let samples = Samples { host: "db1", greeting, inside, seconds };
        let warnings = summarize(&samples, &mut usage);
        (usage, warnings)
    }

    fn shown(word: &str, counters: &str) -> String {
        format!(" 1: cs:{word} ro:Primary/Secondary ds:UpToDate/UpToDate A r-----\n    {counters}")
    }

    #[test]
    fn an_unreadable_state_is_reported_and_an_absent_one_is_not() {
        let nine = |json: &str| -> Sections {
            [(PROC, "version: 9.1.4\n".to_owned()), (STATUS, json.to_owned())].into()
        };
        let nan = shown("SyncSource", "ns:0 nr:0 al:0 pe:0 ua:0 oos:nan");
        let all = [nine("[\n]\n"), nine(""), nine("[{\"name\""), sample(&nan), Sections::new()];
        let (usage, warnings) = summarized("", &all);
        assert!(warnings[0].what.contains("in 3 of 5 samples") && warnings.len() == 1);
        assert!(usage.drbd.is_empty());
        assert_eq!(summarized("", &all[4..]).1, []);
    }

    #[test]
    fn without_drbd_there_are_no_states() {
        let version = Some("version: 9.2.1 (api:2/proto:86-122)\n");
        for (text, json) in [(None, None), (version, None), (version, Some("[\n]\n"))] {
            let sections = [(PROC, text), (STATUS, json)].into_iter();
            let sections = sections.filter_map(|(name, text)| Some((name, text?.to_owned())));
            assert!(states(&sections.collect()).unwrap().is_empty());
        }
    }

    #[test]
    fn rates_states_and_disks_of_a_window() {
        let all = [
            sample(&shown("Connected", "ns:100 nr:7 al:10 pe:2 ua:1 oos:0")),
            sample(&shown("Connected", "ns:150 nr:7 al:15 pe:4 ua:0 oos:0")),
            sample(&shown("Ahead", "ns:300 nr:7 al:30 pe:0 ua:5 oos:8")),
        ];
        let (usage, _) = summarized("self 1\ndrbd 1 sdb1 mail server\ndrbd x\n", &all);
        let usage = &usage.drbd["drbd1"];
        assert_eq!(usage.resource.as_deref(), Some("mail server"));
        assert_eq!(usage.backing.as_deref(), Some("sdb1"));
        assert_eq!(usage.sent_bytes_per_second, Some(100.0 * KIB));
        assert_eq!(usage.received_bytes_per_second, Some(0.0));
        assert_eq!(usage.al_writes_per_second, Some(10.0));
        assert_eq!((usage.pending_mean, usage.pending_max), (2.0, 4));
        assert_eq!((usage.unacked_mean, usage.unacked_max), (2.0, 5));
        assert_eq!((usage.out_of_sync_bytes_before, usage.out_of_sync_bytes_after), (0, 8192));
        let states: Vec<_> =
            usage.states.iter().map(|s| (s.replication.as_str(), s.samples)).collect();
        assert_eq!(states, [("Established", 2), ("Ahead", 1)]);
        assert_eq!(usage.states[0].protocol.as_deref(), Some("A"));
    }

    #[test]
    fn a_re_established_connection_has_no_rate() {
        let all = [
            sample(&shown("Connected", "ns:900 nr:0 al:1 oos:0")),
            sample(&shown("Connected", "ns:3 nr:0 al:2 oos:0")),
        ];
        let devices = summarized("", &all).0.drbd;
        assert_eq!(devices["drbd1"].sent_bytes_per_second, None);
        assert_eq!(devices["drbd1"].al_writes_per_second, Some(1.0));
        assert_eq!(devices["drbd1"].backing, None);
        assert_eq!(devices["drbd1"].connected_anew, 1);
        let tracks = tracks(&[Interval { from: &all[0], to: &all[1], seconds: 1.0 }]);
        let value = |name: &str| tracks.iter().find(|t| t.1 == name).unwrap().3[0];
        assert_eq!(value("drbd_sent_bytes_per_second"), None);
        assert_eq!(value("drbd_al_writes_per_second"), Some(1.0));
        assert_eq!(value("drbd_pending"), Some(0.0));
    }

    #[test]
    fn a_reconnect_between_two_samples_is_counted() {
        let reconnects = |sent: &[u64]| {
            let samples = sent.iter().map(|n| sample(&shown("Connected", &format!("ns:{n}"))));
            summarized("", &samples.collect::<Vec<_>>()).0.drbd["drbd1"].connected_anew
        };
        assert_eq!(reconnects(&[100, 200, 300]), 0);
        assert_eq!(reconnects(&[100, 20, 300]), 1, "the counter ends above its start");
        assert_eq!(reconnects(&[100, 20, 300, 0]), 2);
        // The kernel's counter wraps around after 2 TiB.
        assert_eq!(reconnects(&[2_147_400_000, 5_000]), 0);
    }

    #[test]
    fn counters_of_peers_are_summed() {
        let json = include_str!("fixtures/9/status-three-nodes.json");
        let sample = Sections::from([(STATUS, json.to_owned())]);
        let devices = summarized("", &[sample.clone(), sample]).0.drbd;
        assert_eq!(devices.keys().collect::<Vec<_>>(), ["drbd7", "drbd8"]);
        let usage = &devices["drbd7"];
        assert_eq!(usage.resource.as_deref(), Some("pgio"));
        assert_eq!(usage.out_of_sync_bytes_after, (262_127 + 1_048_508) * 1024);
        assert_eq!(usage.states.len(), 2, "one for each peer");
    }
}
