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
use super::error::EngineError;
use super::outcome::{WindowEvent, WindowOutcome};
use crate::config::resolve::Extent;
use crate::host::stop::Stop;
use pgio_connect::ConnectParams;

/// The parameters that all participants share.
#[derive(Clone)]
pub struct Setup {
    pub params: ConnectParams,
    /// The condition's settings, by session.
    pub settings: Vec<(String, String)>,
    pub warmup: Duration,
    pub seed: u64,
    pub stop: Stop,
    /// Agrees on the start of the measured window with other servers; none: the window is this server's alone.
    pub opener: Option<Arc<dyn Opener>>,
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
