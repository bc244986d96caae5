//! Errors of applying, verifying and undoing treatments.
//!
//! `cli::exit` maps each variant to an exit code.

use crate::dataset::DatasetError;
use crate::exit_code::{HasExitCode, INTERRUPTED, REFUSED, UNFINISHED, USAGE};
use crate::host::exec::ExecError;
use crate::host::rights::RightsError;
use crate::pg::server::is_lost;
use pgio_connect::ConnectError;

use super::journal::JournalError;
use super::step::{Label, RecordError};

#[derive(Debug, thiserror::Error)]
pub enum TreatmentError {
    #[error("{0}")]
    Config(String),
    #[error("{0}")]
    Refused(String),
    /// Another server is where the changed one was.
    #[error("{0}")]
    OtherServer(String),
    #[error("cannot {doing}")]
    Postgres { doing: String, source: pgio_connect::Error },
    #[error("cannot reach the server to change or restore a setting")]
    Connect(#[source] ConnectError),
    #[error("{what} did not take effect within {seconds} s: {why}")]
    NotInForce { what: String, seconds: u64, why: String },
    #[error("cannot restart the server: {0}")]
    Restart(String),
    /// A stop was requested during a wait; the undo reverts the change.
    #[error("stopped")]
    Stopped,
    #[error(
        "{what} is now {found}, neither pgio's value ({ours}) nor the prior one ({prior}): someone changed it since; `pgio undo --keep` keeps it, `pgio undo --restore` restores the prior value"
    )]
    ChangedSince { what: String, found: String, ours: String, prior: String },
    /// Errors of steps that do not depend on each other.
    #[error("{0}")]
    Several(String),
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Host(#[from] ExecError),
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl HasExitCode for TreatmentError {
    fn code(&self) -> u8 {
        match self {
            TreatmentError::Config(_) => USAGE,
            TreatmentError::Connect(source) => source.code(),
            // Changes that stay in place have an error of their own.
            TreatmentError::Journal(source) => source.code(),
            TreatmentError::ChangedSince { .. } | TreatmentError::Several(_) => UNFINISHED,
            TreatmentError::Stopped => INTERRUPTED,
            TreatmentError::Refused(_)
            | TreatmentError::OtherServer(_)
            | TreatmentError::Postgres { .. }
            | TreatmentError::NotInForce { .. }
            | TreatmentError::Restart(_)
            | TreatmentError::Dataset(_)
            | TreatmentError::Host(_)
            | TreatmentError::Rights(_) => REFUSED,
        }
    }
}

impl TreatmentError {
    /// The current value is neither ours nor the prior one.
    pub(crate) fn changed_since(
        label: &Label,
        found: impl Into<String>,
        ours: impl Into<String>,
        prior: impl Into<String>,
    ) -> TreatmentError {
        let (found, ours, prior) = (found.into(), ours.into(), prior.into());
        TreatmentError::ChangedSince { what: label.to_string(), found, ours, prior }
    }

    /// Whether the server recovers because one of its processes was killed.
    pub(crate) fn is_recovery(&self) -> bool {
        match self {
            TreatmentError::Connect(source) => source.is_recovery(),
            TreatmentError::Postgres { source, .. } => is_lost(source),
            _ => false,
        }
    }

    /// Whether the changed server is not where it was.
    pub(crate) fn is_gone_server(&self) -> bool {
        match self {
            TreatmentError::OtherServer(_) => true,
            TreatmentError::Connect(source) => source.is_gone_server(),
            _ => false,
        }
    }

    /// For `map_err` of a query; `doing` completes "cannot ...".
    pub(crate) fn postgres(
        doing: impl Into<String>,
    ) -> impl FnOnce(pgio_connect::Error) -> TreatmentError {
        let doing = doing.into();
        move |source| TreatmentError::Postgres { doing, source }
    }
}

impl From<pgio_connect::Error> for TreatmentError {
    fn from(source: pgio_connect::Error) -> TreatmentError {
        TreatmentError::postgres("read the server's answer")(source)
    }
}

impl From<RecordError> for TreatmentError {
    fn from(misread: RecordError) -> TreatmentError {
        TreatmentError::Config(misread.to_string())
    }
}
