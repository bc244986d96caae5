//! Drivers on several servers in one window: each server has drivers of its own.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{APART, are_working, check, drivers_of, quiet, recounted, refused, start};
use crate::joint::databases;
use pgio_tests::workdir::{Workdir, condition_of, pgio_sessions, wait_until};

/// An experiment on server `a` alone and on both together.
fn text(dsns: &[String; 2], keys: &str, drivers: &str) -> String {
    format!(
        "[experiment]\nblocks = 1\naa = false\ntelemetry = \"0s\"\nbaseline = \"alone\"\n{}\n{keys}\n\
         [targets.a]\ndsn = {:?}\n[targets.b]\ndsn = {:?}\n\
         [workload]\nkind = \"commit\"\nengine = \"client\"\nsessions = 3\n\
         [[condition]]\nname = \"alone\"\ntarget = \"a\"\n\
         [[condition]]\nname = \"together\"\ntarget = [\"a\", \"b\"]\n\
         [drivers]\n{drivers}\n",
        quiet(),
        dsns[0],
        dsns[1]
    )
}

const OWN: &str = "spread = \"target\"";

fn ranks(trial: &Value) -> Vec<(u64, u64)> {
    let parts = trial["drivers"].as_array().unwrap().iter();
    parts.map(|p| (p["rank"].as_u64().unwrap(), p["sessions"].as_u64().unwrap())).collect()
}

fn rate(of: &Value) -> f64 {
    of["metrics"]["commits_per_second"]["value"].as_f64().unwrap_or_else(|| panic!("{of:#}"))
}

/// A complete trial has the work of all drivers of its servers, and each server counted its own.
fn assert_whole(trial: &Value) {
    assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
    let sum = check(trial, "driver-sum").unwrap_or_else(|| panic!("{trial:#}"));
    assert_eq!(sum["verdict"], "ok", "{sum}");
    match condition_of(trial) {
        "alone" => {
            recounted(trial, 2);
            assert_eq!(ranks(trial), [(0, 2), (2, 1)]);
        }
        _ => {
            let calls = recounted(trial, 4);
            assert_eq!(ranks(trial), [(0, 2), (2, 1), (1, 2), (3, 1)]);
            let seconds = trial["window"]["seconds"].as_f64().unwrap();
            assert!((rate(trial) * seconds / calls as f64 - 1.0).abs() < 1e-9);
            assert!(rate(&trial["targets"]["a"]) > 0.0 && rate(&trial["targets"]["b"]) > 0.0);
            let apart = trial["checks"].as_array().unwrap().iter();
            assert_eq!(apart.filter(|check| check["id"] == APART).count(), 1);
        }
    }
}

#[test]
fn each_server_has_drivers_of_its_own() {
    let (dir, dsns) = (Workdir::new(), databases());
    start(&dir, &text(&dsns, "duration = \"500ms\"\nwarmup = \"200ms\"", OWN), "local:4")
        .wait()
        .expect(0, &[]);
    dir.pgio(&["report", "out", "--all"]).expect(0, &["Each server"]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 2);
    trials.iter().for_each(assert_whole);
    dsns.iter().for_each(|dsn| wait_until("no session is left", || pgio_sessions(dsn) == 0));
}

#[test]
fn a_driver_of_one_server_that_is_lost_costs_the_trial_of_all() {
    let (dir, dsns) = (Workdir::new(), databases());
    let keys = "duration = \"1500ms\"\nwarmup = \"0s\"\nrepeats = 3";
    let mut pgio = start(&dir, &text(&dsns, keys, OWN), "local:4");
    pgio.wait_until("at work together", || are_working(&dsns[1], 3));
    kill_process(Pid::from_raw(drivers_of(pgio.pid())[&1]).unwrap(), Signal::KILL).unwrap();
    let result = pgio.wait().expect(0, &["driver-lost"]);
    // The thread of a server's trial ends with it; drivers that it had started must not.
    assert!(!result.err.contains("stopped by a signal"), "{result}");
    let (lost, whole): (Vec<_>, Vec<_>) =
        dir.trials().into_iter().partition(|trial| check(trial, "driver-lost").is_some());
    assert_eq!((lost.len(), condition_of(&lost[0])), (1, "together"), "{lost:#?}");
    assert!(lost[0]["metrics"].get("commits_per_second").is_none(), "{:#}", lost[0]);
    let conditions: Vec<&str> = whole.iter().map(condition_of).collect();
    assert!(conditions.contains(&"alone") && conditions.contains(&"together"), "{conditions:?}");
    whole.iter().for_each(assert_whole);
    dsns.iter().for_each(|dsn| wait_until("no session is left", || pgio_sessions(dsn) == 0));
}

#[test]
fn drivers_that_cannot_be_divided_are_refused() {
    let (dir, dsns) = (Workdir::new(), databases());
    for (drivers, engine, code, expected) in [
        ("", "local:2", 4, "condition `together` has several targets"),
        (OWN, "local:3", 4, "divides the drivers equally among 2 targets, and 3 cannot be"),
        (OWN, "local:8", 4, "4 drivers are more than the workload has sessions (3)"),
        ("spread = \"host\"", "local:2", 2, "`host` is not a way to spread the work"),
    ] {
        refused(&dir, &text(&dsns, "", drivers), &["--drivers", engine], code, expected);
    }
}
