//! Changes mount options of the file system under the server's data.
//!
//! Uses a remount, or stops the server and unmounts the file system if a remount does not change
//! the option. mount(8) always gets the whole list, so fstab has no influence; the resulting options
//! are read from the kernel and compared. Next: [`super::options_step`] for the change and its undo.

use super::mounts::{self, Mounted, Mounts, evidence, in_force};
use super::options::{self, FILE_SYSTEMS, How, Setting, changes};
use super::options_step::{OptionsStep, PROGRAMS, PURPOSE};
use super::tools::{self, Tools};
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::treatment::context::{Context, Machines};
use crate::treatment::contract::{Declared, InForce, Prepared, Preview, Treatment};
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::other_steps;
use crate::treatment::resource::{Resource, Touch};
use crate::treatment::step::{Label, Step};
use pgio_results::model::{Evidence, When};

#[derive(Debug)]
pub(super) struct Remount {
    pub(super) text: String,
    /// Settings, each for any file system that has the option.
    pub(super) settings: Vec<Setting>,
    /// None means the mount under the data directory.
    pub(super) mount: Option<String>,
}

/// The mount to change, and the options for its file system. Inside the window there is no time to ask the
/// server where its data lies.
#[derive(Debug, Clone)]
struct PreparedRemount {
    point: String,
    settings: Vec<Setting>,
}

impl PreparedRemount {
    fn by_mount(&self) -> bool {
        self.settings.iter().any(|s| s.how() == How::Mount)
    }

    fn mounted(&self, host: &Host) -> Result<Mounted, TreatmentError> {
        Mounts::read(host)?.at(&self.point).cloned().ok_or_else(|| not_mounted(&self.point))
    }
}

fn not_mounted(point: &str) -> TreatmentError {
    TreatmentError::Refused(format!("nothing is mounted at {point} now"))
}

impl Remount {
    fn find(
        &self,
        context: &mut Context<'_>,
    ) -> Result<(Mounts, Mounted, PreparedRemount), TreatmentError> {
        let host = context.host(None)?;
        let places = tools::server_directories(context, &host)?;
        let mounts = Mounts::read(&*host)?;
        let holds = |m: &Mounted| {
            places.iter().any(|p| mounts.mount_of(p).is_some_and(|of| of.point == m.point))
        };
        let mounted = match &self.mount {
            None => mounts.mount_of(&places[0]).ok_or_else(|| not_mounted(&places[0]))?,
            Some(point) => mounts.at(point).filter(|m| holds(m)).ok_or_else(|| {
                let used =
                    places.iter().filter_map(|p| mounts.mount_of(p)).map(|m| m.point.clone());
                let mut used: Vec<String> = used.collect();
                used.dedup();
                TreatmentError::Refused(format!(
                    "{point} is not a mount that PostgreSQL uses; it uses {}",
                    used.join(" and ")
                ))
            })?,
        };
        let file_system = mounted.file_system.as_str();
        if !FILE_SYSTEMS.contains(&file_system) {
            return Err(TreatmentError::Refused(format!(
                "{} is {file_system}; pgio supports mount options of ext4, xfs and btrfs",
                mounted.point
            )));
        }
        let settings = options::parse(&self.text, Some(file_system))
            .map_err(|why| TreatmentError::Refused(format!("{}: {why}", mounted.title())))?;
        let place = PreparedRemount { point: mounted.point.clone(), settings };
        let mounted = mounted.clone();
        Ok((mounts, mounted, place))
    }

    fn check_place(
        &self,
        context: &mut Context<'_>,
        (mounts, mounted, place): &(Mounts, Mounted, PreparedRemount),
    ) -> Result<(), TreatmentError> {
        let host = context.host(None)?;
        let refused =
            |why: String| Err(TreatmentError::Refused(format!("{}: {why}", mounted.title())));
        if let Some(s) = place.settings.iter().find(|s| s.how() == How::Format) {
            return refused(format!(
                "{} affects only files created later: use device and type, which create a new file system",
                s.word
            ));
        }
        if mounted.point == "/" && self.mount.is_none() {
            return refused("this is the root file system, so the options would affect the whole machine: confirm by mount = \"/\"".to_owned());
        }
        // An umount refuses other mounts altogether, see below.
        if self.mount.is_none()
            && !place.by_mount()
            && let Some(why) = wider_effect(mounts, mounted, &place.settings)
        {
            return refused(why);
        }
        Tools::find(&host, &format!("to change the mount options of {}", mounted.point), PROGRAMS)?;
        mounts::check(&host, context, mounted)?;
        if place.by_mount() { self.check_umount(context, &host, mounts, mounted) } else { Ok(()) }
    }

    /// Refuses an umount that cannot work or would cause harm.
    fn check_umount(
        &self,
        context: &mut Context<'_>,
        host: &Host,
        mounts: &Mounts,
        mounted: &Mounted,
    ) -> Result<(), TreatmentError> {
        let refused =
            |why: String| Err(TreatmentError::Refused(format!("{}: {why}", mounted.title())));
        if context.private {
            return refused(format!(
                "{} needs an umount, but the private cluster's files are there, too: use device and type",
                self.text
            ));
        }
        context.control(PURPOSE)?;
        if mounted.point == "/" {
            return refused("the root file system cannot be unmounted".to_owned());
        }
        if mounted.root != "/" && mounted.file_system != "btrfs" {
            return refused(
                "it is a bind mount, so an umount does not unmount the file system".to_owned(),
            );
        }
        if let Some(other) = mounts.others_of(mounted).next() {
            return refused(format!("the file system is also mounted at {}", other.point));
        }
        if let Some(below) = mounts.below(&mounted.point).next() {
            return refused(format!(
                "it cannot be unmounted while {} is mounted below it",
                below.point
            ));
        }
        let autoclear = CommandLine::new("cat")
            .arg(format!("/sys/dev/block/{}/loop/autoclear", mounted.device));
        if host.output(&autoclear)?.stdout.trim() == "1" {
            return refused("an umount removes its loop device (created by mount -o loop): create the device with losetup".to_owned());
        }
        Ok(())
    }
}

impl Treatment for Remount {
    fn declared(&self) -> Declared {
        let what = match &self.mount {
            Some(point) => format!("of {point}"),
            None => "of the mount under the data directory".to_owned(),
        };
        let how = "by a remount, or by a stop of PostgreSQL, umount and mount if needed";
        let intent = |s: &Setting| format!("{} {what} = {} {how}", s.name(), s.word);
        Declared {
            changes: changes(&self.settings, self.mount.as_deref()).collect(),
            intents: self.settings.iter().map(intent).collect(),
            ..Declared::default()
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let (_, mounted, place) = self.find(context)?;
        let how = if place.by_mount() {
            "by a stop of PostgreSQL, umount and mount"
        } else {
            "by a remount"
        };
        let known = mounted.all_options();
        let line = |s: &Setting| Preview {
            what: format!("{} of {}", s.name(), mounted.title()),
            now: s.word_in_force(&known),
            then: s.word.clone(),
            how,
        };
        Ok(place.settings.iter().map(line).collect())
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let (_, mounted, _) = self.find(context)?;
        let mount = Resource::on(&*context.host(None)?, format!("mount {}", mounted.point));
        Ok(vec![Touch::Server, Touch::Resource(mount)])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        let host = machines.host(None)?;
        let point = self.mount.as_deref().unwrap_or("the data directory");
        Tools::find(&host, &format!("to change the mount options of {point}"), PROGRAMS).map(drop)
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        let found = self.find(context)?;
        self.check_place(context, &found)?;
        let (_, _, place) = found;
        Ok(Box::new(place))
    }
}

impl Prepared for PreparedRemount {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let host = context.host(None)?;
        let mounted = self.mounted(&host)?;
        if !in_force(&mounted, &self.settings) {
            let mut step = self.step(&host, mounted)?;
            if step.by_mount {
                other_steps::stop_server(context, journal, PURPOSE)?;
            }
            carry_out_then_amend(journal, &mut step, |step| {
                step.apply(context)?;
                step.changed = step.by_mount.then(|| self.mounted(&host)).transpose()?;
                Ok(())
            })?;
            self.check_effect(&self.mounted(&host)?)?;
            if step.by_mount {
                context.start_server(PURPOSE)?;
            }
        }
        Ok(Box::new(self.clone()))
    }
}

impl PreparedRemount {
    fn step(&self, host: &Host, mounted: Mounted) -> Result<OptionsStep, TreatmentError> {
        let by_mount = self.by_mount();
        let uuid = if by_mount { tools::uuid(host, &mounted.source)? } else { None };
        let label = Label::on_host(format!("mount options of {}", mounted.point), host.name());
        let prior = Mounted { uuid, ..mounted };
        let settings = self.settings.clone();
        Ok(OptionsStep { label, prior, by_mount, settings, changed: None })
    }

    fn check_effect(&self, mounted: &Mounted) -> Result<(), TreatmentError> {
        if in_force(mounted, &self.settings) {
            return Ok(());
        }
        let why = format!(
            "the kernel shows {}; a file system that is also mounted in another mount namespace keeps its options",
            mounted.options
        );
        Err(TreatmentError::NotInForce { what: options::list(&self.settings), seconds: 0, why })
    }
}

impl InForce for PreparedRemount {
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        let mounts = context.host(None).ok().and_then(|host| Mounts::read(&*host).ok());
        vec![evidence(when, mounts.as_ref(), &self.point, &self.settings)]
    }
}

/// Returns why options must not be changed unless the file names the mount: options of the file system
/// take effect wherever else it, or another part of it, is mounted.
pub(super) fn wider_effect(
    mounts: &Mounts,
    mounted: &Mounted,
    settings: &[Setting],
) -> Option<String> {
    let shared: Vec<Setting> = settings.iter().filter(|s| !s.is_per_mount()).cloned().collect();
    if shared.is_empty() {
        return None;
    }
    let mut points: Vec<&str> = mounts.others_of(mounted).map(|m| m.point.as_str()).collect();
    // The root file system comes first.
    points.sort_unstable();
    points.dedup();
    if let Some(first) = points.first_mut().filter(|point| **point == "/") {
        *first = "/ (the root file system)";
    }
    let further = match points.as_slice() {
        [] if mounted.root == "/" => return None,
        [] => format!("of which only {} is mounted here", mounted.root),
        others => format!("which is mounted at {} too", others.join(", ")),
    };
    let (options, point) = (options::list(&shared), &mounted.point);
    Some(format!(
        "{options} would affect the whole file system, {further}: confirm by mount = \"{point}\""
    ))
}
/// Like [`crate::treatment::step::carry_out`], for a step that learns from the change what its undo must compare with. A kill in
/// between leaves the first record.
fn carry_out_then_amend<S: Step>(
    journal: &mut Journal,
    step: &mut S,
    apply: impl FnOnce(&mut S) -> Result<(), TreatmentError>,
) -> Result<(), TreatmentError> {
    let first = step.record();
    let number = journal.intent(&first)?;
    apply(step)?;
    let amended = step.record();
    if amended != first {
        journal.amend(number, &amended)?;
    }
    Ok(journal.done(number)?)
}
