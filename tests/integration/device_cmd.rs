//! `pgio device`: what it measures by fio, what it refuses, and that it leaves nothing.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, geteuid};
use serde_json::Value;

use crate::disk::{self, LoopDevice};
use crate::sshd::Sshd;
use pgio_tests::fixture::{INSTALLED, copy_program, pgio_exe, shared_primary};
use pgio_tests::workdir::{self, Running, Workdir};

/// Small and short, and all tests.
const QUICK: &[&str] = &["--size", "8M", "--duration", "100ms"];
const SIZE: u64 = 64 << 20;

fn device(dir: &Workdir, arguments: &[&str]) -> workdir::CommandResult {
    start(dir, arguments).wait()
}

fn start(dir: &Workdir, arguments: &[&str]) -> Running {
    dir.start(dir.command(&[&["device"], arguments, QUICK].concat()))
}

/// A disk, as /tmp may be in memory, where there is no direct I/O.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn missing_access_rights_are_reported() {
    let (dir, place) = (Workdir::new(), place());
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let closed = place.path().join("closed");
    fs::write(&closed, vec![0; 8 << 20]).unwrap();
    mode(&closed, 0);
    // A directory where `nobody` can run it: root may read and write everything.
    let program = copy_program(&pgio_exe(), place.path());
    mode(place.path(), 0o555);
    for (name, result) in
        [(closed.as_path(), "cannot read"), (place.path(), "cannot create a file in")]
    {
        let mut command = Command::new(&program);
        command.arg("device").arg(name).current_dir("/");
        if geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        dir.start(command).wait().expect(4, &[result, text(name), "Permission denied", "sudo"]);
    }
    mode(place.path(), 0o755);
}

#[test]
fn two_directories_are_compared_and_nothing_remains() {
    let (dir, a, b) = (Workdir::new(), place(), place());
    let result = device(
        &dir,
        &[
            text(a.path()),
            "--against",
            text(b.path()),
            "--json",
            "device.json",
            "--seed",
            "7",
            "--rounds",
            "2",
        ],
    )
    .expect(0, &["compared with", "effect [95 %]", "throughput, 1 MiB writes", "random reads"]);
    let notes: Vec<&str> = result.err.lines().filter(|line| line.contains("round")).collect();
    assert_eq!(notes.len(), 2, "{result}");
    assert!(notes[0] == "pgio: round 1 of 2" && notes[1].ends_with(" left"), "{notes:?}");
    let words: Vec<&str> = result.out.split_whitespace().collect();
    assert!(words.join(" ").contains("2 rounds, direct I/O in 8 MiB, fio-"), "{result}");
    let stored: Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("device.json")).unwrap()).unwrap();
    let measured = &stored["measured"];
    let tests = measured["tests"].as_array().unwrap().len();
    let runs = measured["runs"].as_array().unwrap();
    assert!(tests == 6 || tests == 7, "{tests}");
    assert_eq!(runs.len(), tests * 2 * 2);
    assert_eq!(
        (stored["schema"].as_str(), measured["seed"].as_u64()),
        (Some("pgio.device/1"), Some(7))
    );
    // Both orders come, and a test's two runs stand together.
    let firsts: Vec<u64> = runs.chunks(2).map(|pair| pair[0]["place"].as_u64().unwrap()).collect();
    assert!(firsts.contains(&0) && firsts.contains(&1), "{firsts:?}");
    for pair in runs.chunks(2) {
        assert_eq!(pair[0]["test"], pair[1]["test"]);
        assert_ne!(pair[0]["place"], pair[1]["place"]);
    }
    let latency = runs.iter().find(|r| r["test"] == "latency-4096").unwrap();
    assert_eq!(
        (latency["operations"].as_u64(), latency["bytes"].as_u64()),
        (Some(1000), Some(4_096_000))
    );
    let throughput = runs.iter().find(|r| r["test"] == "throughput-1048576").unwrap();
    assert_eq!(throughput["bytes"], 512 << 20);
    assert!(stored["results"][0]["comparison"]["ratio"].as_f64().unwrap() > 0.0);
    for place in [&a, &b] {
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_non_empty_file_is_only_read() {
    let (dir, at) = (Workdir::new(), place());
    let file = at.path().join("a file: with a colon");
    let content = vec![b'x'; 8 << 20];
    fs::write(&file, &content).unwrap();
    let result = device(&dir, &[text(&file), "--rounds", "1"])
        .expect(0, &["is only read", "--destroy", "random reads, depth 32"]);
    assert!(!result.out.contains("writes"), "{result}");
    assert!(fs::read(&file).unwrap() == content);

    device(&dir, &[text(&file), "--rounds", "1", "--destroy"]).expect(0, &["random writes"]);
    let after = fs::read(&file).unwrap();
    assert!(after.len() == content.len() && after != content);
}

#[test]
fn a_scratch_file_is_filled_beside_a_place_that_is_only_read() {
    let (dir, at, scratch) = (Workdir::new(), place(), place());
    let file = at.path().join("file");
    let content = vec![b'x'; 8 << 20];
    fs::write(&file, &content).unwrap();
    // A fio that notes its arguments.
    let (fio, log) = (disk::run("sh", &["-c", "command -v fio"]), dir.path().join("fio.log"));
    let noting =
        format!("#!/bin/sh\necho \"$*\" >>'{}'\nexec {} \"$@\"\n", log.display(), fio.trim());
    dir.write("fio", &noting);
    disk::run("chmod", &["+x", text(&dir.path().join("fio"))]);
    let arguments = ["device", text(&file), "--against", text(scratch.path()), "--rounds", "2"];
    let mut command = dir.command(&[&arguments[..], QUICK].concat());
    let others = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{others}", dir.path().display()));
    dir.start(command).wait().expect(0, &["is only read", "random reads"]);
    let ran = fs::read_to_string(&log).unwrap();
    let writes: Vec<&str> = ran.lines().filter(|line| line.contains("--rw=write ")).collect();
    assert!(writes.len() == 1 && writes[0].contains("/fd/9 "), "{ran}");
    assert!(fs::read(&file).unwrap() == content);
}

#[test]
fn a_stop_or_a_kill_leaves_no_file_and_no_fio() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let (dir, at) = (Workdir::new(), place());
        let arguments = ["device", text(at.path()), "--size", "8M", "--duration", "60s"];
        let mut running = dir.start(dir.command(&arguments));
        running.wait_until("in the random test", || {
            fios(at.path()).iter().any(|l| l.contains("rand"))
        });
        running.signal(signal);
        let result = running.wait();
        let code = if signal == Signal::KILL { -9 } else { 130 };
        assert_eq!(result.code, Some(code), "{result}");
        assert_eq!(result.out, "");
        workdir::wait_until("fio gone", || fios(at.path()).is_empty());
        assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0);
    }
}

/// Command lines of running fios that have a file open below a directory.
fn fios(below: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|e| e.path());
    let has_open = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|to| to.starts_with(below))
    };
    processes
        .filter(|p| fs::read_to_string(p.join("comm")).is_ok_and(|c| c.trim() == "fio"))
        .filter(|p| has_open(p))
        .filter_map(|p| fs::read_to_string(p.join("cmdline")).ok())
        .collect()
}

#[test]
fn bad_input_is_refused() {
    let (dir, at) = (Workdir::new(), place());
    device(&dir, &["/dev/no-such"]).expect(2, &["/dev/no-such does not exist"]);
    device(&dir, &["/dev/null"]).expect(2, &["/dev/null is not a block device"]);
    let file = at.path().join("file");
    fs::write(&file, vec![0; 8 << 20]).unwrap();
    device(&dir, &[text(&file), "--against", text(&file)]).expect(2, &["are the same"]);
    device(&dir, &[text(&file), "--uuid", "x"]).expect(2, &["--destroy"]);
    dir.pgio(&["device", text(at.path()), "--size", "1M"]).expect(2, &["at least 4M"]);
    dir.pgio(&["device", text(at.path()), "--size", "900T"]).expect(2, &["free, but the scratch"]);
    dir.pgio(&["device", text(at.path()), "--duration", "0s"]).expect(2, &["longer than zero"]);
    let bare = tempfile::tempdir().unwrap();
    for program in ["sh", "readlink", "stat", "cat", "mktemp", "rm"] {
        let to = disk::run("sh", &["-c", &format!("command -v {program}")]);
        std::os::unix::fs::symlink(to.trim(), bare.path().join(program)).unwrap();
    }
    let mut without = dir.command(&["device", text(at.path())]);
    without.env("PATH", bare.path());
    // The script adds the directories of system programs itself; fio is in neither.
    dir.start(without).wait().expect(4, &["fio is not on this machine", "apt-get install fio"]);
}

#[test]
fn a_block_device_is_written_only_on_request() {
    if !disk::is_root("device_cmd") {
        return;
    }
    let dir = Workdir::new();
    let device_ = LoopDevice::new(SIZE);
    let path = device_.path.as_str();
    let uuid = device_.format();
    let content = || fs::read(device_.image()).unwrap();
    let before = content();
    let result =
        device(&dir, &[path, "--rounds", "1"]).expect(0, &["is only read", "random reads"]);
    assert!(!result.out.contains("writes"), "{result}");
    let all = ["--destroy", "--uuid", uuid.as_str()];
    device(&dir, &[path, "--destroy"]).expect(4, &["contains ext4", &uuid, "--uuid"]);
    device(&dir, &[path, "--destroy", "--uuid", "0000"]).expect(4, &["contains ext4", &uuid]);
    // Nor by the back door.
    let image = device_.image();
    let image = [text(&image), "--rounds", "1"];
    device(&dir, &[&image[..], &all].concat()).expect(4, &["is in use (used by loop"]);

    let point = device_.mount();
    let refused = format!("in use (mounted on {})", point.display());
    device(&dir, &[&[path][..], &all].concat()).expect(4, &[&refused]);
    device(&dir, &[path, "--rounds", "1"]).expect(0, &["is in use", "random reads"]);
    device_.unmount();
    // A mount writes a little.
    let mounted_once = content();
    assert_eq!(before.len(), mounted_once.len());

    // Held by a program, as a volume manager holds its devices.
    let mut holder = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut holder, libc_o_excl());
    let held = holder.read(true).open(path).unwrap();
    device(&dir, &[&[path][..], &all].concat())
        .expect(4, &["is in use", "opened by the kernel or a program"]);
    drop(held);
    assert!(content() == mounted_once, "whatever was refused changed nothing");

    device(&dir, &[&[path, "--rounds", "1"][..], &all].concat()).expect(0, &["random writes"]);
    assert!(content() != mounted_once);
}

#[test]
fn a_device_with_drbd_or_a_partition_table_is_not_written() {
    if !disk::is_root("device_cmd") {
        return;
    }
    let dir = Workdir::new();
    let device_ = LoopDevice::new(SIZE);
    let path = device_.path.as_str();
    // Internal metadata of DRBD 8.4 lies in the last 4 kB: its magic, after flags.
    let file = OpenOptions::new().write(true).open(device_.image()).unwrap();
    let superblock = SIZE - 4096;
    file.write_all_at(&(SIZE / 512).to_be_bytes(), superblock).unwrap();
    file.write_all_at(&[0x83, 0x74, 0x02, 0x6b], superblock + 60).unwrap();
    device(&dir, &[path, "--destroy"])
        .expect(4, &["contains DRBD metadata", "use the DRBD device"]);
    file.write_all_at(&[0; 64], superblock).unwrap();

    file.write_all_at(&[0x55, 0xaa], 510).unwrap();
    // One partition, of type Linux.
    file.write_all_at(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0], 446).unwrap();
    device(&dir, &[path, "--destroy"]).expect(4, &["contains dos"]);
    file.write_all_at(&[0; 66], 446).unwrap();
    device(&dir, &[path, "--destroy", "--rounds", "1"]).expect(0, &["throughput"]);
}

/// With its metadata on another device nothing of DRBD can be seen on the disk itself.
#[test]
fn a_disk_that_drbd_is_configured_for_is_never_written() {
    if !disk::is_root("device_cmd") {
        return;
    }
    let (dir, device_) = (Workdir::new(), LoopDevice::new(SIZE));
    let path = device_.path.as_str();
    dir.write("drbdadm", &format!("#!/bin/sh\n[ \"$*\" = 'sh-ll-dev all' ] && echo {path}\n"));
    disk::run("chmod", &["+x", text(&dir.path().join("drbdadm"))]);
    let measure = |more: &[&str]| {
        let mut command =
            dir.command(&[&["device", path, "--rounds", "1"][..], more, QUICK].concat());
        let others = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{others}", dir.path().display()));
        dir.start(command).wait()
    };
    measure(&["--destroy"]).expect(4, &["contains DRBD metadata", "use the DRBD device"]);
    assert!(fs::read(device_.image()).unwrap().iter().all(|byte| *byte == 0));
    measure(&[]).expect(0, &["is only read"]);
}

/// An experiment of the workload `device` on a server that is not of interest.
fn measured(dir: &Workdir, target: &str, workload: &str) -> workdir::CommandResult {
    let keys = "blocks = 1\nduration = \"300ms\"\naa = false";
    let text = workdir::experiment_on(target, keys, "", &[("a", "")]);
    let text = text.replace("kind = \"commit\"", &format!("kind = \"device\"\n{workload}"));
    dir.compare(&text)
}

#[test]
fn a_device_trial_over_ssh_is_recorded_like_a_local_one() {
    let (dir, at, sshd) = (Workdir::new(), place(), Sshd::start());
    let spec = sshd.spec();
    let target = format!(
        "dsn = {:?}\nhost = \"box\"\n[hosts.box]\nssh = {:?}\nssh_config = {:?}",
        shared_primary(INSTALLED).primary_conninfo(),
        spec.ssh.unwrap(),
        spec.ssh_config.unwrap()
    );
    let keys = format!("path = {:?}\ntest = \"random_write\"\nsize = \"8M\"\ndepth = 4", at.path());
    measured(&dir, &target, &keys).expect(0, &["device operations/s"]);
    let trial = &dir.trials()[0];
    assert_eq!(trial["outcome"]["state"], "complete");
    let value = |name: &str| trial["metrics"][name]["value"].as_f64().unwrap();
    let operations = trial["histograms"]["device"]["count"].as_f64().unwrap();
    let seconds = trial["window"]["seconds"].as_f64().unwrap();
    assert!((value("device_operations_per_second") * seconds / operations - 1.0).abs() < 1e-6);
    assert!((value("device_bytes_per_second") * seconds / operations / 8192.0 - 1.0).abs() < 1e-6);
    assert!(value("device_latency_p50") <= value("device_latency_p99"));
    sshd.wait_until_idle();
    assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0);
}

#[test]
fn a_workload_that_would_lose_data_or_has_no_place_is_refused_before_anything() {
    let (dir, at) = (Workdir::new(), place());
    let target = format!("dsn = {:?}", shared_primary(INSTALLED).primary_conninfo());
    let file = at.path().join("file");
    let content = vec![b'x'; 8 << 20];
    fs::write(&file, &content).unwrap();
    let on_file = |more: &str| format!("path = {file:?}\n{more}");
    measured(&dir, &target, "").expect(2, &["requires a place", "path ="]);
    measured(&dir, &target, &on_file("test = \"latency\"")).expect(2, &["destroy = true"]);
    measured(&dir, &target, &on_file("test = \"some\"")).expect(2, &["must be all or throughput"]);
    measured(&dir, &target, &on_file("size = \"1M\"\ntest = \"random_read\"")).expect(2, &["4M"]);
    measured(&dir, &target, "path = \"/dev/no-such\"").expect(2, &["does not exist"]);
    assert!(!dir.out().exists() && fs::read(&file).unwrap() == content);
    measured(&dir, &target, &on_file("test = \"random_read\"")).expect(0, &["device operations/s"]);
    assert!(fs::read(&file).unwrap() == content);
}

/// O_EXCL of Linux, which on a block device means: unless the kernel uses it.
fn libc_o_excl() -> i32 {
    rustix::fs::OFlags::EXCL.bits().cast_signed()
}
