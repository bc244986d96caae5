//! Inspects a path before pgio writes to it: its type, its users, and the signatures on it.
//!
//! A read-only script (signature/look.sh) collects the facts, and [`parse`] interprets them.
//! [`BlockDevice::refusal`] decides whether a device may be overwritten, so that all callers use the
//! same rules: never if it is in use or claimed; with any other signature only if the user
//! names its UUID.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::exec::{CommandLine, Exec, ExecError};
use super::storage;
use crate::feature;

const SCRIPT: &str = include_str!("signature/look.sh");

const TIMEOUT: Duration = Duration::from_secs(30);

/// The type of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathKind {
    Nothing,
    Directory {
        path: PathBuf,
        /// Free bytes for this user.
        free: Option<u64>,
        /// Sector size of the underlying device, as in [`BlockDevice::sector`].
        sector: Option<u64>,
        /// Type of its file system as `stat` names it: `tmpfs`, `ext2/ext3`.
        file_system: String,
    },
    File {
        /// Described like a device, because the file may be a disk image.
        image: BlockDevice,
        /// Allocated bytes; fewer than the size if the file is sparse or compressed.
        allocated: u64,
        /// Type of the file system that it lies on, as for a directory.
        file_system: String,
    },
    Block(BlockDevice),
    /// A pipe, a terminal or similar.
    Other {
        path: PathBuf,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockDevice {
    /// Path without symbolic links.
    pub path: PathBuf,
    /// Kernel name, as in /proc/diskstats.
    pub name: String,
    /// `MAJOR:MINOR`
    pub number: String,
    pub bytes: u64,
    /// The smallest unit of direct I/O, in bytes.
    pub sector: Option<u64>,
    pub read_only: bool,
    /// Backing file of a loop device.
    pub backing: Option<PathBuf>,
    /// Uses such as `mounted on /mnt`, `swap`, `used by dm-0`, `has partition sdb1`.
    pub uses: Vec<String>,
    pub signatures: Vec<Signature>,
    /// Reason why the signatures could not be read.
    pub unreadable: Option<String>,
}

/// A signature on a device: file system, partition table, volume, array member and so on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signature {
    /// Type name of libblkid: `ext4`, `gpt`, `LVM2_member`, `drbd`.
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
            (Some(label), None) => write!(f, " `{label}` (no UUID)"),
            (None, None) => f.write_str(" (no UUID)"),
        }
    }
}

/// The reason why a device must not be written. The hint for [`Refusal::Holds`] depends on the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{device} is read-only; use another device")]
    ReadOnly { device: String },
    #[error("{device} is in use ({uses}); unmount or release it, or use another device")]
    InUse { device: String, uses: String },
    #[error("cannot read the contents of {device}: {why}{}", permission_hint(why))]
    Unreadable { device: String, why: String },
    #[error("{device} {why}")]
    Claimed { device: String, why: &'static str },
    /// It is unknown whether the device is claimed.
    #[error("{0}")]
    Unknown(String),
    #[error("{device} contains {held}, which would be lost")]
    Holds { device: String, held: String },
}

/// A use of disks that bars all other writing, whatever the user confirms, and that a host need not show: a device that is
/// down looks unused.
#[derive(Debug)]
pub struct Claim {
    /// Why no other may write to its disks; follows the name of one.
    pub why: &'static str,
    /// Whether it leaves this signature on its disks.
    pub signs: fn(&Signature) -> bool,
    /// Refuses a disk for which it is configured on the host, or if that is unknown. The name is for messages.
    pub refusal: Refuses,
}

pub type Refuses = fn(&dyn Exec, &str, &BlockDevice) -> Result<Option<Refusal>, ExecError>;

/// Returns why a device must not be written although nothing may be seen of it. Callers must ask this, and then
/// [`BlockDevice::refusal`], before they overwrite a disk. `host` is used in messages.
pub fn claimed(
    exec: &dyn Exec,
    host: &str,
    device: &BlockDevice,
) -> Result<Option<Refusal>, ExecError> {
    let refusals = feature::claims().map(|claim| (claim.refusal)(exec, host, device));
    refusals.filter_map(Result::transpose).next().transpose()
}

/// Returns a hint if a permission is missing.
fn permission_hint(why: &str) -> &'static str {
    if why.contains("Permission denied") {
        "; run as root, or as a member of the group that may read and write it (usually `disk`)"
    } else {
        ""
    }
}

/// Inspects a path on any host.
pub fn inspect(exec: &dyn Exec, path: &str) -> Result<PathKind, ExecError> {
    let script = CommandLine::new("sh").args(["-c", SCRIPT, "sh", path]).timeout(TIMEOUT);
    Ok(parse(&exec.run(&script)?))
}

impl BlockDevice {
    /// Returns why the device must not be written. `confirmed` contains the UUIDs that the user named; all
    /// signatures must be among them.
    pub fn refusal(&self, confirmed: &[&str]) -> Option<Refusal> {
        let device = self.path.display().to_string();
        if self.read_only {
            return Some(Refusal::ReadOnly { device });
        }
        // Check this before `uses`: a claimed device may be in use as well, but this is more specific.
        let signed = |claim: &&Claim| self.signatures.iter().any(claim.signs);
        if let Some(Claim { why, .. }) = feature::claims().find(signed) {
            return Some(Refusal::Claimed { device, why });
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

/// Parses the output of look.sh.
fn parse(text: &str) -> PathKind {
    let mut device = BlockDevice::default();
    let (mut is, mut mounts, mut busy, mut free) = ("nothing", String::new(), None, None);
    let (mut allocated, mut file_system) = (0, String::new());
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || rest.parse().unwrap_or(0);
        match kind {
            "is" => is = rest,
            "path" => device.path = rest.into(),
            "bytes" => device.bytes = number(),
            "number" => device.number = rest.to_owned(),
            "name" => device.name = rest.to_owned(),
            // The kernel's unit is 512 bytes for any sector size of the device.
            "sectors" => device.bytes = number() * 512,
            "read-only" => device.read_only = rest != "0",
            "sector" => device.sector = rest.parse().ok(),
            "free" => free = rest.parse().ok(),
            "allocated" => allocated = number(),
            "filesystem" => file_system = rest.to_owned(),
            "backing" => device.backing = Some(rest.into()),
            "holder" => device.uses.push(format!("used by {rest}")),
            "partition" => device.uses.push(format!("has partition {rest}")),
            "mount" => mounts.extend([rest, "\n"]),
            "swap" => device.uses.push("swap".to_owned()),
            "busy" => busy = Some(rest.to_owned()),
            "signature" => {
                // The same signature may exist at several offsets.
                let new = signature(rest).filter(|s| !device.signatures.contains(s));
                device.signatures.extend(new);
            }
            "unreadable" => device.unreadable = Some(rest.to_owned()),
            _ => {}
        }
    }
    let path = std::mem::take(&mut device.path);
    match is {
        "directory" => PathKind::Directory { path, free, sector: device.sector, file_system },
        "file" => PathKind::File { image: BlockDevice { path, ..device }, allocated, file_system },
        "other" => PathKind::Other { path },
        "block" => {
            let on =
                storage::parse_mounts(&mounts).into_iter().filter(|m| m.device == device.number);
            device.uses.extend(on.map(|m| format!("mounted on {}", m.mount_point)));
            // If another use is known, the kernel's message adds nothing.
            if let (Some(message), true) = (busy, device.uses.is_empty()) {
                if message.contains("busy") {
                    device.uses.push("opened by the kernel or a program".to_owned());
                } else {
                    device.unreadable = Some(message);
                }
            }
            PathKind::Block(BlockDevice { path, ..device })
        }
        _ => PathKind::Nothing,
    }
}

/// Parses `ext4,filesystem,UUID,LABEL`.
fn signature(line: &str) -> Option<Signature> {
    let mut fields = line.split(',').map(str::trim);
    let kind = fields.next().filter(|kind| !kind.is_empty())?.to_owned();
    let usage = fields.next().unwrap_or_default().to_owned();
    let mut next = || fields.next().filter(|text| !text.is_empty()).map(str::to_owned);
    Some(Signature { kind, usage, uuid: next(), label: next() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::exec::Local;

    const HELD: &str = "\
    path /dev/loop3
is block
number 7:3
name loop3
sectors 131072
read-only 0
sector 512
backing /var/tmp/a b.image
mount 40 31 7:3 / /mnt/a\\040b rw,relatime - ext4 /dev/loop3 rw
mount 41 31 7:4 / /mnt/other rw,relatime - ext4 /dev/loop4 rw
busy wipefs: error: /dev/loop3: probing initialization failed: Device or resource busy
signature ext4,filesystem,11aa,data
";

    fn device(text: &str) -> BlockDevice {
        match parse(text) {
            PathKind::Block(device) => device,
            other => panic!("no device: {other:?}"),
        }
    }

    /// An unused device with these additional lines.
    fn idle(lines: &str) -> BlockDevice {
        let head: Vec<&str> = HELD.lines().take(7).collect();
        device(&format!("{}\n{lines}", head.join("\n")))
    }

    fn refused(device: &BlockDevice, confirmed: &[&str]) -> String {
        device.refusal(confirmed).map_or_else(String::new, |r| r.to_string())
    }

    #[test]
    fn uses_and_signatures_of_a_device() {
        let found = device(HELD);
        assert_eq!((found.bytes, found.sector), (64 << 20, Some(512)));
        assert_eq!(found.backing, Some("/var/tmp/a b.image".into()));
        assert_eq!(found.uses, ["mounted on /mnt/a b"]);
        assert_eq!(found.signatures[0].to_string(), "ext4 `data` (UUID 11aa)");
        assert_eq!(
            refused(&found, &["11aa"]),
            "/dev/loop3 is in use (mounted on /mnt/a b); unmount or release it, or use another device"
        );
    }

    #[test]
    fn empty_devices_may_be_written() {
        assert_eq!(idle("").refusal(&[]), None);
    }

    #[test]
    fn signatures_must_be_confirmed_by_uuid() {
        let both = idle(
            "signature ext4,filesystem,11aa,\nsignature ext4,filesystem,11aa,\nsignature dos,partition-table,,\n",
        );
        assert_eq!(
            refused(&both, &["11aa"]),
            "/dev/loop3 contains dos (no UUID), which would be lost"
        );
        let one = idle("signature xfs,filesystem,22bb,\n");
        assert_eq!(refused(&one, &[]), "/dev/loop3 contains xfs (UUID 22bb), which would be lost");
        assert_eq!(refused(&one, &["33cc"]), refused(&one, &[]));
        assert_eq!(one.refusal(&["33cc", "22bb"]), None);
    }

    #[test]
    fn unreadable_devices_are_refused() {
        let message = "wipefs: error: /dev/loop3: probing initialization failed: Permission denied";
        for kind in ["busy", "unreadable"] {
            let found = idle(&format!("{kind} {message}\n"));
            let expected = format!(
                "cannot read the contents of /dev/loop3: {message}; run as root, or as a member"
            );
            assert!(refused(&found, &[]).starts_with(&expected));
        }
        assert_eq!(
            refused(&idle("read-only 1\n"), &[]),
            "/dev/loop3 is read-only; use another device"
        );
        assert!(refused(&idle("holder dm-0\nswap\n"), &[]).contains("(used by dm-0, swap)"));
    }

    #[test]
    fn types_of_paths_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a 'file'");
        std::fs::write(&path, "12345").unwrap();
        let inspect = |path: &std::path::Path| inspect(&Local, path.to_str().unwrap()).unwrap();
        let real = path.canonicalize().unwrap();
        let PathKind::File { image, .. } = inspect(&path) else { panic!("{:?}", inspect(&path)) };
        assert_eq!((image.path.as_path(), image.bytes), (real.as_path(), 5));
        assert_eq!(image.refusal(&[]), None);
        assert!(matches!(inspect(dir.path()), PathKind::Directory { free: Some(1..), .. }));
        let PathKind::Directory { file_system, .. } = inspect("/proc".as_ref()) else {
            panic!("/proc is no directory");
        };
        assert_eq!(file_system, "proc");
        assert_eq!(inspect(&dir.path().join("none")), PathKind::Nothing);
        assert!(matches!(inspect("/dev/null".as_ref()), PathKind::Other { .. }));
    }
}
