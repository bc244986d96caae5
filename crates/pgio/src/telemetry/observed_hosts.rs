//! The hosts that are sampled during a trial, and which of their processes belong to the servers under
//! test.
//!
//! A machine may have two names, such as `local` and the server's host in the experiment file. It is
//! sampled under both, and the server's processes are known under both. If a server runs on the host's
//! kernel but pgio does not find its processes, the foreign load is unknown: it would include the server's
//! load. Next: [`super::host`] samples one host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pgio_connect::ConnectParams;
use pgio_results::Warning;
use pgio_results::telemetry::{HostUse, StandbyLag, Storage, Track};

use super::environment::{self, ServerDirectory};
use super::host::{self, Sampler, Watch};
use super::sampling::Span;
use super::sources::TelemetrySources;
use crate::host::Host;
use crate::pg::words;

/// The sources of one server, and a session of it that stays open during the trial.
pub(super) type Target<'a> = (&'a TelemetrySources, Option<i32>);

pub(super) struct ObservedHost<'a> {
    pub(super) name: &'a str,
    pub(super) sampler: Sampler,
    hides_a_server: bool,
}

/// The processes of servers on one host.
#[derive(Debug, Default, PartialEq)]
struct Servers {
    backend_pids: Vec<i32>,
    /// A server runs on the host's kernel, but its processes are unknown there.
    hidden: bool,
}

/// Samples each host once, whatever number of servers it has.
pub(super) fn start<'a>(
    targets: &[Target<'a>],
    cadence: Duration,
    warnings: &mut Vec<Warning>,
) -> Vec<ObservedHost<'a>> {
    let mut started: Vec<ObservedHost<'_>> = Vec::new();
    for (name, host) in targets.iter().flat_map(|(sources, _)| &sources.hosts) {
        if started.iter().any(|known| known.name == name) {
            continue;
        }
        let Servers { backend_pids, hidden } = Servers::on(host, targets);
        let system_identifiers = system_identifiers(targets);
        let watch = Watch { backend_pids, system_identifiers, ..Watch::default() };
        match Sampler::start(Arc::clone(host), cadence, watch) {
            Ok(sampler) => started.push(ObservedHost {
                name,
                sampler,
                hides_a_server: hidden && !host::has_own_pids(host),
            }),
            Err(error) => warnings.push(Warning::new(
                format!("host {name} was not observed"),
                words::sentence(&error),
                "check that the host can be reached, then run again",
            )),
        }
    }
    started
}

/// Returns the identifiers of all servers; a server of background work has an unknown one.
fn system_identifiers(targets: &[Target<'_>]) -> Option<BTreeSet<String>> {
    let each = targets.iter().map(|(sources, _)| {
        let known = sources.neighbors.is_empty();
        sources.system_identifier.clone().filter(|_| known)
    });
    each.collect()
}

impl ObservedHost<'_> {
    /// Summarizes the window. `foreign` are the processes of sessions of others on the server.
    pub(super) fn finish(
        mut self,
        span: Span,
        foreign: &BTreeSet<i32>,
    ) -> (HostUse, Vec<Track>, Vec<Warning>) {
        self.sampler.watch_foreign(foreign);
        let (mut usage, tracks, mut warnings) = self.sampler.finish(span.opened, span.closed);
        if self.hides_a_server {
            usage = without_foreign_load(usage);
            warnings.push(Warning::new(
                format!("the foreign load on host {} is unknown", self.name),
                "a server under test runs there, but its processes were not found",
                "set host in [target] to the host in [hosts] on which `ps` shows them; a server in a container has its own process ids",
            ));
        }
        (usage, tracks, warnings)
    }
}

/// Removes the foreign load, which would include the server's own.
fn without_foreign_load(usage: HostUse) -> HostUse {
    HostUse {
        foreign_cores: None,
        foreign_session_cores: None,
        run_delay: None,
        process_io: None,
        ..usage
    }
}

impl Servers {
    fn on(host: &Host, targets: &[Target<'_>]) -> Servers {
        let mut found = Servers::default();
        for (sources, pid) in targets {
            if let Some(server) = sources.server_host() {
                found.add(host, server, *pid);
            } else if let Some(expected) = &sources.expected_host {
                found.hidden |= host.name() == expected
                    || sources.hosts.get(expected).is_some_and(|h| h.is_same_machine(host));
            }
            for (name, pid) in &sources.neighbors {
                if let Some(server) = sources.hosts.get(name) {
                    found.add(host, server, Some(*pid));
                }
            }
        }
        found
    }

    fn add(&mut self, host: &Host, server: &Host, pid: Option<i32>) {
        if host.shares_pids_with(server) {
            self.backend_pids.extend(pid);
        } else if host.is_same_machine(server) {
            self.hidden = true;
        }
    }
}

// The standbys of a private server: what each streams from, its delay and the devices below its data. A standby that
// others stream from is a server with a pg_stat_replication of its own, which the server's sampler reads as well.
// Standbys of a user's server are known to telemetry only from the primary's view.

/// A standby on this machine.
#[derive(Debug, Clone)]
pub struct OwnStandby {
    /// Its `application_name`.
    pub name: String,
    pub data: PathBuf,
    /// The standby that it streams from; `None` means the primary.
    pub from: Option<String>,
    pub apply_delay: Duration,
    /// Present if other standbys stream from it.
    pub upstream: Option<ConnectParams>,
}

/// A standby with what was found below its data.
#[derive(Debug)]
pub(super) struct StandbySource {
    own: OwnStandby,
    storage: Option<Storage>,
}

/// Finds what lies below the data of each standby.
pub(super) fn locate(standbys: Vec<OwnStandby>) -> (Vec<StandbySource>, Vec<Warning>) {
    let role = |own: &OwnStandby| format!("standby {}", own.name);
    let directories: Vec<ServerDirectory> = standbys
        .iter()
        .map(|own| ServerDirectory {
            role: role(own),
            directory: own.data.to_string_lossy().into_owned(),
        })
        .collect();
    let (mut found, warnings) = match environment::locate(&Host::local(), &directories) {
        Ok(located) => located,
        Err(error) => {
            let warning = Warning::new(
                "the devices under the standbys were not observed",
                words::sentence(&error),
                "check that pgio can run commands on this machine",
            );
            (Vec::new(), vec![warning])
        }
    };
    let sources = standbys.into_iter().map(|own| {
        let at = found.iter().position(|s| s.role == role(&own) && s.is_located());
        StandbySource { storage: at.map(|at| found.swap_remove(at)), own }
    });
    (sources.collect(), warnings)
}

/// Servers whose standbys are sampled beside the primary's.
pub(super) fn upstreams(standbys: &[StandbySource]) -> Vec<ConnectParams> {
    standbys.iter().filter_map(|s| s.own.upstream.clone()).collect()
}

/// Adds to each standby that was seen what is known of it.
pub(super) fn add_details(standbys: &[StandbySource], seen: &mut BTreeMap<String, StandbyLag>) {
    for standby in standbys {
        if let Some(lag) = seen.get_mut(&standby.own.name) {
            lag.from.clone_from(&standby.own.from);
            lag.apply_delay_seconds = Some(standby.own.apply_delay.as_secs_f64());
            lag.storage.clone_from(&standby.storage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::experiment::HostSpec;
    use crate::host::LOCAL;

    /// A server on this machine, which is also the host `db`.
    fn sources(server: Option<&str>, expected: Option<&str>) -> TelemetrySources {
        let host = |name| (name == "db").then(HostSpec::default);
        let hosts = ["db", LOCAL].map(|name| {
            let host = host(name).map_or_else(Host::local, |s| Host::connect(name, &s).unwrap());
            (name.to_owned(), Arc::new(host))
        });
        TelemetrySources {
            hosts: hosts.into(),
            server_host: server.map(str::to_owned),
            expected_host: expected.map(str::to_owned),
            neighbors: server.map(|name| (name.to_owned(), 12)).into_iter().collect(),
            ..TelemetrySources::without_hosts()
        }
    }

    fn on_each(sources: &TelemetrySources) -> Vec<Servers> {
        let hosts = sources.hosts.values();
        hosts.map(|host| Servers::on(host, &[(sources, Some(11))])).collect()
    }

    #[test]
    fn a_server_is_known_under_every_name_of_its_machine() {
        for name in ["db", LOCAL] {
            let known = || Servers { backend_pids: vec![11, 12], hidden: false };
            assert_eq!(on_each(&sources(Some(name), None)), [known(), known()]);
        }
    }

    #[test]
    fn a_server_without_known_backends_is_hidden_on_each_machine_name() {
        let hidden = || Servers { backend_pids: Vec::new(), hidden: true };
        assert_eq!(on_each(&sources(None, Some("db"))), [hidden(), hidden()]);
        assert_eq!(on_each(&sources(None, Some(LOCAL))), [hidden(), hidden()]);
        let elsewhere = || Servers::default();
        assert_eq!(on_each(&sources(None, None)), [elsewhere(), elsewhere()]);
    }

    #[test]
    fn standbys_are_told_apart_only_if_every_server_is_known() {
        let known = |identifier: &str| TelemetrySources {
            system_identifier: Some(identifier.to_owned()),
            ..sources(None, None)
        };
        let (a, b) = (known("7"), known("8"));
        let both = BTreeSet::from(["7", "8"].map(str::to_owned));
        assert_eq!(system_identifiers(&[(&a, None), (&b, Some(11))]), Some(both));
        assert_eq!(system_identifiers(&[(&a, None), (&sources(None, None), None)]), None);
        let beside_work = TelemetrySources { neighbors: vec![("db".to_owned(), 12)], ..known("7") };
        assert_eq!(system_identifiers(&[(&beside_work, None)]), None);
    }

    #[test]
    fn a_host_with_a_hidden_server_reports_no_foreign_load() {
        let sources = sources(None, Some(LOCAL));
        let mut warnings = Vec::new();
        let hosts = start(&[(&sources, None)], Duration::from_secs(60), &mut warnings);
        assert_eq!((hosts.len(), warnings.len()), (2, 0), "{warnings:?}");
        for host in hosts {
            let opened = std::time::Instant::now();
            for _ in 0..2 {
                host.sampler.mark();
                while host.sampler.has_pending_mark() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            let span = Span { opened, closed: std::time::Instant::now() };
            let (usage, _, warnings) = host.finish(span, &BTreeSet::new());
            assert!(usage.cores.is_some(), "{usage:?}");
            assert_eq!((usage.foreign_cores, usage.process_io), (None, None));
            assert!(warnings.iter().any(|w| w.what.starts_with("the foreign load on host ")));
        }
    }

    #[test]
    fn only_standbys_that_were_seen_are_described() {
        let source = |name: &str, from: Option<&str>| StandbySource {
            own: OwnStandby {
                name: name.to_owned(),
                data: "/srv/x".into(),
                from: from.map(str::to_owned),
                apply_delay: Duration::from_millis(1500),
                upstream: None,
            },
            storage: Some(Storage { role: format!("standby {name}"), ..Storage::default() }),
        };
        let mut seen = BTreeMap::from([("b".to_owned(), StandbyLag::default())]);
        add_details(&[source("a", None), source("b", Some("a"))], &mut seen);
        assert_eq!(seen.len(), 1, "a was not connected");
        let b = &seen["b"];
        assert_eq!((b.from.as_deref(), b.apply_delay_seconds), (Some("a"), Some(1.5)));
        assert_eq!(b.storage.as_ref().unwrap().role, "standby b");
    }
}
