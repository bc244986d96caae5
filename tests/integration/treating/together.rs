//! Several treatments in one condition, and conditions of a pgio that is stopped or killed
//! while applying them.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::{check, in_namespace_or_rerun};
use crate::disk::{LoopDevice, run};
use pgio_tests::fixture::INSTALLED;
use pgio_tests::workdir::{Workdir, condition_of, failed_checks, tolerate};

/// Room for a private cluster on a file system.
const SIZE: u64 = 800 << 20;

/// `keys` go to [experiment], and each condition's treatments stand as they are.
fn experiment(keys: &str, conditions: &[(&str, &str)]) -> String {
    let mut text = format!(
        "[experiment]\nwarmup = \"500ms\"\naa = false\nrepeats = 0\n{keys}\n{}\n\
         [target]\nprivate = true\npg = {INSTALLED}\n[workload]\nkind = \"commit\"\nsessions = 4\n",
        tolerate(&[])
    );
    for (name, treatments) in conditions {
        text += &format!("[[condition]]\nname = {name:?}\n{treatments}\n");
    }
    text
}

fn formatted(device: &LoopDevice) -> String {
    format!("filesystem = {{ device = {:?}, type = \"ext4\", allow_format = true }}", device.path)
}

fn throttled(device: &LoopDevice) -> String {
    format!("throttle = {{ device = {:?}, write_iops = 200 }}", device.path)
}

fn number(device: &LoopDevice) -> String {
    run("lsblk", &["-dno", "MAJ:MIN", &device.path]).trim().to_owned()
}

fn is_limited(device: &LoopDevice) -> bool {
    let limits = fs::read_to_string("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device");
    let prefix = format!("{} ", number(device));
    limits.unwrap_or_default().lines().any(|line| line.starts_with(&prefix))
}

fn is_blank(device: &LoopDevice) -> bool {
    run("wipefs", &["--no-act", "--noheadings", &device.path]).trim().is_empty()
}

#[test]
fn a_throttle_holds_on_the_file_system_that_its_condition_makes() {
    if !in_namespace_or_rerun(
        "together::a_throttle_holds_on_the_file_system_that_its_condition_makes",
        true,
    ) {
        return;
    }
    let (device, other) = (LoopDevice::new(SIZE), LoopDevice::new(64 << 20));
    let both = format!("{}\n{}", formatted(&device), throttled(&device));
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"3s\"";
    let text = experiment(keys, &[("formatted", &formatted(&device)), ("throttled", &both)]);
    dir.compare(&text).expect(0, &[]);
    for trial in dir.trials() {
        assert_eq!(failed_checks(&trial, "invalid"), [""; 0], "{trial}");
        if condition_of(&trial) == "throttled" {
            let throttle = check(&trial, "throttle");
            let name = device.path.trim_start_matches("/dev/");
            assert!(throttle["message"].as_str().unwrap().starts_with(name), "{throttle}");
            // Two writes a commit, shared by four sessions.
            let rate = trial["metrics"]["commits_per_second"]["value"].as_f64().unwrap();
            assert!(rate < 800.0, "{rate}");
        }
    }
    assert!(!is_limited(&device) && is_blank(&device) && dir.journals().is_empty());

    // By then the server has no files there.
    let wrong = format!("{}\n{}", formatted(&device), throttled(&other));
    let result = Workdir::new().compare(&experiment(keys, &[("throttled", &wrong)]));
    result.expect(4, &["is not below what PostgreSQL", "will lie on loop"]);
    // Without the file system no server uses the device.
    let result = Workdir::new().compare(&experiment(keys, &[("throttled", &throttled(&device))]));
    result.expect(4, &["is not below what PostgreSQL", "lies on"]);
    assert!(!is_limited(&other) && is_blank(&device));
}

#[test]
fn throttle_and_file_system_are_undone_after_a_kill() {
    if !in_namespace_or_rerun("together::throttle_and_file_system_are_undone_after_a_kill", true) {
        return;
    }
    let device = LoopDevice::new(SIZE);
    let both = format!("{}\n{}", formatted(&device), throttled(&device));
    let dir = Workdir::new();
    let mut running =
        dir.start_compare(&experiment("blocks = 1\nduration = \"60s\"", &[("both", &both)]));
    running.wait_until("limited", || is_limited(&device));
    running.kill();
    dir.pgio(&["undo"]).expect(0, &["Restored write_iops", "Restored file system on"]);
    assert!(!is_limited(&device) && is_blank(&device) && dir.journals().is_empty());
}

#[test]
fn a_plan_without_a_server_lists_every_change_and_makes_none() {
    let dir = Workdir::new();
    let all = "filesystem = { device = \"/dev/pgio-none\", type = \"xfs\", options = \"noatime\", allow_format = true }\n\
        throttle = { device = \"/dev/pgio-none\", write_iops = 500, read_iops = 600 }\n\
        postgres = { wal_compression = true }\nballast = \"1G\"\ncache = \"cold\"\n\
        link = { relay = true, delay = \"1ms\" }\n\
        [condition.command]\nname = \"mine\"\napply = \"geheim\"\nverify = \"false\"\nundo = \"true\"\n";
    let text = experiment("blocks = 1\nduration = \"1s\"", &[("a", ""), ("all", all)]);
    dir.write("e.toml", &text);
    let result = dir.pgio(&["compare", "e.toml", "--plan", "--offline"]).expect(
        0,
        &[
            "a changes nothing",
            "all changes wal_compression = on in the workload's sessions if possible",
            "all changes /dev/pgio-none = xfs mounted with noatime by mkfs before each trial: its contents are lost",
            "all changes the data directory = a copy of it on /dev/pgio-none",
            "all changes cache = cold by a stop of PostgreSQL",
            "all changes memory available on the server's host = 1G by dropping caches and taking huge pages",
            "all changes the link between primary and standby = delay 1ms by a relay",
            "all changes read_iops of /dev/pgio-none = 600 in the root group of cgroup v1",
            "all changes write_iops of /dev/pgio-none = 500 in the root group of cgroup v1",
            "all changes command mine = in force by your commands",
        ],
    );
    assert!(!result.out.contains("geheim"), "{result}");
    assert!(!dir.path().join("state").exists());
}

/// With a server but without the device, the plan shows known values and why others are unknown.
#[test]
fn a_plan_names_unknown_values() {
    use pgio_tests::fixture::{fresh_database, shared_primary};
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    dir.write(
        "e.toml",
        &format!(
            "[target]\ndsn = {dsn:?}\n[workload]\nkind = \"commit\"\n[[condition]]\nname = \"a\"\n\
             throttle = {{ device = \"/dev/pgio-none\", write_iops = 500 }}\n\
             postgres = {{ synchronous_commit = \"off\" }}\n"
        ),
    );
    dir.pgio(&["compare", "e.toml", "--plan", "--offline"]).expect(
        0,
        &[
            "a changes synchronous_commit = off in the workload's sessions; now on",
            "a changes write_iops of /dev/pgio-none = 500",
            "; current value unknown: /dev/pgio-none is not a block device on host local",
        ],
    );
}

/// The command continues after a kill, and its undo must wait until it ends.
#[test]
fn an_undo_waits_for_the_command_of_a_killed_run() {
    let dir = Workdir::new();
    let (begun, value) = (dir.path().join("begun"), dir.path().join("value"));
    fs::write(&value, "prior\n").unwrap();
    let [begun_at, value_at] = [&begun, &value].map(|path| path.display().to_string());
    let command = format!(
        "[condition.command]\nname = \"slow\"\nprobe = [\"cat\", {value_at:?}]\n\
         apply = \"touch {begun_at}; sleep 3; echo ours >{value_at}\"\n\
         verify = \"grep -qx ours {value_at}\"\nundo = \"echo $PGIO_PRIOR >{value_at}\"\n"
    );
    let keys = "blocks = 1\nduration = \"1s\"";
    let mut running = dir.start_compare(&experiment(keys, &[("a", &command)]));
    running.wait_until("begun", || begun.exists());
    running.kill();
    dir.pgio(&["undo"]).expect(0, &["Restored command `slow`"]);
    thread::sleep(Duration::from_secs(4));
    assert_eq!(fs::read_to_string(&value).unwrap(), "prior\n");
}

/// A stop while a condition is being applied: nothing is measured, and everything is undone.
#[test]
fn a_stop_while_applying_a_condition_undoes_it() {
    let dir = Workdir::new();
    let [begun, go, value] = ["begun", "go", "value"].map(|name| dir.path().join(name));
    let [begun_at, go_at, value_at] = [&begun, &go, &value].map(|path| path.display().to_string());
    // It stops waiting when the test has ended.
    let command = format!(
        "[condition.command]\nname = \"slow\"\n\
         apply = \"touch {begun_at}; while test -e {begun_at} && ! test -e {go_at}; do sleep 0.1; done; touch {value_at}\"\n\
         verify = \"test -e {value_at}\"\nundo = \"rm {value_at}\"\n"
    );
    let mut running =
        dir.start_compare(&experiment("blocks = 1\nduration = \"60s\"", &[("a", &command)]));
    running.wait_until("begun", || begun.exists());
    running.signal(Signal::INT);
    let stderr = dir.path().join("stderr");
    let is_seen = || fs::read_to_string(&stderr).unwrap().contains("press Ctrl-C again");
    running.wait_until("the signal is seen", is_seen);
    fs::write(&go, "").unwrap();
    running.wait().expect(130, &["--resume"]);
    assert!(!value.exists() && dir.journals().is_empty());
    assert!(fs::read_to_string(dir.out().join("trials.jsonl")).unwrap_or_default().is_empty());
}
