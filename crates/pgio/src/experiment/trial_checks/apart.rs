//! Whether the servers of a joint window worked at the same time.
//!
//! All sessions wait on their server's clock for one moment of the coordinator's. The check adds how far apart the
//! servers began, by the readings of their clocks before and after the window, and half the longest of their
//! quickest round trips, which is the error of a reading.

use pgio_results::checks;
use pgio_results::model::{Check, Trial};
use pgio_results::thresholds::PARTICIPANTS_APART;
use pgio_results::units::human;

pub(in crate::experiment) fn check(trial: &Trial) -> Check {
    const ID: &str = "participants-apart";
    let remedy = checks::remedy(ID);
    let clocks: Vec<_> = trial.targets.iter().map(|(name, target)| (name, target.clock)).collect();
    // A clock that was read only once may have been moved inside the window.
    let unread =
        clocks.iter().find(|(_, clock)| clock.is_none_or(|clock| clock.moved_seconds.is_none()));
    if let Some((name, _)) = unread {
        let message =
            format!("the clock of `{name}` could not be read both before and after the window");
        return Check::invalid(ID, message, remedy);
    }
    let began: Vec<_> =
        clocks.iter().filter_map(|(name, clock)| Some((*name, clock.as_ref()?.began()))).collect();
    let (first, last) = (
        began.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0)),
        began.iter().max_by(|a, b| a.1.1.total_cmp(&b.1.1)),
    );
    let (Some((first, (earliest, _))), Some((last, (_, latest)))) = (first, last) else {
        return Check::invalid(ID, "no server's clock was read", remedy);
    };
    let round_trips =
        clocks.iter().filter_map(|(_, clock)| Some(clock.as_ref()?.round_trip_seconds));
    let error = round_trips.fold(0.0, f64::max) / 2.0;
    let apart = latest - earliest + error;
    let shown = |seconds: f64| human::latency(seconds * 1e9);
    let who = if first == last {
        format!("the start of `{first}` is known to")
    } else {
        format!("`{first}` and `{last}` began within")
    };
    let message = format!(
        "{who} {} ± {}, {:.2} % of the window",
        shown(latest - earliest),
        shown(error),
        100.0 * apart / trial.window.seconds
    );
    if apart > PARTICIPANTS_APART.0 * trial.window.seconds {
        Check::invalid(ID, message, remedy)
    } else {
        Check::ok(ID, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict;
    use pgio_results::joint::ClockOffset;
    use pgio_results::test_support::target_result;

    /// A window of ten seconds on two servers.
    fn judged(a: Option<ClockOffset>, b: Option<ClockOffset>) -> Check {
        let mut trial = Trial::new();
        trial.window.seconds = 10.0;
        for (name, clock) in [("a", a), ("b", b)] {
            let _ = trial.targets.insert(name.to_owned(), target_result(clock));
        }
        check(&trial)
    }

    fn clock(began: f64, moved: f64, round_trip: f64) -> Option<ClockOffset> {
        Some(ClockOffset {
            round_trip_seconds: round_trip,
            slowest_seconds: round_trip,
            began_seconds: began,
            moved_seconds: Some(moved),
        })
    }

    #[test]
    fn servers_that_began_together_pass() {
        let found = judged(clock(0.001, 0.0, 0.0002), clock(0.004, 0.0, 0.0002));
        assert_eq!(found.verdict, CheckVerdict::Ok, "{found:?}");
        assert!(found.message.contains("`a` and `b` began within 3.00 ms ± 100 µs"), "{found:?}");
    }

    #[test]
    fn starts_apart_by_over_a_hundredth_of_the_window_are_invalid() {
        let near = judged(clock(0.0, 0.0, 0.0), clock(0.099, 0.0, 0.0));
        assert_eq!(near.verdict, CheckVerdict::Ok, "{near:?}");
        let far = judged(clock(0.0, 0.0, 0.0), clock(0.101, 0.0, 0.0));
        assert_eq!(far.verdict, CheckVerdict::Invalid, "{far:?}");
        // Half of the round trip is added.
        let slow = judged(clock(0.0, 0.0, 0.2), clock(0.005, 0.0, 0.0));
        assert_eq!(slow.verdict, CheckVerdict::Invalid, "{slow:?}");
    }

    #[test]
    fn a_clock_moved_inside_the_window_invalidates_the_trial() {
        for moved in [0.15, -0.15] {
            let found = judged(clock(0.0, 0.0, 0.001), clock(0.0, moved, 0.001));
            assert_eq!(found.verdict, CheckVerdict::Invalid, "{found:?}");
        }
    }

    #[test]
    fn a_clock_not_read_again_invalidates_the_trial() {
        let once = ClockOffset::default();
        for found in [judged(clock(0.0, 0.0, 0.0), Some(once)), judged(None, clock(0.0, 0.0, 0.0))]
        {
            assert_eq!(found.verdict, CheckVerdict::Invalid, "{found:?}");
            assert!(found.message.contains("could not be read"), "{found:?}");
        }
    }
}
