//! The interface of all kinds of work to the caller: prepared participants that wait for one window.
//!
//! Participants are server sessions, a program, or sessions with a mail server. A workload prepares all
//! of them from one [`Setup`], or fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pgio_connect::Client;

use super::clock::Opener;
use super::coordinator::Drivers;
use super::error::EngineError;
use super::outcome::{WindowEvent, WindowOutcome};
use super::window::Listener;
use crate::config::resolve::Extent;
use crate::host::stop::Stop;
use pgio_connect::ConnectParams;

/// The parameters that all participants share.
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone, Default)]
pub enum Generator {
    /// This one alone.
    #[default]
    Alone,
    /// Drivers, for which this process is the coordinator.
    Drivers(Arc<Drivers>),
    /// This one is a driver and does a part of the work.
    Driver(Arc<DriverShare>),
}

/// A driver's share of the sessions.
#[derive(Debug)]
pub struct DriverShare {
    /// The number of its first session among all drivers' sessions.
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

/// The prepared participants of one trial.
pub trait Participants {
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
