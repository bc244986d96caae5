//! Hosts over ssh: a real sshd of each test's own, on a loopback address and a port of its own.

mod sampling;
pub(crate) mod sshd;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pgio::config::experiment::HostSpec;
use pgio::host::exec::{CommandLine, Exec};
use pgio::host::{Host, Shell};

use self::sshd::Sshd;
use pgio_tests::timing::wait_until;

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
    let (output, arguments) = std::thread::scope(|scope| {
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
    let error = std::thread::scope(|scope| {
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
