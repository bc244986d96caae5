//! The treatment `filesystem` on real loop devices: mount options and their undo; `formatting` has new
//! file systems under a private cluster.
//!
//! For root only; otherwise each test prints that it is skipped. A test runs again as a
//! process in its own mount namespace, where mounts of other programs do not interfere. Long, since every
//! test needs the disk and the readings of the first hundred lines.

/// Leaves the test unless it runs in a mount namespace of its own.
macro_rules! in_namespace_of_its_own {
    () => {
        fn here() {}
        if !crate::filesystems::in_namespace_or_rerun(std::any::type_name_of_val(&here)) {
            return;
        }
    };
}

mod formatting;
mod tablespace;
mod undoing;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use pgio::rng::SplitMix64;
use serde_json::Value;

use self::formatting::holds;
use crate::controlling::Managed;
use crate::disk::{LoopDevice, is_inside, is_root, run, run_inside};
use crate::examples;
use crate::killing::kills;
use pgio_tests::fixture::is_installed;
use pgio_tests::workdir::{
    NEIGHBOR_CHECKS, Running, Workdir, failed_checks, is_at_work, tolerate, wait_until,
};

/// mkfs.xfs makes none below 300 MiB.
const SIZE: u64 = 800 << 20;

/// Returns true inside a mount namespace; otherwise reruns the test in one, if possible, and returns false. `here` is
/// the path of a function inside the test.
fn in_namespace_or_rerun(here: &str) -> bool {
    let test = here.strip_prefix("integration::").and_then(|path| path.strip_suffix("::here"));
    let test = test.unwrap_or_else(|| panic!("{here} is not in a test"));
    if is_inside(test) {
        return true;
    }
    if ["mkfs.xfs", "mkfs.btrfs"].into_iter().all(is_installed) && is_root(test) {
        run_inside(test);
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

    /// The state to be restored: everything that the kernel shows of the mount.
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
        running.wait_until("in force", || self.state().contains(shown));
        let dsn = self.server.dsn();
        running.wait_until("at work", || is_at_work(&dsn));
        running
    }

    /// Simulates a kill between umount and mount: the server is down and nothing is mounted.
    fn killed_unmounted(&self, dir: &Workdir, options: &str) {
        self.in_mid_trial(dir, options, options).kill();
        self.server.stop();
        self.unmount();
    }

    /// What a killed run started may be about to end and keep the mount busy until then.
    fn unmount(&self) {
        let unmount = || Command::new("umount").arg(&self.mount.0).status().unwrap().success();
        wait_until("unmounted", unmount);
    }
}

fn is_up(dsn: &str) -> bool {
    pgio_connect::Client::connect(dsn).is_ok()
}

const ONCE: &str = "blocks = 1\nduration = \"300ms\"";
/// A target of a private cluster.
const PRIVATE: &str = "private = true\npg = 15";
const LONG: &str = "blocks = 1\nduration = \"60s\"";

/// `keys` go to [experiment]; conditions are a name and the body of `filesystem`.
fn experiment(target: &str, keys: &str, conditions: &[(&str, &str)]) -> String {
    // Telemetry finds the host of a server that is not pgio's own; its samples cost more than a short window.
    let telemetry = if target == PRIVATE { "0s" } else { "10s" };
    let mut text = format!(
        "[experiment]\nwarmup = \"0s\"\naa = false\nrepeats = 0\ntelemetry = {telemetry:?}\n{keys}\n{}\n\
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

/// Kills a run this many milliseconds after it began to change something; without them, once the
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
    running.wait_until("journaled", || !dir.journals().is_empty());
    match delay {
        Some(delay) => thread::sleep(Duration::from_millis(delay)),
        None => running.wait_until("changed", changed),
    }
    running.kill();
}

/// What runs with the state directory of this one, without the server that pgio started.
fn programs_of(dir: &Workdir) -> Vec<PathBuf> {
    let mark = format!("PGIO_STATE_DIR={}", dir.path().join("state").display());
    let runs_there = |process: &PathBuf| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        name.trim() != "postgres" && environment.split(|b| *b == 0).any(|w| w == mark.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.filter(runs_there).collect()
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
fn options_are_applied_and_undone() {
    in_namespace_of_its_own!();
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
        let result = dir.compare(&disk.experiment(ONCE, &[("plain", ""), ("changed", &body)]));
        result.expect(0, &["changed"]);
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
fn an_option_that_a_remount_ignores_takes_an_umount() {
    in_namespace_of_its_own!();
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
        let without = text.replace("control = \"pg_ctl\"\n", "");
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
fn killed_at_any_moment_the_original_options_are_restored() {
    in_namespace_of_its_own!();
    let disk = Disk::new("ext4", "noatime,commit=7");
    let before = disk.state();
    let mut random = SplitMix64::new(11);
    let mut states = Vec::new();
    for round in 0..kills(8) {
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
        wait_until("what it had started has ended by itself", || programs_of(&dir).is_empty());
        states.push(disk.state().lines().next().unwrap().to_owned());
        dir.pgio(&["undo"]).expect(0, &[]);
        assert_eq!(disk.state(), before, "round {round}: {states:?}");
        wait_until("up", || is_up(&disk.server.dsn()));
        assert!(dir.journals().is_empty());
    }
    assert!(states.iter().any(|state| !before.starts_with(state)), "{states:?}");
}

#[test]
fn undo_asks_about_a_later_remount() {
    in_namespace_of_its_own!();
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
    // An option that someone else set stays.
    let dir = Workdir::new();
    disk.in_mid_trial(&dir, "commit=9", "commit=9").kill();
    disk.remount("max_batch_time=0");
    dir.pgio(&["undo"]).expect(0, &["Restored mount options of"]);
    disk.remount("max_batch_time=15000");
    assert_eq!(disk.state(), before);
}

#[test]
fn undo_handles_a_missing_file_system() {
    in_namespace_of_its_own!();
    let disk = Disk::new("ext4", "noatime");
    let before = disk.state();
    let dir = Workdir::new();
    // Simulate a reboot: mounted again, with the usual options.
    disk.in_mid_trial(&dir, "barrier=0", "nobarrier").kill();
    disk.server.stop();
    disk.unmount();
    run("mount", &["-o", "noatime", &disk._device.path, disk.mount.0.to_str().unwrap()]);
    let table = "Still in place: table public.pgio_commit";
    dir.pgio(&["undo"]).expect(0, &["Restored mount options", table]);
    assert_eq!(disk.state(), before);
    disk.server.start_again("");
    dir.pgio(&["undo"]).expect(0, &["Removed table public.pgio_commit"]);
    let dir = Workdir::new();
    disk.killed_unmounted(&dir, "data=journal");
    dir.pgio(&["undo"]).expect(0, &["Restored mount options of", "Restored PostgreSQL"]);
    assert_eq!(disk.state(), before);
    assert!(is_up(&disk.server.dsn()), "started by undo");
}

#[test]
fn unsuitable_mount_options_are_refused_before_anything_is_changed() {
    in_namespace_of_its_own!();
    let disk = Disk::new("xfs", "noatime");
    let before = disk.state();
    let refused = |target: &str, body: &str, expected: &[&str]| {
        let dir = Workdir::new();
        dir.compare(&experiment(target, ONCE, &[("a", ""), ("b", body)])).expect(4, expected);
        assert!(!dir.out().exists() && dir.journals().is_empty());
    };
    let target = disk.server.target();
    refused(&target, "options = \"barrier=0\"", &["since Linux 4.19"]);
    refused(&target, "options = \"max_batch_time=0\"", &["pgio cannot restore", "of xfs"]);
    refused(
        &target,
        "options = \"sync\", mount = \"/proc\"",
        &["is not a mount that PostgreSQL", "a mount"],
    );
    let below = disk.mount.0.join("below");
    fs::create_dir(&below).unwrap();
    run("mount", &["-t", "tmpfs", "none", below.to_str().unwrap()]);
    refused(&target, "options = \"wsync\"", &["cannot be unmounted while"]);
    run("umount", &[below.to_str().unwrap()]);
    run("mount", &["--bind", disk.mount.0.to_str().unwrap(), "/mnt"]);
    refused(&target, "options = \"wsync\"", &["also mounted at /mnt"]);
    refused(
        &target,
        "options = \"sync\"",
        &["sync would affect the whole", "at /mnt too", "mount = "],
    );
    run("umount", &["/mnt"]);
    let device = "device = \"/dev/loop77\", type = \"xfs\", allow_format = true";
    refused(&target, device, &["private = true"]);
    assert_eq!(disk.state(), before);
}

#[test]
fn the_example_of_mount_options() {
    in_namespace_of_its_own!();
    let device = LoopDevice::new(2 << 30);
    let short = [("blocks", "1"), ("warmup", "\"0s\""), ("duration", "\"300ms\"")];
    let text = examples::bare(&examples::example("ext4-options.toml"));
    let text = examples::replace_keys(&text, &short);
    let (_dir, results) = examples::compare(&text.replace("/dev/loop7", &device.path), "");
    let trials = examples::stored(&results);
    assert_eq!(examples::conditions(&trials).len(), 6);
    for trial in &trials {
        // Ignore checks that other tests on this machine may fail.
        let failed = failed_checks(trial, "invalid");
        assert!(failed.iter().all(|id| NEIGHBOR_CHECKS.contains(&id.as_str())), "{failed:?}");
    }
    assert_eq!(holds(&device), "");
}

#[test]
fn the_root_file_system_needs_a_confirmation() {
    in_namespace_of_its_own!();
    let info = fs::read_to_string("/proc/self/mountinfo").unwrap();
    if info.lines().any(|line| line.contains(" /var ") || line.contains(" /var/tmp ")) {
        pgio_tests::skipped("/var/tmp does not lie on the root file system");
        return;
    }
    let dir = Workdir::new();
    let text = experiment(PRIVATE, ONCE, &[("b", "options = \"lazytime\"")]);
    dir.compare(&text).expect(4, &["root file system", "mount = \"/\""]);
}
