//! What starts drivers: processes here, or an engine that the user has. pgio places nothing itself.
//!
//! Each engine hands the coordinator's addresses and the token to its drivers in their environment, never
//! in arguments. Drivers end by themselves when the run is over or the coordinator is gone.

mod command;
mod kubernetes;
mod local;

use std::process::Stdio;
use std::time::Duration;

use super::error::DriverError;
use crate::config::drivers::{DriverEngine, DriverSpec};
use crate::host::command::CommandLine;
use crate::host::exec::SpawnOptions;
use pgio_link::{COORDINATOR_VARIABLE, LinkError, TOKEN_VARIABLE, Token};

pub use kubernetes::manifest;

/// The variable with the ranks of the processes that one start makes, separated by commas.
pub const RANKS_VARIABLE: &str = "PGIO_DRIVE_RANKS";

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
    fn ended(&mut self, missing: &[u32]) -> Option<String>;

    /// How long drivers may take to connect.
    fn patience(&self) -> Duration;

    /// Ends what is left of the engine's processes; drivers have been told that the run is over.
    fn end(&mut self);
}

/// Returns the engine that the user names.
pub fn launcher(spec: &DriverSpec) -> Box<dyn Launcher> {
    match &spec.engine {
        DriverEngine::Local => Box::new(local::Local::default()),
        DriverEngine::Slurm => Box::new(command::Command::slurm()),
        DriverEngine::Run(line) => Box::new(command::Command::of_user(line.clone())),
        DriverEngine::Kubernetes => Box::new(kubernetes::Kubernetes::new(spec)),
    }
}

/// The environment of drivers.
fn invited(command: CommandLine, invitation: &Invitation, ranks: &[u32]) -> CommandLine {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    command
        .env(COORDINATOR_VARIABLE, &invitation.coordinator)
        .env(TOKEN_VARIABLE, invitation.token.expose())
        .env(RANKS_VARIABLE, ranks.join(","))
}

/// In a process group of its own: Ctrl-C on the terminal is for the coordinator, which tells the drivers.
fn in_background() -> SpawnOptions {
    SpawnOptions {
        stdin: Stdio::null(),
        stdout: Stdio::null(),
        stderr: Stdio::inherit(),
        own_group: true,
        parent_death_signal: None,
    }
}
