//! Who sends the statements of `slob` and `commit`, and how the client-side engine paces them.
//!
//! A key that the chosen engine does not know is refused, whatever it says: a run that passed over
//! it would measure something else than was asked for.

use super::keys::{Key, Layer, Use};
use super::resolve::{ResolveError, given};
use super::value::{Arrivals, EngineName};

/// Who sends the statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Blocks of PL/pgSQL in the sessions themselves.
    Server,
    /// pgio, statement by statement.
    Client(ClientSettings),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientSettings {
    /// Calls that a session may have under way.
    pub pipeline: u32,
    /// Absent: each call follows the one before (closed loop).
    pub pace: Option<Pace>,
    pub threads: u32,
}

/// An open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Calls per second of all sessions together.
    pub rate: u64,
    pub arrivals: Arrivals,
}

/// Of the client-side engine alone.
const CLIENT_KEYS: &[&str] = &["pipeline", "rate", "arrivals", "client_threads"];

/// What it does as the server-side engine does.
const SHARED_KEYS: &[&str] = &[
    "update_pct",
    "run_time",
    "num_schemas",
    "num_threads",
    "work_unit",
    "update_work_unit",
    "scale",
    "access",
    "seed",
    "warmup",
    "sessions",
    "rows_per_transaction",
    "payload",
    "transactions",
    "index",
    "engine",
];

impl Engine {
    /// From all keys, defaults included.
    pub(super) fn resolve(all: &Layer, using: Use) -> Result<Engine, ResolveError> {
        let said = all.differing(&Layer::defaults(using));
        match given(all.engine) {
            EngineName::Server => match said.into_iter().find(|key| CLIENT_KEYS.contains(key)) {
                Some(key) => Err(ResolveError::NeedsClient(key.to_ascii_uppercase())),
                None => Ok(Engine::Server),
            },
            EngineName::Client => {
                let unknown = |name: &&&str| {
                    let of_workload = Key::named(name).is_some_and(|key| {
                        key.uses.contains(&using) && !key.uses.contains(&Use::Load)
                    });
                    of_workload && !SHARED_KEYS.contains(name) && !CLIENT_KEYS.contains(name)
                };
                if let Some(key) = said.iter().find(unknown) {
                    return Err(ResolveError::NeedsServer(key.to_ascii_uppercase()));
                }
                if let (Use::Slob, Some(sessions), Some(tables)) =
                    (using, all.sessions, all.num_schemas)
                    && sessions < tables
                {
                    return Err(ResolveError::TablesInTurn { sessions, tables });
                }
                let arrivals = given(all.arrivals);
                if all.rate.is_none() && arrivals != Arrivals::Fixed {
                    return Err(ResolveError::ArrivalsWithoutRate);
                }
                Ok(Engine::Client(ClientSettings {
                    pipeline: given(all.pipeline),
                    pace: all.rate.map(|rate| Pace { rate, arrivals }),
                    threads: given(all.client_threads),
                }))
            }
        }
    }

    /// Where calls begin at a rate of their own.
    pub fn pace(&self) -> Option<Pace> {
        match self {
            Engine::Client(client) => client.pace,
            Engine::Server => None,
        }
    }

    /// For the record: the keys that say it.
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
    fn keys_of_the_client_need_the_client() {
        for (key, value) in [("pipeline", "4"), ("rate", "100"), ("client_threads", "2")] {
            let said = refused(&[(key, value)]);
            assert!(
                said.starts_with(&key.to_ascii_uppercase()) && said.contains("ENGINE=client"),
                "{said}"
            );
            let fine = layer(&[(key, value), ("engine", "client")]);
            assert!(SlobSettings::resolve(fine.clone()).is_ok(), "{key}");
            assert!(CommitSettings::resolve(fine).is_ok(), "{key}");
        }
    }

    #[test]
    fn the_client_refuses_what_it_does_not_do() {
        for (key, value) in [("commit_every", "10"), ("batch", "5")] {
            let said = refused(&[("engine", "client"), ("work_unit", "1"), (key, value)]);
            assert!(said.starts_with(&key.to_ascii_uppercase()), "{said}");
            assert!(said.contains("ENGINE=server"), "{said}");
        }
        let default = layer(&[("engine", "client"), ("commit_every", "1"), ("scale", "1G")]);
        assert!(SlobSettings::resolve(default).is_ok(), "what is the default changes nothing");
        let loading = layer(&[("engine", "client"), ("create_base_table", "FALSE")]);
        assert!(SlobSettings::resolve(loading).is_ok());
    }

    #[test]
    fn a_session_of_the_client_stays_at_its_table() {
        let of =
            |sessions| layer(&[("engine", "client"), ("num_schemas", "4"), ("sessions", sessions)]);
        assert_eq!(SlobSettings::resolve(of("6")).unwrap().sessions(), 6);
        let said = SlobSettings::resolve(of("3")).unwrap_err().to_string();
        assert!(said.starts_with("SESSIONS=3") && said.contains("NUM_SCHEMAS=4"), "{said}");
    }

    #[test]
    fn arrivals_are_of_a_rate() {
        let said = refused(&[("engine", "client"), ("arrivals", "poisson")]);
        assert!(said.starts_with("ARRIVALS") && said.contains("RATE"), "{said}");
        let paced = layer(&[("engine", "client"), ("arrivals", "poisson"), ("rate", "500")]);
        let settings = CommitSettings::resolve(paced).unwrap();
        let Engine::Client(ClientSettings { pace: Some(pace), .. }) = settings.engine else {
            panic!("{:?}", settings.engine);
        };
        assert_eq!((pace.rate, pace.arrivals), (500, Arrivals::Poisson));
        let names: Vec<&str> = settings.engine.keys().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["engine", "pipeline", "client_threads", "rate", "arrivals"]);
    }

    /// So that no key of a workload is forgotten by both engines.
    #[test]
    fn every_name_is_a_key() {
        for name in CLIENT_KEYS.iter().chain(SHARED_KEYS) {
            assert!(Key::named(name).is_some(), "{name}");
        }
    }
}
