//! The changes that a throttle makes, and their undo.
//!
//! Each undo reads the current state of the host: a crash may have come before or after the change, a
//! reboot removes all of it, or someone may have set something else.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::blkio::{self, Controller, DeviceLimits, Limit};
use crate::host::exec::{CommandLine, Exec, ExecError};
use crate::host::{Host, proc};
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;
use crate::treatment::step::{OnConflict, Record, Step, StepOf, Undo, Undone};

pub(super) const KIND: &str = "throttle";

/// The control group of PostgreSQL's processes, in words.
pub(super) const GROUP: &str = "blkio group";
/// The file of cgroup v2 with the controllers that a group passes on to those below it.
pub(super) const SUBTREE: &str = "cgroup.subtree_control";

/// A limit of a device; the prior one is absent without a limit.
pub(super) type LimitStep = StepOf<Option<u64>, LimitChange>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "change", rename = "limit")]
pub(super) struct LimitChange {
    pub(super) limits: DeviceLimits,
    pub(super) limit: Limit,
    pub(super) value: u64,
    /// The kernel's boot id: another boot has no limit of ours.
    pub(super) boot: String,
}

/// cgroup v1: the server's processes move to another group.
pub(super) type GroupStep = StepOf<String, GroupChange>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "change", rename = "group")]
pub(super) struct GroupChange {
    pub(super) controller: Controller,
    pub(super) pid: i32,
    pub(super) started_ticks: u64,
    pub(super) to: String,
}

/// cgroup v2: a group passes the controller on to those below it.
pub(super) type PassOnStep = StepOf<(), PassOn>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "change", rename = "pass_on")]
pub(super) struct PassOn {
    pub(super) group: PathBuf,
}

/// Which of the three a record is.
#[derive(Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
enum Change {
    Limit,
    Group,
    PassOn,
}

pub(super) fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    match record.ours_as()? {
        Change::Limit => LimitStep::read(record),
        Change::Group => GroupStep::read(record),
        Change::PassOn => PassOnStep::read(record),
    }
}

impl LimitStep {
    pub(super) fn apply(&self, host: &Host) -> Result<(), TreatmentError> {
        let LimitChange { limits, limit, value, .. } = &self.ours;
        Ok(limits.set(host, *limit, Some(*value))?)
    }
}

impl Undo for LimitStep {
    const KIND: &'static str = KIND;

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let StepOf { label, prior, ours: LimitChange { limits, limit, value, boot } } = self;
        let host = &*context.host(label.host())?;
        let found = match limits.read_current(host) {
            Ok(found) => found.get(limit).copied(),
            // The group no longer exists, or after a reboot its file; every limit vanished with it.
            Err(_) if !host.exists(&limits.file(*limit))? => None,
            Err(error) => return Err(error.into()),
        };
        if found == *prior {
            return Ok(Undone::Restored);
        }
        let rebooted = *boot != host.boot_id();
        // Neither ours nor the prior limit outlived the reboot.
        if rebooted && found.is_none() {
            return Ok(Undone::Kept);
        }
        if found != Some(*value) || rebooted {
            let shown = |v: Option<u64>| v.map_or("absent".to_owned(), |v| v.to_string());
            let [found, ours, prior] = [found, Some(*value), *prior].map(shown);
            let conflict = || TreatmentError::changed_since(label, found, ours, prior);
            if !on_conflict.overwrites(conflict)? {
                return Ok(Undone::Kept);
            }
        }
        limits.set(host, *limit, *prior)?;
        Ok(Undone::Restored)
    }
}

impl GroupStep {
    pub(super) fn apply(&self, host: &Host) -> Result<(), TreatmentError> {
        let GroupChange { controller, pid, to, .. } = &self.ours;
        Ok(blkio::move_with_children(host, controller, *pid, &self.prior, to)?)
    }
}

impl Undo for GroupStep {
    const KIND: &'static str = KIND;

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let StepOf { label, prior: from, ours } = self;
        let GroupChange { controller, pid, started_ticks, to } = ours;
        let host = &*context.host(label.host())?;
        // The process ended, or another one has its number: the server was restarted in its own group.
        if start_ticks(host, *pid)? != Some(*started_ticks) {
            return Ok(Undone::Kept);
        }
        let found = controller.group_of(host, *pid)?.unwrap_or_default();
        if found != *to && found != *from {
            let conflict =
                || TreatmentError::changed_since(label, found, to.as_str(), from.as_str());
            if !on_conflict.overwrites(conflict)? {
                return Ok(Undone::Kept);
            }
        }
        // Do this even if the first process is back already: its children may not be.
        let home = nearest_existing(host, controller, from)?;
        blkio::move_with_children(host, controller, *pid, to, &home)?;
        Ok(Undone::Restored)
    }
}

impl PassOnStep {
    pub(super) fn apply(&self, host: &Host) -> Result<(), TreatmentError> {
        Ok(blkio::write(host, &self.ours.group.join(SUBTREE), "+io")?)
    }
}

impl Undo for PassOnStep {
    const KIND: &'static str = KIND;

    fn undo(&self, context: &mut Context<'_>, _: OnConflict) -> Result<Undone, TreatmentError> {
        undo_pass_on(&*context.host(self.label.host())?, &self.ours.group)
    }
}

/// Keeps the controller enabled if another group below uses it by now.
pub(super) fn undo_pass_on(exec: &dyn Exec, group: &Path) -> Result<Undone, TreatmentError> {
    if passes_on(exec, group)? != Some(true) {
        return Ok(Undone::Restored);
    }
    if used_below(exec, group)? {
        return Ok(Undone::Kept);
    }
    match blkio::write(exec, &group.join(SUBTREE), "-io") {
        Ok(()) => Ok(Undone::Restored),
        // The kernel only reports that it is busy, and not every shell shows that.
        Err(ExecError::Failed { .. }) if used_below(exec, group)? => Ok(Undone::Kept),
        Err(error) => Err(error.into()),
    }
}

/// The start time of a process; `None` without one of this number.
fn start_ticks(exec: &dyn Exec, pid: i32) -> Result<Option<u64>, ExecError> {
    let stat = exec.output(&CommandLine::new("cat").arg(format!("/proc/{pid}/stat")))?;
    Ok(proc::parse_process(&stat.stdout).map(|process| process.started_ticks))
}

/// Returns whether a group of v2 passes the controller on; none if the group no longer exists.
pub(super) fn passes_on(exec: &dyn Exec, group: &Path) -> Result<Option<bool>, ExecError> {
    let output = exec.output(&CommandLine::new("cat").arg(group.join(SUBTREE)))?;
    let passed = || output.stdout.split_whitespace().any(|name| name == "io");
    Ok(output.status.success().then(passed))
}

/// Whether a group right below has a limit, a latency target or a weight other than the kernel's
/// default, or passes the controller on.
pub(super) fn used_below(exec: &dyn Exec, group: &Path) -> Result<bool, ExecError> {
    const USES: &str = r#"exec 2>/dev/null
        cat "$1"/*/io.max "$1"/*/io.latency
        grep -hvE '^(default )?100$' "$1"/*/io.weight "$1"/*/io.bfq.weight
        grep -hw io "$1"/*/cgroup.subtree_control"#;
    let output = exec.output(&CommandLine::new("sh").args(["-c", USES, "sh"]).arg(group))?;
    Ok(!output.stdout.trim().is_empty())
}

/// A group, or the lowest one above it that still exists.
pub(super) fn nearest_existing(
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
