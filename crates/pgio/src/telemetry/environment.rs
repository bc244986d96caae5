//! Current settings of the server's host: kernel, CPU governor, mount options and I/O schedulers,
//! and the configuration of DRBD devices below the file systems. Read before and after each window,
//! therefore one short script. Next: [`drbd`].

mod drbd;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::host::proc::mountinfo;
use pgio_results::change::fact;
use pgio_results::telemetry::Storage;

const SCRIPT: &str = include_str!("environment.sh");
const LIMIT: Duration = Duration::from_secs(5);

/// `None` if the host does not answer.
pub(super) fn read(host: &Host, storage: &[Storage]) -> Option<BTreeMap<String, String>> {
    let mut devices: Vec<&str> =
        storage.iter().flat_map(|s| &s.devices).map(|device| device.name.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    let script = CommandLine::new("sh").args(["-c", SCRIPT, "sh"]).args(devices).timeout(LIMIT);
    host.run(&script).ok().map(|text| parse(&text, storage))
}

/// Configuration on another host of the DRBD resources in `found`, which come from the server's
/// host; empty without DRBD.
pub(super) fn peer_facts(
    host: &Host,
    found: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    if !drbd::is_present(found) {
        return BTreeMap::new();
    }
    let script = CommandLine::new("sh").args(["-c", SCRIPT, "sh"]).timeout(LIMIT);
    let text = host.run(&script).unwrap_or_default();
    let (_, text) = text.split_once(drbd::HEADER).unwrap_or_default();
    drbd::peer_facts(text, host.name(), found)
}

fn parse(text: &str, storage: &[Storage]) -> BTreeMap<String, String> {
    let (text, drbd) = text.split_once(drbd::HEADER).unwrap_or((text, ""));
    let (facts, mounts) = text.split_once("mounts\n").unwrap_or((text, ""));
    let mounts = mountinfo::parse(mounts);
    let mut found = BTreeMap::new();
    let mut schedulers = BTreeMap::new();
    for line in facts.lines() {
        match line.split_once(' ') {
            Some(("scheduler", rest)) => {
                schedulers.extend(rest.split_once(' ').map(|(device, v)| (device, selected(v))));
            }
            Some((name, value)) => {
                found.insert(format!("host.{name}"), selected(value).to_owned());
            }
            None => {}
        }
    }
    for area in storage {
        // A later mount covers an earlier one.
        let mount = mounts.iter().rfind(|m| m.mount_point == area.mount_point);
        let mounted = mount.map_or_else(
            || "not mounted".to_owned(),
            |m| format!("{} {} on {}", m.file_system, m.options, m.mount_point),
        );
        found.insert(fact::mount(&area.role), mounted);
        let scheduler_of = |name: &String| {
            schedulers.get(name.as_str()).map(|scheduler| format!("{name} {scheduler}"))
        };
        let all: Vec<String> =
            area.devices.iter().filter_map(|device| scheduler_of(&device.name)).collect();
        if !all.is_empty() {
            found.insert(fact::scheduler(&area.role), all.join(", "));
        }
    }
    found.extend(drbd::setup(drbd, storage));
    found
}

/// The active value of a list such as `always [madvise] never`.
fn selected(value: &str) -> &str {
    let inner = value.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(value, |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::telemetry::Device;

    fn data(mount_point: &str, device: &str) -> Storage {
        Storage {
            role: "data".to_owned(),
            mount_point: mount_point.to_owned(),
            devices: vec![Device { name: device.to_owned(), ..Device::default() }],
            ..Storage::default()
        }
    }

    #[test]
    fn the_active_value_and_the_topmost_mount_are_reported() {
        let text = "kernel 6.1.0\ngovernor performance\n\
            transparent_hugepage always [madvise] never\nscheduler vdb [none] mq-deadline\nmounts\n\
            25 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            30 25 254:16 / /data rw,relatime - ext4 /dev/vdb rw\n\
            31 30 254:32 / /data rw,sync - xfs /dev/vdc rw\n";
        let found = parse(text, &[data("/data", "vdb")]);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            found,
            [
                ("data.mount", "xfs rw,sync on /data"),
                ("data.scheduler", "vdb none"),
                ("host.governor", "performance"),
                ("host.kernel", "6.1.0"),
                ("host.transparent_hugepage", "madvise"),
            ]
        );
    }

    #[test]
    fn reads_this_machine() {
        let found = read(&Host::local(), &[data("/", "no-such-device")]).unwrap();
        assert!(!found["host.kernel"].is_empty());
        assert!(found["data.mount"].ends_with("on /"), "{found:?}");
        assert!(!found.contains_key("data.scheduler"));
    }
}
