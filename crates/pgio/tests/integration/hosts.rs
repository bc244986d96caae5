//! Hosts over ssh: a real sshd of each test's own, on a loopback address and a port of its own.

mod sshd;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgio::host::exec::{CommandLine, Exec};
use pgio::host::{Host, Shell};
use pgio::telemetry::host::{Sampler, Watch};
use pgio::telemetry::storage::{Place, locate};
use rustix::process::geteuid;

use self::sshd::Sshd;

/// Far beyond what anything here takes, far below a hang.
const SOON: Duration = Duration::from_secs(60);

fn sh(script: &str) -> CommandLine {
    CommandLine::new("sh").args(["-c", script])
}

fn refusal(sshd: &Sshd) -> String {
    Host::connect("box", &sshd.spec()).unwrap_err().to_string()
}

#[test]
fn a_command_there_is_a_command_here() {
    let sshd = Sshd::start();
    let there = Host::connect("box", &sshd.spec()).unwrap();
    let here = Host::local();
    for command in [
        CommandLine::new("printf").args(["%s|", "it's", "$HOME `id`", "two\nlines", "", "*", "-n"]),
        sh("echo out; echo err >&2; exit 3"),
        sh("exit 255"),
        sh("echo \"$A\"; pwd").env("A", "a 'b'").directory(Path::new("/usr")),
    ] {
        let command = command.timeout(SOON);
        let (a, b) = (here.output(&command).unwrap(), there.output(&command).unwrap());
        assert_eq!((a.stdout, a.stderr), (b.stdout, b.stderr), "{command}");
        assert_eq!(a.status.code(), b.status.code(), "{command}");
    }
    let error = there.output(&CommandLine::new("pgio-no-such")).unwrap_err();
    let expected = "program `pgio-no-such` is not on host box: install it there";
    assert_eq!(error.to_string(), expected);
    let slow = CommandLine::new("sleep").arg("600").timeout(Duration::from_millis(300));
    assert!(there.output(&slow).unwrap_err().to_string().contains("did not end within 0.3 s"));
    assert!(there.is_same_machine(&here) && there.shares_pids_with_this_process());
}

#[test]
fn all_sessions_share_one_connection_which_ends_with_the_host() {
    let sshd = Sshd::start();
    let host = Host::connect("box", &sshd.spec()).unwrap();
    let shell = Shell::start(&host, "echo $$", ":").unwrap();
    host.run(&sh("true")).unwrap();
    assert_eq!(sshd.connections().len(), 1);
    // Even while a session still runs.
    drop(host);
    sshd.wait_until_idle();
    drop(shell);
}

#[test]
fn an_unreachable_host() {
    let mut sshd = Sshd::start();
    sshd.stop();
    let error = refusal(&sshd);
    assert!(error.starts_with("host box cannot be reached: "), "{error}");
    assert!(error.contains("Connection refused"), "{error}");
    assert!(error.contains(&format!("`ssh -F {} -- box`", sshd.config().display())), "{error}");
}

#[test]
fn a_key_that_is_not_known_or_another_one() {
    let sshd = Sshd::start();
    fs::write(sshd.path("known_hosts"), "").unwrap();
    let error = refusal(&sshd);
    assert!(error.starts_with("host box is not known to this user's ssh: run `ssh"), "{error}");
    let other = Sshd::start();
    let known = fs::read_to_string(other.path("known_hosts")).unwrap();
    let key = known.split_once(' ').unwrap().1;
    let line = format!("[127.0.0.1]:{} {key}", sshd.port());
    fs::write(sshd.path("known_hosts"), line).unwrap();
    let error = refusal(&sshd);
    assert!(error.starts_with("host box shows another key than the known one"), "{error}");
}

#[test]
fn permission_denied() {
    let sshd = Sshd::start();
    fs::write(sshd.path("authorized_keys"), "").unwrap();
    let error = refusal(&sshd);
    assert!(
        error.starts_with("host box refuses to let this user in without a password"),
        "{error}"
    );
    assert!(error.contains("Permission denied (publickey)"), "{error}");
}

#[test]
fn a_connection_that_drops_is_told_at_once() {
    let sshd = Sshd::start();
    let host = Host::connect("box", &sshd.spec()).unwrap();
    let mut shell = Shell::start(&host, ":", "echo here").unwrap();
    assert_eq!(shell.ask("", SOON).unwrap().text, "here\n");
    sshd.drop_connections();
    let began = Instant::now();
    let error = shell.ask("", SOON).unwrap_err().to_string();
    assert!(error.starts_with("the connection to host box broke off: "), "{error}");
    assert!(began.elapsed() < SOON, "by the end of the connection, not by time");
    assert!(shell.ask("", SOON).is_err());
    // sshd itself still stands: a command connects anew.
    assert_eq!(host.run(&sh("echo again")).unwrap(), "again\n");
}

#[test]
fn a_command_in_flight_when_the_connection_drops() {
    let sshd = Sshd::start();
    let host = Host::connect("box", &sshd.spec()).unwrap();
    let error = std::thread::scope(|scope| {
        let marker = sshd.path("started");
        let script = format!("touch {}; sleep 30", marker.display());
        let host = &host;
        let running = scope.spawn(move || host.output(&sh(&script)).unwrap_err().to_string());
        sshd::wait_for(|| marker.exists());
        sshd.drop_connections();
        running.join().unwrap()
    });
    assert!(error.starts_with("the connection to host box broke off: "), "{error}");
}

/// What [`a_kill_leaves_nothing_on_the_host`] kills: not a test of its own.
#[test]
#[ignore = "a process for another test"]
fn owner_of_a_remote_shell() {
    let (Ok(config), Ok(marker)) =
        (std::env::var("PGIO_TEST_SSH_CONFIG"), std::env::var("PGIO_TEST_MARKER"))
    else {
        return;
    };
    let host = Host::connect("box", &sshd::spec(Path::new(&config))).unwrap();
    let here = Shell::start(&Host::local(), "echo $$", ":").unwrap();
    let there = Shell::start(&host, "echo $$", ":").unwrap();
    fs::write(&marker, format!("{} {}", here.greeting().trim(), there.greeting().trim())).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_kill_leaves_nothing_on_the_host() {
    let sshd = Sshd::start();
    let marker = sshd.path("marker");
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hosts::owner_of_a_remote_shell", "--ignored", "--nocapture"])
        .env("PGIO_TEST_SSH_CONFIG", sshd.config())
        .env("PGIO_TEST_MARKER", &marker)
        .env("TMPDIR", sshd.path(""))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    sshd::wait_for(|| fs::read_to_string(&marker).is_ok_and(|text| text.contains(' ')));
    let shells = fs::read_to_string(&marker).unwrap();
    assert!(shells.split(' ').all(|pid| Path::new("/proc").join(pid).exists()));
    owner.kill().unwrap();
    owner.wait().unwrap();
    sshd.wait_until_idle();
    sshd::wait_for(|| shells.split(' ').all(|pid| !Path::new("/proc").join(pid).exists()));
}

#[test]
fn a_host_is_sampled_over_ssh_as_here() {
    let sshd = Sshd::start();
    let host = Arc::new(Host::connect("box", &sshd.spec()).unwrap());
    let cadence = Duration::from_millis(50);
    let sampler = Sampler::start(Arc::clone(&host), cadence, Watch::default()).unwrap();
    sampler.mark();
    let opened = Instant::now();
    std::thread::sleep(Duration::from_millis(500));
    let closed = Instant::now();
    sampler.mark();
    let (usage, tracks, warnings) = sampler.finish(opened, closed);
    assert!(usage.ticks > 1, "{usage:?} {warnings:?}");
    assert!(usage.foreign_cores.is_some() && usage.sampling_cpu_seconds.is_some(), "{usage:?}");
    assert!(usage.clock_offset_seconds.unwrap().abs() < 1.0, "one machine, one clock");
    assert!(tracks.iter().all(|track| track.source == "box"));
    drop(host);
    sshd.wait_until_idle();
}

#[test]
fn a_host_that_is_lost_in_a_window_costs_its_data_only() {
    let sshd = Sshd::start();
    let host = Arc::new(Host::connect("box", &sshd.spec()).unwrap());
    let cadence = Duration::from_millis(50);
    let sampler = Sampler::start(host, cadence, Watch::default()).unwrap();
    let opened = Instant::now();
    std::thread::sleep(Duration::from_millis(500));
    sshd.drop_connections();
    std::thread::sleep(Duration::from_millis(500));
    sampler.mark();
    let (usage, tracks, warnings) = sampler.finish(opened, Instant::now());
    let lost = "host box was not observed throughout";
    let warning =
        warnings.iter().find(|w| w.what == lost).unwrap_or_else(|| panic!("{warnings:?}"));
    assert!(warning.why.starts_with("the connection to host box broke off: "), "{warning}");
    assert!(usage.ticks > 0 && !tracks.is_empty(), "what came before is kept: {usage:?}");
}

/// ext4 on a file: the loop device, and below it the device of the file.
#[test]
fn a_loop_device_and_what_its_file_lies_on() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root makes loop devices");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("an image");
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let here = Host::local();
    let run = |command: CommandLine| here.run(&command).unwrap();
    run(CommandLine::new("mkfs.ext4").arg("-q").arg(&image));
    let mount = Mounted::at(dir.path().join("mount"), &image);
    let data = mount.0.join("data");
    fs::create_dir(&data).unwrap();

    let place = |role: &str, directory: &Path| Place {
        role: role.to_owned(),
        directory: directory.display().to_string(),
    };
    let places = [place("data", &data), place("wal", dir.path())];
    let (found, warnings) = locate(&here, &places).unwrap();
    assert_eq!(found[0].mount_point, mount.0.display().to_string());
    assert_eq!(found[0].file_system, "ext4");
    assert!(found[0].mount_options.contains("noatime"), "{found:?}");
    let top = &found[0].devices[0];
    assert_eq!(top.kind, "loop");
    assert!(top.queue.contains_key("scheduler") && top.queue.contains_key("write_cache"));
    // Below it is whatever the directory of the image lies on.
    assert_eq!(found[0].devices[1..], found[1].devices, "{found:?} {warnings:?}");

    let sampler =
        Sampler::start(Arc::new(Host::local()), Duration::from_secs(60), Watch::default()).unwrap();
    sampler.mark();
    sshd::wait_for(|| sampler.answers() == 2);
    let opened = Instant::now();
    let file = data.join("file").display().to_string();
    run(sh(&format!("dd if=/dev/zero of={file} bs=8k count=20 oflag=dsync 2>&1")));
    let closed = Instant::now();
    sampler.mark();
    let (usage, tracks, _) = sampler.finish(opened, closed);
    let device = &usage.devices[&top.name];
    // At least one write for each of the twenty, over a span slightly longer than the window.
    let seconds = closed.duration_since(opened).as_secs_f64();
    assert!(device.writes_per_second * seconds > 10.0, "{device:?} in {seconds} s");
    assert!(device.written_bytes_per_second * seconds > 10.0 * 8192.0, "{device:?}");
    assert!(tracks.iter().any(|t| t.subject == top.name && t.name == "writes_per_second"));
}

/// Unmounts, and the loop device goes with the mount.
struct Mounted(PathBuf);

impl Mounted {
    fn at(point: PathBuf, image: &Path) -> Mounted {
        fs::create_dir(&point).unwrap();
        let mount = CommandLine::new("mount").args(["-o", "loop,noatime"]).arg(image).arg(&point);
        Host::local().run(&mount).unwrap();
        Mounted(point)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Host::local().run(&CommandLine::new("umount").arg(&self.0));
    }
}
