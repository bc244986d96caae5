//! Whether an open loop kept the rate that was asked for. Short, as every open loop shares the one threshold.

use crate::results::model::{Check, Trial};

/// Per cent of the calls due.
const RATE_WARNING: f64 = 99.0;

/// In an open loop that falls behind, latencies are of another load than was asked for.
pub(super) fn rate(trial: &Trial) -> Option<Check> {
    const ID: &str = "rate-not-reached";
    let reached = trial.metrics.get("rate_reached")?.value?;
    let asked = trial.workload.keys.get("rate")?.as_u64()?;
    let per_second = trial.metrics.get("calls_per_second")?.value?;
    let message = format!(
        "{reached:.1} % of {asked} calls/s could be begun; {per_second:.0}/s were answered"
    );
    let remedy = "ask for a lower rate, or for more sessions if they are what is short";
    Some(of_reach(ID, reached, message, remedy))
}

/// `reached` is the per cent of the calls due that was begun.
pub(super) fn of_reach(id: &str, reached: f64, message: String, remedy: &str) -> Check {
    match reached {
        r if r < RATE_WARNING => Check::warning(id, message, remedy),
        _ => Check::ok(id, message),
    }
}
