//! Configuration of the DRBD devices below the server's files: module, protocol, options that
//! differ from the default.
//!
//! Names match the changes that treatments declare: `DRBD r0 = …` is the protocol of r0,
//! `al-extents of DRBD r0 = …` that option. Any other difference between two conditions is
//! undeclared. Next: `pgio_verdict::cross`, which compares.

use std::collections::BTreeMap;

use super::show::{self, Config, Connection};
use super::state::device;
use crate::telemetry::observer::{Facts, Of};
use pgio_results::change::fact;

const MODULE: &str = "module ";
const MODULE_NAME: &str = "drbd.module";
const PROTOCOL: &str = "protocol";
/// Protocol that the kernel uses if the configuration names none.
const DEFAULT_PROTOCOL: &str = "C";

/// For a peer, it reads only the resources that were found on the server's host. It finds nothing if the server's files
/// are not on DRBD, or if DRBD's configuration cannot be read.
pub(super) fn read(text: &str, of: Of<'_>) -> Facts {
    facts(text, |config| match of {
        Of::Server(storage) => {
            let devices = storage.iter().flat_map(|area| &area.devices);
            let names: Vec<&str> = devices.map(|d| d.name.as_str()).collect();
            config.volumes.iter().any(|volume| names.contains(&device(volume.minor).as_str()))
        }
        Of::Peer(found) => found.contains_key(&fact::drbd_protocol(&config.resource)),
    })
}

pub(super) fn is_present(found: &Facts) -> bool {
    found.contains_key(MODULE_NAME)
}

fn facts(text: &str, is_relevant: impl Fn(&Config) -> bool) -> Facts {
    let mut found = BTreeMap::new();
    let (module, config) = match text.strip_prefix(MODULE).and_then(|rest| rest.split_once('\n')) {
        Some((module, config)) => (Some(module), config),
        None => (None, text),
    };
    let configs = show::parse(config).unwrap_or_default();
    for config in configs.iter().filter(|config| is_relevant(config)) {
        let resource = &config.resource;
        let mut add = |name: String, value: String| drop(found.insert(name, value));
        if let Some(module) = module {
            add(MODULE_NAME.to_owned(), module.to_owned());
        }
        let protocol = |c: &Connection| {
            c.options.get(PROTOCOL).map_or(DEFAULT_PROTOCOL, String::as_str).to_owned()
        };
        add(fact::drbd_protocol(resource), joined(config.connections.iter().map(protocol), "none"));
        if !config.connections.is_empty() {
            let options = config.connections.iter().map(network);
            add(fact::drbd_network(resource), joined(options, ""));
        }
        for (name, value) in disk(config) {
            add(fact::drbd_option(resource, &name), value);
        }
    }
    found
}

/// All network options as one value, because module 8.4 sets them per connection.
fn network(connection: &Connection) -> String {
    let all = connection.options.iter().filter(|(name, _)| *name != PROTOCOL);
    let all: Vec<String> = all.map(|(name, value)| format!("{name} {value}")).collect();
    if all.is_empty() { "defaults".to_owned() } else { all.join(", ") }
}

/// Disk options of all volumes; each name once.
fn disk(config: &Config) -> BTreeMap<String, String> {
    let mut values: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, value) in config.volumes.iter().flat_map(|volume| &volume.options) {
        values.entry(name).or_default().push(value.clone());
    }
    values.into_iter().map(|(name, all)| (name.to_owned(), joined(all.into_iter(), ""))).collect()
}

/// The common value, or all values in order, or `none` without any.
fn joined(all: impl Iterator<Item = String>, none: &str) -> String {
    let mut all: Vec<String> = all.collect();
    all.dedup();
    if all.is_empty() { none.to_owned() } else { all.join(" | ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::telemetry::{Device, Storage};

    fn on(device: &str) -> Vec<Storage> {
        let devices = vec![Device { name: device.to_owned(), ..Device::default() }];
        vec![Storage { role: "data".to_owned(), devices, ..Storage::default() }]
    }

    fn facts_on_drbd0(text: &str) -> Vec<String> {
        let text = format!("module 8.4.11\n{text}");
        read(&text, Of::Server(&on("drbd0")))
            .into_iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect()
    }

    #[test]
    fn the_drbd_environment_has_protocol_and_non_default_options() {
        let text = "resource pgio { net { protocol A; sndbuf-size 1048576; shared-secret \"x\"; }\n\
            _this_host { volume 0 { device minor 0; disk \"/dev/sdb\"; disk { al-extents 257; md-flushes yes; } } } }\n\
            resource other { _this_host { volume 0 { device minor 1; } } }";
        assert_eq!(
            facts_on_drbd0(text),
            [
                "drbd.module = 8.4.11",
                "drbd.pgio.al-extents = 257",
                "drbd.pgio.md-flushes = yes",
                "drbd.pgio.net = sndbuf-size 1048576",
                "drbd.protocol.pgio = A",
            ]
        );
        assert_eq!(read(text, Of::Server(&on("sdb"))), BTreeMap::new());
    }

    #[test]
    fn without_a_connection_there_is_no_protocol() {
        let text = "resource pgio { _this_host { volume 0 { device minor 0; } } }";
        assert_eq!(facts_on_drbd0(text), ["drbd.module = 8.4.11", "drbd.protocol.pgio = none"]);
        let text = "resource pgio { net { } _this_host { volume 0 { device minor 0; } } }";
        assert_eq!(
            facts_on_drbd0(text),
            ["drbd.module = 8.4.11", "drbd.pgio.net = defaults", "drbd.protocol.pgio = C"]
        );
    }

    #[test]
    fn only_the_same_resource_is_read_on_the_peer() {
        let text = "resource pgio { _this_host { volume 0 { device minor 5; disk { al-extents 7; } } } }\n\
            resource other { _this_host { volume 0 { device minor 0; } } }";
        let found = BTreeMap::from([(fact::drbd_protocol("pgio"), "C".to_owned())]);
        let peer = read(&format!("module 8.4.11\n{text}"), Of::Peer(&found));
        let names: Vec<&str> = peer.keys().map(String::as_str).collect();
        assert_eq!(names, ["drbd.module", "drbd.pgio.al-extents", "drbd.protocol.pgio"]);
        assert!(read(text, Of::Peer(&BTreeMap::new())).is_empty());
    }

    /// Real output of module 8.4, filtered by the script.
    #[test]
    fn the_script_removes_only_defaults() {
        let output = include_str!("fixtures/8.4/connected-a.primary.show-defaults");
        let script = include_str!("environment.sh");
        let (_, filter) = script.split_once("sed -E \\\n").unwrap();
        let filter = filter.trim_start().strip_prefix('\'').unwrap().split_once('\'').unwrap().0;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), output).unwrap();
        let sed = crate::host::exec::CommandLine::new("sed").args(["-E", filter]).arg(file.path());
        let kept = crate::host::exec::Exec::run(&crate::host::exec::Local, &sed).unwrap();
        assert_eq!(
            facts_on_drbd0(&kept),
            [
                "drbd.module = 8.4.11",
                "drbd.pgio.al-extents = 1237",
                "drbd.pgio.al-updates = yes",
                "drbd.pgio.disk-barrier = no",
                "drbd.pgio.disk-flushes = yes",
                "drbd.pgio.md-flushes = yes",
                "drbd.pgio.net = defaults",
                "drbd.protocol.pgio = A",
            ]
        );
    }
}
