//! `[workload]`: kinds, names, values out of range, and what a workload overrides.

use super::{error_of, read};
use crate::config::experiment::{Reset, WorkloadKind, parse};

#[test]
fn faulty_workloads_are_refused_with_line_and_key() {
    let names: Vec<&str> = WorkloadKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(
        error_of("[workload]\nkind = 'tpcc'"),
        format!(
            "x.toml:2: workload.kind: `tpcc` is not a workload; valid names: {}",
            names.join(", ")
        )
    );
    for (lines, message) in [
        (
            "[workload]\nkind = 'commit'\nupdate_pct = 10",
            "3: workload.update_pct: does not apply to the workload `commit`; delete it",
        ),
        (
            "[workload]\nconnect_string = 'x'",
            "2: workload.connect_string: belongs to the target; write dsn = \"...\" in [target]",
        ),
        (
            "[workload]\nkind = 'commit'\nrun_time = 10\ntransactions = 5",
            "4: workload.transactions: conflicts with run_time; keep only one of them",
        ),
        (
            "[workload]\nrun_time = \"10s\"\nwork_loop = 100",
            "3: workload.work_loop: conflicts with run_time; keep only one of them",
        ),
        (
            "[workload]\nrun_time = \"10s\"\nwork_loop = [100, 1000]",
            "3: workload.work_loop: conflicts with run_time; keep only one of them",
        ),
        (
            "[[workload]]\nkind = 'slob'\n[[workload]]\nkind = 'slob'",
            "3: workload.name: `slob` is the name of two workloads; use different names",
        ),
        (
            "[[workload]]\nname = 'device-latency'\nkind = 'device'\ntest = 'latency'\n\
             [[workload]]\nkind = 'device'",
            "5: workload.name: `device-latency` is the name of two workloads; use different names",
        ),
        (
            "[[workload]]\nkind = 'device'\n[[workload]]\nkind = 'device'",
            "3: workload.name: `device-throughput` is the name of two workloads; use different names",
        ),
        (
            "[workload]\nname = '../../x'",
            "2: workload.name: must be usable as a directory name: letters a to z and A to Z, digits, \
             `_`, `-`, `.` and inner spaces, at most 64 characters, not beginning with `.` or `-`",
        ),
        (
            "[workload]\nconditions = ['a', 'c']",
            "2: workload.conditions: `c` is not a condition; the nearest valid one is `a`",
        ),
        (
            "[workload]\nconditions = ['b']",
            "2: workload.conditions: must include the baseline `a`, because the others are \
             compared with it",
        ),
    ] {
        assert_eq!(error_of(lines), format!("x.toml:{message}"));
    }
}

#[test]
fn shares_of_the_calls_are_at_most_100_percent() {
    assert_eq!(
        error_of("[workload]\nscan_pct = 101"),
        "x.toml:2: workload.scan_pct: must be a number from 0 to 100 with at most three decimals, \
         not `101`"
    );
}

#[test]
fn a_hot_spot_is_at_most_the_whole_table() {
    assert_eq!(
        error_of("[workload]\nhot_spot = \"110%\""),
        "x.toml:2: workload.hot_spot: must be a part of each table such as 5%, 1024 (8 kB blocks) \
         or 8M, not `110%`"
    );
}

#[test]
fn a_number_of_transactions_replaces_the_duration() {
    let text = "[experiment]\nduration = 5\n[workload]\nkind = 'commit'\ntransactions = 10\n\
                [[condition]]\nname = 'a'\n";
    assert_eq!(read(text).workloads[0].layer.run_time, None);
}

#[test]
fn workloads_may_override_the_reset() {
    let text = |reset: &str| {
        format!(
            "[experiment]\nreset = 'reload'\n[[workload]]\nname = 'x'\nreset = '{reset}'\n\
             [[workload]]\nkind = 'commit'\n[[condition]]\nname = 'a'\n"
        )
    };
    for (name, own) in [("checkpoint", Reset::Checkpoint), ("vacuum", Reset::Vacuum)] {
        let experiment = read(&text(name));
        let resets: Vec<_> = experiment.workloads.iter().map(|w| experiment.reset_of(w)).collect();
        assert_eq!(resets, [&own, &Reset::Reload]);
    }
    let error = |reset| parse(&text(reset), "x.toml", "x", &[], &[]).unwrap_err().to_string();
    assert!(error("recreate").contains("x.toml:5: workload.reset: recreate is valid only in"));
    assert!(error("relaod").contains("the nearest valid one is `reload`"), "{}", error("relaod"));
}
