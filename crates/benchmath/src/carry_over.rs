//! Whether conditions that take turns in short slices affect each other.
//!
//! Carry-over is what the slice of one condition leaves behind for the slice that follows it. Three questions
//! ([`Question`]) look for it; without carry-over, each answer is a ratio of 1. Example: B is the baseline, and C slows
//! the slice of B that follows it, more in its first half than in its second.
//!
//! | slices | share | rate in the first half | in the second | in both |
//! |---|---|---|---|---|
//! | B after B | 1/4 | 100 | 100 | 100 |
//! | B after C | 3/4 | 70 | 90 | 80 |
//! | all of B | | 77.5 | 92.5 | 85 |
//! | all of C | | 60 | 60 | 60 |
//!
//! - `SecondHalves` of C: its effect in second halves, divided by that in first halves. (60 / 92.5) / (60 / 77.5) is
//!   0.84.
//! - `After` C: the rate of B after C, divided by that in the other slices of B. 80 / 100 is 0.80.
//! - `Turns` of C: its effect in all slices, divided by that in slices which follow their own settings, as in a window
//!   of its own. (60 / 85) / (60 / 100) is 1.18: taking turns makes C look 18 % faster.
//!
//! Only one in k² slices of k conditions follows its own, so `After` finds the carry-over of a single condition with
//! fewer slices than `Turns`. Slices are in random order, so the slice is the unit, whatever drift they share.
//!
//! A rate is a ratio of sums: work divided by seconds. Its logarithm has the linearized standard error of
//! such a ratio (Cochran, Sampling Techniques, 3rd ed., 1977, section 2.11 and equation 6.13), with Student's
//! quantile for one degree of freedom less than slices.

use crate::student;
use crate::summary::{Interval, assert_probability};

/// One slice of a condition: what was done in each half, and which condition ran before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SliceSample {
    /// Index of the condition before; none for the first slice of a window.
    pub previous: Option<usize>,
    /// Work of each half, such as commits.
    pub work: [f64; 2],
    /// Seconds of each half, of all sessions together.
    pub seconds: [f64; 2],
}

impl SliceSample {
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
    pub fn minus(&self, other: &LogRatio) -> LogRatio {
        LogRatio {
            estimate: self.estimate - other.estimate,
            error: self.error.hypot(other.error),
            freedom: self.freedom.min(other.freedom),
        }
    }

    /// Returns the logarithm times a factor, such as -1 for the ratio the other way round.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> LogRatio {
        LogRatio {
            estimate: self.estimate * factor,
            error: self.error * factor.abs(),
            freedom: self.freedom,
        }
    }

    /// Returns the mean of independent logarithms by weight, with the degrees of freedom of Welch and
    /// Satterthwaite; `None` without any.
    fn weighted(all: &[(f64, LogRatio)]) -> Option<LogRatio> {
        let weights: f64 = all.iter().map(|(weight, _)| weight).sum();
        let parts: Vec<LogRatio> = all.iter().map(|(w, log)| log.scaled(w / weights)).collect();
        let variance: f64 = parts.iter().map(|part| part.error.powi(2)).sum();
        let spread: f64 = parts.iter().map(|part| part.error.powi(4) / part.freedom).sum();
        let freedom: f64 = parts.iter().map(|part| part.freedom).sum();
        (!all.is_empty()).then(|| LogRatio {
            estimate: parts.iter().map(|part| part.estimate).sum(),
            error: variance.sqrt(),
            freedom: if spread > 0.0 { variance.powi(2) / spread } else { freedom },
        })
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
    fn new(parts: impl Iterator<Item = (f64, f64)>) -> Option<Rate> {
        let (work, seconds) = parts.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        (work > 0.0 && seconds > 0.0).then(|| Rate { work, value: work / seconds })
    }

    /// Returns what a part adds to the error of the rate's logarithm.
    fn residual(&self, (work, seconds): (f64, f64)) -> f64 {
        (work - self.value * seconds) / self.work
    }
}

/// Returns the rate of the second halves divided by the rate of the first; `None` for fewer than three slices,
/// or for halves without work.
pub fn half_ratio(slices: &[SliceSample]) -> Option<LogRatio> {
    let half = |slice: &SliceSample, at: usize| (slice.work[at], slice.seconds[at]);
    let first = Rate::new(slices.iter().map(|slice| half(slice, 0)))?;
    let second = Rate::new(slices.iter().map(|slice| half(slice, 1)))?;
    let residuals =
        slices.iter().map(|slice| second.residual(half(slice, 1)) - first.residual(half(slice, 0)));
    log_ratio(&second, &first, residuals, slices.len())
}

/// Returns the rate of the slices after the condition `before` divided by the rate of all slices; `None` for
/// fewer than three such slices, or for slices without work.
pub fn ratio_after(slices: &[SliceSample], before: usize) -> Option<LogRatio> {
    let is_after = |slice: &SliceSample| slice.previous == Some(before);
    let count = slices.iter().filter(|slice| is_after(slice)).count();
    let all = Rate::new(slices.iter().map(SliceSample::total))?;
    let some = Rate::new(slices.iter().filter(|slice| is_after(slice)).map(SliceSample::total))?;
    let residuals = slices.iter().map(|slice| {
        let own = if is_after(slice) { some.residual(slice.total()) } else { 0.0 };
        own - all.residual(slice.total())
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

/// Returns the share of a condition's slices that follow another one, or itself. Each round has one slice of
/// every condition in random order, so a condition follows itself only from the end of a round to the
/// beginning of the next: in one of k² slices.
pub fn share_after(conditions: usize, itself: bool) -> f64 {
    let k = conditions.max(1) as f64;
    if itself { 1.0 / (k * k) } else { (k + 1.0) / (k * k) }
}

/// The estimates from the slices of one condition.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slices {
    /// See [`half_ratio`].
    pub halves: Option<LogRatio>,
    /// See [`ratio_after`], for every condition before.
    pub after: Vec<Option<LogRatio>>,
}

impl Slices {
    pub fn new(slices: &[SliceSample], conditions: usize) -> Slices {
        let after = (0..conditions).map(|before| ratio_after(slices, before));
        Slices { halves: half_ratio(slices), after: after.collect() }
    }
}

/// A question about the carry-over of a condition, answered by a ratio that is 1 without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Its effect against the baseline in the second halves of slices, divided by that in the first.
    SecondHalves,
    /// The rate of the other conditions in the slices after it, divided by that in their other slices.
    After,
    /// Its effect against the baseline in all slices, divided by that in slices which follow their own
    /// settings.
    Turns,
}

/// The answer to one question about a condition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Influence {
    pub condition: usize,
    pub question: Question,
    pub log: LogRatio,
}

/// Answers the questions about each condition, as far as it has the slices for them. Conditions with equal numbers
/// in `settings` have the same settings, as the baseline and its A/A twin: a slice after one counts as a slice after
/// the other, and neither is among the other conditions of [`Question::After`], whose answer is the mean over all
/// conditions with other settings.
pub fn estimate(slices: &[Slices], settings: &[usize], baseline: usize) -> Vec<Influence> {
    let same =
        |a: usize, b: usize| a == b || settings.get(a).is_some_and(|s| settings.get(b) == Some(s));
    let halves = |condition: usize| slices.get(condition)?.halves;
    let turns = |condition: usize| effect_of_turns(slices, condition, same);
    let mut all = Vec::new();
    for condition in 0..slices.len() {
        let effect = |rate: &dyn Fn(usize) -> Option<LogRatio>| {
            let found = rate(condition).zip(rate(baseline)).filter(|_| condition != baseline);
            found.map(|(own, baseline)| own.minus(&baseline))
        };
        let estimates = [
            (Question::SecondHalves, effect(&halves)),
            (Question::After, effect_on_others(slices, condition, same)),
            (Question::Turns, effect(&turns)),
        ];
        all.extend(
            estimates
                .into_iter()
                .filter_map(|(question, log)| Some(Influence { condition, question, log: log? })),
        );
    }
    all
}

/// Returns the rate of the conditions with other settings after this one, divided by that in their other slices.
/// With a share s of the slices after it, and to first order, its logarithm is the logarithm of the rate after it
/// against all slices, divided by 1 - s.
fn effect_on_others(
    slices: &[Slices],
    condition: usize,
    same: impl Fn(usize, usize) -> bool,
) -> Option<LogRatio> {
    let others = slices.iter().enumerate().filter(|(other, _)| !same(*other, condition));
    let after: Vec<LogRatio> =
        others.filter_map(|(_, other)| *other.after.get(condition)?).collect();
    let by_all = 1.0 / (1.0 - share_after(slices.len(), false));
    LogRatio::mean(&after).map(|log| log.scaled(by_all))
}

/// Returns the condition's rate in all its slices, divided by that in the slices which follow its own settings;
/// `None` if all conditions have the same. Two parts of the slices against all of them are correlated
/// negatively, so the error is rather too large.
fn effect_of_turns(
    slices: &[Slices],
    condition: usize,
    same: impl Fn(usize, usize) -> bool,
) -> Option<LogRatio> {
    if (0..slices.len()).all(|other| same(other, condition)) {
        return None;
    }
    let after = slices[condition].after.iter().enumerate();
    let own = after.filter(|(before, _)| same(*before, condition)).filter_map(|(before, log)| {
        Some((share_after(slices.len(), before == condition), (*log)?))
    });
    let own: Vec<(f64, LogRatio)> = own.collect();
    LogRatio::weighted(&own).map(|log| log.scaled(-1.0))
}

/// The joint result of all answers for one length of slices.
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
pub fn agreement(influences: &[Influence], limit: f64, alpha: f64) -> Agreement {
    let share = alpha / influences.len().max(1) as f64;
    let intervals: Vec<Interval> =
        influences.iter().map(|influence| influence.log.interval(share)).collect();
    let within = |interval: &Interval| interval.low > -limit && interval.high < limit;
    if intervals.iter().any(|interval| contradicts(interval, limit)) {
        Agreement::Contradicted
    } else if !intervals.is_empty() && intervals.iter().all(within) {
        Agreement::Shown
    } else {
        Agreement::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Slices of three conditions in random order. Work is the rate times the seconds, with noise from slice
    /// to slice; `second` and `after_two` change the rate of second halves and of slices after condition 2.
    fn turns(seed: u64, count: usize, second: f64, after_two: f64) -> Vec<SliceSample> {
        let mut random = SplitMix64::new(seed);
        let slices = (0..count).map(|_| {
            let before = random.below(3) as usize;
            let length = 0.010 * (0.5 + random.next_f64());
            let level = if before == 2 { after_two } else { 1.0 };
            let mut work =
                |rate: f64| 1000.0 * rate * length * (1.0 + 0.3 * (random.next_f64() - 0.5));
            SliceSample {
                previous: Some(before),
                work: [work(level), work(level * second)],
                seconds: [length, length],
            }
        });
        slices.collect()
    }

    #[test]
    fn estimates_are_ratios_of_rates() {
        let exact = |previous, work| SliceSample { previous, work, seconds: [1.0, 2.0] };
        let all = [
            exact(None, [10.0, 22.0]),
            exact(Some(1), [10.0, 22.0]),
            exact(Some(1), [10.0, 22.0]),
            exact(Some(1), [10.0, 22.0]),
        ];
        let halves = half_ratio(&all).unwrap();
        assert!((halves.estimate - 1.1_f64.ln()).abs() < 1e-12 && halves.error < 1e-12);
        assert_eq!(ratio_after(&all, 1).unwrap().estimate, 0.0);
        assert_eq!(ratio_after(&all, 0), None);
        assert_eq!(half_ratio(&all[..2]), None);
        let idle = [exact(Some(0), [0.0, 0.0]); 5];
        assert_eq!((half_ratio(&idle), ratio_after(&idle, 0)), (None, None));
    }

    #[test]
    fn each_question_finds_the_carry_over_of_the_modules_example() {
        let slices = |previous, work, count| {
            vec![SliceSample { previous: Some(previous), work, seconds: [1.0; 2] }; count]
        };
        let baseline = [slices(0, [100.0, 100.0], 3), slices(1, [70.0, 90.0], 9)].concat();
        let slowing = [slices(1, [60.0, 60.0], 3), slices(0, [60.0, 60.0], 9)].concat();
        let found = estimate(&[Slices::new(&baseline, 2), Slices::new(&slowing, 2)], &[0, 1], 0);
        let ratio = |question| {
            let is_answer = |one: &&Influence| (one.condition, one.question) == (1, question);
            found.iter().find(is_answer).unwrap().log.estimate.exp()
        };
        assert!((ratio(Question::SecondHalves) - 0.838).abs() < 0.001);
        // 0.80 to first order.
        assert!((ratio(Question::After) - 0.785).abs() < 0.001);
        assert!((ratio(Question::Turns) - 1.176).abs() < 0.001);
    }

    #[test]
    fn carry_over_intervals_cover_the_truth_in_19_of_20() {
        let (mut of_halves, mut of_after) = (0, 0);
        for seed in 0..1000 {
            let turns = turns(seed, 60, 1.0, 1.0);
            let covers = |ratio: LogRatio| {
                let Interval { low, high, .. } = ratio.interval(0.05);
                u32::from(low <= 0.0 && high >= 0.0)
            };
            of_halves += covers(half_ratio(&turns).unwrap());
            of_after += covers(ratio_after(&turns, 2).unwrap());
        }
        assert!((930..=970).contains(&of_halves), "{of_halves}");
        assert!((930..=970).contains(&of_after), "{of_after}");
    }

    #[test]
    fn carry_over_above_the_limit_is_detected_and_below_it_is_not() {
        let limit = 0.0125_f64.ln_1p();
        // The slices of the baseline and of the third condition are all alike.
        let judge = |own: &[SliceSample]| {
            let alike = [77, 78].map(|seed| turns(seed, own.len(), 1.0, 1.0));
            let all = [alike[0].as_slice(), own, &alike[1]];
            let slices = all.map(|own| Slices::new(own, 3));
            agreement(&estimate(&slices, &[0, 1, 2], 0), limit, 0.05)
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

    /// Woven windows of so many rounds: `rate` is the rate of a condition after another one, with noise of 30 % from
    /// slice to slice.
    fn rounds(
        seed: u64,
        conditions: usize,
        rounds: usize,
        rate: impl Fn(usize, usize) -> f64,
    ) -> Vec<Slices> {
        let mut random = SplitMix64::new(seed);
        let mut all = vec![Vec::new(); conditions];
        let mut before = None;
        for _ in 0..rounds {
            let mut order: Vec<usize> = (0..conditions).collect();
            random.shuffle(&mut order);
            let length = 0.010 * (0.5 + random.next_f64());
            for condition in order {
                let level = before.map_or(1.0, |before| rate(condition, before));
                let mut work = || 1000.0 * level * length * (1.0 + 0.6 * (random.next_f64() - 0.5));
                let work = [work(), work()];
                all[condition].push(SliceSample { previous: before, work, seconds: [length; 2] });
                before = Some(condition);
            }
        }
        all.iter().map(|turns| Slices::new(turns, conditions)).collect()
    }

    /// The baseline, its twin, and a condition that is faster after those two.
    fn with_twin(condition: usize, before: usize) -> f64 {
        if condition == 2 && before != 2 { 1.18 } else { 1.0 }
    }

    #[test]
    fn a_twin_does_not_dilute_the_estimated_bias_of_a_ratio() {
        let found = estimate(&rounds(1, 3, 3000, with_twin), &[0, 0, 1], 0);
        let verdict = |condition, question| {
            found.iter().find(|a| (a.condition, a.question) == (condition, question)).map(|a| a.log)
        };
        // Eight of nine slices of the condition follow the other two.
        let bias = verdict(2, Question::Turns).unwrap();
        assert!((bias.estimate - 0.16_f64.ln_1p()).abs() < 0.03, "{bias:?}");
        assert!(bias.estimate.abs() > 2.0 * bias.error, "{bias:?}");
        let twin = verdict(1, Question::Turns).unwrap();
        assert!(twin.estimate.abs() < 3.0 * twin.error, "{twin:?}");
        let limit = 0.0125_f64.ln_1p();
        for seed in 0..20 {
            let found = estimate(&rounds(seed, 3, 600, with_twin), &[0, 0, 1], 0);
            assert_eq!(agreement(&found, limit, 0.05), Agreement::Contradicted, "{seed}");
        }
    }

    #[test]
    fn carry_over_of_a_condition_is_estimated_from_the_slices_after_it() {
        // The last of five slows whatever follows it, itself included.
        let rate = |_: usize, before: usize| if before == 4 { 0.9 } else { 1.0 };
        let found = estimate(&rounds(1, 5, 3000, rate), &[0, 0, 1, 2, 3], 0);
        let after =
            found.iter().find(|a| (a.condition, a.question) == (4, Question::After)).unwrap();
        assert!((after.log.estimate - 0.9_f64.ln()).abs() < 0.01, "{after:?}");
        // In windows of its own it would be slower, and the baseline faster.
        let turns =
            found.iter().find(|a| (a.condition, a.question) == (4, Question::Turns)).unwrap();
        assert!((turns.log.estimate + 1.2 * 0.9_f64.ln()).abs() < 0.05, "{turns:?}");
    }

    #[test]
    fn conditions_without_carry_over_raise_false_alarms_in_one_of_twenty() {
        let limit = 0.0125_f64.ln_1p();
        for (settings, rounds_each) in [
            (vec![0, 1], 20),
            (vec![0, 0, 1], 60),
            (vec![0, 0, 1], 400),
            (vec![0, 0, 1, 2, 3], 150),
        ] {
            let accused = (0..400).filter(|seed| {
                let slices = rounds(*seed, settings.len(), rounds_each, |_, _| 1.0);
                let found = estimate(&slices, &settings, 0);
                agreement(&found, limit, 0.05) == Agreement::Contradicted
            });
            // 20 are expected, with a standard deviation of 4.4.
            let accused = accused.count();
            assert!(accused <= 32, "{settings:?} {rounds_each}: {accused}");
        }
    }

    #[test]
    fn equal_settings_are_compared_in_second_halves_only() {
        let found = estimate(&rounds(1, 2, 100, |_, _| 1.0), &[0, 0], 0);
        let questions: Vec<Question> = found.iter().map(|answer| answer.question).collect();
        assert_eq!(questions, [Question::SecondHalves]);
    }

    #[test]
    fn shares_of_slices_after_each_condition_add_up_to_one() {
        for k in 2..6 {
            let others = (k - 1) as f64 * share_after(k, false);
            assert!((share_after(k, true) + others - 1.0).abs() < 1e-12, "{k}");
        }
    }

    #[test]
    fn means_and_differences_carry_their_errors() {
        let one = LogRatio { estimate: 0.2, error: 0.03, freedom: 9.0 };
        let other = LogRatio { estimate: 0.1, error: 0.04, freedom: 5.0 };
        let difference = one.minus(&other);
        assert!(
            (difference.estimate - 0.1).abs() < 1e-12 && (difference.error - 0.05).abs() < 1e-12
        );
        assert_eq!(difference.freedom, 5.0);
        let mean = LogRatio::mean(&[one, other]).unwrap();
        assert!((mean.estimate - 0.15).abs() < 1e-12 && (mean.error - 0.025).abs() < 1e-12);
        assert_eq!((mean.freedom, LogRatio::mean(&[])), (14.0, None));
        let weighted = LogRatio::weighted(&[(1.0, one), (3.0, other)]).unwrap();
        assert!((weighted.estimate - 0.125).abs() < 1e-12, "{weighted:?}");
        assert!((weighted.error - 0.0075_f64.hypot(0.03)).abs() < 1e-12, "{weighted:?}");
        assert!(weighted.freedom > 5.0 && weighted.freedom < 6.0, "{weighted:?}");
        assert_eq!(LogRatio::weighted(&[]), None);
    }
}
