//! What there is to observe for one target: found out once, since it takes time and changes seldom.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Watched;
use super::session;
use crate::pg::connect::ConnectParams;
use crate::pg::server::Server;
use crate::results::Warning;
use crate::results::telemetry::{Probes, Storage};

#[derive(Debug)]
pub struct Scene {
    pub(super) cadence: Duration,
    pub(super) watched: Watched,
    pub(super) storage: Vec<Storage>,
    pub(super) probes: Option<Probes>,
    pub(super) warnings: Vec<Warning>,
}

impl Scene {
    pub fn survey(params: &ConnectParams, server: &Server, cadence: Duration) -> Scene {
        Scene {
            cadence,
            watched: Watched {
                params: session::choose(params),
                version_num: server.info.version_num,
                database: server.info.database.clone(),
            },
            storage: Vec::new(),
            probes: None,
            warnings: Vec::new(),
        }
    }

    /// The host as it is now: what must not change while a trial runs.
    pub fn environment(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}
