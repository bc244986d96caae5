//! File systems and devices below a server's directories, in their stored form, with a warning for
//! those that are unknown. A directory of unknown place has no devices; without it, the rest would look like all.
//!
//! `host::storage` finds them once per experiment; [`super::host`] samples the rates of these devices.

use crate::host::Host;
use crate::host::exec::ExecError;
use crate::host::storage::{self, Location};
use pgio_results::Warning;
use pgio_results::telemetry::{Device, Storage};

/// A directory of the server and its role: `data`, `wal`, `tablespace NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerDirectory {
    pub role: String,
    pub directory: String,
}

pub fn locate(
    host: &Host,
    directories: &[ServerDirectory],
) -> Result<(Vec<Storage>, Vec<Warning>), ExecError> {
    let paths: Vec<&str> = directories.iter().map(|d| d.directory.as_str()).collect();
    let located = storage::locate(host, &paths)?;
    let mut found = Vec::new();
    let mut warnings = Vec::new();
    for (directory, location) in directories.iter().zip(located) {
        match location {
            None => {
                warnings.push(unreadable(host.name(), directory));
                found.push(unlocated(host.name(), directory));
            }
            Some(location) => {
                warnings.extend(without_device(directory, &location));
                found.push(to_stored(host.name(), directory, location));
            }
        }
    }
    Ok((found, warnings))
}

fn to_stored(host: &str, directory: &ServerDirectory, location: Location) -> Storage {
    let device = |d: storage::Device| Device {
        name: d.name,
        kind: d.kind.to_owned(),
        queue: d.queue,
        member: d.member,
    };
    Storage {
        role: directory.role.clone(),
        host: host.to_owned(),
        directory: location.directory.to_string_lossy().into_owned(),
        mount_point: location.mount.mount_point,
        file_system: location.mount.file_system,
        mount_options: location.mount.options,
        devices: location.devices.into_iter().map(device).collect(),
    }
}

fn unlocated(host: &str, directory: &ServerDirectory) -> Storage {
    Storage {
        role: directory.role.clone(),
        host: host.to_owned(),
        directory: directory.directory.clone(),
        ..Storage::default()
    }
}

fn unreadable(host: &str, directory: &ServerDirectory) -> Warning {
    Warning::new(
        format!("the device of {} is unknown", directory.role),
        format!("directory {} cannot be read on host {host}", directory.directory),
        "check [target] host, and connect to it as the server's OS user or as root",
    )
}

fn without_device(area: &ServerDirectory, location: &Location) -> Option<Warning> {
    let Location { directory, mount, devices } = location;
    devices.is_empty().then(|| {
        Warning::new(
            format!("{} is not on a block device known to the kernel", area.role),
            format!(
                "{} is on {}, mounted on {}",
                directory.display(),
                mount.file_system,
                mount.mount_point
            ),
            "compare the server's own counters; device rates are not available",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_unlocated_with_a_warning_and_the_rest_is_located() {
        let directory = |role: &str, directory: &str| ServerDirectory {
            role: role.to_owned(),
            directory: directory.to_owned(),
        };
        let directories = [directory("data", "/nonexistent/x"), directory("wal", "/proc/sys")];
        let (found, warnings) = locate(&Host::local(), &directories).unwrap();
        let [data, wal] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((wal.role.as_str(), wal.file_system.as_str()), ("wal", "proc"));
        assert!(wal.is_located() && !data.is_located(), "{data:?}");
        assert_eq!((data.role.as_str(), data.directory.as_str()), ("data", "/nonexistent/x"));
        assert!(data.devices.is_empty());
        let [unknown, deviceless] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert_eq!(
            unknown.to_string(),
            "the device of data is unknown: directory /nonexistent/x cannot be read on host local; \
             check [target] host, and connect to it as the server's OS user or as root"
        );
        assert!(deviceless.why.starts_with("/proc/sys is on proc"), "{deviceless}");
    }
}
