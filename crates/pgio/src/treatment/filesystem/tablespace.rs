//! A data set on a new file system, on a server of the user's as well: mkfs, mount it at a directory
//! that is made for it, CREATE TABLESPACE there, move the tables of the data set and their indexes.
//!
//! The server runs all the time; its WAL and everything else stay where they are. The
//! undo: move each relation to where it was, DROP TABLESPACE, unmount, remove the directory. After a reboot
//! the undo first mounts the file system, known by its UUID, once more: a
//! server that crashed may need it to start. Next: [`super::tablespace_steps`].
//!
//! CREATE TABLESPACE is in the WAL: a standby, or a restore from the archive, would need a directory of
//! that name, and on the same host it would write into the primary's. So servers that have either are
//! refused.

use super::format::{FormatStep, NewFileSystem};
use super::tablespace_steps::{
    MountSpec, MoveStep, NAME, PlaceStep, TablespaceStep, database, location,
};
use super::tools;
use crate::dataset::tablespace;
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::pg::server::{self, Followers};
use crate::treatment::context::{Context, Machines, Moved};
use crate::treatment::contract::{Cost, Declared, InForce, Prepared, Preview, Treatment};
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::resource::{Resource, Touch};
use crate::treatment::step::{Label, carry_out};
use pgio_results::model::{Evidence, When};

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
        let found = tablespace::relations(context.admin()?)?;
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
        let FormatStep { device, file_system, uuid, .. } = format.clone();
        let (options, point) = (self.new.mount_options(), self.point.clone());
        let mount = MountSpec { device, number, file_system, uuid, options, point };
        let relations = tablespace::relations(context.admin()?)?;
        let database = database(context)?;
        let label = |what: String| Label::on_host(what, host.name());
        Ok(Steps {
            format,
            place: PlaceStep {
                mount: mount.clone(),
                owner,
                label: label(format!("mount at {}", self.point)),
            },
            create: TablespaceStep {
                mount: mount.clone(),
                label: label(format!("tablespace {NAME}")),
            },
            moved: MoveStep {
                mount,
                database,
                relations,
                label: label("place of the data set".to_owned()),
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
        let found = tablespace::relations(context.admin()?)?;
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
    let found = server::followers(context.admin()?);
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
    let all = tablespace::relations(context.admin()?)?.into_iter();
    Ok(all.filter(|r| r.tablespace != NAME).map(|r| r.name).collect())
}
