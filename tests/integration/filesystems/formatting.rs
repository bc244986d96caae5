//! New file systems under a private cluster, and devices that are never formatted.

use std::collections::BTreeSet;
use std::fs;

use pgio::rng::SplitMix64;

use super::{LONG, ONCE, PRIVATE, SIZE, clusters_of, experiment, kill, mounts_found};
use crate::disk::{LoopDevice, run};
use crate::killing::kills;
use pgio_tests::workdir::{Workdir, failed_checks, wait_until};

pub(super) fn format(device: &LoopDevice, more: &str) -> String {
    format!("device = {:?}, allow_format = true, {more}", device.path)
}

pub(super) fn holds(device: &LoopDevice) -> String {
    run("wipefs", &["--no-act", "--noheadings", "--output", "TYPE,UUID", &device.path])
}

pub(super) fn mounted(device: &LoopDevice) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", device.path))
}

#[test]
fn a_new_file_system_for_each_trial() {
    in_namespace_of_its_own!();
    let device = LoopDevice::new(SIZE);
    let bodies = [
        ("ext4", format(&device, "type = \"ext4\"")),
        (
            "nobarrier",
            format(
                &device,
                "type = \"ext4\", options = \"barrier=0,noatime\", mkfs = [\"-O\", \"^has_journal\", \"-b\", \"4096\"]",
            ),
        ),
        ("xfs", format(&device, "type = \"xfs\", options = \"logbsize=256k\"")),
        ("btrfs", format(&device, "type = \"btrfs\", options = \"nodatacow\"")),
    ];
    let mut conditions: Vec<(&str, &str)> = vec![("plain", "")];
    conditions.extend(bodies.iter().map(|(name, body)| (*name, body.as_str())));
    let dir = Workdir::new();
    // One block: each trial but one formats what the one before it had on the device.
    let text = experiment(PRIVATE, ONCE, &conditions);
    dir.compare(&text).expect(0, &["nobarrier"]);
    assert_eq!(holds(&device), "");
    assert!(!mounted(&device) && dir.journals().is_empty());
    for trial in dir.trials() {
        assert!(failed_checks(&trial, "invalid").is_empty(), "{trial}");
        let found = mounts_found(&trial);
        let expected = match trial["place"]["condition"].as_str().unwrap() {
            "plain" => continue,
            "ext4" => "ext4 rw,relatime",
            "nobarrier" => "ext4 rw,noatime,nobarrier",
            "xfs" => "logbsize=256k",
            _ => "nodatacow",
        };
        assert!(found.len() >= 2 && found.iter().all(|f| f.contains(expected)), "{found:?}");
    }
}

#[test]
fn killed_at_any_moment_the_device_is_cleared() {
    in_namespace_of_its_own!();
    let device = LoopDevice::new(SIZE);
    let mut random = SplitMix64::new(5);
    let (mut held, mut clusters) = (0, BTreeSet::new());
    for round in 0..kills(8) {
        let kind = ["ext4", "xfs", "btrfs"][round as usize % 3];
        let body = format(&device, &format!("type = {kind:?}"));
        let dir = Workdir::new();
        let text = |keys: &str| experiment(PRIVATE, keys, &[("b", &body)]);
        let delay = (round > 0).then(|| random.next_u64() % 1500);
        kill(&dir, text, delay, || mounted(&device));
        clusters.extend(clusters_of(&dir));
        held += usize::from(!holds(&device).is_empty());
        dir.pgio(&["undo"]).expect(0, &[]);
        assert_eq!(holds(&device), "", "round {round}");
        assert!(!mounted(&device) && dir.journals().is_empty());
    }
    assert!(!clusters.is_empty(), "journals name what is mounted over");
    for cluster in clusters {
        let left = format!("ls -d {cluster}/*.pgio-copy {cluster}/primary/lost+found");
        let look = format!("{left} 2>/dev/null || :");
        wait_until("its directories are gone", || run("sh", &["-c", &look]).is_empty());
    }
    assert!(held > 0, "the first moment lies between mkfs and its undo");
}

#[test]
fn a_device_is_formatted_only_if_named_twice() {
    in_namespace_of_its_own!();
    let device = LoopDevice::new(SIZE);
    let run_with = |more: &str| {
        let dir = Workdir::new();
        let body = format(&device, &format!("type = \"ext4\"{more}"));
        (dir.compare(&experiment(PRIVATE, ONCE, &[("b", &body)])), dir)
    };
    let refused = |more: &str, expected: &[&str]| {
        let (result, dir) = run_with(more);
        result.expect(4, expected);
        assert!(dir.journals().is_empty());
    };
    let uuid = device.format();
    refused("", &["holds ext4", &format!("confirm it: uuid = \"{uuid}\"")]);
    let point = device.mount();
    fs::write(point.join("precious"), "as it was").unwrap();
    refused(&format!(", uuid = \"{uuid}\""), &["in use", "mounted on"]);
    assert_eq!(fs::read_to_string(point.join("precious")).unwrap(), "as it was");
    device.unmount();
    assert!(holds(&device).contains(&uuid));

    let (result, dir) = run_with(&format!(", uuid = \"{uuid}\""));
    result.expect(0, &[]);
    assert!(failed_checks(&dir.trials()[0], "invalid").is_empty());
    assert_eq!(holds(&device), "", "neither the former nor ours");

    let small = LoopDevice::new(64 << 20);
    let body = format(&small, "type = \"ext4\"");
    let result = Workdir::new().compare(&experiment(PRIVATE, ONCE, &[("b", &body)]));
    result.expect(4, &["too little for the data directory"]);
    // What else a device must not hold: `tablespace`, where no refusal takes a new server.
}

/// With its metadata on another device nothing of DRBD can be seen on the disk itself.
#[test]
fn a_disk_that_drbd_is_configured_for_is_never_formatted() {
    in_namespace_of_its_own!();
    let (device, dir) = (LoopDevice::new(SIZE), Workdir::new());
    dir.write(
        "drbdadm",
        &format!("#!/bin/sh\n[ \"$*\" = 'sh-ll-dev all' ] && echo {}\n", device.path),
    );
    run("chmod", &["+x", dir.path().join("drbdadm").to_str().unwrap()]);
    dir.write("e.toml", &experiment(PRIVATE, ONCE, &[("b", &format(&device, "type = \"ext4\""))]));
    let mut command = dir.command(&["compare", "e.toml"]);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", dir.path().display()));
    dir.start(command).wait().expect(4, &["contains DRBD metadata"]);
    assert_eq!(holds(&device), "");
}

#[test]
fn undo_never_clears_a_foreign_file_system() {
    in_namespace_of_its_own!();
    let device = LoopDevice::new(SIZE);
    let body = format(&device, "type = \"ext4\"");
    let dir = Workdir::new();
    let mut running = dir.start_compare(&experiment(PRIVATE, LONG, &[("b", &body)]));
    running.wait_until("mounted", || {
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains("/primary rw")
    });
    running.kill();
    wait_until("the servers are gone", || {
        fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .filter(|l| l.contains(&device.path))
            .all(|line| {
                let point = line.split(' ').nth(4).unwrap();
                std::process::Command::new("umount").arg(point).output().unwrap().status.success()
            })
    });
    run("wipefs", &["--all", "--quiet", &device.path]);
    let uuid = device.format();
    dir.pgio(&["undo"]).expect(6, &[&uuid, "--keep", "--restore"]);
    dir.pgio(&["undo", "--restore"]).expect(0, &["Kept file system on"]);
    assert!(holds(&device).contains(&uuid));
}
