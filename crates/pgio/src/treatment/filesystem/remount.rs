//! Other mount options for the file system under the server's data, and the ones found again.
//!
//! By a remount, or with the server stopped and the file system unmounted where the kernel leaves no
//! other way. The whole list goes to mount(8) each time, so fstab has no say; what holds afterwards
//! is read from the kernel and compared.

use std::sync::OnceLock;

use serde_json::json;

use super::mounts::{Mounted, Mounts};
use super::options::{self, FILE_SYSTEMS, How, Setting};
use super::tools::{self, Tools, wait_for_orphans};
use super::{Change, KIND, change_of, evidence, in_force, name_space, options_of};
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::results::change as declared;
use crate::results::model::{Evidence, When};
use crate::treatment::{
    Machines, Outlook, Resource, Step, Stranger, Touch, Treatment, TreatmentError, Undone, World,
    stopped,
};

const PROGRAMS: &[&str] = &["mount", "umount"];
const NEED: &str = "a mount option that a remount does not change";

#[derive(Debug)]
pub(super) struct Remounted {
    text: String,
    /// Of any file system that has such an option.
    settings: Vec<Setting>,
    mount: Option<String>,
    /// Found out once: the window has no time to ask the server where its data are.
    place: OnceLock<Place>,
}

/// What is to be changed.
#[derive(Debug, Clone)]
struct Place {
    point: String,
    /// Of the file system that is there.
    settings: Vec<Setting>,
}

impl Place {
    fn by_mount(&self) -> bool {
        self.settings.iter().any(|s| s.how() == How::Mount)
    }
}

impl Remounted {
    pub(super) fn new(text: &str, settings: Vec<Setting>, mount: Option<String>) -> Remounted {
        Remounted { text: text.to_owned(), settings, mount, place: OnceLock::new() }
    }

    /// The mount, and what is to be changed there.
    fn place(&self, world: &mut World<'_>) -> Result<(Mounts, Mounted, Place), TreatmentError> {
        let host = world.host(None)?;
        if let Some(place) = self.place.get() {
            let mounts = Mounts::read(&*host)?;
            let mounted = mounts.at(&place.point).cloned();
            let mounted = mounted.ok_or_else(|| gone(&place.point))?;
            return Ok((mounts, mounted, place.clone()));
        }
        let places = tools::places(world, &host)?;
        let mounts = Mounts::read(&*host)?;
        let holds = |m: &Mounted| {
            places.iter().any(|p| mounts.holding(p).is_some_and(|of| of.point == m.point))
        };
        let mounted = match &self.mount {
            None => mounts.holding(&places[0]).ok_or_else(|| gone(&places[0]))?,
            Some(point) => mounts.at(point).filter(|m| holds(m)).ok_or_else(|| {
                let used = places.iter().filter_map(|p| mounts.holding(p)).map(|m| m.point.clone());
                let mut used: Vec<String> = used.collect();
                used.dedup();
                TreatmentError::Refused(format!(
                    "{point} is no mount that PostgreSQL keeps anything on; it uses {}",
                    used.join(" and ")
                ))
            })?,
        };
        let file_system = mounted.file_system.as_str();
        if !FILE_SYSTEMS.contains(&file_system) {
            return Err(TreatmentError::Refused(format!(
                "{} is {file_system}: pgio knows the mount options of ext4, xfs and btrfs",
                mounted.point
            )));
        }
        let settings = options::parse(&self.text, Some(file_system))
            .map_err(|why| TreatmentError::Refused(format!("{}: {why}", mounted.title())))?;
        let place = Place { point: mounted.point.clone(), settings };
        let mounted = mounted.clone();
        // It may be set already by another thread's look, which saw the same.
        let _ = self.place.set(place.clone());
        Ok((mounts, mounted, place))
    }
}

fn gone(point: &str) -> TreatmentError {
    TreatmentError::Refused(format!("nothing is mounted at {point} any more"))
}

impl Treatment for Remounted {
    fn changes(&self) -> Vec<declared::Change> {
        options_of(&self.settings, self.mount.as_deref()).collect()
    }

    fn intents(&self) -> Vec<String> {
        let of = match &self.mount {
            Some(point) => format!("of {point}"),
            None => "of the mount under the data directory".to_owned(),
        };
        let how = "by a remount, or by a stop of PostgreSQL, umount and mount where that takes it";
        let line = |s: &Setting| format!("{} {of} = {} {how}", s.name(), s.word);
        self.settings.iter().map(line).collect()
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let (_, mounted, place) = self.place(world)?;
        let how = match place.by_mount() {
            true => "by a stop of PostgreSQL, umount and mount",
            false => "by a remount",
        };
        let known = mounted.known();
        let line = |s: &Setting| Outlook {
            what: format!("{} of {}", s.name(), mounted.title()),
            now: s.found(&known),
            then: s.word.clone(),
            how,
        };
        Ok(place.settings.iter().map(line).collect())
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        let host = machines.host(None)?;
        let point = self.mount.as_deref().unwrap_or("the data directory");
        Tools::find(&host, &format!("to change the mount options of {point}"), PROGRAMS).map(drop)
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(None)?;
        let (mounts, mounted, place) = self.place(world)?;
        let refused =
            |why: String| Err(TreatmentError::Refused(format!("{}: {why}", mounted.title())));
        if let Some(s) = place.settings.iter().find(|s| s.how() == How::Format) {
            return refused(format!(
                "{} holds for files made from then on only: use device and type, which make a new file system",
                s.word
            ));
        }
        if mounted.point == "/" && self.mount.is_none() {
            return refused("that is the root file system, and all of this machine would have the options: write mount = \"/\" if it is meant".to_owned());
        }
        // With an umount in between none of the others may be there at all, see below.
        if self.mount.is_none()
            && !place.by_mount()
            && let Some(why) = reaches_further(&mounts, &mounted, &place.settings)
        {
            return refused(why);
        }
        Tools::find(&host, &format!("to change the mount options of {}", mounted.point), PROGRAMS)?;
        name_space::check(&host, world, &mounted)?;
        if !place.by_mount() {
            return Ok(());
        }
        if world.private {
            return refused(format!(
                "{} needs an umount, and a private cluster's own files lie there too: use device and type",
                self.text
            ));
        }
        world.control(NEED)?;
        if mounted.point == "/" {
            return refused("the root file system cannot be unmounted".to_owned());
        }
        if mounted.root != "/" && mounted.file_system != "btrfs" {
            return refused("it is a part of a file system, mounted by itself (a bind mount): an umount of it changes nothing".to_owned());
        }
        if let Some(other) = mounts.others_of(&mounted).next() {
            return refused(format!(
                "it is mounted at {} too, where an umount would not reach",
                other.point
            ));
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
            return refused("its loop device goes with an umount (it was made by mount -o loop): make it by losetup".to_owned());
        }
        Ok(())
    }

    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let (_, mounted, _) = self.place(world)?;
        let mount = Resource::on(&*world.host(None)?, format!("mount {}", mounted.point));
        Ok(vec![Touch::Server, Touch::Of(mount)])
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        let (_, mounted, place) = self.place(world)?;
        if in_force(&mounted, &place.settings) {
            return Ok(Vec::new());
        }
        let words: Vec<String> = place.settings.iter().map(|s| s.word.clone()).collect();
        let shown = options::told(&place.settings);
        let (by_mount, mut steps) = (place.by_mount(), Vec::new());
        if by_mount {
            steps.push(stopped::step(world, NEED)?);
        }
        let change = match by_mount {
            true => Change::Mount { words, shown },
            false => Change::Remount { words, shown },
        };
        let host = world.host(None)?;
        let mounted = match by_mount {
            true => Mounted { uuid: tools::uuid(&*host, &mounted.source)?, ..mounted },
            false => mounted,
        };
        steps.push(Step {
            kind: KIND.name.to_owned(),
            what: format!("mount options of {}", mounted.point),
            host: Some(host.name().to_owned()),
            prior: json!(mounted),
            ours: json!(change),
        });
        Ok(steps)
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        if stopped::is(step) {
            return stopped::apply(world);
        }
        let prior = prior_of(step)?;
        let settings = settings_of(step, &prior)?;
        let host = world.host(step.host.as_deref())?;
        let tools = Tools::find(&host, "to mount", PROGRAMS)?;
        let list = options::composed(&prior.shown(), &settings);
        match change_of(step)? {
            Change::Mount { .. } => {
                tools.unmount(&prior.point)?;
                tools.mount(&prior.file_system, &list, &prior.source, &prior.point)?;
            }
            _ => remount(&tools, &prior, &list)?,
        }
        Ok(())
    }

    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let (_, mounted, place) = self.place(world)?;
        if !in_force(&mounted, &place.settings) {
            let why = format!(
                "the kernel shows {} and says nothing more; where the file system is mounted in another name space too, it keeps its options",
                mounted.options
            );
            return Err(TreatmentError::NotInForce {
                what: options::told(&place.settings),
                seconds: 0,
                why,
            });
        }
        if place.by_mount() { world.start(NEED) } else { Ok(()) }
    }

    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence> {
        let found = self.place(world).ok();
        let place = found.as_ref().map(|(_, _, place)| place);
        let settings = place.map_or(&self.settings, |place| &place.settings);
        let point = place.map(|place| place.point.as_str());
        vec![evidence(when, found.as_ref().map(|(mounts, ..)| mounts), point, settings)]
    }
}

/// Why options must not be changed there unless the mount is named: where they are the file system's,
/// they come into force wherever else it, or another part of it, is mounted.
pub(super) fn reaches_further(
    mounts: &Mounts,
    mounted: &Mounted,
    settings: &[Setting],
) -> Option<String> {
    let of_all: Vec<Setting> = settings.iter().filter(|s| !s.is_of_one_mount()).cloned().collect();
    if of_all.is_empty() {
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
    let (options, point) = (options::told(&of_all), &mounted.point);
    Some(format!(
        "{options} would hold for all of the file system, {further}: write mount = \"{point}\" if that is meant"
    ))
}

fn remount(tools: &Tools<'_>, mounted: &Mounted, list: &str) -> Result<(), TreatmentError> {
    let options = format!("remount,{list}");
    tools.run(["mount", "-o", &options, &mounted.source, &mounted.point])?;
    Ok(())
}

fn prior_of(step: &Step) -> Result<Mounted, TreatmentError> {
    serde_json::from_value(step.prior.clone()).map_err(|e| unreadable(step, &e.to_string()))
}

fn settings_of(step: &Step, prior: &Mounted) -> Result<Vec<Setting>, TreatmentError> {
    let words = match change_of(step)? {
        Change::Remount { words, .. } | Change::Mount { words, .. } => words,
        _ => Vec::new(),
    };
    options::read_back(&words, &prior.file_system).map_err(|word| unreadable(step, &word))
}

fn unreadable(step: &Step, why: &str) -> TreatmentError {
    let what = &step.what;
    TreatmentError::Config(format!(
        "the journal's step `{what}` cannot be understood ({why}); use the pgio that wrote it"
    ))
}

/// Puts the options found back, all of them, and sees that they are.
pub(super) fn undo(
    world: &mut World<'_>,
    step: &Step,
    by_mount: bool,
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    let prior = prior_of(step)?;
    let ours = settings_of(step, &prior)?;
    let host = world.host(step.host.as_deref())?;
    wait_for_orphans(&host, &prior.point)?;
    let now = Mounts::read(&*host)?.at(&prior.point).cloned();
    let Some(now) = now else {
        return match by_mount && host.exists(prior.source.as_ref())? {
            true => mount_again(&host, &prior, &ours, stranger),
            false => Ok(Undone::Kept),
        };
    };
    let (known, was) = (now.known(), prior.known());
    let same_device = now.device == prior.device && now.file_system == prior.file_system;
    let strange = |s: &Setting| ![s.word.clone(), s.found(&was)].contains(&s.found(&known));
    let is_prior = ours.iter().all(|s| s.found(&known) == s.found(&was));
    if !is_prior && (!same_device || ours.iter().any(strange)) {
        match stranger {
            Stranger::Keep => return Ok(Undone::Kept),
            // Nobody's answer would make those of another file system what they were.
            _ if !same_device => return Err(elsewhere(host.name(), &now, &prior)),
            Stranger::Restore => {}
            Stranger::Ask => {
                return Err(TreatmentError::ChangedSince {
                    what: format!("{} on host {}", step.what, host.name()),
                    found: format!("{} of {}", now.options, now.source),
                    ours: options::told(&ours),
                    prior: format!("{} of {}", prior.options, prior.source),
                });
            }
        }
    }
    if is_prior {
        return Ok(Undone::PutBack);
    }
    let tools = Tools::find(&host, "to mount", PROGRAMS)?;
    if by_mount {
        // All of this mount is ours, also what the kernel set along with what was asked for.
        world.stop(NEED)?;
        tools.unmount(&prior.point)?;
        let list = options::composed(&prior.shown(), &[]);
        tools.mount(&prior.file_system, &list, &prior.source, &prior.point)?;
        return as_before(&*host, &prior, &ours, true);
    }
    // Whatever else somebody changed since is left as it is.
    let back: Vec<Setting> = ours.iter().map(|s| s.with(&s.found(&was))).collect();
    let whole = options::composed(&now.shown(), &ours) == options::composed(&prior.shown(), &ours);
    remount(&tools, &now, &options::composed(&now.shown(), &back))?;
    as_before(&*host, &prior, &ours, whole)
}

/// Unmounted by us a moment before a kill, or the machine was booted anew.
fn mount_again(
    host: &Host,
    prior: &Mounted,
    ours: &[Setting],
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    let found = tools::uuid(host, &prior.source)?;
    if let Some(why) = another(host.name(), prior, found.as_deref()) {
        return match stranger {
            Stranger::Keep => Ok(Undone::Kept),
            _ => Err(TreatmentError::Refused(why)),
        };
    }
    let tools = Tools::find(host, "to mount", PROGRAMS)?;
    let list = options::composed(&prior.shown(), &[]);
    tools.mount(&prior.file_system, &list, &prior.source, &prior.point)?;
    as_before(host, prior, ours, true)
}

/// Why a device is not what was mounted, as far as that was known. `found` is the UUID on it now.
pub(super) fn another(host: &str, prior: &Mounted, found: Option<&str>) -> Option<String> {
    let was = prior.uuid.as_deref().filter(|was| found != Some(*was))?;
    let Mounted { source, point, .. } = prior;
    let holds = match found {
        Some(uuid) => format!("holds the file system with UUID {uuid}"),
        None => "holds no file system that is known".to_owned(),
    };
    Some(format!(
        "{source} on host {host} {holds} now, and the one that was mounted at {point} has the UUID {was}: find it (see `blkid`) and mount it there, then `pgio undo` again; `pgio undo --keep` leaves it unmounted"
    ))
}

pub(super) fn elsewhere(host: &str, now: &Mounted, prior: &Mounted) -> TreatmentError {
    TreatmentError::Refused(format!(
        "{} on host {host} is {} on {} now, and was {} on {}: someone mounted another one; mount that which was there and `pgio undo` again, or `pgio undo --keep` leaves it as it is",
        now.point, now.file_system, now.source, prior.file_system, prior.source
    ))
}

/// All of it, where nobody else changed anything; else what we changed.
fn as_before(
    host: &dyn Exec,
    prior: &Mounted,
    ours: &[Setting],
    whole: bool,
) -> Result<Undone, TreatmentError> {
    let now = Mounts::read(host)?.at(&prior.point).cloned().unwrap_or_default();
    let sorted = |mounted: &Mounted| {
        let mut words: Vec<String> = mounted.known().into_iter().map(str::to_owned).collect();
        words.sort();
        words
    };
    let (known, was) = (now.known(), prior.known());
    let same = match whole {
        true => sorted(&now) == sorted(prior),
        false => ours.iter().all(|s| s.found(&known) == s.found(&was)),
    };
    match same {
        true => Ok(Undone::PutBack),
        false => Err(TreatmentError::NotInForce {
            what: format!("{} of {}", prior.options, prior.title()),
            seconds: 0,
            why: format!("the kernel shows {}", now.options),
        }),
    }
}
