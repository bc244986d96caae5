//! Current settings of the server's host: kernel, CPU governors, write-back of dirty pages, mount
//! options, I/O schedulers and read-ahead, and the configuration of DRBD devices below the file systems. Read before and after each window,
//! therefore one short script. Next: [`drbd`].

mod drbd;
#[cfg(test)]
mod standby_tests;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::host::Host;
use crate::host::exec::{CommandLine, Exec};
use crate::host::proc::mountinfo;
use pgio_results::change::fact;
use pgio_results::telemetry::Storage;

const SCRIPT: &str = concat!(include_str!("receivers.sh"), include_str!("environment.sh"));
const LIMIT: Duration = Duration::from_secs(5);

/// Whether the settings of standbys are read, too, which takes some time of their host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standbys {
    Read,
    Skip,
}

/// The standbys whose settings are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selection<'a> {
    None,
    /// Those of the server with this system identifier. Other clusters on the host are not part of
    /// the measured system.
    Of(&'a str),
    /// All on the host, if the role may not read the system identifier.
    All,
}

/// `None` if the host does not answer.
pub(super) fn read(
    host: &Host,
    storage: &[Storage],
    standbys: Selection<'_>,
) -> Option<BTreeMap<String, String>> {
    let mut devices: Vec<&str> =
        storage.iter().flat_map(|s| &s.devices).map(|device| device.name.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    host.run(&script(standbys).args(devices)).ok().map(|text| parse(&text, storage))
}

fn script(standbys: Selection<'_>) -> CommandLine {
    let standbys = match standbys {
        Selection::None => "none",
        Selection::Of(identifier) => identifier,
        Selection::All => "all",
    };
    CommandLine::new("sh").args(["-c", SCRIPT, "sh", standbys]).timeout(LIMIT)
}

/// What another host holds of the measured system: standbys, and the configuration of the DRBD resources
/// in `found`, which come from the server's host.
pub(super) fn peer_facts(
    host: &Host,
    found: &BTreeMap<String, String>,
    standbys: Selection<'_>,
) -> BTreeMap<String, String> {
    if standbys == Selection::None && !drbd::is_present(found) {
        return BTreeMap::new();
    }
    let text = host.run(&script(standbys)).unwrap_or_default();
    parse_peer(&text, host.name(), found)
}

fn parse_peer(
    text: &str,
    host: &str,
    found: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut facts: BTreeMap<String, String> = parse(text, &[])
        .into_iter()
        .filter(|(name, _)| fact::is_of_standby(name))
        .map(|(name, value)| (fact::on_host(host, &name), value))
        .collect();
    if drbd::is_present(found) {
        let (_, text) = text.split_once(drbd::HEADER).unwrap_or_default();
        facts.extend(drbd::peer_facts(text, host, found));
    }
    facts
}

fn parse(text: &str, storage: &[Storage]) -> BTreeMap<String, String> {
    let (text, drbd) = text.split_once(drbd::HEADER).unwrap_or((text, ""));
    let (facts, mounts) = text.split_once("mounts\n").unwrap_or((text, ""));
    let mounts = mountinfo::parse(mounts);
    let mut found = BTreeMap::new();
    let (mut schedulers, mut read_ahead) = (BTreeMap::new(), BTreeMap::new());
    for line in facts.lines() {
        match line.split_once(' ') {
            Some(("scheduler", rest)) => {
                schedulers.extend(rest.split_once(' ').map(|(device, v)| (device, selected(v))));
            }
            Some(("standby", rest)) => {
                let words: Vec<&str> = rest.splitn(3, ' ').collect();
                if let [setting, value, directory] = words[..] {
                    found.insert(fact::standby(directory, setting), value.to_owned());
                }
            }
            Some(("read_ahead", rest)) => read_ahead.extend(rest.split_once(' ')),
            Some((name, value)) => {
                found.insert(fact::host(name), selected(value).to_owned());
            }
            None => {}
        }
    }
    for area in storage.iter().filter(|area| area.is_located()) {
        let mount = mounts.iter().rfind(|m| !m.hidden && m.mount_point == area.mount_point);
        let mounted = mount.map_or_else(
            || "not mounted".to_owned(),
            |m| format!("{} {} on {}", m.file_system, m.options, m.mount_point),
        );
        found.insert(fact::mount(&area.role), mounted);
        let by_device = |values: &BTreeMap<&str, &str>| -> Vec<String> {
            let names = area.devices.iter().map(|device| device.name.as_str());
            names.filter_map(|name| Some(format!("{name} {}", values.get(name)?))).collect()
        };
        for (fact, values) in [
            (fact::scheduler(&area.role), by_device(&schedulers)),
            (fact::read_ahead(&area.role), by_device(&read_ahead)),
        ] {
            if !values.is_empty() {
                found.insert(fact, values.join(", "));
            }
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
        let text = "kernel 6.1.0\ngovernor performance on 60, powersave on 4\nvm.dirty_ratio 20\n\
            transparent_hugepage always [madvise] never\nscheduler vdb [none] mq-deadline\n\
            read_ahead vdb 128\nread_ahead vdc 4096\nmounts\n\
            25 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            30 25 254:16 / /data rw,relatime - ext4 /dev/vdb rw\n\
            31 30 254:32 / /data rw,sync - xfs /dev/vdc rw\n";
        let unlocated = Storage { role: "wal".to_owned(), ..Storage::default() };
        let found = parse(text, &[data("/data", "vdb"), unlocated]);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            found,
            [
                ("data.mount", "xfs rw,sync on /data"),
                ("data.read_ahead", "vdb 128"),
                ("data.scheduler", "vdb none"),
                ("host.governor", "performance on 60, powersave on 4"),
                ("host.kernel", "6.1.0"),
                ("host.transparent_hugepage", "madvise"),
                ("host.vm.dirty_ratio", "20"),
            ]
        );
    }

    #[test]
    fn the_environment_of_a_peer_has_only_the_settings_of_its_standby() {
        let text = "kernel 6.1.0\nvm.dirty_ratio 20\nstandby fsync off /srv/a standby\nmounts\n";
        let own = parse(text, &[]);
        assert_eq!(own["standby./srv/a standby.fsync"], "off");
        let peer = parse_peer(text, "db2", &BTreeMap::new());
        let expected = ("db2.standby./srv/a standby.fsync".to_owned(), "off".to_owned());
        assert_eq!(peer, BTreeMap::from([expected]));
    }

    #[test]
    fn the_environment_of_this_machine_is_read() {
        let found = read(&Host::local(), &[data("/", "no-such-device")], Selection::All).unwrap();
        assert!(!found["host.kernel"].is_empty());
        let ratio = std::fs::read_to_string("/proc/sys/vm/dirty_background_ratio").unwrap();
        assert_eq!(found["host.vm.dirty_background_ratio"], ratio.trim());
        assert!(found["data.mount"].ends_with("on /"), "{found:?}");
        assert!(!found.contains_key("data.scheduler"));
    }
}
