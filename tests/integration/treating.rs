//! The treatments `throttle` and `cache`, on a PostgreSQL whose data is on a loop device.
//!
//! For root, and `throttle` with cgroup v1's blkio mounted; otherwise each test prints that
//! it is skipped. A test runs again as a process in a mount namespace of its own, so that a killed
//! one leaves neither mount nor device. Long, since every test needs the server on its limited disk.

mod cache;
mod ordinary;
mod together;

use std::fs::{self, File};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pgio::host::blkio::{self, Controller, DeviceLimits, Limit, Version};
use pgio::host::exec::{CommandLine, Exec, Local};
use pgio::pg::private::{PrivateCluster, Spec};
use pgio_bench::loop_disk::{self, LoopDisk};
use serde_json::Value;

use crate::disk::{is_inside, lock_free_devices, run_inside};
use pgio_tests::fixture::{INSTALLED, pgio_exe, spec};
use pgio_tests::workdir::{
    CommandResult, Running, Workdir, active_sessions, check, condition_of, failed_checks, tolerate,
};

/// Whether to go on here: false where the test was run in a namespace, or cannot be run at all.
fn in_namespace_or_rerun(name: &str, needs_blkio: bool) -> bool {
    let test = format!("treating::{name}");
    if is_inside(&test) {
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("{name}: skipped, only root makes loop devices and drops caches");
        return false;
    }
    if needs_blkio && controller().is_none() {
        eprintln!("{name}: skipped, cgroup v1's blkio is not mounted here");
        return false;
    }
    run_inside(&test);
    false
}

/// Before the process id, in names of disks and groups.
const PREFIX: &str = "pgio-test-";

fn disk(bytes: u64) -> LoopDisk {
    let groups = controller().unwrap().mount_point.to_string_lossy().into_owned();
    // Remove leftovers of failed tests: a busy mount, and a group with processes in it.
    loop_disk::reap(PREFIX, &[loop_disk::BASE_DIR, &groups]);
    let _lock = lock_free_devices();
    LoopDisk::create(&format!("{PREFIX}{}-", std::process::id()), bytes).unwrap()
}

fn controller() -> Option<Controller> {
    blkio::find(&Local).unwrap().filter(|c| c.version == Version::V1 && c.at_root)
}

/// A loop device, whose limits go with it.
struct LimitedDisk {
    limits: DeviceLimits,
    disk: LoopDisk,
}

impl LimitedDisk {
    fn new() -> LimitedDisk {
        let disk = disk(1 << 30);
        let group = controller().unwrap().mount_point;
        let limits = DeviceLimits { version: Version::V1, group, device: disk.number().to_owned() };
        let disk = LimitedDisk { limits, disk };
        // A device keeps the limits of a killed test.
        disk.forget();
        disk
    }

    fn forget(&self) {
        for limit in Limit::ALL {
            let _ = self.limits.set(&Local, limit, None);
        }
    }

    fn device(&self) -> PathBuf {
        let link = format!("/sys/dev/block/{}", self.disk.number());
        let node = fs::canonicalize(link).unwrap();
        PathBuf::from("/dev").join(node.file_name().unwrap())
    }

    fn limit(&self, limit: Limit) -> Option<u64> {
        self.limits.read_current(&Local).unwrap().get(&limit).copied()
    }

    fn set(&self, limit: Limit, value: Option<u64>) {
        self.limits.set(&Local, limit, value).unwrap();
    }

    /// Writes and merged writes so far.
    fn writes(&self) -> u64 {
        let stat = format!("/sys/dev/block/{}/stat", self.disk.number());
        let text = fs::read_to_string(stat).unwrap();
        let field = |n: usize| text.split_whitespace().nth(n).unwrap().parse::<u64>().unwrap();
        field(4) + field(5)
    }

    /// The least and the most that it can have been: this process may be held up between a reading
    /// and the clock.
    fn writes_per_second(&self, span: Duration) -> (f64, f64) {
        let read = || {
            let before = Instant::now();
            let writes = self.writes();
            (before, writes, Instant::now())
        };
        let (earliest, from, begun) = read();
        thread::sleep(span);
        let (ended, to, latest) = read();
        let rate = |span: Duration| (to - from) as f64 / span.as_secs_f64();
        (rate(latest - earliest), rate(ended - begun))
    }
}

impl Drop for LimitedDisk {
    fn drop(&mut self) {
        self.forget();
    }
}

/// A PostgreSQL on a limited disk.
struct Server {
    // In the order in which they must go.
    cluster: PrivateCluster,
    disk: LimitedDisk,
}

impl Deref for Server {
    type Target = LimitedDisk;

    fn deref(&self) -> &LimitedDisk {
        &self.disk
    }
}

impl Server {
    fn start() -> Server {
        let disk = LimitedDisk::new();
        let base_dir = Some(disk.disk.path().to_owned());
        let cluster = PrivateCluster::start(&Spec { base_dir, ..spec(INSTALLED) }).unwrap();
        Server { cluster, disk }
    }

    fn dsn(&self) -> String {
        self.cluster.primary_conninfo()
    }

    fn postmaster(&self) -> i32 {
        let text = fs::read_to_string(self.cluster.data_dir().join("postmaster.pid")).unwrap();
        text.lines().next().unwrap().parse().unwrap()
    }

    /// `keys` go to [experiment]; conditions are a name and the body of `throttle` but its device.
    fn experiment(&self, keys: &str, sessions: u32, conditions: &[(&str, &str)]) -> String {
        let mut text = format!(
            "[experiment]\nwarmup = \"500ms\"\naa = false\nrepeats = 0\n{keys}\n{}\n\
             [target]\ndsn = {:?}\n[workload]\nkind = \"commit\"\nsessions = {sessions}\n",
            tolerate(&["environment-changed"]),
            self.dsn()
        );
        for (name, limits) in conditions {
            let device = self.device();
            text += &format!(
                "[[condition]]\nname = {name:?}\nthrottle = {{ device = {device:?}, {limits} }}\n"
            );
        }
        text
    }

    /// In a window that lasts, with its writes limited to 500.
    fn in_mid_trial(&self, dir: &Workdir) -> Running {
        let text = self.experiment(LONG, 1, &[("slow", "write_iops = 500")]);
        let mut running = dir.start_compare(&text);
        running.wait_until("in the window", || active_sessions(&self.dsn()) > 0);
        assert_eq!(self.limit(Limit::WriteIops), Some(500));
        running
    }
}

const LONG: &str = "blocks = 1\nduration = \"60s\"";

/// A group of our own below the root, removed when dropped.
struct Group {
    name: String,
    controller: Controller,
}

impl Group {
    fn make() -> Group {
        let group = Group {
            name: format!("/{PREFIX}{}", std::process::id()),
            controller: controller().unwrap(),
        };
        fs::create_dir(group.controller.directory(&group.name)).unwrap();
        group
    }

    fn of(&self, pid: i32) -> Option<String> {
        self.controller.group_of(&Local, pid).unwrap()
    }

    fn take(&self, pid: i32) {
        let procs = self.controller.directory(&self.name).join("cgroup.procs");
        // It may have ended.
        let _ = fs::write(procs, pid.to_string());
    }

    /// Counts a server's processes inside and outside the group.
    fn share(&self, postmaster: i32) -> (usize, usize) {
        let all = blkio::children(&Local, postmaster).unwrap().into_iter().chain([postmaster]);
        let of = |pid: i32| {
            let group = self.of(pid)?;
            // One that is about to end is shown in the root group, and has no program any more.
            fs::read_link(format!("/proc/{pid}/exe")).ok().map(|_| group)
        };
        let groups: Vec<String> = all.filter_map(of).collect();
        let here = groups.iter().filter(|g| **g == self.name).count();
        (here, groups.len() - here)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let directory = self.controller.directory(&self.name);
        let left = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            let _ = fs::write(self.controller.mount_point.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(directory);
    }
}

#[test]
fn every_kind_of_write_is_limited() {
    if !in_namespace_or_rerun("every_kind_of_write_is_limited", true) {
        return;
    }
    if Command::new("fio").arg("--version").output().is_err() {
        pgio_tests::skipped("there is no fio");
        return;
    }
    // Limits are a device's own, so each kind has a disk of its own and both are measured at a time.
    thread::scope(|scope| {
        scope.spawn(|| writes_of_a_kind_are_limited("randwrite", "--iodepth_batch=1"));
        writes_of_a_kind_are_limited("write", "--iodepth_batch=16");
    });
}

fn writes_of_a_kind_are_limited(rw: &str, more: &str) {
    let limited = LimitedDisk::new();
    let file = limited.disk.path().join("fio");
    File::create(&file).unwrap();
    let mut fio = Command::new("fio")
        .args([
            "--name=demand",
            "--thread",
            "--bs=4k",
            "--direct=1",
            "--ioengine=libaio",
            "--iodepth=32",
        ])
        .args(["--size=64M", "--time_based", "--runtime=120", more])
        .args([format!("--rw={rw}"), format!("--filename={}", file.display())])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let span = Duration::from_millis(1500);
    // It lays out its file first.
    thread::sleep(span);
    let (demand, _) = limited.writes_per_second(span);
    for limit in [200, 500, 1000, 2000] {
        limited.set(Limit::WriteIops, Some(limit));
        // Requests issued before the limit.
        thread::sleep(Duration::from_millis(300));
        let (asked, span) = (limit as f64, Duration::from_secs(2));
        // The kernel hands requests out by the tenth of a second, and late on a busy machine.
        let slice = asked * 0.2 / span.as_secs_f64();
        let mut reached: f64 = 0.0;
        // Few writes may be all that was asked for, so it is another span's turn then.
        for _ in 0..3 {
            let (least, most) = limited.writes_per_second(span);
            eprintln!("{rw}: {least:.1} to {most:.1} writes/s at {limit}, {demand:.0} without");
            assert!(least <= asked * 1.02 + slice, "{rw}: {least} at {limit}");
            reached = reached.max(most);
            if demand <= 2.0 * asked || reached >= asked * 0.98 - slice {
                break;
            }
        }
        if demand > 2.0 * asked {
            assert!(reached >= asked * 0.98 - slice, "{rw}: {reached} at {limit}");
        }
    }
    limited.forget();
    fio.kill().unwrap();
    fio.wait().unwrap();
}

#[test]
fn a_limit_is_applied_proved_and_removed() {
    if !in_namespace_or_rerun("a_limit_is_applied_proved_and_removed", true) {
        return;
    }
    let server = Server::start();
    // The user's own, of which one is changed for the time.
    server.set(Limit::WriteIops, Some(7777));
    server.set(Limit::ReadIops, Some(8888));
    let dir = Workdir::new();
    let conditions = [
        ("200", "write_iops = 200"),
        ("500", "write_iops = 500"),
        ("much", "write_bytes = \"1G\""),
    ];
    dir.compare(&server.experiment("blocks = 1\nduration = \"3s\"", 4, &conditions)).expect(0, &[]);
    for trial in dir.trials() {
        assert_eq!(trial["outcome"]["state"], "complete", "{trial}");
        let throttle = check(&trial, "throttle");
        match condition_of(&trial) {
            "much" => {
                assert_eq!(throttle["verdict"], "warning", "{throttle}");
                assert!(throttle["message"].as_str().unwrap().contains("only bursts"));
            }
            limit => {
                assert_ne!(throttle["verdict"], "invalid", "{throttle}");
                let evidence = trial["evidence"].as_array().unwrap();
                for when in ["before", "during", "after"] {
                    let read = |e: &&Value| e["when"] == when && e["found"] == limit;
                    assert!(evidence.iter().any(|e| read(&e)), "{when}: {evidence:?}");
                }
            }
        }
    }
    assert_eq!(server.limit(Limit::WriteIops), Some(7777));
    assert_eq!(server.limit(Limit::ReadIops), Some(8888));
    assert_eq!(server.limit(Limit::WriteBytes), None);
    assert!(dir.journals().is_empty());
    server.forget();
    processes_that_leave_the_group_make_a_trial_invalid(&server);
}

fn processes_that_leave_the_group_make_a_trial_invalid(server: &Server) {
    let group = Group::make();
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"3s\"";
    let text = server.experiment(keys, 4, &[("slow", "write_iops = 100")]);
    let mut running = dir.start_compare(&text);
    running.wait_until("in the window", || active_sessions(&server.dsn()) > 0);
    // All but the first process, whose group is checked: only the device shows it.
    for pid in blkio::children(&Local, server.postmaster()).unwrap() {
        group.take(pid);
    }
    running.wait().expect(5, &["invalid"]);
    let trial = &dir.trials()[0];
    assert_eq!(failed_checks(trial, "invalid"), ["throttle"]);
    let result = check(trial, "throttle")["message"].as_str().unwrap();
    assert!(result.contains("the limit was not in force"), "{result}");
    assert_eq!(check(trial, "treatment-in-force")["verdict"], "ok");
    assert_eq!(server.limit(Limit::WriteIops), None);
}

#[test]
fn a_server_in_its_own_group_is_moved_and_moved_back() {
    if !in_namespace_or_rerun("a_server_in_its_own_group_is_moved_and_moved_back", true) {
        return;
    }
    let server = Server::start();
    let group = Group::make();
    let (postmaster, root) = (server.postmaster(), "/");
    blkio::move_with_children(&Local, &group.controller, postmaster, root, &group.name).unwrap();
    assert_eq!(group.share(postmaster).1, 0);

    let dir = Workdir::new();
    let text =
        server.experiment("blocks = 1\nduration = \"2s\"", 2, &[("slow", "write_iops = 200")]);
    let mut running = dir.start_compare(&text);
    running.wait_until("moved", || active_sessions(&server.dsn()) > 0);
    assert_eq!(group.share(postmaster).0, 0, "all are in the root group");
    running.wait().expect(0, &[]);
    assert_eq!(failed_checks(&dir.trials()[0], "invalid"), [""; 0]);
    assert_eq!(group.share(postmaster).1, 0, "all are back");

    let dir = Workdir::new();
    server.in_mid_trial(&dir).kill();
    assert_eq!(group.of(postmaster).unwrap(), root);
    let put_back = format!("Restored blkio group of PostgreSQL on host local: `{}`", group.name);
    dir.pgio(&["undo"]).expect(0, &["Restored write_iops", &put_back]);
    assert_eq!(group.share(postmaster).1, 0);
    assert_eq!(server.limit(Limit::WriteIops), None);
    drop(group);
    an_impossible_limit_is_refused_before_anything_is_changed(&server);
}

fn an_impossible_limit_is_refused_before_anything_is_changed(server: &Server) {
    let other = disk(64 << 20);
    let other = fs::canonicalize(format!("/sys/dev/block/{}", other.number())).unwrap();
    let other = format!("/dev/{}", other.file_name().unwrap().to_str().unwrap());
    let own = server.device();
    let own = own.to_str().unwrap();
    let body = |device: &str, rest: &str| format!("throttle = {{ device = {device:?}, {rest} }}");
    for (body, expected) in [
        (
            body("/dev/nonexistent", "write_iops = 500"),
            "/dev/nonexistent is not a block device on host local",
        ),
        (body("/dev/null", "write_iops = 500"), "/dev/null is not a block device"),
        (
            body(&other, "write_iops = 500"),
            "is not below what PostgreSQL on local writes to: data (",
        ),
        (body(own, "write_iops = 0"), "must be at least 10"),
        (body(own, "write_iops = 500, host = \"db9\""), "[hosts.db9]"),
        (body(own, ""), "limits nothing"),
    ] {
        let dir = Workdir::new();
        let text = server.experiment("blocks = 1\nduration = \"1s\"", 1, &[]);
        let result = dir.compare(&format!("{text}[[condition]]\nname = \"a\"\n{body}\n"));
        refused(&result, expected);
        assert!(!dir.out().exists());
    }
    let dir = Workdir::new();
    let text = server.experiment("blocks = 1\nduration = \"1s\"", 1, &[("a", "write_iops = 500")]);
    dir.write("experiment.toml", &text);
    Local.run(&CommandLine::new("chmod").arg("1777").arg(dir.path())).unwrap();
    let as_postgres = Command::new("runuser")
        .args(["-u", "postgres", "--"])
        .arg(pgio_exe())
        .args(["compare", "experiment.toml", "--out", "out"])
        .current_dir(dir.path())
        .env("PGIO_STATE_DIR", dir.path().join("state"))
        .output()
        .unwrap();
    let result = String::from_utf8_lossy(&as_postgres.stderr);
    for text in ["is not writable by", "sudo rule", "CAP_DAC_OVERRIDE"] {
        assert!(result.contains(text), "{result}");
    }
    assert_eq!(server.limit(Limit::WriteIops), None);
}

#[track_caller]
fn refused(result: &CommandResult, expected: &str) {
    assert!(!matches!(result.code, Some(0) | None), "{result}");
    assert!(result.err.contains(expected), "no `{expected}` in {result}");
}

#[test]
fn limits_are_undone_after_kill_9() {
    if !in_namespace_or_rerun("limits_are_undone_after_kill_9", true) {
        return;
    }
    let server = Server::start();
    after_kill_9_undo_restores_the_prior_limit(&server);
    undo_asks_about_a_limit_that_someone_changed(&server);
    undo_handles_a_reboot(&server);
}

fn after_kill_9_undo_restores_the_prior_limit(server: &Server) {
    for prior in [None, Some(9000)] {
        server.set(Limit::WriteIops, prior);
        let dir = Workdir::new();
        server.in_mid_trial(&dir).kill();
        assert_eq!(server.limit(Limit::WriteIops), Some(500));
        let again =
            server.experiment("blocks = 1\nduration = \"1s\"", 1, &[("a", "write_iops = 99")]);
        dir.compare(&again).expect(6, &["pgio undo"]);
        dir.pgio(&["undo"]).expect(0, &["Restored write_iops of loop"]);
        assert_eq!(server.limit(Limit::WriteIops), prior);
        let result = dir.pgio(&["undo"]).expect(0, &[]);
        assert_eq!(result.out, dir.nothing_to_undo());
    }
}

fn undo_asks_about_a_limit_that_someone_changed(server: &Server) {
    for (flag, expected) in [("--keep", Some(900)), ("--restore", None)] {
        server.forget();
        let dir = Workdir::new();
        server.in_mid_trial(&dir).kill();
        server.set(Limit::WriteIops, Some(900));
        for _ in 0..2 {
            dir.pgio(&["undo"]).expect(6, &["write_iops", "900", "500", "--keep", "--restore"]);
            assert_eq!(server.limit(Limit::WriteIops), Some(900));
        }
        dir.pgio(&["undo", flag]).expect(0, &["write_iops"]);
        assert_eq!(server.limit(Limit::WriteIops), expected, "{flag}");
        assert!(dir.journals().is_empty());
    }
}

/// The journal is on disk, but the reboot removed the limits that it names.
fn undo_handles_a_reboot(server: &Server) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    // The limit after the reboot: none, the prior one, one that someone else set.
    for (now, code, result) in
        [(None, 0, "Kept"), (Some(9000), 0, "Restored"), (Some(500), 6, "--keep")]
    {
        server.set(Limit::WriteIops, Some(9000));
        let dir = Workdir::new();
        server.in_mid_trial(&dir).kill();
        let journal = &dir.journals()[0];
        let text = fs::read_to_string(journal).unwrap();
        assert!(text.contains(boot.trim()));
        fs::write(journal, text.replace(boot.trim(), "an-earlier-one")).unwrap();
        server.set(Limit::WriteIops, now);
        dir.pgio(&["undo"]).expect(code, &[result]);
        assert_eq!(server.limit(Limit::WriteIops), now);
    }
}

/// The shipped example, shortened, on a disk like the one in its comment.
#[test]
fn the_io_throttle_example_runs() {
    if !in_namespace_or_rerun("the_io_throttle_example_runs", true) {
        return;
    }
    let disk = disk(2 << 30);
    let node = fs::canonicalize(format!("/sys/dev/block/{}", disk.number())).unwrap();
    let device = format!("/dev/{}", node.file_name().unwrap().to_str().unwrap());
    let mut text = include_str!("../../examples/io-throttle.toml").to_owned();
    for (shipped, here) in [
        ("\"/dev/loop7\"", format!("{device:?}")),
        ("\"/mnt/pgio-throttle\"", format!("{:?}", disk.path())),
        ("blocks = 8", format!("blocks = 1\nburn_in = false\n{}", tolerate(&[]))),
        ("aa = true", "aa = false".to_owned()),
        ("warmup = \"2s\"", "warmup = \"100ms\"".to_owned()),
        ("duration = \"7s\"", "duration = \"500ms\"".to_owned()),
        ("scale = \"400M\"", "scale = \"16M\"".to_owned()),
        ("num_threads = 4", "num_threads = 1".to_owned()),
    ] {
        assert!(text.contains(shipped), "{shipped}");
        text = text.replace(shipped, &here);
    }
    let dir = Workdir::new();
    dir.compare(&text).expect(0, &[]);
    for workload in ["commit", "slob"] {
        let file = dir.out().join(workload).join("trials.jsonl");
        for line in fs::read_to_string(file).unwrap().lines() {
            let trial: Value = serde_json::from_str(line).unwrap();
            assert_eq!(trial["outcome"]["state"], "complete", "{trial}");
            assert_eq!(failed_checks(&trial, "invalid"), [""; 0], "{trial}");
        }
    }
    let limits = fs::read_to_string("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device");
    let prefix = format!("{} ", disk.number());
    assert!(!limits.unwrap_or_default().lines().any(|line| line.starts_with(&prefix)));
}
