//! The kinds of work, and the window in which each is measured.
//!
//! A workload prepares its [`Participants`]: sessions that run blocks on the server (`pool`), sessions that pgio itself
//! drives (`client`), a program of the user's ([`command`]); features bring others. `phase` is the one loop that waits
//! for them, `window` is the window that they share, `participants` has its result; [`clock`] is the common start of
//! windows on several servers.
//!
//! To add one, follow "Adding to it" in ARCHITECTURE.md. Nothing here depends on conditions or experiments, and
//! nothing here prints.

pub(crate) mod client;
pub mod clock;
pub mod command;
pub mod commit;
pub(crate) mod error;
pub(crate) mod output;
pub(crate) mod participants;
pub(crate) mod phase;
mod pool;
pub(crate) mod prepare;
mod room;
mod session;
pub(crate) mod shared;
pub(crate) mod slice;
pub mod slob;
mod sql;
mod stall;
mod stopping;
mod weave;
pub(crate) mod window;
mod woven;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use pgio_connect::Client;
use serde::{Deserialize, Serialize};

pub use self::participants::{Counted, Progress, WindowEvent, WindowOutcome};
use crate::config::resolve::Extent;
use crate::host::stop::Stop;
pub(crate) use client::PART as CLIENT_PART;
pub use command::Command;
pub use error::EngineError;
pub use output::{Output, ProgramOutput};
pub use participants::{Generator, Participants, SessionShare, Setup};
use pgio_connect::ConnectParams;
use pgio_results::model::{Check, DatasetInfo, WorkloadInfo};
pub use pool::SessionPool;
pub use room::{NeededSessions, wait_for_declared_room, wait_for_room};
pub use shared::{Coordinator, PartKind, PartKinds};
pub use slice::Totals;
pub use weave::{WeavePlan, WovenCondition, WovenFailure, WovenOutcome};
pub use window::SHORTEST_PASS;

/// What one session is prepared with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// The table it works on, as shown in results.
    pub table: String,
    /// Settings pinned for the session, beside those that every session has.
    pub pins: Vec<(Cow<'static, str>, String)>,
    /// The DO block of a slice, with what differs from slice to slice in braces; empty where the
    /// client-side engine does the work.
    pub body: String,
    /// Statements whose plan must have a node of this type.
    pub plans: Vec<PlanCheck>,
    /// Tables, quoted, and what the session must be allowed on them.
    pub privileges: Vec<(String, Cow<'static, str>)>,
    /// Keep one transaction open over the whole window (`commit_every = 0`).
    pub one_transaction: bool,
    /// How long after the others it connects; a part of the warm-up.
    pub delay: Duration,
    /// Tables, quoted, that take the place of `{table}` in the body, one a pass of the block; none: it names its own.
    pub rotation: Vec<String>,
    /// A statement of its own after each slice.
    pub after_slice: Option<String>,
}

/// A statement whose plan must have a certain node; otherwise the workload is not the declared one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCheck {
    /// For PREPARE: the statement with $1, $2 … of type bigint.
    pub statement: String,
    pub parameters: Vec<u64>,
    /// Such as `Index Scan`.
    pub node: Cow<'static, str>,
}

/// The moments and streams of one slice, filled into the session's DO block.
#[derive(Debug, Clone, Copy, Default)]
pub struct SliceArgs {
    /// Seconds since the epoch on the server's clock; absent: at once.
    pub start_at: Option<f64>,
    pub until_at: f64,
    /// In 0..1, for the first slice of a stream.
    pub seed: Option<f64>,
    /// Transactions or calls left to do.
    pub at_most: Option<u64>,
}

/// How a condition's settings of sessions reach the sessions of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionSettings {
    /// Not at all: the workload has no session of its own on the server.
    Nowhere,
    /// pgio sets them in a session that is open.
    OnceOpen,
    /// The session starts with them.
    AtStart,
}

/// One kind of work, with its settings.
pub trait Workload: Send + Sync {
    fn info(&self) -> WorkloadInfo;
    fn extent(&self) -> Extent;
    /// Connections to the server that it is known to need.
    fn connections(&self) -> u32 {
        0
    }
    /// How a condition's settings of sessions reach the sessions that do the work.
    fn session_settings(&self) -> SessionSettings {
        SessionSettings::OnceOpen
    }
    /// Refuses settings of a condition that would not be in force in sessions that start with them.
    fn check_settings(
        &self,
        _params: &ConnectParams,
        _settings: &[(String, String)],
    ) -> Result<(), EngineError> {
        Ok(())
    }
    /// Sessions that several processes can divide; none: each does the whole work on its own host.
    fn divisible(&self) -> Option<u32> {
        Some(self.connections())
    }
    /// Refuses other processes whose hosts lack what the work needs there.
    fn check_others(&self, _others: &dyn Coordinator, _stop: &Stop) -> Result<(), EngineError> {
        Ok(())
    }
    /// Prepares all participants for their window, or none.
    fn prepare(
        self: Arc<Self>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError>;
    /// Whether each of its commits waits until its WAL is flushed, unless the condition says otherwise. Commits
    /// that wait for nothing may be faster than the device.
    fn commits_wait_for_flush(&self) -> bool {
        true
    }
    /// Returns what prevents it from running several conditions in turn inside one window; none:
    /// nothing.
    fn weave_obstacle(&self) -> Option<&'static str> {
        Some("only sessions that pgio itself runs on the server can switch")
    }
    /// Returns the work as work of sessions on the server, which a woven window needs.
    fn sessions(self: Arc<Self>) -> Option<Arc<dyn Sessions>> {
        None
    }
    /// What has to be there or be made the same before every trial.
    fn before_trial(&self, _admin: &mut Client) -> Result<(), pgio_connect::Error> {
        Ok(())
    }
    /// The data set's size now, where the workload has one.
    fn dataset(&self, _admin: &mut Client) -> Result<Option<DatasetInfo>, pgio_connect::Error> {
        Ok(None)
    }
    /// Metrics of its own, from all that was done in a window of `seconds`.
    fn metrics(&self, _totals: &Totals, _seconds: f64) -> Vec<(&'static str, Option<f64>)> {
        Vec::new()
    }
    /// Checks and removes what the trial left outside PostgreSQL, whether it succeeded or failed. After an order to
    /// stop it does not wait.
    fn after_trial(&self, _stop: &Stop) -> Vec<Check> {
        Vec::new()
    }
    /// The table that `before_trial` makes, if any.
    fn created_table(&self) -> Option<CreatedTable> {
        None
    }
    /// Removes what `before_trial` made.
    fn clean_up(&self, _admin: &mut Client) -> Result<(), pgio_connect::Error> {
        Ok(())
    }
}

/// A table that a workload makes on its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedTable {
    pub schema: String,
    pub name: &'static str,
    /// The comment by which pgio knows its own table.
    pub mark: &'static str,
}

/// Work that sessions of the server do.
pub trait Sessions: Send + Sync {
    fn count(&self) -> u32;
    /// The most passes of the block that a session's round of its tables has.
    fn passes(&self) -> u32 {
        1
    }
    fn script(&self, session: u32) -> Script;
}
