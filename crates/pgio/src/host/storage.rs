//! What a directory on a host lies on: mount, file system, and all devices below, down to disks.
//!
//! One script looks at everything at once (survey.sh, reads only); [`tree`] makes sense of it.
//! What cannot be found out is a warning, never a guess. Next: `telemetry` asks for the data
//! directory, the WAL and the tablespaces, and takes the devices' rates from `telemetry::host`.

mod tree;

use std::time::Duration;

use self::tree::Tree;
use super::exec::{CommandLine, Exec, ExecError};
use crate::results::telemetry::Storage;
use crate::warning::Warning;

const SURVEY: &str = include_str!("storage/survey.sh");

const LIMIT: Duration = Duration::from_secs(30);

/// A directory and what it is for: `data`, `wal`, `tablespace NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub role: String,
    pub directory: String,
}

/// `host` names it in the result; `exec` gets there.
pub fn locate(
    host: &str,
    exec: &dyn Exec,
    places: &[Place],
) -> Result<(Vec<Storage>, Vec<Warning>), ExecError> {
    let survey = CommandLine::new("sh")
        .args(["-c", SURVEY, "sh"])
        .args(places.iter().map(|place| &place.directory))
        .timeout(LIMIT);
    let tree = Tree::parse(&exec.run(&survey)?);
    let mut found = Vec::new();
    let mut warnings = Vec::new();
    for (at, place) in places.iter().enumerate() {
        let storage = storage(host, &tree, place, at);
        warnings.extend(match &storage {
            Err(warning) => Some(warning.clone()),
            Ok(storage) => nothing_below(storage),
        });
        found.extend(storage.ok());
    }
    Ok((found, warnings))
}

fn storage(host: &str, tree: &Tree, place: &Place, at: usize) -> Result<Storage, Warning> {
    let Place { role, directory } = place;
    let unknown = |why: String, try_this: &str| {
        Warning::new(format!("the device of {role} is unknown"), why, try_this)
    };
    let Some(Some(real)) = tree.directories.get(at) else {
        return Err(unknown(
            format!("directory {directory} cannot be read on host {host}"),
            "connect to the host as the server's own user or as root",
        ));
    };
    let Some(mount) = tree.mount_of(real) else {
        return Err(unknown(
            format!("host {host} shows no mount for {}", real.display()),
            "mount /proc there",
        ));
    };
    Ok(Storage {
        role: role.clone(),
        host: host.to_owned(),
        directory: real.to_string_lossy().into_owned(),
        mount_point: mount.mount_point.clone(),
        file_system: mount.file_system.clone(),
        mount_options: mount.options.clone(),
        devices: tree.under(mount),
    })
}

fn nothing_below(storage: &Storage) -> Option<Warning> {
    storage.devices.is_empty().then(|| {
        Warning::new(
            format!("{} lies on no device that the kernel names", storage.role),
            format!(
                "{} is on {}, mounted on {}",
                storage.directory, storage.file_system, storage.mount_point
            ),
            "compare by the server's own counters; device rates are not known here",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    fn place(directory: &str) -> Place {
        Place { role: "data".to_owned(), directory: directory.to_owned() }
    }

    #[test]
    fn a_directory_of_this_machine() {
        let here = Host::local();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a directory with 'quotes' and spaces");
        std::fs::create_dir(&path).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let (found, _) = locate("local", &here, &[place(link.to_str().unwrap())]).unwrap();
        assert_eq!(found[0].directory, path.to_str().unwrap());
        assert!(path.starts_with(&found[0].mount_point), "{found:?}");
    }

    #[test]
    fn what_is_not_there_is_a_warning_and_the_rest_is_found() {
        let places = [place("/nonexistent/x"), place("/"), place("/proc/sys")];
        let (found, warnings) = locate("local", &Host::local(), &places).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].mount_point, "/");
        assert_eq!(
            warnings[0].to_string(),
            "the device of data is unknown: directory /nonexistent/x cannot be read on host local; \
             connect to the host as the server's own user or as root"
        );
        let on_proc = warnings.last().unwrap();
        assert!(on_proc.why.contains("is on proc, mounted on /proc"), "{on_proc}");
    }
}
