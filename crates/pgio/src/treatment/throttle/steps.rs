//! The changes that a throttle makes, as the journal keeps them, and their way back.
//!
//! Each undo asks the host what is there now: a crash may have come before or after the change, the
//! machine may have been rebooted since, which takes all of it away, or somebody may have set
//! something else.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::host::blkio::{self, Controller, DeviceLimits, Limit};
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::proc::pid_stat;
use crate::treatment::{Step, Stranger, TreatmentError, Undone, World};

/// The processes' own, in words.
pub(super) const GROUP: &str = "blkio group";
/// v2: what a group passes on to those below it.
pub(super) const SUBTREE: &str = "cgroup.subtree_control";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(super) enum Change {
    Limit {
        limits: DeviceLimits,
        limit: Limit,
        value: u64,
        /// Of the kernel that was told; another one knows of nothing.
        boot: String,
    },
    /// v1: the server's processes.
    Group { controller: Controller, pid: i32, started_ticks: u64, to: String },
    /// v2.
    PassOn { group: PathBuf },
}

fn change_of(step: &Step) -> Result<Change, TreatmentError> {
    serde_json::from_value(step.ours.clone()).map_err(|e| {
        TreatmentError::Config(format!(
            "the journal's step `{}` cannot be understood ({e}); use the pgio that wrote it",
            step.what
        ))
    })
}

pub(super) fn apply(world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
    let host = world.host(step.host.as_deref())?;
    match change_of(step)? {
        Change::Limit { limits, limit, value, .. } => limits.set(&*host, limit, Some(value))?,
        Change::Group { controller, pid, to, .. } => {
            let from = step.prior.as_str().unwrap_or_default();
            blkio::move_with_children(&*host, &controller, pid, from, &to)?;
        }
        Change::PassOn { group } => blkio::write(&*host, &group.join(SUBTREE), "+io")?,
    }
    Ok(())
}

pub(super) fn undo(
    world: &mut World<'_>,
    step: &Step,
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    let host = world.host(step.host.as_deref())?;
    match change_of(step)? {
        Change::Limit { limits, limit, value, boot } => {
            let ours = Ours { value, rebooted: boot != host.boot() };
            undo_limit(&host, step, &limits, limit, ours, stranger)
        }
        Change::Group { controller, pid, started_ticks, to } => {
            // Gone, or another by the same number: the server was started again, where it belongs.
            if started(&*host, pid)? != Some(started_ticks) {
                return Ok(Undone::Kept);
            }
            let prior = step.prior.as_str().unwrap_or("/");
            let found = controller.group_of(&*host, pid)?.unwrap_or_default();
            if found != to && found != prior {
                match stranger {
                    Stranger::Keep => return Ok(Undone::Kept),
                    Stranger::Restore => {}
                    Stranger::Ask => return Err(changed(step, &found, &to, prior)),
                }
            }
            // Also where the first process is back: its children may not be.
            let home = nearest(&*host, &controller, prior)?;
            blkio::move_with_children(&*host, &controller, pid, &to, &home)?;
            Ok(Undone::PutBack)
        }
        Change::PassOn { group } => undo_pass_on(&*host, &group),
    }
}

/// Ours went before: whoever uses the controller below the group since needs it.
pub(super) fn undo_pass_on(exec: &dyn Exec, group: &Path) -> Result<Undone, TreatmentError> {
    if passes_on(exec, group)? != Some(true) {
        return Ok(Undone::PutBack);
    }
    if used_below(exec, group)? {
        return Ok(Undone::Kept);
    }
    match blkio::write(exec, &group.join(SUBTREE), "-io") {
        Ok(()) => Ok(Undone::PutBack),
        // The kernel says no more than that it is busy, and not every shell says even that.
        Err(ExecError::Failed { .. }) if used_below(exec, group)? => Ok(Undone::Kept),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Clone, Copy)]
struct Ours {
    value: u64,
    /// Since it was set.
    rebooted: bool,
}

fn undo_limit(
    host: &Host,
    step: &Step,
    limits: &DeviceLimits,
    limit: Limit,
    ours: Ours,
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    let prior = step.prior.as_u64();
    let found = match limits.found(host) {
        Ok(found) => found.get(&limit).copied(),
        // The group is gone, or its file since a reboot; and with it every limit.
        Err(_) if !host.exists(&limits.file(limit))? => None,
        Err(error) => return Err(error.into()),
    };
    if found == prior {
        return Ok(Undone::PutBack);
    }
    // Neither ours nor the prior one outlived the reboot.
    if ours.rebooted && found.is_none() {
        return Ok(Undone::Kept);
    }
    if found != Some(ours.value) || ours.rebooted {
        match stranger {
            Stranger::Keep => return Ok(Undone::Kept),
            Stranger::Restore => {}
            Stranger::Ask => {
                let shown = |v: Option<u64>| v.map_or("absent".to_owned(), |v| v.to_string());
                let [found, ours, prior] = [found, Some(ours.value), prior].map(shown);
                return Err(changed(step, &found, &ours, &prior));
            }
        }
    }
    limits.set(host, limit, prior)?;
    Ok(Undone::PutBack)
}

fn changed(step: &Step, found: &str, ours: &str, prior: &str) -> TreatmentError {
    TreatmentError::ChangedSince {
        what: format!("{} on host {}", step.what, step.host.as_deref().unwrap_or_default()),
        found: found.to_owned(),
        ours: ours.to_owned(),
        prior: prior.to_owned(),
    }
}

/// When a process of PostgreSQL's began; `None` where there is none of this number.
fn started(exec: &dyn Exec, pid: i32) -> Result<Option<u64>, ExecError> {
    let stat = exec.output(&CommandLine::new("cat").arg(format!("/proc/{pid}/stat")))?;
    let process = pid_stat::parse(&stat.stdout).filter(|p| is_postgres(&p.name));
    Ok(process.map(|p| p.started_ticks))
}

pub(super) fn is_postgres(program: &str) -> bool {
    ["postgres", "postmaster"].contains(&program)
}

/// Whether a group of v2 passes the controller on; `None` where it is gone.
pub(super) fn passes_on(exec: &dyn Exec, group: &Path) -> Result<Option<bool>, ExecError> {
    let output = exec.output(&CommandLine::new("cat").arg(group.join(SUBTREE)))?;
    let passed = || output.stdout.split_whitespace().any(|name| name == "io");
    Ok(output.status.success().then(passed))
}

/// Whether a group right below has a limit, a latency to be kept or a weight that is not the kernel's
/// own, or passes the controller on.
pub(super) fn used_below(exec: &dyn Exec, group: &Path) -> Result<bool, ExecError> {
    const USES: &str = r#"exec 2>/dev/null
        cat "$1"/*/io.max "$1"/*/io.latency
        grep -hvE '^(default )?100$' "$1"/*/io.weight "$1"/*/io.bfq.weight
        grep -hw io "$1"/*/cgroup.subtree_control"#;
    let output = exec.output(&CommandLine::new("sh").args(["-c", USES, "sh"]).arg(group))?;
    Ok(!output.stdout.trim().is_empty())
}

/// A group, or the lowest above it that is left.
pub(super) fn nearest(
    exec: &dyn Exec,
    controller: &Controller,
    group: &str,
) -> Result<String, ExecError> {
    let mut at = Path::new(group);
    while let Some(above) = at.parent() {
        if exec.exists(&controller.directory(&at.to_string_lossy()))? {
            break;
        }
        at = above;
    }
    Ok(at.to_string_lossy().into_owned())
}
