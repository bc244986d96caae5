//! Checks whether mail was accepted as offered: refusals, missing answers, and the rate.

use super::check_reached;
use pgio_results::checks::remedy;
use pgio_results::model::{Check, Trial};

pub(super) fn checks(trial: &Trial) -> Vec<Check> {
    if trial.workload.kind != "mail" {
        return Vec::new();
    }
    std::iter::once(refused(trial)).chain(rate(trial)).collect()
}

fn value(trial: &Trial, name: &str) -> f64 {
    trial.metrics.get(name).and_then(|m| m.value).unwrap_or(0.0)
}

fn refused(trial: &Trial) -> Check {
    const ID: &str = "mail-refused";
    let number = |name: &str| value(trial, name);
    let (taken, refused) = (number("mail_recipients"), number("mail_refused"));
    let (unknown, undelivered) = (number("mail_unknown"), number("mail_undelivered"));
    let (deferred, dropped) = (number("mail_deferred"), number("mail_dropped_connections"));
    let bad = refused + unknown + undelivered;
    if bad + deferred + dropped == 0.0 {
        return Check::ok(ID, format!("all {taken} recipients were accepted at the first attempt"));
    }
    let message = format!(
        "{taken} recipients accepted, {refused} refused, {deferred} deferred, {unknown} without a reply, {undelivered} not delivered, {dropped} connections dropped"
    );
    let remedy = "check the mail server's log: every recipient must exist, and it must accept as many sessions as threads asks for";
    Check::warning(ID, message, remedy)
}

/// An open loop that falls behind measures another load than requested. Does not count
/// deliveries, which refusals and latencies as long as the window reduce as well.
fn rate(trial: &Trial) -> Option<Check> {
    const ID: &str = "mail-rate";
    let reached = trial.metrics.get("mail_rate_reached")?.value?;
    let offered = value(trial, "mail_offered_per_minute");
    let delivered = value(trial, "messages_per_minute");
    let message = format!(
        "{reached:.1} % of {offered:.0} messages/min could be started; {delivered:.0}/min were delivered"
    );
    Some(check_reached(ID, reached, message, remedy(ID)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict::{self, Ok, Warning};
    use pgio_results::model::Metric;

    fn verdicts(metrics: &[(&str, f64)]) -> Vec<CheckVerdict> {
        let mut trial = Trial::new();
        trial.workload.kind = "mail".to_owned();
        for (name, value) in metrics {
            let metric = Metric::new(Some(*value), "");
            trial.metrics.insert((*name).to_owned(), metric);
        }
        checks(&trial).into_iter().map(|c| c.verdict).collect()
    }

    #[test]
    fn failures_are_warnings_however_many() {
        let taken = ("mail_recipients", 1000.0);
        assert_eq!(verdicts(&[taken]), [Ok]);
        for name in [
            "mail_refused",
            "mail_unknown",
            "mail_undelivered",
            "mail_deferred",
            "mail_dropped_connections",
        ] {
            assert_eq!(verdicts(&[taken, (name, 5.0)]), [Warning], "{name}");
            assert_eq!(verdicts(&[taken, (name, 500.0)]), [Warning], "{name}");
        }
        assert_eq!(checks(&Trial::new()), []);
    }

    #[test]
    fn a_rate_above_capacity_is_reported() {
        let offered = ("mail_offered_per_minute", 1500.0);
        for (reached, verdict) in [(100.0, Ok), (98.0, Warning), (60.0, Warning)] {
            assert_eq!(verdicts(&[offered, ("mail_rate_reached", reached)])[1], verdict);
        }
        // All messages were started; the refusals have their own check.
        let few = [offered, ("mail_rate_reached", 100.0), ("messages_per_minute", 900.0)];
        assert_eq!(verdicts(&few)[1], Ok);
    }
}
