//! The kernel's block I/O controller on a host: limits per second on a device, for a cgroup.
//!
//! A machine has one of two interfaces. cgroup v1 (`blkio`) is flat: a limit applies only to the
//! processes of its own group, and kernel threads in the root group write buffered data to the disk.
//! cgroup v2 (`io`) is a tree: a limit applies to the whole subtree, but the root has no limits, and a
//! group has the file only if every group above it enables the controller. Both count requests before
//! they are merged.
//!
//! This module reads and writes these files; callers decide on the limits.
//! Next: `features::throttle`. Source: the kernel's Documentation/admin-guide/cgroup-v1/
//! blkio-controller.rst and cgroup-v2.rst.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::exec::{CommandLine, Exec, ExecError};
use super::{proc, storage};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    ReadIops,
    WriteIops,
    ReadBytes,
    WriteBytes,
}

impl Limit {
    pub const ALL: [Limit; 4] =
        [Limit::ReadIops, Limit::WriteIops, Limit::ReadBytes, Limit::WriteBytes];

    pub fn name(self) -> &'static str {
        self.names().0
    }

    /// Returns our name, the name of the v1 file, and the name of the v2 value.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Limit::ReadIops => ("read_iops", "blkio.throttle.read_iops_device", "riops"),
            Limit::WriteIops => ("write_iops", "blkio.throttle.write_iops_device", "wiops"),
            Limit::ReadBytes => ("read_bytes", "blkio.throttle.read_bps_device", "rbps"),
            Limit::WriteBytes => ("write_bytes", "blkio.throttle.write_bps_device", "wbps"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    V1,
    V2,
}

/// A mounted controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    pub version: Version,
    pub mount_point: PathBuf,
    /// Whether the mount point is the kernel's root group and not a container's.
    pub at_root: bool,
}

/// Finds the controller; `None` if neither v1 blkio nor a v2 tree with the controller is mounted.
pub fn find(exec: &dyn Exec) -> Result<Option<Controller>, ExecError> {
    let mounts = storage::parse_mounts(&cat(exec, "/proc/self/mountinfo")?);
    let has = |file: &Path| -> Result<bool, ExecError> {
        Ok(exec.output(&CommandLine::new("test").arg("-e").arg(file))?.status.success())
    };
    let v1 = mounts.iter().find(|m| {
        m.file_system == "cgroup" && m.options.split(',').any(|option| option == "blkio")
    });
    if let Some(mount) = v1 {
        let mount_point = PathBuf::from(&mount.mount_point);
        // Only the root group has this file.
        let at_root = has(&mount_point.join("release_agent"))?;
        return Ok(Some(Controller { version: Version::V1, mount_point, at_root }));
    }
    for mount in mounts.iter().filter(|m| m.file_system == "cgroup2") {
        let mount_point = PathBuf::from(&mount.mount_point);
        let controllers = match cat(exec, mount_point.join("cgroup.controllers")) {
            // Another file system was mounted over it.
            Err(ExecError::Failed { .. }) => continue,
            read => read?,
        };
        if controllers.split_whitespace().any(|name| name == "io") {
            // Only the root group lacks this file.
            let at_root = !has(&mount_point.join("cgroup.type"))?;
            return Ok(Some(Controller { version: Version::V2, mount_point, at_root }));
        }
    }
    Ok(None)
}

impl Controller {
    /// Returns the group of a process, such as `/` or `/system.slice/postgresql.service`; `None` if the
    /// process does not exist.
    pub fn group_of(&self, exec: &dyn Exec, pid: i32) -> Result<Option<String>, ExecError> {
        let line = CommandLine::new("cat").arg(format!("/proc/{pid}/cgroup"));
        let output = exec.output(&line)?;
        Ok(group_in(&output.stdout, self.version).map(str::to_owned))
    }

    pub fn directory(&self, group: &str) -> PathBuf {
        self.mount_point.join(group.trim_start_matches('/'))
    }
}

/// Extracts the group from the text of /proc/PID/cgroup.
pub fn group_in(text: &str, version: Version) -> Option<&str> {
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let matches = match version {
            Version::V1 => controllers.split(',').any(|name| name == "blkio"),
            Version::V2 => controllers.is_empty(),
        };
        matches.then_some(group)
    })
}

/// The limits of one device in one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLimits {
    pub version: Version,
    /// The group's directory.
    pub group: PathBuf,
    /// `MAJOR:MINOR` of the whole disk.
    pub device: String,
}

impl DeviceLimits {
    pub fn file(&self, limit: Limit) -> PathBuf {
        self.group.join(match self.version {
            Version::V1 => limit.names().1,
            Version::V2 => "io.max",
        })
    }

    /// Returns a command that prints each line of the files, prefixed by the file name; callers may append
    /// further files.
    pub fn reading(&self, limits: &[Limit]) -> CommandLine {
        let mut files: Vec<PathBuf> = limits.iter().map(|limit| self.file(*limit)).collect();
        files.dedup();
        CommandLine::new("grep").args(["-H", ""]).args(files)
    }

    /// Parses the output of [`DeviceLimits::reading`].
    pub fn read(&self, text: &str) -> BTreeMap<Limit, u64> {
        let mut limits = BTreeMap::new();
        for limit in Limit::ALL {
            let prefix = format!("{}:{} ", self.file(limit).display(), self.device);
            let Some(values) = text.lines().find_map(|line| line.strip_prefix(&prefix)) else {
                continue;
            };
            let value = match self.version {
                Version::V1 => Some(values),
                Version::V2 => values
                    .split(' ')
                    .find_map(|pair| pair.strip_prefix(limit.names().2)?.strip_prefix('=')),
            };
            // v2 prints `max` if there is no limit.
            limits.extend(value.and_then(|v| v.trim().parse().ok()).map(|v| (limit, v)));
        }
        limits
    }

    pub fn read_current(&self, exec: &dyn Exec) -> Result<BTreeMap<Limit, u64>, ExecError> {
        Ok(self.read(&lines(exec, &self.reading(&Limit::ALL))?))
    }

    /// Sets a limit; `None` removes it.
    pub fn set(&self, exec: &dyn Exec, limit: Limit, value: Option<u64>) -> Result<(), ExecError> {
        write(exec, &self.file(limit), &self.line(limit, value))
    }

    fn line(&self, limit: Limit, value: Option<u64>) -> String {
        let device = &self.device;
        match (self.version, value) {
            (Version::V1, value) => format!("{device} {}", value.unwrap_or(0)),
            (Version::V2, Some(value)) => format!("{device} {}={value}", limit.names().2),
            (Version::V2, None) => format!("{device} {}=max", limit.names().2),
        }
    }
}

/// Runs grep and returns its output; no match is not an error.
pub fn lines(exec: &dyn Exec, grep: &CommandLine) -> Result<String, ExecError> {
    let output = exec.output(grep)?;
    match output.status.code() {
        Some(0 | 1) => Ok(output.stdout),
        _ => Err(ExecError::Failed {
            command: grep.to_string(),
            status: output.status,
            stderr: output.stderr.trim().to_owned(),
        }),
    }
}

pub fn write(exec: &dyn Exec, file: &Path, text: &str) -> Result<(), ExecError> {
    let line = CommandLine::new("sh").args(["-c", r#"printf '%s\n' "$2" >"$1""#, "sh"]);
    exec.run(&line.arg(file).arg(text)).map(drop)
}

/// Moves a process, and its children that are in `from`. Later children inherit the group.
pub fn move_with_children(
    exec: &dyn Exec,
    controller: &Controller,
    pid: i32,
    from: &str,
    to: &str,
) -> Result<(), ExecError> {
    const EACH: &str = r#"procs=$1; shift; for pid; do echo "$pid" >"$procs"; done"#;
    let procs = controller.directory(to).join("cgroup.procs");
    write(exec, &procs, &pid.to_string())?;
    // List the children after moving the parent, so that no new child starts in the old group.
    let children: Vec<String> = children(exec, pid)?
        .into_iter()
        .filter_map(|child| match controller.group_of(exec, child) {
            Ok(Some(group)) if group == from => Some(Ok(child.to_string())),
            // The child has ended, or is in another group on purpose.
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
        .collect::<Result<_, _>>()?;
    let each = CommandLine::new("sh").args(["-c", EACH, "sh"]).arg(procs).args(children);
    // Ignore failures: children may have ended.
    exec.output(&each).map(drop)
}

pub fn children(exec: &dyn Exec, parent: i32) -> Result<Vec<i32>, ExecError> {
    // Ignore errors: processes may end while they are listed.
    let all = CommandLine::new("sh").args(["-c", "cat /proc/[0-9]*/stat 2>/dev/null"]);
    let all = proc::parse_processes(&exec.output(&all)?.stdout);
    Ok(all.into_iter().filter(|p| p.parent == parent).map(|p| p.pid).collect())
}

fn cat(exec: &dyn Exec, file: impl AsRef<Path>) -> Result<String, ExecError> {
    exec.run(&CommandLine::new("cat").arg(file.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    fn v1() -> DeviceLimits {
        let group = PathBuf::from("/sys/fs/cgroup/blkio");
        DeviceLimits { version: Version::V1, group, device: "7:3".to_owned() }
    }

    fn v2() -> DeviceLimits {
        let group = PathBuf::from("/sys/fs/cgroup/a.slice/pg.service");
        DeviceLimits { version: Version::V2, group, device: "8:16".to_owned() }
    }

    #[test]
    fn v1_files_are_read_and_written() {
        let limits = v1();
        let text = "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device:7:30 5\n\
                /sys/fs/cgroup/blkio/blkio.throttle.write_iops_device:7:3 500\n\
                /sys/fs/cgroup/blkio/blkio.throttle.read_bps_device:7:3 1048576\n\
                /proc/12/cgroup:7:blkio:/\n";
        let found = limits.read(text);
        assert_eq!(found, [(Limit::WriteIops, 500), (Limit::ReadBytes, 1 << 20)].into());
        assert_eq!(limits.read(""), BTreeMap::new());
        assert_eq!(limits.line(Limit::WriteIops, Some(500)), "7:3 500");
        assert_eq!(limits.line(Limit::WriteIops, None), "7:3 0");
        let reading = limits.reading(&[Limit::ReadIops, Limit::WriteBytes]).to_string();
        assert_eq!(
            reading,
            "grep -H '' /sys/fs/cgroup/blkio/blkio.throttle.read_iops_device \
         /sys/fs/cgroup/blkio/blkio.throttle.write_bps_device"
        );
    }

    #[test]
    fn the_v2_file_is_read_and_written() {
        let limits = v2();
        let text = "/sys/fs/cgroup/a.slice/pg.service/io.max:8:1 rbps=1 wbps=1 riops=1 wiops=1\n\
                /sys/fs/cgroup/a.slice/pg.service/io.max:8:16 rbps=2097152 wbps=max riops=max wiops=120\n";
        let found = limits.read(text);
        assert_eq!(found, [(Limit::ReadBytes, 2 << 20), (Limit::WriteIops, 120)].into());
        assert_eq!(limits.line(Limit::WriteIops, Some(7)), "8:16 wiops=7");
        assert_eq!(limits.line(Limit::ReadBytes, None), "8:16 rbps=max");
        let reading = limits.reading(&Limit::ALL).to_string();
        assert_eq!(reading, "grep -H '' /sys/fs/cgroup/a.slice/pg.service/io.max");
    }

    #[test]
    fn the_group_of_a_process_depends_on_the_version() {
        let text =
            "8:pids:/p\n7:blkio,net_cls:/a b\n1:name=systemd:/s\n0::/system.slice/pg.service\n";
        assert_eq!(group_in(text, Version::V1), Some("/a b"));
        assert_eq!(group_in(text, Version::V2), Some("/system.slice/pg.service"));
        assert_eq!(group_in("0::/\n", Version::V1), None);
        assert_eq!(group_in("", Version::V2), None);
    }

    #[test]
    fn children_of_a_local_process_are_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id().cast_signed();
        let found = children(&Host::local(), own).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id().cast_signed()), "{found:?}");
    }

    #[test]
    fn the_controller_is_found_and_a_missing_file_is_an_error() {
        let host = Host::local();
        if let Some(controller) = find(&host).unwrap() {
            assert!(controller.mount_point.is_dir(), "{controller:?}");
            let group = controller.group_of(&host, std::process::id().cast_signed()).unwrap();
            assert!(group.is_some_and(|g| g.starts_with('/')), "{controller:?}");
            assert_eq!(controller.group_of(&host, i32::MAX).unwrap(), None);
        }
        let missing = DeviceLimits { group: PathBuf::from("/nonexistent"), ..v1() };
        assert!(missing.read_current(&host).is_err());
        assert!(missing.set(&host, Limit::ReadIops, None).is_err());
    }
}
