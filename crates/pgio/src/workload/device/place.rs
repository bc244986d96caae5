//! Where a device is measured: a block device, a file, or a scratch file in a directory.
//!
//! Nothing of the user's is written over that he did not name as lost: a file with something in it
//! and a block device take only reads unless `destroy` is said, and a device in use, with metadata
//! of DRBD, configured for it, or with a signature whose UUID was not named takes no writes at all.

use std::path::PathBuf;

use super::{DeviceError, SMALLEST_REGION};
use crate::host::drbd_disks;
use crate::host::exec::{Exec, ExecError};
use crate::host::signature::{self, BlockDevice, PathKind, Refusal};
use crate::units::human;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// As it was named.
    pub name: String,
    /// Without symbolic links; of a scratch file its directory.
    pub path: PathBuf,
    pub kind: Kind,
    /// What there is to work on; of a scratch file what it may grow to.
    pub bytes: Option<u64>,
    /// How much of a file is on the disk at all.
    pub allocated: Option<u64>,
    /// The smallest unit of direct I/O, where it is known.
    pub sector: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Device(BlockDevice),
    /// One that is there already, as if it were a device.
    File(BlockDevice),
    /// One of our own, which has no name and is gone at the end.
    Scratch,
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Device(_) => "block device",
            Kind::File(_) => "file",
            Kind::Scratch => "scratch file",
        }
    }
}

/// What the user says about losing data.
#[derive(Debug, Clone, Copy, Default)]
pub struct Consent<'a> {
    pub destroy: bool,
    /// The UUIDs of file systems that may be lost.
    pub uuids: &'a [&'a str],
    /// How to name one, after the refusal.
    pub hint: &'static str,
}

impl Place {
    pub fn find(exec: &dyn Exec, name: &str) -> Result<Place, DeviceError> {
        let wrong = |why: &str| DeviceError::Place(format!("{name} {why}"));
        if name.contains('\n') {
            return Err(wrong("has a line break in its name, which pgio cannot pass on"));
        }
        let of = |device: BlockDevice, kind: fn(BlockDevice) -> Kind| {
            let (path, bytes, sector) = (device.path.clone(), device.bytes, device.sector);
            (path, kind(device), Some(bytes), sector)
        };
        let mut allocated = None;
        let (path, kind, bytes, sector) = match signature::look(exec, name)? {
            PathKind::Nothing => {
                return Err(wrong(
                    "is not there: name a block device, a file, or a directory for a scratch file",
                ));
            }
            PathKind::Other { .. } => {
                return Err(wrong("is neither a block device nor a file nor a directory"));
            }
            PathKind::Directory { path, free, sector } => (path, Kind::Scratch, free, sector),
            PathKind::File { image, allocated: on_disk } => {
                allocated = Some(on_disk);
                of(image, Kind::File)
            }
            PathKind::Block(device) => of(device, Kind::Device),
        };
        let place = Place { name: name.to_owned(), path, kind, bytes, allocated, sector };
        match place.bytes {
            Some(bytes) if bytes < SMALLEST_REGION => {
                let (has, least) = (human::bytes(bytes), human::bytes(SMALLEST_REGION));
                let what = if place.kind == Kind::Scratch { "has room for" } else { "has" };
                Err(wrong(&format!("{what} {has} only, and {least} is the least to measure on")))
            }
            _ => Ok(place),
        }
    }

    /// Whether the write tests may run; an error where that was asked for and must not be. `host` is
    /// the name of the one that `exec` runs on.
    pub fn may_write(
        &self,
        exec: &dyn Exec,
        host: &str,
        consent: Consent<'_>,
    ) -> Result<bool, DeviceError> {
        match &self.kind {
            Kind::Scratch => Ok(true),
            Kind::File(_) if !consent.destroy => self.refuse_holes().map(|()| false),
            Kind::Device(_) if !consent.destroy => Ok(false),
            Kind::Device(device) | Kind::File(device) => {
                let of_drbd = self.refusal_by_drbd(exec, host)?;
                match of_drbd.or_else(|| device.refusal(consent.uuids)) {
                    None => Ok(true),
                    Some(refusal) => {
                        let holds = matches!(refusal, Refusal::Holds { .. });
                        let hint = if holds { consent.hint } else { "" };
                        Err(DeviceError::Refused { refusal, hint })
                    }
                }
            }
        }
    }

    /// DRBD takes block devices alone: whoever writes to a file needs to know nothing of it.
    fn refusal_by_drbd(&self, exec: &dyn Exec, host: &str) -> Result<Option<Refusal>, ExecError> {
        match &self.kind {
            Kind::Device(device) => drbd_disks::refusal(exec, host, device),
            Kind::File(_) | Kind::Scratch => Ok(None),
        }
    }

    /// What is not on the disk is read from nowhere, at the speed of memory.
    fn refuse_holes(&self) -> Result<(), DeviceError> {
        let (Some(bytes), Some(allocated)) = (self.bytes, self.allocated) else { return Ok(()) };
        if allocated >= bytes / 10 * 9 {
            return Ok(());
        }
        Err(DeviceError::Place(format!(
            "{} is sparse or compressed: {} of its {} are on the disk, and the rest would be read from nowhere; name a file that is written, or say that this one may be written over",
            self.name,
            human::bytes(allocated),
            human::bytes(bytes)
        )))
    }

    /// A scratch file's size, or as much of the place as there is; an error where that has no room.
    pub fn region(&self, asked: u64) -> Result<u64, DeviceError> {
        match (&self.kind, self.bytes) {
            (Kind::Scratch, Some(free)) if free < asked => Err(DeviceError::Place(format!(
                "{} has {} free, and the scratch file takes {}: choose a smaller size",
                self.name,
                human::bytes(free),
                human::bytes(asked)
            ))),
            (Kind::Scratch, _) | (_, None) => Ok(asked),
            (_, Some(bytes)) => Ok(asked.min(bytes) >> 20 << 20),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;
    use crate::host::exec::{CommandLine, Local, Output};
    use crate::host::signature::Signature;

    /// A host whose DRBD is configured for these disks, one a line.
    struct Drbd(&'static str);

    impl Exec for Drbd {
        fn output(&self, _: &CommandLine) -> Result<Output, ExecError> {
            let stdout = self.0.to_owned();
            Ok(Output { status: ExitStatus::from_raw(0), stdout, stderr: String::new() })
        }
    }

    fn may_write(place: &Place, consent: Consent<'_>) -> Result<bool, DeviceError> {
        place.may_write(&Drbd(""), "db", consent)
    }

    fn device(uuid: &str) -> Place {
        let ext4 = Signature {
            kind: "ext4".to_owned(),
            uuid: Some(uuid.to_owned()),
            ..Signature::default()
        };
        let device = BlockDevice {
            path: "/dev/sdx".into(),
            signatures: vec![ext4],
            ..BlockDevice::default()
        };
        Place {
            name: "/dev/sdx".to_owned(),
            path: "/dev/sdx".into(),
            kind: Kind::Device(device),
            bytes: Some((300 << 20) + 5),
            allocated: None,
            sector: Some(512),
        }
    }

    #[test]
    fn nothing_is_lost_that_was_not_named() {
        let hint = "; say --uuid";
        let found = device("11aa");
        assert!(!may_write(&found, Consent::default()).unwrap());
        let destroy = Consent { destroy: true, hint, ..Consent::default() };
        let refused = may_write(&found, destroy).unwrap_err().to_string();
        assert_eq!(refused, "/dev/sdx contains ext4 (UUID 11aa), which would be lost; say --uuid");
        assert!(may_write(&found, Consent { uuids: &["11aa"], ..destroy }).unwrap());
        let image = |uses: &[&str]| BlockDevice {
            uses: uses.iter().map(|s| (*s).to_owned()).collect(),
            ..BlockDevice::default()
        };
        let in_use = Place { kind: Kind::File(image(&["used by loop0"])), ..found.clone() };
        let refused = may_write(&in_use, destroy).unwrap_err().to_string();
        assert!(refused.contains("is in use (used by loop0)"), "{refused}");
        let file = Place { kind: Kind::File(image(&[])), allocated: Some(300 << 20), ..found };
        assert!(!may_write(&file, Consent::default()).unwrap());
        assert!(may_write(&file, destroy).unwrap());
        let sparse = Place { allocated: Some(1 << 20), ..file };
        let refused = may_write(&sparse, Consent::default()).unwrap_err().to_string();
        assert!(refused.contains("sparse or compressed: 1 MiB of its 300 MiB are"), "{refused}");
        assert!(may_write(&sparse, destroy).unwrap());
    }

    #[test]
    fn a_disk_of_drbds_is_only_read_whatever_is_said() {
        let found = device("11aa");
        let drbd = Drbd("/dev/sdb\n/dev/sdx\n");
        assert!(!found.may_write(&drbd, "db", Consent::default()).unwrap());
        let all = Consent { destroy: true, uuids: &["11aa"], hint: "; say --uuid" };
        let refused = found.may_write(&drbd, "db", all).unwrap_err().to_string();
        assert!(refused.starts_with("/dev/sdx contains DRBD metadata"), "{refused}");
        assert!(!refused.contains("--uuid"), "{refused}");
        let file = Place { kind: Kind::File(BlockDevice::default()), ..found };
        assert!(file.may_write(&drbd, "db", all).unwrap());
    }

    #[test]
    fn the_region_fits_and_is_of_whole_mebibytes() {
        let found = device("11aa");
        assert_eq!(found.region(512 << 20).unwrap(), 300 << 20);
        assert_eq!(found.region(64 << 20).unwrap(), 64 << 20);
        let scratch = Place { kind: Kind::Scratch, ..found };
        let refused = scratch.region(512 << 20).unwrap_err().to_string();
        assert!(refused.starts_with("/dev/sdx has 300 MiB free, and the"), "{refused}");
    }

    #[test]
    fn what_is_no_place_is_said() {
        let find = |name: &str| Place::find(&Local, name).unwrap_err().to_string();
        assert!(find("/dev/no-such-device").contains("is not there: name a block device"));
        assert!(find("/dev/null").contains("is neither"));
        let dir = tempfile::tempdir().unwrap();
        let small = dir.path().join("small");
        std::fs::write(&small, "x").unwrap();
        let refused = find(small.to_str().unwrap());
        assert!(
            refused.ends_with("has 1 B only, and 4 MiB is the least to measure on"),
            "{refused}"
        );
        let place = Place::find(&Local, dir.path().to_str().unwrap()).unwrap();
        assert_eq!(place.kind, Kind::Scratch);
    }
}
