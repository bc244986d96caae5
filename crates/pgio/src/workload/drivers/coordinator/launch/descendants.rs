//! Whether drivers on this machine descend from this process. Those of `local:N` do, those of Slurm descend
//! from its daemon, and a user's command may start either.
//!
//! Telemetry counts the descendants of this process as its own load. All drivers of a run come from one
//! engine, so it is not asked for each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::host::proc::pid_stat;

/// The subcommand that makes a process a driver.
const DRIVE: &[u8] = b"drive";

/// Returns whether a driver is among the descendants of this process.
pub fn is_driver_descendant() -> bool {
    let Ok(own) = i32::try_from(std::process::id()) else { return false };
    let is_driver = |pid: &i32| {
        // A process that has ended meanwhile is no driver.
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(DRIVE)
    };
    descendants_of(own, &parents()).iter().any(is_driver)
}

/// The parent of each process.
fn parents() -> BTreeMap<i32, i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|entry| fs::read(entry.path().join("stat")).ok());
    stats
        .filter_map(|stat| pid_stat::parse(&String::from_utf8_lossy(&stat)))
        .map(|process| (process.pid, process.parent))
        .collect()
}

/// The descendants of a process.
fn descendants_of(root: i32, parents: &BTreeMap<i32, i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut pending = vec![root];
    while let Some(parent) = pending.pop() {
        let children = parents.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid);
        pending.extend(children.filter(|pid| found.insert(*pid)));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_process_descends_from_its_parents() {
        let parents = BTreeMap::from([(1, 0), (10, 1), (11, 10), (12, 11), (20, 1)]);
        assert_eq!(descendants_of(10, &parents), BTreeSet::from([11, 12]));
        assert_eq!(descendants_of(20, &parents), BTreeSet::new());
    }

    #[test]
    fn a_driver_that_was_started_here_is_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("drive"), "sleep 60 & wait\n").unwrap();
        // As a user's command may start it.
        let mut command = Command::new("sh");
        command.args(["-c", "sh drive & wait"]).current_dir(dir.path()).stdin(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        while !is_driver_descendant() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(is_driver_descendant());
        let group = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
