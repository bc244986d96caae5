//! What every kind of work has in common for its caller: participants that are ready wait for one window.
//!
//! Participants are sessions of the server, a program, or sessions with a mail server. A workload
//! prepares all of them or none, from one [`Setup`].

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use postgres::Client;

use super::error::EngineError;
use super::outcome::{WindowEvent, WindowOutcome};
use crate::config::resolve::Extent;
use crate::host::stop::Stop;
use crate::pg::connect::ConnectParams;

/// What all participants have in common.
#[derive(Clone)]
pub struct Setup {
    pub params: ConnectParams,
    /// Settings that a condition asks for, by session.
    pub settings: Vec<(String, String)>,
    pub warmup: Duration,
    pub seed: u64,
    pub stop: Stop,
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

/// The participants of one trial, all of them ready.
pub trait Participants: fmt::Debug {
    /// The server's processes that do the work.
    fn pids(&self) -> Vec<i32> {
        Vec::new()
    }

    /// Every setting pinned in the sessions, as read back there.
    fn pinned(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Opens the window and returns when the work has ended. `listener` hears of both, and some
    /// twenty times a second between, with a connection that is free for reading evidence.
    fn run(
        self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError>;
}
