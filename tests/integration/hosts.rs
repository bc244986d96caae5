//! Hosts over ssh, and observed: a real sshd of each test's own, a real loop device, a real server at work.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pgio::config::experiment::HostSpec;
use pgio::host::exec::{CommandLine, Exec};
use pgio::host::{Host, Shell};
use pgio::telemetry::environment::{ServerDirectory, locate};
use pgio::telemetry::host::{Sampler, Watch};
use rustix::process::geteuid;

use crate::sshd::{self, Sshd};
use pgio_tests::fixture::{INSTALLED, connect, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, failed_checks, tolerate, wait_until};

/// Far beyond what anything here takes, far below a hang.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);

fn sh(script: &str) -> CommandLine {
    CommandLine::new("sh").args(["-c", script])
}

fn refusal(sshd: &Sshd) -> String {
    Host::connect("box", &sshd.spec()).unwrap_err().to_string()
}

#[test]
fn a_remote_command_behaves_like_a_local_one() {
    let sshd = Sshd::start();
    let there = Host::connect("box", &sshd.spec()).unwrap();
    let here = Host::local();
    for command in [
        CommandLine::new("printf").args(["%s|", "it's", "$HOME `id`", "two\nlines", "", "*", "-n"]),
        sh("echo out; echo err >&2; exit 3"),
        sh("exit 255"),
        sh("echo \"$A\"; pwd").env("A", "a 'b'").directory(Path::new("/usr")),
    ] {
        let command = command.timeout(LONG_TIMEOUT);
        for command in [command.clone(), command.own_session()] {
            let (a, b) = (here.output(&command).unwrap(), there.output(&command).unwrap());
            assert_eq!((a.stdout, a.stderr), (b.stdout, b.stderr), "{command}");
            assert_eq!(a.status.code(), b.status.code(), "{command}");
        }
    }
    let missing = CommandLine::new("pgio-no-such");
    for missing in [missing.clone(), missing.own_session()] {
        let error = there.output(&missing).unwrap_err();
        let expected = "program `pgio-no-such` is not installed on host box; install it there";
        assert_eq!(error.to_string(), expected);
    }
    let slow = CommandLine::new("sleep").arg("600").timeout(Duration::from_millis(300));
    assert!(there.output(&slow).unwrap_err().to_string().contains("did not finish within 0.3 s"));
    assert!(there.is_same_machine(&here) && there.shares_pids_with_this_process());
}

/// Every user of this machine can read the arguments of ssh.
#[test]
fn a_users_command_is_not_among_the_arguments_of_ssh() {
    const WORD: &str = "geheim-on-another-host";
    let sshd = Sshd::start();
    let there = Host::connect("box", &sshd.spec()).unwrap();
    let (started, go) = (sshd.path("started"), sshd.path("go"));
    let script = "echo \"$A\"; touch \"$1\"; until [ -e \"$2\" ]; do sleep 0.02; done";
    let command = sh(script).arg(WORD).args([&started, &go]);
    let command = command.env("A", WORD).own_session().timeout(LONG_TIMEOUT);
    let (output, arguments) = thread::scope(|scope| {
        let running = scope.spawn(|| there.output(&command));
        wait_until("the command runs", || started.exists());
        let arguments = arguments_of("ssh");
        fs::write(&go, "").unwrap();
        (running.join().unwrap().unwrap(), arguments)
    });
    assert_eq!(output.stdout, format!("{WORD}\n"));
    assert!(arguments.contains("ControlMaster=no"), "the command has a session: {arguments}");
    assert!(!arguments.contains(WORD), "{arguments}");
}

/// The arguments of all processes of a program.
fn arguments_of(program: &str) -> String {
    let read = |process: &Path, file: &str| {
        let bytes = fs::read(process.join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let its = processes.filter(|process| read(process, "comm").trim() == program);
    its.map(|process| read(&process, "cmdline")).collect()
}

/// With and without ssh.
#[test]
fn two_names_of_one_machine_are_refused() {
    let sshd = Sshd::start();
    let one = [("box".to_owned(), sshd.spec())];
    assert_eq!(pgio::host::connect_all(&one.clone().into()).unwrap().len(), 2);
    let both = [one[0].clone(), ("here".to_owned(), HostSpec::default())];
    let error = pgio::host::connect_all(&both.into()).unwrap_err().to_string();
    assert!(error.starts_with("hosts box and here are the same machine, "), "{error}");
    assert!(error.contains("[hosts.box] or [hosts.here]"), "{error}");
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
fn an_unreachable_host_is_reported_with_the_ssh_command() {
    let mut sshd = Sshd::start();
    sshd.stop();
    let error = refusal(&sshd);
    assert!(error.starts_with("host box cannot be reached: "), "{error}");
    assert!(error.contains("Connection refused"), "{error}");
    assert!(error.contains(&format!("`ssh -F {} -- box`", sshd.config().display())), "{error}");
}

#[test]
fn an_unknown_or_different_host_key_is_reported() {
    let sshd = Sshd::start();
    fs::write(sshd.path("known_hosts"), "").unwrap();
    let error = refusal(&sshd);
    assert!(error.starts_with("the key of host box is not in known_hosts; run `ssh"), "{error}");
    let other = Sshd::start();
    let known = fs::read_to_string(other.path("known_hosts")).unwrap();
    let key = known.split_once(' ').unwrap().1;
    let line = format!("[127.0.0.1]:{} {key}", sshd.port());
    fs::write(sshd.path("known_hosts"), line).unwrap();
    let error = refusal(&sshd);
    assert!(
        error.starts_with("the key of host box differs from the one in known_hosts"),
        "{error}"
    );
}

#[test]
fn a_refused_login_is_reported_with_the_message_of_ssh() {
    let sshd = Sshd::start();
    fs::write(sshd.path("authorized_keys"), "").unwrap();
    let error = refusal(&sshd);
    assert!(error.starts_with("host box refuses a login without a password"), "{error}");
    assert!(error.contains("Permission denied (publickey)"), "{error}");
}

#[test]
fn a_dropped_connection_is_reported_at_once() {
    let sshd = Sshd::start();
    let host = Host::connect("box", &sshd.spec()).unwrap();
    let mut shell = Shell::start(&host, ":", "echo here").unwrap();
    assert_eq!(shell.ask("", LONG_TIMEOUT).unwrap().text, "here\n");
    sshd.drop_connections();
    let began = Instant::now();
    let error = shell.ask("", LONG_TIMEOUT).unwrap_err().to_string();
    assert!(error.starts_with("lost connection to host box: "), "{error}");
    assert!(began.elapsed() < LONG_TIMEOUT, "by the end of the connection, not by time");
    assert!(shell.ask("", LONG_TIMEOUT).is_err());
    // sshd itself still stands: a command connects anew.
    assert_eq!(host.run(&sh("echo again")).unwrap(), "again\n");
}

#[test]
fn a_command_in_flight_reports_the_lost_connection() {
    let sshd = Sshd::start();
    let host = Host::connect("box", &sshd.spec()).unwrap();
    let error = thread::scope(|scope| {
        let marker = sshd.path("started");
        let script = format!("touch {}; sleep 30", marker.display());
        let host = &host;
        let running = scope.spawn(move || host.output(&sh(&script)).unwrap_err().to_string());
        wait_until("the marker is there", || marker.exists());
        sshd.drop_connections();
        running.join().unwrap()
    });
    assert!(error.starts_with("lost connection to host box: "), "{error}");
}

/// The process that [`a_kill_leaves_nothing_on_the_host`] kills; not a test itself.
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
    thread::sleep(Duration::from_secs(600));
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
    wait_until("both shells have written", || {
        fs::read_to_string(&marker).is_ok_and(|text| text.contains(' '))
    });
    let shells = fs::read_to_string(&marker).unwrap();
    assert!(shells.split(' ').all(|pid| Path::new("/proc").join(pid).exists()));
    owner.kill().unwrap();
    owner.wait().unwrap();
    sshd.wait_until_idle();
    wait_until("both shells are gone", || {
        shells.split(' ').all(|pid| !Path::new("/proc").join(pid).exists())
    });
}

fn wait_for_answers(sampler: &Sampler, more: usize) {
    let before = sampler.snapshot_count();
    wait_until("the sampler has answered", || sampler.snapshot_count() >= before + more);
}

#[test]
fn a_host_is_sampled_over_ssh_as_here() {
    let sshd = Sshd::start();
    let host = Arc::new(Host::connect("box", &sshd.spec()).unwrap());
    let cadence = Duration::from_millis(50);
    let sampler = Sampler::start(Arc::clone(&host), cadence, Watch::default()).unwrap();
    let opened = Instant::now();
    sampler.mark();
    wait_until("the mark is answered", || !sampler.has_pending_mark());
    wait_for_answers(&sampler, 5);
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

/// The host's `date` is ten seconds ahead, in the experiment as a whole: a warning, and all is kept.
#[test]
fn differing_clocks_are_reported() {
    let sshd = Sshd::start();
    let fake = sshd.path("date");
    fs::write(&fake, "#!/bin/sh\nexec /bin/date -d '+10 seconds' \"$@\"\n").unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let key = fs::read_to_string(sshd.path("user_key.pub")).unwrap();
    let bin = fake.parent().unwrap().display();
    let forced = format!(
        "command=\"PATH={bin}:$PATH; export PATH; eval \\\"$SSH_ORIGINAL_COMMAND\\\"\" {key}"
    );
    fs::write(sshd.path("authorized_keys"), forced).unwrap();

    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let result = dir.compare(&format!(
        "[experiment]\nblocks = 1\nrepeats = 0\naa = false\nwarmup = '0s'\nduration = '1s'\n{}\n\
         [hosts.box]\nssh = 'box'\nssh_config = '{}'\n\
         [target]\ndsn = \"{dsn}\"\n[workload]\nkind = 'commit'\n\
         [[condition]]\nname = 'as it is'\n",
        tolerate(&[]),
        sshd.config().display()
    ));
    result.expect(0, &[]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 1);
    let offset = trials[0]["telemetry"]["hosts"]["box"]["clock_offset_seconds"].as_f64().unwrap();
    assert!((9.0..11.0).contains(&offset), "{offset}");
    assert!(failed_checks(&trials[0], "warning").contains(&"clock-skew".to_owned()));
}

#[test]
fn a_host_that_is_lost_in_a_window_costs_its_data_only() {
    let sshd = Sshd::start();
    let host = Arc::new(Host::connect("box", &sshd.spec()).unwrap());
    let cadence = Duration::from_millis(50);
    let sampler = Sampler::start(host, cadence, Watch::default()).unwrap();
    let opened = Instant::now();
    wait_for_answers(&sampler, 5);
    sshd.drop_connections();
    thread::sleep(Duration::from_millis(500));
    sampler.mark();
    let (usage, tracks, warnings) = sampler.finish(opened, Instant::now());
    let lost = "host box was not observed throughout";
    let warning =
        warnings.iter().find(|w| w.what == lost).unwrap_or_else(|| panic!("{warnings:?}"));
    assert!(warning.why.starts_with("lost connection to host box: "), "{warning}");
    assert!(usage.ticks > 0 && !tracks.is_empty(), "what came before is kept: {usage:?}");
}

/// Blocks that one process writes to a loop device, and the number of such processes.
const BLOCKS: u32 = 20;
const ROUNDS: u32 = 25;

/// ext4 on a file: the loop device, and below it the device of the file.
#[test]
fn a_loop_device_is_located_with_the_device_below_its_file() {
    if !geteuid().is_root() {
        pgio_tests::skipped("only root makes loop devices");
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

    let place = |role: &str, directory: &Path| ServerDirectory {
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
    wait_until("the sampler has answered", || sampler.snapshot_count() == 2);
    let opened = Instant::now();
    let file = data.join("file").display().to_string();
    let write = format!("dd if=/dev/zero of={file} bs=8k count={BLOCKS} oflag=dsync 2>&1");
    // Many processes take long against the delay of an answer, however busy the machine is.
    run(sh(&format!("for _ in $(seq {ROUNDS}); do {write}; done")));
    let closed = Instant::now();
    sampler.mark();
    let (usage, tracks, warnings) = sampler.finish(opened, closed);
    let device = usage.devices.get(&top.name);
    let device = device.unwrap_or_else(|| panic!("{} is missing: {warnings:?}", top.name));
    // At least one write for each block, over a span slightly longer than the window.
    let seconds = closed.duration_since(opened).as_secs_f64();
    let half = f64::from(BLOCKS * ROUNDS) / 2.0;
    assert!(device.writes_per_second * seconds > half, "{device:?} in {seconds} s");
    assert!(device.written_bytes_per_second * seconds > half * 8192.0, "{device:?}");
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

/// CPU seconds of a process of its own.
fn cpu_seconds(pid: i32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

/// That others' load is all but the servers' is tested on recorded processes; a private cluster is
/// below this process, which is not foreign either. Here the processes are real.
#[test]
fn a_backend_of_a_real_server_is_known_as_one() {
    let cluster = shared_primary(INSTALLED);
    let mut client = connect(&cluster.primary_conninfo());
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let watch = Watch { backend_pids: vec![pid], ..Watch::default() };
    let sampler = Sampler::start(Arc::new(Host::local()), Duration::from_secs(60), watch).unwrap();
    wait_until("the sampler has answered", || sampler.snapshot_count() == 1);
    let (opened, before) = (Instant::now(), cpu_seconds(pid));
    sampler.mark();
    wait_until("the sampler has answered", || sampler.snapshot_count() == 2);
    // Long against the hundredths of a second in which the kernel counts a process's time.
    let work = "SELECT sum(x) FROM (SELECT generate_series(1, 15000000) AS x) numbers";
    client.batch_execute(work).unwrap();
    sampler.mark();
    wait_until("the sampler has answered", || sampler.snapshot_count() == 3);
    let (closed, after) = (Instant::now(), cpu_seconds(pid));
    let (usage, _, warnings) = sampler.finish(opened, closed);
    let seconds = closed.duration_since(opened).as_secs_f64();
    let busy = (usage.cpu["user"] + usage.cpu["system"]) * f64::from(usage.cores.unwrap());
    let foreign = usage.foreign_cores.unwrap_or_else(|| panic!("{warnings:?}"));
    let others = busy * seconds - (after - before) * 0.7;
    assert!(foreign * seconds <= others, "{foreign} cores for {seconds} s, at most {others} s");
}
