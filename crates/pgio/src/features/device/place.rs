//! The place of a device measurement: a block device, a file, or a scratch file in a directory.
//!
//! User data are overwritten only if the user named them as expendable: a file with content and a block
//! device are only read unless `destroy` is given. A device is never written if it is in use, is claimed,
//! or has a signature whose UUID was not given.

use std::path::PathBuf;

use super::{DeviceError, SMALLEST_REGION};
use crate::host::exec::{Exec, ExecError};
use crate::host::signature::{self, BlockDevice, PathKind, Refusal};
use pgio_results::units::human;

/// File systems without a disk. Since Linux 6.6, tmpfs accepts direct I/O.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The name as given.
    pub name: String,
    /// The path without symbolic links; for a scratch file, its directory.
    pub path: PathBuf,
    pub kind: Kind,
    /// The usable size; for a scratch file, the size to which it may grow.
    pub bytes: Option<u64>,
    /// The allocated size of a file.
    pub allocated: Option<u64>,
    /// The smallest unit of direct I/O, if known.
    pub sector: Option<u64>,
    /// Type of the file system of a file or directory, as `stat` names it.
    pub file_system: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Device(BlockDevice),
    /// An existing file, used like a device.
    File(BlockDevice),
    /// pgio's own file, which has no name and disappears at the end.
    Scratch,
}

impl Kind {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Kind::Device(_) => "block device",
            Kind::File(_) => "file",
            Kind::Scratch => "scratch file",
        }
    }
}

/// The user's consent to data loss.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Consent<'a> {
    pub destroy: bool,
    /// UUIDs of file systems that may be destroyed.
    pub uuids: &'a [&'a str],
    /// The hint after a refusal: how to give a UUID.
    pub hint: &'static str,
}

impl Place {
    pub(super) fn find(exec: &dyn Exec, name: &str) -> Result<Place, DeviceError> {
        let wrong = |why: &str| DeviceError::Place(format!("{name} {why}"));
        if name.contains('\n') {
            return Err(wrong("has a line break in its name, which pgio does not support"));
        }
        let place_on = |device: BlockDevice, kind: fn(BlockDevice) -> Kind| {
            let (path, bytes, sector) = (device.path.clone(), device.bytes, device.sector);
            (path, kind(device), Some(bytes), sector)
        };
        let (mut allocated, mut file_system) = (None, None);
        let (path, kind, bytes, sector) = match signature::inspect(exec, name)? {
            PathKind::Nothing => {
                return Err(wrong(
                    "does not exist: name a block device, a file, or a directory for a scratch file",
                ));
            }
            PathKind::Other { .. } => {
                return Err(wrong("is not a block device, file or directory"));
            }
            PathKind::Directory { path, free, sector, file_system: lies_on } => {
                file_system = Some(lies_on);
                (path, Kind::Scratch, free, sector)
            }
            PathKind::File { image, allocated: on_disk, file_system: lies_on } => {
                (allocated, file_system) = (Some(on_disk), Some(lies_on));
                place_on(image, Kind::File)
            }
            PathKind::Block(device) => place_on(device, Kind::Device),
        };
        let name = name.to_owned();
        let place = Place { name, path, kind, bytes, allocated, sector, file_system };
        match place.bytes {
            Some(bytes) if bytes < SMALLEST_REGION => {
                let (has, least) = (human::bytes(bytes), human::bytes(SMALLEST_REGION));
                let what = if place.kind == Kind::Scratch { "has room for" } else { "has" };
                Err(wrong(&format!("{what} only {has}; a measurement needs at least {least}")))
            }
            _ => Ok(place),
        }
    }

    /// Returns whether the write tests may run; fails if the user requested them and they are not
    /// allowed, or if the place is not on a disk. `host` is the name of the host that `exec` runs on.
    pub(super) fn may_write(
        &self,
        exec: &dyn Exec,
        host: &str,
        consent: Consent<'_>,
    ) -> Result<bool, DeviceError> {
        let writes = match &self.kind {
            Kind::Scratch => true,
            Kind::Device(_) | Kind::File(_) if !consent.destroy => false,
            Kind::Device(device) | Kind::File(device) => {
                let claimed = self.claimed(exec, host)?;
                if let Some(refusal) = claimed.or_else(|| device.refusal(consent.uuids)) {
                    let holds = matches!(refusal, Refusal::Holds { .. });
                    let hint = if holds { consent.hint } else { "" };
                    return Err(DeviceError::Refused { refusal, hint });
                }
                true
            }
        };
        self.refuse_memory()?;
        if !writes {
            self.refuse_holes()?;
        }
        Ok(writes)
    }

    /// Returns the refusal of a device that is claimed; only block devices are.
    fn claimed(&self, exec: &dyn Exec, host: &str) -> Result<Option<Refusal>, ExecError> {
        match &self.kind {
            Kind::Device(device) => signature::claimed(exec, host, device),
            Kind::File(_) | Kind::Scratch => Ok(None),
        }
    }

    /// Refuses a file system in memory, which says nothing of a disk.
    fn refuse_memory(&self) -> Result<(), DeviceError> {
        match self.file_system.as_deref() {
            Some(kind) if IN_MEMORY.contains(&kind) => Err(DeviceError::Place(format!(
                "{} is in memory ({kind}): name a place on a disk",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a sparse file: reads of unallocated blocks run at memory speed.
    fn refuse_holes(&self) -> Result<(), DeviceError> {
        let (Some(bytes), Some(allocated)) = (self.bytes, self.allocated) else { return Ok(()) };
        if allocated >= bytes / 10 * 9 {
            return Ok(());
        }
        Err(DeviceError::Place(format!(
            "{} is sparse or compressed: {} of its {} are on the disk, and the rest would not be read from it; name a file that has been written completely, or allow pgio to overwrite this one",
            self.name,
            human::bytes(allocated),
            human::bytes(bytes)
        )))
    }

    /// Returns the size of the scratch file, or the usable part of the place; fails if there is too
    /// little space.
    pub(super) fn region(&self, requested: u64) -> Result<u64, DeviceError> {
        match (&self.kind, self.bytes) {
            (Kind::Scratch, Some(free)) if free < requested => Err(DeviceError::Place(format!(
                "{} has {} free, but the scratch file needs {}: choose a smaller size",
                self.name,
                human::bytes(free),
                human::bytes(requested)
            ))),
            (Kind::Scratch, _) | (_, None) => Ok(requested),
            (_, Some(bytes)) => Ok(requested.min(bytes) >> 20 << 20),
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

    /// A host whose DRBD is configured for these disks, one per line.
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
            file_system: None,
        }
    }

    #[test]
    fn existing_data_are_overwritten_only_with_consent() {
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
    fn a_drbd_disk_is_only_read_despite_consent() {
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
    fn a_place_in_memory_is_refused() {
        let on = |kind, file_system: &str| Place {
            kind,
            file_system: Some(file_system.to_owned()),
            ..device("11aa")
        };
        let refused = |place: &Place, consent| may_write(place, consent).unwrap_err().to_string();
        let scratch = refused(&on(Kind::Scratch, "tmpfs"), Consent::default());
        assert_eq!(scratch, "/dev/sdx is in memory (tmpfs): name a place on a disk");
        let file = on(Kind::File(BlockDevice::default()), "ramfs");
        for destroy in [false, true] {
            let text = refused(&file, Consent { destroy, ..Consent::default() });
            assert!(text.contains("in memory (ramfs)"), "{text}");
        }
        assert!(may_write(&on(Kind::Scratch, "ext2/ext3"), Consent::default()).unwrap());
    }

    #[test]
    fn the_region_fits_and_has_whole_mebibytes() {
        let found = device("11aa");
        assert_eq!(found.region(512 << 20).unwrap(), 300 << 20);
        assert_eq!(found.region(64 << 20).unwrap(), 64 << 20);
        let scratch = Place { kind: Kind::Scratch, ..found };
        let refused = scratch.region(512 << 20).unwrap_err().to_string();
        assert!(refused.starts_with("/dev/sdx has 300 MiB free, but the"), "{refused}");
    }

    #[test]
    fn invalid_places_are_refused() {
        let find = |name: &str| Place::find(&Local, name).unwrap_err().to_string();
        assert!(find("/dev/no-such-device").contains("does not exist: name a block device"));
        assert!(find("/dev/null").contains("is not a block device, file or directory"));
        let dir = tempfile::tempdir().unwrap();
        let small = dir.path().join("small");
        std::fs::write(&small, "x").unwrap();
        let refused = find(small.to_str().unwrap());
        assert!(refused.ends_with("has only 1 B; a measurement needs at least 4 MiB"), "{refused}");
        let place = Place::find(&Local, dir.path().to_str().unwrap()).unwrap();
        assert_eq!(place.kind, Kind::Scratch);
    }
}
