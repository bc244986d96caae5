//! What every engine that starts drivers implements, and the environment that it gives them.

use std::process::Stdio;
use std::time::Duration;

use crate::host::command::CommandLine;
use crate::host::exec::{SpawnOptions, own_stderr};
use crate::workload::drivers::environment::RANKS_VARIABLE;
use crate::workload::drivers::error::DriverError;
use pgio_link::{COORDINATOR_VARIABLE, LinkError, TOKEN_VARIABLE, Token};

/// What drivers need to find the coordinator and to be let in.
#[derive(Debug, Clone)]
pub struct Invitation {
    pub coordinator: String,
    pub token: Token,
    pub run_id: String,
}

/// An engine that starts drivers.
pub trait Launcher: Send {
    /// Refuses, before anything is started, what cannot work.
    fn check(&self) -> Result<(), DriverError>;

    /// Returns the token that the user has given to the drivers already, if any.
    fn token(&self) -> Result<Option<Token>, LinkError> {
        match std::env::var(TOKEN_VARIABLE) {
            Ok(text) => Token::parse(&text).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Whether drivers are on this machine, so that nobody else need reach the coordinator.
    fn is_on_this_machine(&self) -> bool {
        false
    }

    fn invite(&mut self, invitation: Invitation);

    /// Starts drivers of these ranks; some may have run before and be lost.
    fn start(&mut self, ranks: &[u32]) -> Result<(), DriverError>;

    /// Returns why drivers of these ranks will not come any more, if that is known.
    fn why_missing(&mut self, missing: &[u32]) -> Option<String>;

    /// How long drivers may take to connect.
    fn timeout(&self) -> Duration;

    /// Ends what is left of the engine's processes; drivers know that the run is over.
    fn end(&mut self);
}

/// The environment of drivers.
pub(super) fn with_invitation(
    command: CommandLine,
    invitation: &Invitation,
    ranks: &[u32],
) -> CommandLine {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    command
        .env(COORDINATOR_VARIABLE, &invitation.coordinator)
        .env(TOKEN_VARIABLE, invitation.token.expose())
        .env(RANKS_VARIABLE, ranks.join(","))
}

/// Ctrl-C on the terminal is for the coordinator, which tells the drivers.
pub(super) fn background_options() -> SpawnOptions {
    SpawnOptions {
        stdin: Stdio::null(),
        stdout: Stdio::null(),
        stderr: own_stderr(),
        parent_death_signal: None,
    }
}
