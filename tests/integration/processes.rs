//! The processes that pgio starts: without its terminal, where no more may start, and ended with pgio.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use pgio::pg::private::{VersionRequest, find};
use rustix::process::Signal;

use crate::controlling::{Managed, QUICK};
use crate::disk::is_root;
use pgio_tests::fixture::{INSTALLED, copy_program, is_installed, pgio_exe, shared_primary};
use pgio_tests::workdir::{Workdir, experiment_on, wait_until};

/// What the keystrokes would be; the terminal echoes them.
const TYPED: &str = "echo pwned";

/// Programs of PostgreSQL, three of which push keystrokes first, and write down their terminal and what they inherited.
fn fakes(bin: &Path, scratch: &Path) -> PathBuf {
    // PostgreSQL finds its files from the place of its program.
    let fakes = scratch.join(bin.strip_prefix("/").unwrap());
    fs::create_dir_all(&fakes).unwrap();
    for files in ["lib", "share"] {
        let there = bin.parent().unwrap().join(files);
        symlink(there, fakes.parent().unwrap().join(files)).unwrap();
    }
    if bin.starts_with("/usr/lib") {
        symlink("/usr/share", scratch.join("usr/share")).unwrap();
    }
    let log = scratch.join("log");
    fs::write(&log, "").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
    for name in ["initdb", "pg_ctl"] {
        let text = format!(
            "#!/bin/sh\nperl -e 'open(T, \"+<\", \"/dev/tty\") and ioctl(T, 0x5412, $_) for split(//, \"{TYPED}\\n\")'\n\
             for fd in 7 8; do [ -e /proc/self/fd/$fd ] && echo \"{name} inherits $fd\" >>'{log}'; done\n\
             read -r _ _ _ _ _ _ tty _ </proc/self/stat; echo \"{name} $tty\" >>'{log}'\nexec '{bin}/{name}' \"$@\"\n",
            log = log.display(),
            bin = bin.display(),
        );
        fs::write(fakes.join(name), text).unwrap();
        fs::set_permissions(fakes.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy_program(&bin.join("postgres"), &fakes);
    fakes
}

/// Runs `pgio compare` of the text with a terminal that controls its session; returns what the terminal shows.
fn compare_on_a_terminal(text: &str, bin: &Path) -> String {
    let dir = Workdir::new();
    dir.write("e.toml", text);
    let pgio = dir.command(&[]);
    let line = format!(
        "exec 7</etc/shadow 8<>/dev/tty; '{}' compare e.toml --out out",
        pgio.get_program().display()
    );
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]).current_dir(dir.path());
    script.env("PGIO_STATE_DIR", dir.path().join("state")).env("PGIO_BINDIR", bin);
    dir.start(script).wait().expect(0, &["fast"]).out
}

/// On many kernels it could push keystrokes into the terminal of the root that runs pgio (TIOCSTI).
#[test]
fn a_program_of_another_user_has_no_terminal_to_type_into() {
    if !is_root("terminal") || !["script", "perl"].into_iter().all(is_installed) {
        return;
    }
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let bin = find(Some(VersionRequest::major(INSTALLED))).unwrap().directory;
    let bin = fakes(&bin, scratch.path());
    let server = Managed::start_with("/var/tmp", &bin, "");
    let conditions = [("fast", ""), ("small", "max_connections = 50")];
    let mut shown = String::new();
    for target in [server.target(), "private = true".to_owned()] {
        let keys = QUICK.replace("blocks = 2", "blocks = 1");
        shown += &compare_on_a_terminal(&experiment_on(&target, &keys, "", &conditions), &bin);
    }
    assert!(!shown.contains(TYPED), "{shown}");
    let log = fs::read_to_string(scratch.path().join("log")).unwrap();
    for fake in ["initdb", "pg_ctl"] {
        assert!(log.contains(&format!("{fake} 0\n")), "it was used: {log}");
    }
    assert!(log.lines().all(|line| line.ends_with(" 0")), "{log}");
}

/// Runs as root with a program on PATH, and with `--out` below a link, that belong to another user.
#[test]
fn root_uses_no_program_and_no_link_of_another_user() {
    if !is_root("other users") {
        return;
    }
    let dir = Workdir::new();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("bin")).unwrap();
    fs::write(at("bin/ssh"), format!("#!/bin/sh\ntouch '{}'\n", at("ran").display())).unwrap();
    fs::set_permissions(at("bin/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let conditions = [("a", "")];
    let server = format!("dsn = {:?}", shared_primary(INSTALLED).primary_conninfo());
    let keys = "blocks = 1\nduration = \"200ms\"\naa = false";
    let local = experiment_on(&server, keys, "", &conditions);
    dir.write("e.toml", &(local.clone() + "\n[hosts.other]\nssh = \"nowhere.invalid\"\n"));
    let nobody = Some(65534);
    for (owned, text) in [("bin", "nowhere.invalid"), ("bin/ssh", "can be changed by others")] {
        chown(at(owned), nobody, None).unwrap();
        let mut command = dir.command(&["compare", "e.toml", "--out", "out"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", at("bin").display()));
        let result = dir.start(command).wait();
        assert!(!at("ran").exists() && result.err.contains(text), "{owned}: {result}");
        chown(at(owned), Some(0), None).unwrap();
    }
    dir.write("e.toml", &local);
    fs::create_dir(at("theirs")).unwrap();
    fs::create_dir(at("elsewhere")).unwrap();
    symlink(at("elsewhere"), at("theirs/link")).unwrap();
    // Root's own link leads to the other's.
    symlink("theirs/link", at("ours")).unwrap();
    chown(at("theirs"), nobody, None).unwrap();
    lchown(at("theirs/link"), nobody, None).unwrap();
    for out in ["theirs/link/out", "ours/out"] {
        dir.pgio(&["compare", "e.toml", "--out", out]).expect(7, &["belongs to another user"]);
    }
    assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_limit_of_processes_is_an_error_and_no_panic() {
    if !is_root("processes") || !is_installed("setpriv") || !is_installed("prlimit") {
        return;
    }
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    // No other process has this user.
    chown(scratch.path(), Some(64123), None).unwrap();
    let pgio = copy_program(&pgio_exe(), scratch.path());
    let dir = Workdir::new();
    // Otherwise a download may begin, whose library starts a thread to look up the name.
    let bin = find(Some(VersionRequest::major(INSTALLED))).unwrap().directory;
    for most in 1..=6 {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=64123", "--regid=64123", "--clear-groups", "prlimit"]);
        command.arg(format!("--nproc={most}")).arg(&pgio).args(["demo", "--out", "out"]);
        command.current_dir(scratch.path()).env("HOME", scratch.path()).env("PGIO_BINDIR", &bin);
        let result = dir.start(command).wait();
        assert_ne!(result.code, Some(101), "{most}: {result}");
        assert!(!result.err.contains("panicked"), "{most}: {result}");
    }
}

#[test]
fn the_command_of_an_inventory_ends_with_pgio() {
    for signal in [Signal::TERM, Signal::KILL] {
        let dir = Workdir::new();
        let inventory = "[targets]\ninventory = 'sleep 600 & echo $! >pid; wait'\nprivate = true\n";
        let mut running = dir.start_compare(inventory);
        let pid =
            || fs::read_to_string(dir.path().join("pid")).ok().filter(|pid| pid.ends_with('\n'));
        running.wait_until("it runs", || pid().is_some());
        let process = format!("/proc/{}", pid().unwrap().trim());
        assert!(Path::new(&process).exists());
        running.signal(signal);
        running.wait();
        wait_until("it has ended", || !Path::new(&process).exists());
    }
}

/// Nothing but the end of the process ends a wait in open(2).
#[test]
fn a_second_signal_ends_a_wait_for_a_file() {
    let dir = Workdir::new();
    let fifo = dir.path().join("token");
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(&fifo).status().unwrap().success());
    dir.write("e.toml", &experiment_on("private = true", QUICK, "", &[("a", "")]));
    let live = ["--live", "127.0.0.1:0", "--live-token-file", "token"];
    let arguments = [&["compare", "e.toml", "--out", "out"][..], &live].concat();
    let mut running = dir.start(dir.command(&arguments));
    let status = format!("/proc/{}/status", running.pid());
    let handles_term = || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
        u64::from_str_radix(mask.trim(), 16).unwrap_or(0) >> (Signal::TERM.as_raw() - 1) & 1 == 1
    };
    running.wait_until("it listens for signals", handles_term);
    running.signal(Signal::TERM);
    let stderr = dir.path().join("stderr");
    let is_stopping = || fs::read_to_string(&stderr).unwrap().contains("press Ctrl-C again");
    running.wait_until("it stops", is_stopping);
    running.signal(Signal::TERM);
    running.wait().expect(130, &["stopped while waiting for a file"]);
}
