//! Discovers what can be observed for one target: once per experiment, because discovery takes time
//! and the result rarely changes.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pgio_connect::Client;

use super::environment::{self, Selection, ServerDirectory, Standbys};
use super::observed_hosts::{self, OwnStandby, StandbySource};
use super::sampling::{self, WatchedServer};
use crate::host::exec::Exec;
use crate::host::storage::{path_of, stack};
use crate::host::{Host, Hosts, LOCAL};
use crate::pg::server::{DIRECTORIES_GRANT, Server, directories, system_identifier};
use crate::pg::{self, postmaster_of, words};
use pgio_connect::{ConnectParams, Endpoint};
use pgio_results::Warning;
use pgio_results::telemetry::{Probes, Storage};

#[derive(Debug)]
pub struct TelemetrySources {
    pub(super) cadence: Duration,
    pub(super) watched: WatchedServer,
    pub(super) hosts: Hosts,
    /// The host on which the server's backend process was found.
    pub(super) server_host: Option<String>,
    /// The host on which the server must run although its process was not found there.
    pub(super) expected_host: Option<String>,
    /// `None` if the role may not read it.
    pub(super) system_identifier: Option<String>,
    pub(super) storage: Vec<Storage>,
    /// The standbys of a private server.
    pub(super) standbys: Vec<StandbySource>,
    /// Host and a backend of each server that background work uses.
    pub(super) neighbors: Vec<(String, i32)>,
    pub(super) probes: Option<Probes>,
    pub(super) warnings: Vec<Warning>,
}

/// Input of [`TelemetrySources::survey`].
#[derive(Debug)]
pub struct Survey<'a> {
    pub params: &'a ConnectParams,
    pub server: &'a Server,
    pub cadence: Duration,
    pub hosts: &'a Hosts,
    /// The server's host according to the experiment file; `None` means that it may be this
    /// machine.
    pub host: Option<&'a str>,
}

impl TelemetrySources {
    pub fn survey(survey: &Survey<'_>, admin: &mut Client) -> TelemetrySources {
        let Survey { params, server, cadence, hosts, host } = *survey;
        let watched = WatchedServer {
            params: sampling::choose(params),
            version_num: server.info.version_num,
            database: server.info.database.clone(),
        };
        let mut sources = TelemetrySources {
            hosts: hosts.clone(),
            system_identifier: system_identifier(admin).ok(),
            ..TelemetrySources::new(watched, cadence)
        };
        sources.hosts.entry(LOCAL.to_owned()).or_insert_with(|| Arc::new(Host::local()));
        match sources.find_server(host.unwrap_or(LOCAL), admin) {
            Ok(host) => {
                sources.find_storage(&host, admin);
                sources.server_host = Some(host.name().to_owned());
            }
            Err(why) => {
                let this_machine = params.hosts.iter().all(is_on_this_machine).then_some(LOCAL);
                sources.expected_host = host.or(this_machine).map(str::to_owned);
                sources.warnings.push(Warning::new(
                    "the devices under the server were not observed",
                    why,
                    "set host in [target] to the server's host in [hosts]",
                ));
            }
        }
        sources
    }

    fn new(watched: WatchedServer, cadence: Duration) -> TelemetrySources {
        TelemetrySources {
            cadence,
            watched,
            hosts: Hosts::new(),
            server_host: None,
            expected_host: None,
            system_identifier: None,
            storage: Vec::new(),
            standbys: Vec::new(),
            neighbors: Vec::new(),
            probes: None,
            warnings: Vec::new(),
        }
    }

    /// Adds the standbys of a private server.
    pub fn watch_standbys(&mut self, standbys: Vec<OwnStandby>) {
        let (found, warnings) = observed_hosts::locate(standbys);
        self.standbys = found;
        self.warnings.extend(warnings);
    }

    /// Sets the servers of background work, whose processes are no foreign load.
    pub fn watch_neighbors(&mut self, backends: Vec<(String, i32)>) {
        self.neighbors = backends;
    }

    /// Call it after a restart of the server, or when its files may have moved.
    pub fn refresh_storage(&mut self, admin: &mut Client) {
        let host = self.server_host.as_ref().and_then(|name| self.hosts.get(name)).cloned();
        if let Some(host) = host {
            // The first survey has already warned about missing facts.
            let warnings = std::mem::take(&mut self.warnings);
            self.find_storage(&host, admin);
            self.warnings = warnings;
        }
    }

    /// Current settings of the server's host, and of its peers. They must not change during
    /// a trial.
    pub fn environment(&self, standbys: Standbys) -> Option<BTreeMap<String, String>> {
        let server = self.server_host()?;
        let standbys = match (standbys, &self.system_identifier) {
            (Standbys::Skip, _) => Selection::None,
            (Standbys::Read, Some(identifier)) => Selection::Of(identifier),
            (Standbys::Read, None) => Selection::All,
        };
        let mut found = environment::read(server, &self.storage, standbys)?;
        for peer in self.hosts.values().filter(|host| !host.is_same_machine(server)) {
            found.extend(environment::peer_facts(peer, &found, standbys));
        }
        Some(found)
    }

    /// The host on which the server's backend process was found.
    pub fn server_host(&self) -> Option<&Host> {
        self.hosts.get(self.server_host.as_ref()?).map(Arc::as_ref)
    }

    /// The names of this machine among the hosts.
    pub fn names_of_this_machine(&self) -> impl Iterator<Item = &str> {
        let this_machine =
            self.hosts.iter().filter(|(_, host)| host.shares_pids_with_this_process());
        this_machine.map(|(name, _)| name.as_str())
    }

    /// File systems and devices below the server's directories, as far as known.
    pub fn storage(&self) -> &[Storage] {
        &self.storage
    }

    /// The kernel's name of a device on the server's host, given with or without /dev/; `None` if it is not there. A
    /// name that cannot be looked up is returned as it is.
    pub fn kernel_name(&self, device: &str) -> Option<String> {
        let found = self.server_host().map(|host| stack(host, &path_of(device)));
        let Some(Ok(stack)) = found else { return Some(device.to_owned()) };
        let mut of_server = self.storage.iter().flat_map(|storage| &storage.devices);
        let named = stack.into_iter().next().map(|device| device.name);
        // A file system may name what is no block device.
        named.or_else(|| Some(of_server.find(|d| d.name == device)?.name.clone()))
    }

    /// What cannot be observed, and why.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns the host if the admin session's backend is a PostgreSQL process there: other machines use the same
    /// process ids.
    fn find_server(&self, name: &str, admin: &mut Client) -> Result<Arc<Host>, String> {
        let host = self.hosts.get(name).ok_or_else(|| format!("unknown host {name}"))?;
        let pid: i32 = admin
            .query_one("SELECT pg_backend_pid()", &[])
            .and_then(|row| row.try_get(0))
            .map_err(|e| words::message(&e))?;
        match host.run(&postmaster_of(pid)) {
            Ok(_) => Ok(Arc::clone(host)),
            Err(_) => Err(format!("host {name} has no PostgreSQL process {pid}")),
        }
    }

    fn find_storage(&mut self, host: &Host, admin: &mut Client) {
        let directories: Vec<ServerDirectory> = directories(admin)
            .unwrap_or_default()
            .into_iter()
            .map(|d| ServerDirectory { role: d.role, directory: d.path })
            .collect();
        if directories.is_empty() {
            self.warnings.push(Warning::new(
                "the devices under the server were not observed",
                "the role may not read data_directory",
                format!(
                    "GRANT {DIRECTORIES_GRANT} TO {}",
                    pg::identifier(&self.watched.params.user)
                ),
            ));
            self.storage.clear();
            return;
        }
        match environment::locate(host, &directories) {
            Ok((storage, warnings)) => {
                self.storage = storage;
                self.warnings.extend(warnings);
            }
            Err(error) => {
                self.storage.clear();
                self.warnings.push(Warning::new(
                    "the devices under the server were not observed",
                    words::sentence(&error),
                    "check that pgio can run commands on the host",
                ));
            }
        }
    }
}

/// Whether a server at this address runs on this machine's kernel, in a container or not.
fn is_on_this_machine(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Socket { .. } => true,
        Endpoint::Tcp { host, addr, .. } => {
            addr.map_or(host == "localhost", |addr| is_address_here(addr.ip().to_canonical()))
        }
    }
}

/// Whether the address is one of this machine's own, which a container may publish, or a container's behind
/// a bridge.
fn is_address_here(address: IpAddr) -> bool {
    let is_bridge = |name: &str| has_virtual_ports_alone(Path::new("/sys/class/net"), name);
    let routes = || fs::read_to_string("/proc/net/route").unwrap_or_default();
    address.is_loopback()
        || pgio_link::local_addresses().contains(&address)
        || matches!(address, IpAddr::V4(a) if is_behind_bridge(a, &routes(), is_bridge))
}

/// Whether this is a bridge without a port that may lead out of this machine: a network card, or a kind that the
/// kernel names, such as a VLAN, a bond or a VXLAN. Ports of containers and virtual machines (veth, tap) have no name
/// of a kind.
fn has_virtual_ports_alone(networks: &Path, name: &str) -> bool {
    let leads_out = |port: &str| {
        let port = networks.join(port);
        let kind = fs::read_to_string(port.join("uevent"));
        port.join("device").exists() || kind.is_ok_and(|text| text.contains("DEVTYPE="))
    };
    let ports = fs::read_dir(networks.join(name).join("brif"));
    ports.is_ok_and(|ports| {
        !ports.flatten().any(|port| leads_out(&port.file_name().to_string_lossy()))
    })
}

/// Whether one of the routes, as in /proc/net/route, leads to the address through a bridge of this machine
/// alone. A bridge with a route to a gateway leads to other machines.
fn is_behind_bridge(address: Ipv4Addr, routes: &str, is_bridge: impl Fn(&str) -> bool) -> bool {
    let number = |word: &str| u32::from_str_radix(word, 16).ok();
    let routes = routes.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [name, network, gateway, _, _, _, _, mask, ..] = words[..] else { return None };
        Some((name, number(network)?, number(gateway)?, number(mask)?))
    });
    let routes: Vec<(&str, u32, u32, u32)> = routes.collect();
    // The kernel writes the bytes of an address as if they were a number of this machine.
    let address = u32::from_ne_bytes(address.octets());
    routes.iter().any(|(name, network, _, mask)| {
        let has_gateway =
            || routes.iter().any(|(other, _, gateway, _)| other == name && *gateway != 0);
        address & mask == *network && *mask != 0 && is_bridge(name) && !has_gateway()
    })
}

#[cfg(test)]
impl TelemetrySources {
    /// The sources of a server without hosts.
    pub(super) fn without_hosts() -> TelemetrySources {
        let params = pgio_connect::resolve("host=h user=u dbname=d", &pgio_connect::Env::default());
        let watched = WatchedServer {
            params: params.expect("the text is valid"),
            version_num: 150_000,
            database: "d".to_owned(),
        };
        TelemetrySources::new(watched, Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_and_loopback_addresses_are_on_this_machine() {
        let here = |text: &str| {
            let params = pgio_connect::resolve(text, &pgio_connect::Env::default()).unwrap();
            params.hosts.iter().all(is_on_this_machine)
        };
        for text in ["host=/run/postgresql", "host=localhost", "host=127.0.0.2", "host=::1"] {
            assert!(here(&format!("{text} user=u dbname=d")), "{text}");
        }
        assert!(here("host=db hostaddr=127.0.0.1 user=u dbname=d"));
        for text in ["host=db", "host=198.51.100.77", "host=localhost,db"] {
            assert!(!here(&format!("{text} user=u dbname=d")), "{text}");
        }
        for own in pgio_link::local_addresses() {
            assert!(here(&format!("host={own} user=u dbname=d")), "{own}");
        }
    }

    #[test]
    fn a_bridge_over_a_network_card_leads_to_other_machines() {
        let networks = tempfile::tempdir().unwrap();
        let add = |path: &str| fs::create_dir_all(networks.path().join(path)).unwrap();
        for path in
            ["docker0/brif/veth1", "veth1", "eth0/device", "br0/brif/veth2", "br0/brif/eth0"]
        {
            add(path);
        }
        add("br1/brif/eth1.7");
        add("eth1.7");
        fs::write(networks.path().join("eth1.7/uevent"), "DEVTYPE=vlan\nINTERFACE=eth1.7\n")
            .unwrap();
        let alone = |name| has_virtual_ports_alone(networks.path(), name);
        assert!(alone("docker0"));
        for name in ["br0", "br1", "eth0", "none"] {
            assert!(!alone(name), "{name}");
        }
    }

    #[test]
    fn an_address_behind_a_bridge_for_containers_is_on_this_machine() {
        let word = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let route = |name: &str, network: [u8; 4], gateway: [u8; 4], mask: [u8; 4]| {
            let [network, gateway, mask] = [network, gateway, mask].map(word);
            format!("{name}\t{network}\t{gateway}\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n")
        };
        let none = [0; 4];
        let (wide, narrow) = ([255, 255, 0, 0], [255, 255, 255, 0]);
        let routes = [
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
                .to_owned(),
            route("br0", none, [10, 0, 0, 1], none),
            route("br0", [10, 0, 0, 0], none, narrow),
            route("docker0", [172, 17, 0, 0], none, wide),
            route("eth1", [10, 0, 7, 0], none, narrow),
        ];
        let is_bridge = |name: &str| name != "eth1";
        let behind = |a: [u8; 4]| is_behind_bridge(a.into(), &routes.concat(), is_bridge);
        assert!(behind([172, 17, 0, 2]));
        for elsewhere in [[10, 0, 0, 5], [10, 0, 7, 5], [172, 18, 0, 2], [192, 0, 2, 1]] {
            assert!(!behind(elsewhere), "{elsewhere:?}");
        }
    }
}
