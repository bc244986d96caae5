//! A new file system on the device that the file names.
//!
//! It is created before each trial and cleared after it. Its UUID is drawn for the trial and written to the
//! journal first, so that the undo recognizes it and clears its signature: a
//! device that was empty is empty again, and the next trial may use it. Any other file system is
//! never touched, whatever the flags of `undo`. [`crate::host::signature`] decides what may be formatted.
//! Next: [`super::format_step`]; [`super::data_directory`] and [`super::tablespace`] fill it.

use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::mounts::{Mounts, evidence, in_force};
use super::options::{self, How, Setting, changes};
use super::tools::{BUSY_TIMEOUT, KIND, POLL, Tools, wait_for_orphans};
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::host::signature::{self, BlockDevice, PathKind, Refusal};
use crate::treatment::context::Context;
use crate::treatment::contract::Preview;
use crate::treatment::error::TreatmentError;
use crate::treatment::step::{Label, OnConflict, StepOf, Undo, Undone};
use pgio_results::change::{Change, Subject};
use pgio_results::model::{Evidence, When};
use pgio_results::units::exact_bytes;

/// Space that a file system needs for itself; mkfs.xfs refuses less than 300 MiB.
const OVERHEAD_BYTES: u64 = 320 << 20;

/// The file system that the file requests.
#[derive(Debug, Clone)]
pub(super) struct NewFileSystem {
    pub(super) device: String,
    file_system: &'static str,
    mkfs: Vec<String>,
    settings: Vec<Setting>,
    /// The file system that the device may hold now.
    uuid: Option<String>,
}

/// Refuses arguments that could name another device or set the UUID.
pub(super) fn check_arguments(arguments: &[String]) -> Result<(), String> {
    for argument in arguments {
        let names_a_place = argument.contains('/')
            || ["device=", "logdev", "rtdev", "LABEL=", "UUID="]
                .iter()
                .any(|n| argument.contains(n));
        if names_a_place {
            return Err(format!(
                "`{argument}` names a device or a file: mkfs formats only the given device"
            ));
        }
        if argument.starts_with("-U") || argument.contains("uuid") {
            return Err(format!("`{argument}` is not allowed: pgio sets the UUID"));
        }
    }
    let value = arguments
        .iter()
        .zip(arguments.iter().skip(1))
        .find(|(before, it)| !it.starts_with('-') && !before.starts_with('-'));
    match value.map(|(_, it)| it).or(arguments.first().filter(|a| !a.starts_with('-'))) {
        Some(word) => Err(format!("`{word}` belongs to no option")),
        None => Ok(()),
    }
}

impl NewFileSystem {
    pub(super) fn new(
        device: &str,
        file_system: &'static str,
        mkfs: Vec<String>,
        settings: Vec<Setting>,
        uuid: Option<&str>,
    ) -> NewFileSystem {
        let (device, uuid) = (device.to_owned(), uuid.map(str::to_owned));
        NewFileSystem { device, file_system, mkfs, settings, uuid }
    }

    fn program(&self) -> String {
        format!("mkfs.{}", self.file_system)
    }

    pub(super) fn tools<'a>(&self, host: &'a Host) -> Result<Tools<'a>, TreatmentError> {
        let mkfs = self.program();
        let programs: Vec<&str> = PROGRAMS.iter().copied().chain([mkfs.as_str()]).collect();
        Tools::find(host, &format!("to create a file system on {}", self.device), &programs)
    }

    /// Returns the device, or refuses if it must not be formatted now.
    fn device(&self, host: &Host) -> Result<BlockDevice, TreatmentError> {
        let refused = |why: String| TreatmentError::Refused(why);
        let device = match signature::inspect(host, &self.device)? {
            PathKind::Block(device) => device,
            PathKind::Nothing => {
                let (device, host) = (&self.device, host.name());
                return Err(refused(format!(
                    "host {host} has no device {device}: list its devices with lsblk"
                )));
            }
            _ => return Err(refused(format!("{} is not a block device", self.device))),
        };
        if let Some(why) = signature::claimed(host, host.name(), &device)? {
            return Err(refused(why.to_string()));
        }
        let confirmed: Vec<&str> = self.uuid.as_deref().into_iter().collect();
        match device.refusal(&confirmed) {
            None => Ok(device),
            Some(Refusal::Holds { device: path, held }) => {
                let name = match &device.signatures[..] {
                    [one] if one.uuid.is_some() => format!(
                        "; if its contents may be lost, confirm it: uuid = \"{}\"",
                        one.uuid.as_deref().unwrap_or_default()
                    ),
                    _ => {
                        "; if its contents may be lost, remove the signature with wipefs".to_owned()
                    }
                };
                Err(refused(format!("{path} holds {held}: formatting would destroy it{name}")))
            }
            Some(other) => Err(refused(other.to_string())),
        }
    }

    /// Describes it: `ext4 (mkfs -O ^has_journal)`.
    fn title(&self) -> String {
        if self.mkfs.is_empty() {
            self.file_system.to_owned()
        } else {
            format!("{} (mkfs {})", self.file_system, self.mkfs.join(" "))
        }
    }

    /// The same, with the mount options.
    fn description(&self) -> String {
        match options::list(&self.settings) {
            list if list.is_empty() => self.title(),
            list => format!("{} mounted with {list}", self.title()),
        }
    }

    /// `role` is what the server keeps there, as the environment names it.
    pub(super) fn changes(&self, role: &str) -> Vec<Change> {
        let subject = Subject::FileSystem { role: role.to_owned() };
        let value = format!("{} on {}", self.title(), self.device);
        let new = Change::new(None, subject, "file system", value);
        [new].into_iter().chain(changes(&self.settings, None)).collect()
    }

    pub(super) fn intent(&self) -> String {
        let (device, then) = (&self.device, self.description());
        format!(
            "{device} = {then} by mkfs before each trial: its contents are lost, and it is empty afterwards"
        )
    }

    pub(super) fn preview(
        &self,
        host: &Host,
        how: &'static str,
    ) -> Result<Preview, TreatmentError> {
        let now = match signature::inspect(host, &self.device)? {
            PathKind::Block(device) if device.signatures.is_empty() => "nothing".to_owned(),
            PathKind::Block(device) => {
                let held: Vec<String> = device.signatures.iter().map(ToString::to_string).collect();
                held.join(" and ")
            }
            _ => "not a block device".to_owned(),
        };
        Ok(Preview { what: self.device.clone(), now, then: self.description(), how })
    }

    /// Refuses a host without the programs and a device that may not be formatted, or is too small
    /// for `bytes` of `what`.
    pub(super) fn check(&self, host: &Host, what: &str, bytes: u64) -> Result<(), TreatmentError> {
        self.tools(host)?;
        let device = self.device(host)?;
        let own = self.program();
        if let Some(program) = host.lacks(&[PROGRAMS, &[own.as_str()]].concat())? {
            let host = host.name();
            return Err(TreatmentError::Refused(format!(
                "program `{program}` is not installed on host {host}: install it there"
            )));
        }
        let needed = bytes * 5 / 4 + OVERHEAD_BYTES;
        if device.bytes < needed {
            return Err(TreatmentError::Refused(format!(
                "{} has {}, too little for {what} on a file system, which needs about {}",
                self.device,
                exact_bytes(device.bytes),
                exact_bytes(needed)
            )));
        }
        Ok(())
    }

    /// Returns the step that creates it, and the device's number.
    pub(super) fn step(&self, host: &Host) -> Result<(FormatStep, String), TreatmentError> {
        let device = self.device(host)?;
        let draw = CommandLine::new("cat").arg("/proc/sys/kernel/random/uuid");
        let uuid = host.run(&draw)?.trim().to_owned();
        let ours = Format {
            device: device.path.display().to_string(),
            file_system: self.file_system.to_owned(),
            mkfs: self.mkfs.clone(),
            shown: format!("{} (UUID {uuid})", self.file_system),
            uuid,
        };
        let label = Label::on_host(format!("file system on {}", self.device), host.name());
        let prior = device.signatures.first().map(ToString::to_string);
        Ok((FormatStep { label, prior, ours }, device.number))
    }

    /// Checks the device again, right before its contents are overwritten.
    pub(super) fn make(&self, host: &Host, step: &FormatStep) -> Result<(), TreatmentError> {
        let tools = self.tools(host)?;
        let Format { device, uuid, .. } = &step.ours;
        if !self.device(host)?.signatures.is_empty() {
            tools.run(["wipefs", "--all", "--quiet", "--", device])?;
        }
        tools.run(mkfs(self.file_system, uuid, &self.mkfs, device))?;
        Ok(())
    }

    pub(super) fn mount_options(&self) -> String {
        options::list(&self.settings)
    }

    /// The options that decide how files are made.
    pub(super) fn file_creation_options(&self) -> String {
        let file_settings: Vec<Setting> =
            self.settings.iter().filter(|s| s.how() == How::Format).cloned().collect();
        options::list(&file_settings)
    }

    pub(super) fn check_mounted(&self, host: &Host, point: &str) -> Result<(), TreatmentError> {
        let mounts = Mounts::read(host)?;
        let mounted = mounts.at(point).cloned().unwrap_or_default();
        if mounted.file_system == self.file_system && in_force(&mounted, &self.settings) {
            return Ok(());
        }
        Err(TreatmentError::NotInForce {
            what: format!("{} {}", self.title(), self.mount_options()),
            seconds: 0,
            why: format!("the kernel shows {} {}", mounted.file_system, mounted.options),
        })
    }

    pub(super) fn evidence(&self, context: &mut Context<'_>, point: &str, when: When) -> Evidence {
        let mounts = context.host(None).ok().and_then(|host| Mounts::read(&*host).ok());
        let mut evidence = evidence(when, mounts.as_ref(), point, &self.settings);
        let Some(mounts) = mounts else { return evidence };
        if mounts.at(point).is_none_or(|m| m.file_system != self.file_system) {
            evidence.expected = Some(format!("{} on {}", self.title(), self.device));
        }
        evidence
    }
}

fn mkfs(file_system: &str, uuid: &str, more: &[String], device: &str) -> Vec<String> {
    let mut words = vec![format!("mkfs.{file_system}"), "-q".to_owned()];
    match file_system {
        "xfs" => words.extend(["-m".to_owned(), format!("uuid={uuid}")]),
        _ => words.extend(["-U".to_owned(), uuid.to_owned()]),
    }
    words.extend(more.iter().cloned());
    words.extend(["--".to_owned(), device.to_owned()]);
    words
}

/// The programs that create, fill and remove a file system.
pub(super) const PROGRAMS: &[&str] =
    &["mount", "umount", "wipefs", "blkid", "cp", "chown", "chmod", "du", "mkdir", "rmdir"];

/// The prior value describes the device's contents.
pub(super) type FormatStep = StepOf<Option<String>, Format>;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "by", rename = "format")]
pub(super) struct Format {
    /// Without symbolic links.
    pub(super) device: String,
    pub(super) file_system: String,
    /// Drawn for the trial.
    pub(super) uuid: String,
    pub(super) mkfs: Vec<String>,
    /// The file system in words.
    pub(super) shown: String,
}

impl Undo for FormatStep {
    const KIND: &'static str = KIND;

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let host = context.host(self.label.host())?;
        let Format { device, uuid, .. } = &self.ours;
        wait_for_orphans(&host, device)?;
        let device = find_device_of(&host, device, uuid)?.unwrap_or_else(|| device.clone());
        let PathKind::Block(found) = examine_when_free(&host, &device)? else {
            // Our file system vanished with the device.
            return Ok(Undone::Kept);
        };
        if found.signatures.is_empty() {
            return undo_without_signature(host.name(), &found, on_conflict);
        }
        let held: Vec<String> = found.signatures.iter().map(ToString::to_string).collect();
        let held = held.join(" and ");
        if found.signatures.iter().any(|s| s.uuid.as_ref() != Some(uuid)) {
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
