//! Whose program is run for the settings of a standby, and with what: anybody can name a process like a
//! walreceiver. As root the processes belong to another user, like PostgreSQL's.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use tempfile::TempDir;

use super::*;
use crate::host::exec::Local;

const RECEIVER: &str = "postgres: walreceiver";
/// `nobody`.
const USER: u32 = 65_534;
/// The script that runs instead of `postgres -C fsync`: `ran` gets session, process and variables.
const FSYNC: &str = "read -r _ _ _ _ _ session _ </proc/$$/stat\n\
                     { echo \"$session $$\"; env; } >ran\necho on\n";

/// A process with a child named like a walreceiver. Its program is a copy of a shell.
struct FakeStandby {
    dir: TempDir,
    child: Child,
}

impl FakeStandby {
    /// `prepare` gets the directory of the program.
    fn start(program: &str, user: Option<u32>, prepare: impl FnOnce(&Path)) -> FakeStandby {
        let dir = tempfile::tempdir().unwrap();
        let (bin, data) = (dir.path().join("bin"), dir.path().join("data"));
        for path in [&bin, &data] {
            fs::create_dir(path).unwrap();
        }
        for path in [dir.path(), &bin, &data] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // Not by this process: children of other tests would inherit the file while it is open for writing.
        let install = CommandLine::new("install").args(["-m", "755", "/bin/sh"]);
        Local.run(&install.arg(bin.join(program))).unwrap();
        symlink("/bin/sleep", data.join(RECEIVER)).unwrap();
        fs::write(data.join("start"), format!("PATH=$PWD\n'{RECEIVER}' 600 &\nwait\n")).unwrap();
        fs::write(data.join("fsync"), FSYNC).unwrap();
        let mut command = Command::new(bin.join(program));
        command.arg("start").current_dir(&data).process_group(0);
        if let Some(user) = user {
            chown(&data, Some(user), None).unwrap();
            command.uid(user).gid(user);
        }
        prepare(&bin);
        let standby = FakeStandby { child: command.spawn().unwrap(), dir };
        standby.wait_for_receiver();
        standby
    }

    fn data(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("data")
    }

    fn wait_for_receiver(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let is_receiver = |process: PathBuf| {
            fs::read(process.join("cmdline"))
                .is_ok_and(|line| line.starts_with(RECEIVER.as_bytes()))
                && fs::read_link(process.join("cwd")).is_ok_and(|at| at == self.data())
        };
        while !fs::read_dir("/proc").unwrap().flatten().any(|entry| is_receiver(entry.path())) {
            assert!(Instant::now() < deadline, "the receiver was never seen");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads the environment with a secret among pgio's variables; returns the setting, and what ran.
    fn read(&self) -> (Option<String>, Option<String>) {
        let text = Local.run(&script(Selection::All).env("PGPASSWORD", "geheim")).unwrap();
        let fact = fact::standby(&self.data().display().to_string(), "fsync");
        (parse(&text, &[]).remove(&fact), fs::read_to_string(self.data().join("ran")).ok())
    }
}

impl Drop for FakeStandby {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The user of a server: another one, as PostgreSQL refuses root.
fn server_user() -> Option<u32> {
    geteuid().is_root().then_some(USER)
}

#[test]
fn the_program_of_a_standby_gets_no_variables_and_a_session_of_its_own() {
    let standby = FakeStandby::start("postgres", server_user(), |_| {});
    let (setting, ran) = standby.read();
    assert_eq!(setting.as_deref(), Some("on"));
    let ran = ran.unwrap();
    let (session, variables) = ran.split_once('\n').unwrap();
    let (session, process) = session.split_once(' ').unwrap();
    assert_eq!(session, process, "it leads its session");
    let mut names: Vec<&str> =
        variables.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    // The shell adds PWD, and some shells others.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["LC_ALL", "PATH", "PGDATA"], "{variables}");
}

#[test]
fn a_program_of_root_is_never_run() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can start such a process");
        return;
    }
    assert_eq!(FakeStandby::start("postgres", None, |_| {}).read(), (None, None));
}

#[test]
fn a_program_that_is_not_postgres_or_that_others_can_replace_is_not_run() {
    let user = server_user();
    let mode = |path: PathBuf, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let mut ran = Vec::new();
    let mut try_program = |why, program, prepare: &dyn Fn(&Path)| {
        if FakeStandby::start(program, user, prepare).read() != (None, None) {
            ran.push(why);
        }
    };
    try_program("another name", "postgres2", &|_| {});
    try_program("others may write to the directory", "postgres", &|bin| mode(bin.into(), 0o757));
    try_program("the group may write to it", "postgres", &|bin| mode(bin.join("postgres"), 0o775));
    if user.is_some() {
        let give_away = |bin: &Path| chown(bin, Some(USER - 1), None).unwrap();
        try_program("the directory is another user's", "postgres", &give_away);
    }
    assert_eq!(ran, [""; 0]);
}
