//! The steps of a data set in a tablespace of its own: the mount, the tablespace, the move.

use serde::{Deserialize, Serialize};

use super::format::{PROGRAMS, find_device_of, holds};
use super::mounts::Mounts;
use super::tools::{self, KIND, Tools, is_mount_of, wait_for_orphans};
use crate::dataset::tablespace::{self, Relation};
use crate::host::Host;
use crate::host::exec::Exec;
use crate::pg::quote::{identifier, literal};
use crate::pg::words;
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;
use crate::treatment::step::{Label, OnConflict, Record, Step, Undone};

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
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename = "place")]
pub(super) struct PlaceStep {
    pub(super) mount: MountSpec,
    /// A directory of the server's, whose owner and rights the new one gets.
    pub(super) owner: String,
    #[serde(skip)]
    pub(super) label: Label,
}

/// Creates the tablespace there.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename = "tablespace")]
pub(super) struct TablespaceStep {
    pub(super) mount: MountSpec,
    #[serde(skip)]
    pub(super) label: Label,
}

/// Moves the data set into the tablespace.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename = "move")]
pub(super) struct MoveStep {
    pub(super) mount: MountSpec,
    /// The database of the data set.
    pub(super) database: String,
    /// Each relation with its prior tablespace.
    pub(super) relations: Vec<Relation>,
    #[serde(skip)]
    pub(super) label: Label,
}

impl Step for PlaceStep {
    fn record(&self) -> Record {
        Record::new(KIND, &self.label, (), self)
    }

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let (host, point) = (context.host(self.label.host())?, &self.mount.point);
        wait_for_orphans(&host, point)?;
        let tools = Tools::find(&host, &format!("to unmount {point}"), PROGRAMS)?;
        if is_mounted(&host, &self.mount)? {
            tools.unmount_for_undo(point)?;
        }
        remove_point(&tools, point, on_conflict)
    }
}

impl PlaceStep {
    pub(super) fn apply(&self, tools: &Tools<'_>) -> Result<(), TreatmentError> {
        let MountSpec { device, file_system, options, point, .. } = &self.mount;
        tools.run(["mkdir", "--", point])?;
        tools.mount_own(file_system, options, device, point)?;
        tools.remove_lost_and_found(point);
        Ok(tools.copy_owner(&self.owner, point)?)
    }
}

impl Step for TablespaceStep {
    fn record(&self) -> Record {
        Record::new(KIND, &self.label, (), self)
    }

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        if let Some(undone) = reach_server(context, &self.label, &self.mount, on_conflict)? {
            return Ok(undone);
        }
        let ours = &self.mount.point;
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
        let (name, location) = (identifier(NAME), literal(&self.mount.point));
        let create = format!("CREATE TABLESPACE {name} LOCATION {location}");
        let failed = TreatmentError::postgres("create a tablespace");
        context.admin()?.batch_execute(&create).map_err(failed)
    }
}

impl Step for MoveStep {
    fn record(&self) -> Record {
        Record::new(KIND, &self.label, "as each was", self)
    }

    /// Moves each relation back to its prior tablespace.
    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        if let Some(undone) = reach_server(context, &self.label, &self.mount, on_conflict)? {
            return Ok(undone);
        }
        let here = database(context)?;
        if here != self.database {
            return Err(TreatmentError::Refused(format!(
                "the data set is in database {}, not in {here}: connect to that database",
                self.database
            )));
        }
        let mut undone = Undone::Restored;
        for relation in &self.relations {
            let prior = &relation.tablespace;
            let Some(found) = tablespace::tablespace_of(context.admin()?, relation)? else {
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
            tablespace::move_to(context.admin()?, relation, prior)?;
        }
        Ok(undone)
    }
}

impl MoveStep {
    pub(super) fn apply(&self, context: &mut Context<'_>) -> Result<(), TreatmentError> {
        for relation in &self.relations {
            if context.stop.requested() {
                return Err(TreatmentError::Stopped);
            }
            tablespace::move_to(context.admin()?, relation, NAME)?;
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
