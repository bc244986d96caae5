//! What one trial needs to know.

use std::sync::Arc;
use std::time::Duration;

use postgres::Client;

use crate::config::experiment::Checkpoint;
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::pg::connect::ConnectParams;
use crate::pg::server::Server;
use crate::results::model::{Evidence, Place, When};
use crate::telemetry::Scene;
use crate::treatment::{Door, Treatment, World};
use crate::workload::Workload;

/// What a trial needs to know.
pub struct Request<'a> {
    pub run_id: &'a str,
    pub place: Option<Place>,
    pub params: &'a ConnectParams,
    pub server: &'a Server,
    pub workload: &'a Arc<dyn Workload>,
    pub treatments: &'a [Box<dyn Treatment>],
    pub session_settings: Vec<(String, String)>,
    pub warmup: Duration,
    pub checkpoint: Checkpoint,
    pub seed: u64,
    pub stop: &'a Stop,
    /// What is observed beside it; absent: nothing.
    pub scene: Option<&'a Scene>,
    /// For the treatments to read back.
    pub hosts: &'a Hosts,
    pub server_host: Option<&'a str>,
    pub private: bool,
}

impl Request<'_> {
    /// What can be read back now of everything that the condition put in force.
    pub(super) fn verify(&self, admin: &mut Client, when: When) -> Vec<Evidence> {
        let mut world = World {
            params: self.params,
            door: Door::Open(admin),
            hosts: self.hosts,
            server_host: self.server_host,
            // To look is not to touch.
            control: None,
            private: self.private,
            moved: Vec::new(),
            replicas: Vec::new(),
            stop: self.stop.clone(),
        };
        self.treatments.iter().flat_map(|t| t.verify(&mut world, when)).collect()
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("place", &self.place).finish_non_exhaustive()
    }
}
