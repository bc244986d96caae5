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
        let mut work = |rate: f64| 1000.0 * rate * length * (1.0 + 0.3 * (random.next_f64() - 0.5));
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

/// Woven windows of so many rounds: `rate` is that of a condition after another one, with noise of 30 % from
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
    let of = |condition, question| {
        found.iter().find(|a| (a.condition, a.question) == (condition, question)).map(|a| a.log)
    };
    // Eight of nine slices of the condition follow the other two.
    let bias = of(2, Question::Turns).unwrap();
    assert!((bias.estimate - 0.16_f64.ln_1p()).abs() < 0.03, "{bias:?}");
    assert!(bias.estimate.abs() > 2.0 * bias.error, "{bias:?}");
    let twin = of(1, Question::Turns).unwrap();
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
    let after = found.iter().find(|a| (a.condition, a.question) == (4, Question::After)).unwrap();
    assert!((after.log.estimate - 0.9_f64.ln()).abs() < 0.01, "{after:?}");
    // In windows of its own it would be slower, and the baseline faster.
    let turns = found.iter().find(|a| (a.condition, a.question) == (4, Question::Turns)).unwrap();
    assert!((turns.log.estimate + 1.2 * 0.9_f64.ln()).abs() < 0.05, "{turns:?}");
}

#[test]
fn conditions_without_carry_over_raise_false_alarms_in_one_of_twenty() {
    let limit = 0.0125_f64.ln_1p();
    for (settings, rounds_each) in
        [(vec![0, 1], 20), (vec![0, 0, 1], 60), (vec![0, 0, 1], 400), (vec![0, 0, 1, 2, 3], 150)]
    {
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
    assert!((difference.estimate - 0.1).abs() < 1e-12 && (difference.error - 0.05).abs() < 1e-12);
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
