//! What a killed supervisor left: stopped and removed at the next start.
//!
//! A directory is swept only when it carries our mark, belongs to us, and nobody holds its
//! lock. A process is signalled only when it works in that very data directory, and through
//! a file descriptor, so that another one that got its number meanwhile is never hit.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

use super::layout::{self, Role};
use super::supervisor::remove_directory;

const PATIENCE: Duration = Duration::from_secs(10);

/// Removes abandoned clusters in `base`, and returns those that are gone.
/// What cannot be removed stays for the next time: it must not hinder a start.
pub fn sweep(base: &Path) -> Vec<PathBuf> {
    let Ok(base) = fs::canonicalize(base) else { return Vec::new() };
    let server_user = layout::server_user().ok().flatten();
    let owners: Vec<u32> =
        [Some(geteuid().as_raw()), server_user.map(|ids| ids.uid)].into_iter().flatten().collect();
    let mut removed = Vec::new();
    // Each lock is kept until its directory is gone.
    for (layout, _lock) in layout::abandoned(&base, &owners) {
        for role in [Role::Primary, Role::Standby] {
            stop(&layout.data(role));
        }
        if remove_directory(&layout.root).is_ok() {
            removed.push(layout.root);
        }
    }
    removed
}

fn stop(data: &Path) {
    let Some(pid) = pid_of(data) else { return };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    for how in [Signal::INT, Signal::QUIT, Signal::KILL] {
        if !works_in(pid, data) || pidfd_send_signal(&process, how).is_err() {
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        while works_in(pid, data) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn pid_of(data: &Path) -> Option<Pid> {
    let mut head = [0; 16];
    let length = File::open(data.join("postmaster.pid")).ok()?.read(&mut head).ok()?;
    let text = str::from_utf8(&head[..length]).ok()?;
    Pid::from_raw(text.lines().next()?.trim().parse().ok().filter(|pid| *pid > 0)?)
}

/// A postmaster's working directory is its data directory. A zombie, whose parent is slow
/// to notice its end, has none.
fn works_in(pid: Pid, data: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use tempfile::TempDir;

    use super::*;
    use crate::host::exec::{CommandLine, Ties, spawn};

    fn sleeper(directory: &Path) -> std::process::Child {
        let ties = Ties {
            stdin: Stdio::null(),
            stdout: Stdio::null(),
            stderr: Stdio::null(),
            own_group: false,
            when_parent_dies: None,
        };
        spawn(&CommandLine::new("sleep").arg("600").directory(directory), ties).unwrap()
    }

    #[test]
    fn a_process_elsewhere_is_left_alone() {
        let base = TempDir::new().unwrap();
        let data = fs::canonicalize(base.path()).unwrap();
        let mut elsewhere = sleeper(Path::new("/"));
        fs::write(data.join("postmaster.pid"), format!("{}\n{data:?}\n", elsewhere.id())).unwrap();
        stop(&data);
        assert!(elsewhere.try_wait().unwrap().is_none(), "its number was in our file by chance");
        elsewhere.kill().unwrap();
        elsewhere.wait().unwrap();
    }

    #[test]
    fn a_process_in_the_data_directory_is_stopped() {
        let base = TempDir::new().unwrap();
        let data = fs::canonicalize(base.path()).unwrap();
        let mut here = sleeper(&data);
        fs::write(data.join("postmaster.pid"), format!("{}\n{data:?}\n", here.id())).unwrap();
        stop(&data);
        assert!(!here.wait().unwrap().success());
    }

    #[test]
    fn nonsense_in_the_pid_file_is_no_process() {
        let data = TempDir::new().unwrap();
        assert_eq!(pid_of(data.path()), None);
        for text in ["", "-1\n", "0\n", "x\n"] {
            fs::write(data.path().join("postmaster.pid"), text).unwrap();
            assert_eq!(pid_of(data.path()), None, "{text:?}");
        }
    }
}
