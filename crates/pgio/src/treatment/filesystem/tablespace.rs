//! A data set on a new file system, on a server of the user's as well: mkfs, mount it at a directory
//! that is made for it, CREATE TABLESPACE there, move the tables of the data set and their indexes.
//!
//! The server runs all the time, and its WAL and whatever else it holds stay where they are. The way
//! back: move them to where each was, DROP TABLESPACE, unmount, remove the directory. After a reboot
//! the file system is mounted once more for that, as it holds the tables; known by its UUID.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::format::{Made, NewFileSystem, PROGRAMS, step};
use super::mounts::Mounts;
use super::tools::{self, Tools, wait_for_orphans};
use super::{Change, change_of, described};
use crate::dataset::place::{self, Relation};
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::host::signature::{self, Found};
use crate::pg::quote::{identifier, literal};
use crate::results::model::{Evidence, When};
use crate::treatment::{
    Machines, Moved, Outlook, Step, Stranger, Treatment, TreatmentError, Undone, World,
};

/// Its name while a condition is in force.
const NAME: &str = "pgio_filesystem";

/// Where the file system is mounted, and what it takes to do that again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spot {
    device: String,
    /// `MAJOR:MINOR`
    number: String,
    file_system: String,
    uuid: String,
    options: String,
    point: String,
}

#[derive(Debug)]
pub(super) struct Tablespace {
    new: NewFileSystem,
    /// Where the file system is mounted: a directory that is not there yet.
    point: String,
}

/// A directory's path that mount(8) and PostgreSQL take as it is.
pub(super) fn check_point(point: &str) -> Result<(), String> {
    let is_plain = point.starts_with('/')
        && point.len() > 1
        && !point.ends_with('/')
        && !point.split('/').skip(1).any(|part| ["", ".", ".."].contains(&part))
        && !point.contains(|c: char| c == '\'' || c.is_whitespace() || c.is_control());
    match is_plain {
        true => Ok(()),
        false => Err(format!(
            "must be the path of a new directory, such as \"/srv/pgio\", not \"{point}\""
        )),
    }
}

impl Tablespace {
    pub(super) fn new(new: NewFileSystem, point: &str) -> Tablespace {
        Tablespace { new, point: point.to_owned() }
    }

    fn refuse_what_is_there(&self, host: &Host) -> Result<(), TreatmentError> {
        let point = &self.point;
        // A dangling link is something, too.
        let look =
            "[ -e \"$1\" ] || [ -L \"$1\" ] && echo there; [ -d \"${1%/*}/\" ] && echo parent";
        let said = host.output(&CommandLine::new("sh").args(["-c", look, "sh", point]))?.stdout;
        let name = host.name();
        if said.lines().any(|line| line == "there") {
            return Err(TreatmentError::Refused(format!(
                "{point} is there already on host {name}: tablespace names a directory that pgio makes and removes again"
            )));
        }
        if !said.lines().any(|line| line == "parent") {
            return Err(TreatmentError::Refused(format!(
                "{point} cannot be made on host {name}: there is no directory above it"
            )));
        }
        Ok(())
    }
}

fn failed(doing: &str) -> impl Fn(::postgres::Error) -> TreatmentError + use<> {
    let doing = doing.to_owned();
    move |source| TreatmentError::Postgres { doing: doing.clone(), source }
}

/// Its location, if there is one of our name.
fn location(world: &mut World<'_>) -> Result<Option<String>, TreatmentError> {
    let ask = "SELECT pg_tablespace_location(oid) FROM pg_tablespace WHERE spcname = $1";
    let row = world.admin()?.query_opt(ask, &[&NAME]).map_err(failed("ask for tablespaces"))?;
    Ok(row.map(|row| row.get(0)))
}

impl Treatment for Tablespace {
    fn describe(&self) -> Vec<String> {
        let (title, device) = (self.new.title(), &self.new.device);
        let base = format!("tablespace of the data set = {title} on {device}");
        [base].into_iter().chain(described(&self.new.settings)).collect()
    }

    fn intents(&self) -> Vec<String> {
        let point = &self.point;
        vec![
            self.new.intent(),
            format!("{point} = the new file system, mounted there; afterwards it is gone"),
            format!(
                "the tables and indexes of the data set = tablespace {NAME} at {point}, by ALTER ... SET TABLESPACE and back again"
            ),
        ]
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let how = "by mkfs, mount, CREATE TABLESPACE and ALTER TABLE ... SET TABLESPACE";
        let device = self.new.outlook(&*world.host(None)?, how)?;
        let found = place::relations(world.admin()?)?;
        let mut now: Vec<&str> = found.iter().map(|r| r.tablespace.as_str()).collect();
        now.sort_unstable();
        now.dedup();
        let what = "tablespace of the data set".to_owned();
        let (now, then) = (now.join(" and "), format!("{NAME} at {}", self.point));
        Ok(vec![device, Outlook { what, now, then, how }])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        self.new.tools(&*machines.host(None)?).map(drop)
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(None)?;
        let ask = "SELECT current_setting('is_superuser') = 'on', current_user::text";
        let row = world.admin()?.query_one(ask, &[]).map_err(failed("ask for rights"))?;
        if !row.get::<_, bool>(0) {
            return Err(TreatmentError::Refused(format!(
                "role {} may not CREATE TABLESPACE: connect as a superuser",
                row.get::<_, String>(1)
            )));
        }
        if let Some(location) = location(world)? {
            return Err(TreatmentError::Refused(format!(
                "there is a tablespace {NAME} already, at {location}: `pgio undo` if it is pgio's, else drop or rename it"
            )));
        }
        let found = place::relations(world.admin()?)?;
        if found.is_empty() {
            return Err(TreatmentError::Refused(
                "there is no data set to be put into a tablespace: load one with `pgio setup` (the workload `commit` has none; what it waits for is WAL, which a tablespace does not hold)".to_owned(),
            ));
        }
        self.refuse_what_is_there(&host)?;
        // Found out now, since its owner is needed then.
        tools::places(world, &host)?;
        self.new.check(&host, "the data set", found.iter().map(|r| r.bytes).sum())
    }

    fn moves(&self) -> Vec<Moved> {
        vec![Moved { directory: self.point.clone(), device: self.new.device.clone() }]
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        let host = world.host(None)?;
        self.refuse_what_is_there(&host)?;
        let owner = tools::places(world, &host)?.remove(0);
        let (format, Made { device, number, file_system, uuid }) = self.new.begin(&host)?;
        let options = self.new.mount_options();
        let point = self.point.clone();
        let spot = Spot { device, number, file_system, uuid, options, point };
        let relations = place::relations(world.admin()?)?;
        let place = Change::Place { spot: spot.clone(), owner };
        let create = Change::Tablespace { location: self.point.clone() };
        let moved = Change::Move { spot, relations };
        let (at, host) = (&self.point, &*host);
        Ok(vec![
            format,
            step(format!("mount at {at}"), host, Value::Null, &place),
            step(format!("tablespace {NAME}"), host, Value::Null, &create),
            step("place of the data set".to_owned(), host, json!("as each was"), &moved),
        ])
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        let host = world.host(step.host.as_deref())?;
        match change_of(step)? {
            Change::Format { device, uuid, .. } => self.new.make(&host, &device, &uuid)?,
            Change::Place { spot, owner } => {
                let tools = self.new.tools(&host)?;
                tools.run(["mkdir", "--", &spot.point])?;
                tools.mount(&spot.file_system, &spot.options, &spot.device, &spot.point)?;
                tools.remove_lost_and_found(&spot.point);
                tools.own_as(&owner, &spot.point)?;
            }
            Change::Tablespace { location } => {
                let (name, location) = (identifier(NAME), literal(&location));
                let create = format!("CREATE TABLESPACE {name} LOCATION {location}");
                let admin = world.admin()?;
                admin.batch_execute(&create).map_err(failed("create a tablespace"))?;
            }
            Change::Move { relations, .. } => {
                for relation in &relations {
                    if world.stop.requested() {
                        return Err(TreatmentError::Stopped);
                    }
                    place::move_to(world.admin()?, relation, NAME)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(None)?;
        self.new.see_that_it_is_mounted(&host, &self.point)?;
        let elsewhere = elsewhere(world)?;
        match elsewhere.is_empty() {
            true => Ok(()),
            false => Err(TreatmentError::NotInForce {
                what: format!("tablespace {NAME}"),
                seconds: 0,
                why: format!("{} lie elsewhere", elsewhere.join(", ")),
            }),
        }
    }

    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence> {
        let mut all = vec![self.new.evidence(world, Some(&self.point), when)];
        // Nobody moves a table that is in use, and there may be thousands.
        if when != When::During {
            let found = match elsewhere(world) {
                Ok(elsewhere) if elsewhere.is_empty() => NAME.to_owned(),
                Ok(elsewhere) => format!("elsewhere: {}", elsewhere.join(", ")),
                Err(_) => "unreadable".to_owned(),
            };
            let what = "tablespace of the data set".to_owned();
            all.push(Evidence { when, what, found, expected: Some(NAME.to_owned()) });
        }
        all
    }
}

/// What of the data set is not in our tablespace.
fn elsewhere(world: &mut World<'_>) -> Result<Vec<String>, TreatmentError> {
    let all = place::relations(world.admin()?)?.into_iter();
    Ok(all.filter(|r| r.tablespace != NAME).map(|r| r.name).collect())
}

/// Back to where each was, those that are with us.
pub(super) fn undo_move(
    world: &mut World<'_>,
    step: &Step,
    spot: &Spot,
    relations: &[Relation],
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    // A private cluster that is gone took them with it.
    if world.private && world.control.is_none() {
        return Ok(Undone::PutBack);
    }
    world.wake()?;
    if location(world)?.is_none() {
        return Ok(Undone::PutBack);
    }
    let host = world.host(step.host.as_deref())?;
    mount_once_more(&host, spot)?;
    let mut undone = Undone::PutBack;
    for relation in relations {
        let found = place::tablespace_of(world.admin()?, relation)?;
        match found {
            Some(found) if found == NAME => {
                place::move_to(world.admin()?, relation, &relation.tablespace)?;
            }
            Some(found) if found != relation.tablespace => match stranger {
                Stranger::Keep => undone = Undone::Kept,
                Stranger::Restore => {
                    place::move_to(world.admin()?, relation, &relation.tablespace)?;
                }
                Stranger::Ask => {
                    return Err(TreatmentError::ChangedSince {
                        what: format!("tablespace of {}", relation.name),
                        found,
                        ours: NAME.to_owned(),
                        prior: relation.tablespace.clone(),
                    });
                }
            },
            _ => {}
        }
    }
    Ok(undone)
}

/// After a reboot: without it the tables cannot be read.
fn mount_once_more(host: &Host, spot: &Spot) -> Result<(), TreatmentError> {
    let Spot { device, point, uuid, .. } = spot;
    if is_mounted(host, spot)? {
        return Ok(());
    }
    let is_ours = match signature::look(host, device)? {
        Found::Block(found) => found.signatures.iter().any(|s| s.uuid.as_ref() == Some(uuid)),
        _ => false,
    };
    if !is_ours {
        return Err(TreatmentError::Refused(format!(
            "the data set lies on the file system with UUID {uuid}, and {device} on host {} does not hold it now: attach it there again (see `blkid`), or remove the data set with `pgio destroy` and the tablespace with DROP TABLESPACE {NAME}",
            host.name()
        )));
    }
    let tools = Tools::find(host, &format!("to mount {device}"), PROGRAMS)?;
    tools.mount(&spot.file_system, &spot.options, device, point)?;
    Ok(())
}

fn is_mounted(host: &Host, spot: &Spot) -> Result<bool, TreatmentError> {
    let mounts = Mounts::read(host)?;
    // btrfs shows a number of its own, and the source tells.
    let is_ours = |m: &super::mounts::Mounted| m.device == spot.number || m.source == spot.device;
    Ok(mounts.at(&spot.point).is_some_and(is_ours))
}

pub(super) fn undo_tablespace(
    world: &mut World<'_>,
    ours: &str,
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    if world.private && world.control.is_none() {
        return Ok(Undone::PutBack);
    }
    world.wake()?;
    match location(world)? {
        None => return Ok(Undone::PutBack),
        Some(location) if location == ours => {}
        Some(location) => match stranger {
            Stranger::Keep | Stranger::Restore => return Ok(Undone::Kept),
            Stranger::Ask => {
                return Err(TreatmentError::ChangedSince {
                    what: format!("tablespace {NAME}"),
                    found: format!("at {location}"),
                    ours: format!("at {ours}"),
                    prior: "absent".to_owned(),
                });
            }
        },
    }
    // Refused by the server where someone else put something there.
    let drop = format!("DROP TABLESPACE {}", identifier(NAME));
    world.admin()?.batch_execute(&drop).map_err(failed("drop the tablespace"))?;
    Ok(Undone::PutBack)
}

pub(super) fn undo_place(
    world: &mut World<'_>,
    step: &Step,
    spot: &Spot,
) -> Result<Undone, TreatmentError> {
    let host = world.host(step.host.as_deref())?;
    let point = &spot.point;
    wait_for_orphans(&host, point)?;
    let tools = Tools::find(&host, &format!("to unmount {point}"), PROGRAMS)?;
    if is_mounted(&host, spot)? {
        tools.unmount(point)?;
    }
    // It was not there before us, and what is in it now is not ours.
    let _ = tools.run(["rmdir", "--", point]);
    Ok(Undone::PutBack)
}
