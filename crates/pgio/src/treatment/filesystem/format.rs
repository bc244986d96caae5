//! A new file system on a device that was given for it.
//!
//! Made before each trial and gone after it. It gets a UUID that is drawn for the trial and is in the
//! journal before it is made, so the way back knows it for ours, and takes its signature off again: a
//! device that held nothing holds nothing, and the next trial may have it. One that is not ours is never
//! touched, whatever `undo` is told. What may be formatted at all is decided by
//! [`crate::host::signature`]. Next: what is put there, in [`super::over`] and [`super::tablespace`].

use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use super::mounts::Mounts;
use super::options::{self, How, Setting};
use super::tools::{BUSY, POLL, Tools, wait_for_orphans};
use super::{Change, KIND, evidence, in_force, options_of};
use crate::host::Host;
use crate::host::drbd_disks;
use crate::host::exec::{CommandLine, Exec};
use crate::host::signature::{self, BlockDevice, Found, Refusal};
use crate::results::change as declared;
use crate::results::model::{Evidence, When};
use crate::treatment::{Outlook, Step, Stranger, TreatmentError, Undone, World};
use crate::units::exact_bytes;

/// All that making, filling and leaving one takes.
pub(super) const PROGRAMS: &[&str] =
    &["mount", "umount", "wipefs", "blkid", "cp", "chown", "chmod", "du", "mkdir", "rmdir"];

/// What a file system takes for itself; mkfs.xfs makes none below 300 MiB.
const ROOM: u64 = 320 << 20;

/// As the file asks for it.
#[derive(Debug)]
pub(super) struct NewFileSystem {
    pub(super) device: String,
    file_system: &'static str,
    mkfs: Vec<String>,
    settings: Vec<Setting>,
    /// Of what the device may hold now.
    uuid: Option<String>,
}

/// Refuses arguments that could name another device, or take the UUID from us.
pub(super) fn check_arguments(arguments: &[String]) -> Result<(), String> {
    for argument in arguments {
        let names_a_place = argument.contains('/')
            || ["device=", "logdev", "rtdev", "LABEL=", "UUID="]
                .iter()
                .any(|n| argument.contains(n));
        if names_a_place {
            return Err(format!(
                "`{argument}` names a device or a file: only the one given is made"
            ));
        }
        if argument.starts_with("-U") || argument.contains("uuid") {
            return Err(format!("`{argument}` is not for the file: pgio gives a UUID of its own"));
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
        Tools::find(host, &format!("to make a file system on {}", self.device), &programs)
    }

    /// The device, if it may be formatted now.
    fn device(&self, host: &Host) -> Result<BlockDevice, TreatmentError> {
        let refused = |why: String| TreatmentError::Refused(why);
        let device = match signature::look(host, &self.device)? {
            Found::Block(device) => device,
            Found::Nothing => {
                let (device, host) = (&self.device, host.name());
                return Err(refused(format!(
                    "there is no {device} on host {host}: lsblk there names those that are"
                )));
            }
            _ => return Err(refused(format!("{} is no block device", self.device))),
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
                        "; if it is not needed any more, name it too: uuid = \"{}\"",
                        one.uuid.as_deref().unwrap_or_default()
                    ),
                    _ => "; take it off by hand (wipefs) if it is not needed any more".to_owned(),
                };
                Err(refused(format!("{path} holds {held}: formatting would destroy it{name}")))
            }
            Some(other) => Err(refused(other.to_string())),
        }
    }

    /// For people: `ext4 (mkfs -O ^has_journal)`.
    fn title(&self) -> String {
        match self.mkfs.is_empty() {
            true => self.file_system.to_owned(),
            false => format!("{} (mkfs {})", self.file_system, self.mkfs.join(" ")),
        }
    }

    /// With the options it is mounted with.
    fn then(&self) -> String {
        match options::told(&self.settings) {
            list if list.is_empty() => self.title(),
            list => format!("{} mounted with {list}", self.title()),
        }
    }

    /// `what` lies there.
    /// For what the server keeps there, as its role in the environment is called.
    pub(super) fn changes(&self, role: &str) -> Vec<declared::Change> {
        let subject = declared::Subject::FileSystem { role: role.to_owned() };
        let value = format!("{} on {}", self.title(), self.device);
        let new = declared::Change::new(None, subject, "file system", value);
        [new].into_iter().chain(options_of(&self.settings, None)).collect()
    }

    pub(super) fn intent(&self) -> String {
        let (device, then) = (&self.device, self.then());
        format!(
            "{device} = {then} by mkfs before each trial: what it holds is lost, and afterwards it holds nothing"
        )
    }

    pub(super) fn outlook(
        &self,
        host: &Host,
        how: &'static str,
    ) -> Result<Outlook, TreatmentError> {
        let now = match signature::look(host, &self.device)? {
            Found::Block(device) if device.signatures.is_empty() => "nothing".to_owned(),
            Found::Block(device) => {
                let held: Vec<String> = device.signatures.iter().map(ToString::to_string).collect();
                held.join(" and ")
            }
            _ => "no block device".to_owned(),
        };
        Ok(Outlook { what: self.device.clone(), now, then: self.then(), how })
    }

    /// Refuses a host without the programs and a device that may not be formatted, or is too small
    /// for so many bytes of `what`.
    pub(super) fn check(&self, host: &Host, what: &str, bytes: u64) -> Result<(), TreatmentError> {
        self.tools(host)?;
        let device = self.device(host)?;
        let search =
            "PATH=$PATH:/usr/sbin:/sbin; for p; do command -v \"$p\" || echo \"lacks $p\"; done";
        let search = CommandLine::new("sh").args(["-c", search, "sh"]).args(PROGRAMS);
        let said = host.output(&search.arg(self.program()))?.stdout;
        if let Some(program) = said.lines().find_map(|line| line.strip_prefix("lacks ")) {
            let host = host.name();
            return Err(TreatmentError::Refused(format!(
                "program `{program}` is not on host {host}: install it there"
            )));
        }
        let needed = bytes * 5 / 4 + ROOM;
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

    /// The step that makes it, and what the later ones mount.
    pub(super) fn begin(&self, host: &Host) -> Result<(Step, Made), TreatmentError> {
        let device = self.device(host)?;
        let draw = CommandLine::new("cat").arg("/proc/sys/kernel/random/uuid");
        let made = Made {
            device: device.path.display().to_string(),
            number: device.number,
            file_system: self.file_system.to_owned(),
            uuid: host.run(&draw)?.trim().to_owned(),
        };
        let format = Change::Format {
            device: made.device.clone(),
            file_system: made.file_system.clone(),
            mkfs: self.mkfs.clone(),
            shown: format!("{} (UUID {})", self.file_system, made.uuid),
            uuid: made.uuid.clone(),
        };
        let held = device.signatures.first().map(ToString::to_string);
        let what = format!("file system on {}", self.device);
        Ok((step(what, host, json!(held), &format), made))
    }

    /// Looked at once more: the last moment before it is gone.
    pub(super) fn make(&self, host: &Host, device: &str, uuid: &str) -> Result<(), TreatmentError> {
        let tools = self.tools(host)?;
        if !self.device(host)?.signatures.is_empty() {
            tools.run(["wipefs", "--all", "--quiet", "--", device])?;
        }
        tools.run(mkfs(self.file_system, uuid, &self.mkfs, device))?;
        Ok(())
    }

    pub(super) fn mount_options(&self) -> String {
        options::told(&self.settings)
    }

    /// Those that decide how files are made.
    pub(super) fn options_of_files(&self) -> String {
        let of_files: Vec<Setting> =
            self.settings.iter().filter(|s| s.how() == How::Format).cloned().collect();
        options::told(&of_files)
    }

    pub(super) fn see_that_it_is_mounted(
        &self,
        host: &Host,
        point: &str,
    ) -> Result<(), TreatmentError> {
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

    pub(super) fn evidence(
        &self,
        world: &mut World<'_>,
        point: Option<&str>,
        when: When,
    ) -> Evidence {
        let mounts = world.host(None).ok().and_then(|host| Mounts::read(&*host).ok());
        let mut evidence = evidence(when, mounts.as_ref(), point, &self.settings);
        let mounted = mounts.as_ref().zip(point).and_then(|(mounts, point)| mounts.at(point));
        if mounted.is_none_or(|m| m.file_system != self.file_system) {
            evidence.expected = Some(format!("{} on {}", self.title(), self.device));
        }
        evidence
    }
}

/// A file system that the first step makes.
#[derive(Debug, Clone)]
pub(super) struct Made {
    /// Without symbolic links.
    pub(super) device: String,
    /// `MAJOR:MINOR`
    pub(super) number: String,
    pub(super) file_system: String,
    pub(super) uuid: String,
}

pub(super) fn step(what: String, host: &Host, prior: Value, ours: &Change) -> Step {
    let (kind, host) = (KIND.name.to_owned(), Some(host.name().to_owned()));
    Step { kind, what, host, prior, ours: json!(ours) }
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

/// Takes off what is ours, by its UUID, and nothing else.
pub(super) fn undo_format(
    world: &mut World<'_>,
    step: &Step,
    device: &str,
    uuid: &str,
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    let host = world.host(step.host.as_deref())?;
    wait_for_orphans(&host, device)?;
    let device = &holder(&host, device, uuid)?.unwrap_or_else(|| device.to_owned());
    let Found::Block(found) = let_go(&host, device)? else {
        // With it is gone what we made.
        return Ok(Undone::Kept);
    };
    if found.signatures.is_empty() {
        return without_signature(host.name(), &found, stranger);
    }
    let held = found.signatures.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    if found.signatures.iter().any(|s| s.uuid.as_deref() != Some(uuid)) {
        // What it held may be there still, if we came no further than the journal.
        let untouched = step.prior.as_str() == Some(&held);
        return match stranger {
            _ if untouched => Ok(Undone::PutBack),
            Stranger::Keep | Stranger::Restore => Ok(Undone::Kept),
            Stranger::Ask => Err(TreatmentError::ChangedSince {
                what: format!("{device} on host {}", host.name()),
                found: held,
                ours: format!("a file system with UUID {uuid}"),
                prior: step.prior.as_str().unwrap_or("nothing").to_owned(),
            }),
        };
    }
    if let Some(why) = found.refusal(&[uuid]) {
        let why = format!("{why}; the file system is pgio's own");
        return Err(TreatmentError::Refused(why));
    }
    let tools = Tools::find(&host, &format!("to clear {device}"), &["wipefs"])?;
    tools.run(["wipefs", "--all", "--quiet", "--", device])?;
    Ok(Undone::PutBack)
}

/// An mkfs that outlived its run writes the signature last, and would do so when all seemed undone.
pub(super) fn without_signature(
    host: &str,
    found: &BlockDevice,
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    let device = found.path.display();
    let why = match (found.uses.as_slice(), &found.unreadable) {
        ([], None) => return Ok(Undone::PutBack),
        _ if stranger == Stranger::Keep => return Ok(Undone::Kept),
        ([], Some(why)) => format!(
            "what is on {device} on host {host} cannot be read ({why}), and may be pgio's: be root there, or of the group that may read and write it, then `pgio undo` again"
        ),
        (uses, _) => format!(
            "{device} on host {host} is still in use ({}), perhaps by an mkfs of the run that was interrupted: wait for its end, then `pgio undo` again, or `pgio undo --keep` if it is someone else's",
            uses.join(", ")
        ),
    };
    Err(TreatmentError::Refused(why))
}

/// Whether a file system of ours is on it.
pub(super) fn holds(host: &Host, device: &str, uuid: &str) -> Result<bool, TreatmentError> {
    let found = signature::look(host, device)?;
    let ours = |s: &signature::Signature| s.uuid.as_deref() == Some(uuid);
    Ok(matches!(found, Found::Block(found) if found.signatures.iter().any(ours)))
}

/// Where a file system of ours is now: after a reboot the device may have another name. None: nowhere.
pub(super) fn holder(
    host: &Host,
    device: &str,
    uuid: &str,
) -> Result<Option<String>, TreatmentError> {
    if holds(host, device, uuid)? {
        return Ok(Some(device.to_owned()));
    }
    let tools = Tools::find(host, &format!("to find the file system {uuid}"), &["blkid"])?;
    // Its status says that there is none, too.
    let Ok(said) = tools.run(["blkid", "-U", uuid]) else { return Ok(None) };
    let other = said.trim().to_owned();
    Ok(holds(host, &other, uuid)?.then_some(other))
}

/// A device that is in use no more, or still is after a while: the kernel lets go of a file system a
/// moment after its umount, and so does a name space that was made meanwhile.
fn let_go(host: &Host, device: &str) -> Result<Found, TreatmentError> {
    let deadline = Instant::now() + BUSY;
    loop {
        match signature::look(host, device)? {
            Found::Block(found) if !found.uses.is_empty() && Instant::now() < deadline => {
                thread::sleep(POLL);
            }
            other => return Ok(other),
        }
    }
}
