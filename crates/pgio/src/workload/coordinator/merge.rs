//! Adds up what the drivers did: exact, because all histograms have the same buckets.

use std::collections::BTreeMap;

use super::PartState;
use crate::workload::drivers::PartResult;
use crate::workload::outcome::WindowOutcome;
use crate::workload::slice::Totals;
use pgio_link::Offset;
use pgio_results::checks;
use pgio_results::model::{Check, Slice};
use pgio_results::thresholds::PARTICIPANTS_APART;

/// Fills the outcome from the parts that have a result.
pub(super) fn merge(outcome: &mut WindowOutcome, parts: &[PartState]) {
    let results = || parts.iter().filter_map(|part| part.result.as_ref());
    outcome.totals = sum(results());
    outcome.sessions = results().flat_map(|result| result.sessions.clone()).collect();
    outcome.timeline = timeline(results().map(|result| result.timeline.as_slice()));
    outcome.seconds = results().map(|result| result.seconds).fold(0.0, f64::max);
    // Programs need a while to start, and count their own time.
    let first = parts.iter().filter_map(|part| part.opened).min().unwrap_or(0);
    outcome.first = first as f64 / 1e9;
    let late = |part: &PartState| {
        let opened = part.opened.map_or(0, |opened| opened - first) as f64 / 1e9;
        opened.max(part.result.as_ref().map_or(0.0, |result| result.late))
    };
    outcome.late = parts.iter().map(late).fold(0.0, f64::max);
    // The coordinator itself generates nothing.
    outcome.stood_still = results().map(|result| result.stood_still).fold(0.0, f64::max);
    outcome.cancelled_sync_rep = results().map(|result| result.cancelled_sync_rep).sum();
    outcome.readings = results().flat_map(|result| result.readings.clone()).collect();
    outcome.drivers = parts.iter().filter_map(PartState::to_stored).collect();
}

/// Sums the totals of all parts in the order of the drivers.
fn sum<'a>(parts: impl Iterator<Item = &'a PartResult>) -> Totals {
    parts.fold(Totals::default(), |mut all, part| {
        all.merge(&part.totals);
        all
    })
}

/// Adds up slices of the same number, which all drivers cut at the same moments.
fn timeline<'a>(parts: impl Iterator<Item = &'a [Slice]>) -> Vec<Slice> {
    let mut all: BTreeMap<usize, Slice> = BTreeMap::new();
    for (number, slice) in parts.flat_map(|slices| slices.iter().enumerate()) {
        all.entry(number).or_default().add_parallel(slice);
    }
    all.into_values().collect()
}

/// Judges how far apart the drivers opened their windows, by the coordinator's clock.
pub(super) fn check_skew(parts: &[PartState], seconds: f64) -> Option<Check> {
    const ID: &str = "participants-apart";
    let opened = || parts.iter().filter_map(|part| part.opened);
    let skew = (opened().max()? - opened().min()?) as f64 / 1e9;
    let half_trip = |offset: &Offset| offset.quickest.as_secs_f64() / 2.0;
    let uncertainty =
        parts.iter().filter_map(|p| p.offset.as_ref().map(half_trip)).fold(0.0, f64::max);
    let apart = skew + uncertainty;
    let shown = format!("{:.2} ms apart, clocks within {:.2} ms", skew * 1e3, uncertainty * 1e3);
    Some(if apart > seconds * PARTICIPANTS_APART.0 {
        Check::invalid(
            ID,
            format!("the drivers opened their windows {shown}: over 1 % of {seconds:.1} s"),
            checks::remedy(ID),
        )
    } else {
        Check::ok(ID, format!("the drivers opened their windows {shown}"))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use pgio_results::histogram::Histogram;
    use pgio_results::model::CheckVerdict;

    fn part(rank: u32, latencies: &[f64], opened: i64) -> PartState {
        let mut histogram = Histogram::default();
        latencies.iter().for_each(|ns| histogram.record(*ns));
        let calls = latencies.len() as u64;
        let totals = Totals {
            histograms: [("commit".to_owned(), histogram)].into(),
            calls,
            ..Totals::default()
        };
        let slice = Slice { at: 1.0, seconds: 1.0, commits: calls, ..Slice::default() };
        let seconds = 2.0 + f64::from(rank);
        PartState {
            rank,
            host: format!("h{rank}"),
            first: rank,
            sessions: 1,
            offset: Some(Offset {
                ns: 0,
                quickest: Duration::from_millis(2),
                worst: Duration::from_millis(3),
            }),
            opened: Some(opened),
            result: Some(PartResult {
                totals,
                timeline: vec![slice],
                seconds,
                ..PartResult::default()
            }),
            ..PartState::default()
        }
    }

    #[test]
    fn merged_outcomes_equal_that_of_a_single_process() {
        let mut outcome = WindowOutcome::new(0.0);
        merge(&mut outcome, &[part(0, &[1e3, 5e6], 0), part(1, &[2e3, 7e5, 9e9], 0)]);
        let mut alone = Histogram::default();
        [1e3, 5e6, 2e3, 7e5, 9e9].iter().for_each(|ns| alone.record(*ns));
        assert_eq!(outcome.totals.histograms["commit"], alone);
        assert_eq!((outcome.totals.calls, outcome.seconds), (5, 3.0));
        assert_eq!((outcome.timeline.len(), outcome.timeline[0].commits), (1, 5));
        assert_eq!(outcome.drivers.iter().map(|d| d.calls).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn lateness_is_the_delay_after_the_first_driver() {
        let mut outcome = WindowOutcome::new(0.0);
        merge(&mut outcome, &[part(0, &[], 300_000_000), part(1, &[], 310_000_000)]);
        assert!((outcome.late - 0.01).abs() < 1e-9, "{}", outcome.late);
    }

    #[test]
    fn skew_and_half_of_the_round_trip_count_together() {
        let judged = |opened, seconds| {
            check_skew(&[part(0, &[], 0), part(1, &[], opened)], seconds).map(|check| check.verdict)
        };
        assert_eq!(judged(8_000_000, 1.0), Some(CheckVerdict::Ok));
        assert_eq!(judged(9_500_000, 1.0), Some(CheckVerdict::Invalid));
        assert_eq!(judged(9_500_000, 2.0), Some(CheckVerdict::Ok));
        assert_eq!(check_skew(&[], 1.0).map(|check| check.verdict), None);
    }
}
