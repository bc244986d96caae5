//! Finds the shortest length of woven slices at which conditions do not reach into each other.
//!
//! Lengths are tried from the shortest to the longest. Each is tried in parts; after each part, the effect in
//! the second halves of the slices is compared with that in the first, the rate of the slices after each
//! condition with the effect of the others, and the effect in all slices with the effect in slices which follow their own
//! settings. A difference beyond the limit rejects the length. A length is
//! taken when all differences are known to lie within the limit, or when its parts are over without
//! a contradiction; then every block goes on asking. All lengths together take at most a share of the
//! experiment's time. A length for which too little is left is not tried, and each trial has its window.
//! `live` runs the slices; this decides.

use std::time::{Duration, Instant};

use benchmath::carry_over::{self, Agreement, Influence, Question, SliceSample, Slices};

use pgio_results::store::{Calibration, CarryOver, CarryOverQuestion, LengthVerdict, TriedLength};

/// The mean lengths tried, in milliseconds.
const LENGTHS_MS: [u64; 5] = [20, 50, 100, 200, 500];
/// The first length tried where commits can wait for a standby. In slices of 200 ms, reports of five levels of
/// `synchronous_commit` with 30 s for each warned of carry-over, some 3 %, in three of three experiments; a
/// calibration is too short to see that. In slices of 500 ms they did not.
pub(super) const FIRST_WITH_STANDBY: Duration = Duration::from_millis(500);
/// A window of one condition holds at least this many slices; longer slices gain nothing over plain windows.
const MIN_SLICES: u32 = 4;
/// The experiment's counted time divided by this is the limit of a calibration, for all lengths together.
const BUDGET_DIVISOR: u32 = 8;
/// A length is tried in at most this many parts; the parts of the first length take half of the time.
const MAX_PARTS: u32 = 6;
/// A length that nothing contradicts is taken only after this many parts.
const MIN_PARTS: u32 = 2;
/// A length that the user names is refused after this many parts in which a call takes longer.
const NAMED_LENGTH_PARTS: u64 = 3;
/// One part holds at least this many slices; its counted time lies between these limits, unless slices
/// are longer.
const MIN_PART_SLICES: u32 = 6;
const PART_LIMITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The probability that a length without carry-over is rejected, for all its questions and parts.
const ALPHA: f64 = 0.05;

/// The result of one part, for each condition: its slices, and the mean time of a call.
#[derive(Debug, Clone, Default)]
pub(super) struct CalibrationPart {
    pub(super) slices: Vec<Vec<SliceSample>>,
    /// `None` where no call ended.
    pub(super) calls: Vec<Option<Duration>>,
}

impl CalibrationPart {
    /// Returns the condition with the slowest calls, and their mean time; none if no call of it ended.
    pub(super) fn slowest(&self) -> Option<(usize, Option<Duration>)> {
        let calls = self.calls.iter().copied().enumerate();
        calls.max_by_key(|(_, call)| call.unwrap_or(Duration::MAX))
    }

    /// Whether slices of this length are shorter than a call of some condition takes.
    fn is_too_short(&self, slice: Duration) -> bool {
        self.slowest().is_some_and(|(_, call)| call.is_none_or(|call| call > slice))
    }
}

/// What is calibrated: the conditions, the time that they have, and the accepted carry-over.
#[derive(Debug, Clone, Copy)]
pub(super) struct CalibrationInput<'a> {
    /// Names, in the order of the slices' conditions.
    pub(super) conditions: &'a [String],
    /// A number for each condition, equal for those with the same settings.
    pub(super) settings: &'a [usize],
    /// Index of the baseline.
    pub(super) baseline: usize,
    /// Counted time of each condition in a block.
    pub(super) duration: Duration,
    pub(super) blocks: u32,
    /// The largest accepted difference, as a share of a rate.
    pub(super) limit: f64,
    /// Shorter lengths are not tried.
    pub(super) shortest: Duration,
}

impl CalibrationInput<'_> {
    fn lengths(&self) -> impl Iterator<Item = Duration> {
        let shortest = self.shortest;
        LENGTHS_MS.into_iter().map(Duration::from_millis).filter(move |length| *length >= shortest)
    }

    /// Returns the counted time that the whole calibration may take for each condition.
    fn budget(&self) -> Duration {
        self.duration * self.blocks / BUDGET_DIVISOR
    }

    /// Returns the counted time of a part for each condition.
    fn part_time(&self, slice: Duration) -> Duration {
        let wanted = self.budget() / (2 * MAX_PARTS);
        (slice * MIN_PART_SLICES).max(wanted.clamp(PART_LIMITS.0, PART_LIMITS.1))
    }
}

/// Tries lengths until one is accepted. `run` gets a mean length, the counted time of each condition, and the
/// number of the part, from which it draws its random numbers.
pub(super) fn calibrate<E>(
    input: CalibrationInput<'_>,
    run: &mut dyn FnMut(Duration, Duration, u64) -> Result<CalibrationPart, E>,
) -> Result<Calibration, E> {
    let mut calibration = Calibration { limit: input.limit, ..Calibration::default() };
    let mut number = 0;
    let mut left = input.budget();
    for slice in input.lengths() {
        if slice * MIN_SLICES > input.duration {
            break;
        }
        let part_time = input.part_time(slice);
        let parts = (left.as_secs_f64() / part_time.as_secs_f64()) as u32;
        if parts < MIN_PARTS {
            calibration.obstacle = Some(budget_obstacle(slice, part_time * MIN_PARTS, left));
            break;
        }
        let parts = parts.min(MAX_PARTS);
        let begun = Instant::now();
        let mut slices = vec![Vec::new(); input.conditions.len()];
        let mut verdict = LengthVerdict::NotContradicted;
        for _ in 0..parts {
            number += 1;
            left = left.saturating_sub(part_time);
            let part = run(slice, part_time, number)?;
            let is_too_short = part.is_too_short(slice);
            for (all, new) in slices.iter_mut().zip(part.slices) {
                // The condition before a part's first slice is unknown, not the last of the part before.
                all.extend(new);
            }
            if is_too_short {
                verdict = LengthVerdict::TooShort;
                break;
            }
            // The test is repeated after each part, so each part has its share of the probability.
            let alpha = ALPHA / f64::from(parts);
            match carry_over::agreement(
                &carry_over_answers(input, &slices),
                log_limit(input),
                alpha,
            ) {
                Agreement::Open => {}
                Agreement::Shown => {
                    verdict = LengthVerdict::Agrees;
                    break;
                }
                Agreement::Contradicted => {
                    verdict = LengthVerdict::Contradicted;
                    break;
                }
            }
        }
        let accepted = matches!(verdict, LengthVerdict::Agrees | LengthVerdict::NotContradicted);
        calibration.tried.push(TriedLength {
            slice_seconds: slice.as_secs_f64(),
            slices: slices.first().map_or(0, |own| u32::try_from(own.len()).unwrap_or(u32::MAX)),
            seconds: begun.elapsed().as_secs_f64(),
            verdict,
            answers: stored_answers(input, &slices),
        });
        if accepted {
            calibration.slice_seconds = Some(slice.as_secs_f64());
            break;
        }
    }
    if calibration.tried.is_empty() && calibration.obstacle.is_none() {
        let shortest = input.lengths().next().unwrap_or_default() * MIN_SLICES;
        calibration.obstacle = Some(format!(
            "windows are shorter than {} ms, too short for the shortest slices",
            shortest.as_millis()
        ));
    }
    Ok(calibration)
}

/// Says why a length is not tried.
fn budget_obstacle(slice: Duration, takes: Duration, left: Duration) -> String {
    format!(
        "calibrating slices of {} ms needs {:.1} s of each condition, but only {:.1} s of the \
         calibration budget (an eighth of the experiment) is left",
        slice.as_millis(),
        takes.as_secs_f64(),
        left.as_secs_f64()
    )
}

/// Tries a length that the user names. Returns the slowest calls if slices are shorter than a call in every
/// part: on a busy machine, a session may get no processor for a few slices.
pub(super) fn try_named_length<E>(
    slice: Duration,
    duration: Duration,
    run: &mut dyn FnMut(Duration, Duration, u64) -> Result<CalibrationPart, E>,
) -> Result<Option<CalibrationPart>, E> {
    let counted = (slice * MIN_PART_SLICES).max(PART_LIMITS.0).min(duration);
    let mut last = CalibrationPart::default();
    for number in 1..=NAMED_LENGTH_PARTS {
        last = run(slice, counted, number)?;
        if !last.is_too_short(slice) {
            return Ok(None);
        }
    }
    Ok(Some(last))
}

fn log_limit(input: CalibrationInput<'_>) -> f64 {
    input.limit.ln_1p()
}

fn carry_over_answers(input: CalibrationInput<'_>, slices: &[Vec<SliceSample>]) -> Vec<Influence> {
    let slices: Vec<Slices> = slices.iter().map(|own| Slices::new(own, slices.len())).collect();
    carry_over::estimate(&slices, input.settings, input.baseline)
}

/// Returns the answers as stored, the largest difference first.
fn stored_answers(input: CalibrationInput<'_>, slices: &[Vec<SliceSample>]) -> Vec<CarryOver> {
    let mut all = carry_over_answers(input, slices);
    all.sort_by(|a, b| b.log.estimate.abs().total_cmp(&a.log.estimate.abs()));
    let share = ALPHA / all.len().max(1) as f64;
    let answer = |Influence { condition, question, log }: Influence| {
        let interval = log.interval(share);
        CarryOver {
            condition: input.conditions[condition].clone(),
            question: match question {
                Question::SecondHalves => CarryOverQuestion::SecondHalves,
                Question::After => CarryOverQuestion::After,
                Question::Turns => CarryOverQuestion::Turns,
            },
            ratio: interval.estimate.exp(),
            low: interval.low.exp(),
            high: interval.high.exp(),
        }
    };
    all.into_iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    #[test]
    fn the_methodology_names_the_lengths_and_parts() {
        use pgio_results::test_support::{assert_documented, in_words};
        let [first @ .., last] = LENGTHS_MS.map(|ms| ms.to_string());
        let words = |n: u32| in_words(n.into());
        let standby = FIRST_WITH_STANDBY.as_millis();
        let lengths = format!("tries {} and {last} ms ({standby} ms only", first.join(", "));
        let parts = format!(
            "in {} to {} parts of at least {} slices",
            words(MIN_PARTS),
            words(MAX_PARTS),
            words(MIN_PART_SLICES)
        );
        assert_eq!(BUDGET_DIVISOR, 8, "an eighth");
        for sentence in [
            lengths,
            format!("holds {} slices, in at most an eighth", words(MIN_SLICES)),
            parts.replace("in ", "each in "),
        ] {
            assert_documented("METHODOLOGY.md", &sentence);
        }
    }

    /// Runs three conditions; slices up to `reaches` are slower after the third, and calls take `call`.
    fn tried(duration: u64, reaches: u64, call: u64) -> Calibration {
        tried_from(Duration::ZERO, duration, reaches, call)
    }

    fn tried_from(shortest: Duration, duration: u64, reaches: u64, call: u64) -> Calibration {
        let conditions = ["local", "on", "remote_apply"].map(str::to_owned);
        let input = CalibrationInput {
            conditions: &conditions,
            settings: &[0, 1, 2],
            baseline: 0,
            duration: Duration::from_millis(duration),
            blocks: 6,
            limit: 0.0125,
            shortest,
        };
        let mut run = |slice: Duration, counted: Duration, number: u64| {
            let mut random = SplitMix64::new(number);
            let seconds = slice.as_secs_f64() / 2.0;
            let count = (counted.as_secs_f64() / slice.as_secs_f64()).round() as usize;
            let mut of_condition = || {
                let slices = (0..count).map(|_| {
                    let before = random.below(3) as usize;
                    let slow = before == 2 && slice <= Duration::from_millis(reaches);
                    let rate = if slow { 800.0 } else { 1000.0 };
                    let mut noisy = || rate * seconds * (0.9 + 0.2 * random.next_f64());
                    SliceSample {
                        previous: Some(before),
                        work: [noisy(), noisy()],
                        seconds: [seconds, seconds],
                    }
                });
                slices.collect()
            };
            Ok::<_, ()>(CalibrationPart {
                slices: (0..3).map(|_| of_condition()).collect(),
                calls: vec![Some(Duration::from_millis(call))],
            })
        };
        calibrate(input, &mut run).unwrap()
    }

    #[test]
    fn calibration_takes_the_shortest_slice_without_carry_over() {
        let none = tried(10_000, 0, 1);
        assert_eq!(none.slice_seconds, Some(0.02));
        assert_eq!(none.tried.len(), 1);
        let some = tried(10_000, 50, 1);
        assert_eq!(some.slice_seconds, Some(0.1));
        let verdicts: Vec<LengthVerdict> = some.tried.iter().map(|rung| rung.verdict).collect();
        assert_eq!(verdicts[..2], [LengthVerdict::Contradicted; 2]);
        // It slows whatever follows it, and most of its own slices follow another condition.
        let answers = &some.tried[0].answers;
        assert_eq!(answers[0].condition, "remote_apply", "{answers:?}");
        let found = |question| {
            answers
                .iter()
                .find(|a| a.condition == "remote_apply" && a.question == question)
                .unwrap()
        };
        assert!(found(CarryOverQuestion::After).high < 0.95, "{answers:?}");
        assert!(found(CarryOverQuestion::Turns).low > 1.05, "{answers:?}");
    }

    #[test]
    fn calibration_falls_back_to_plain_windows() {
        let all = tried(60_000, 500, 1);
        assert_eq!((all.slice_seconds, all.tried.len()), (None, 5));
        let short = tried(60, 0, 1);
        assert_eq!(
            short.obstacle.as_deref(),
            Some("windows are shorter than 80 ms, too short for the shortest slices")
        );
    }

    #[test]
    fn a_calibration_takes_an_eighth_of_the_experiment_at_most() {
        // Six blocks of 4 s leave 3 s; slices of 500 ms need twice six of them.
        let short = tried_from(FIRST_WITH_STANDBY, 4000, 0, 1);
        assert_eq!((short.slice_seconds, short.tried.len()), (None, 0));
        let why = short.obstacle.unwrap();
        assert!(why.starts_with("calibrating slices of 500 ms needs 6.0 s"), "{why}");
        for (shortest, duration, reaches) in [
            (Duration::ZERO, 400, 0),
            (Duration::ZERO, 10_000, 500),
            (FIRST_WITH_STANDBY, 10_000, 0),
        ] {
            let calibration = tried_from(shortest, duration, reaches, 1);
            let counted: f64 =
                calibration.tried.iter().map(|r| r.slice_seconds * f64::from(r.slices)).sum();
            // The number of slices in a part is rounded.
            let most = duration as f64 / 1000.0 * 6.0 / 8.0 * 1.05;
            assert!(counted > 0.0 && counted <= most, "{counted} of {most}: {calibration:?}");
        }
    }

    #[test]
    fn lengths_that_are_too_short_for_a_standby_are_not_tried() {
        let with_standby = tried_from(FIRST_WITH_STANDBY, 10_000, 0, 1);
        assert_eq!(with_standby.slice_seconds, Some(0.5));
        assert_eq!(with_standby.tried.len(), 1);
        let short = tried_from(FIRST_WITH_STANDBY, 1900, 0, 1);
        assert_eq!(
            short.obstacle.as_deref(),
            Some("windows are shorter than 2000 ms, too short for the shortest slices")
        );
    }

    #[test]
    fn calibration_rejects_slices_shorter_than_a_call() {
        let slow = tried(10_000, 0, 70);
        assert_eq!(slow.slice_seconds, Some(0.1));
        assert_eq!(slow.tried[0].verdict, LengthVerdict::TooShort);
        let part = CalibrationPart {
            calls: vec![Some(Duration::from_millis(1)), None, Some(Duration::from_millis(9))],
            ..CalibrationPart::default()
        };
        assert_eq!(part.slowest(), Some((1, None)), "no call of it ended");
        assert!(part.is_too_short(Duration::from_millis(20)));
    }

    #[test]
    fn a_named_length_is_refused_only_if_calls_stay_longer() {
        let (slice, duration) = (Duration::from_millis(20), Duration::from_secs(1));
        let part = |millis: Option<u64>| CalibrationPart {
            calls: vec![Some(Duration::from_millis(1)), millis.map(Duration::from_millis)],
            ..CalibrationPart::default()
        };
        let refused = |calls: [Option<u64>; 3]| {
            let mut run = |_: Duration, _: Duration, number: u64| {
                Ok::<_, ()>(part(calls[number as usize - 1]))
            };
            try_named_length(slice, duration, &mut run).unwrap().and_then(|last| last.slowest())
        };
        assert_eq!(refused([None, Some(23), Some(1)]), None);
        let longest = Some((1, Some(Duration::from_millis(25))));
        assert_eq!(refused([None, Some(23), Some(25)]), longest);
    }
}
