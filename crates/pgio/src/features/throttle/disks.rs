//! Checks the disk to throttle on a host that is not the server's: it must be below a replica of the data
//! that the condition names, and never the disk of the machine's root file system.
//!
//! On the server's host it must hold a directory of PostgreSQL, or will under the condition's earlier treatments. A
//! limit of the root file system's disk may limit the whole machine, so the file must confirm it: with cgroup v1 the
//! limit is in the root group, which the kernel's threads and on most machines all other programs are in, including
//! login shells; with v2 it is in the server's own group and affects others only if they share that group, for example
//! if PostgreSQL was started from a shell. Reads only.

use std::path::Path;

use super::placement::Placement;
use crate::host::Host;
use crate::host::blkio::{self, Version};
use crate::host::exec::{CommandLine, Exec};
use crate::host::storage::{self, Device, WholeDisk};
use crate::pg::server::{DIRECTORIES_GRANT, directories};
use crate::treatment::context::{Context, Moved, Replica};
use crate::treatment::error::TreatmentError;

pub(super) fn check(
    host: &Host,
    disk: &WholeDisk,
    device: &str,
    replicas: &[Replica],
) -> Result<(), TreatmentError> {
    let here: Vec<&Replica> = replicas.iter().filter(|r| r.host == host.name()).collect();
    let asked = DiskRequest { device, disk: &disk.name, host: host.name() };
    let why = if here.is_empty() {
        let root = storage::locate(host, &["/"])?.into_iter().flatten().next();
        asked.root_disk_refusal(&root.map(|root| root.devices).unwrap_or_default())
    } else {
        let mut stacks = Vec::new();
        for replica in here {
            for path in &replica.devices {
                stacks.push((
                    replica.description.as_str(),
                    path.as_str(),
                    storage::stack(host, path)?,
                ));
            }
        }
        asked.replica_refusal(&stacks)
    };
    why.map_or(Ok(()), |why| Err(TreatmentError::Refused(why)))
}

/// The disk that is to be throttled.
struct DiskRequest<'a> {
    device: &'a str,
    disk: &'a str,
    host: &'a str,
}

impl DiskRequest<'_> {
    fn root_disk_refusal(&self, devices: &[Device]) -> Option<String> {
        let DiskRequest { device, disk, host } = self;
        is_among(disk, devices).then(|| {
            format!(
                "{device} ({disk}) holds the root file system of host {host}, so the whole machine would be slowed: name a device of the replica, such as its logical volume; if DRBD's other node uses this disk, add drbd = {{ …, secondary = \"{host}\" }} to the condition; if the server runs there, add host = \"{host}\" to [target]"
            )
        })
    }

    /// `stacks`: each replica, its device, and the devices below that.
    fn replica_refusal(&self, stacks: &[(&str, &str, Vec<Device>)]) -> Option<String> {
        let DiskRequest { device, disk, host } = self;
        if stacks.iter().any(|(_, _, stack)| is_among(disk, stack)) {
            return None;
        }
        let shown = |(of, path, stack): &(&str, &str, Vec<Device>)| {
            let names: Vec<&str> = stack.iter().map(|device| device.name.as_str()).collect();
            let on = if names.is_empty() { "not known".to_owned() } else { names.join(" over ") };
            format!("that of {of} is {path} ({on})")
        };
        let known: Vec<String> = stacks.iter().map(shown).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { known.join("; ") };
        Some(format!(
            "{device} ({disk}) is not below a disk of the condition's DRBD on host {host}: {known}; name a device that is"
        ))
    }
}

/// Refuses the root's disk unless the file confirms it.
pub(super) fn check_root_disk(
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

/// Refuses a disk that the server does not use.
pub(super) fn check_server_disk(
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

    fn devices(names: &[&str]) -> Vec<Device> {
        let device =
            |name: &&str| Device { name: (*name).to_owned(), kind: "disk", ..Device::default() };
        names.iter().map(device).collect()
    }

    #[test]
    fn only_a_disk_below_the_replica_is_accepted() {
        let request = |disk| DiskRequest { device: "/dev/x", disk, host: "db2" };
        let stacks = [
            ("DRBD r0", "/dev/vg/pg", devices(&["dm-3", "sdb1", "sdb"])),
            ("DRBD r0", "/dev/gone", devices(&[])),
        ];
        for disk in ["sdb", "dm-3"] {
            assert_eq!(request(disk).replica_refusal(&stacks), None, "{disk}");
        }
        assert_eq!(
            request("sda").replica_refusal(&stacks).unwrap(),
            "/dev/x (sda) is not below a disk of the condition's DRBD on host db2: that of DRBD r0 is /dev/vg/pg (dm-3 over sdb1 over sdb); that of DRBD r0 is /dev/gone (not known); name a device that is"
        );
        assert!(request("sda").replica_refusal(&[]).unwrap().contains("it has none"));
    }

    #[test]
    fn the_root_disk_is_never_a_replica() {
        let request = |disk| DiskRequest { device: "/dev/x", disk, host: "db2" };
        let root = devices(&["dm-0", "sda2", "sda"]);
        let why = request("sda").root_disk_refusal(&root).unwrap();
        for message in
            ["/dev/x (sda) holds the root file system of host db2", "secondary = \"db2\""]
        {
            assert!(why.contains(message), "{why}");
        }
        // A volume on the same disk is not the disk.
        for disk in ["sdb", "dm-1"] {
            assert_eq!(request(disk).root_disk_refusal(&root), None, "{disk}");
        }
        assert_eq!(request("sda").root_disk_refusal(&[]), None, "a container's");
    }

    /// Whatever this machine's disks are.
    #[test]
    fn replicas_of_other_hosts_do_not_count() {
        let host = Host::local();
        let disk = WholeDisk { number: "0:0".to_owned(), name: "none".to_owned() };
        let on = |name: &str| Replica {
            host: name.to_owned(),
            description: "DRBD r0".to_owned(),
            devices: vec!["/dev/pgio-none".to_owned()],
        };
        assert!(check(&host, &disk, "/dev/none", &[on("db2")]).is_ok());
        let error = check(&host, &disk, "/dev/none", &[on(host.name())]).unwrap_err().to_string();
        assert!(error.contains("/dev/pgio-none (not known)"), "{error}");
    }

    #[test]
    fn limiting_the_whole_machine_needs_a_confirmation() {
        let request = |version, others| refusal(version, "/dev/sda", "sda", "db1", others);
        let v1 = request(Version::V1, 0).unwrap();
        assert!(v1.contains("/dev/sda (sda) holds the root file system of host db1"), "{v1}");
        assert!(v1.contains("the whole machine: confirm by mount = \"/\""), "{v1}");
        assert_eq!(request(Version::V2, 0), None, "a group of the server's own");
        assert!(request(Version::V2, 3).unwrap().contains("with 3 other processes"));
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
