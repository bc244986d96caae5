//! The engine that sends the statements of `slob` and `commit`, and how the client-side engine paces them.
//!
//! A key that the chosen engine does not support is refused even if its value changes little: a run
//! that ignored it would measure something other than requested.

use super::keys::{Key, Layer, Use, required};
use super::kinds::{CLIENT, Sessions, WorkloadKind};
use super::resolve::ResolveError;
use super::value::{Arrivals, EngineName};

/// The engine that sends the statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// PL/pgSQL blocks that run inside the sessions.
    Server,
    /// pgio sends each statement.
    Client(ClientSettings),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClientSettings {
    /// Calls in flight per session.
    pub pipeline: u32,
    /// Absent: each call starts after the previous one has finished (closed loop).
    pub pace: Option<Pace>,
    pub threads: u32,
}

/// The call rate of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pace {
    /// Calls per second over all sessions.
    pub rate: u64,
    pub arrivals: Arrivals,
}

/// Keys that both engines support.
const SHARED_KEYS: &[&str] = names! {
    update_pct run_time num_schemas num_threads work_unit update_work_unit scale access seed warmup
    sessions rows_per_transaction payload transactions index engine
};

impl Engine {
    /// Resolves the engine from a complete layer.
    pub(super) fn resolve(all: &Layer, kind: WorkloadKind) -> Result<Engine, ResolveError> {
        let changed = all.differing(&Layer::defaults(Use::Work(kind)));
        match required(all.engine) {
            EngineName::Server => match changed.into_iter().find(|key| CLIENT.contains(key)) {
                Some(key) => Err(ResolveError::RequiresClient(key.to_ascii_uppercase())),
                None => Ok(Engine::Server),
            },
            EngineName::Client => {
                let unsupported = |name: &&&str| {
                    let is_workload_key = Key::named(name)
                        .is_some_and(|key| kind.uses(key.name) && !key.is_used_by(Use::Load));
                    is_workload_key && !SHARED_KEYS.contains(name) && !CLIENT.contains(name)
                };
                if let Some(key) = changed.iter().find(unsupported) {
                    return Err(ResolveError::RequiresServer(key.to_ascii_uppercase()));
                }
                if let (Sessions::Tables, Some(sessions), Some(tables)) =
                    (kind.def().sessions, all.sessions, all.num_schemas)
                    && sessions < tables
                {
                    return Err(ResolveError::FewerSessionsThanTables { sessions, tables });
                }
                let arrivals = required(all.arrivals);
                if all.rate.is_none() && arrivals != Arrivals::Fixed {
                    return Err(ResolveError::ArrivalsWithoutRate);
                }
                Ok(Engine::Client(ClientSettings {
                    pipeline: required(all.pipeline),
                    pace: all.rate.map(|rate| Pace { rate, arrivals }),
                    threads: required(all.client_threads),
                }))
            }
        }
    }

    /// Returns the pace of an open loop; absent for a closed loop.
    pub fn pace(&self) -> Option<Pace> {
        match self {
            Engine::Client(client) => client.pace,
            Engine::Server => None,
        }
    }

    /// Returns the keys and values to record.
    pub fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        match self {
            Engine::Server => vec![("engine", EngineName::Server.name().into())],
            Engine::Client(client) => {
                let mut keys = vec![
                    ("engine", EngineName::Client.name().into()),
                    ("pipeline", client.pipeline.into()),
                    ("client_threads", client.threads.into()),
                ];
                if let Some(pace) = client.pace {
                    keys.push(("rate", pace.rate.into()));
                    keys.push(("arrivals", pace.arrivals.name().into()));
                }
                keys
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::resolve::{CommitSettings, SlobSettings};

    fn layer(pairs: &[(&str, &str)]) -> Layer {
        let mut layer = Layer::default();
        for (name, text) in pairs {
            Key::named(name).unwrap().set(&mut layer, text).unwrap();
        }
        layer
    }

    fn refused(pairs: &[(&str, &str)]) -> String {
        let slob = SlobSettings::resolve(layer(pairs)).map(|s| s.engine).unwrap_err();
        slob.to_string()
    }

    #[test]
    fn client_keys_require_the_client_engine() {
        for (key, value) in [("pipeline", "4"), ("rate", "100"), ("client_threads", "2")] {
            let error = refused(&[(key, value)]);
            assert!(
                error.starts_with(&key.to_ascii_uppercase()) && error.contains("ENGINE=client"),
                "{error}"
            );
            let valid = layer(&[(key, value), ("engine", "client")]);
            assert!(SlobSettings::resolve(valid.clone()).is_ok(), "{key}");
            assert!(CommitSettings::resolve(valid).is_ok(), "{key}");
        }
    }

    #[test]
    fn the_client_engine_refuses_unsupported_keys() {
        for (key, value) in [("commit_every", "10"), ("batch", "5")] {
            let error = refused(&[("engine", "client"), ("work_unit", "1"), (key, value)]);
            assert!(error.starts_with(&key.to_ascii_uppercase()), "{error}");
            assert!(error.contains("ENGINE=server"), "{error}");
        }
        let default = layer(&[("engine", "client"), ("commit_every", "1"), ("scale", "1G")]);
        assert!(SlobSettings::resolve(default).is_ok(), "default values are accepted");
        let loading = layer(&[("engine", "client"), ("create_base_table", "FALSE")]);
        assert!(SlobSettings::resolve(loading).is_ok());
    }

    #[test]
    fn client_sessions_use_only_one_table() {
        let keys =
            |sessions| layer(&[("engine", "client"), ("num_schemas", "4"), ("sessions", sessions)]);
        assert_eq!(SlobSettings::resolve(keys("6")).unwrap().sessions(), 6);
        let error = SlobSettings::resolve(keys("3")).unwrap_err().to_string();
        assert!(error.starts_with("SESSIONS=3") && error.contains("NUM_SCHEMAS=4"), "{error}");
    }

    #[test]
    fn arrivals_require_a_rate() {
        let error = refused(&[("engine", "client"), ("arrivals", "poisson")]);
        assert!(error.starts_with("ARRIVALS") && error.contains("RATE"), "{error}");
        let paced = layer(&[("engine", "client"), ("arrivals", "poisson"), ("rate", "500")]);
        let settings = CommitSettings::resolve(paced).unwrap();
        let Engine::Client(ClientSettings { pace: Some(pace), .. }) = settings.engine else {
            panic!("{:?}", settings.engine);
        };
        assert_eq!((pace.rate, pace.arrivals), (500, Arrivals::Poisson));
        let names: Vec<&str> = settings.engine.keys().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["engine", "pipeline", "client_threads", "rate", "arrivals"]);
    }
}
