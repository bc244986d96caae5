//! Two made-up months.

use std::sync::Arc;

use super::*;
use crate::test_support::{demo, experiment, latencies, set, stored_runs, trial, unit_noise};
use pgio_results::change::Change;
use pgio_results::{Metric, Outcome, Trial};

const PRIMARY: &str = "commits_per_second";

fn across_runs(a: &[StoredExperiment], b: &[StoredExperiment]) -> Across {
    super::across(a, b, &[])
}

/// One run a side.
fn across(a: &StoredExperiment, b: &StoredExperiment) -> Across {
    across_runs(std::slice::from_ref(a), std::slice::from_ref(b))
}

fn slower(mut stored: StoredExperiment, factor: f64) -> StoredExperiment {
    for t in &mut stored.trials {
        let rate = t.metrics[PRIMARY].value.unwrap();
        set(t, PRIMARY, rate * factor);
    }
    stored
}

fn compared<'a>(found: &'a Across, condition: &str, metric: &str) -> &'a AcrossComparison {
    found.comparisons.iter().find(|c| c.condition == condition && c.metric == metric).unwrap()
}

#[test]
fn an_experiment_compared_with_itself_does_not_differ() {
    let found = across(&demo(), &demo());
    assert_eq!(found.reasons, []);
    let local = &found.comparisons[0];
    assert_eq!((local.condition.as_str(), local.primary), ("local", true));
    assert_eq!((local.ratio, local.verdict), (Some(1.0), Verdict::NotJudged));
    assert_eq!((local.trials_a, local.trials_b), (6, 6));
    assert!(found.effects.iter().all(|e| e.ratio == Some(1.0) && e.interval.low.is_none()));
}

#[test]
fn a_slower_machine_is_seen_and_leaves_the_effects() {
    let found = across(&demo(), &slower(demo(), 0.8));
    for condition in ["local", "on"] {
        let c = compared(&found, condition, PRIMARY);
        assert!((c.ratio.unwrap() - 0.8).abs() < 1e-9);
        assert_eq!((c.interval.low, c.p, c.verdict), (None, None, Verdict::NotJudged));
    }
    let on = found.effects.iter().find(|e| e.condition == "on").unwrap();
    assert!((on.ratio.unwrap() - 1.0).abs() < 1e-9);
    assert!((on.a.ratio.unwrap() - on.b.ratio.unwrap()).abs() < 1e-9);
}

/// From three runs a side on the run is the unit, with as many of them as there are.
#[test]
fn three_runs_on_each_side_are_compared_by_run() {
    let runs = |factors: [f64; 3]| factors.map(|f| slower(demo(), f));
    let found = across_runs(&runs([1.0, 1.02, 0.99]), &runs([0.8, 0.79, 0.81]));
    let c = compared(&found, "local", PRIMARY);
    assert_eq!((c.verdict, c.runs_a, c.runs_b, c.trials_a), (Verdict::Slower, 3, 3, 18));
    assert!(c.interval.low.unwrap() > 0.7 && c.interval.high.unwrap() < 0.9, "{c:?}");
    // Runs of one side differ by as much as the two sides do.
    let found = across_runs(&runs([1.0, 0.8, 1.1]), &runs([0.8, 1.05, 0.9]));
    assert_eq!(compared(&found, "local", PRIMARY).verdict, Verdict::NoDifference);
    let back = across_runs(&runs([0.8, 0.79, 0.81]), &runs([1.0, 1.02, 0.99]));
    assert_eq!(compared(&back, "local", PRIMARY).verdict, Verdict::Faster);
    assert_eq!(
        across_runs(&runs([1.0; 3])[..2], &runs([0.5; 3])).comparisons[0].verdict,
        Verdict::NotJudged
    );
}

/// Five equal conditions, each with its own noise of a run: unadjusted, one of them would differ in 20 %.
#[test]
fn five_equal_conditions_rarely_differ() {
    use benchmath::rng::SplitMix64;
    const NAMES: [&str; 5] = ["local", "a", "b", "c", "d"];
    let mut rng = SplitMix64::new(4);
    let mut noise = || 0.05 * unit_noise(&mut rng);
    let mut runs = || -> Vec<StoredExperiment> {
        let run = |_| {
            let rates = NAMES.map(|name| (name, 1000.0 * noise().exp()));
            let block = |n| rates.map(|(name, rate)| trial(name, n, &[(PRIMARY, rate)]));
            experiment(&NAMES, (1..=2).flat_map(block).collect())
        };
        (0..3).map(run).collect()
    };
    let experiments = 200;
    let (mut differ, mut effects_differ) = (0, 0);
    for _ in 0..experiments {
        let found = across_runs(&runs(), &runs());
        differ += usize::from(found.comparisons.iter().any(|c| c.verdict.is_decided()));
        effects_differ += usize::from(found.effects.iter().any(|e| e.interval.excludes(1.0)));
        for c in &found.comparisons {
            assert_eq!(c.interval.excludes(1.0), c.verdict.is_decided(), "{c:?}");
        }
    }
    // Ten are expected at most, and 18 with a chance of 1 %.
    assert!(differ <= 12 && effects_differ <= 12, "{differ} {effects_differ} of {experiments}");
}

/// Runs vary as much between dates as trials do within: trials as the unit would tell every second
/// such pair apart.
#[test]
fn equal_runs_differ_in_one_of_twenty() {
    use benchmath::rng::SplitMix64;
    let mut rng = SplitMix64::new(11);
    let mut noise = || 0.02 * unit_noise(&mut rng);
    let mut run = || {
        let date = noise();
        let trials =
            (1..=6).map(|block| trial("local", block, &[(PRIMARY, (date + noise()).exp())]));
        experiment(&["local"], trials.collect())
    };
    let mut apart = 0;
    for _ in 0..200 {
        let (a, b) = ([run(), run(), run()], [run(), run(), run()]);
        apart += usize::from(compared(&across_runs(&a, &b), "local", PRIMARY).verdict.is_decided());
    }
    assert!((1..=19).contains(&apart), "{apart} of 200");
}

/// Holm's method withdraws the verdict on one of several secondary metrics; named, it is judged on its own.
#[test]
fn interval_and_verdict_are_those_of_one_level() {
    const METRICS: [&str; 4] =
        ["commit_latency_mean", "commit_latency_p50", "commit_latency_p95", "commit_latency_p99"];
    let run = |factor: f64, slower: f64| {
        let block = |block: u32| {
            let mut t = trial("local", block, &[(PRIMARY, 1000.0 * factor)]);
            METRICS.iter().for_each(|name| set(&mut t, name, 0.01 * factor));
            set(&mut t, METRICS[0], 0.01 * factor * slower);
            t
        };
        experiment(&["local"], (1..=2).map(block).collect())
    };
    let runs = |slower: f64| [0.9, 1.0, 1.1].map(|factor| run(factor, slower));
    let (a, b) = (runs(1.0), runs(1.3));
    let found = across_runs(&a, &b);
    for c in &found.comparisons {
        let excludes_none = c.interval.excludes(1.0);
        assert_eq!(excludes_none, c.verdict.is_decided(), "{c:?}");
    }
    let in_family = compared(&found, "local", METRICS[0]);
    assert_eq!(in_family.verdict, Verdict::NoDifference);
    assert!(in_family.p.unwrap() <= ALPHA && in_family.p_adjusted.unwrap() > ALPHA);
    let found = super::across(&a, &b, &[METRICS[0].to_owned()]);
    let alone = compared(&found, "local", METRICS[0]);
    assert_eq!((alone.verdict, alone.p_adjusted), (Verdict::Slower, alone.p));
    assert!(alone.interval.low.unwrap() > 1.0, "{alone:?}");

    // A named metric that the new runs have no value of is undecided, not left out.
    let mut none = b;
    none.iter_mut()
        .flat_map(|run| &mut run.trials)
        .for_each(|t| drop(t.metrics.remove(METRICS[0])));
    let found = super::across(&a, &none, &[METRICS[0].to_owned()]);
    let missing = compared(&found, "local", METRICS[0]);
    assert!(!missing.verdict.is_decided() && missing.ratio.is_none(), "{missing:?}");
    assert!(across_runs(&a, &none).comparisons.iter().all(|c| c.metric != METRICS[0]));
}

#[test]
fn the_baseline_comes_first_and_unmatched_conditions_are_listed_apart() {
    let mut b = demo();
    b.manifest.conditions.reverse();
    b.manifest.conditions.retain(|c| c.name != "remote_write");
    let mut a = demo();
    a.manifest.conditions.reverse();
    let found = across(&a, &b);
    assert_eq!(found.comparisons[0].condition, "local");
    assert_eq!((found.only_in_a, found.only_in_b), (vec!["remote_write".to_owned()], vec![]));
}

#[test]
fn what_every_private_server_draws_is_no_difference() {
    let compared = |directory: &str| {
        let mut stored = demo();
        let facts = [
            (format!("standby.{directory}/standby.fsync"), "on"),
            ("system_identifier".to_owned(), directory),
        ];
        for t in &mut stored.trials {
            t.server.target = format!("pgio on {directory}/run:5432 as postgres");
            t.dataset.as_mut().unwrap().seed = directory.len() as u64;
            let environment = Arc::make_mut(&mut t.environment);
            environment.extend(facts.clone().map(|(name, value)| (name, value.to_owned())));
        }
        stored
    };
    let reasons = |a: &str, b: &str| across(&compared(a), &compared(b)).reasons;
    assert_eq!(reasons("/var/tmp/pgio-SJRNaQ", "/var/tmp/pgio-x9Lw01a"), []);
    assert_eq!(reasons("/srv/a", "/srv/bc").len(), 5);
    assert_ne!(reasons("/var/tmp/pgio-a b/c", "/var/tmp/pgio-d e/c"), []);
}

#[test]
fn what_differs_is_listed_gravest_first() {
    let mut a = demo();
    a.manifest.environment.insert("driver.cores".to_owned(), "2".to_owned());
    let mut b = demo();
    b.manifest.environment.clone_from(&a.manifest.environment);
    b.manifest.conditions[3].changes = vec![Change::server("synchronous_commit", "remote_apply")];
    b.manifest.pgio = "2.1.0".to_owned();
    b.manifest.seed = 8;
    b.manifest.environment.insert("driver.kernel".to_owned(), "6.2".to_owned());
    for t in &mut b.trials {
        t.window.asked_seconds = Some(10.0);
        t.workload.keys.insert("update_pct".to_owned(), serde_json::json!(20));
        t.dataset.as_mut().unwrap().blocks_per_table *= 2;
        t.server.version = "16.4".to_owned();
        Arc::make_mut(&mut t.environment).insert("setting.work_mem".to_owned(), "64MB".to_owned());
    }
    let found = across(&a, &b);
    let text: Vec<String> = found
        .reasons
        .iter()
        .map(|r| {
            format!(
                "{}: {} | {}",
                r.what,
                r.a.as_deref().unwrap_or("-"),
                r.b.as_deref().unwrap_or("-")
            )
        })
        .collect();
    assert_eq!(
        text,
        [
            "treatments of on: synchronous_commit = on | synchronous_commit = remote_apply",
            "update_pct: 10 | 20",
            "data set: 1 tables of 200 MiB | 1 tables of 400 MiB",
            "window: 120 s | 10 s",
            "server version: 15.14 | 16.4",
            "driver.kernel: - | 6.2",
            "setting.work_mem: - | 64MB",
            "pgio: 2.0.0 | 2.1.0",
        ]
    );
}

/// The metric of a command may change its unit or better direction in the experiment file.
#[test]
fn a_metric_that_is_defined_otherwise_is_named_and_not_compared() {
    use Direction::{HigherIsFaster, LowerIsFaster};
    const METRIC: &str = "response_time";
    let run = |unit: &str, better: Direction, value: f64| {
        let one = |(condition, block, level): (&str, u32, f64)| {
            let mut t = trial(condition, block, &[]);
            t.metrics.insert(METRIC.to_owned(), Metric::new(Some(value * level), unit));
            t
        };
        let all = [("local", 1, 1.0), ("on", 1, 1.5), ("local", 2, 1.0), ("on", 2, 1.5)];
        let mut stored = experiment(&["local", "on"], all.map(one).into());
        stored.manifest.primary_metric = METRIC.to_owned();
        let (name, unit) = (METRIC.to_owned(), unit.to_owned());
        stored.manifest.metrics = vec![DeclaredMetric { name, unit, better, of: None }];
        stored
    };
    let runs = |unit: &str, better: Direction, value: f64| {
        [0.99, 1.0, 1.02].map(|vary| run(unit, better, value * vary))
    };
    let old = runs("ms", LowerIsFaster, 5.0);
    let same = across_runs(&old, &old);
    assert_eq!((compared(&same, "local", METRIC).ratio, same.effects.len()), (Some(1.0), 1));
    assert_eq!(same.reasons, []);

    let other_unit = across_runs(&old, &runs("s", LowerIsFaster, 0.005));
    let other_direction = across_runs(&old, &runs("ms", HigherIsFaster, 5.0));
    let mut mixed = old.clone();
    mixed[1] = run("s", LowerIsFaster, 0.005);
    let mixed = across_runs(&old, &mixed);
    let reason = |what: &str, a: &str, b: &str| Reason {
        what: what.to_owned(),
        a: Some(a.to_owned()),
        b: Some(b.to_owned()),
    };
    assert_eq!(other_unit.reasons, [reason("unit of response_time", "ms", "s")]);
    let what = "better direction of response_time";
    assert_eq!(other_direction.reasons, [reason(what, "lower", "higher")]);
    let what = "unit of response_time (run 2 of B against its first)";
    assert_eq!(mixed.reasons, [reason(what, "ms", "s")]);
    for (found, shows_b) in [(&other_unit, false), (&other_direction, true), (&mixed, false)] {
        for condition in ["local", "on"] {
            let c = compared(found, condition, METRIC);
            assert_eq!((c.verdict, c.ratio, c.p), (Verdict::NotApplicable, None, None));
            assert_eq!((c.a.is_some(), c.b.is_some()), (true, shows_b), "{c:?}");
        }
        assert_eq!(found.effects, []);
        let rule = gate::Rule { metric: None, change: gate::Change::Slower, share: 0.05 };
        for ruling in gate::judge(found, &rule).unwrap() {
            let why = "the runs define response_time differently";
            assert_eq!(ruling.obstacle.as_deref(), Some(why));
        }
    }
}

/// Which condition runs first is drawn for each run.
#[test]
fn an_experiment_is_described_by_its_baseline_whichever_condition_ran_first() {
    let is = |t: &Trial, name: &str| t.is_of(name);
    let mut a = demo();
    for t in a.trials.iter_mut().filter(|t| is(t, "on")) {
        t.server.version = "18.1".to_owned();
        t.server.target = "host=newer".to_owned();
        t.server.shared_buffers = "4GB".to_owned();
    }
    let mut b = a.clone();
    b.trials.swap(0, 3);
    assert!(is(&a.trials[0], "local") && is(&b.trials[0], "on"));
    assert_eq!(across(&a, &b).reasons, []);
    // Without a trial of the baseline its server is unknown; the work is the same in all conditions.
    for t in &mut b.trials {
        t.window.asked_seconds = Some(10.0);
        if is(t, "local") {
            t.outcome = Outcome::Interrupted;
        }
    }
    let found = across(&a, &b);
    let what: Vec<&str> = found.reasons.iter().map(|r| r.what.as_str()).collect();
    assert_eq!(what, ["window"]);
}

#[test]
fn one_trial_each_decides_nothing_and_zero_has_no_ratio() {
    let one = |rate| {
        experiment(&["local"], vec![trial("local", 1, &[(PRIMARY, rate), ("checkpoints", 0.0)])])
    };
    let found = across(&one(1000.0), &one(400.0));
    let c = compared(&found, "local", PRIMARY);
    assert!((c.ratio.unwrap() - 0.4).abs() < 1e-12);
    assert_eq!((c.interval.low, c.verdict), (None, Verdict::NotJudged));
    assert_eq!(compared(&found, "local", "checkpoints").verdict, Verdict::NotApplicable);
}

#[test]
fn interrupted_trials_are_left_out_and_empty_experiments_accepted() {
    let mut b = demo();
    b.trials[0].outcome = Outcome::Interrupted;
    assert_eq!(compared(&across(&demo(), &b), "local", PRIMARY).trials_b, 5);
    let empty = experiment(&["local", "on"], Vec::new());
    let found = across(&demo(), &empty);
    assert_eq!(compared(&found, "local", PRIMARY).verdict, Verdict::NotJudged);
    assert_eq!(found.reasons.len(), 0);
    let mut stranger = demo();
    stranger.manifest.baseline = "nobody".to_owned();
    assert!(across(&demo(), &stranger).effects.is_empty());
}

#[test]
fn percentiles_below_the_clocks_resolution_are_not_compared() {
    let metric = "read_latency_p50";
    let runs = |seconds: f64| -> Vec<StoredExperiment> {
        let mut runs = stored_runs(3, |run| 1.0 + 0.01 * f64::from(run));
        for t in runs.iter_mut().flat_map(|run| &mut run.trials) {
            set(t, metric, seconds);
            t.histograms.insert("read".to_owned(), latencies(0.005, 100));
        }
        runs
    };
    let found = super::across(&runs(5e-6), &runs(9e-6), &[metric.to_owned()]);
    let c = found.comparisons.iter().find(|c| c.metric == metric).unwrap();
    assert_eq!((c.verdict, c.ratio, c.a, c.b), (Verdict::NotApplicable, None, None, None));
}
