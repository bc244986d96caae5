//! kill -9 at any moment of an experiment that uses every treatment: `pgio undo` puts back exactly
//! what was there.
//!
//! The server, its loop device, the limits and the control groups are real; what this machine has
//! not (DRBD, netem) is played by the programs in killing/fakes. PGIO_TEST_KILLS is the number of
//! moments, here and in the other tests that kill; a few are enough for every day.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pgio::pg::private::{PrivateCluster, Spec};
use pgio::rng::SplitMix64;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::disk::{self, LoopDevice, run};
use pgio_tests::fixture::{INSTALLED, spec};
use pgio_tests::workdir::{CommandResult, Running, Workdir, alter_system, show, wait_until};

/// From the start of pgio: refused before, and several blocks after.
const EARLIEST_MS: u64 = 300;
const LATEST_MS: u64 = 3000;

/// So many on an ordinary day.
pub(crate) fn kills(ordinary: u64) -> u64 {
    std::env::var("PGIO_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(ordinary)
}

#[test]
fn killed_at_any_moment_everything_is_restored() {
    if !disk::is_root("killing") {
        return;
    }
    let stage = Stage::set_up();
    let before = stage.snapshot();
    let mut random = SplitMix64::new(11);
    let (mut open, mut changed) = (BTreeSet::new(), 0);
    let kills = kills(7);
    for kill in 0..kills {
        let begun = Instant::now();
        let mut running = if kill == 0 { stage.start_lasting() } else { stage.start() };
        match kill {
            // One inside a change and one before any, whatever the others are.
            0 => running.wait_until("all in force", || stage.is_all_in_force()),
            4 => {}
            _ => {
                let moment = EARLIEST_MS + random.next_u64() % (LATEST_MS - EARLIEST_MS);
                thread::sleep(Duration::from_millis(moment));
            }
        }
        let moment = begun.elapsed().as_millis();
        // Every other time all that pgio started goes as well, as when a machine goes down.
        stage.kill(running, kill % 2 == 1);
        open.insert(stage.open_steps());
        changed += usize::from(stage.snapshot() != before);
        if kill % 3 == 2 {
            // An undo that is killed in its turn is taken up by the next one.
            let undo = stage.start_undo(&[]);
            thread::sleep(Duration::from_millis(random.next_u64() % 300));
            stage.kill_if_running(undo);
        }
        stage.undo(&[]).expect(0, &[]);
        stage
            .assert_same(&before, &format!("killed for the {}. time, after {moment} ms", kill + 1));
        assert_eq!(stage.undo(&[]).expect(0, &[]).out, stage.dir.nothing_to_undo());
    }
    eprintln!("{kills} kills, {changed} left something; steps not taken back: {open:?}");
    assert!(changed > 0 && open.len() > 1, "some moments lie inside a change: {open:?}");
}

#[test]
fn undo_asks_about_later_changes_and_handles_a_reboot() {
    if !disk::is_root("killing") {
        return;
    }
    let stage = Stage::set_up();
    let before = stage.snapshot();
    let kill_in_force = || {
        let mut running = stage.start_lasting();
        running.wait_until("all in force", || stage.is_all_in_force());
        let ours = fs::read_to_string(stage.state(QDISC)).unwrap();
        stage.kill(running, true);
        ours
    };

    // On one machine it asks about the first change only, but a changed setting of the server blocks no other step
    // there. What the stranger puts back is undone.
    let discipline = kill_in_force();
    FOREIGN_CHANGES.iter().for_each(|object| stage.change(object, None));
    let (mut left, mut rounds) = (FOREIGN_CHANGES.to_vec(), 0);
    while !left.is_empty() {
        let asked = stage.undo(&[]).expect(6, &["someone changed it since", "--keep", "--restore"]);
        let is_asked = |object: &&str| {
            asked.out.lines().any(|l| l.contains(object) && l.contains("someone changed it since"))
        };
        let (named, others): (Vec<&str>, Vec<&str>) = left.iter().partition(|o| is_asked(o));
        assert!(!named.is_empty(), "{left:?}: {asked}");
        assert_eq!(stage.dir.journals().len(), 1, "{asked}");
        assert_ne!(stage.snapshot(), before, "a stranger's value stays until he is asked");
        named.iter().for_each(|object| stage.change(object, Some(&discipline)));
        (left, rounds) = (others, rounds + 1);
    }
    assert!(rounds > 1);
    stage.undo(&[]).expect(0, &["Restored"]);
    stage.assert_same(&before, "what strangers had changed is as pgio left it");

    kill_in_force();
    FOREIGN_CHANGES.iter().for_each(|object| stage.change(object, None));
    stage.undo(&["--restore"]).expect(0, &["Restored"]);
    stage.assert_same(&before, "restored whatever strangers changed");

    kill_in_force();
    assert_ne!(stage.snapshot(), before);
    stage.reboot();
    // Only files on disk survive a reboot.
    let rebooted = stage.snapshot();
    stage.undo(&[]).expect(0, &["Restored wal_writer_delay"]);
    let after = stage.snapshot();
    assert!(stage.dir.journals().is_empty());
    for (name, value) in &after {
        let expected =
            if ["auto.conf", "file"].contains(&name.as_str()) { &before } else { &rebooted };
        assert_eq!(expected.get(name), Some(value), "{name}");
    }
    assert_eq!(before.len(), after.len());
}

const FAKES: &[(&str, &str)] = &[
    ("sh", include_str!("killing/fakes/sh")),
    ("cat", include_str!("killing/fakes/cat")),
    ("tc", include_str!("killing/fakes/tc")),
    ("unshare", include_str!("killing/fakes/unshare")),
    ("drbdsetup", include_str!("killing/fakes/drbdsetup")),
    ("drbdadm", include_str!("killing/fakes/drbdadm")),
];

/// Initial files of the fakes: none equals the configuration or a default.
const INITIAL_FILES: &[(&str, &str)] = &[
    ("proc-drbd", "version: 8.4.11 (api:1/proto:86-101)"),
    ("drbd-connection", "Connected"),
    ("drbd-protocol", "A"),
    ("drbd-al-extents", "1009"),
    ("drbd-disk-flushes", "yes"),
];

const BLKIO: &str = "/sys/fs/cgroup/blkio";
const LIMITS: [&str; 4] =
    ["read_iops_device", "write_iops_device", "read_bps_device", "write_bps_device"];

/// Objects that undo names if someone else changed them meanwhile.
const FOREIGN_CHANGES: [&str; 6] = [
    "write_iops",
    "al-extents",
    "queueing discipline of lo",
    "mounted",
    "wal_writer_delay",
    "a file",
];

const QDISC: &str = "tc-lo";

type Snapshot = BTreeMap<String, String>;

struct Stage {
    dir: Workdir,
    cluster: PrivateCluster,
    device: LoopDevice,
    mounted: PathBuf,
    fakes: TempDir,
}

impl Stage {
    fn set_up() -> Stage {
        let device = LoopDevice::new(1 << 30);
        device.format();
        let mounted = device.mount();
        let on_device = Spec { base_dir: Some(mounted.clone()), ..spec(INSTALLED) };
        let cluster = PrivateCluster::start(&on_device).unwrap();
        let dsn = cluster.primary_conninfo();
        alter_system(&dsn, "wal_writer_delay", Some("333ms"));
        wait_until("333ms", || show(&dsn, "wal_writer_delay") == "333ms");
        let fakes = tempfile::tempdir().unwrap();
        for (name, text) in FAKES {
            let program = fakes.path().join(name);
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let stage = Stage { dir: Workdir::new(), cluster, device, mounted, fakes };
        fs::create_dir(stage.state("")).unwrap();
        for (name, text) in INITIAL_FILES {
            fs::write(stage.state(name), format!("{text}\n")).unwrap();
        }
        fs::write(stage.file(), "found\n").unwrap();
        stage.limit("write_iops_device", 5000);
        stage.dir.write("experiment.toml", &stage.experiment("150ms"));
        let only = stage.experiment("60s").replace("[[condition]]\nname = \"plain\"\n", "");
        stage.dir.write("lasting.toml", &only);
        stage
    }

    /// State of the fakes.
    fn state(&self, name: &str) -> PathBuf {
        self.fakes.path().join("state").join(name)
    }

    /// That the treatment `command` writes.
    fn file(&self) -> PathBuf {
        self.dir.path().join("of the command")
    }

    fn experiment(&self, duration: &str) -> String {
        let (device, file) = (&self.device.path, self.file().display().to_string());
        let mounted = &self.mounted;
        format!(
            r#"[experiment]
name = "killing"
blocks = 1000
warmup = "0s"
duration = "{duration}"
aa = false
repeats = 0
telemetry = "0s"

[hosts.db]

[target]
dsn = {dsn:?}
host = "db"

[workload]
kind = "commit"

[[condition]]
name = "plain"

[[condition]]
name = "all"
postgres = {{ wal_writer_delay = "150ms", checkpoint_timeout = "11min" }}
drbd = {{ resource = "r0", connection = "disconnected", al-extents = 601, disk-flushes = false }}
throttle = {{ device = {device:?}, write_iops = 900, read_iops = 900 }}
ballast = {{ leave = "512M", way = "cgroup" }}
link = {{ interface = "lo", delay = "1ms" }}
filesystem = {{ options = "noatime", mount = {mounted:?} }}

[condition.command]
name = "a file"
probe = ["cat", {file:?}]
apply = "echo ours >'{file}'"
verify = "grep -qx ours '{file}'"
undo = "echo \"$PGIO_PRIOR\" >'{file}'"
"#,
            dsn = self.cluster.primary_conninfo(),
        )
    }

    fn start(&self) -> Running {
        self.start_file("experiment.toml")
    }

    /// All is in force from the first trial on, and stays so.
    fn start_lasting(&self) -> Running {
        self.start_file("lasting.toml")
    }

    fn start_file(&self, name: &str) -> Running {
        let _ = fs::remove_dir_all(self.dir.out());
        self.dir.start(self.command(&["compare", name, "--out", "out"]))
    }

    fn undo(&self, flags: &[&str]) -> CommandResult {
        self.start_undo(flags).wait()
    }

    fn start_undo(&self, flags: &[&str]) -> Running {
        self.dir.start(self.command(&[&["undo"], flags].concat()))
    }

    /// Returns the steps of all journals that were begun and not undone.
    fn open_steps(&self) -> i64 {
        let texts = self.dir.journals().into_iter().map(|path| fs::read_to_string(path).unwrap());
        let text: String = texts.collect();
        let count = |event: &str| text.matches(&format!("\"event\":\"{event}\"")).count() as i64;
        count("intent") - count("undone")
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.dir.command(arguments);
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}:{path}", self.fakes.path().display()))
            .env("FAKES", self.state(""))
            .env("FAKE_BELOW", self.device.path.trim_start_matches("/dev/"));
        command
    }

    /// With all that it started, or without: then what it left has its time to end.
    fn kill(&self, mut running: Running, with_all: bool) {
        assert!(running.is_running(), "the experiment must outlast the moment: {}", running.wait());
        if with_all {
            for pid in self.processes().into_iter().filter(|pid| *pid != running.pid()) {
                // It may have ended by itself.
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            }
        }
        self.kill_if_running(running);
    }

    fn kill_if_running(&self, running: Running) {
        running.kill();
        wait_until("all that pgio started has ended", || self.processes().is_empty());
    }

    /// Everything that runs with our surroundings.
    fn processes(&self) -> Vec<i32> {
        let mark = format!("FAKES={}", self.state("").display());
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|b| *b == 0).any(|word| word == mark.as_bytes())
        };
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|e| e.file_name().to_string_lossy().parse().ok());
        pids.filter(is_ours).collect()
    }

    /// All that the experiment changes, by name.
    fn snapshot(&self) -> Snapshot {
        let mut found = Snapshot::new();
        let mut put = |name: &str, value: String| {
            found.insert(name.to_owned(), value);
        };
        put(
            "auto.conf",
            sorted(
                &fs::read_to_string(self.cluster.data_dir().join("postgresql.auto.conf")).unwrap(),
            ),
        );
        put("file", fs::read_to_string(self.file()).unwrap());
        for limit in LIMITS {
            let text = fs::read_to_string(limit_file(limit)).unwrap_or_default();
            let own = format!("{} ", self.number());
            put(limit, text.lines().filter(|l| l.starts_with(&own)).collect());
        }
        put("mount", self.mount_options());
        put("groups of the server", self.groups());
        put("groups of ours", self.pgio_groups());
        for entry in fs::read_dir(self.state("")).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("fake {}", path.file_name().unwrap().display());
            put(&name, fs::read_to_string(path).unwrap_or_default());
        }
        found
    }

    #[track_caller]
    fn assert_same(&self, before: &Snapshot, when: &str) {
        // Processes of the server come and go.
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.snapshot() != *before && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(50));
        }
        let now = self.snapshot();
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        for name in names {
            assert_eq!(now.get(name), before.get(name), "{name}, {when}");
        }
        let dsn = self.cluster.primary_conninfo();
        wait_until("reloaded", || show(&dsn, "wal_writer_delay") == "333ms");
        assert!(self.dir.journals().is_empty(), "{when}");
    }

    fn is_all_in_force(&self) -> bool {
        // Not from a snapshot, whose other parts take longer than it may be in force.
        fs::read_to_string(self.file()).unwrap() == "ours\n"
    }

    /// Changes an object that pgio has changed, as another user would, or puts pgio's value back. The queueing
    /// discipline has a handle that pgio chose.
    fn change(&self, object: &str, discipline: Option<&str>) {
        let value = |ours, theirs| if discipline.is_some() { ours } else { theirs };
        match object {
            "wal_writer_delay" => {
                let dsn = self.cluster.primary_conninfo();
                alter_system(&dsn, object, Some(value("150ms", "777ms")));
            }
            "write_iops" => self.limit("write_iops_device", value("900", "777").parse().unwrap()),
            "al-extents" => {
                fs::write(self.state("drbd-al-extents"), value("601\n", "777\n")).unwrap();
            }
            "queueing discipline of lo" => {
                let theirs = "handle 1: netem limit 1000 delay 7ms\n";
                fs::write(self.state(QDISC), discipline.unwrap_or(theirs)).unwrap();
            }
            "mounted" => self.remount(value("noatime", "strictatime")),
            "a file" => fs::write(self.file(), value("ours\n", "a stranger's\n")).unwrap(),
            other => panic!("nobody changes {other}"),
        }
    }

    fn remount(&self, options: &str) {
        // Both are named, or the present options would be kept.
        let point = self.mounted.to_str().unwrap();
        run("mount", &["-o", &format!("remount,rw,{options}"), &self.device.path, point]);
    }

    /// Simulates a reboot: state in memory is lost; the journal is of an earlier boot.
    fn reboot(&self) {
        self.cluster.stop_primary().unwrap();
        self.limit("write_iops_device", 0);
        self.limit("read_iops_device", 0);
        // Its supervisor lives there, so it stays mounted; with the options that it is mounted by.
        self.remount("relatime");
        self.cluster.start_primary().unwrap();
        let _ = fs::remove_dir(self.pgio_groups());
        let _ = fs::remove_file(self.state(QDISC));
        for (name, text) in [
            ("drbd-connection", "Connected"),
            ("drbd-protocol", "C"),
            ("drbd-al-extents", "1237"),
            ("drbd-disk-flushes", "yes"),
        ] {
            fs::write(self.state(name), format!("{text}\n")).unwrap();
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        for journal in self.dir.journals() {
            let text = fs::read_to_string(&journal).unwrap();
            assert!(text.contains(boot.trim()), "{text}");
            fs::write(&journal, text.replace(boot.trim(), "00000000-0000-0000-0000-000000000000"))
                .unwrap();
        }
    }

    fn limit(&self, file: &str, value: u64) {
        fs::write(limit_file(file), format!("{} {value}", self.number())).unwrap();
    }

    /// `MAJOR:MINOR`
    fn number(&self) -> String {
        let device = fs::metadata(&self.device.path).unwrap().rdev();
        format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
    }

    fn mount_options(&self) -> String {
        let point = self.mounted.to_str().unwrap();
        let text =
            run("findmnt", &["--noheadings", "--output", "TARGET,SOURCE,FSTYPE,OPTIONS", point]);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn postmaster(&self) -> i32 {
        let pid = fs::read_to_string(self.cluster.data_dir().join("postmaster.pid")).unwrap();
        pid.lines().next().unwrap().parse().unwrap()
    }

    /// Each once, of all of the server's processes.
    fn groups(&self) -> String {
        let postmaster = self.postmaster();
        let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
        let children = children.unwrap_or_default();
        let pids = children.split_whitespace().map(str::to_owned).chain([postmaster.to_string()]);
        let of = |pid: String| {
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
            // One that is about to end is shown in the root group, and has no program any more.
            fs::read_link(format!("/proc/{pid}/exe")).ok().map(|_| groups)
        };
        let all: BTreeSet<String> = pids.filter_map(of).collect();
        all.into_iter().collect()
    }

    /// A directory for this server that pgio made.
    fn pgio_groups(&self) -> String {
        let name = format!("pgio-ballast-{}", self.postmaster());
        directories_named(&name, Path::new("/sys/fs/cgroup")).join("\n")
    }
}

/// At any depth. Others come and go meanwhile, which `find` would fail over.
fn directories_named(name: &str, below: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        // Not what a link leads to.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let path = entry.path();
            if entry.file_name() == name {
                found.push(path.display().to_string());
            }
            found.extend(directories_named(name, &path));
        }
    }
    found
}

fn limit_file(limit: &str) -> PathBuf {
    Path::new(BLKIO).join(format!("blkio.throttle.{limit}"))
}

/// Lines but for comments; ALTER SYSTEM keeps no order.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    lines.sort_unstable();
    lines.join("\n")
}

impl Drop for Stage {
    fn drop(&mut self) {
        if fs::metadata(limit_file(LIMITS[0])).is_ok() {
            for limit in LIMITS {
                let _ = fs::write(limit_file(limit), format!("{} 0", self.number()));
            }
        }
        // The server before its disk.
        let _ = self.cluster.stop_primary();
    }
}
