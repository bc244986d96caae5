//! `filesystem = { options = "barrier=0" }`: the mount options of the file system that PostgreSQL's
//! data lies on, and `filesystem = { device = "/dev/loop7", type = "xfs", … }`: a new file system
//! under a private cluster, or with `tablespace = "/srv/pgio"` under the data set of any server.
//!
//! Options are changed by a remount where the kernel really does that, else with PostgreSQL stopped
//! and the file system unmounted in between ([`remount`]). A device is formatted only if it holds
//! nothing, or what the file names by its UUID ([`format`]); on it goes a copy of the data directory
//! ([`over`]) or the data set ([`tablespace`]). The options that can be put back are a
//! table ([`options`]); what is in force is read from the kernel ([`mounts`]), never believed.

mod format;
mod mounts;
mod name_space;
mod options;
mod over;
mod remount;
mod tablespace;
mod tools;

use serde::{Deserialize, Serialize};

use self::format::NewFileSystem;
use self::mounts::{Mounted, Mounts};
use self::options::{FILE_SYSTEMS, Setting};
use self::over::Over;
use self::remount::Remounted;
use self::tablespace::{Spot, Tablespace};
use super::body::Body;
use super::{Kind, Step, Stranger, Treatment, TreatmentError, Undone, World};
use crate::config::experiment::TreatmentSpec;
use crate::dataset::place::Relation;
use crate::results::change as declared;
use crate::results::model::{Evidence, When};

pub(super) const KIND: Kind = Kind {
    name: "filesystem",
    help: "mount options under PostgreSQL, such as { options = \"barrier=0\" }, or a new file system under a private cluster, { device = \"/dev/loop7\", type = \"xfs\", allow_format = true }, or under the data set of any server, with tablespace = \"/srv/pgio\"",
    parse,
    undo,
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
            return Err(body.error(key, "goes with device, which is to be formatted"));
        }
        let text = body.required("options", "mount options, such as \"barrier=0\"")?;
        let options = options::parse(text, None).map_err(|why| body.error("options", why))?;
        let mount = body.text("mount")?.map(str::to_owned);
        if mount.as_ref().is_some_and(|mount| !mount.starts_with('/')) {
            return Err(body.error("mount", "must be the path of a mount, such as \"/srv/pg\""));
        }
        return Ok(Box::new(Remounted::new(text, options, mount)));
    };
    if body.has("mount") {
        return Err(body.error(
            "mount",
            "contradicts device: the data directory is mounted over, or tablespace says where",
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
    let Some(point) = body.text("tablespace")? else { return Ok(Box::new(Over::new(new))) };
    tablespace::check_point(point).map_err(|why| body.error("tablespace", why))?;
    Ok(Box::new(Tablespace::new(new, point)))
}

/// What a step did, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
enum Change {
    Remount {
        words: Vec<String>,
        shown: String,
    },
    /// Unmounted, and mounted with these.
    Mount {
        words: Vec<String>,
        shown: String,
    },
    Format {
        device: String,
        file_system: String,
        uuid: String,
        mkfs: Vec<String>,
        shown: String,
    },
    /// The data directory is copied to the device, mounted at a directory of ours for that.
    Copy {
        device: String,
        file_system: String,
        options: String,
        from: String,
        to: String,
    },
    /// The device is mounted over the data directory.
    Over {
        device: String,
        number: String,
        file_system: String,
        options: String,
        point: String,
    },
    /// The device is mounted at a directory that is made for it and belongs to the server then.
    Place {
        spot: Spot,
        /// A directory of the server's, whose owner and rights the new one gets.
        owner: String,
    },
    /// Of our name, there.
    Tablespace {
        spot: Spot,
    },
    /// The data set goes into that tablespace.
    Move {
        spot: Spot,
        /// In which it is.
        database: String,
        /// Each with the tablespace to which it goes back.
        relations: Vec<Relation>,
    },
}

fn change_of(step: &Step) -> Result<Change, TreatmentError> {
    serde_json::from_value(step.ours.clone()).map_err(|e| {
        TreatmentError::Config(format!(
            "the journal's step `{}` cannot be understood ({e}); use the pgio that wrote it",
            step.what
        ))
    })
}

fn undo(world: &mut World<'_>, step: &Step, stranger: Stranger) -> Result<Undone, TreatmentError> {
    match change_of(step)? {
        Change::Remount { .. } => remount::undo(world, step, false, stranger),
        Change::Mount { .. } => remount::undo(world, step, true, stranger),
        Change::Format { device, uuid, .. } => {
            format::undo_format(world, step, &device, &uuid, stranger)
        }
        Change::Copy { to, .. } => over::undo_copy(world, step, &to),
        Change::Over { number, point, .. } => over::undo_over(world, step, &number, &point),
        Change::Place { spot, .. } => tablespace::undo_place(world, step, &spot, stranger),
        Change::Tablespace { spot } => tablespace::undo_tablespace(world, step, &spot, stranger),
        Change::Move { spot, database, relations } => {
            tablespace::undo_move(world, step, (&spot, &database, &relations), stranger)
        }
    }
}

/// One fact: the options as the kernel shows them, which is what is expected where all of `settings`
/// are among them.
fn evidence(
    when: When,
    mounts: Option<&Mounts>,
    point: Option<&str>,
    settings: &[Setting],
) -> Evidence {
    let mounted = mounts.zip(point).and_then(|(mounts, point)| mounts.at(point));
    let Some(mounted) = mounted else {
        let found = "unreadable, or not mounted".to_owned();
        let what = format!("mount of {}", point.unwrap_or("the data directory"));
        return Evidence { when, what, found, expected: Some(options::told(settings)) };
    };
    let found = format!("{} {}", mounted.file_system, mounted.options);
    let expected = match in_force(mounted, settings) {
        true => found.clone(),
        false => format!("{} with {}", mounted.file_system, options::told(settings)),
    };
    Evidence { when, what: format!("mount of {}", mounted.point), found, expected: Some(expected) }
}

fn in_force(mounted: &Mounted, settings: &[Setting]) -> bool {
    let known = mounted.known();
    settings.iter().all(|setting| setting.found(&known) == setting.word)
}

/// Each option by its name in the table, so that two values of one are one difference.
fn options_of(settings: &[Setting], path: Option<&str>) -> impl Iterator<Item = declared::Change> {
    let subject = declared::Subject::Mount { path: path.map(str::to_owned) };
    settings.iter().map(move |s| declared::Change::new(None, subject.clone(), s.name(), &s.word))
}

#[cfg(test)]
mod tests;
