//! Calls cut off by the end of a window: due in an open loop but not answered.
//!
//! They are no less slow than those in the middle of the window, and a percentile among them is a
//! lower bound.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::command::{CommandResult, Place, wait_until};
use crate::fixture::INSTALLED;

/// Time in the window before the server freezes.
const QUIET: Duration = Duration::from_millis(2500);
/// After the window's opening: past its end.
const STANDS_UNTIL: Duration = Duration::from_millis(3200);

/// A window of 3 s; `stop` makes the server stand still, and is what lets it go on again.
fn trial<R>(more: &[&str], stop: impl FnOnce(&Place, &[Pid]) -> R, go_on: impl FnOnce(R)) -> Cut {
    let place = Place::new(INSTALLED);
    place.load(1, "8M");
    let work = ["run", "--run-time", "3", "--num-threads", "4", "--work-unit", "1"];
    let json = ["--telemetry", "0", "--json", "cut.json", "--engine", "client"];
    let mut command = place.command(&[&work[..], &json, more].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pids = at_work(&place, &child);
    let opened = Instant::now();
    thread::sleep(QUIET);
    let stopped = stop(&place, &pids);
    let stands = Instant::now();
    thread::sleep((opened + STANDS_UNTIL).saturating_duration_since(stands));
    go_on(stopped);
    let stood = stands.elapsed().as_secs_f64();
    let result = CommandResult::of(child.wait_with_output().unwrap());
    Cut { trial: place.record("cut.json"), result, stood }
}

struct Cut {
    trial: Value,
    result: CommandResult,
    /// Seconds.
    stood: f64,
}

fn at_work(place: &Place, child: &Child) -> Vec<Pid> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
               AND application_name LIKE 'pgio:%' AND query LIKE 'SELECT scratch FROM%'";
    let mut client = place.client();
    let mut pids: Vec<Pid> = Vec::new();
    wait_until("the sessions are at work", || {
        let rows = client.query(sql, &[]).unwrap();
        pids = rows.iter().map(|row| Pid::from_raw(row.get(0)).unwrap()).collect();
        pids.len() == 4
    });
    assert!(child.id() > 0);
    pids
}

/// The value, and whether it is a lower bound.
fn metric(trial: &Value, name: &str) -> (f64, bool) {
    let metric = &trial["metrics"][name];
    let value = metric["value"].as_f64().unwrap_or_else(|| panic!("no {name} in {trial:#}"));
    (value, metric["at_least"] == true)
}

/// Hundreds of calls were due while it was frozen: the percentile is most of that time.
fn assert_seen(cut: &Cut) {
    let Cut { trial, result, stood } = cut;
    for name in ["read_latency_p99", "schedule_lag_p99"] {
        let (seconds, at_least) = metric(trial, name);
        assert!(at_least, "{name}: {trial:#}");
        assert!((0.5 * stood..2.0 * stood + 1.0).contains(&seconds), "{name} {seconds} of {stood}");
    }
    assert!(metric(trial, "read_latency_mean").1 && metric(trial, "read_latency_p99_9").1);
    let (median, at_least) = metric(trial, "read_latency_p50");
    assert!(median < 0.5 * stood && !at_least, "{median} of {stood}");
    let reads = &trial["histograms"]["read"];
    let lost = reads["censored"]["count"].as_u64().unwrap();
    assert!(lost >= 100, "{reads:#}");
    // All that was due is in the histogram, answered or not.
    let due = reads["count"].as_u64().unwrap() + lost;
    assert!((2995..=3005).contains(&due), "{due}");
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
    let lock = |place: &Place, _: &[Pid]| {
        let mut client = place.client();
        client.batch_execute("BEGIN; LOCK TABLE pgio1 IN ACCESS EXCLUSIVE MODE").unwrap();
        client
    };
    assert_seen(&trial(&["--rate", "1000"], lock, drop));
}

#[test]
fn a_server_frozen_past_the_end_of_the_window_is_in_the_percentiles() {
    let signal = |pids: &[Pid], signal| pids.iter().for_each(|p| kill_process(*p, signal).unwrap());
    let stop = |_: &Place, pids: &[Pid]| {
        signal(pids, Signal::STOP);
        pids.to_vec()
    };
    assert_seen(&trial(&["--rate", "1000"], stop, |pids| signal(&pids, Signal::CONT)));
}

/// Nothing is due but what was begun, and that is waited for: all is known.
#[test]
fn a_closed_loop_knows_the_latency_of_every_call() {
    let lock = |place: &Place, _: &[Pid]| {
        let mut client = place.client();
        client.batch_execute("BEGIN; LOCK TABLE pgio1 IN ACCESS EXCLUSIVE MODE").unwrap();
        client
    };
    let Cut { trial, stood, .. } = trial(&[], lock, drop);
    let (longest, at_least) = metric(&trial, "read_latency_max");
    assert!(longest >= 0.9 * stood && !at_least, "{longest} of {stood}");
    assert!(trial["histograms"]["read"]["censored"].is_null());
    assert!(trial["window"]["seconds"].as_f64().unwrap() > 3.0);
}
