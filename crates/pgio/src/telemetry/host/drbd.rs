//! Summarizes DRBD from a host's samples: states as observed, counters as rates. Pure.
//!
//! Counters of a device are summed over its peers; states are kept per peer. The counters of a
//! re-established connection start at 0; such a span has no rate. Next: `host::drbd` for the
//! parsing.

use std::collections::{BTreeMap, BTreeSet};

use super::window::{Snapshot, Span};
use crate::host::drbd::device;
use pgio_results::Warning;
use pgio_results::telemetry::{DrbdState, DrbdUse};

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

/// Use of each DRBD device, by the kernel's name.
pub(super) fn device_use(
    all: &[&Snapshot],
    span: Span<'_>,
    disks: &Disks,
) -> BTreeMap<String, DrbdUse> {
    let inside: Vec<&Snapshot> =
        all.iter().copied().filter(|s| (span.from.at..=span.to.at).contains(&s.at)).collect();
    let minors: BTreeSet<u32> =
        inside.iter().flat_map(|s| &s.drbd).map(|state| state.minor).collect();
    minors
        .into_iter()
        .map(|minor| (device(minor), summarize(minor, &inside, span, disks)))
        .collect()
}

/// Warns if the state of DRBD could not be read at some moments of the window, so that nothing is known of them.
pub(super) fn unreadable(host: &str, all: &[&Snapshot], span: Span<'_>) -> Option<Warning> {
    let inside: Vec<&&Snapshot> =
        all.iter().filter(|s| (span.from.at..=span.to.at).contains(&s.at)).collect();
    let reasons: Vec<&String> = inside.iter().filter_map(|s| s.drbd_unreadable.as_ref()).collect();
    let what = format!(
        "the state of DRBD on host {host} could not be read in {} of {} samples",
        reasons.len(),
        inside.len()
    );
    let remedy = "run pgio as root there, and install drbd-utils that match the kernel module";
    reasons.first().map(|why| Warning::new(what, (*why).clone(), remedy))
}

fn summarize(minor: u32, inside: &[&Snapshot], span: Span<'_>, disks: &Disks) -> DrbdUse {
    let moments: Vec<Moment> = inside.iter().filter_map(|s| Moment::new(s, minor)).collect();
    let mean = |of: fn(&Moment) -> u64| {
        moments.iter().map(|m| of(m) as f64).sum::<f64>() / moments.len().max(1) as f64
    };
    let max = |of: fn(&Moment) -> u64| moments.iter().map(of).max().unwrap_or_default();
    let state = inside.iter().flat_map(|s| &s.drbd).find(|s| s.minor == minor);
    let disk = disks.0.get(&minor);
    let rates = Rates::new(span, minor);
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

fn distinct_states(inside: &[&Snapshot], minor: u32) -> Vec<DrbdState> {
    let mut seen: Vec<DrbdState> = Vec::new();
    for s in inside.iter().flat_map(|s| &s.drbd).filter(|s| s.minor == minor) {
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
    fn new(snapshot: &Snapshot, minor: u32) -> Option<Moment> {
        let mut states = snapshot.drbd.iter().filter(|s| s.minor == minor).peekable();
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
    fn new(span: Span<'_>, minor: u32) -> Rates {
        let both = Moment::new(span.from, minor).zip(Moment::new(span.to, minor));
        let Some((from, to)) = both else { return Rates::default() };
        let rate = |from: u64, to: u64| Some(to.checked_sub(from)? as f64 / span.seconds);
        Rates {
            sent: rate(from.sent_kib, to.sent_kib).map(|kib| kib * KIB),
            received: rate(from.received_kib, to.received_kib).map(|kib| kib * KIB),
            al_writes: rate(from.al_writes, to.al_writes),
        }
    }
}

/// Device, name, unit and one value per span.
type Values = (String, &'static str, &'static str, Vec<Option<f64>>);
type Quantity = (&'static str, &'static str, fn(&Rates, Moment) -> Option<f64>);

const QUANTITIES: &[Quantity] = &[
    ("drbd_sent_bytes_per_second", "bytes/s", |r, _| r.sent),
    ("drbd_received_bytes_per_second", "bytes/s", |r, _| r.received),
    ("drbd_al_writes_per_second", "writes/s", |r, _| r.al_writes),
    ("drbd_pending", "requests", |_, m| Some(m.pending as f64)),
    ("drbd_unacked", "requests", |_, m| Some(m.unacked as f64)),
    ("drbd_out_of_sync_bytes", "bytes", |_, m| Some(m.out_of_sync_kib as f64 * KIB)),
];

pub(super) fn tracks(spans: &[Span<'_>]) -> Vec<Values> {
    let minors: BTreeSet<u32> =
        spans.iter().flat_map(|span| &span.to.drbd).map(|state| state.minor).collect();
    let mut all = Vec::new();
    for minor in minors {
        for (name, unit, take) in QUANTITIES {
            let value =
                |span: &Span<'_>| take(&Rates::new(*span, minor), Moment::new(span.to, minor)?);
            all.push((device(minor), *name, *unit, spans.iter().map(value).collect()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn snapshot(start: Instant, second: u64, drbd: &str) -> Snapshot {
        let text = format!(
            "==> /proc/stat <==\ncpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8\n\
             ==> /proc/drbd <==\nversion: 8.4.11 (api:1/proto:86-101)\n{drbd}\n"
        );
        Snapshot::parse(&text, start + Duration::from_secs(second)).unwrap()
    }

    fn shown(word: &str, counters: &str) -> String {
        format!(" 1: cs:{word} ro:Primary/Secondary ds:UpToDate/UpToDate A r-----\n    {counters}")
    }

    #[test]
    fn an_unreadable_state_is_reported_and_an_absent_one_is_not() {
        let start = Instant::now();
        let stat = "==> /proc/stat <==\ncpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8\n";
        let at = |second, rest: &str| {
            let at = start + Duration::from_secs(second);
            Snapshot::parse(&format!("{stat}{rest}"), at).unwrap()
        };
        let nine = "==> /proc/drbd <==\nversion: 9.1.4\n==> drbd <==\n";
        let nan = shown("SyncSource", "ns:0 nr:0 al:0 pe:0 ua:0 oos:nan");
        let all = [
            at(0, &format!("{nine}[\n]\n")),
            at(1, nine),
            at(2, &format!("{nine}[{{\"name\"")),
            snapshot(start, 3, &nan),
            at(4, ""),
        ];
        let all: Vec<&Snapshot> = all.iter().collect();
        let warned = |from: usize, to: usize| {
            unreadable("db1", &all, Span::between(all[from], all[to]).unwrap())
        };
        assert!(warned(0, 4).unwrap().what.contains("in 3 of 5 samples"));
        assert!(unreadable("db1", &all[4..], Span::between(all[0], all[4]).unwrap()).is_none());
    }

    #[test]
    fn rates_states_and_disks_of_a_window() {
        let start = Instant::now();
        let all = [
            snapshot(start, 0, &shown("SyncSource", "ns:0 nr:0 al:0 pe:90 ua:0 oos:64")),
            snapshot(start, 1, &shown("Connected", "ns:100 nr:7 al:10 pe:2 ua:1 oos:0")),
            snapshot(start, 2, &shown("Connected", "ns:150 nr:7 al:15 pe:4 ua:0 oos:0")),
            snapshot(start, 3, &shown("Ahead", "ns:300 nr:7 al:30 pe:0 ua:5 oos:8")),
        ];
        let all: Vec<&Snapshot> = all.iter().collect();
        let span = Span::between(all[1], all[3]).unwrap();
        let disks = Disks::parse("self 1\ndrbd 1 sdb1 mail server\ndrbd x\n");
        let devices = device_use(&all, span, &disks);
        let usage = &devices["drbd1"];
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
        assert_eq!(
            states,
            [("Established", 2), ("Ahead", 1)],
            "the resync happened before the window"
        );
        assert_eq!(usage.states[0].protocol.as_deref(), Some("A"));
    }

    #[test]
    fn a_re_established_connection_has_no_rate() {
        let start = Instant::now();
        let from = snapshot(start, 0, &shown("Connected", "ns:900 nr:0 al:1 oos:0"));
        let to = snapshot(start, 1, &shown("Connected", "ns:3 nr:0 al:2 oos:0"));
        let span = Span::between(&from, &to).unwrap();
        let devices = device_use(&[&from, &to], span, &Disks::default());
        assert_eq!(devices["drbd1"].sent_bytes_per_second, None);
        assert_eq!(devices["drbd1"].al_writes_per_second, Some(1.0));
        assert_eq!(devices["drbd1"].backing, None);
        assert_eq!(devices["drbd1"].connected_anew, 1);
        let tracks = tracks(&[span]);
        let value = |name: &str| tracks.iter().find(|t| t.1 == name).unwrap().3[0];
        assert_eq!(value("drbd_sent_bytes_per_second"), None);
        assert_eq!(value("drbd_al_writes_per_second"), Some(1.0));
        assert_eq!(value("drbd_pending"), Some(0.0));
    }

    #[test]
    fn a_reconnect_between_two_samples_is_counted() {
        let start = Instant::now();
        let reconnects = |sent: &[u64]| {
            let snapshots: Vec<Snapshot> = (0..)
                .zip(sent)
                .map(|(at, sent)| snapshot(start, at, &shown("Connected", &format!("ns:{sent}"))))
                .collect();
            let all: Vec<&Snapshot> = snapshots.iter().collect();
            let span = Span::between(all[0], all[all.len() - 1]).unwrap();
            device_use(&all, span, &Disks::default())["drbd1"].connected_anew
        };
        assert_eq!(reconnects(&[100, 200, 300]), 0);
        assert_eq!(reconnects(&[100, 20, 300]), 1, "the counter ends above its start");
        assert_eq!(reconnects(&[100, 20, 300, 0]), 2);
        // The kernel's counter wraps around after 2 TiB.
        assert_eq!(reconnects(&[2_147_400_000, 5_000]), 0);
    }

    #[test]
    fn counters_of_peers_are_summed() {
        let json = include_str!("../../host/drbd/fixtures/9/status-three-nodes.json");
        let text = format!(
            "==> /proc/stat <==\ncpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8\n==> drbd <==\n{json}"
        );
        let start = Instant::now();
        let from = Snapshot::parse(&text, start).unwrap();
        let to = Snapshot::parse(&text, start + Duration::from_secs(1)).unwrap();
        let devices =
            device_use(&[&from, &to], Span::between(&from, &to).unwrap(), &Disks::default());
        assert_eq!(devices.keys().collect::<Vec<_>>(), ["drbd7", "drbd8"]);
        let usage = &devices["drbd7"];
        assert_eq!(usage.resource.as_deref(), Some("pgio"));
        assert_eq!(usage.out_of_sync_bytes_after, (262_127 + 1_048_508) * 1024);
        assert_eq!(usage.states.len(), 2, "one for each peer");
    }
}
