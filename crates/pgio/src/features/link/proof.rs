//! Proves a link from the trial's record alone: whether packets passed it, and
//! whether replication is known to use it.
//!
//! [`super::netem`] reads the evidence that netem is present; replication may use another interface
//! nevertheless. A warning at most: a condition without replication may have the same link.

use super::qdisc::{End, LinkSettings};
use pgio_results::model::{Check, Trial, When};

const ID: &str = "link";
/// Background traffic of hosts, and a replication that waits for its peer, send fewer. The check's text says it in words.
const PACKETS_PER_SECOND: f64 = 1.0;

/// The name of the evidence.
pub(super) fn packets_through(end: &End) -> String {
    format!("packets through {} so far", end.place())
}

/// The name of the evidence.
pub(super) fn route_name(address: &str, end: &End) -> String {
    let on = end.host.as_ref().map_or_else(String::new, |host| format!(" from {host}"));
    format!("way to {address}{on}")
}

/// Whether the round trip, which is measured before a trial begins, can prove the link.
pub(super) fn adds_delay(ends: &[End]) -> bool {
    ends.iter().any(|end| !end.shape.least_delay().is_zero())
}

/// One verdict for each end that does anything.
pub(super) fn judge(trial: &Trial, ends: &[End]) -> Vec<Check> {
    let proved = ends.iter().any(|end| leads_to_its_address(trial, end, ends));
    let slower = ends.iter().filter(|end| end.shape != LinkSettings::default());
    slower.map(|end| judge_end(trial, end, proved)).collect()
}

/// Proved by the round trip, which must grow before a trial begins, or by the host's routes.
fn leads_to_its_address(trial: &Trial, end: &End, ends: &[End]) -> bool {
    let Some(address) = &end.ping else { return false };
    let what = route_name(address, end);
    let by_route = || trial.evidence.iter().any(|e| e.what == what && e.found == end.interface);
    adds_delay(ends) || by_route()
}

fn judge_end(trial: &Trial, end: &End, proved: bool) -> Check {
    let place = end.place();
    let seconds = trial.window.warmup_seconds + trial.window.seconds;
    let passed = packets_passed(trial, end);
    let message = match passed {
        Some(packets) => format!("{packets} packets passed {place} in {seconds:.0} s"),
        None => format!("packets through {place} were not counted"),
    };
    if passed.is_some_and(|packets| (packets as f64) < seconds * PACKETS_PER_SECOND) {
        return Check::warning(
            ID,
            format!("{message}: almost no traffic used the link"),
            "find the interface to its peer or standby with `ip route get ADDRESS` on that host",
        );
    }
    if proved {
        Check::ok(ID, message)
    } else {
        Check::warning(
            ID,
            format!("{message}; whether replication uses it is unproven"),
            "add ping = \"ADDRESS\" to the link: the other machine's address that replication uses",
        )
    }
}

/// Between the readings at the window's ends, which are a little further apart than warm-up and window.
fn packets_passed(trial: &Trial, end: &End) -> Option<u64> {
    let what = packets_through(end);
    let reading = |when: When| -> Option<u64> {
        let last = trial.evidence.iter().rfind(|e| e.when == when && e.what == what)?;
        last.found.parse().ok()
    };
    reading(When::After)?.checked_sub(reading(When::Before)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use pgio_results::CheckVerdict;
    use pgio_results::model::{Evidence, Window};

    fn end(host: &str, shape: LinkSettings, ping: Option<&str>) -> End {
        let ping = ping.map(str::to_owned);
        End { host: Some(host.to_owned()), interface: "eth1".to_owned(), shape, ping }
    }

    fn delay() -> LinkSettings {
        LinkSettings { delay: Duration::from_millis(1), ..LinkSettings::default() }
    }

    fn rate() -> LinkSettings {
        LinkSettings { rate: 100_000_000, ..LinkSettings::default() }
    }

    fn evidence(when: When, what: String, found: &str) -> Evidence {
        Evidence { when, what, found: found.to_owned(), expected: None }
    }

    /// A trial of ten seconds and a warm-up of five, in which this many packets passed each end.
    fn trial(ends: &[End], packets: u64) -> Trial {
        let reading = |when, n: u64| {
            ends.iter().map(move |end| evidence(when, packets_through(end), &n.to_string()))
        };
        // The first one is from before the sessions were made ready.
        let before = reading(When::Before, 3).chain(reading(When::Before, 1000));
        Trial {
            evidence: before.chain(reading(When::After, 1000 + packets)).collect(),
            window: Window { asked_seconds: None, seconds: 10.0, warmup_seconds: 5.0 },
            ..pgio_results::test_support::full_trial()
        }
    }

    fn verdicts(trial: &Trial, ends: &[End]) -> Vec<(CheckVerdict, String)> {
        judge(trial, ends).into_iter().map(|check| (check.verdict, check.message)).collect()
    }

    #[test]
    fn a_round_trip_proves_both_ends_and_a_single_end_is_a_warning() {
        let ends = [end("a", delay(), Some("10.0.0.2")), end("b", delay(), None)];
        let proved =
            |place: &str| (CheckVerdict::Ok, format!("9000 packets passed {place} in 15 s"));
        assert_eq!(
            verdicts(&trial(&ends, 9000), &ends),
            [proved("eth1 on a"), proved("eth1 on b")]
        );
        let ends = [end("a", delay(), None)];
        let found = verdicts(&trial(&ends, 9000), &ends);
        assert_eq!(found[0].0, CheckVerdict::Warning);
        assert!(found[0].1.ends_with("; whether replication uses it is unproven"), "{found:?}");
    }

    #[test]
    fn an_unused_link_is_a_warning_even_if_proved() {
        for ping in [None, Some("10.0.0.2")] {
            let ends = [end("a", delay(), ping)];
            let (verdict, message) = verdicts(&trial(&ends, 14), &ends).remove(0);
            assert_eq!(verdict, CheckVerdict::Warning);
            assert_eq!(
                message,
                "14 packets passed eth1 on a in 15 s: almost no traffic used the link"
            );
        }
        let ends = [end("a", delay(), Some("10.0.0.2"))];
        assert_eq!(verdicts(&trial(&ends, 15), &ends)[0].0, CheckVerdict::Ok);
        // The counter was reset, or not read.
        let uncounted = Trial { evidence: Vec::new(), ..trial(&ends, 15) };
        let expected = (CheckVerdict::Ok, "packets through eth1 on a were not counted".to_owned());
        assert_eq!(verdicts(&uncounted, &ends), [expected]);
    }

    #[test]
    fn a_link_without_delay_is_proved_by_the_route() {
        let ends = [end("a", rate(), Some("10.0.0.2")), end("b", rate(), None)];
        for (device, expected) in [
            ("eth1", CheckVerdict::Ok),
            ("eth0", CheckVerdict::Warning),
            ("unknown", CheckVerdict::Warning),
        ] {
            let mut trial = trial(&ends, 9000);
            let what = route_name("10.0.0.2", &ends[0]);
            assert_eq!(what, "way to 10.0.0.2 from a");
            trial.evidence.push(evidence(When::Before, what, device));
            for (verdict, message) in verdicts(&trial, &ends) {
                assert_eq!(verdict, expected, "{device}: {message}");
            }
        }
    }

    #[test]
    fn a_link_without_effect_needs_no_proof() {
        let ends = [end("a", LinkSettings::default(), None)];
        assert!(verdicts(&trial(&ends, 0), &ends).is_empty());
    }
}
