//! The exit codes of pgio, and the code of each error: an error type says its own beside its variants.

use pgio_connect::ConnectError;
use pgio_results::store::StoreError;
use pgio_verdict::history::HistoryError;

/// Every code with its meaning, for `--help`, the manual and docs/KEYS.md.
pub const CODES: &[(u8, &str)] = &[
    (OK, "success"),
    (FAILED, "any other failure"),
    (USAGE, "the command line or a file is wrong; nothing was done"),
    (CONNECT, "the server cannot be reached or refuses the login"),
    (
        REFUSED,
        "the server or the data set does not meet the requirements, or another run is at work there; nothing was changed",
    ),
    (
        TRIAL,
        "run: the trial failed or is invalid; compare: a condition has no valid trial, or the run gave up; the message or trials.jsonl has the reason",
    ),
    (
        UNFINISHED,
        "an interrupted run, or an undo, left changes in place: run `pgio undo` first; or another run is changing the server: wait for it",
    ),
    (FILES, "files cannot be read or written"),
    (
        WORSE,
        "--gate: a condition is worse than the baseline by more than the margin, or failed in more trials; --fail-if: a rule is broken",
    ),
    (
        UNDECIDED,
        "--gate, --fail-if: the results cannot tell whether a condition is worse by more than the margin",
    ),
    (INTERRUPTED, "stopped by Ctrl-C or a signal; all changes undone"),
];

pub const OK: u8 = 0;
/// Any failure without a code of its own.
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const CONNECT: u8 = 3;
pub const REFUSED: u8 = 4;
pub const TRIAL: u8 = 5;
pub const UNFINISHED: u8 = 6;
pub const FILES: u8 = 7;
pub const WORSE: u8 = 8;
pub const UNDECIDED: u8 = 9;
pub const INTERRUPTED: u8 = 130;

/// An error that ends the program with a code of its own.
pub trait HasExitCode: std::error::Error + Send + Sync + 'static {
    fn code(&self) -> u8;
}

impl HasExitCode for ConnectError {
    fn code(&self) -> u8 {
        match self {
            ConnectError::ConnectString(_)
            | ConnectError::BadValue { .. }
            | ConnectError::Unsupported { .. }
            | ConnectError::ServiceNotFound { .. }
            | ConnectError::ServiceFile { .. }
            | ConnectError::NoUser => USAGE,
            ConnectError::ServiceFileUnreadable { .. } => FILES,
            // The enum is non-exhaustive: what is added to it happens on a connection.
            _ => CONNECT,
        }
    }
}

impl HasExitCode for StoreError {
    fn code(&self) -> u8 {
        FILES
    }
}

impl HasExitCode for HistoryError {
    fn code(&self) -> u8 {
        USAGE
    }
}
