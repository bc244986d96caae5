//! A new file system on the device that the file names.
//!
//! It is created before each trial and cleared after it. Its UUID is drawn for the trial and written to the
//! journal first, so that the undo recognizes it and clears its signature: a
//! device that was empty is empty again, and the next trial may use it. Any other file system is
//! never touched, whatever the flags of `undo`. [`crate::host::signature`] decides what may be formatted.
//! Next: [`super::format_step`]; [`super::data_directory`] and [`super::tablespace`] fill it.

use super::format_step::{FormatStep, PROGRAMS};
use super::mounts::{Mounts, evidence, in_force};
use super::options::{self, How, Setting, changes};
use super::tools::Tools;
use crate::host::Host;
use crate::host::drbd_disks;
use crate::host::exec::{CommandLine, Exec};
use crate::host::signature::{self, BlockDevice, PathKind, Refusal};
use crate::treatment::context::Context;
use crate::treatment::contract::Preview;
use crate::treatment::error::TreatmentError;
use crate::treatment::record::Label;
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
        if let Some(why) = drbd_disks::refusal(host, host.name(), &device)? {
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
        let step = FormatStep {
            device: device.path.display().to_string(),
            file_system: self.file_system.to_owned(),
            mkfs: self.mkfs.clone(),
            shown: format!("{} (UUID {uuid})", self.file_system),
            uuid,
            label: Label::on_host(format!("file system on {}", self.device), host.name()),
            prior: device.signatures.first().map(ToString::to_string),
        };
        Ok((step, device.number))
    }

    /// Checks the device again, right before its contents are overwritten.
    pub(super) fn make(&self, host: &Host, step: &FormatStep) -> Result<(), TreatmentError> {
        let tools = self.tools(host)?;
        if !self.device(host)?.signatures.is_empty() {
            tools.run(["wipefs", "--all", "--quiet", "--", &step.device])?;
        }
        tools.run(mkfs(self.file_system, &step.uuid, &self.mkfs, &step.device))?;
        Ok(())
    }

    pub(super) fn mount_options(&self) -> String {
        options::list(&self.settings)
    }

    /// The options that decide how files are made.
    pub(super) fn file_creation_options(&self) -> String {
        let of_files: Vec<Setting> =
            self.settings.iter().filter(|s| s.how() == How::Format).cloned().collect();
        options::list(&of_files)
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
