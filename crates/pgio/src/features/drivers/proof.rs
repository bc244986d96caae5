//! The server's own view of what the drivers do: its count of the work, as the proof that the drivers counted
//! right, and their sessions.
//!
//! The counters of the workload's tables hold nothing but its own work. The commit counter of the
//! database counts telemetry and every other session as well, so it proves only that no commit is
//! missing. Sessions are found by their application names, and ended if their driver is lost.

use std::collections::BTreeMap;

use pgio_connect::Client;
use pgio_link::Offset;
use pgio_results::checks;
use pgio_results::model::{Check, Slice};
use pgio_results::thresholds::PARTICIPANTS_APART;

use super::coordinator::PartState;
use super::messages::application_name_of_driver;
use super::messages::{DriverError, PartResult};
use super::{COUNTS_APART, SUM};
use crate::pg::leftovers::application_name_of_command;
use crate::pg::server::FORCE_FLUSH_SINCE;
use crate::workload::error::EngineError;
use crate::workload::participants::WindowOutcome;
use crate::workload::shared::Proof;
use crate::workload::slice::Totals;

/// Before 15 the collector may return values that are half a second old.
const STATISTICS_DELAY: std::time::Duration = std::time::Duration::from_millis(600);
/// Readings until two agree. Beyond, other sessions use the tables, which the check then finds.
const MAX_READINGS: u32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    calls: i64,
    commits: i64,
}

impl Proof {
    pub(super) fn read(
        &self,
        admin: &mut Client,
        version: u32,
    ) -> Result<Counted, pgio_connect::Error> {
        if version >= FORCE_FLUSH_SINCE {
            return self.read_once(admin);
        }
        let wait = || std::thread::sleep(STATISTICS_DELAY);
        read_until_steady(|| self.read_once(admin), wait)
    }

    fn read_once(&self, admin: &mut Client) -> Result<Counted, pgio_connect::Error> {
        let commits = admin.query_one(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()",
            &[],
        )?;
        let row = match self {
            Proof::Inserted { table, rows } => admin.query_one(
                "SELECT pg_stat_get_tuples_inserted(to_regclass($1)) / $2",
                &[table, &(*rows as i64)],
            )?,
            Proof::Scanned { tables } => admin.query_one(
                "SELECT coalesce(sum(pg_stat_get_numscans(i.indexrelid)), 0)::bigint \
                 FROM pg_index i JOIN unnest($1::text[]) t ON i.indrelid = to_regclass(t)",
                &[tables],
            )?,
        };
        Ok(Counted { calls: row.try_get(0)?, commits: commits.try_get(0)? })
    }
}

/// Reads again, after a wait each time, until the calls of two readings agree; returns the former, or the last
/// of too many.
fn read_until_steady<E>(
    mut read: impl FnMut() -> Result<Counted, E>,
    mut wait: impl FnMut(),
) -> Result<Counted, E> {
    let mut counted = read()?;
    for _ in 1..MAX_READINGS {
        wait();
        let again = read()?;
        if again.calls == counted.calls {
            break;
        }
        counted = again;
    }
    Ok(counted)
}

/// Compares the drivers' sum with the server's.
pub(super) fn check(before: Counted, after: Counted, totals: &Totals) -> Check {
    let remedy =
        "find out which other sessions use the tables, or what is between drivers and server";
    let server = (after.calls - before.calls).max(0).unsigned_abs();
    let commits = (after.commits - before.commits).max(0).unsigned_abs();
    let drivers = totals.calls;
    // A call that ended in a deadlock was rolled back, but the server may have counted its rows.
    let off = match server {
        n if n < drivers => drivers - n,
        n => n.saturating_sub(drivers + totals.deadlocks),
    };
    let share = off as f64 / drivers.max(1) as f64;
    if share > COUNTS_APART.0 {
        let percent = 100.0 * share;
        let message = format!(
            "the drivers counted {drivers} calls, the server {server}: {percent:.2} % apart"
        );
        return Check::invalid(SUM, message, remedy);
    }
    if (commits as f64) < drivers as f64 * (1.0 - COUNTS_APART.0) {
        let message = format!(
            "the drivers counted {drivers} committed calls, the server only {commits} commits"
        );
        return Check::invalid(SUM, message, remedy);
    }
    Check::ok(SUM, format!("the drivers counted {drivers} calls, the server {server}"))
}

/// Returns the check of drivers whose sessions the server does not see as theirs.
pub(super) fn hidden_sessions_check(ranks: &[u32]) -> Check {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    Check::invalid(
        SUM,
        format!("pg_stat_activity does not show the sessions of driver {}", ranks.join(", ")),
        "connect drivers directly to PostgreSQL, as the same role",
    )
}

/// The sessions of a driver as the server sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct VisibleSessions {
    pub sessions: usize,
    pub addresses: Vec<String>,
}

/// Looks up a driver's sessions in pg_stat_activity.
pub(super) fn find_sessions(
    admin: &mut Client,
    application_name: &str,
    pids: &[i32],
) -> Result<VisibleSessions, pgio_connect::Error> {
    let row = admin.query_one(
        "SELECT count(*), coalesce(array_agg(DISTINCT host(client_addr)) \
                                   FILTER (WHERE client_addr IS NOT NULL), '{}') \
         FROM pg_stat_activity WHERE pid = ANY($1) AND application_name = $2",
        &[&pids, &application_name],
    )?;
    Ok(VisibleSessions { sessions: row.try_get::<_, i64>(0)? as usize, addresses: row.try_get(1)? })
}

/// Fills in the addresses of the drivers' sessions; returns the drivers whose sessions are not seen.
pub(super) fn find_addresses(
    parts: &mut [PartState],
    run_id: &str,
    pids: &[i32],
    admin: &mut Client,
) -> Result<Vec<u32>, pgio_connect::Error> {
    let mut unseen = Vec::new();
    for part in parts {
        let seen = find_sessions(admin, &application_name_of_driver(run_id, part.rank), pids)?;
        if seen.sessions != part.sessions as usize {
            unseen.push(part.rank);
        }
        part.addresses = seen.addresses;
    }
    Ok(unseen)
}

/// Ends what a lost driver has left on the server.
pub(super) fn terminate_lost(error: &EngineError, run_id: &str, admin: &mut Client) {
    if let Some(DriverError::Lost { rank, .. }) = error.work() {
        let name = application_name_of_driver(run_id, *rank);
        terminate(admin, &application_name_of_command(&name));
        terminate(admin, &name);
    }
}

/// Terminates the sessions that a lost driver has left; its sockets may never show that it is gone.
fn terminate(admin: &mut Client, application_name: &str) {
    // If the server is gone, its sessions are gone too; `undo` and the next start handle the rest.
    let _ = admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE application_name = $1 AND usename = current_user",
        &[&application_name],
    );
}

/// Fills the outcome from the parts that have a result.
pub(super) fn merge(outcome: &mut WindowOutcome, parts: &[PartState]) {
    let results = || parts.iter().filter_map(|part| part.result.as_ref());
    outcome.totals = sum(results());
    outcome.sessions = results().flat_map(|result| result.sessions.clone()).collect();
    outcome.timeline = timeline(results().map(|result| result.timeline.as_slice()));
    outcome.seconds = results().map(|result| result.seconds).fold(0.0, f64::max);
    // Programs need a while to start, and count their own time.
    let first = parts.iter().filter_map(|part| part.opened).min().unwrap_or(0);
    outcome.first = first as f64 / 1e9;
    let late = |part: &PartState| {
        let opened = part.opened.map_or(0, |opened| opened - first) as f64 / 1e9;
        opened.max(part.result.as_ref().map_or(0.0, |result| result.late))
    };
    outcome.late = parts.iter().map(late).fold(0.0, f64::max);
    // The coordinator itself generates nothing.
    outcome.stood_still = results().map(|result| result.stood_still).fold(0.0, f64::max);
    outcome.cancelled_sync_rep = results().map(|result| result.cancelled_sync_rep).sum();
    outcome.readings = results().flat_map(|result| result.readings.clone()).collect();
    outcome.generators = parts.iter().filter_map(PartState::to_stored).collect();
}

/// Sums the totals of all parts in the order of the drivers.
fn sum<'a>(parts: impl Iterator<Item = &'a PartResult>) -> Totals {
    parts.fold(Totals::default(), |mut all, part| {
        all.merge(&part.totals);
        all
    })
}

/// Adds up slices of the same number, which all drivers cut at the same moments.
fn timeline<'a>(parts: impl Iterator<Item = &'a [Slice]>) -> Vec<Slice> {
    let mut all: BTreeMap<usize, Slice> = BTreeMap::new();
    for (number, slice) in parts.flat_map(|slices| slices.iter().enumerate()) {
        all.entry(number).or_default().add_parallel(slice);
    }
    all.into_values().collect()
}

/// Judges how far apart the drivers opened their windows, by the coordinator's clock.
pub(super) fn check_skew(parts: &[PartState], seconds: f64) -> Option<Check> {
    const ID: &str = "participants-apart";
    let opened = || parts.iter().filter_map(|part| part.opened);
    let skew = (opened().max()? - opened().min()?) as f64 / 1e9;
    let half_trip = |offset: &Offset| offset.quickest.as_secs_f64() / 2.0;
    let uncertainty =
        parts.iter().filter_map(|p| p.offset.as_ref().map(half_trip)).fold(0.0, f64::max);
    let apart = skew + uncertainty;
    let shown = format!("{:.2} ms apart, clocks within {:.2} ms", skew * 1e3, uncertainty * 1e3);
    Some(if apart > seconds * PARTICIPANTS_APART.0 {
        Check::invalid(
            ID,
            format!("the drivers opened their windows {shown}: over 1 % of {seconds:.1} s"),
            checks::remedy(ID),
        )
    } else {
        Check::ok(ID, format!("the drivers opened their windows {shown}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::histogram::Histogram;
    use pgio_results::model::CheckVerdict;
    use std::time::Duration;

    fn judged(drivers: u64, deadlocks: u64, server: i64, commits: i64) -> CheckVerdict {
        let totals = Totals { calls: drivers, deadlocks, ..Totals::default() };
        let before = Counted { calls: 100, commits: 200 };
        let after = Counted { calls: 100 + server, commits: 200 + commits };
        check(before, after, &totals).verdict
    }

    #[test]
    fn counts_are_read_until_two_agree_but_not_forever() {
        let readings = |calls: fn(i64) -> i64| {
            let (mut made, mut waits) = (0, 0);
            let read = || {
                made += 1;
                Ok::<_, ()>(Counted { calls: calls(made), commits: made })
            };
            let counted = read_until_steady(read, || waits += 1).unwrap();
            (counted.calls, counted.commits, waits)
        };
        assert_eq!(readings(|made| made.min(3)), (3, 3, 3));
        let most = i64::from(MAX_READINGS);
        assert_eq!(readings(|made| made), (most, most, most - 1), "others use the table");
    }

    #[test]
    fn counts_of_drivers_and_server_must_agree_within_a_thousandth() {
        use CheckVerdict::{Invalid, Ok};
        assert_eq!(judged(10_000, 0, 10_000, 10_400), Ok);
        assert_eq!(judged(10_000, 0, 10_010, 10_400), Ok);
        assert_eq!(judged(10_000, 0, 10_011, 10_400), Invalid);
        assert_eq!(judged(10_000, 0, 9_989, 10_400), Invalid);
        assert_eq!(judged(10_000, 5, 10_014, 10_400), Ok);
        assert_eq!(judged(10_000, 0, 10_000, 9_980), Invalid);
        assert_eq!(judged(0, 0, 0, 0), Ok);
    }

    fn part(rank: u32, latencies: &[f64], opened: i64) -> PartState {
        let mut histogram = Histogram::default();
        latencies.iter().for_each(|ns| histogram.record(*ns));
        let calls = latencies.len() as u64;
        let totals = Totals {
            histograms: [("commit".to_owned(), histogram)].into(),
            calls,
            ..Totals::default()
        };
        let slice = Slice { at: 1.0, seconds: 1.0, commits: calls, ..Slice::default() };
        let seconds = 2.0 + f64::from(rank);
        PartState {
            rank,
            host: format!("h{rank}"),
            first: rank,
            sessions: 1,
            offset: Some(Offset {
                ns: 0,
                quickest: Duration::from_millis(2),
                worst: Duration::from_millis(3),
            }),
            opened: Some(opened),
            result: Some(PartResult {
                totals,
                timeline: vec![slice],
                seconds,
                ..PartResult::default()
            }),
            ..PartState::default()
        }
    }

    #[test]
    fn merged_outcomes_equal_that_of_a_single_process() {
        let mut outcome = WindowOutcome::new(0.0);
        merge(&mut outcome, &[part(0, &[1e3, 5e6], 0), part(1, &[2e3, 7e5, 9e9], 0)]);
        let mut alone = Histogram::default();
        [1e3, 5e6, 2e3, 7e5, 9e9].iter().for_each(|ns| alone.record(*ns));
        assert_eq!(outcome.totals.histograms["commit"], alone);
        assert_eq!((outcome.totals.calls, outcome.seconds), (5, 3.0));
        assert_eq!((outcome.timeline.len(), outcome.timeline[0].commits), (1, 5));
        assert_eq!(outcome.generators.iter().map(|d| d.calls).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn lateness_is_the_delay_after_the_first_driver() {
        let mut outcome = WindowOutcome::new(0.0);
        merge(&mut outcome, &[part(0, &[], 300_000_000), part(1, &[], 310_000_000)]);
        assert!((outcome.late - 0.01).abs() < 1e-9, "{}", outcome.late);
    }

    #[test]
    fn skew_and_half_of_the_round_trip_count_together() {
        let judged = |opened, seconds| {
            check_skew(&[part(0, &[], 0), part(1, &[], opened)], seconds).map(|check| check.verdict)
        };
        assert_eq!(judged(8_000_000, 1.0), Some(CheckVerdict::Ok));
        assert_eq!(judged(9_500_000, 1.0), Some(CheckVerdict::Invalid));
        assert_eq!(judged(9_500_000, 2.0), Some(CheckVerdict::Ok));
        assert_eq!(check_skew(&[], 1.0).map(|check| check.verdict), None);
    }
}
