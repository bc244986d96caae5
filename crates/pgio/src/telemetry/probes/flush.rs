//! Measures a synchronous 8 kB write in a directory: the minimum wait of a commit.
//!
//! `dd oflag=dsync` writes some blocks per round and reports its own elapsed time, so neither its
//! start nor the network to the host counts. A round takes about [`ROUND_TIME`], so that the host is busy
//! with writing and not with starting programs. The median of the rounds' means is robust against
//! single stalls. pg_test_fsync does the same with open_datasync, but may not be installed.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use crate::host::command::quoted;
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::{Host, Shell};

const PRELUDE: &str = include_str!("flush.sh");

/// Writes of the first round, which finds out how many fill a round.
const FIRST_ROUND_WRITES: u32 = 8;
/// The file of the probe has 256 blocks.
const MAX_WRITES: u32 = 256;
const ROUND_TIME: Duration = Duration::from_millis(20);

const MIN_ROUNDS: usize = 5;

const DURATION: Duration = Duration::from_secs(1);

/// Timeout of one round.
const LIMIT: Duration = Duration::from_secs(20);

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
    // Device numbers are those of one kernel.
    a.host.is_same_machine(b.host)
        && a.host.run(&devices.timeout(LIMIT)).is_ok_and(|found| {
            let mut found = found.lines();
            found.next().is_some_and(|first| found.next() == Some(first))
        })
}

/// The flush, and a note on how it was measured or why not.
pub(super) fn probe(wal: Wal<'_>) -> (Option<Flush>, String) {
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
    shell.ask("1", LIMIT)?;
    let mut round = |writes: u32| -> Result<Option<f64>, ExecError> {
        let answer = shell.ask(&writes.to_string(), LIMIT)?;
        Ok(seconds(&answer.text).map(|seconds| seconds / f64::from(writes)))
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
fn seconds(output: &str) -> Option<f64> {
    let (_, after) = output.rsplit_once("copied, ")?;
    after.split_whitespace().next()?.parse().ok().filter(|s: &f64| *s > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

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
        assert_eq!(seconds(gnu), Some(0.0102));
        let busybox = "65536 bytes (64.0KB) copied, 0.000102 seconds, 612.7MB/s\n";
        assert_eq!(seconds(busybox), Some(0.000102));
        assert_eq!(seconds("dd: error writing: No space left on device"), None);
    }

    #[test]
    fn the_probe_leaves_no_file_in_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("with 'a quote'");
        std::fs::create_dir(&path).unwrap();
        let here = Host::local();
        let (seconds, note) = probe(Wal { host: &here, directory: path.to_str().unwrap() });
        assert!(seconds.is_some(), "{note}");
        assert!(note.starts_with("flush: median of "), "{note}");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_a_note() {
        let (seconds, note) = probe(Wal { host: &Host::local(), directory: "/nonexistent" });
        assert_eq!(seconds, None);
        assert!(note.starts_with("flush: not measured in /nonexistent on host local: "), "{note}");
        assert!(note.contains("No such file or directory"), "{note}");
    }
}
