//! What a server's directories lie on, as it is stored, with a warning where that is unknown.
//!
//! Found out once per experiment by `host::storage`; rates of the devices named here are in
//! [`super::host`].

use crate::host::Host;
use crate::host::exec::ExecError;
use crate::host::storage::{self, Location};
use crate::results::telemetry::{Device, Storage};
use crate::warning::Warning;

/// A directory and what it is for: `data`, `wal`, `tablespace NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub role: String,
    pub directory: String,
}

pub fn locate(host: &Host, places: &[Place]) -> Result<(Vec<Storage>, Vec<Warning>), ExecError> {
    let directories: Vec<&str> = places.iter().map(|place| place.directory.as_str()).collect();
    let located = storage::locate(host, &directories)?;
    let mut found = Vec::new();
    let mut warnings = Vec::new();
    for (place, location) in places.iter().zip(located) {
        match location {
            None => warnings.push(unreadable(host.name(), place)),
            Some(location) => {
                warnings.extend(without_device(place, &location));
                found.push(stored(host.name(), place, location));
            }
        }
    }
    Ok((found, warnings))
}

fn stored(host: &str, place: &Place, location: Location) -> Storage {
    let device =
        |d: storage::Device| Device { name: d.name, kind: d.kind.to_owned(), queue: d.queue };
    Storage {
        role: place.role.clone(),
        host: host.to_owned(),
        directory: location.directory.to_string_lossy().into_owned(),
        mount_point: location.mount.mount_point,
        file_system: location.mount.file_system,
        mount_options: location.mount.options,
        devices: location.devices.into_iter().map(device).collect(),
    }
}

fn unreadable(host: &str, place: &Place) -> Warning {
    Warning::new(
        format!("the device of {} is unknown", place.role),
        format!("directory {} cannot be read on host {host}", place.directory),
        "check [target] host, and connect to it as the server's own user or as root",
    )
}

fn without_device(place: &Place, location: &Location) -> Option<Warning> {
    let Location { directory, mount, devices } = location;
    devices.is_empty().then(|| {
        Warning::new(
            format!("{} lies on no device that the kernel names", place.role),
            format!(
                "{} is on {}, mounted on {}",
                directory.display(),
                mount.file_system,
                mount.mount_point
            ),
            "compare by the server's own counters; device rates are not known here",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_a_warning_and_the_rest_is_found() {
        let place = |role: &str, directory: &str| Place {
            role: role.to_owned(),
            directory: directory.to_owned(),
        };
        let places = [place("data", "/nonexistent/x"), place("wal", "/proc/sys")];
        let (found, warnings) = locate(&Host::local(), &places).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].role.as_str(), found[0].file_system.as_str()), ("wal", "proc"));
        let [unknown, deviceless] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert_eq!(
            unknown.to_string(),
            "the device of data is unknown: directory /nonexistent/x cannot be read on host local; \
             check [target] host, and connect to it as the server's own user or as root"
        );
        assert!(deviceless.why.starts_with("/proc/sys is on proc"), "{deviceless}");
    }
}
