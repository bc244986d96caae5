use benchmath::rng::SplitMix64;
use pgio_results::Trial;

use crate::analysis::sweep::COMMIT_MEAN;
use crate::analysis::test_support::{experiment, set, trial};
use crate::analysis::{Analysis, Interval, analyze};

/// Conditions of a demo and their rates.
const LEVELS: [(&str, f64); 4] =
    [("local", 1.0), ("local-aa", 1.0), ("remote_write", 0.8), ("on", 0.5)];

/// Metrics that do not depend on the condition, with their noise.
const OTHERS: [(&str, f64); 6] = [
    ("commit_latency_p50", 0.02),
    ("commit_latency_p95", 0.1),
    ("commit_latency_p99", 0.3),
    ("wal_bytes_per_commit", 0.002),
    ("wal_bytes_per_second", 0.05),
    ("device_reads_per_second", 0.5),
];

/// Roughly normal, with a standard deviation of 1.
fn noise(rng: &mut SplitMix64) -> f64 {
    (0..4).map(|_| rng.next_f64() - 0.5).sum::<f64>() * 3f64.sqrt()
}

/// Six blocks of sessions that do nothing but commit, so that the mean time of a commit is the inverse of the rate.
fn simulated(rng: &mut SplitMix64, levels: [(&str, f64); 4], judge: &[&str]) -> Analysis {
    let one = |rng: &mut SplitMix64, condition: &str, level: f64, block: u32| -> Trial {
        let rate = 2000.0 * level * (0.03 * noise(rng)).exp();
        let mean = (0.003 * noise(rng)).exp() / rate;
        let mut t = trial(condition, block, &[("commits_per_second", rate), (COMMIT_MEAN, mean)]);
        for (metric, sd) in OTHERS {
            set(&mut t, metric, (sd * noise(rng)).exp());
        }
        t
    };
    let mut trials = Vec::new();
    for block in 1..=6 {
        trials.extend(levels.map(|(condition, level)| one(rng, condition, level, block)));
    }
    let mut stored = experiment(&levels.map(|(name, _)| name), trials);
    stored.manifest.rules.judge = judge.iter().map(|name| (*name).to_owned()).collect();
    analyze(&stored)
}

/// With six blocks, the smallest p is 0.031 and the next one 0.0625: among all secondary metrics, chance would
/// decide whether a commit takes measurably longer under a condition that halves the rate.
#[test]
fn the_time_of_a_commit_agrees_with_the_rate_that_it_explains() {
    let mut rng = SplitMix64::new(3);
    let (mut decided, mut contradicted) = (0, 0);
    for _ in 0..200 {
        let analysis = simulated(&mut rng, LEVELS, &[]);
        for condition in ["remote_write", "on"] {
            let rate = analysis.primary(condition).unwrap().verdict;
            let time = analysis.comparison(condition, COMMIT_MEAN).unwrap().verdict;
            decided += usize::from(rate.is_decided());
            contradicted += usize::from(rate.is_decided() && time != rate);
        }
    }
    assert!(decided > 380 && contradicted == 0, "{contradicted} of {decided}");
}

/// The family of mean times has a false verdict in at most 5 % of experiments: 20 of 400, and 31 with a chance of 1 %.
#[test]
fn the_times_of_equal_conditions_are_rarely_found_different() {
    let mut rng = SplitMix64::new(5);
    let is_false = |_: &u32| {
        let analysis = simulated(&mut rng, LEVELS.map(|(condition, _)| (condition, 1.0)), &[]);
        let mut times = analysis.comparisons.iter().filter(|c| c.metric == COMMIT_MEAN);
        times.any(|c| c.verdict.is_decided())
    };
    let wrong = (0..400).filter(is_false).count();
    assert!(wrong <= 31, "{wrong} of 400");
}

/// A dozen secondary comparisons cannot each be decided by six blocks: their ties were broken by sizes, and the bounds
/// were numbers of up to 249 digits.
#[test]
fn too_few_blocks_for_a_family_give_no_intervals() {
    // What `judge` leaves out keeps its interval, and the twin shows the noise.
    for judge in [&[] as &[&str], &["on"]] {
        let analysis = simulated(&mut SplitMix64::new(7), LEVELS, judge);
        let (question, others): (Vec<_>, Vec<_>) =
            analysis.comparisons.iter().partition(|c| c.primary || c.explains);
        assert!(question.iter().all(|c| c.interval.sides().is_some()), "{question:?}");
        assert!(others.iter().all(|c| c.interval == Interval::UNKNOWN), "{others:?}");
    }
}
