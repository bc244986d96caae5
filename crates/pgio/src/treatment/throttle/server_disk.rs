//! Checks the disk to throttle on the server's host: it must hold a directory of PostgreSQL, or will
//! under the condition's earlier treatments.
//!
//! Reads only. On another host the replicas decide: [`super::replica_disk`].

use std::path::Path;

use crate::host::storage::{self, WholeDisk};
use crate::pg::server::{DIRECTORIES_GRANT, directories};
use crate::treatment::context::{Context, Moved};
use crate::treatment::error::TreatmentError;

/// Refuses a disk that the server does not use.
pub(super) fn check(
    host: &str,
    disk: &WholeDisk,
    device: &str,
    context: &mut Context<'_>,
) -> Result<(), TreatmentError> {
    let found = directories(context.admin()?)
        .map_err(TreatmentError::postgres("query the server's directories"))?;
    if found.is_empty() {
        return Err(TreatmentError::Refused(format!(
            "cannot check whether the server uses {device}, since the role may not see data_directory: GRANT {DIRECTORIES_GRANT} TO ROLE"
        )));
    }
    let paths: Vec<&str> = found.iter().map(|d| d.path.as_str()).collect();
    let exec = context.host(Some(host))?;
    for moved in &context.layout.moved {
        let found = storage::whole_disk(&*exec, &moved.device)?;
        if found.is_some_and(|found| found.name == disk.name) {
            return Ok(());
        }
    }
    let located = storage::locate(&*exec, &paths)?;
    let mut known = Vec::new();
    for (directory, location) in found.iter().zip(located) {
        let moved = location.as_ref().and_then(|l| moved_to(&l.directory, &context.layout.moved));
        let names: Vec<String> = match moved {
            Some(device) => {
                let found = storage::whole_disk(&*exec, device)?;
                found.map(|found| found.name).into_iter().collect()
            }
            None => {
                let devices = location.map(|l| l.devices).unwrap_or_default();
                devices.into_iter().map(|d| d.name).collect()
            }
        };
        if names.contains(&disk.name) {
            return Ok(());
        }
        let on = if names.is_empty() { "no known device".to_owned() } else { names.join(" over ") };
        let lies = if moved.is_some() { "will lie" } else { "lies" };
        known.push(format!("{} ({}) {lies} on {on}", directory.role, directory.path));
    }
    Err(TreatmentError::Refused(format!(
        "{device} ({}) is not below what PostgreSQL on {} writes to: {}; name a device that is, or a target = \"…\" whose server uses this one",
        disk.name,
        host,
        known.join("; ")
    )))
}

/// The device that a directory is moved to.
fn moved_to<'a>(directory: &Path, moved: &'a [Moved]) -> Option<&'a str> {
    let one = moved.iter().rfind(|m| directory.starts_with(&m.directory));
    one.map(|m| m.device.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_below_a_moved_directory_move_with_it() {
        let moved = |directory: &str, device: &str| Moved {
            directory: directory.to_owned(),
            device: device.to_owned(),
            is_tablespace: false,
        };
        let all = [moved("/var/pg/data", "/dev/loop7"), moved("/var/pg/data/space", "/dev/loop8")];
        let to = |directory: &str| moved_to(Path::new(directory), &all);
        assert_eq!(to("/var/pg/data"), Some("/dev/loop7"));
        assert_eq!(to("/var/pg/data/pg_wal"), Some("/dev/loop7"));
        assert_eq!(to("/var/pg/data/space/16384"), Some("/dev/loop8"));
        assert_eq!(to("/var/pg/database"), None);
        assert_eq!(to("/var/pg"), None);
    }
}
