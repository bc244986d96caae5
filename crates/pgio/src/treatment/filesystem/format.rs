//! A new file system on a device that was given for it, under a private cluster.
//!
//! Each trial: stop, mkfs, copy the data directory there, mount it over the data directory, start.
//! The way back: stop, unmount, start; the original was underneath all the time. The file system gets
//! a UUID that is drawn for the trial and is in the journal before it is made, so the way back knows
//! it for ours, and takes its signature off again: a device that held nothing holds nothing, and the
//! next trial may have it. One that is not ours is never touched, whatever `undo` is told. What may
//! be formatted at all is decided by [`crate::host::signature`].

use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use super::mounts::Mounts;
use super::options::{self, How, Setting};
use super::tools::{self, BUSY, POLL, Tools, wait_for_orphans};
use super::{Change, KIND, change_of, described, evidence, in_force};
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::host::signature::{self, BlockDevice, Found, Refusal};
use crate::results::model::{Evidence, When};
use crate::treatment::{
    Machines, Moved, Outlook, Step, Stranger, Treatment, TreatmentError, Undone, World, stopped,
};
use crate::units::exact_bytes;

const NEED: &str = "a new file system";
const PROGRAMS: &[&str] = &["mount", "umount", "wipefs", "cp", "chown", "chmod", "mkdir", "rmdir"];

/// What a file system takes for itself; mkfs.xfs makes none below 300 MiB.
const ROOM: u64 = 320 << 20;

/// Those that are configured, without symbolic links; nothing where there is no DRBD.
const DISKS_OF_DRBD: &str =
    "drbdadm sh-ll-dev all 2>/dev/null | while read -r disk; do readlink -f \"$disk\"; done";

#[derive(Debug)]
pub(super) struct Formatted {
    device: String,
    file_system: &'static str,
    mkfs: Vec<String>,
    settings: Vec<Setting>,
    /// Of what the device may hold now.
    uuid: Option<String>,
    /// The data directory without symbolic links.
    directory: OnceLock<String>,
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

impl Formatted {
    pub(super) fn new(
        device: &str,
        file_system: &'static str,
        mkfs: Vec<String>,
        settings: Vec<Setting>,
        uuid: Option<&str>,
    ) -> Formatted {
        let uuid = uuid.map(str::to_owned);
        let (device, directory) = (device.to_owned(), OnceLock::new());
        Formatted { device, file_system, mkfs, settings, uuid, directory }
    }

    fn program(&self) -> String {
        format!("mkfs.{}", self.file_system)
    }

    fn tools<'a>(&self, host: &'a Host) -> Result<Tools<'a>, TreatmentError> {
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
                return Err(refused(format!("there is no {device} on host {host}")));
            }
            _ => return Err(refused(format!("{} is no block device", self.device))),
        };
        // With its metadata elsewhere a disk of DRBD's shows nothing of it while it is down.
        let path = device.path.to_string_lossy();
        let drbd = host.output(&CommandLine::new("sh").args(["-c", DISKS_OF_DRBD]));
        if drbd.is_ok_and(|said| said.stdout.lines().any(|disk| disk == path)) {
            return Err(refused(Refusal::Drbd { device: path.into_owned() }.to_string()));
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

    fn directory(&self, world: &mut World<'_>, host: &Host) -> Result<String, TreatmentError> {
        if let Some(directory) = self.directory.get() {
            return Ok(directory.clone());
        }
        let data = tools::places(world, host)?.remove(0);
        Ok(self.directory.get_or_init(|| data).clone())
    }

    /// For people: `ext4 (mkfs -O ^has_journal)`.
    fn title(&self) -> String {
        match self.mkfs.is_empty() {
            true => self.file_system.to_owned(),
            false => format!("{} (mkfs {})", self.file_system, self.mkfs.join(" ")),
        }
    }

    fn then(&self) -> String {
        match options::told(&self.settings) {
            list if list.is_empty() => self.title(),
            list => format!("{} mounted with {list}", self.title()),
        }
    }

    fn step(&self, what: String, host: &Host, prior: Value, ours: &Change) -> Step {
        let (kind, host) = (KIND.name.to_owned(), Some(host.name().to_owned()));
        Step { kind, what, host, prior, ours: json!(ours) }
    }
}

impl Treatment for Formatted {
    fn describe(&self) -> Vec<String> {
        let base = format!("mount of the data directory = {} on {}", self.title(), self.device);
        [base].into_iter().chain(described(&self.settings)).collect()
    }

    fn intents(&self) -> Vec<String> {
        let (device, file_system) = (&self.device, self.then());
        vec![
            format!(
                "{device} = {file_system} by mkfs before each trial: what it holds is lost, and afterwards it holds nothing"
            ),
            format!(
                "the data directory = a copy of it on {device}, mounted over it, by a stop and a start of PostgreSQL"
            ),
        ]
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let host = world.host(None)?;
        let now = match signature::look(&*host, &self.device)? {
            Found::Block(device) if device.signatures.is_empty() => "nothing".to_owned(),
            Found::Block(device) => {
                let held: Vec<String> = device.signatures.iter().map(ToString::to_string).collect();
                held.join(" and ")
            }
            _ => "no block device".to_owned(),
        };
        let then = self.then();
        let how = "by a stop of PostgreSQL, mkfs and a copy of the data directory";
        Ok(vec![Outlook { what: self.device.clone(), now, then, how }])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        self.tools(&*machines.host(None)?).map(drop)
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        if !world.private {
            return Err(TreatmentError::Refused(format!(
                "a new file system on {} is for a target with private = true: on a server of yours mount it yourself, and compare two targets",
                self.device
            )));
        }
        world.control(NEED)?;
        let host = world.host(None)?;
        let tools = self.tools(&host)?;
        let device = self.device(&host)?;
        let known = ["sh", "-c", "for p; do command -v \"$p\" || echo \"lacks $p\"; done", "sh"];
        let mkfs = self.program();
        let said = tools.run(known.into_iter().chain(PROGRAMS.iter().copied()).chain([&*mkfs]))?;
        if let Some(program) = said.lines().find_map(|line| line.strip_prefix("lacks ")) {
            let host = host.name();
            return Err(TreatmentError::Refused(format!(
                "program `{program}` is not on host {host}: install it there"
            )));
        }
        let directory = self.directory(world, &host)?;
        let used = tools.run(["du", "-sk", "--", &directory])?;
        let used = used.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok());
        let needed = used.unwrap_or_default() * 1024 * 5 / 4 + ROOM;
        if device.bytes < needed {
            return Err(TreatmentError::Refused(format!(
                "{} has {}, too little for the data directory on a file system, which needs about {}",
                self.device,
                exact_bytes(device.bytes),
                exact_bytes(needed)
            )));
        }
        Ok(())
    }

    fn moves(&self) -> Vec<Moved> {
        let to = |directory: &String| Moved {
            directory: directory.clone(),
            device: self.device.clone(),
        };
        self.directory.get().map(to).into_iter().collect()
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        let host = world.host(None)?;
        let device = self.device(&host)?;
        let data = self.directory(world, &host)?;
        let draw = CommandLine::new("cat").arg("/proc/sys/kernel/random/uuid");
        let uuid = host.run(&draw)?.trim().to_owned();
        let path = device.path.display().to_string();
        let of_files: Vec<Setting> =
            self.settings.iter().filter(|s| s.how() == How::Format).cloned().collect();
        let file_system = self.file_system.to_owned();
        let held = device.signatures.first().map(ToString::to_string);
        let format = Change::Format {
            device: path.clone(),
            file_system: file_system.clone(),
            mkfs: self.mkfs.clone(),
            shown: format!("{file_system} (UUID {uuid})"),
            uuid,
        };
        let copy = Change::Copy {
            device: path.clone(),
            file_system: file_system.clone(),
            options: options::told(&of_files),
            from: data.clone(),
            to: format!("{data}.pgio-copy"),
        };
        let over = Change::Over {
            device: path,
            number: device.number,
            file_system,
            options: options::told(&self.settings),
            point: data.clone(),
        };
        let what = |text: &str| format!("{text} {}", self.device);
        Ok(vec![
            stopped::step(world, NEED)?,
            self.step(what("file system on"), &host, json!(held), &format),
            self.step(what("copy of the data directory on"), &host, Value::Null, &copy),
            self.step(format!("mount over {data}"), &host, Value::Null, &over),
        ])
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        if stopped::is(step) {
            return stopped::apply(world);
        }
        let host = world.host(step.host.as_deref())?;
        let tools = self.tools(&host)?;
        match change_of(step)? {
            Change::Format { device, uuid, .. } => {
                // Looked at once more: the last moment before it is gone.
                if !self.device(&host)?.signatures.is_empty() {
                    tools.run(["wipefs", "--all", "--quiet", "--", &device])?;
                }
                tools.run(mkfs(self.file_system, &uuid, &self.mkfs, &device))?;
            }
            Change::Copy { device, file_system, options, from, to } => {
                tools.run(["mkdir", "--", &to])?;
                tools.mount(&file_system, &options, &device, &to)?;
                // Of ext4; the data directory is to be the same.
                let _ = tools.run(["rmdir", "--", &format!("{to}/lost+found")]);
                tools.run(["cp", "-a", "--", &format!("{from}/."), &to])?;
                let like = format!("--reference={from}");
                tools.run(["chown", &like, "--", &to])?;
                tools.run(["chmod", &like, "--", &to])?;
                remove_copy(&tools, &to)?;
            }
            Change::Over { device, file_system, options, point, .. } => {
                tools.mount(&file_system, &options, &device, &point)?;
            }
            Change::Remount { .. } | Change::Mount { .. } => {}
        }
        Ok(())
    }

    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(None)?;
        let directory = self.directory.get().cloned().unwrap_or_default();
        let mounts = Mounts::read(&*host)?;
        let mounted = mounts.at(&directory).cloned().unwrap_or_default();
        if mounted.file_system != self.file_system || !in_force(&mounted, &self.settings) {
            return Err(TreatmentError::NotInForce {
                what: format!("{} {}", self.title(), options::told(&self.settings)),
                seconds: 0,
                why: format!("the kernel shows {} {}", mounted.file_system, mounted.options),
            });
        }
        world.start(NEED)
    }

    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence> {
        let mounts = world.host(None).ok().and_then(|host| Mounts::read(&*host).ok());
        let point = self.directory.get().map(String::as_str);
        let mut evidence = evidence(when, mounts.as_ref(), point, &self.settings);
        let mounted = mounts.as_ref().zip(point).and_then(|(mounts, point)| mounts.at(point));
        if mounted.is_none_or(|m| m.file_system != self.file_system) {
            evidence.expected = Some(format!("{} on {}", self.title(), self.device));
        }
        vec![evidence]
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

fn remove_copy(tools: &Tools<'_>, directory: &str) -> Result<(), TreatmentError> {
    if Mounts::read(tools.host)?.at(directory).is_some() {
        tools.unmount(directory)?;
    }
    let is_there = || -> Result<bool, TreatmentError> {
        let test = CommandLine::new("test").args(["-d", directory]);
        Ok(tools.host.output(&test)?.status.success())
    };
    // Only ever empty: what was copied is on the device. After a kill the cluster's own end may
    // remove it at the same moment.
    match tools.run(["rmdir", "--", directory]) {
        Err(error) if is_there()? => Err(error.into()),
        _ => Ok(()),
    }
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
    let Found::Block(found) = let_go(&host, device)? else {
        // With it is gone what we made.
        return Ok(Undone::Kept);
    };
    if found.signatures.is_empty() {
        return Ok(Undone::PutBack);
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

pub(super) fn undo_copy(
    world: &mut World<'_>,
    step: &Step,
    directory: &str,
) -> Result<Undone, TreatmentError> {
    let host = world.host(step.host.as_deref())?;
    wait_for_orphans(&host, directory)?;
    let tools = Tools::find(&host, &format!("to unmount {directory}"), PROGRAMS)?;
    remove_copy(&tools, directory)?;
    Ok(Undone::PutBack)
}

pub(super) fn undo_over(
    world: &mut World<'_>,
    step: &Step,
    number: &str,
    point: &str,
) -> Result<Undone, TreatmentError> {
    let host = world.host(step.host.as_deref())?;
    wait_for_orphans(&host, point)?;
    // btrfs shows a number of its own, and the source tells.
    let source = match change_of(step)? {
        Change::Over { device, .. } => device,
        _ => String::new(),
    };
    let is_ours =
        Mounts::read(&*host)?.at(point).is_some_and(|m| m.device == number || m.source == source);
    if is_ours {
        // After a kill there is none any more: the cluster ends by itself, and soon.
        if world.control.is_some() {
            world.stop(NEED)?;
        }
        let tools = Tools::find(&host, &format!("to unmount {point}"), PROGRAMS)?;
        tools.unmount(point)?;
    }
    Ok(Undone::PutBack)
}
