//! Repeated and stalled trials: what they do to the ratio, by simulation.

use super::*;
use crate::test_support::unit_noise;

/// Equal conditions on a machine that gets 1 % slower with each trial; half of the trials of one of them are
/// repeated, each beside its baseline. Returns the mean of ln ratio and the share of false verdicts.
fn repaired_under_drift() -> (f64, f64) {
    const EXPERIMENTS: u32 = 400;
    let mut random = SplitMix64::new(11);
    let (mut sum, mut false_verdicts) = (0.0, 0u32);
    for _ in 0..EXPERIMENTS {
        let (mut trials, mut now) = (Vec::new(), 0.0);
        let mut measure = |random: &mut SplitMix64, name: &str, block, attempt, valid: bool| {
            let rate = 1000.0 * (-0.01 * now + 0.01 * unit_noise(random)).exp();
            now += 1.0;
            let mut t = trial(name, block, &[(PRIMARY, rate)]);
            t.place.as_mut().unwrap().attempt = attempt;
            if !valid {
                t.checks.push(Check::invalid("steal", "30 %", "measure elsewhere"));
            }
            trials.push(t);
        };
        for block in 1..=10 {
            let broken = random.next_f64() < 0.5;
            let mut order = ["local", "on", "other", "fourth"];
            random.shuffle(&mut order);
            for name in order {
                measure(&mut random, name, block, 0, !(broken && name == "on"));
            }
            let mut repeat = ["on", "local"];
            random.shuffle(&mut repeat);
            for name in repeat.into_iter().filter(|_| broken) {
                measure(&mut random, name, block, 1, true);
            }
        }
        let stored = experiment(&["local", "on", "other", "fourth"], trials);
        let by_condition = pairing::by_condition(&stored.manifest, &stored.trials);
        let pairs =
            pairing::PairedTrials::new(&by_condition["on"], &by_condition["local"]).values(PRIMARY);
        let both = pairs.condition.iter().zip(&pairs.baseline);
        let logs: Vec<f64> = both.map(|(on, local)| (on / local).ln()).collect();
        assert_eq!(logs.len(), 10);
        sum += logs.iter().sum::<f64>() / 10.0;
        let (low, high) = signed_rank::test(&logs, ALPHA).and_then(|t| t.bounds).unwrap();
        false_verdicts += u32::from(low > 0.0 || high < 0.0);
    }
    (sum / f64::from(EXPERIMENTS), f64::from(false_verdicts) / f64::from(EXPERIMENTS))
}

#[test]
fn a_repaired_block_is_a_pair_that_drift_does_not_bias() {
    let (bias, false_verdicts) = repaired_under_drift();
    assert!(bias.abs() < 0.002, "{bias}");
    assert!(false_verdicts <= 0.09, "{false_verdicts}");
}

/// A condition whose trials stall 30 % of the time, by half: they are warnings, and they count.
#[test]
fn trials_that_stall_are_part_of_the_ratio() {
    let mut random = SplitMix64::new(5);
    let mut trials = Vec::new();
    let mut mean = 0.0;
    for block in 1..=30 {
        let stalls = block % 10 < 3;
        let rate = |random: &mut SplitMix64| 1000.0 * (0.01 * unit_noise(random)).exp();
        let level = if stalls { 0.5 } else { 1.0 };
        let mut on = trial("on", block, &[(PRIMARY, rate(&mut random) * level)]);
        if stalls {
            on.checks.push(Check::warning("rate-not-reached", "50 %", "ask for less"));
        }
        mean += level / 30.0;
        trials.extend([trial("local", block, &[(PRIMARY, rate(&mut random))]), on]);
    }
    let analysis = analyze(&experiment(&["local", "on"], trials));
    let on = analysis.condition("on").unwrap();
    assert_eq!((on.valid, analysis.primary("on").unwrap().blocks), (30, 30));
    let geometric = on.metrics[PRIMARY].value.unwrap() / 1000.0;
    assert!(geometric < mean + 0.01, "{geometric}: with the stalls");
    let ratio = analysis.primary("on").unwrap().ratio.unwrap();
    assert!(ratio < 0.97, "{ratio} is that without stalls");
    let share = on.shares.iter().find(|s| s.what == "rate-not-reached").unwrap();
    assert!(share.trials == 9 && share.notable, "{share:?}");
}
