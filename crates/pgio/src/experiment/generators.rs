//! Which processes generate the load, if it is not this one alone: what a feature must offer for that.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use super::application::Job;
use super::target::Target;
use crate::host::stop::Stop;
use crate::workload::{Coordinator, EngineError};

/// The processes that an experiment has generate its load.
pub trait Generators: Debug {
    /// The key of what describes them among the facts of the environment, and the flag that asks for them.
    fn fact(&self) -> &'static str;

    /// How many there are, and what is divided among them. A run that continues must have the same.
    fn described(&self) -> String;

    /// A sentence for `--plan`.
    fn plan_line(&self) -> String;

    /// Refuses, before a server is started, what cannot be started, and work that they cannot do.
    fn check(&self, job: &Job) -> Result<(), EngineError>;

    /// Refuses work that cannot be divided among them. `servers` is the number of servers of the whole run.
    fn check_work(
        &self,
        servers: usize,
        targets: &BTreeMap<String, Target>,
    ) -> Result<(), EngineError>;

    /// Starts them for a whole run. Returns groups of them, to which the servers are assigned in turn.
    fn start(
        &self,
        servers: usize,
        run_id: &str,
        stop: &Stop,
    ) -> Result<Vec<Arc<dyn Coordinator>>, EngineError>;
}
