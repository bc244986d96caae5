//! Calls cut off by the end of a window: due in an open loop but not answered.
//!
//! They are no less slow than those in the middle of the window, and a percentile among them is a
//! lower bound.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use pgio_tests::command::{CommandResult, TestDatabase, wait_until};
use pgio_tests::fixture::INSTALLED;

/// Time in the window before the server is frozen.
const UNTIL_FREEZE: Duration = Duration::from_millis(2700);
/// Time from the opening of the window until the server resumes, past the window's end.
const FROZEN_UNTIL: Duration = Duration::from_millis(4300);

/// Runs a window of 4 s; `stop` freezes the server, `resume` lets it continue.
fn trial<R>(
    more: &[&str],
    stop: impl FnOnce(&TestDatabase, &[Pid]) -> R,
    resume: impl FnOnce(R),
) -> FrozenTrial {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let work = ["run", "--run-time", "4", "--num-threads", "4", "--work-unit", "1"];
    let json = ["--telemetry", "0", "--json", "cut.json", "--engine", "client"];
    let mut command = db.command(&[&work[..], &json, more].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pids = wait_for_sessions(&db, &child);
    let opened = Instant::now();
    thread::sleep(UNTIL_FREEZE);
    let stopped = stop(&db, &pids);
    let frozen_at = Instant::now();
    thread::sleep((opened + FROZEN_UNTIL).saturating_duration_since(frozen_at));
    resume(stopped);
    let frozen_seconds = frozen_at.elapsed().as_secs_f64();
    let result = CommandResult::from_output(child.wait_with_output().unwrap());
    FrozenTrial { trial: db.record("cut.json"), result, frozen_seconds }
}

struct FrozenTrial {
    trial: Value,
    result: CommandResult,
    /// Seconds.
    frozen_seconds: f64,
}

/// Sessions have their statement prepared before the window opens; then each of them executes it.
fn wait_for_sessions(db: &TestDatabase, child: &Child) -> Vec<Pid> {
    let sql = "SELECT pid, query_start::text FROM pg_stat_activity \
               WHERE datname = current_database() AND application_name LIKE 'pgio:%' \
               AND query LIKE 'SELECT scratch FROM%' ORDER BY pid";
    let mut client = db.client();
    let mut prepared: Vec<(i32, String)> = Vec::new();
    wait_until("the sessions are at work", || {
        let rows = client.query(sql, &[]).unwrap();
        let sessions: Vec<_> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        if prepared.len() < 4 {
            prepared = sessions;
            return false;
        }
        sessions.len() == 4 && sessions.iter().zip(&prepared).all(|(now, then)| now.1 != then.1)
    });
    assert!(child.id() > 0);
    prepared.iter().map(|(pid, _)| Pid::from_raw(*pid).unwrap()).collect()
}

/// The value, and whether it is a lower bound.
fn metric(trial: &Value, name: &str) -> (f64, bool) {
    let metric = &trial["metrics"][name];
    let value = metric["value"].as_f64().unwrap_or_else(|| panic!("no {name} in {trial:#}"));
    (value, metric["at_least"] == true)
}

/// Hundreds of calls were due while it was frozen: the percentile is most of that time.
fn assert_stall_counted(frozen: &FrozenTrial) {
    let FrozenTrial { trial, result, frozen_seconds } = frozen;
    for name in ["read_latency_p99", "schedule_lag_p99"] {
        let (seconds, at_least) = metric(trial, name);
        assert!(at_least, "{name}: {trial:#}");
        assert!(
            (0.5 * frozen_seconds..2.0 * frozen_seconds + 1.0).contains(&seconds),
            "{name} {seconds} of {frozen_seconds}"
        );
    }
    assert!(metric(trial, "read_latency_mean").1 && metric(trial, "read_latency_p99_9").1);
    let (median, at_least) = metric(trial, "read_latency_p50");
    assert!(median < 0.5 * frozen_seconds && !at_least, "{median} of {frozen_seconds}");
    let reads = &trial["histograms"]["read"];
    let lost = reads["censored"]["count"].as_u64().unwrap();
    assert!(lost >= 100, "{reads:#}");
    // All that was due is in the histogram, answered or not.
    let due = reads["count"].as_u64().unwrap() + lost;
    assert!((3995..=4005).contains(&due), "{due}");
    assert!(result.out.contains("≥ ") && result.out.contains("cut off"), "{result:?}");
    let slices = trial["timeline"].as_array().unwrap();
    let mean = |s: &Value| s["latency_seconds"].as_f64().unwrap() / s["timed"].as_f64().unwrap();
    // Without what was cut off, the last slice would be as quick as the others.
    let (last, others) = slices.split_last().unwrap();
    let quickest = others.iter().map(mean).fold(f64::INFINITY, f64::min);
    assert!(mean(last) > 3.0 * quickest, "{slices:#?}");
}

#[test]
fn a_lock_until_after_the_windows_end_is_in_the_percentiles() {
    let lock = |db: &TestDatabase, _: &[Pid]| {
        let mut client = db.client();
        client.batch_execute("BEGIN; LOCK TABLE pgio1 IN ACCESS EXCLUSIVE MODE").unwrap();
        client
    };
    assert_stall_counted(&trial(&["--rate", "1000"], lock, drop));
}

#[test]
fn a_server_frozen_past_the_end_of_the_window_is_in_the_percentiles() {
    let signal = |pids: &[Pid], signal| pids.iter().for_each(|p| kill_process(*p, signal).unwrap());
    let stop = |_: &TestDatabase, pids: &[Pid]| {
        signal(pids, Signal::STOP);
        pids.to_vec()
    };
    assert_stall_counted(&trial(&["--rate", "1000"], stop, |pids| signal(&pids, Signal::CONT)));
}

/// Nothing is due but what was begun, and that is waited for: all is known.
#[test]
fn a_closed_loop_knows_the_latency_of_every_call() {
    let lock = |db: &TestDatabase, _: &[Pid]| {
        let mut client = db.client();
        client.batch_execute("BEGIN; LOCK TABLE pgio1 IN ACCESS EXCLUSIVE MODE").unwrap();
        client
    };
    let FrozenTrial { trial, frozen_seconds, .. } = trial(&[], lock, drop);
    let (longest, at_least) = metric(&trial, "read_latency_max");
    assert!(longest >= 0.9 * frozen_seconds && !at_least, "{longest} of {frozen_seconds}");
    assert!(trial["histograms"]["read"]["censored"].is_null());
    assert!(trial["window"]["seconds"].as_f64().unwrap() > 4.0);
}
