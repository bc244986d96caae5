//! The checks of mail, and those whether it was accepted as offered: refusals, missing answers, and the rate. What was
//! delivered [`super::work`] judges after the trial.

use crate::experiment::trial_checks::check_reached;
use pgio_results::change::Change;
use pgio_results::checks::{CheckDef, behavior, def};
use pgio_results::model::{Check, Trial};
use pgio_results::thresholds::{RATE_REACHED, Share};

pub(super) const UNVERIFIED: &str = "mail-unverified";
pub(super) const LOST: &str = "mail-lost";
pub(super) const EARLIER: &str = "mail-earlier";
const REFUSED: &str = "mail-refused";
const RATE: &str = "mail-rate";

/// Share of copies from an earlier trial above which this trial did different work.
pub(super) const MOST_EARLIER: Share = Share(0.01);
const RATE_REMEDY: &str = "lower messages_rate or use more threads; otherwise latency from the intended start grows during the whole window";

pub(super) fn definitions() -> Vec<CheckDef> {
    vec![
        def(
            UNVERIFIED,
            "pgio could not check whether accepted messages are in their mail directories",
            "",
            "give pgio read and write access to them, or remove maildir",
        ),
        behavior(
            LOST,
            "an accepted message is missing from its mail directory, altered, or duplicated",
            "check the mail server's log; maildir must be its delivery directory, and nothing else may remove mail",
        ),
        def(
            EARLIER,
            format!(
                "more than {MOST_EARLIER} of the delivered messages belong to an earlier trial"
            ),
            "some delivered messages belong to an earlier trial",
            "check the mail server's log for the reason of the delay; lower messages_rate, or deliver with protocol = \"lmtp\"",
        ),
        behavior(
            REFUSED,
            "recipients were refused, deferred, not answered or abandoned, or a connection was dropped",
            "check the mail server's log: every recipient must exist, and the server must accept as many sessions as threads",
        ),
        behavior(
            RATE,
            format!(
                "fewer than {RATE_REACHED} of the messages due by messages_rate were started inside the window: the server or the number of threads is at its limit"
            ),
            RATE_REMEDY,
        ),
    ]
}

pub(super) fn judge(trial: &Trial, _: &[Change]) -> Vec<Check> {
    if trial.workload.kind != "mail" {
        return Vec::new();
    }
    std::iter::once(refused(trial)).chain(rate(trial)).collect()
}

fn value(trial: &Trial, name: &str) -> f64 {
    trial.metrics.get(name).and_then(|m| m.value).unwrap_or(0.0)
}

fn refused(trial: &Trial) -> Check {
    let number = |name: &str| value(trial, name);
    let (taken, refused) = (number("mail_recipients"), number("mail_refused"));
    let (unknown, undelivered) = (number("mail_unknown"), number("mail_undelivered"));
    let (deferred, dropped) = (number("mail_deferred"), number("mail_dropped_connections"));
    let bad = refused + unknown + undelivered;
    if bad + deferred + dropped == 0.0 {
        return Check::ok(
            REFUSED,
            format!("all {taken} recipients were accepted at the first attempt"),
        );
    }
    let message = format!(
        "{taken} recipients accepted, {refused} refused, {deferred} deferred, {unknown} without a reply, {undelivered} not delivered, {dropped} connections dropped"
    );
    let remedy = "check the mail server's log: every recipient must exist, and it must accept as many sessions as threads asks for";
    Check::warning(REFUSED, message, remedy)
}

/// An open loop that falls behind measures another load than requested. Does not count
/// deliveries, which refusals and latencies as long as the window reduce as well.
fn rate(trial: &Trial) -> Option<Check> {
    let reached = trial.metrics.get("mail_rate_reached")?.value?;
    let offered = value(trial, "mail_offered_per_minute");
    let delivered = value(trial, "messages_per_minute");
    let message = format!(
        "{reached:.1} % of {offered:.0} messages/min could be started; {delivered:.0}/min were delivered"
    );
    Some(check_reached(RATE, reached, message, RATE_REMEDY))
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
        judge(&trial, &[]).into_iter().map(|c| c.verdict).collect()
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
        assert_eq!(judge(&Trial::new(), &[]), []);
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
