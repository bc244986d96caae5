//! `filesystem = { options = "barrier=0" }`: the mount options of the file system that PostgreSQL's
//! data lies on, and `filesystem = { device = "/dev/loop7", type = "xfs", … }`: a new file system
//! under a private cluster, or with `tablespace = "/srv/pgio"` under the data set of any server.
//!
//! A remount changes options if the kernel supports that; otherwise PostgreSQL is stopped
//! and the file system unmounted in between ([`remount`]). A device is formatted only if it holds
//! nothing, or a file system that the file names by UUID ([`format`]); it gets a copy of the data directory
//! ([`data_directory`]) or the data set ([`tablespace`]). [`options`] is the table of options that can be
//! restored; [`mounts`] reads the options in force from the kernel.

mod data_directory;
mod format;
mod mounts;
mod options;
mod options_step;
mod remount;
mod tablespace;
mod tools;

use serde::Deserialize;

use self::data_directory::{CopyStep, DataDirectoryMove, MountOverStep};
use self::format::{FormatStep, NewFileSystem};
use self::options::FILE_SYSTEMS;
use self::options_step::{Options, OptionsStep};
use self::remount::Remount;
use self::tablespace::{MoveStep, PlaceStep, Tablespace, TablespaceStep};
use crate::config::experiment::TreatmentSpec;
use crate::feature::Feature;
use crate::treatment::body::Body;
use crate::treatment::contract::{Kind, Treatment};
use crate::treatment::error::TreatmentError;
use crate::treatment::step::{Record, Step};

pub(super) static FEATURE: Feature = Feature {
    name: "filesystem",
    treatments: &[KIND],
    examples: &[example!("ext4-options")],
    ..Feature::NONE
};

const KIND: Kind = Kind {
    name: tools::KIND,
    help: "mount options under PostgreSQL, such as { options = \"barrier=0\" }, or a new file system under a private cluster, { device = \"/dev/loop7\", type = \"xfs\", allow_format = true }, or under the data set of any server, with tablespace = \"/srv/pgio\"",
    parse,
    read,
};

const KEYS: &[&str] =
    &["options", "mount", "device", "type", "mkfs", "allow_format", "uuid", "tablespace"];
const EXAMPLE: &str = "{ options = \"barrier=0\" }";

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let body = Body::table(spec, KEYS, EXAMPLE)?;
    let Some(device) = body.text("device")? else {
        if let Some(key) =
            ["type", "mkfs", "allow_format", "uuid", "tablespace"].into_iter().find(|k| body.has(k))
        {
            return Err(body.error(key, "requires device, the device to format"));
        }
        let text = body.required("options", "mount options, such as \"barrier=0\"")?;
        let options = options::parse(text, None).map_err(|why| body.error("options", why))?;
        let mount = body.text("mount")?.map(str::to_owned);
        if mount.as_ref().is_some_and(|mount| !mount.starts_with('/')) {
            return Err(body.error("mount", "must be the path of a mount, such as \"/srv/pg\""));
        }
        return Ok(Box::new(Remount { text: text.to_owned(), settings: options, mount }));
    };
    if body.has("mount") {
        return Err(body.error(
            "mount",
            "conflicts with device, which is mounted over the data directory or where tablespace names",
        ));
    }
    if !device.starts_with("/dev/") {
        return Err(body.error("device", format!("must be a path in /dev, not \"{device}\"")));
    }
    let file_system = body
        .one_of("type", FILE_SYSTEMS)?
        .ok_or_else(|| body.error("type", "is missing: ext4, xfs or btrfs"))?;
    if body.boolean("allow_format")? != Some(true) {
        let message = format!("must be true: each trial makes a new file system on {device}");
        return Err(body.error("allow_format", message));
    }
    let mkfs = body.texts("mkfs")?.unwrap_or_default();
    format::check_arguments(&mkfs).map_err(|why| body.error("mkfs", why))?;
    let parsed = body.text("options")?.map(|text| options::parse(text, Some(file_system)));
    let settings = parsed.transpose().map_err(|why| body.error("options", why))?;
    let new = NewFileSystem::new(
        device,
        file_system,
        mkfs,
        settings.unwrap_or_default(),
        body.text("uuid")?,
    );
    let Some(point) = body.text("tablespace")? else {
        return Ok(Box::new(DataDirectoryMove { new }));
    };
    tablespace::check_point(point).map_err(|why| body.error("tablespace", why))?;
    Ok(Box::new(Tablespace { new, point: point.to_owned() }))
}

/// Which step of this kind a record is.
#[derive(Debug, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
enum By {
    Remount(Options),
    Mount(Options),
    Format,
    Copy,
    Over,
    Place,
    Tablespace,
    Move,
}

fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    match record.ours_as()? {
        By::Remount(options) => Ok(Box::new(OptionsStep::read(record, false, &options)?)),
        By::Mount(options) => Ok(Box::new(OptionsStep::read(record, true, &options)?)),
        By::Format => FormatStep::read(record),
        By::Copy => CopyStep::read(record),
        By::Over => MountOverStep::read(record),
        By::Place => PlaceStep::read(record),
        By::Tablespace => TablespaceStep::read(record),
        By::Move => MoveStep::read(record),
    }
}

#[cfg(test)]
mod tests;
