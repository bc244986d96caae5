//! One line of a command as it is executed: its arguments and its time limit.

use super::environment::CommandEnvironment;
use super::runner::Job;
use crate::config::command::{CommandSettings, Line};
use crate::host::command::quoted;

/// Fills the placeholders of a line; `key` is its key in `[workload]`.
pub(super) fn job(
    settings: &CommandSettings,
    key: &'static str,
    line: &Line,
    environment: &CommandEnvironment,
) -> Job {
    let (limit, limit_key) = match key {
        "setup" => (settings.spec.setup_limit, "setup_limit"),
        _ => (settings.time_limit, "time_limit"),
    };
    Job { key, argv: line.fill(&|name| environment.value(name), quoted), limit, limit_key }
}
