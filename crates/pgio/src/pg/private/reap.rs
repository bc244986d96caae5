//! Stops and removes, at the next start, what a killed supervisor left behind.
//!
//! A directory is removed only if it has our marker, belongs to us, and its lock is free. Its
//! processes, from initdb to the last backend, are found by their working directory: postmaster.pid
//! does not list a server that is just starting, and removing the files of a running server would
//! leak its shared memory. Only servers and initdb are signaled, not a user's shell in that
//! directory. A pidfd makes sure that a signal never hits another process with a reused process id.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::directory::ClusterDirectory;
use super::layout;
use super::supervisor::remove_directory;

const SIGNAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the locks of a process that was killed may outlast it.
pub const KILLED_WAIT: Duration = Duration::from_millis(200);
const PROGRAMS: [&str; 2] = ["postgres", "initdb"];

/// Removes abandoned clusters in `base` and returns their directories. A cluster that cannot be
/// removed stays for the next clean-up: it must not prevent a start.
pub fn reap(base: &Path) -> Vec<PathBuf> {
    let Ok(base) = fs::canonicalize(base) else { return Vec::new() };
    layout::abandoned(&base).into_iter().filter(remove).map(|(root, _)| root).collect()
}

/// Removes the cluster in a directory that this user's pgio has noted, also one that was left before it was
/// marked. Returns whether it succeeded; `None` if the cluster is not abandoned or not ours.
pub fn reap_noted(root: &Path) -> Option<bool> {
    let abandoned = layout::abandoned_at(root.to_owned(), KILLED_WAIT);
    abandoned.or_else(|| layout::unfinished_at(root.to_owned())).as_ref().map(remove)
}

/// Keeps the lock until the directory is removed. The servers whose WAL is here work in the main
/// directory of the cluster, which has a clean-up of its own.
fn remove((root, directory): &(PathBuf, ClusterDirectory)) -> bool {
    let main = directory.main().and_then(|main| layout::abandoned_at(main, Duration::ZERO));
    if let Some((main, _)) = &main {
        stop_all(main);
    }
    stop_all(root);
    remove_directory(directory, root).is_ok()
}

/// Like [`reap`], for the default base directory.
pub fn reap_default() -> Vec<PathBuf> {
    reap(&layout::default_base())
}

fn stop_all(root: &Path) {
    for how in [Signal::INT, Signal::QUIT, Signal::KILL] {
        let found = processes_in(root);
        for process in &found {
            // A server stops its own backends, in the right order.
            if how == Signal::KILL || found.iter().all(|other| other.pid != process.parent) {
                process.signal(root, how);
            }
        }
        let deadline = Instant::now() + SIGNAL_TIMEOUT;
        while Instant::now() < deadline {
            if processes_in(root).is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Process {
    pid: u32,
    parent: u32,
    /// The pidfd; `None` with kernels before 5.3.
    handle: Option<OwnedFd>,
}

impl Process {
    /// Ignores errors: the process may have ended meanwhile, which is the goal.
    fn signal(&self, root: &Path, how: Signal) {
        let _: Result<(), Errno> = match (&self.handle, as_pid(self.pid)) {
            (Some(handle), _) => pidfd_send_signal(handle, how),
            (None, Some(pid)) if works_in(root, self.pid) => kill_process(pid, how),
            (None, _) => Ok(()),
        };
    }
}

fn as_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(pid.try_into().ok()?)
}

fn processes_in(root: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| process_in(root, pid)).collect()
}

/// Whether the process has its working directory in `root`; a zombie has none.
fn works_in(root: &Path, pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(root))
}

fn process_in(root: &Path, pid: u32) -> Option<Process> {
    if !works_in(root, pid) {
        return None;
    }
    let handle = match pidfd_open(as_pid(pid)?, PidfdFlags::empty()) {
        Err(Errno::NOSYS) => None,
        opened => Some(opened.ok()?),
    };
    // The name of a process is bytes.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let (name, parent) = name_and_parent(&String::from_utf8_lossy(&stat))?;
    // Check again: only now is it certain that the pidfd refers to that process.
    (works_in(root, pid) && PROGRAMS.contains(&name.as_str())).then_some(Process {
        pid,
        parent,
        handle,
    })
}

/// Parses `PID (NAME) STATE PARENT ...`, where NAME may contain any character.
fn name_and_parent(stat: &str) -> Option<(String, u32)> {
    let (head, tail) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    Some((name, tail.split_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Stdio};

    use tempfile::TempDir;

    use super::*;
    use crate::host::exec::{CommandLine, SpawnOptions, spawn};

    /// Starts `sleep` under another name in `directory`.
    fn sleeper(name: &str, bin: &Path, directory: &Path) -> Child {
        let program = bin.join(name);
        let found = ["/bin/sleep", "/usr/bin/sleep"].into_iter().find(|p| Path::new(p).exists());
        fs::copy(found.unwrap(), &program).unwrap();
        spawn_in(&program, directory)
    }

    fn spawn_in(program: &Path, directory: &Path) -> Child {
        let ties = SpawnOptions {
            stdin: Stdio::null(),
            stdout: Stdio::null(),
            stderr: Stdio::null(),
            parent_death_signal: None,
        };
        spawn(&CommandLine::new(program).arg("600").directory(directory), ties).unwrap()
    }

    #[test]
    fn only_our_programs_in_the_directory_are_stopped() {
        let (bin, base) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let root = fs::canonicalize(base.path()).unwrap().join("pgio-a");
        let (data, near) = (root.join("primary"), root.with_file_name("pgio-a2"));
        fs::create_dir_all(&data).unwrap();
        fs::create_dir(&near).unwrap();
        let mut server = sleeper("postgres", bin.path(), &data);
        let mut initdb = sleeper("initdb", bin.path(), &root);
        let mut others =
            [sleeper("bash", bin.path(), &root), spawn_in(&bin.path().join("postgres"), &near)];
        stop_all(&root);
        assert!(!server.wait().unwrap().success());
        assert!(!initdb.wait().unwrap().success());
        for other in &mut others {
            assert!(other.try_wait().unwrap().is_none(), "must not be stopped");
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }

    #[test]
    fn a_process_name_may_contain_parentheses() {
        let parsed = name_and_parent("12 (a) b) S 7 12 12");
        assert_eq!(parsed, Some(("a) b".into(), 7)));
        assert_eq!(name_and_parent("12 (postgres"), None);
    }
}
