//! Expected cost of a commit: a flush on the primary, a flush on the standby, and the round trip.
//!
//! Measured without PostgreSQL, once per experiment, in about one second per file system. Probes
//! never fail: a value that cannot be measured is absent, and the notes give the reason. Next:
//! `pgio_verdict` compares the measured commits with it.
//!
//! A flush is a synchronous 8 kB write in the directory of the WAL. `dd oflag=dsync` writes some blocks per
//! round and reports its own elapsed time, so neither its start nor the network to the host counts. A round
//! takes about [`ROUND_TIME`], so that the host is busy with writing and not with starting programs. The median
//! of the rounds' means is robust against single stalls. pg_test_fsync does the same with open_datasync, but may
//! not be installed. The round trip is TCP's smoothed estimate for the replication connection, as `ss` shows it;
//! pgio sends no packets.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::sources::TelemetrySources;
use crate::host::command::quoted;
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::{Host, Shell};
use pgio_results::telemetry::Probes;

/// Without a standby, measures only the flush of the primary.
pub fn probe(
    primary: Option<Wal<'_>>,
    standby: Option<Wal<'_>>,
    walsender: Option<Walsender>,
) -> Probes {
    let mut notes = Vec::new();
    let mut measure = |wal: Option<Wal<'_>>| {
        let (flush, note) = probe_flush(wal?);
        notes.push(note);
        flush
    };
    let flush = measure(primary);
    let is_shared = primary.zip(standby).is_some_and(|(a, b)| share_file_system(a, b));
    let shared_flush = flush.filter(|_| is_shared);
    let standby_flush = shared_flush.or_else(|| measure(standby));
    if let (Some(_), Some(wal)) = (shared_flush, standby) {
        notes.push(format!(
            "flush: the same file system on host {} holds the standby's WAL",
            wal.host.name()
        ));
    }
    let round_trip_seconds = walsender.and_then(|walsender| {
        let same = primary.zip(standby).is_some_and(|(a, b)| a.host.is_same_machine(b.host));
        let (seconds, note) = probe_round_trip(primary.map(|wal| wal.host), same, walsender);
        notes.push(note);
        seconds
    });
    Probes {
        flush_seconds: flush.map(|f| f.seconds),
        flush_error_seconds: flush.map(|f| f.error),
        standby_flush_seconds: standby_flush.map(|f| f.seconds),
        standby_flush_error_seconds: standby_flush.map(|f| f.error),
        shared_flush: shared_flush.is_some(),
        round_trip_seconds,
        // Set later, when a condition is applied.
        link_seconds: None,
        notes,
    }
}

const PRELUDE: &str = include_str!("flush.sh");

/// Writes of the first round, which finds out how many fill a round.
const FIRST_ROUND_WRITES: u32 = 8;
/// The file of the probe has 256 blocks.
const MAX_WRITES: u32 = 256;
const ROUND_TIME: Duration = Duration::from_millis(20);

const MIN_ROUNDS: usize = 5;

const DURATION: Duration = Duration::from_secs(1);

/// Timeout of one round.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);

/// A WAL directory and its host.
#[derive(Debug, Clone, Copy)]
pub struct Wal<'a> {
    pub host: &'a Host,
    pub directory: &'a str,
}

/// Seconds for one write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Flush {
    pub seconds: f64,
    /// Half the width of the 95 % interval of the median.
    pub error: f64,
}

/// Whether both directories are on one file system, so that a flush takes as long in each.
pub(super) fn share_file_system(a: Wal<'_>, b: Wal<'_>) -> bool {
    let devices = CommandLine::new("stat").args(["-L", "-c", "%d", "--", a.directory, b.directory]);
    // Device numbers are valid on one kernel.
    a.host.is_same_machine(b.host)
        && a.host.run(&devices.timeout(FLUSH_TIMEOUT)).is_ok_and(|found| {
            let mut found = found.lines();
            found.next().is_some_and(|first| found.next() == Some(first))
        })
}

/// The flush, and a note on how it was measured or why not.
pub(super) fn probe_flush(wal: Wal<'_>) -> (Option<Flush>, String) {
    let Wal { host, directory } = wal;
    let location = format!("{directory} on host {}", host.name());
    match rounds(wal) {
        Ok((mut rounds, writes)) if !rounds.is_empty() => {
            rounds.sort_by(f64::total_cmp);
            let note = format!(
                "flush: median of {} rounds of {writes} synchronous 8 kB writes in {location}",
                rounds.len()
            );
            (Some(median(&rounds)), note)
        }
        Ok(_) => (None, format!("flush: dd on host {} does not report its time", host.name())),
        Err(error) => (None, format!("flush: not measured in {location}: {error}")),
    }
}

/// Median of ascending rounds. Its interval lies between two order statistics, whatever the
/// distribution (Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2).
fn median(rounds: &[f64]) -> Flush {
    let n = rounds.len();
    let reach = 0.98 * (n as f64).sqrt();
    let low = (n as f64 / 2.0 - reach).floor().max(0.0) as usize;
    let high = ((n as f64 / 2.0 + reach).ceil() as usize).min(n - 1);
    Flush { seconds: rounds[n / 2], error: (rounds[high] - rounds[low]) / 2.0 }
}

/// Seconds per write of each round, and the writes of a round.
fn rounds(wal: Wal<'_>) -> Result<(Vec<f64>, u32), ExecError> {
    let directory = quoted(OsStr::new(wal.directory));
    let prelude = format!("directory={directory}\n{PRELUDE}");
    let mut shell = Shell::start(wal.host, &prelude, "writes $ask")?;
    // Discard the first write: it opens the file with cold caches.
    shell.ask("1", FLUSH_TIMEOUT)?;
    let mut round = |writes: u32| -> Result<Option<f64>, ExecError> {
        let answer = shell.ask(&writes.to_string(), FLUSH_TIMEOUT)?;
        Ok(dd_seconds(&answer.text).map(|seconds| seconds / f64::from(writes)))
    };
    let mut rounds = Vec::new();
    let Some(first) = round(FIRST_ROUND_WRITES)? else { return Ok((rounds, FIRST_ROUND_WRITES)) };
    let writes = ((ROUND_TIME.as_secs_f64() / first) as u32).clamp(FIRST_ROUND_WRITES, MAX_WRITES);
    let began = Instant::now();
    while rounds.len() < MIN_ROUNDS || began.elapsed() < DURATION {
        match round(writes)? {
            Some(seconds) => rounds.push(seconds),
            None => break,
        }
    }
    Ok((rounds, writes))
}

/// Parses dd's last line: `65536 bytes (66 kB, 64 KiB) copied, 0.0102 s, 6.4 MB/s`.
fn dd_seconds(output: &str) -> Option<f64> {
    let (_, after) = output.rsplit_once("copied, ")?;
    after.split_whitespace().next()?.parse().ok().filter(|s: &f64| *s > 0.0)
}

const SS_TIMEOUT: Duration = Duration::from_secs(10);

/// The standby's end of the replication connection, from pg_stat_replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walsender {
    /// `None` for a Unix socket.
    pub client_address: Option<IpAddr>,
    pub client_port: u16,
}

/// Seconds, and a note on how they were measured or why not.
pub(super) fn probe_round_trip(
    primary: Option<&Host>,
    same_machine: bool,
    walsender: Walsender,
) -> (Option<f64>, String) {
    let Some(address) = walsender.client_address.map(|address| address.to_canonical()) else {
        return (
            Some(0.0),
            "round trip: none, the standby connects through a Unix socket".to_owned(),
        );
    };
    if same_machine || address.is_loopback() {
        return (Some(0.0), "round trip: none, the standby is on the same host".to_owned());
    }
    let Some(primary) = primary else {
        return (None, "round trip: not measured, the primary's host is unknown".to_owned());
    };
    let filter = format!("dport = :{}", walsender.client_port);
    let ss =
        CommandLine::new("ss").args(["-tinH", "state", "established", &filter]).timeout(SS_TIMEOUT);
    match primary.run(&ss) {
        Ok(text) => match ss_seconds(&text, address, walsender.client_port) {
            Some(seconds) => (
                Some(seconds),
                format!("round trip: TCP's estimate on host {} (ss)", primary.name()),
            ),
            None => {
                let port = walsender.client_port;
                (
                    None,
                    format!(
                        "round trip: ss on host {} shows no connection to {address} port {port}",
                        primary.name()
                    ),
                )
            }
        },
        Err(error) => (None, format!("round trip: not measured: {error} (ss is in iproute2)")),
    }
}

/// `ss -ti` prints a line of addresses, the peer's last, followed by an indented line of details.
fn ss_seconds(text: &str, address: IpAddr, port: u16) -> Option<f64> {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let details = lines.next_if(|next| next.starts_with(char::is_whitespace));
        if line.split_whitespace().next_back().and_then(peer) == Some((address, port)) {
            let rtt = details?.split_whitespace().find_map(|word| word.strip_prefix("rtt:"))?;
            let milliseconds: f64 = rtt.split('/').next()?.parse().ok()?;
            return Some(milliseconds / 1e3);
        }
    }
    None
}

/// `10.0.0.2:41234`, `[fe80::1%eth0]:41234`, `[::ffff:10.0.0.2]:41234`.
fn peer(word: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = word.rsplit_once(':')?;
    let address = address.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = address.split('%').next()?.parse().ok()?;
    Some((address.to_canonical(), port.parse().ok()?))
}

const WALSENDER: &str = include_str!("sql/walsender.sql");
const STANDBY_DATA: &str = concat!(include_str!("receivers.sh"), include_str!("standby_data.sh"));
const STANDBY_TIMEOUT: Duration = Duration::from_secs(10);

/// What the caller knows about the standby.
#[derive(Debug, Clone, Copy)]
pub struct Standby<'a> {
    /// A host name of the experiment.
    pub host: &'a str,
    /// Its data directory, if pgio created the standby.
    pub data: Option<&'a Path>,
}

impl TelemetrySources {
    /// Takes about one second per file system with WAL. Run it while the servers are idle.
    pub fn measure_expected(&mut self, standby: Option<Standby<'_>>, admin: &mut Client) {
        let primary = self.server_host.as_ref().and_then(|name| self.hosts.get(name));
        let wal = self.storage.iter().find(|s| s.role == "wal" && s.is_located());
        let primary = primary
            .zip(wal)
            .map(|(host, wal)| Wal { host: host.as_ref(), directory: &wal.directory });
        let mut notes = Vec::new();
        let host = standby.and_then(|s| self.hosts.get(s.host));
        let data = standby.zip(host).and_then(|(standby, host)| {
            let known = standby.data.map(|d| Ok(d.to_string_lossy().into_owned()));
            let identifier = self.system_identifier.as_deref();
            let found = known.unwrap_or_else(|| find_data(host, identifier));
            found.map_err(|why| notes.push(why)).ok()
        });
        let directory = data.map(|data| format!("{data}/pg_wal"));
        let standby = host
            .zip(directory.as_deref())
            .map(|(host, directory)| Wal { host: host.as_ref(), directory });
        let mut probes: Probes = probe(primary, standby, walsender(admin));
        probes.notes.extend(notes);
        self.probes = Some(probes);
    }
}

/// Data directory of the server's only standby on this host.
fn find_data(host: &Host, identifier: Option<&str>) -> Result<String, String> {
    let name = host.name();
    let which = identifier.unwrap_or("all");
    let script =
        CommandLine::new("sh").args(["-c", STANDBY_DATA, "sh", which]).timeout(STANDBY_TIMEOUT);
    let text = host.run(&script).map_err(|_| format!("host {name} did not answer"))?;
    let mut found = text.lines();
    match (found.next(), found.next()) {
        (Some(data), None) => Ok(data.to_owned()),
        (None, _) => Err(format!(
            "no standby found on host {name}; connect as root if its processes are hidden"
        )),
        (Some(_), Some(_)) => Err(format!(
            "host {name} runs several standbys, and pgio cannot determine which one to probe"
        )),
    }
}

fn walsender(admin: &mut Client) -> Option<Walsender> {
    let row = admin.query_opt(WALSENDER, &[]).ok()??;
    // -1 means a Unix socket; null means hidden from this role.
    let port: i32 = row.try_get::<_, Option<i32>>(1).ok()??;
    let address: Option<String> = row.try_get(0).ok()?;
    Some(Walsender {
        client_address: address.and_then(|a| a.parse().ok()),
        client_port: u16::try_from(port).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_system_is_measured_itself() {
        let (disk, memory) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let here = Host::local();
        let [disk, memory] = [&disk, &memory].map(|dir| dir.path().to_str().unwrap());
        let wal = |directory| Some(Wal { host: &here, directory });
        let probes = probe(wal(disk), wal(memory), None);
        assert!(!probes.shared_flush, "{probes:?}");
        assert!(probes.standby_flush_seconds.unwrap() > 0.0, "{probes:?}");
        let missing = probe(wal(disk), wal("/nonexistent"), None);
        assert!(!missing.shared_flush && missing.standby_flush_seconds.is_none(), "{missing:?}");
    }

    #[test]
    fn probes_measure_both_flushes_and_a_zero_round_trip_by_socket() {
        let dir = tempfile::tempdir().unwrap();
        let here = Host::local();
        let wal = Wal { host: &here, directory: dir.path().to_str().unwrap() };
        let socket = Walsender { client_address: None, client_port: 0 };
        let probes = probe(Some(wal), Some(wal), Some(socket));
        assert!(probes.flush_seconds.unwrap() > 0.0, "{probes:?}");
        assert!(probes.shared_flush, "{probes:?}");
        assert_eq!(probes.standby_flush_seconds, probes.flush_seconds, "{probes:?}");
        assert_eq!((probes.round_trip_seconds, probes.notes.len()), (Some(0.0), 3), "{probes:?}");
        assert_eq!(probe(None, None, None), Probes::default());
    }

    #[test]
    fn a_flush_probe_has_median_and_error_of_its_rounds() {
        let rounds: Vec<f64> = (0..101).map(f64::from).collect();
        assert_eq!(median(&rounds), Flush { seconds: 50.0, error: 10.5 });
        assert_eq!(median(&[2.0, 3.0, 7.0]), Flush { seconds: 3.0, error: 2.5 });
        assert_eq!(median(&[2.0]), Flush { seconds: 2.0, error: 0.0 });
    }

    #[test]
    fn parses_the_output_of_dd() {
        let gnu = "8+0 records in\n8+0 records out\n65536 bytes (66 kB, 64 KiB) copied, 0.0102 s, 6 MB/s\n";
        assert_eq!(dd_seconds(gnu), Some(0.0102));
        let busybox = "65536 bytes (64.0KB) copied, 0.000102 seconds, 612.7MB/s\n";
        assert_eq!(dd_seconds(busybox), Some(0.000102));
        assert_eq!(dd_seconds("dd: error writing: No space left on device"), None);
    }

    #[test]
    fn the_probe_leaves_no_file_in_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("with 'a quote'");
        std::fs::create_dir(&path).unwrap();
        let here = Host::local();
        let (seconds, note) = probe_flush(Wal { host: &here, directory: path.to_str().unwrap() });
        assert!(seconds.is_some(), "{note}");
        assert!(note.starts_with("flush: median of "), "{note}");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_a_note() {
        let (seconds, note) = probe_flush(Wal { host: &Host::local(), directory: "/nonexistent" });
        assert_eq!(seconds, None);
        assert!(note.starts_with("flush: not measured in /nonexistent on host local: "), "{note}");
        assert!(note.contains("No such file or directory"), "{note}");
    }

    const SS: &str = "\
    0      0          10.0.0.1:5432       10.0.0.2:41233
    \t cubic wscale:7,7 rto:204 rtt:9.5/0.08 ato:40 mss:1448
    0      0      [::ffff:10.0.0.1]:5432   [::ffff:10.0.0.2]:41234
    \t cubic wscale:7,7 rto:204 rtt:0.187/0.08 ato:40 minrtt:0.05
    0      0      [fe80::1%eth0]:5432   [fe80::2%eth0]:7
    \t cubic
    ";

    #[test]
    fn finds_the_line_of_the_connection() {
        let round_trip = |address: &str, port| ss_seconds(SS, address.parse().unwrap(), port);
        assert_eq!(round_trip("10.0.0.2", 41234), Some(0.187e-3));
        assert_eq!(round_trip("10.0.0.2", 41233), Some(9.5e-3));
        assert_eq!(round_trip("10.0.0.3", 41234), None);
        assert_eq!(round_trip("fe80::2", 7), None, "no estimate yet");
    }

    #[test]
    fn reads_a_real_connection_of_this_machine() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let ss = ["-tinH", "state", "established"];
        let ss = CommandLine::new("ss").args(ss).arg(format!("dport = :{port}"));
        let text = Host::local().run(&ss).unwrap();
        assert!(ss_seconds(&text, "127.0.0.1".parse().unwrap(), port).is_some(), "{text}");
        let walsender =
            Walsender { client_address: Some("127.0.0.1".parse().unwrap()), client_port: port };
        let (seconds, note) = probe_round_trip(Some(&Host::local()), false, walsender);
        assert_eq!(seconds, Some(0.0));
        assert!(note.contains("same host"), "{note}");
    }

    #[test]
    fn a_value_that_cannot_be_measured_has_a_note() {
        let walsender =
            Walsender { client_address: Some("192.0.2.1".parse().unwrap()), client_port: 1 };
        let (seconds, note) = probe_round_trip(Some(&Host::local()), false, walsender);
        assert_eq!(seconds, None);
        assert_eq!(note, "round trip: ss on host local shows no connection to 192.0.2.1 port 1");
        let (seconds, note) = probe_round_trip(None, false, walsender);
        assert_eq!((seconds, note.contains("is unknown")), (None, true));
    }
}
