//! Settings that affect a window: durability, checkpoints, autovacuum, connections, the clock.

use std::time::Duration;

use pgio_connect::{Client, Row};

use crate::config::Layer;
use crate::config::kinds::Sessions;
use crate::experiment::doctor::subject::{Subject, Work};
use crate::experiment::trial_checks;
use crate::pg::clock::{self, SLOW_CLOCK};
use crate::pg::server::{self, FreeConnections};
use pgio_results::Check;
use pgio_results::units::{exact_duration, human};

/// Connections of a run besides its sessions: admin session, samplers, checks.
const OWN_CONNECTIONS: u64 = 4;

/// WAL rate of a single busy session; a checkpoint that less WAL triggers is likely.
const LIKELY_WAL_RATE: f64 = 32.0 * 1048576.0;

pub(super) fn judge(
    subject: &Subject,
    row: &Row,
    client: &mut Client,
) -> Result<Vec<Check>, pgio_connect::Error> {
    let off = |name: &str| {
        row.try_get(name).is_ok_and(|value: &str| value == "off") && !subject.declares(name)
    };
    let off: Vec<_> = ["fsync", "full_page_writes"].into_iter().filter(|n| off(n)).collect();
    let wal = CheckpointSettings {
        timeout: row.try_get("checkpoint_timeout_s")?,
        bytes: row.try_get("max_wal_bytes")?,
        target: row.try_get("checkpoint_target")?,
    };
    let sessions = subject.work.iter().map(count_sessions).max().unwrap_or(1);
    let mut checks = vec![
        trial_checks::durability_without(&off),
        check_checkpoints(&wal, subject.longest(), subject.writes()),
        check_autovacuum(row.try_get("autovacuum")?, row.try_get("vacuum_workers")?),
    ];
    let connections = server::connections(client).ok();
    checks.extend(connections.map(|found| check_connections(sessions, &found.scarcest())));
    let io_timing: bool = row.try_get("track_io_timing")?;
    checks.extend(clock::reading(client).map(|cost| check_clock(cost, io_timing)));
    Ok(checks)
}

/// The settings that trigger a checkpoint.
#[derive(Debug, Clone, Copy)]
struct CheckpointSettings {
    timeout: f64,
    bytes: f64,
    target: f64,
}

/// A checkpoint runs before each window, so the next is due after the timeout, or when WAL reaches
/// max_wal_size / (1 + checkpoint_completion_target), as documented in PostgreSQL's manual.
fn check_checkpoints(wal: &CheckpointSettings, longest: Option<Duration>, writes: bool) -> Check {
    const ID: &str = "checkpoints";
    let Some(longest) = longest.filter(|l| !l.is_zero()) else {
        return Check::ok(ID, "not predictable: the length of the windows is unknown");
    };
    let (seconds, shown) = (longest.as_secs_f64(), exact_duration(longest));
    if seconds >= wal.timeout {
        return Check::warning(
            ID,
            format!("checkpoint_timeout is {:.0} s but a trial takes {shown}", wal.timeout),
            "raise checkpoint_timeout, or make windows long enough to hold several checkpoints",
        );
    }
    let rate = wal.bytes / (1.0 + wal.target) / seconds;
    let text =
        format!("a checkpoint starts within {shown} if WAL exceeds {}", human::byte_rate(rate));
    if !writes || rate >= LIKELY_WAL_RATE {
        Check::ok(ID, text)
    } else {
        Check::warning(ID, text, "raise max_wal_size")
    }
}

fn check_autovacuum(on: bool, workers: i64) -> Check {
    const ID: &str = "autovacuum";
    match (on, workers) {
        (_, 1..) => Check::warning(
            ID,
            format!("{workers} workers are active"),
            "wait until they finish, or set autovacuum = off in every condition",
        ),
        (true, _) => Check::ok(ID, "on, idle"),
        (false, _) => Check::ok(ID, "off"),
    }
}

/// Counts sessions from the keys alone; the number of tables is unknown here.
fn count_sessions(work: &Work) -> u64 {
    let one = |n: Option<u32>| u64::from(n.unwrap_or(1));
    let Layer { num_schemas, num_threads, sessions, .. } = work.layer;
    match work.kind.def().sessions {
        Sessions::Tables => sessions.map_or_else(|| one(num_schemas) * one(num_threads), u64::from),
        Sessions::Key => one(sessions),
        Sessions::None => 0,
    }
}

fn check_connections(sessions: u64, found: &FreeConnections) -> Check {
    const ID: &str = "connections";
    let needed = sessions + OWN_CONNECTIONS;
    let text = format!("{} are free, {needed} are needed", found.free);
    if i64::try_from(needed).is_ok_and(|needed| needed <= found.free) {
        Check::ok(ID, text)
    } else {
        Check::invalid(ID, text, format!("raise {}, or use fewer sessions", found.limit))
    }
}

fn check_clock(cost: Duration, track_io_timing: bool) -> Check {
    const ID: &str = "clock-cost";
    let io = if track_io_timing { "on" } else { "off" };
    let latency = human::latency(cost.as_nanos() as f64);
    let text = format!("reading the server's clock takes {latency}; track_io_timing is {io}");
    if cost < SLOW_CLOCK {
        return Check::ok(ID, text);
    }
    let remedy = if track_io_timing {
        "turn track_io_timing off, or check the clock source of the server's machine"
    } else {
        "check the clock source of the server's machine; leave track_io_timing off"
    };
    Check::warning(ID, text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::server::ConnectionLimit;
    use pgio_results::CheckVerdict::{Invalid, Ok as Fine, Warning};

    const WAL: CheckpointSettings =
        CheckpointSettings { timeout: 300.0, bytes: 1.9 * 1048576.0 * 1000.0, target: 0.9 };

    #[test]
    fn a_checkpoint_expected_in_the_window_is_a_warning() {
        let after =
            |seconds, writes| check_checkpoints(&WAL, Some(Duration::from_secs(seconds)), writes);
        assert_eq!(after(10, true).verdict, Fine);
        assert_eq!(after(100, true).verdict, Warning, "at 10 MiB/s");
        assert!(after(100, true).message.contains("10 MiB/s"), "{:?}", after(100, true));
        assert_eq!(after(100, false).verdict, Fine, "nothing is written");
        assert_eq!(after(300, false).verdict, Warning, "by time");
        assert_eq!(check_checkpoints(&WAL, None, true).verdict, Fine);
    }

    #[test]
    fn missing_durability_and_connections_are_invalid() {
        assert_eq!(trial_checks::durability_without(&["fsync"]).verdict, Invalid);
        assert_eq!(trial_checks::durability_without(&[]).verdict, Fine);
        let connections = |free| {
            let limit = ConnectionLimit::Role("app".to_owned());
            check_connections(10, &FreeConnections { limit, max: 20, free })
        };
        let few = connections(13);
        assert_eq!(few.verdict, Invalid);
        assert!(few.remedy.starts_with("raise CONNECTION LIMIT of role app"), "{}", few.remedy);
        assert_eq!(connections(14).verdict, Fine);
    }

    #[test]
    fn a_slow_clock_and_a_busy_autovacuum_are_warned_of() {
        assert_eq!(check_clock(Duration::from_nanos(40), true).verdict, Fine);
        let slow = check_clock(Duration::from_nanos(900), true);
        assert!(slow.verdict == Warning && slow.remedy.starts_with("turn track_io_timing off"));
        assert_eq!(
            [check_autovacuum(true, 0), check_autovacuum(true, 2)].map(|c| c.verdict),
            [Fine, Warning]
        );
    }
}
