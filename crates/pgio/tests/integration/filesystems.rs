//! The treatment `filesystem` on real loop devices: options that come into force and go again, new
//! file systems under a private cluster, and what is never formatted.
//!
//! For root only; elsewhere each test says in a line that it is skipped. A test runs again as a
//! process in a mount name space of its own, where nobody else's mounts come and go. Long, since every
//! test needs the disk and the readings of the first hundred lines.

mod tablespace;
mod undoing;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pgio::rng::SplitMix64;
use serde_json::Value;

use crate::controlling::Managed;
use crate::disk::{LoopDevice, is_inside, is_root, run, run_inside};
use crate::examples;
use crate::fixture::is_there;
use crate::workdir::{
    NEIGHBOURS, Running, Workdir, failed_checks, sessions_at_work, tolerate, wait_until,
};

/// mkfs.xfs makes none below 300 MiB.
const SIZE: u64 = 800 << 20;

/// Whether to go on here: false where the test was run in a name space, or cannot be run at all.
fn inside(name: &str) -> bool {
    let test = format!("filesystems::{name}");
    if is_inside(&test) {
        return true;
    }
    if ["mkfs.xfs", "mkfs.btrfs"].into_iter().all(is_there) && is_root(name) {
        run_inside(&test);
    }
    false
}

/// A file system on a loop device, mounted, with a server of the user's on it.
struct Disk {
    // In the order in which they go.
    server: Managed,
    mount: Mount,
    _device: LoopDevice,
}

struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

impl Disk {
    fn new(file_system: &str, options: &str) -> Disk {
        let device = LoopDevice::new(SIZE);
        run(&format!("mkfs.{file_system}"), &["-q", &device.path]);
        let point = device.place("a mount");
        fs::create_dir(&point).unwrap();
        run("chmod", &["a+x", point.parent().unwrap().to_str().unwrap()]);
        run("mount", &["-o", options, &device.path, point.to_str().unwrap()]);
        let server = Managed::start_in(point.to_str().unwrap(), "");
        Disk { server, mount: Mount(point), _device: device }
    }

    /// What has to be the same again: all that the kernel shows of the mount.
    fn state(&self) -> String {
        let point = self.mount.0.to_str().unwrap().replace(' ', "\\040");
        let info = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = info.lines().rfind(|line| line.contains(&point)).unwrap_or("not mounted");
        let kept: Vec<&str> = line.split(' ').skip(2).collect();
        let device = Path::new(&self._device.path).file_name().unwrap().to_str().unwrap();
        let own = fs::read_to_string(format!("/proc/fs/ext4/{device}/options")).unwrap_or_default();
        format!("{}\n{own}", kept.join(" "))
    }

    fn experiment(&self, keys: &str, conditions: &[(&str, &str)]) -> String {
        experiment(&self.server.target(), keys, conditions)
    }

    fn remount(&self, options: &str) {
        let point = self.mount.0.to_str().unwrap();
        run("mount", &["-o", &format!("remount,{options}"), point]);
    }

    /// In a window that lasts, with these in force.
    fn in_mid_trial(&self, dir: &Workdir, options: &str, shown: &str) -> Running {
        let body = format!("options = {options:?}");
        let mut running = dir.start_compare(&self.experiment(LONG, &[("changed", &body)]));
        running.until("in force", || self.state().contains(shown));
        let dsn = self.server.dsn();
        running.until("at work", || is_up(&dsn) && sessions_at_work(&dsn) > 0);
        running
    }

    /// As after a kill between umount and mount, near enough: with the server down and nothing mounted.
    fn killed_unmounted(&self, dir: &Workdir, options: &str) {
        self.in_mid_trial(dir, options, options).kill();
        self.server.stop();
        run("umount", &[self.mount.0.to_str().unwrap()]);
    }
}

fn is_up(dsn: &str) -> bool {
    postgres::Client::connect(dsn, postgres::NoTls).is_ok()
}

const ONCE: &str = "blocks = 1\nduration = \"300ms\"";
const LONG: &str = "blocks = 1\nduration = \"60s\"";

/// `keys` go to [experiment]; conditions are a name and the body of `filesystem`.
fn experiment(target: &str, keys: &str, conditions: &[(&str, &str)]) -> String {
    let mut text = format!(
        "[experiment]\nwarmup = \"0s\"\naa = false\nrepeats = 0\n{keys}\n{}\n\
         [target]\n{target}\n[workload]\nkind = \"commit\"\n",
        tolerate(&[])
    );
    for (name, body) in conditions {
        text += &format!("[[condition]]\nname = {name:?}\n");
        if !body.is_empty() {
            text += &format!("filesystem = {{ {body} }}\n");
        }
    }
    text
}

/// Kills a run so many milliseconds after it began to change something; without them, once the
/// change is seen, which then lasts.
#[track_caller]
fn kill(
    dir: &Workdir,
    text: impl Fn(&str) -> String,
    delay: Option<u64>,
    changed: impl FnMut() -> bool,
) {
    let keys = if delay.is_some() { "blocks = 3\nduration = \"100ms\"" } else { LONG };
    let mut running = dir.start_compare(&text(keys));
    running.until("journaled", || !dir.journals().is_empty());
    match delay {
        Some(delay) => thread::sleep(Duration::from_millis(delay)),
        None => running.until("changed", changed),
    }
    running.kill();
}

/// The directories of private clusters that journals name.
fn clusters_of(dir: &Workdir) -> BTreeSet<String> {
    let texts = dir.journals().into_iter().map(|path| fs::read_to_string(path).unwrap());
    let text: String = texts.collect();
    let named = text.split("/var/tmp/pgio-").skip(1);
    let names = named.filter_map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next());
    names.map(|name| format!("/var/tmp/pgio-{name}")).collect()
}

/// Each piece of evidence on the mount, as found.
fn mounts_found(trial: &Value) -> Vec<String> {
    let evidence = trial["evidence"].as_array().unwrap().iter();
    let of_mount = evidence.filter(|e| e["what"].as_str().unwrap().starts_with("mount of"));
    of_mount.map(|e| e["found"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn options_come_into_force_and_go_again() {
    if !inside("options_come_into_force_and_go_again") {
        return;
    }
    for (file_system, mounted_with, changed, shown) in [
        (
            "ext4",
            "noatime,commit=7",
            "sync,barrier=0,max_batch_time=0,commit=9,relatime",
            "nobarrier,commit=9,max_batch_time=0",
        ),
        ("xfs", "strictatime", "sync,lazytime", "sync,lazytime"),
        ("btrfs", "nodiscard", "noatime,commit=9,flushoncommit,discard", "discard"),
    ] {
        let disk = Disk::new(file_system, mounted_with);
        let (before, process) = (disk.state(), disk.server.process());
        let dir = Workdir::new();
        let body = format!("options = {changed:?}");
        let said = dir.compare(&disk.experiment(ONCE, &[("plain", ""), ("changed", &body)]));
        said.expect(0, &["changed"]);
        assert_eq!(disk.state(), before, "{file_system}");
        assert_eq!(disk.server.process(), process, "a remount stops nothing");
        let trials = dir.trials();
        let trial = trials.iter().find(|t| t["place"]["condition"] == "changed").unwrap();
        let found = mounts_found(trial);
        assert!(found.len() >= 2, "{found:?}");
        assert!(found.iter().all(|f| f.contains(shown)), "{shown}: {found:?}");
        for trial in &trials {
            assert!(failed_checks(trial, "invalid").is_empty(), "{trial}");
        }
        assert!(dir.journals().is_empty());
    }
}

#[test]
fn what_a_remount_ignores_is_mounted_anew() {
    if !inside("what_a_remount_ignores_is_mounted_anew") {
        return;
    }
    for (file_system, changed, shown) in [
        ("ext4", "data=journal,noatime", "data=journal"),
        ("ext4", "nodelalloc,dirsync", "dirsync,nodelalloc"),
        ("xfs", "logbsize=256k,wsync", "logbsize=256k"),
    ] {
        let disk = Disk::new(file_system, "strictatime");
        let (before, process) = (disk.state(), disk.server.process());
        let dir = Workdir::new();
        let body = format!("options = {changed:?}");
        let conditions = [("plain", ""), ("changed", body.as_str())];
        let text = disk.experiment(ONCE, &conditions);
        let without = text.replace("control = \"pg_ctl\"", "host = \"local\"");
        Workdir::new().compare(&without).expect(4, &["control = \"pg_ctl\""]);
        dir.compare(&text).expect(0, &["changed"]);
        assert_eq!(disk.state(), before, "{changed}");
        assert_ne!(disk.server.process(), process);
        assert!(is_up(&disk.server.dsn()));
        let trials = dir.trials();
        let trial = trials.iter().find(|t| t["place"]["condition"] == "changed").unwrap();
        let found = mounts_found(trial);
        assert!(found.iter().all(|f| f.contains(shown)), "{shown}: {found:?}");
        for trial in &trials {
            assert!(failed_checks(trial, "invalid").is_empty(), "{trial}");
        }
    }
}

#[test]
fn killed_at_any_moment_the_options_found_are_put_back() {
    if !inside("killed_at_any_moment_the_options_found_are_put_back") {
        return;
    }
    let disk = Disk::new("ext4", "noatime,commit=7");
    let before = disk.state();
    let mut random = SplitMix64::new(11);
    let mut states = Vec::new();
    for round in 0..8 {
        let body = match round % 2 {
            0 => "options = \"barrier=0,relatime\"",
            _ => "options = \"data=writeback,barrier=0\"",
        };
        let conditions = [("b", body), ("c", "")];
        // A window without the change would last as long.
        let count = if round == 0 { 1 } else { 2 };
        let dir = Workdir::new();
        let text = |keys: &str| disk.experiment(keys, &conditions[..count]);
        let delay = (round > 0).then(|| random.next_u64() % 600);
        kill(&dir, text, delay, || disk.state() != before);
        // A program that it had started comes to its end by itself.
        thread::sleep(Duration::from_millis(500));
        states.push(disk.state().lines().next().unwrap().to_owned());
        dir.pgio(&["undo"]).expect(0, &[]);
        assert_eq!(disk.state(), before, "round {round}: {states:?}");
        wait_until("up", || is_up(&disk.server.dsn()));
        assert!(dir.journals().is_empty());
    }
    assert!(states.iter().any(|state| !before.starts_with(state)), "{states:?}");
}

#[test]
fn what_someone_remounted_meanwhile_is_asked_about() {
    if !inside("what_someone_remounted_meanwhile_is_asked_about") {
        return;
    }
    let disk = Disk::new("ext4", "noatime");
    let before = disk.state();
    for (flag, after) in [("--keep", "commit=17"), ("--restore", "noatime")] {
        let dir = Workdir::new();
        disk.in_mid_trial(&dir, "commit=9", "commit=9").kill();
        disk.remount("commit=17");
        dir.pgio(&["undo"]).expect(6, &["commit=17", "commit=9", "--keep", "--restore"]);
        assert!(disk.state().contains("commit=17"));
        dir.pgio(&["undo", flag]).expect(0, &["mount options of"]);
        assert!(disk.state().contains(after), "{}", disk.state());
        disk.remount("commit=5");
        assert_eq!(disk.state(), before);
    }
    // What is none of ours stays as somebody made it.
    let dir = Workdir::new();
    disk.in_mid_trial(&dir, "commit=9", "commit=9").kill();
    disk.remount("max_batch_time=0");
    dir.pgio(&["undo"]).expect(0, &["Put back mount options of"]);
    disk.remount("max_batch_time=15000");
    assert_eq!(disk.state(), before);
}

#[test]
fn a_file_system_that_is_gone_is_understood() {
    if !inside("a_file_system_that_is_gone_is_understood") {
        return;
    }
    let disk = Disk::new("ext4", "noatime");
    let before = disk.state();
    let dir = Workdir::new();
    // As after a reboot: mounted anew, with the options of always.
    disk.in_mid_trial(&dir, "barrier=0", "nobarrier").kill();
    disk.server.stop();
    run("umount", &[disk.mount.0.to_str().unwrap()]);
    run("mount", &["-o", "noatime", &disk._device.path, disk.mount.0.to_str().unwrap()]);
    let table = "Still in place: table public.pgio_commit";
    dir.pgio(&["undo"]).expect(6, &["Put back mount options", table]);
    assert_eq!(disk.state(), before);
    disk.server.start_again("");
    dir.pgio(&["undo"]).expect(0, &["Removed table public.pgio_commit"]);
    let dir = Workdir::new();
    disk.killed_unmounted(&dir, "data=journal");
    dir.pgio(&["undo"]).expect(0, &["Put back mount options of", "Put back PostgreSQL"]);
    assert_eq!(disk.state(), before);
    assert!(is_up(&disk.server.dsn()), "started by undo");
}

#[test]
fn options_refused_before_anything_is_changed() {
    if !inside("options_refused_before_anything_is_changed") {
        return;
    }
    let disk = Disk::new("xfs", "noatime");
    let before = disk.state();
    let refused = |target: &str, body: &str, expected: &[&str]| {
        let dir = Workdir::new();
        dir.compare(&experiment(target, ONCE, &[("a", ""), ("b", body)])).expect(4, expected);
        assert!(!dir.out().exists() && dir.journals().is_empty());
    };
    let target = disk.server.target();
    refused(&target, "options = \"barrier=0\"", &["since Linux 4.19"]);
    refused(&target, "options = \"max_batch_time=0\"", &["does not know how to put", "of xfs"]);
    refused(
        &target,
        "options = \"sync\", mount = \"/proc\"",
        &["is no mount that PostgreSQL", "a mount"],
    );
    let below = disk.mount.0.join("below");
    fs::create_dir(&below).unwrap();
    run("mount", &["-t", "tmpfs", "none", below.to_str().unwrap()]);
    refused(&target, "options = \"wsync\"", &["cannot be unmounted while"]);
    run("umount", &[below.to_str().unwrap()]);
    run("mount", &["--bind", disk.mount.0.to_str().unwrap(), "/mnt"]);
    refused(&target, "options = \"wsync\"", &["mounted at /mnt too"]);
    refused(&target, "options = \"sync\"", &["sync would hold for all", "at /mnt too", "mount = "]);
    run("umount", &["/mnt"]);
    let device = "device = \"/dev/loop77\", type = \"xfs\", allow_format = true";
    refused(&target, device, &["private = true"]);
    assert_eq!(disk.state(), before);
}

const PRIVATE: &str = "private = true\npg = 15";

fn format(device: &LoopDevice, more: &str) -> String {
    format!("device = {:?}, allow_format = true, {more}", device.path)
}

fn holds(device: &LoopDevice) -> String {
    run("wipefs", &["--no-act", "--noheadings", "--output", "TYPE,UUID", &device.path])
}

fn mounted(device: &LoopDevice) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", device.path))
}

#[test]
fn a_new_file_system_for_each_trial() {
    if !inside("a_new_file_system_for_each_trial") {
        return;
    }
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
    let text = experiment(PRIVATE, "blocks = 2\nduration = \"300ms\"", &conditions);
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
fn the_example_of_mount_options() {
    if !inside("the_example_of_mount_options") {
        return;
    }
    let device = LoopDevice::new(2 << 30);
    let short = [("blocks", "1"), ("warmup", "\"0s\""), ("duration", "\"300ms\"")];
    let text = examples::with(&examples::example("ext4-options.toml"), &short);
    let (_dir, results) = examples::compare(&text.replace("/dev/loop7", &device.path), "");
    let trials = examples::stored(&results);
    assert_eq!(examples::conditions(&trials).len(), 7);
    for trial in &trials {
        // What other tests do to this machine at the same time is not at issue.
        let failed = failed_checks(trial, "invalid");
        assert!(failed.iter().all(|id| NEIGHBOURS.contains(&id.as_str())), "{failed:?}");
    }
    assert_eq!(holds(&device), "");
}

#[test]
fn killed_at_any_moment_the_device_holds_nothing_again() {
    if !inside("killed_at_any_moment_the_device_holds_nothing_again") {
        return;
    }
    let device = LoopDevice::new(SIZE);
    let mut random = SplitMix64::new(5);
    let (mut held, mut clusters) = (0, BTreeSet::new());
    for round in 0..8 {
        let kind = ["ext4", "xfs", "btrfs"][round % 3];
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
    assert!(held > 0, "the first of eight moments lies between mkfs and its undo");
}

#[test]
fn what_a_device_holds_is_formatted_only_if_it_is_named_twice() {
    if !inside("what_a_device_holds_is_formatted_only_if_it_is_named_twice") {
        return;
    }
    let device = LoopDevice::new(SIZE);
    let run_with = |more: &str| {
        let dir = Workdir::new();
        let body = format(&device, &format!("type = \"ext4\"{more}"));
        (dir.compare(&experiment(PRIVATE, ONCE, &[("b", &body)])), dir)
    };
    let refused = |more: &str, expected: &[&str]| {
        let (said, dir) = run_with(more);
        said.expect(4, expected);
        assert!(dir.journals().is_empty());
    };
    let uuid = device.format();
    refused("", &["holds ext4", &format!("name it too: uuid = \"{uuid}\"")]);
    refused(", uuid = \"00000000-0000-4000-8000-000000000000\"", &["holds ext4"]);
    let point = device.mount();
    fs::write(point.join("precious"), "as it was").unwrap();
    refused(&format!(", uuid = \"{uuid}\""), &["in use", "mounted on"]);
    assert_eq!(fs::read_to_string(point.join("precious")).unwrap(), "as it was");
    device.unmount();
    assert!(holds(&device).contains(&uuid));

    let (said, dir) = run_with(&format!(", uuid = \"{uuid}\""));
    said.expect(0, &[]);
    assert!(failed_checks(&dir.trials()[0], "invalid").is_empty());
    assert_eq!(holds(&device), "", "neither the former nor ours");

    fs::write(&device.path, partition_table()).unwrap();
    refused("", &["holds dos"]);
    run("wipefs", &["--all", "--quiet", &device.path]);
    run("mkswap", &["-q", &device.path]);
    refused("", &["holds swap"]);
    run("wipefs", &["--all", "--quiet", &device.path]);

    let small = LoopDevice::new(64 << 20);
    let body = format(&small, "type = \"ext4\"");
    let said = Workdir::new().compare(&experiment(PRIVATE, ONCE, &[("b", &body)]));
    said.expect(4, &["too little for the data directory"]);
    let body = "device = \"/dev/no-such\", type = \"ext4\", allow_format = true";
    let said = Workdir::new().compare(&experiment(PRIVATE, ONCE, &[("b", body)]));
    said.expect(4, &["there is no /dev/no-such"]);
}

/// With its metadata on another device nothing of DRBD can be seen on the disk itself.
#[test]
fn a_disk_that_drbd_is_configured_for_is_never_formatted() {
    if !inside("a_disk_that_drbd_is_configured_for_is_never_formatted") {
        return;
    }
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

/// One Linux partition of 2 MiB.
fn partition_table() -> [u8; 512] {
    let mut sector = [0; 512];
    sector[446 + 4] = 0x83;
    sector[446 + 9] = 8;
    sector[446 + 13] = 16;
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

#[test]
fn what_someone_made_on_the_device_meanwhile_is_never_cleared() {
    if !inside("what_someone_made_on_the_device_meanwhile_is_never_cleared") {
        return;
    }
    let device = LoopDevice::new(SIZE);
    let body = format(&device, "type = \"ext4\"");
    let dir = Workdir::new();
    let mut running = dir.start_compare(&experiment(PRIVATE, LONG, &[("b", &body)]));
    running.until("mounted", || {
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
    dir.pgio(&["undo", "--restore"]).expect(0, &["Left file system on"]);
    assert!(holds(&device).contains(&uuid));
}

#[test]
fn a_root_file_system_is_meant_only_if_it_is_said() {
    if !inside("a_root_file_system_is_meant_only_if_it_is_said") {
        return;
    }
    let info = fs::read_to_string("/proc/self/mountinfo").unwrap();
    if info.lines().any(|line| line.contains(" /var ") || line.contains(" /var/tmp ")) {
        eprintln!("skipped: /var/tmp does not lie on the root file system");
        return;
    }
    let dir = Workdir::new();
    let text = experiment(PRIVATE, ONCE, &[("b", "options = \"lazytime\"")]);
    dir.compare(&text).expect(4, &["root file system", "mount = \"/\""]);
}
