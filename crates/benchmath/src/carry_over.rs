//! Whether conditions that take turns in short slices reach into each other.
//!
//! What a condition leaves behind belongs to the slices of the next one. Then a condition's rate differs
//! between the halves of its slices, or depends on the condition that ran before. The slices are in random
//! order, so each slice is a unit here, whatever drift they share.
//!
//! A rate is a ratio of sums: work divided by seconds. Its logarithm has the linearised standard error of
//! such a ratio (Cochran, Sampling Techniques, 3rd ed., 1977, section 2.11 and equation 6.13), with Student's
//! quantile for one degree of freedom less than slices.

use crate::interval::{Interval, assert_probability};
use crate::student;

/// One slice of a condition: what was done in each half, and which condition ran before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// Index of the condition before; none for the first slice of a window.
    pub after: Option<usize>,
    /// Work of each half, such as commits.
    pub work: [f64; 2],
    /// Seconds of each half, those of all sessions together.
    pub seconds: [f64; 2],
}

impl Turn {
    fn total(&self) -> (f64, f64) {
        (self.work[0] + self.work[1], self.seconds[0] + self.seconds[1])
    }
}

/// The logarithm of a ratio of rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogRatio {
    pub estimate: f64,
    /// Standard error.
    pub error: f64,
    /// Slices behind the error, less what was estimated from them.
    pub freedom: f64,
}

impl LogRatio {
    /// Returns the interval at level 1 - alpha.
    ///
    /// # Panics
    ///
    /// Unless alpha is between 0 and 1.
    pub fn interval(&self, alpha: f64) -> Interval {
        assert_probability("alpha", alpha);
        let reach = student::quantile(1.0 - alpha / 2.0, self.freedom) * self.error;
        let LogRatio { estimate, .. } = *self;
        Interval { estimate, low: estimate - reach, high: estimate + reach }
    }

    /// Returns the difference of two independent logarithms.
    #[must_use]
    pub fn less(&self, other: &LogRatio) -> LogRatio {
        LogRatio {
            estimate: self.estimate - other.estimate,
            error: self.error.hypot(other.error),
            freedom: self.freedom.min(other.freedom),
        }
    }

    /// Returns the mean of independent logarithms; `None` without any.
    pub fn mean(all: &[LogRatio]) -> Option<LogRatio> {
        let count = all.len() as f64;
        (!all.is_empty()).then(|| LogRatio {
            estimate: all.iter().map(|one| one.estimate).sum::<f64>() / count,
            error: all.iter().map(|one| one.error.powi(2)).sum::<f64>().sqrt() / count,
            freedom: all.iter().map(|one| one.freedom).sum(),
        })
    }
}

/// A rate: work divided by seconds.
struct Rate {
    work: f64,
    value: f64,
}

impl Rate {
    /// `None` without work.
    fn of(parts: impl Iterator<Item = (f64, f64)>) -> Option<Rate> {
        let (work, seconds) = parts.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        (work > 0.0 && seconds > 0.0).then(|| Rate { work, value: work / seconds })
    }

    /// Returns what a part adds to the error of the rate's logarithm.
    fn residual(&self, (work, seconds): (f64, f64)) -> f64 {
        (work - self.value * seconds) / self.work
    }
}

/// Returns the rate of the second halves divided by that of the first; `None` for fewer than three slices,
/// or for halves without work.
pub fn halves(turns: &[Turn]) -> Option<LogRatio> {
    let half = |turn: &Turn, at: usize| (turn.work[at], turn.seconds[at]);
    let first = Rate::of(turns.iter().map(|turn| half(turn, 0)))?;
    let second = Rate::of(turns.iter().map(|turn| half(turn, 1)))?;
    let residuals =
        turns.iter().map(|turn| second.residual(half(turn, 1)) - first.residual(half(turn, 0)));
    log_ratio(&second, &first, residuals, turns.len())
}

/// Returns the rate of the slices after the condition `before` divided by that of all slices; `None` for
/// fewer than three such slices, or for slices without work.
pub fn after(turns: &[Turn], before: usize) -> Option<LogRatio> {
    let is_after = |turn: &Turn| turn.after == Some(before);
    let count = turns.iter().filter(|turn| is_after(turn)).count();
    let all = Rate::of(turns.iter().map(Turn::total))?;
    let some = Rate::of(turns.iter().filter(|turn| is_after(turn)).map(Turn::total))?;
    let residuals = turns.iter().map(|turn| {
        let own = if is_after(turn) { some.residual(turn.total()) } else { 0.0 };
        own - all.residual(turn.total())
    });
    log_ratio(&some, &all, residuals, count)
}

fn log_ratio(
    rate: &Rate,
    by: &Rate,
    residuals: impl Iterator<Item = f64>,
    count: usize,
) -> Option<LogRatio> {
    if count < 3 {
        return None;
    }
    let squares: f64 = residuals.map(|residual| residual * residual).sum();
    // The residuals of n slices have n - 1 degrees of freedom.
    let slices = count as f64;
    let error = (squares * slices / (slices - 1.0)).sqrt();
    Some(LogRatio { estimate: (rate.value / by.value).ln(), error, freedom: slices - 1.0 })
}

/// What the slices of one condition say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slices {
    /// See [`halves`].
    pub halves: Option<LogRatio>,
    /// See [`after`], for every condition before.
    pub after: Vec<Option<LogRatio>>,
}

impl Slices {
    pub fn of(turns: &[Turn], conditions: usize) -> Slices {
        let after = (0..conditions).map(|before| after(turns, before));
        Slices { halves: halves(turns), after: after.collect() }
    }
}

/// Where a condition's influence would show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Its effect against the baseline in the second halves of slices, divided by that in the first.
    SecondHalves,
    /// The rate of the other conditions in the slices after it, divided by that in all their slices.
    After,
}

/// One question about a condition, answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    pub condition: usize,
    pub place: Place,
    pub log: LogRatio,
}

/// Asks of each condition whether it reaches into others. What follows a condition is the mean over all
/// others, so that there are no more than two questions for each condition.
pub fn answers(slices: &[Slices], baseline: usize) -> Vec<Answer> {
    let of_baseline = slices.get(baseline).and_then(|own| own.halves);
    let mut all = Vec::new();
    for (condition, own) in slices.iter().enumerate() {
        let halves = own.halves.zip(of_baseline).filter(|_| condition != baseline);
        let halves = halves.map(|(own, baseline)| (Place::SecondHalves, own.less(&baseline)));
        let others = slices.iter().enumerate().filter(|(other, _)| *other != condition);
        let after: Vec<LogRatio> =
            others.filter_map(|(_, other)| *other.after.get(condition)?).collect();
        let after = LogRatio::mean(&after).map(|log| (Place::After, log));
        let found = halves.into_iter().chain(after);
        all.extend(found.map(|(place, log)| Answer { condition, place, log }));
    }
    all
}

/// What the questions asked of one length of slices say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// Every interval lies within the limit.
    Shown,
    /// No interval contradicts the limit, but not all lie within it.
    Open,
    /// A difference larger than the limit, whose interval excludes none.
    Contradicted,
}

/// Whether one answer contradicts agreement within `limit`, the logarithm of a ratio.
pub fn contradicts(interval: &Interval, limit: f64) -> bool {
    (interval.low > 0.0 || interval.high < 0.0) && interval.estimate.abs() > limit
}

/// Judges several answers together: `alpha` is divided among them by Bonferroni's inequality.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn agreement(answers: &[Answer], limit: f64, alpha: f64) -> Agreement {
    let share = alpha / answers.len().max(1) as f64;
    let intervals: Vec<Interval> =
        answers.iter().map(|answer| answer.log.interval(share)).collect();
    if intervals.iter().any(|interval| contradicts(interval, limit)) {
        return Agreement::Contradicted;
    }
    let within = |interval: &Interval| interval.low > -limit && interval.high < limit;
    match !intervals.is_empty() && intervals.iter().all(within) {
        true => Agreement::Shown,
        false => Agreement::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Slices of three conditions in random order. Work is the rate times the seconds, with noise from slice
    /// to slice; `second` and `after_two` change the rate of second halves and of slices after condition 2.
    fn turns(seed: u64, count: usize, second: f64, after_two: f64) -> Vec<Turn> {
        let mut random = SplitMix64::new(seed);
        let slices = (0..count).map(|_| {
            let before = random.below(3) as usize;
            let length = 0.010 * (0.5 + random.next_f64());
            let level = if before == 2 { after_two } else { 1.0 };
            let mut work =
                |rate: f64| 1000.0 * rate * length * (1.0 + 0.3 * (random.next_f64() - 0.5));
            Turn {
                after: Some(before),
                work: [work(level), work(level * second)],
                seconds: [length, length],
            }
        });
        slices.collect()
    }

    #[test]
    fn estimates_are_ratios_of_rates() {
        let exact = |after, work| Turn { after, work, seconds: [1.0, 2.0] };
        let all = [
            exact(None, [10.0, 22.0]),
            exact(Some(1), [10.0, 22.0]),
            exact(Some(1), [10.0, 22.0]),
            exact(Some(1), [10.0, 22.0]),
        ];
        let halves = halves(&all).unwrap();
        assert!((halves.estimate - 1.1_f64.ln()).abs() < 1e-12 && halves.error < 1e-12);
        assert_eq!(after(&all, 1).unwrap().estimate, 0.0);
        assert_eq!(after(&all, 0), None);
        assert_eq!(super::halves(&all[..2]), None);
        let idle = [exact(Some(0), [0.0, 0.0]); 5];
        assert_eq!((super::halves(&idle), after(&idle, 0)), (None, None));
    }

    #[test]
    fn intervals_cover_in_19_of_20() {
        let (mut of_halves, mut of_after) = (0, 0);
        for seed in 0..1000 {
            let turns = turns(seed, 60, 1.0, 1.0);
            let covers = |ratio: LogRatio| {
                let Interval { low, high, .. } = ratio.interval(0.05);
                u32::from(low <= 0.0 && high >= 0.0)
            };
            of_halves += covers(halves(&turns).unwrap());
            of_after += covers(after(&turns, 2).unwrap());
        }
        assert!((930..=970).contains(&of_halves), "{of_halves}");
        assert!((930..=970).contains(&of_after), "{of_after}");
    }

    #[test]
    fn what_reaches_over_is_found_and_what_is_small_is_not_accused() {
        let limit = 0.0125_f64.ln_1p();
        // The slices of the baseline and of the third condition are all alike.
        let judge = |own: &[Turn]| {
            let alike = [77, 78].map(|seed| turns(seed, own.len(), 1.0, 1.0));
            let all = [alike[0].as_slice(), own, &alike[1]];
            let slices = all.map(|own| Slices::of(own, 3));
            agreement(&answers(&slices, 0), limit, 0.05)
        };
        assert_eq!(judge(&turns(3, 12_000, 1.0, 1.0)), Agreement::Shown);
        assert_eq!(judge(&turns(3, 30, 1.0, 1.0)), Agreement::Open);
        assert_eq!(judge(&turns(3, 200, 1.10, 1.0)), Agreement::Contradicted);
        assert_eq!(judge(&turns(3, 200, 1.0, 0.85)), Agreement::Contradicted);
        // A difference below the limit is real, but does not contradict.
        assert_eq!(judge(&turns(3, 40_000, 1.005, 1.0)), Agreement::Shown);
        let accused =
            (0..200).filter(|seed| judge(&turns(*seed, 60, 1.0, 1.0)) == Agreement::Contradicted);
        assert!(accused.count() <= 16, "more than one in twenty, with its spread");
    }

    #[test]
    fn means_and_differences_carry_their_errors() {
        let one = LogRatio { estimate: 0.2, error: 0.03, freedom: 9.0 };
        let other = LogRatio { estimate: 0.1, error: 0.04, freedom: 5.0 };
        let difference = one.less(&other);
        assert!(
            (difference.estimate - 0.1).abs() < 1e-12 && (difference.error - 0.05).abs() < 1e-12
        );
        assert_eq!(difference.freedom, 5.0);
        let mean = LogRatio::mean(&[one, other]).unwrap();
        assert!((mean.estimate - 0.15).abs() < 1e-12 && (mean.error - 0.025).abs() < 1e-12);
        assert_eq!((mean.freedom, LogRatio::mean(&[])), (14.0, None));
    }
}
