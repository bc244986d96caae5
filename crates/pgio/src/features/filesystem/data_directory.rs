//! A private cluster on a new file system: stop, mkfs, copy the data directory there, mount it over the
//! data directory, start.
//!
//! The undo: stop, unmount, start; the original directory stays underneath.

use serde::{Deserialize, Serialize};

use super::format::{Format, FormatStep, NewFileSystem, PROGRAMS};
use super::mounts::Mounts;
use super::tools::{self, KIND, Tools, wait_for_orphans};
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::treatment::context::{Context, Machines, Moved};
use crate::treatment::contract::{Cost, Declared, InForce, Prepared, Preview, Treatment};
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::other_steps;
use crate::treatment::resource::{Resource, Touch};
use crate::treatment::step::{Label, OnConflict, StepOf, Undo, Undone, carry_out};
use pgio_results::model::{Evidence, When};

const PURPOSE: &str = "a new file system";

#[derive(Debug)]
pub(super) struct DataDirectoryMove {
    pub(super) new: NewFileSystem,
}

/// The prepared treatment, with the data directory without symbolic links.
#[derive(Debug, Clone)]
struct PreparedDataDirectoryMove {
    new: NewFileSystem,
    directory: String,
}

/// A copy of the data directory on the device, which is mounted at a temporary directory.
pub(super) type CopyStep = StepOf<(), DataCopy>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename = "copy")]
pub(super) struct DataCopy {
    device: String,
    file_system: String,
    options: String,
    from: String,
    to: String,
}

/// The device is mounted over the data directory.
pub(super) type MountOverStep = StepOf<(), MountOver>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename = "over")]
pub(super) struct MountOver {
    device: String,
    /// `MAJOR:MINOR`
    number: String,
    file_system: String,
    options: String,
    point: String,
}

impl Treatment for DataDirectoryMove {
    fn declared(&self) -> Declared {
        let device = &self.new.device;
        let copy = format!(
            "the data directory = a copy of it on {device}, mounted over it, by a stop and a start of PostgreSQL"
        );
        Declared {
            changes: self.new.changes("data"),
            intents: vec![self.new.intent(), copy],
            // One restart to mount over the data directory, one to undo that.
            costs: vec![Cost::Restart, Cost::Restart, Cost::NewFileSystem, Cost::CopyData],
            round_trip: None,
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let how = "by a stop of PostgreSQL, mkfs and a copy of the data directory";
        Ok(vec![self.new.preview(&*context.host(None)?, how)?])
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let device = Resource::device(&*context.host(None)?, &self.new.device);
        Ok(vec![Touch::Resource(device)])
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        self.new.tools(&*machines.host(None)?).map(drop)
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        let new = self.new.clone();
        if !context.private {
            return Err(TreatmentError::Refused(format!(
                "a new file system on {} under the whole cluster requires a target with private = true: on your own server put the data set there, tablespace = \"/a/new/directory\", or mount it yourself and compare two targets",
                new.device
            )));
        }
        context.control(PURPOSE)?;
        let host = context.host(None)?;
        let tools = new.tools(&host)?;
        let directory = tools::server_directories(context, &host)?.remove(0);
        context.layout.moved.push(Moved {
            directory: directory.clone(),
            device: new.device.clone(),
            is_tablespace: false,
        });
        let used = tools.run(["du", "-sk", "--", &directory])?;
        let used = used.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok());
        new.check(&host, "the data directory", used.unwrap_or_default() * 1024)?;
        Ok(Box::new(PreparedDataDirectoryMove { new, directory }))
    }
}

impl Prepared for PreparedDataDirectoryMove {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let host = context.host(None)?;
        let (format, copy, over) = self.steps(&host)?;
        other_steps::stop_server(context, journal, PURPOSE)?;
        carry_out(journal, &format, || self.new.make(&host, &format))?;
        let tools = self.new.tools(&host)?;
        carry_out(journal, &copy, || copy.apply(&tools))?;
        carry_out(journal, &over, || over.apply(&tools))?;
        self.new.check_mounted(&host, &self.directory)?;
        context.start_server(PURPOSE)?;
        Ok(Box::new(self.clone()))
    }
}

impl PreparedDataDirectoryMove {
    fn steps(&self, host: &Host) -> Result<(FormatStep, CopyStep, MountOverStep), TreatmentError> {
        let data = &self.directory;
        let (format, number) = self.new.step(host)?;
        let label = |what: String| Label::on_host(what, host.name());
        let Format { device, file_system, .. } = format.ours.clone();
        let ours = DataCopy {
            device: device.clone(),
            file_system: file_system.clone(),
            options: self.new.file_creation_options(),
            from: data.clone(),
            to: format!("{data}.pgio-copy"),
        };
        let what = format!("copy of the data directory on {}", self.new.device);
        let copy = CopyStep { label: label(what), prior: (), ours };
        let (options, point) = (self.new.mount_options(), data.clone());
        let ours = MountOver { device, number, file_system, options, point };
        let over = MountOverStep { label: label(format!("mount over {data}")), prior: (), ours };
        Ok((format, copy, over))
    }
}

impl InForce for PreparedDataDirectoryMove {
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        vec![self.new.evidence(context, &self.directory, when)]
    }
}

impl CopyStep {
    fn apply(&self, tools: &Tools<'_>) -> Result<(), TreatmentError> {
        let DataCopy { device, file_system, options, from, to } = &self.ours;
        tools.run(["mkdir", "--", to])?;
        tools.mount_own(file_system, options, device, to)?;
        // The copy must be the same as the data directory.
        tools.remove_lost_and_found(to);
        tools.run(["cp", "-a", "--", &format!("{from}/."), to])?;
        tools.copy_owner(from, to)?;
        remove_copy(tools, to)
    }
}

impl Undo for CopyStep {
    const KIND: &'static str = KIND;

    fn undo(&self, context: &mut Context<'_>, _: OnConflict) -> Result<Undone, TreatmentError> {
        let (host, directory) = (context.host(self.label.host())?, &self.ours.to);
        wait_for_orphans(&host, directory)?;
        let tools = Tools::find(&host, &format!("to unmount {directory}"), PROGRAMS)?;
        remove_copy(&tools, directory)?;
        Ok(Undone::Restored)
    }
}

impl MountOverStep {
    fn apply(&self, tools: &Tools<'_>) -> Result<(), TreatmentError> {
        let MountOver { device, file_system, options, point, .. } = &self.ours;
        tools.mount_own(file_system, options, device, point)
    }
}

impl Undo for MountOverStep {
    const KIND: &'static str = KIND;

    fn undo(&self, context: &mut Context<'_>, _: OnConflict) -> Result<Undone, TreatmentError> {
        let MountOver { device, number, point, .. } = &self.ours;
        let host = context.host(self.label.host())?;
        wait_for_orphans(&host, point)?;
        let mounts = Mounts::read(&*host)?;
        if mounts.at(point).is_some_and(|m| tools::is_mount_of(&host, m, number, device)) {
            // After a kill nothing controls the cluster: it ends by itself, and soon.
            if context.control.is_some() {
                context.stop_server(PURPOSE)?;
            }
            let tools = Tools::find(&host, &format!("to unmount {point}"), PROGRAMS)?;
            tools.unmount(point)?;
        }
        Ok(Undone::Restored)
    }
}

fn remove_copy(tools: &Tools<'_>, directory: &str) -> Result<(), TreatmentError> {
    if Mounts::read(tools.host)?.at(directory).is_some() {
        tools.unmount(directory)?;
    }
    let exists = || -> Result<bool, TreatmentError> {
        let test = CommandLine::new("test").args(["-d", directory]);
        Ok(tools.host.output(&test)?.status.success())
    };
    // The directory is always empty: the copy is on the device. After a kill the end of the cluster may
    // remove it at the same moment.
    match tools.run(["rmdir", "--", directory]) {
        Err(error) if exists()? => Err(error.into()),
        _ => Ok(()),
    }
}
