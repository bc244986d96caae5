//! Checks whether an open loop kept the requested rate. Short, as all open loops share one threshold.

use pgio_results::model::{Check, Trial};

/// Per cent of the calls due.
const RATE_WARNING: f64 = 99.0;

/// An open loop that falls behind measures another load than requested.
pub(super) fn rate(trial: &Trial) -> Option<Check> {
    const ID: &str = "rate-not-reached";
    let reached = trial.metrics.get("rate_reached")?.value?;
    let asked = trial.workload.keys.get("rate")?.as_u64()?;
    let per_second = trial.metrics.get("calls_per_second")?.value?;
    let message = format!(
        "{reached:.1} % of {asked} calls/s could be started; {per_second:.0}/s were answered"
    );
    let remedy = "use a lower rate, or more sessions if they are the bottleneck";
    Some(check_reached(ID, reached, message, remedy))
}

/// `reached` is the percentage of due calls that were started.
pub(super) fn check_reached(id: &str, reached: f64, message: String, remedy: &str) -> Check {
    match reached {
        r if r < RATE_WARNING => Check::warning(id, message, remedy),
        _ => Check::ok(id, message),
    }
}
