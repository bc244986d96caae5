//! The standbys of a private server: what each streams from, its delay and the devices below its data.
//!
//! A standby that others stream from is a server with a pg_stat_replication of its own, which the
//! server's sampler reads as well. Standbys of a user's server are known to telemetry only from the
//! primary's view.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::storage::{self, ServerDirectory};
use crate::host::Host;
use crate::pg::words;
use pgio_connect::ConnectParams;
use pgio_results::Warning;
use pgio_results::telemetry::{StandbyLag, Storage};

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
    let (mut found, warnings) = match storage::locate(&Host::local(), &directories) {
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
