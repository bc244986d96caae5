//! The inputs of one trial.

use std::sync::Arc;
use std::time::Duration;

use pgio_connect::Client;

use super::joint::RendezvousMember;
use crate::config::experiment::Checkpoint;
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::pg::server::Server;
use crate::telemetry::TelemetrySources;
use crate::treatment::{AdminSession, ChangedServer, Context, InForce, Layout};
use crate::workload::clock::Opener;
use crate::workload::{Generator, Setup, Workload};
use pgio_connect::ConnectParams;
use pgio_results::change::Change;
use pgio_results::model::{Evidence, TrialPosition, When};

/// The inputs of one trial.
pub struct Request<'a> {
    pub run_id: &'a str,
    pub place: Option<TrialPosition>,
    pub params: &'a ConnectParams,
    pub server: &'a Server,
    pub workload: &'a Arc<dyn Workload>,
    /// The changes of the condition.
    pub declared: &'a [Change],
    pub session_settings: Vec<(String, String)>,
    /// Whether any condition of the experiment has some.
    pub reads_settings: bool,
    pub warmup: Duration,
    pub checkpoint: Checkpoint,
    pub seed: u64,
    pub stop: &'a Stop,
    /// What telemetry observes; none disables it.
    pub sources: Option<&'a TelemetrySources>,
    /// Hosts for the treatments to read back from.
    pub hosts: &'a Hosts,
    pub server_host: Option<&'a str>,
    pub private: bool,
    /// Its part in a joint window; none: the window is its own.
    pub member: Option<Arc<RendezvousMember>>,
    /// Which processes generate the load.
    pub generator: Generator,
}

impl Request<'_> {
    /// Returns what the participants are prepared with.
    pub(super) fn setup(&self) -> Setup {
        Setup {
            params: self.params.clone(),
            settings: self.session_settings.clone(),
            reads_settings: self.reads_settings,
            warmup: self.warmup,
            seed: self.seed,
            stop: self.stop.clone(),
            opener: self.member.clone().map(|member| member as Arc<dyn Opener>),
            generator: self.generator.clone(),
        }
    }

    /// Reads back everything that the condition put in force.
    pub(super) fn verify(
        &self,
        in_force: &mut [Box<dyn InForce>],
        admin: &mut Client,
        when: When,
    ) -> Vec<Evidence> {
        let mut context = Context {
            params: self.params,
            session: AdminSession::Open(admin),
            changed: ChangedServer::default(),
            hosts: self.hosts,
            server_host: self.server_host,
            // Reading back changes nothing.
            control: None,
            private: self.private,
            layout: Layout::default(),
            streaming: Vec::new(),
            is_renewed: false,
            stop: self.stop.clone(),
        };
        in_force.iter_mut().flat_map(|t| t.verify(&mut context, when)).collect()
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("place", &self.place).finish_non_exhaustive()
    }
}
