//! The disk of the root file system: a limit of it may limit the whole machine, so the file must confirm it.
//!
//! With cgroup v1 the limit is in the root group, which the kernel's threads and on most machines all
//! other programs are in, including login shells. With v2 it is in the server's own group: it
//! affects others only if they share that group, for example if PostgreSQL was started from a shell.
//! Reads only.

use super::placement::Placement;
use crate::host::blkio::{self, Version};
use crate::host::exec::{CommandLine, Exec};
use crate::host::storage::{self, Device};
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;

/// Refuses the root's disk unless the file confirms it.
pub(super) fn check(
    placement: &Placement,
    device: &str,
    is_confirmed: bool,
    context: &Context<'_>,
) -> Result<(), TreatmentError> {
    let host = context.host(Some(&placement.host))?;
    if is_confirmed || !holds_the_root(placement, &*host)? {
        return Ok(());
    }
    let others = match placement.controller.version {
        Version::V1 => 0,
        Version::V2 => others_in_the_group(placement, &*host)?,
    };
    match refusal(
        placement.controller.version,
        device,
        &placement.disk.name,
        &placement.host,
        others,
    ) {
        Some(why) => Err(TreatmentError::Refused(why)),
        None => Ok(()),
    }
}

/// Whether the limit affects the whole machine.
pub(super) fn limits_whole_machine(
    placement: &Placement,
    context: &Context<'_>,
) -> Result<bool, TreatmentError> {
    let host = context.host(Some(&placement.host))?;
    Ok(placement.controller.version == Version::V1 && holds_the_root(placement, &*host)?)
}

fn holds_the_root(placement: &Placement, host: &dyn Exec) -> Result<bool, TreatmentError> {
    let root = storage::locate(host, &["/"])?.into_iter().flatten().next();
    Ok(is_among(&placement.disk.name, &root.map(|root| root.devices).unwrap_or_default()))
}

/// A volume on the same disk is not the disk: its own limit does not affect the root.
fn is_among(disk: &str, devices: &[Device]) -> bool {
    devices.iter().any(|device| device.name == disk)
}

/// Processes in the limited group that are not PostgreSQL's.
fn others_in_the_group(placement: &Placement, host: &dyn Exec) -> Result<usize, TreatmentError> {
    let Some(server) = &placement.server else { return Ok(0) };
    let procs = CommandLine::new("cat").arg(placement.limits.group.join("cgroup.procs"));
    let text = host.run(&procs)?;
    let mut own = blkio::children(host, server.pid())?;
    own.push(server.pid());
    let all = text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
    Ok(all.filter(|pid| !own.contains(pid)).count())
}

fn refusal(
    version: Version,
    device: &str,
    disk: &str,
    host: &str,
    others: usize,
) -> Option<String> {
    let holds = format!("{device} ({disk}) holds the root file system of host {host}");
    match (version, others) {
        (Version::V1, _) => Some(format!(
            "{holds}, and cgroup v1 would limit the whole machine: confirm by mount = \"/\""
        )),
        (Version::V2, 0) => None,
        (Version::V2, others) => Some(format!(
            "{holds}, and PostgreSQL shares its group of cgroup v2 with {others} other processes, which would be limited too: start it in its own group, for example by `systemd-run --scope`, or confirm by mount = \"/\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limiting_the_whole_machine_needs_a_confirmation() {
        let of = |version, others| refusal(version, "/dev/sda", "sda", "db1", others);
        let v1 = of(Version::V1, 0).unwrap();
        assert!(v1.contains("/dev/sda (sda) holds the root file system of host db1"), "{v1}");
        assert!(v1.contains("the whole machine: confirm by mount = \"/\""), "{v1}");
        assert_eq!(of(Version::V2, 0), None, "a group of the server's own");
        assert!(of(Version::V2, 3).unwrap().contains("with 3 other processes"));
    }

    #[test]
    fn only_devices_below_the_root_file_system_are_root_disks() {
        let device =
            |name: &str| Device { name: name.to_owned(), kind: "disk", ..Device::default() };
        let root = [device("dm-0"), device("sda2"), device("sda")];
        assert!(is_among("sda", &root) && is_among("dm-0", &root));
        assert!(!is_among("dm-1", &root) && !is_among("sdb", &root));
        assert!(!is_among("sda", &[]), "a container's");
    }
}
