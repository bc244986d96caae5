//! A data set on a new file system, on a server of the user's as well: mkfs, mount it at a directory
//! that is made for it, CREATE TABLESPACE there, move the tables of the data set and their indexes.
//!
//! The server runs all the time; its WAL and everything else stay where they are. The
//! undo: move each relation to where it was, DROP TABLESPACE, unmount, remove the directory. After a reboot
//! the undo first mounts the file system, known by its UUID, once more: a
//! server that crashed may need it to start. Next: [`super::tablespace`].
//!
//! CREATE TABLESPACE is in the WAL: a standby, or a restore from the archive, would need a directory of
//! that name, and on the same host it would write into the primary's. So servers that have either are
//! refused.

use pgio_results::model::{Evidence, When};
use serde::{Deserialize, Serialize};

use super::format::{Format, FormatStep, NewFileSystem, PROGRAMS, find_device_of, holds};
use super::mounts::Mounts;
use super::tools::{self, KIND, Tools, is_mount_of, wait_for_orphans};
use crate::dataset::space::{self, Relation};
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::pg::replication::{self, Followers};
use crate::pg::{identifier, literal, words};
use crate::treatment::context::{Context, Machines, Moved};
use crate::treatment::contract::{Cost, Declared, InForce, Prepared, Preview, Treatment};
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::resource::{Resource, Touch};
use crate::treatment::step::{Label, OnConflict, StepOf, Undo, Undone, carry_out};

/// Prints whether a path exists, and the real path of the directory above it.
const POINT_SCRIPT: &str = r#"if [ -e "$1" ] || [ -L "$1" ]; then echo there; fi
[ -d "${1%/*}/" ] && printf 'parent %s\n' "$(readlink -f -- "${1%/*}/")""#;

/// The treatment, the same in all phases.
#[derive(Debug, Clone)]
pub(super) struct Tablespace {
    pub(super) new: NewFileSystem,
    /// Where the file system is mounted: a directory that does not exist yet.
    pub(super) point: String,
}

/// Checks for a path that mount(8) and PostgreSQL accept as it is.
pub(super) fn check_point(point: &str) -> Result<(), String> {
    let is_plain = point.starts_with('/')
        && point.len() > 1
        && !point.ends_with('/')
        && !point.split('/').skip(1).any(|part| ["", ".", ".."].contains(&part))
        && !point.contains(|c: char| c == '\'' || c.is_whitespace() || c.is_control());
    if is_plain {
        Ok(())
    } else {
        Err(format!("must be the path of a new directory, such as \"/srv/pgio\", not \"{point}\""))
    }
}

impl Tablespace {
    fn check_point_is_free(&self, host: &Host) -> Result<(), TreatmentError> {
        let point = &self.point;
        // A dangling link counts as existing.
        let output =
            host.output(&CommandLine::new("sh").args(["-c", POINT_SCRIPT, "sh", point]))?.stdout;
        let name = host.name();
        if output.lines().any(|line| line == "there") {
            return Err(TreatmentError::Refused(format!(
                "{point} already exists on host {name}: name a new directory for tablespace, which pgio creates and removes"
            )));
        }
        let parent = point.rsplit_once('/').map_or("", |(parent, _)| parent);
        match output.lines().find_map(|line| line.strip_prefix("parent ")) {
            Some("/") if parent.is_empty() => tools::check_mount_point(host, name, point),
            Some(real) if real == parent => tools::check_mount_point(host, name, point),
            // The kernel shows mounts by their real paths.
            Some(real) => Err(TreatmentError::Refused(format!(
                "{parent} on host {name} is a symbolic link or contains one: use tablespace = \"{real}{}\"",
                &point[parent.len()..]
            ))),
            None => Err(TreatmentError::Refused(format!(
                "cannot create {point} on host {name}: the directory above it does not exist"
            ))),
        }
    }

    fn check_requirements(&self, context: &mut Context<'_>) -> Result<(), TreatmentError> {
        let host = context.host(None)?;
        let ask = "SELECT current_setting('is_superuser') = 'on', current_user::text";
        let row = context
            .admin()?
            .query_one(ask, &[])
            .map_err(TreatmentError::postgres("check whether the role is a superuser"))?;
        if !row.try_get::<_, bool>(0)? {
            return Err(TreatmentError::Refused(format!(
                "role {} may not CREATE TABLESPACE: connect as a superuser",
                row.try_get::<_, String>(1)?
            )));
        }
        refuse_followers(context)?;
        if context.layout.moved.iter().any(|m| m.is_tablespace || m.device == self.new.device) {
            return Err(TreatmentError::Refused(format!(
                "a condition can move the data set only once: another treatment uses {} or creates a tablespace, too",
                self.new.device
            )));
        }
        if let Some(location) = location(context)? {
            return Err(TreatmentError::Refused(format!(
                "tablespace {NAME} already exists, at {location}: run `pgio undo` if it is pgio's, else drop or rename it"
            )));
        }
        let found = space::relations(context.admin()?)?;
        if found.is_empty() {
            return Err(TreatmentError::Refused(
                "there is no data set to move into a tablespace: load one with `pgio setup` (the workload `commit` has none; it waits for WAL, which a tablespace does not hold)".to_owned(),
            ));
        }
        self.check_point_is_free(&host)?;
        let below = |place: &&String| self.point.starts_with(&format!("{place}/"));
        if let Some(place) = tools::server_directories(context, &host)?.iter().find(below) {
            return Err(TreatmentError::Refused(format!(
                "{} lies in {place}, which belongs to the server: choose a directory outside",
                self.point
            )));
        }
        self.new.check(&host, "the data set", found.iter().map(|r| r.bytes).sum())
    }

    fn steps(&self, context: &mut Context<'_>, host: &Host) -> Result<Steps, TreatmentError> {
        let owner = tools::server_directories(context, host)?.remove(0);
        let (format, number) = self.new.step(host)?;
        let Format { device, file_system, uuid, .. } = format.ours.clone();
        let (options, point) = (self.new.mount_options(), self.point.clone());
        let mount = MountSpec { device, number, file_system, uuid, options, point };
        let relations = space::relations(context.admin()?)?;
        let database = database(context)?;
        let label = |what: String| Label::on_host(what, host.name());
        let place = Place { mount: mount.clone(), owner };
        let create = NewTablespace { mount: mount.clone() };
        Ok(Steps {
            format,
            place: StepOf {
                label: label(format!("mount at {}", self.point)),
                prior: (),
                ours: place,
            },
            create: StepOf { label: label(format!("tablespace {NAME}")), prior: (), ours: create },
            moved: StepOf {
                label: label("place of the data set".to_owned()),
                prior: "as each was".to_owned(),
                ours: DataMove { mount, database, relations },
            },
        })
    }
}

/// In the order of application.
#[derive(Debug)]
struct Steps {
    format: FormatStep,
    place: PlaceStep,
    create: TablespaceStep,
    moved: MoveStep,
}

impl Treatment for Tablespace {
    fn declared(&self) -> Declared {
        let point = &self.point;
        Declared {
            changes: self.new.changes(&format!("tablespace {NAME}")),
            intents: vec![
                self.new.intent(),
                format!("{point} = the new file system, mounted there and removed afterwards"),
                format!(
                    "the tables and indexes of the data set = tablespace {NAME} at {point}, by ALTER ... SET TABLESPACE and back again"
                ),
            ],
            // The data set is moved there and back.
            costs: vec![Cost::NewFileSystem, Cost::CopyData, Cost::CopyData],
            round_trip: None,
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let how = "by mkfs, mount, CREATE TABLESPACE and ALTER TABLE ... SET TABLESPACE";
        let device = self.new.preview(&*context.host(None)?, how)?;
        let found = space::relations(context.admin()?)?;
        let mut now: Vec<&str> = found.iter().map(|r| r.tablespace.as_str()).collect();
        now.sort_unstable();
        now.dedup();
        let what = "tablespace of the data set".to_owned();
        let (now, then) = (now.join(" and "), format!("{NAME} at {}", self.point));
        Ok(vec![device, Preview { what, now, then, how }])
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let device = Resource::device(&*context.host(None)?, &self.new.device);
        Ok(vec![Touch::Server, Touch::Resource(device)])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        self.new.tools(&*machines.host(None)?).map(drop)
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        let refused = self.check_requirements(context);
        // Known from the file: the doctor checks later treatments against it even if this one is refused.
        context.layout.moved.push(Moved {
            directory: self.point.clone(),
            device: self.new.device.clone(),
            is_tablespace: true,
        });
        refused.map(|()| Box::new(self.clone()) as Box<dyn Prepared>)
    }
}

impl Prepared for Tablespace {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let host = context.host(None)?;
        self.check_point_is_free(&host)?;
        let Steps { format, place, create, moved } = self.steps(context, &host)?;
        carry_out(journal, &format, || self.new.make(&host, &format))?;
        let tools = self.new.tools(&host)?;
        carry_out(journal, &place, || place.apply(&tools))?;
        carry_out(journal, &create, || create.apply(context))?;
        carry_out(journal, &moved, || moved.apply(context))?;
        self.new.check_mounted(&host, &self.point)?;
        let elsewhere = relations_elsewhere(context)?;
        if elsewhere.is_empty() {
            Ok(Box::new(self.clone()))
        } else {
            Err(TreatmentError::NotInForce {
                what: format!("tablespace {NAME}"),
                seconds: 0,
                why: format!("{} lie elsewhere", elsewhere.join(", ")),
            })
        }
    }
}

impl InForce for Tablespace {
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        let mut all = vec![self.new.evidence(context, &self.point, when)];
        // A table in use cannot be moved, and there may be thousands of them.
        if when != When::During {
            let found = match relations_elsewhere(context) {
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

fn refuse_followers(context: &mut Context<'_>) -> Result<(), TreatmentError> {
    let found = replication::followers(context.admin()?);
    let who = match found.map_err(TreatmentError::postgres("query standbys"))? {
        Followers { standby: true, .. } => "a standby follows this server",
        Followers { archive: true, .. } => "this server archives its WAL",
        Followers { standby: false, archive: false, .. } => return Ok(()),
    };
    Err(TreatmentError::Refused(format!(
        "{who}, and replay of CREATE TABLESPACE would fail there or use another directory: use a server without standbys and archiving"
    )))
}

/// The relations of the data set that are not in our tablespace.
fn relations_elsewhere(context: &mut Context<'_>) -> Result<Vec<String>, TreatmentError> {
    let all = space::relations(context.admin()?)?.into_iter();
    Ok(all.filter(|r| r.tablespace != NAME).map(|r| r.name).collect())
}

/// The tablespace's name while a condition is in force.
pub(super) const NAME: &str = "pgio_filesystem";

/// Where the file system is mounted, and all that mounting it again takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MountSpec {
    pub(super) device: String,
    /// `MAJOR:MINOR`
    pub(super) number: String,
    pub(super) file_system: String,
    pub(super) uuid: String,
    pub(super) options: String,
    pub(super) point: String,
}

/// Mounts the device at a new directory that belongs to the server.
pub(super) type PlaceStep = StepOf<(), Place>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename = "place")]
pub(super) struct Place {
    pub(super) mount: MountSpec,
    /// A directory of the server's, whose owner and rights the new one gets.
    pub(super) owner: String,
}

/// Creates the tablespace there.
pub(super) type TablespaceStep = StepOf<(), NewTablespace>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename = "tablespace")]
pub(super) struct NewTablespace {
    pub(super) mount: MountSpec,
}

/// Moves the data set into the tablespace. The prior value is words: each relation has its own.
pub(super) type MoveStep = StepOf<String, DataMove>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename = "move")]
pub(super) struct DataMove {
    pub(super) mount: MountSpec,
    /// The database of the data set.
    pub(super) database: String,
    /// Each relation with its prior tablespace.
    pub(super) relations: Vec<Relation>,
}

impl Undo for PlaceStep {
    const KIND: &'static str = KIND;

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let (host, point) = (context.host(self.label.host())?, &self.ours.mount.point);
        wait_for_orphans(&host, point)?;
        let tools = Tools::find(&host, &format!("to unmount {point}"), PROGRAMS)?;
        if is_mounted(&host, &self.ours.mount)? {
            tools.unmount_for_undo(point)?;
        }
        remove_point(&tools, point, on_conflict)
    }
}

impl PlaceStep {
    pub(super) fn apply(&self, tools: &Tools<'_>) -> Result<(), TreatmentError> {
        let MountSpec { device, file_system, options, point, .. } = &self.ours.mount;
        tools.run(["mkdir", "--", point])?;
        tools.mount_own(file_system, options, device, point)?;
        tools.remove_lost_and_found(point);
        Ok(tools.copy_owner(&self.ours.owner, point)?)
    }
}

impl Undo for TablespaceStep {
    const KIND: &'static str = KIND;

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        if let Some(undone) = reach_server(context, &self.label, &self.ours.mount, on_conflict)? {
            return Ok(undone);
        }
        let ours = &self.ours.mount.point;
        let Some(location) = location(context)? else { return Ok(Undone::Restored) };
        if location != *ours {
            // Not overwritten even by --restore: it is not ours.
            let label = Label::on_server(format!("tablespace {NAME}"));
            let [found, ours] = [&location, ours].map(|path| format!("at {path}"));
            let conflict = || TreatmentError::changed_since(&label, found, ours, "absent");
            return on_conflict.overwrites(conflict).map(|_| Undone::Kept);
        }
        // The server refuses this if someone else created objects there.
        let drop = format!("DROP TABLESPACE {}", identifier(NAME));
        let failed = TreatmentError::postgres("drop the tablespace");
        context.admin()?.batch_execute(&drop).map_err(failed)?;
        Ok(Undone::Restored)
    }
}

impl TablespaceStep {
    pub(super) fn apply(&self, context: &mut Context<'_>) -> Result<(), TreatmentError> {
        let (name, location) = (identifier(NAME), literal(&self.ours.mount.point));
        let create = format!("CREATE TABLESPACE {name} LOCATION {location}");
        let failed = TreatmentError::postgres("create a tablespace");
        context.admin()?.batch_execute(&create).map_err(failed)
    }
}

impl Undo for MoveStep {
    const KIND: &'static str = KIND;

    /// Moves each relation back to its prior tablespace.
    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        if let Some(undone) = reach_server(context, &self.label, &self.ours.mount, on_conflict)? {
            return Ok(undone);
        }
        let here = database(context)?;
        if here != self.ours.database {
            return Err(TreatmentError::Refused(format!(
                "the data set is in database {}, not in {here}: connect to that database",
                self.ours.database
            )));
        }
        let mut undone = Undone::Restored;
        for relation in &self.ours.relations {
            let prior = &relation.tablespace;
            let Some(found) = space::tablespace_of(context.admin()?, relation)? else {
                continue;
            };
            if found != NAME && found != *prior {
                let label = Label::on_server(format!("tablespace of {}", relation.name));
                let conflict =
                    || TreatmentError::changed_since(&label, found, NAME, prior.as_str());
                if !on_conflict.overwrites(conflict)? {
                    undone = Undone::Kept;
                    continue;
                }
            }
            // Even if it is there already: a killed run's move may be under way, and this waits for it.
            space::move_to(context.admin()?, relation, prior)?;
        }
        Ok(undone)
    }
}

impl MoveStep {
    pub(super) fn apply(&self, context: &mut Context<'_>) -> Result<(), TreatmentError> {
        for relation in &self.ours.relations {
            if context.stop.requested() {
                return Err(TreatmentError::Stopped);
            }
            space::move_to(context.admin()?, relation, NAME)?;
        }
        Ok(())
    }
}

/// The location of the tablespace of our name, if there is one.
pub(super) fn location(context: &mut Context<'_>) -> Result<Option<String>, TreatmentError> {
    let ask = "SELECT pg_tablespace_location(oid) FROM pg_tablespace WHERE spcname = $1";
    let failed = TreatmentError::postgres("query tablespaces");
    let row = context.admin()?.query_opt(ask, &[&NAME]).map_err(failed)?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

pub(super) fn database(context: &mut Context<'_>) -> Result<String, TreatmentError> {
    let row = context.admin()?.query_one("SELECT current_database()::text", &[]);
    Ok(row.map_err(TreatmentError::postgres("query the current database"))?.try_get(0)?)
}

/// Mounts the file system if necessary and reaches the server. Returns how the step ends if nothing is left to do:
/// a private server was removed with its tables, there is no such tablespace any more, or the file system is lost
/// and the user says to leave it at that.
fn reach_server(
    context: &mut Context<'_>,
    label: &Label,
    mount: &MountSpec,
    on_conflict: OnConflict,
) -> Result<Option<Undone>, TreatmentError> {
    if context.private && context.control.is_none() {
        return Ok(Some(Undone::Restored));
    }
    // Without the tablespace nothing lies there, whatever became of the device.
    if let Ok(None) = location(context) {
        return Ok(Some(Undone::Restored));
    }
    let host = context.host(label.host())?;
    if !remount_after_reboot(&host, mount, on_conflict)? {
        return Ok(Some(Undone::Kept));
    }
    context.ensure_running()?;
    Ok(None)
}

/// After a reboot the tables cannot be read without the mount, and a server that crashed may not start.
/// False if the file system is lost and is to be left so.
fn remount_after_reboot(
    host: &Host,
    mount: &MountSpec,
    on_conflict: OnConflict,
) -> Result<bool, TreatmentError> {
    let MountSpec { device, point, uuid, .. } = mount;
    if is_mounted(host, mount)? {
        return Ok(true);
    }
    let Some(device) = &find_device_of(host, device, uuid)? else {
        if on_conflict == OnConflict::Keep {
            return Ok(false);
        }
        return Err(TreatmentError::Refused(format!(
            "the data set lies on the file system with UUID {uuid}, which neither {device} nor another device on host {} holds now: attach it again (see `blkid`), or remove the data set with `pgio destroy` and the tablespace with DROP TABLESPACE {NAME}, then rerun `pgio undo`; `pgio undo --keep` leaves both as they are",
            host.name()
        )));
    };
    tools::check_mount_point(host, host.name(), point).map_err(|error| {
        TreatmentError::Refused(format!(
            "{}; mount {device} there by hand, then rerun `pgio undo`",
            words::sentence(&error)
        ))
    })?;
    let tools = Tools::find(host, &format!("to mount {device}"), PROGRAMS)?;
    // A directory on a file system in memory does not survive a reboot.
    tools.run(["mkdir", "-p", "--", point])?;
    tools.mount_own(&mount.file_system, &mount.options, device, point)?;
    Ok(true)
}

fn is_mounted(host: &Host, mount: &MountSpec) -> Result<bool, TreatmentError> {
    let mounts = Mounts::read(host)?;
    let Some(mounted) = mounts.at(&mount.point) else { return Ok(false) };
    if is_mount_of(host, mounted, &mount.number, &mount.device) {
        return Ok(true);
    }
    // After a reboot the device may have another name and number.
    holds(host, &mounted.source, &mount.uuid)
}

/// Removes the directory, which pgio made; files in it are not ours.
fn remove_point(
    tools: &Tools<'_>,
    point: &str,
    on_conflict: OnConflict,
) -> Result<Undone, TreatmentError> {
    let removed = tools.run(["rmdir", "--", point]);
    match removed {
        Err(error) if tools.host.exists(point.as_ref())? => match on_conflict {
            OnConflict::Keep => Ok(Undone::Kept),
            OnConflict::Ask | OnConflict::Restore => Err(TreatmentError::Refused(format!(
                "nothing is mounted at {point} now, and the directory stays ({}): move away what is in it, then `pgio undo` again, or `pgio undo --keep` leaves it",
                words::sentence(&error)
            ))),
        },
        _ => Ok(Undone::Restored),
    }
}
