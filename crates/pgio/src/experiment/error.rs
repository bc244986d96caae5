//! Errors of a run on real servers.
//!
//! An error of one condition names it. `cli::exit` assigns the exit codes.

use crate::dataset::DatasetError;
use crate::pg::leftovers::LiveRun;
use crate::pg::server::ServerError;
use crate::treatment::TreatmentError;
use crate::workload::EngineError;
use pgio_connect::ConnectError;
use pgio_results::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error("condition `{condition}`")]
    Treatment { condition: String, source: Box<TreatmentError> },
    #[error("condition `{condition}`")]
    Settings { condition: String, source: Box<EngineError> },
    /// `beside` names the background work that needs connections as well, if any.
    #[error("condition `{condition}`{beside}")]
    Room { condition: String, beside: String, source: Box<EngineError> },
    #[error("condition `{condition}`: {why}")]
    Cycles { condition: String, why: String },
    #[error("condition `{condition}` cannot run on its targets in one window: {why}")]
    Joint { condition: String, why: String },
    #[error("cannot weave the conditions: {0}; set weave = false")]
    Weave(String),
    #[error("cannot weave the conditions: {0}; name a longer slice, or use \"auto\" or false")]
    ShortSlices(String),
    #[error(
        "manifest.json is damaged: slice_seconds is not a valid duration; start a new run in another directory"
    )]
    StoredSlice,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("lost the connection to the server")]
    ConnectionLost(#[source] ConnectError),
    #[error("a new session leads to another server")]
    OtherServer(#[source] Box<TreatmentError>),
    #[error(
        "the server came back as PostgreSQL {found} in place of {before}: its program was replaced during the run, so start a new experiment"
    )]
    OtherVersion { before: String, found: String },
    #[error("{}: wait until it ends, or interrupt it (Ctrl-C, `kill -INT`)", listed(.0))]
    OtherRuns(Vec<LiveRun>),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error("cannot prepare the server")]
    Postgres(#[from] pgio_connect::Error),
}

fn listed(runs: &[LiveRun]) -> String {
    runs.iter().map(LiveRun::to_string).collect::<Vec<_>>().join("; ")
}
