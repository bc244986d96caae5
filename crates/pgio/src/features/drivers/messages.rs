//! What the coordinator and its drivers have in common: the messages between them, errors, environment.
//!
//! Several drivers generate the load of one window; the process that runs the experiment coordinates. The code of
//! the two processes is apart: [`super::coordinator`] runs in the pgio that runs the experiment, [`super::serve`]
//! in each `pgio drive`. Both use this file, and neither uses the other.
//!
//! Drivers dial in ([`pgio_link`]) and stay for the whole run. For each trial the coordinator sends each its
//! part of the sessions, waits until all are ready, opens one window for all and adds up what they did. Where
//! each server has drivers of its own, there is one roster for each server.
//!
//! There are never fewer drivers than asked for: one that is lost before the window is waited for, one
//! that is lost later makes the trial invalid.
//!
//! Each message but `End` carries the number of its trial, so that an answer to an abandoned trial is recognized.

use std::collections::{BTreeMap, BTreeSet};

use pgio_connect::Client;
use serde::{Deserialize, Serialize};

use crate::config::resolve::Extent;
use crate::exit_code::{CONNECT, HasExitCode, REFUSED, TRIAL};
use crate::host::exec::ExecError;
use crate::pg::leftovers::application_name;
use crate::workload::Totals;
use crate::workload::error::{EngineError, WorkError};
use crate::workload::output::ProgramOutput;
use crate::workload::shared::Part;
use pgio_link::LinkError;
use pgio_results::model::{SessionTotals, Slice};

/// A driver's part of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Assignment {
    pub dsn: String,
    pub application_name: String,
    pub part: Part,
    /// The number of its first session, and the number of all.
    pub first: u32,
    pub of: u32,
    /// The condition's settings, by session.
    pub settings: Vec<(String, String)>,
    pub reads_settings: bool,
    pub warmup_seconds: f64,
    pub seed: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToDriver {
    /// Connect once and say which server answers.
    Reach {
        number: u64,
        dsn: String,
        application_name: String,
    },
    /// Look for what the work needs on this host.
    Check {
        number: u64,
        part: Box<Part>,
    },
    Prepare {
        number: u64,
        assignment: Box<Assignment>,
    },
    /// Run the measured window, once it opens.
    Run {
        number: u64,
        extent: Extent,
    },
    /// A window opens at this moment of the driver's clock.
    Open {
        number: u64,
        at: i64,
        epoch: f64,
    },
    /// The window's end has been observed; sessions may end.
    Release {
        number: u64,
    },
    /// End all sessions of this trial.
    Abort {
        number: u64,
        urgent: bool,
    },
    /// The run is over.
    End,
}

/// What a driver says about the trial, or in answer to the question, of this number.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FromDriver {
    pub number: u64,
    pub report: Report,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The name of the server.
    Reached(String),
    /// The host has what the work needs.
    Checked,
    /// All sessions are ready for the next window: the warm-up, then the measured one.
    AtGate,
    /// All sessions are prepared and warmed up.
    Ready {
        pids: Vec<i32>,
        pinned: BTreeMap<String, String>,
    },
    /// The window opened at this moment of the driver's clock.
    Opened(i64),
    Progress(PartProgress),
    /// The last call was answered at this moment of the driver's clock; the sessions are still open.
    Closed(i64),
    /// Server processes that serve a program of this driver.
    Serving(Vec<i32>),
    /// What its workload reports for the coordinator's; the last of it comes before `Ended`.
    Kept(Part),
    Ended(Box<PartResult>),
    Failed(Failure),
}

/// What a driver says of its failure.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    pub message: String,
    pub fault: Fault,
    /// Somebody else than the coordinator ended the driver.
    pub stopped: bool,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct PartProgress {
    pub covered: f64,
    pub block_visits: u64,
    pub blocks_scanned: u64,
    pub commits: u64,
    pub messages: u64,
}

/// What a driver did in a window that it ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct PartResult {
    pub totals: Totals,
    pub sessions: Vec<SessionTotals>,
    pub timeline: Vec<Slice>,
    pub seconds: f64,
    pub late: f64,
    pub cancelled_sync_rep: usize,
    pub readings: BTreeSet<(String, String)>,
    /// What a program wrote.
    pub output: Option<ProgramOutput>,
    /// CPU time of the driver's process inside the window.
    pub cpu_seconds: f64,
    pub cores: u32,
    /// The longest time in seconds for which it stood still.
    pub stood_still: f64,
    /// Present if the window ended early.
    pub error: Option<String>,
    /// It did because somebody else than the coordinator ended the driver.
    pub stopped: bool,
}

/// Where the cause of a driver's failure lies; decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The server cannot be reached or refuses the login.
    Connect,
    /// The server does not meet the requirements.
    Requirements,
    /// Anything else.
    Work,
}

#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(
        "{drivers} drivers are more than the workload has sessions ({sessions}): use fewer drivers, or raise sessions"
    )]
    MoreThanSessions { drivers: u32, sessions: usize },
    #[error("{connected} of {drivers} drivers have connected within {seconds} s{detail}")]
    Missing { connected: usize, drivers: u32, seconds: u64, detail: String },
    #[error("driver {rank} on {host}: {message}")]
    Failed { rank: u32, host: String, message: String, fault: Fault },
    #[error("driver {rank} on {host} was lost {}: {why}", if *.inside { "inside the window" } else { "before the window" })]
    Lost { rank: u32, host: String, why: String, inside: bool },
    #[error(
        "driver {rank} on {host} reached another server ({found}) than the coordinator ({expected}): write a host name that is the same on all machines into dsn"
    )]
    OtherServer { rank: u32, host: String, found: String, expected: String },
    #[error("{engine} starts the drivers, but `{program}` is not installed here: {hint}")]
    NoProgram { engine: &'static str, program: String, hint: &'static str },
    #[error("{0}")]
    Refused(String),
    #[error("the engine that starts the drivers ended: {0}")]
    Ended(String),
    #[error("the coordinator gave an unexpected order")]
    UnexpectedOrder,
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl HasExitCode for DriverError {
    fn code(&self) -> u8 {
        match self {
            DriverError::Failed { fault: Fault::Connect, .. } | DriverError::OtherServer { .. } => {
                CONNECT
            }
            DriverError::Failed { fault: Fault::Work, .. } | DriverError::Lost { .. } => TRIAL,
            DriverError::Failed { fault: Fault::Requirements, .. }
            | DriverError::MoreThanSessions { .. }
            | DriverError::Missing { .. }
            | DriverError::NoProgram { .. }
            | DriverError::Refused(_)
            | DriverError::Ended(_)
            | DriverError::UnexpectedOrder
            | DriverError::Exec(_)
            | DriverError::Link(_) => REFUSED,
        }
    }
}

impl From<DriverError> for EngineError {
    fn from(error: DriverError) -> EngineError {
        let lost = matches!(error, DriverError::Lost { .. }).then(|| super::lost(&error));
        EngineError::Work(WorkError { lost, ..WorkError::new(error) })
    }
}

/// Application name for the sessions of a driver.
pub(super) fn application_name_of_driver(run_id: &str, rank: u32) -> String {
    format!("{} driver {rank}", application_name(run_id))
}

/// The variable with the ranks of the processes that one start makes, separated by commas.
pub(super) const RANKS_VARIABLE: &str = "PGIO_DRIVE_RANKS";

/// The variable in which Slurm gives each process of a step its number.
pub(super) const SLURM_RANK_VARIABLE: &str = "SLURM_PROCID";

/// Returns text that identifies a server for every client: port, start time and database.
pub(super) fn server_name(client: &mut Client) -> Result<String, pgio_connect::Error> {
    let row = client.query_one(
        "SELECT coalesce(current_setting('port', true), '') || '/' || \
                (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text || '/' || current_database()",
        &[],
    )?;
    row.try_get(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::to_raw_value;

    #[test]
    fn fuzzed_messages_of_a_peer_are_read_or_refused() {
        let result = PartResult {
            sessions: vec![SessionTotals::default()],
            readings: BTreeSet::from([("fsync".to_owned(), "on".to_owned())]),
            error: Some("lost".to_owned()),
            ..PartResult::default()
        };
        let dsn = "host=h".to_owned();
        let part = Part { kind: "command".to_owned(), work: to_raw_value(&2).unwrap() };
        let samples = [
            Report::Ended(Box::new(result)),
            Report::Progress(PartProgress::default()),
            Report::Opened(i64::MAX),
        ]
        .map(|report| serde_json::to_string(&FromDriver { number: 7, report }).unwrap());
        let commands = [
            ToDriver::Check { number: 7, part: Box::new(part) },
            ToDriver::Reach { number: 7, dsn, application_name: "pgio".to_owned() },
            ToDriver::Open { number: 7, at: -1, epoch: 1.5 },
        ]
        .map(|message| serde_json::to_string(&message).unwrap());
        pgio_fuzz::fuzz(&[samples, commands].concat(), |bytes| {
            match serde_json::from_slice::<FromDriver>(bytes) {
                Ok(message) => drop(serde_json::to_string(&message).unwrap()),
                Err(error) => pgio_fuzz::print(&error),
            }
            if let Err(error) = serde_json::from_slice::<ToDriver>(bytes) {
                pgio_fuzz::print(&error);
            }
        });
    }
}
