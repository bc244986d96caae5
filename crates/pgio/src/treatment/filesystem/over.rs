//! A private cluster on a new file system: stop, mkfs, copy the data directory there, mount it over the
//! data directory, start.
//!
//! The way back: stop, unmount, start; the original was underneath all the time.

use std::sync::OnceLock;

use serde_json::Value;

use super::format::{NewFileSystem, PROGRAMS, step};
use super::mounts::Mounts;
use super::tools::{self, Tools, wait_for_orphans};
use super::{Change, change_of};
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::results::change as declared;
use crate::results::model::{Evidence, When};
use crate::treatment::{
    Cost, Machines, Moved, Outlook, Resource, Step, Touch, Treatment, TreatmentError, Undone,
    World, stopped,
};

const NEED: &str = "a new file system";

#[derive(Debug)]
pub(super) struct Over {
    new: NewFileSystem,
    /// The data directory without symbolic links.
    directory: OnceLock<String>,
}

impl Over {
    pub(super) fn new(new: NewFileSystem) -> Over {
        Over { new, directory: OnceLock::new() }
    }

    fn directory(&self, world: &mut World<'_>, host: &Host) -> Result<String, TreatmentError> {
        if let Some(directory) = self.directory.get() {
            return Ok(directory.clone());
        }
        let data = tools::places(world, host)?.remove(0);
        Ok(self.directory.get_or_init(|| data).clone())
    }
}

impl Treatment for Over {
    fn changes(&self) -> Vec<declared::Change> {
        self.new.changes("data")
    }

    fn costs(&self) -> Vec<Cost> {
        // One to mount over the data directory, one to take that back.
        vec![Cost::Restart, Cost::Restart, Cost::NewFileSystem, Cost::CopyData]
    }

    fn intents(&self) -> Vec<String> {
        let device = &self.new.device;
        vec![
            self.new.intent(),
            format!(
                "the data directory = a copy of it on {device}, mounted over it, by a stop and a start of PostgreSQL"
            ),
        ]
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let how = "by a stop of PostgreSQL, mkfs and a copy of the data directory";
        Ok(vec![self.new.outlook(&*world.host(None)?, how)?])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        self.new.tools(&*machines.host(None)?).map(drop)
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        if !world.private {
            return Err(TreatmentError::Refused(format!(
                "a new file system on {} under the whole cluster is for a target with private = true: on a server of yours put the data set there, tablespace = \"/a/new/directory\", or mount it yourself and compare two targets",
                self.new.device
            )));
        }
        world.control(NEED)?;
        let host = world.host(None)?;
        let tools = self.new.tools(&host)?;
        let directory = self.directory(world, &host)?;
        let used = tools.run(["du", "-sk", "--", &directory])?;
        let used = used.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok());
        self.new.check(&host, "the data directory", used.unwrap_or_default() * 1024)
    }

    fn moves(&self) -> Vec<Moved> {
        let to = |directory: &String| Moved {
            directory: directory.clone(),
            device: self.new.device.clone(),
            is_tablespace: false,
        };
        self.directory.get().map(to).into_iter().collect()
    }

    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        Ok(vec![Touch::Of(Resource::device(&*world.host(None)?, &self.new.device))])
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        let host = world.host(None)?;
        let data = self.directory(world, &host)?;
        let (format, made) = self.new.begin(&host)?;
        let copy = Change::Copy {
            device: made.device.clone(),
            file_system: made.file_system.clone(),
            options: self.new.options_of_files(),
            from: data.clone(),
            to: format!("{data}.pgio-copy"),
        };
        let over = Change::Over {
            device: made.device,
            number: made.number,
            file_system: made.file_system,
            options: self.new.mount_options(),
            point: data.clone(),
        };
        let copied = format!("copy of the data directory on {}", self.new.device);
        Ok(vec![
            stopped::step(world, NEED)?,
            format,
            step(copied, &host, Value::Null, &copy),
            step(format!("mount over {data}"), &host, Value::Null, &over),
        ])
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        if stopped::is(step) {
            return stopped::apply(world);
        }
        let host = world.host(step.host.as_deref())?;
        let tools = self.new.tools(&host)?;
        match change_of(step)? {
            Change::Format { device, uuid, .. } => self.new.make(&host, &device, &uuid)?,
            Change::Copy { device, file_system, options, from, to } => {
                tools.run(["mkdir", "--", &to])?;
                tools.mount(&file_system, &options, &device, &to)?;
                // The data directory is to be the same.
                tools.remove_lost_and_found(&to);
                tools.run(["cp", "-a", "--", &format!("{from}/."), &to])?;
                tools.own_as(&from, &to)?;
                remove_copy(&tools, &to)?;
            }
            Change::Over { device, file_system, options, point, .. } => {
                tools.mount(&file_system, &options, &device, &point)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(None)?;
        let directory = self.directory.get().cloned().unwrap_or_default();
        self.new.see_that_it_is_mounted(&host, &directory)?;
        world.start(NEED)
    }

    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence> {
        let point = self.directory.get().map(String::as_str);
        vec![self.new.evidence(world, point, when)]
    }
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
    let device = match change_of(step)? {
        Change::Over { device, .. } => device,
        _ => String::new(),
    };
    let mounts = Mounts::read(&*host)?;
    if mounts.at(point).is_some_and(|m| tools::lies_on(&host, m, number, &device)) {
        // After a kill there is none any more: the cluster ends by itself, and soon.
        if world.control.is_some() {
            world.stop(NEED)?;
        }
        let tools = Tools::find(&host, &format!("to unmount {point}"), PROGRAMS)?;
        tools.unmount(point)?;
    }
    Ok(Undone::PutBack)
}
