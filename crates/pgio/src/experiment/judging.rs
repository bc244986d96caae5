//! What the loop asks of the analysis: which trials must not count.
//!
//! How wide the intervals are it asks `analysis::width`. The verdicts are the analysis's own, so that the loop never repeats a trial that the report then
//! counts, or the other way round.

use super::run::Invalid;
use crate::analysis::cross;
use crate::results::model::{Check, CheckVerdict, Outcome, Trial};
use crate::results::store::Stored;
use crate::results::sweep::Cell;

/// Of a block's last attempts, those that are complete and must not count. `cells` are in the order
/// in which they are planned.
pub(super) fn invalid(stored: &Stored, block: u32, cells: &[Cell]) -> Vec<Invalid> {
    let across = cross::checks(&stored.manifest, &stored.trials);
    let mut found = Vec::new();
    for (cell, of) in cells.iter().enumerate() {
        let of_it = stored
            .trials
            .iter()
            .enumerate()
            .filter(|(_, t)| t.place.as_ref().is_some_and(|p| p.block == block && of.is_at(p)));
        // At equal attempts the later one, as the analysis has it.
        let last = of_it.max_by_key(|(_, t)| t.place.as_ref().map(|p| p.attempt));
        let Some((index, trial)) = last.filter(|(_, t)| t.outcome == Outcome::Complete) else {
            continue;
        };
        let of_others = across.iter().filter(|(i, _)| *i == index).map(|(_, check)| check);
        let all = trial.checks.iter().chain(of_others);
        let bad: Vec<&Check> = all.filter(|c| c.verdict == CheckVerdict::Invalid).collect();
        if !bad.is_empty() {
            let checks = bad.iter().map(|c| c.id.clone()).collect();
            found.push(Invalid { cell, why: reasons(&bad), checks });
        }
    }
    found
}

fn reasons(checks: &[&Check]) -> String {
    checks.iter().map(|c| format!("{}: {}", c.id, c.message)).collect::<Vec<_>>().join("; ")
}

/// The last attempt of each planned trial on record.
pub fn done(trials: &[Trial], cells: &[Cell]) -> super::run::Done {
    let mut done = super::run::Done::default();
    for place in trials.iter().filter_map(|t| Some((t.place.as_ref()?, &t.outcome))) {
        let (place, outcome) = place;
        let Some(cell) = cells.iter().position(|cell| cell.is_at(place)) else { continue };
        let complete = *outcome == Outcome::Complete;
        let last = super::run::Last { attempt: place.attempt, complete };
        let known = done.0.entry((place.block, cell)).or_insert(last);
        if place.attempt >= known.attempt {
            *known = last;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use benchmath::signed_rank;

    use super::*;
    use crate::analysis::ALPHA;
    use crate::analysis::test_support::{experiment, trial};
    use crate::analysis::width::half_width;
    use crate::experiment::run::Last;
    use crate::results::sweep::Point;
    use crate::rng::SplitMix64;

    fn attempt(condition: &str, block: u32, attempt: u32, check: Option<Check>) -> Trial {
        let mut t = trial(condition, block, &[("commits_per_second", 100.0)]);
        t.place.as_mut().unwrap().attempt = attempt;
        t.checks = check.into_iter().collect();
        t
    }

    fn cells(at: &[(&str, &Point)]) -> Vec<Cell> {
        let cell = |(condition, point): &(&str, &Point)| Cell {
            condition: (*condition).to_owned(),
            point: (*point).clone(),
        };
        at.iter().map(cell).collect()
    }

    #[test]
    fn a_cell_is_a_condition_at_its_point() {
        let at = |n: u64| Point::from([("sessions".to_owned(), n.into())]);
        let mut trials = vec![attempt("a", 1, 0, None), attempt("a", 1, 0, None)];
        trials[0].place.as_mut().unwrap().point = at(1);
        let bad = Check::invalid("durability", "fsync is off", "turn it on");
        trials[1] = attempt("a", 1, 0, Some(bad));
        trials[1].place.as_mut().unwrap().point = at(4);
        let stored = experiment(&["a"], trials);
        let cells = cells(&[("a", &at(1)), ("a", &at(4)), ("a", &at(8))]);
        let found: Vec<usize> = invalid(&stored, 1, &cells).iter().map(|i| i.cell).collect();
        assert_eq!(found, [1]);
        let done = done(&stored.trials, &cells);
        assert_eq!(done.0.keys().copied().collect::<Vec<_>>(), [(1, 0), (1, 1)]);
    }

    #[test]
    fn only_the_last_attempt_is_judged() {
        let bad = || Some(Check::invalid("durability", "fsync is off", "turn it on"));
        let doubtful = Some(Check::warning("checkpoints", "2 inside", "raise max_wal_size"));
        let trials = vec![
            attempt("a", 1, 0, bad()),
            attempt("b", 1, 0, doubtful),
            attempt("a", 1, 1, None),
            attempt("a", 2, 0, bad()),
            Trial { outcome: Outcome::Interrupted, ..attempt("b", 2, 0, bad()) },
        ];
        let stored = experiment(&["a", "b"], trials);
        let nowhere = Point::new();
        let cells = cells(&[("a", &nowhere), ("b", &nowhere)]);
        assert_eq!(invalid(&stored, 1, &cells), []);
        let why = "durability: fsync is off".to_owned();
        assert_eq!(
            invalid(&stored, 2, &cells),
            [Invalid { cell: 0, why, checks: vec!["durability".to_owned()] }]
        );
        assert_eq!(invalid(&stored, 3, &cells), []);

        let done = done(&stored.trials, &cells);
        assert_eq!(done.0[&(1, 0)], Last { attempt: 1, complete: true });
        assert_eq!(done.0[&(2, 1)], Last { attempt: 0, complete: false });
        assert_eq!(done.0.len(), 4);
    }

    /// Experiments of two equal conditions that stop by a rule: the share that finds a difference.
    fn false_alarms(stops: impl Fn(f64, f64) -> bool) -> f64 {
        const EXPERIMENTS: u32 = 1000;
        let mut random = SplitMix64::new(3);
        // The sum of twelve uniform numbers, which is near enough to normal.
        let mut noise = || 0.05 * ((0..12).map(|_| random.next_f64()).sum::<f64>() - 6.0);
        let mut alarms = 0;
        for _ in 0..EXPERIMENTS {
            let mut logs: Vec<f64> = Vec::new();
            let (low, high) = loop {
                logs.push(noise());
                let Some((low, high)) = signed_rank::test(&logs, ALPHA).and_then(|t| t.bounds)
                else {
                    continue;
                };
                if logs.len() == 30 || stops(low.exp(), high.exp()) {
                    break (low, high);
                }
            };
            alarms += u32::from(low > 0.0 || high < 0.0);
        }
        f64::from(alarms) / f64::from(EXPERIMENTS)
    }

    #[test]
    fn stopping_by_width_keeps_the_level_and_stopping_by_verdict_does_not() {
        for precision in [0.02, 0.03, 0.04, 0.05] {
            let by_width = false_alarms(|low, high| half_width(low, high) <= precision);
            assert!(by_width <= 0.08, "{precision}: {by_width}");
        }
        let by_verdict = false_alarms(|low, high| low > 1.0 || high < 1.0);
        assert!(by_verdict > 0.15, "{by_verdict}");
    }
}
