//! The interface of all kinds of work to the caller: prepared participants that wait for one window.
//!
//! Participants are server sessions, a program, or sessions with a mail server. A workload prepares all
//! of them from one [`Setup`], or fails.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postgres::Client;

use super::clock::Opener;
use super::coordinator::proof::Proof;
use super::drivers::Work;
use super::error::EngineError;
use super::outcome::{WindowEvent, WindowOutcome};
use super::window::Listener;
use crate::config::resolve::Extent;
use crate::host::stop::Stop;
use pgio_connect::ConnectParams;

/// The parameters that all participants share.
#[derive(Clone)]
pub struct Setup {
    pub params: ConnectParams,
    /// The condition's settings, by session.
    pub settings: Vec<(String, String)>,
    /// Whether any condition of the experiment has such settings. Then the sessions of each one make the round trip
    /// that reads them, even if this condition has none.
    pub reads_settings: bool,
    pub warmup: Duration,
    pub seed: u64,
    pub stop: Stop,
    /// Agrees on the start of the measured window with other servers or drivers; none: the window is its own.
    pub opener: Option<Arc<dyn Opener>>,
    pub generator: Generator,
}

/// Which processes generate the load.
#[derive(Clone, Default)]
pub enum Generator {
    /// This one alone.
    #[default]
    Alone,
    /// Drivers, for which this process is the coordinator.
    Drivers(Arc<dyn Remote>),
    /// This one is a driver and does a part of the work.
    Driver(Arc<DriverShare>),
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Generator::Alone => "Alone",
            Generator::Drivers(_) => "Drivers",
            Generator::Driver(_) => "Driver",
        })
    }
}

impl fmt::Debug for DriverShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverShare({} of {})", self.first, self.of)
    }
}

/// The drivers as a workload sees them.
pub trait Remote: Send + Sync {
    /// Has every driver look for what the work needs on its host.
    fn check(&self, work: Work, stop: &Stop) -> Result<(), EngineError>;

    /// Prepares the work on all drivers, or on none. `proof` is the server's own count of it; none where the
    /// work is not PostgreSQL's.
    fn prepare(
        self: Arc<Self>,
        work: Work,
        proof: Option<Proof>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError>;
}

/// A driver's share of the sessions.
pub struct DriverShare {
    /// The number of its first session among those of all drivers.
    pub first: u32,
    /// Sessions of all drivers.
    pub of: u32,
}

impl Setup {
    /// Returns the number of this process's first session.
    pub(super) fn first_session(&self) -> u32 {
        self.share().map_or(0, |share| share.first)
    }

    /// Returns the number of sessions of all processes, of which this one has `own`.
    pub(super) fn all_sessions(&self, own: usize) -> u64 {
        self.share().map_or(own as u64, |share| u64::from(share.of))
    }

    pub(super) fn share(&self) -> Option<&DriverShare> {
        match &self.generator {
            Generator::Driver(share) => Some(share),
            Generator::Alone | Generator::Drivers(_) => None,
        }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("params", &self.params)
            .field("settings", &self.settings)
            .field("warmup", &self.warmup)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// The prepared participants of one trial.
pub trait Participants: fmt::Debug {
    /// Returns the server processes that do the work.
    fn pids(&self) -> Vec<i32> {
        Vec::new()
    }

    /// Returns all pinned settings, as the sessions read them back.
    fn pinned(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Opens the window and returns when the work has ended. `listener` receives both events and the
    /// progress some twenty times a second, with a connection that is free for reading evidence.
    fn run(
        self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError>;
}

/// Prepared participants, and what is done once they have ended, whether they succeeded or failed.
pub(super) struct Completed<F> {
    pub(super) prepared: Box<dyn Participants>,
    pub(super) complete: F,
}

impl<F> fmt::Debug for Completed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completed").field(&self.prepared).finish()
    }
}

impl<F> Participants for Completed<F>
where
    F: FnOnce(
        Result<WindowOutcome, EngineError>,
        &mut Client,
        Listener<'_>,
    ) -> Result<WindowOutcome, EngineError>,
{
    fn pids(&self) -> Vec<i32> {
        self.prepared.pids()
    }

    fn pinned(&self) -> BTreeMap<String, String> {
        self.prepared.pinned()
    }

    fn run(
        self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        let ran = self.prepared.run(admin, extent, listener);
        (self.complete)(ran, admin, listener)
    }
}
