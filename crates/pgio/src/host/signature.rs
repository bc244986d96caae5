//! What a path is, who uses it and what it holds: looked at before anything is written there.
//!
//! One script looks (signature/look.sh, which changes nothing) and [`parse`] makes sense of it. What
//! may be done about a device that holds something is decided by [`BlockDevice::refusal`], so that
//! whoever would overwrite one says the same: a device in use or with metadata of DRBD never, one
//! with any other signature only if its UUID is named too.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::exec::{CommandLine, Exec, ExecError};
use super::proc::mountinfo;

const LOOK: &str = include_str!("signature/look.sh");

const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Directory {
        path: PathBuf,
        /// Bytes that this user may still write there.
        free: Option<u64>,
        /// Of the device below, as in [`BlockDevice::sector`].
        sector: Option<u64>,
    },
    File {
        /// As if it were a device: it may be the image of one.
        image: BlockDevice,
        /// Of the bytes; what lies in holes is less, and what is compressed.
        allocated: u64,
    },
    Block(BlockDevice),
    /// A pipe, a terminal and the like.
    Other {
        path: PathBuf,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockDevice {
    /// Without symbolic links.
    pub path: PathBuf,
    /// The kernel's name, as in /proc/diskstats.
    pub name: String,
    /// `MAJOR:MINOR`
    pub number: String,
    pub bytes: u64,
    /// The smallest unit of direct I/O, in bytes.
    pub sector: Option<u64>,
    pub read_only: bool,
    /// Of a loop device.
    pub backing: Option<PathBuf>,
    /// Such as `mounted on /mnt`, `swap`, `below dm-0`, `has the partition sdb1`.
    pub uses: Vec<String>,
    pub signatures: Vec<Signature>,
    /// Why its signatures are not known.
    pub unreadable: Option<String>,
}

/// A file system, partition table, volume, member of an array …
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signature {
    /// As libblkid calls it: `ext4`, `gpt`, `LVM2_member`, `drbd`.
    pub kind: String,
    /// `filesystem`, `partition-table`, `raid`, `crypto`, `other`.
    pub usage: String,
    pub uuid: Option<String>,
    pub label: Option<String>,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        match (&self.label, &self.uuid) {
            (Some(label), Some(uuid)) => write!(f, " `{label}` (UUID {uuid})"),
            (None, Some(uuid)) => write!(f, " (UUID {uuid})"),
            (Some(label), None) => write!(f, " `{label}` (without a UUID)"),
            (None, None) => f.write_str(" (without a UUID)"),
        }
    }
}

/// Why nothing may be written to a device. What to do about [`Refusal::Holds`] depends on who asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{device} is read-only")]
    ReadOnly { device: String },
    #[error(
        "{device} is in use ({uses}): nothing is written to it; unmount or release it, or name another"
    )]
    InUse { device: String, uses: String },
    #[error("what is on {device} cannot be read: {why}{}", who_may(why))]
    Unreadable { device: String, why: String },
    #[error(
        "{device} carries metadata of DRBD: what is written past DRBD makes its peer differ unseen; name the DRBD device instead, or a volume without DRBD"
    )]
    Drbd { device: String },
    #[error(
        "whether {device} is a disk of DRBD's cannot be found out on host {host}: {why}; mend that, or log in there as a user who may read DRBD's configuration"
    )]
    DrbdUnknown { device: String, host: String, why: String },
    #[error("{device} holds {held}, which would be lost")]
    Holds { device: String, held: String },
}

/// What would be enough where rights are what is missing.
fn who_may(why: &str) -> &'static str {
    match why.contains("Permission denied") {
        true => "; be root, or of the group that may read and write it (mostly `disk`)",
        false => "",
    }
}

/// Looks, here or on another host.
pub fn look(exec: &dyn Exec, path: &str) -> Result<Found, ExecError> {
    let script = CommandLine::new("sh").args(["-c", LOOK, "sh", path]).timeout(LIMIT);
    Ok(parse(&exec.run(&script)?))
}

impl BlockDevice {
    /// Why it must not be written to. `confirmed` are UUIDs that the user named beside the device;
    /// all that it holds must be among them.
    pub fn refusal(&self, confirmed: &[&str]) -> Option<Refusal> {
        let device = self.path.display().to_string();
        let is_drbd = |s: &Signature| s.kind.starts_with("drbd");
        if self.read_only {
            return Some(Refusal::ReadOnly { device });
        }
        // Before its being in use: a device that DRBD has open is both, and this says more.
        if self.signatures.iter().any(is_drbd) {
            return Some(Refusal::Drbd { device });
        }
        if !self.uses.is_empty() {
            return Some(Refusal::InUse { device, uses: self.uses.join(", ") });
        }
        if let Some(why) = self.unreadable.clone() {
            return Some(Refusal::Unreadable { device, why });
        }
        let known = |s: &Signature| s.uuid.as_deref().is_some_and(|uuid| confirmed.contains(&uuid));
        let held: Vec<&Signature> = self.signatures.iter().filter(|s| !known(s)).collect();
        (!held.is_empty()).then(|| Refusal::Holds {
            device,
            held: held.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
        })
    }
}

/// What look.sh printed.
fn parse(text: &str) -> Found {
    let mut device = BlockDevice::default();
    let (mut is, mut mounts, mut busy, mut free) = ("nothing", String::new(), None, None);
    let mut allocated = 0;
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || rest.parse().unwrap_or(0);
        match kind {
            "is" => is = rest,
            "path" => device.path = rest.into(),
            "bytes" => device.bytes = number(),
            "number" => device.number = rest.to_owned(),
            "name" => device.name = rest.to_owned(),
            // The kernel's unit here, whatever the device's own sector is.
            "sectors" => device.bytes = number() * 512,
            "read-only" => device.read_only = rest != "0",
            "sector" => device.sector = rest.parse().ok(),
            "free" => free = rest.parse().ok(),
            "allocated" => allocated = number(),
            "backing" => device.backing = Some(rest.into()),
            "holder" => device.uses.push(format!("below {rest}")),
            "partition" => device.uses.push(format!("has the partition {rest}")),
            "mount" => mounts.extend([rest, "\n"]),
            "swap" => device.uses.push("swap".to_owned()),
            "busy" => busy = Some(rest.to_owned()),
            "signature" => {
                // The same thing may have left its mark in several places.
                let new = signature(rest).filter(|s| !device.signatures.contains(s));
                device.signatures.extend(new);
            }
            "unreadable" => device.unreadable = Some(rest.to_owned()),
            _ => {}
        }
    }
    let path = std::mem::take(&mut device.path);
    match is {
        "directory" => Found::Directory { path, free, sector: device.sector },
        "file" => Found::File { image: BlockDevice { path, ..device }, allocated },
        "other" => Found::Other { path },
        "block" => {
            let on = mountinfo::parse(&mounts).into_iter().filter(|m| m.device == device.number);
            device.uses.extend(on.map(|m| format!("mounted on {}", m.mount_point)));
            // Where the reason is known the kernel's word for it says nothing more.
            if let (Some(said), true) = (busy, device.uses.is_empty()) {
                match said.contains("busy") {
                    true => device.uses.push("the kernel or a program has it open".to_owned()),
                    false => device.unreadable = Some(said),
                }
            }
            Found::Block(BlockDevice { path, ..device })
        }
        _ => Found::Nothing,
    }
}

/// `ext4,filesystem,UUID,LABEL`
fn signature(line: &str) -> Option<Signature> {
    let mut fields = line.split(',').map(str::trim);
    let kind = fields.next().filter(|kind| !kind.is_empty())?.to_owned();
    let usage = fields.next().unwrap_or_default().to_owned();
    let mut next = || fields.next().filter(|text| !text.is_empty()).map(str::to_owned);
    Some(Signature { kind, usage, uuid: next(), label: next() })
}

#[cfg(test)]
mod tests;
