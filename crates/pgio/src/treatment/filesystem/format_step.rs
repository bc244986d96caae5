//! The step that creates a new file system; its undo clears the device.
//!
//! Only a file system with the UUID that pgio drew is ever cleared.

use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::tools::{BUSY_TIMEOUT, KIND, POLL, Tools, wait_for_orphans};
use crate::host::Host;
use crate::host::signature::{self, BlockDevice, PathKind};
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;
use crate::treatment::record::{Label, Record};
use crate::treatment::step::{OnConflict, Step, Undone};

/// The programs that create, fill and remove a file system.
pub(super) const PROGRAMS: &[&str] =
    &["mount", "umount", "wipefs", "blkid", "cp", "chown", "chmod", "du", "mkdir", "rmdir"];

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(tag = "by", rename = "format")]
pub(super) struct FormatStep {
    /// Without symbolic links.
    pub(super) device: String,
    pub(super) file_system: String,
    /// Drawn for the trial.
    pub(super) uuid: String,
    pub(super) mkfs: Vec<String>,
    /// The file system in words.
    pub(super) shown: String,
    #[serde(skip)]
    pub(super) label: Label,
    /// Description of the device's prior contents.
    #[serde(skip)]
    pub(super) prior: Option<String>,
}

impl Step for FormatStep {
    fn record(&self) -> Record {
        Record::new(KIND, &self.label, &self.prior, self)
    }

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let host = context.host(self.label.host())?;
        wait_for_orphans(&host, &self.device)?;
        let uuid = self.uuid.as_str();
        let device =
            find_device_of(&host, &self.device, uuid)?.unwrap_or_else(|| self.device.clone());
        let PathKind::Block(found) = examine_when_free(&host, &device)? else {
            // Our file system vanished with the device.
            return Ok(Undone::Kept);
        };
        if found.signatures.is_empty() {
            return undo_without_signature(host.name(), &found, on_conflict);
        }
        let held: Vec<String> = found.signatures.iter().map(ToString::to_string).collect();
        let held = held.join(" and ");
        if found.signatures.iter().any(|s| s.uuid.as_deref() != Some(uuid)) {
            // The device is as it was if the run was killed between the journal and mkfs.
            if self.prior.as_ref() == Some(&held) {
                return Ok(Undone::Restored);
            }
            // Not overwritten even by --restore: it is not ours.
            let label = Label { what: device, ..self.label.clone() };
            let ours = format!("a file system with UUID {uuid}");
            let prior = self.prior.as_deref().unwrap_or("nothing");
            let conflict = || TreatmentError::changed_since(&label, held, ours, prior);
            return on_conflict.overwrites(conflict).map(|_| Undone::Kept);
        }
        if let Some(why) = found.refusal(&[uuid]) {
            let why = format!("{why}; the file system was created by pgio");
            return Err(TreatmentError::Refused(why));
        }
        let tools = Tools::find(&host, &format!("to clear {device}"), &["wipefs"])?;
        tools.run(["wipefs", "--all", "--quiet", "--", &device])?;
        Ok(Undone::Restored)
    }
}

/// A device without a signature counts as restored only if it is unused: an mkfs that outlived its run writes
/// the signature last.
pub(super) fn undo_without_signature(
    host: &str,
    found: &BlockDevice,
    on_conflict: OnConflict,
) -> Result<Undone, TreatmentError> {
    let device = found.path.display();
    let why = match (found.uses.as_slice(), &found.unreadable) {
        ([], None) => return Ok(Undone::Restored),
        _ if on_conflict == OnConflict::Keep => return Ok(Undone::Kept),
        ([], Some(why)) => format!(
            "cannot read {device} on host {host} ({why}), which may hold a file system of pgio: log in there as root or a member of the device's group, then rerun `pgio undo`"
        ),
        (uses, _) => format!(
            "{device} on host {host} is still in use ({}), perhaps by mkfs of the interrupted run: wait until it ends, then rerun `pgio undo`, or run `pgio undo --keep` if someone else uses it",
            uses.join(", ")
        ),
    };
    Err(TreatmentError::Refused(why))
}

/// Whether the device holds the file system with this UUID.
pub(super) fn holds(host: &Host, device: &str, uuid: &str) -> Result<bool, TreatmentError> {
    let found = signature::inspect(host, device)?;
    let ours = |s: &signature::Signature| s.uuid.as_deref() == Some(uuid);
    Ok(matches!(found, PathKind::Block(found) if found.signatures.iter().any(ours)))
}

/// The device that holds the file system now: after a reboot it may have another name.
pub(super) fn find_device_of(
    host: &Host,
    device: &str,
    uuid: &str,
) -> Result<Option<String>, TreatmentError> {
    if holds(host, device, uuid)? {
        return Ok(Some(device.to_owned()));
    }
    let tools = Tools::find(host, &format!("to find the file system {uuid}"), &["blkid"])?;
    // blkid fails if there is none, too.
    let Ok(output) = tools.run(["blkid", "-U", uuid]) else { return Ok(None) };
    let other = output.trim().to_owned();
    Ok(holds(host, &other, uuid)?.then_some(other))
}

/// Reads a device when it is free, or after a while: the kernel releases a file system a
/// moment after its umount, and so does a mount namespace created meanwhile.
fn examine_when_free(host: &Host, device: &str) -> Result<PathKind, TreatmentError> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match signature::inspect(host, device)? {
            PathKind::Block(found) if !found.uses.is_empty() && Instant::now() < deadline => {
                thread::sleep(POLL);
            }
            other => return Ok(other),
        }
    }
}
