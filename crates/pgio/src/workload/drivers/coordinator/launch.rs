//! What starts drivers: processes here, or an engine that the user has. pgio places nothing itself.
//!
//! Each engine hands the coordinator's addresses and the token to its drivers in their environment, never
//! in arguments. Drivers end by themselves when the run is over or the coordinator is gone.

mod command;
mod contract;
mod descendants;
mod kubernetes;
mod local;

use crate::config::drivers::{DriverEngine, DriverSpec};

pub use contract::{Invitation, Launcher};
pub use descendants::is_driver_descendant;
pub use kubernetes::manifest;

/// Returns the engine that the user names.
pub fn launcher(spec: &DriverSpec) -> Box<dyn Launcher> {
    match &spec.engine {
        DriverEngine::Local => Box::new(local::Local::default()),
        DriverEngine::Slurm => Box::new(command::Command::slurm()),
        DriverEngine::Run(line) => Box::new(command::Command::user_command(line.clone())),
        DriverEngine::Kubernetes => Box::new(kubernetes::Kubernetes::new(spec)),
    }
}
