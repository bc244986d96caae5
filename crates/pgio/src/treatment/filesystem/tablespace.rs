//! A data set on a new file system, on a server of the user's as well: mkfs, mount it at a directory
//! that is made for it, CREATE TABLESPACE there, move the tables of the data set and their indexes.
//!
//! The server runs all the time, and its WAL and whatever else it holds stay where they are. The way
//! back: move them to where each was, DROP TABLESPACE, unmount, remove the directory. After a reboot
//! the file system, known by its UUID, is mounted once more for that, and before anything else: a
//! server that crashed may need it to come up.
//!
//! CREATE TABLESPACE is in the WAL: a standby, or a restore from the archive, would need a directory of
//! that name, and on the same host it would write into the primary's. So servers that have either are
//! refused.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::format::{Made, NewFileSystem, PROGRAMS, holder, holds, step};
use super::mounts::Mounts;
use super::tools::{self, Tools, lies_on, wait_for_orphans};
use super::{Change, change_of};
use crate::dataset::place::{self, Relation};
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::pg::quote::{identifier, literal};
use crate::pg::words;
use crate::results::change as declared;
use crate::results::model::{Evidence, When};
use crate::treatment::{
    Cost, Machines, Moved, Outlook, Resource, Step, Stranger, Touch, Treatment, TreatmentError,
    Undone, World,
};

/// Its name while a condition is in force.
const NAME: &str = "pgio_filesystem";

/// Who else would meet it in the WAL. A logical walsender always has a slot.
const FOLLOWERS: &str = "SELECT \
    EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical') \
    OR EXISTS (SELECT FROM pg_stat_replication r WHERE NOT EXISTS ( \
        SELECT FROM pg_replication_slots s WHERE s.slot_type = 'logical' AND s.active_pid = r.pid)), \
    current_setting('archive_mode') <> 'off'";

/// Says what is at a path already, and of the directory above it where that is.
const LOOK: &str = r#"if [ -e "$1" ] || [ -L "$1" ]; then echo there; fi
[ -d "${1%/*}/" ] && echo "parent $(readlink -f -- "${1%/*}/")""#;

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
        let said = host.output(&CommandLine::new("sh").args(["-c", LOOK, "sh", point]))?.stdout;
        let name = host.name();
        if said.lines().any(|line| line == "there") {
            return Err(TreatmentError::Refused(format!(
                "{point} is there already on host {name}: tablespace names a directory that pgio makes and removes again"
            )));
        }
        let parent = point.rsplit_once('/').map_or("", |(parent, _)| parent);
        match said.lines().find_map(|line| line.strip_prefix("parent ")) {
            Some("/") if parent.is_empty() => Ok(()),
            Some(real) if real == parent => Ok(()),
            // The kernel shows mounts by their real paths.
            Some(real) => Err(TreatmentError::Refused(format!(
                "{parent} on host {name} is a symbolic link or leads through one: say tablespace = \"{real}{}\"",
                &point[parent.len()..]
            ))),
            None => Err(TreatmentError::Refused(format!(
                "{point} cannot be made on host {name}: there is no directory above it"
            ))),
        }
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
    fn changes(&self) -> Vec<declared::Change> {
        self.new.changes(&format!("tablespace {NAME}"))
    }

    fn costs(&self) -> Vec<Cost> {
        // There and back.
        vec![Cost::NewFileSystem, Cost::CopyData, Cost::CopyData]
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
        refuse_followers(world)?;
        if world.moved.iter().any(|m| m.is_tablespace || m.device == self.new.device) {
            return Err(TreatmentError::Refused(format!(
                "a condition has one place for the data set: another treatment of it takes {} or makes a tablespace, too",
                self.new.device
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
        let below = |place: &&String| self.point.starts_with(&format!("{place}/"));
        if let Some(place) = tools::places(world, &host)?.iter().find(below) {
            return Err(TreatmentError::Refused(format!(
                "{} lies in {place}, which is the server's own: choose a directory outside",
                self.point
            )));
        }
        self.new.check(&host, "the data set", found.iter().map(|r| r.bytes).sum())
    }

    fn moves(&self) -> Vec<Moved> {
        vec![Moved {
            directory: self.point.clone(),
            device: self.new.device.clone(),
            is_tablespace: true,
        }]
    }

    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let device = Resource::device(&*world.host(None)?, &self.new.device);
        Ok(vec![Touch::Server, Touch::Of(device)])
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
        let database = database(world)?;
        let place = Change::Place { spot: spot.clone(), owner };
        let create = Change::Tablespace { spot: spot.clone() };
        let moved = Change::Move { spot, database, relations };
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
            Change::Tablespace { spot } => {
                let (name, location) = (identifier(NAME), literal(&spot.point));
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

fn refuse_followers(world: &mut World<'_>) -> Result<(), TreatmentError> {
    let row = world.admin()?.query_one(FOLLOWERS, &[]).map_err(failed("ask for standbys"))?;
    let who = match (row.get::<_, bool>(0), row.get::<_, bool>(1)) {
        (true, _) => "a standby follows this server",
        (_, true) => "this server archives its WAL",
        _ => return Ok(()),
    };
    Err(TreatmentError::Refused(format!(
        "{who}, and CREATE TABLESPACE would be replayed there, where the directory is another or missing: measure on a server without"
    )))
}

fn database(world: &mut World<'_>) -> Result<String, TreatmentError> {
    let row = world.admin()?.query_one("SELECT current_database()::text", &[]);
    Ok(row.map_err(failed("ask for the database"))?.get(0))
}

/// What of the data set is not in our tablespace.
fn elsewhere(world: &mut World<'_>) -> Result<Vec<String>, TreatmentError> {
    let all = place::relations(world.admin()?)?.into_iter();
    Ok(all.filter(|r| r.tablespace != NAME).map(|r| r.name).collect())
}

/// Whether the server is there to be asked. A private one that is gone took its tables with it.
fn reach(world: &mut World<'_>, step: &Step, spot: &Spot) -> Result<bool, TreatmentError> {
    if world.private && world.control.is_none() {
        return Ok(false);
    }
    let host = world.host(step.host.as_deref())?;
    mount_once_more(&host, spot)?;
    world.wake()?;
    Ok(true)
}

/// Back to where each was, those that are with us.
pub(super) fn undo_move(
    world: &mut World<'_>,
    step: &Step,
    (spot, place, relations): (&Spot, &str, &[Relation]),
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    if !reach(world, step, spot)? {
        return Ok(Undone::PutBack);
    }
    let here = database(world)?;
    if here != place {
        return Err(TreatmentError::Refused(format!(
            "the data set is in database {place}, not in {here}: connect there"
        )));
    }
    let mut undone = Undone::PutBack;
    for relation in relations {
        let found = place::tablespace_of(world.admin()?, relation)?;
        match found {
            // Also where it is there already: a move that a killed run began may be under way, and this
            // waits for it.
            Some(found) if found == NAME || found == relation.tablespace => {
                place::move_to(world.admin()?, relation, &relation.tablespace)?;
            }
            Some(found) => match stranger {
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
            None => {}
        }
    }
    Ok(undone)
}

/// After a reboot: without it the tables cannot be read, and a server that crashed may not come up.
fn mount_once_more(host: &Host, spot: &Spot) -> Result<(), TreatmentError> {
    let Spot { device, point, uuid, .. } = spot;
    if is_mounted(host, spot)? {
        return Ok(());
    }
    let Some(device) = &holder(host, device, uuid)? else {
        return Err(TreatmentError::Refused(format!(
            "the data set lies on the file system with UUID {uuid}, and neither {device} nor another device on host {} holds it now: attach it again (see `blkid`), or remove the data set with `pgio destroy` and the tablespace with DROP TABLESPACE {NAME}",
            host.name()
        )));
    };
    let tools = Tools::find(host, &format!("to mount {device}"), PROGRAMS)?;
    // One on a file system in memory is gone.
    tools.run(["mkdir", "-p", "--", point])?;
    tools.mount(&spot.file_system, &spot.options, device, point)?;
    Ok(())
}

fn is_mounted(host: &Host, spot: &Spot) -> Result<bool, TreatmentError> {
    let mounts = Mounts::read(host)?;
    let Some(mounted) = mounts.at(&spot.point) else { return Ok(false) };
    if lies_on(host, mounted, &spot.number, &spot.device) {
        return Ok(true);
    }
    // After a reboot the device may have another name and number.
    holds(host, &mounted.source, &spot.uuid)
}

pub(super) fn undo_tablespace(
    world: &mut World<'_>,
    step: &Step,
    spot: &Spot,
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    if !reach(world, step, spot)? {
        return Ok(Undone::PutBack);
    }
    let ours = &spot.point;
    match location(world)? {
        None => return Ok(Undone::PutBack),
        Some(location) if location == *ours => {}
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
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    let host = world.host(step.host.as_deref())?;
    let point = &spot.point;
    wait_for_orphans(&host, point)?;
    let tools = Tools::find(&host, &format!("to unmount {point}"), PROGRAMS)?;
    if is_mounted(&host, spot)? {
        tools.unmount(point).map_err(|error| {
            TreatmentError::Refused(format!(
                "{point} cannot be unmounted yet ({}): sessions of the server may hold files there, see `fuser -vm {point}`; end them, then `pgio undo`",
                words::sentence(&error)
            ))
        })?;
    }
    remove_point(&tools, point, stranger)
}

/// It was not there before us; what is in it now is not ours.
fn remove_point(
    tools: &Tools<'_>,
    point: &str,
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    let removed = tools.run(["rmdir", "--", point]);
    match removed {
        Err(error) if tools.host.exists(point.as_ref())? => match stranger {
            Stranger::Keep => Ok(Undone::Kept),
            _ => Err(TreatmentError::Refused(format!(
                "nothing is mounted at {point} any more, and the directory stays ({}): move away what is in it, then `pgio undo` again, or `pgio undo --keep` leaves it",
                words::sentence(&error)
            ))),
        },
        _ => Ok(Undone::PutBack),
    }
}
