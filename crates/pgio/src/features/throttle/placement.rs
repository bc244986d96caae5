//! The placement of a throttle on a host: the disk, the limited group, the server's processes; and
//! all checks of it.
//!
//! Next: [`super::steps`], the changes.

use std::path::{Path, PathBuf};

use super::steps::{self, GroupChange, GroupStep, LimitChange, LimitStep, PassOn, PassOnStep};
use super::{Limits, disks};
use crate::host::blkio::{self, Controller, DeviceLimits, Limit, Version};
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::{Capability, check_writable};
use crate::host::storage::{self, WholeDisk};
use crate::host::{Host, proc};
use crate::pg;
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::step::{Label, carry_out};

const PURPOSE: &str = "a throttle";

/// The processes that a limit of cgroup v1 applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// PostgreSQL, which is moved to the root group, and all processes there.
    Server,
    /// All processes in the root group.
    Root,
}

#[derive(Debug, Clone)]
pub(super) struct Placement {
    pub(super) host: String,
    pub(super) disk: WholeDisk,
    pub(super) controller: Controller,
    pub(super) limits: DeviceLimits,
    /// Whether the server runs on this host.
    is_server_host: bool,
    /// The server's process, if it must be in the limited group.
    pub(super) server: Option<Postmaster>,
}

/// The server's first process.
#[derive(Debug, Clone)]
pub(super) struct Postmaster {
    pid: i32,
    started_ticks: u64,
    current_group: String,
    /// The group that it must be in.
    pub(super) target_group: String,
}

impl Placement {
    /// `host` is the server's where it is absent; without `scope` the host decides.
    pub(super) fn find(
        context: &mut Context<'_>,
        host: Option<&str>,
        device: &str,
        scope: Option<Scope>,
    ) -> Result<Placement, TreatmentError> {
        let host = context.host(host)?;
        let name = host.name().to_owned();
        let is_server_host = match context.server_host {
            None => false,
            Some(server) => name == server || context.host(None)?.is_same_machine(&host),
        };
        let scope = match (scope, is_server_host) {
            (Some(Scope::Server), false) => {
                return Err(refused(format!(
                    "scope = \"server\" requires the host that the server runs on, not {name}: remove scope"
                )));
            }
            (Some(scope), _) => scope,
            (None, true) => Scope::Server,
            (None, false) => Scope::Root,
        };
        let disk = storage::whole_disk(&*host, device)?.ok_or_else(|| {
            refused(format!(
                "{device} is not a block device on host {name}: list its devices with lsblk"
            ))
        })?;
        let controller = blkio::find(&*host)?.ok_or_else(|| {
            refused(format!(
                "no controller of block I/O is mounted on host {name}: mount cgroup v2, or v1's by `mkdir -p /sys/fs/cgroup/blkio; mount -t cgroup -o blkio none /sys/fs/cgroup/blkio`"
            ))
        })?;
        let server = match scope {
            Scope::Server => Some(Postmaster::find(context, &*host, &controller)?),
            Scope::Root => None,
        };
        let group = match (controller.version, &server) {
            (Version::V1, _) => "/",
            (Version::V2, Some(server)) => &server.current_group,
            (Version::V2, None) => {
                return Err(refused(format!(
                    "{name} has cgroup v2, whose root group takes no limits, and kernel threads (DRBD, write-back) cannot leave it: boot it with systemd.unified_cgroup_hierarchy=0 for v1's blkio, or throttle the device below by other means"
                )));
            }
        };
        if controller.version == Version::V2 && group == "/" {
            return Err(refused(format!(
                "PostgreSQL on {name} is in the root group of cgroup v2, which takes no limits: start it in its own group, for example by `systemd-run --scope`"
            )));
        }
        let limits = DeviceLimits {
            version: controller.version,
            group: controller.directory(group),
            device: disk.number.clone(),
        };
        Ok(Placement { host: name, disk, controller, limits, is_server_host, server })
    }

    /// `write_iops of sdb (8:16) on db2`
    pub(super) fn describe_limit(&self, limit: Limit) -> String {
        format!("{} of {} ({}) on {}", limit.name(), self.disk.name, self.disk.number, self.host)
    }

    pub(super) fn how(&self) -> &'static str {
        match self.controller.version {
            Version::V1 => "in the root group of cgroup v1",
            Version::V2 => "in the server's group of cgroup v2",
        }
    }

    /// The present limits.
    pub(super) fn current_limits(&self, context: &Context<'_>) -> Result<Limits, TreatmentError> {
        let host = context.host(Some(&self.host))?;
        // Without the controller a group has no file and no limits.
        if !self.closed_groups(context)?.is_empty() {
            return Ok(Limits::new());
        }
        Ok(self.limits.read_current(&*host)?)
    }

    /// cgroup v2: the groups above the limited one that do not pass the controller on, topmost first.
    fn closed_groups(&self, context: &Context<'_>) -> Result<Vec<PathBuf>, TreatmentError> {
        let host = context.host(Some(&self.host))?;
        let mut closed = Vec::new();
        if self.controller.version == Version::V2 {
            for group in groups_above(&self.controller.mount_point, &self.limits.group) {
                if !steps::passes_on(&*host, &group)?.unwrap_or(false) {
                    closed.push(group);
                }
            }
        }
        Ok(closed)
    }

    /// Refuses what cannot work or cannot be verified.
    pub(super) fn check(
        &self,
        device: &str,
        limits: &Limits,
        context: &mut Context<'_>,
    ) -> Result<(), TreatmentError> {
        let name = &self.host;
        if !self.controller.at_root && self.controller.version == Version::V1 {
            return Err(refused(format!(
                "{} on host {name} is the root group of a container, not of the kernel, and does not include write-back: set the limit outside the container",
                self.controller.mount_point.display()
            )));
        }
        if self.is_server_host {
            disks::check_server_disk(name, &self.disk, device, context)?;
        }
        let host = context.host(Some(name))?;
        if !self.is_server_host {
            disks::check(&host, &self.disk, device, &context.layout.replicas)?;
        }
        let closed = self.closed_groups(context)?;
        let mut files: Vec<PathBuf> = if closed.is_empty() {
            limits.keys().map(|limit| self.limits.file(*limit)).collect()
        } else {
            closed.iter().map(|group| group.join(steps::SUBTREE)).collect()
        };
        for group in closed.iter().filter(|group| **group != self.controller.mount_point) {
            let processes = CommandLine::new("cat").arg(group.join("cgroup.procs"));
            if !host.run(&processes)?.trim().is_empty() {
                return Err(refused(format!(
                    "{} on host {name} contains processes, so it cannot enable the io controller for the server's group: let systemd do it (IOAccounting=yes for the server's unit)",
                    group.display()
                )));
            }
        }
        if self.must_move_server() {
            files.push(self.controller.mount_point.join("cgroup.procs"));
        }
        // Only root and the server's own user may move it.
        let enough = (!self.must_move_server()).then_some(Capability::DacOverride);
        let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        Ok(check_writable(&*host, name, PURPOSE, &files, enough)?)
    }

    /// cgroup v1: whether the server is in another group than the limited one.
    fn must_move_server(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.current_group != server.target_group)
    }

    /// The group whose limits change, or the process that changes its group.
    pub(super) fn group_touched(&self) -> Option<String> {
        match (self.controller.version, &self.server) {
            (Version::V2, _) => Some(format!("limits of group {}", self.limits.group.display())),
            (Version::V1, Some(server)) if self.must_move_server() => {
                Some(format!("group of process {}", server.pid))
            }
            (Version::V1, _) => None,
        }
    }

    /// Refuses a second group for the disk: each would have the limit for itself.
    pub(super) fn check_shared(&self, device: &str) -> Result<(), TreatmentError> {
        match self.controller.version {
            Version::V1 => Ok(()),
            Version::V2 => Err(refused(format!(
                "{device} is the disk of several servers in different groups of cgroup v2, each of which would get the limit for itself: run them in one group, or give each a disk of its own"
            ))),
        }
    }

    /// Makes all changes that are needed, each journaled first.
    pub(super) fn apply(
        &self,
        limits: &Limits,
        context: &Context<'_>,
        journal: &mut Journal,
    ) -> Result<(), TreatmentError> {
        let host = &*context.host(Some(&self.host))?;
        let label = |what: String| Label::on_host(what, &self.host);
        let (closed, found) = (self.closed_groups(context)?, self.current_limits(context)?);
        if let Some(server) = self.server.as_ref().filter(|_| self.must_move_server()) {
            let step = GroupStep {
                label: label(format!("{} of PostgreSQL", steps::GROUP)),
                prior: server.current_group.clone(),
                ours: GroupChange {
                    controller: self.controller.clone(),
                    pid: server.pid,
                    started_ticks: server.started_ticks,
                    to: server.target_group.clone(),
                },
            };
            carry_out(journal, &step, || step.apply(host))?;
        }
        for group in closed {
            let label = label(format!("io controller below {}", group.display()));
            let step = PassOnStep { label, prior: (), ours: PassOn { group } };
            carry_out(journal, &step, || step.apply(host))?;
        }
        for (&limit, &value) in limits {
            let prior = found.get(&limit).copied();
            if prior == Some(value) {
                continue;
            }
            let what = format!("{} of {} ({})", limit.name(), self.disk.name, self.disk.number);
            let (limits, boot) = (self.limits.clone(), host.boot_id().to_owned());
            let ours = LimitChange { limits, limit, value, boot };
            let step = LimitStep { label: label(what), prior, ours };
            carry_out(journal, &step, || step.apply(host))?;
        }
        Ok(())
    }
}

impl Postmaster {
    /// Finds it as the parent of our own session's process.
    fn find(
        context: &mut Context<'_>,
        host: &dyn Exec,
        controller: &Controller,
    ) -> Result<Postmaster, TreatmentError> {
        let backend = context.backend_pid()?;
        let unknown = || {
            refused(format!(
                "process {backend} of pgio's session is not a PostgreSQL process on the host in [target]: check host; a server in a container has its own process numbers"
            ))
        };
        let first = host.output(&pg::postmaster_of(backend))?.stdout;
        let stat = CommandLine::new("cat").arg(format!("/proc/{}/stat", first.trim()));
        let first = proc::parse_process(&host.output(&stat)?.stdout).ok_or_else(unknown)?;
        let current_group = controller.group_of(host, first.pid)?.ok_or_else(unknown)?;
        let target_group = match controller.version {
            Version::V1 => "/".to_owned(),
            Version::V2 => current_group.clone(),
        };
        Ok(Postmaster {
            pid: first.pid,
            started_ticks: first.started_ticks,
            current_group,
            target_group,
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn cgroup_file(&self) -> String {
        format!("/proc/{}/cgroup", self.pid)
    }

    /// Its group, in the output of a grep with file names.
    pub(super) fn group_in<'a>(&self, text: &'a str, version: Version) -> Option<&'a str> {
        let prefix = format!("{}:", self.cgroup_file());
        let mut own = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        own.find_map(|line| blkio::group_in(line, version))
    }
}

/// The groups from the mount down to the parent of `group`.
fn groups_above(mount_point: &Path, group: &Path) -> Vec<PathBuf> {
    let above = group.ancestors().skip(1).take_while(|above| above.starts_with(mount_point));
    let mut way: Vec<PathBuf> = above.map(Path::to_owned).collect();
    way.reverse();
    way
}

/// The checks of rights that need no server, with cgroup v1.
pub(super) fn check_rights(host: &Host, limits: &Limits) -> Result<(), TreatmentError> {
    let found = blkio::find(host)?.filter(|c| c.version == Version::V1);
    let Some(controller) = found else { return Ok(()) };
    let root = DeviceLimits {
        version: controller.version,
        group: controller.directory("/"),
        // The files are the same for all.
        device: String::new(),
    };
    let files: Vec<PathBuf> = limits.keys().map(|limit| root.file(*limit)).collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let enough = Some(Capability::DacOverride);
    Ok(check_writable(host, host.name(), PURPOSE, &files, enough)?)
}

fn refused(why: String) -> TreatmentError {
    TreatmentError::Refused(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_above_lists_the_ancestors_without_the_group_itself() {
        let mount = Path::new("/sys/fs/cgroup");
        let way = groups_above(mount, Path::new("/sys/fs/cgroup/a.slice/pg.service"));
        assert_eq!(way, [mount.to_owned(), mount.join("a.slice")]);
        assert_eq!(groups_above(mount, &mount.join("a")), [mount.to_owned()]);
    }
}
