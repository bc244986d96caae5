//! Checks the disk to throttle on a host that is not the server's: it must be below a replica of the data
//! that the condition names, and never that of the machine's root file system.
//!
//! Reads only. On the server's host PostgreSQL's directories decide: [`super::server_disk`].

use crate::host::Host;
use crate::host::storage::{self, Device, WholeDisk};
use crate::treatment::context::Replica;
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
    fn is_among(&self, devices: &[Device]) -> bool {
        devices.iter().any(|device| device.name == self.disk)
    }

    fn root_disk_refusal(&self, devices: &[Device]) -> Option<String> {
        let DiskRequest { device, disk, host } = self;
        self.is_among(devices).then(|| {
            format!(
                "{device} ({disk}) holds the root file system of host {host}, so the whole machine would be slowed: name a device of the replica, such as its logical volume; if DRBD's other node uses this disk, add drbd = {{ …, secondary = \"{host}\" }} to the condition; if the server runs there, add host = \"{host}\" to [target]"
            )
        })
    }

    /// `stacks`: each replica, its device, and the devices below that.
    fn replica_refusal(&self, stacks: &[(&str, &str, Vec<Device>)]) -> Option<String> {
        let DiskRequest { device, disk, host } = self;
        if stacks.iter().any(|(_, _, stack)| self.is_among(stack)) {
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
        let of = |disk| DiskRequest { device: "/dev/x", disk, host: "db2" };
        let stacks = [
            ("DRBD r0", "/dev/vg/pg", devices(&["dm-3", "sdb1", "sdb"])),
            ("DRBD r0", "/dev/gone", devices(&[])),
        ];
        for disk in ["sdb", "dm-3"] {
            assert_eq!(of(disk).replica_refusal(&stacks), None, "{disk}");
        }
        assert_eq!(
            of("sda").replica_refusal(&stacks).unwrap(),
            "/dev/x (sda) is not below a disk of the condition's DRBD on host db2: that of DRBD r0 is /dev/vg/pg (dm-3 over sdb1 over sdb); that of DRBD r0 is /dev/gone (not known); name a device that is"
        );
        assert!(of("sda").replica_refusal(&[]).unwrap().contains("it has none"));
    }

    #[test]
    fn the_root_disk_is_never_a_replica() {
        let of = |disk| DiskRequest { device: "/dev/x", disk, host: "db2" };
        let root = devices(&["dm-0", "sda2", "sda"]);
        let why = of("sda").root_disk_refusal(&root).unwrap();
        for message in
            ["/dev/x (sda) holds the root file system of host db2", "secondary = \"db2\""]
        {
            assert!(why.contains(message), "{why}");
        }
        // A volume on the same disk is not the disk.
        for disk in ["sdb", "dm-1"] {
            assert_eq!(of(disk).root_disk_refusal(&root), None, "{disk}");
        }
        assert_eq!(of("sda").root_disk_refusal(&[]), None, "a container's");
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
}
