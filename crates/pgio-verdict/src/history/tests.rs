use std::collections::BTreeMap;

use benchmath::rng::SplitMix64;
use pgio_results::metrics::DeclaredMetric;

use super::*;
use crate::test_support::{changing_runs, stored_runs, unit_noise};

fn runs(n: u32, step_at: Option<u32>, seed: u64) -> Vec<Run> {
    let mut rng = SplitMix64::new(seed);
    let stored = stored_runs(n, |run| {
        let slower = step_at.is_some_and(|at| run >= at);
        let level = if slower { 0.95 } else { 1.0 };
        level * (0.02 * unit_noise(&mut rng)).exp()
    });
    stored.iter().map(|stored| Run::from_stored(stored).unwrap()).collect()
}

fn follow(runs: Vec<Run>) -> History {
    history(runs, Question::default()).unwrap()
}

/// 30 runs with a step of 5 % at run 20, and 30 without one; the spread of the runs is 2 %.
#[test]
fn a_step_is_found_at_its_run_and_nothing_without_one() {
    let (mut near, mut alarms) = (0, 0);
    for seed in 0..40 {
        let found = follow(runs(30, Some(20), seed));
        let condition = |name: &str| found.conditions.iter().find(|s| s.condition == name).unwrap();
        near += usize::from(["local", "on"].iter().all(|name| {
            condition(name).changes.iter().any(|change| {
                change.verdict == Verdict::Slower
                    && change.run.abs_diff(20) <= 1
                    && change.ratio.is_some_and(|ratio| (0.92..0.98).contains(&ratio))
            })
        }));
        let quiet = follow(runs(30, None, seed));
        alarms += usize::from(quiet.conditions.iter().any(|series| !series.changes.is_empty()));
    }
    assert!(near >= 34, "{near} of 40 found at run 20 ± 1");
    // 2 expected; one in 20 such tests would exceed 4, one in 3,000 would exceed 7.
    assert!(alarms <= 7, "{alarms} of 40 histories without a change");
}

/// Ten runs, the sixth of them bad, then ten that are slower by a tenth.
#[test]
fn one_bad_run_does_not_turn_the_direction_of_a_change() {
    const BEFORE: [f64; 10] = [110.0, 111.0, 109.0, 110.5, 109.5, 20.0, 110.2, 109.8, 110.1, 110.9];
    const AFTER: [f64; 10] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 100.9, 99.2];
    let values: Vec<f64> = BEFORE.into_iter().chain(AFTER).collect();
    let mut all = runs(20, None, 1);
    for (run, value) in all.iter_mut().zip(values) {
        for condition in &mut run.conditions {
            condition.values.insert("commits_per_second".to_owned(), value);
        }
    }
    let found = follow(all);
    let changes = &found.conditions[0].changes;
    assert_eq!(changes.len(), 1, "{changes:?}");
    let change = &changes[0];
    assert_eq!((change.run, change.verdict), (11, Verdict::Slower));
    assert!((change.ratio.unwrap() - 0.909).abs() < 0.001, "{change:?}");
    let (low, high) = change.interval.sides().unwrap();
    assert!((low - 0.903).abs() < 0.001 && (high - 0.917).abs() < 0.001, "{change:?}");
    assert!(
        (change.before - 110.0).abs() < 1.0 && (change.after - 100.0).abs() < 1.0,
        "{change:?}"
    );
}

#[test]
fn a_change_of_the_environment_is_marked_where_it_coincides() {
    let mut all = runs(30, Some(20), 4);
    for (number, run) in (1..).zip(&mut all) {
        let kernel = if number < 20 { "6.1.0-26" } else { "6.1.0-28" };
        run.facts.insert("host.kernel".to_owned(), kernel.to_owned());
        run.facts.insert(
            "setting.work_mem".to_owned(),
            if number < 8 { "4MB" } else { "8MB" }.to_owned(),
        );
        run.facts.insert("seed of the data set".to_owned(), number.to_string());
    }
    let found = follow(all);
    let change = &found.conditions[0].changes[0];
    let what: Vec<String> = change.coincides.iter().map(|c| c.what.to_string()).collect();
    assert_eq!(what, ["host.kernel"]);
    assert_eq!(change.coincides[0].after.as_deref(), Some("6.1.0-28"));
    assert_eq!(found.environment.len(), 2, "{:?}", found.environment);
    assert_eq!(found.varying, ["seed of the data set"]);
}

#[test]
fn treatments_of_another_condition_do_not_coincide() {
    let mut all = runs(30, Some(20), 4);
    for run in &mut all[19..] {
        run.conditions[1].treatments = "synchronous_commit = remote_write".to_owned();
    }
    let found = follow(all);
    let coincides = |name: &str| -> Vec<String> {
        let series = found.conditions.iter().find(|s| s.condition == name).unwrap();
        series.changes[0].coincides.iter().map(|c| c.what.to_string()).collect()
    };
    assert_eq!(coincides("on"), ["treatments of on"]);
    assert_eq!(coincides("local"), [""; 0]);
}

#[test]
fn the_order_and_copies_of_runs_do_not_matter() {
    let all = runs(20, Some(10), 3);
    let mut mixed = [all.clone(), all[5..9].to_vec()].concat();
    SplitMix64::new(1).shuffle(&mut mixed);
    assert_eq!(follow(mixed), follow(all));
}

/// The directory of a run was copied before the run was continued.
#[test]
fn of_the_copies_of_a_run_the_one_with_the_most_trials_is_followed() {
    let mut stored = stored_runs(3, |_| 1.0);
    let all: Vec<Run> = stored.iter().map(|s| Run::from_stored(s).unwrap()).collect();
    stored[1].trials.truncate(6);
    let copy = Run::from_stored(&stored[1]).unwrap();
    let whole = follow(all.clone());
    for place in [0, 3] {
        let mut with_copy = all.clone();
        with_copy.insert(place, copy.clone());
        assert_eq!(follow(with_copy), whole, "copy at {place}");
    }
}

#[test]
fn runs_that_cannot_be_followed_together_are_refused() {
    let refused = |change: &dyn Fn(&mut Run), question: Question<'_>| {
        let mut all = runs(3, None, 1);
        change(&mut all[1]);
        history(all, question).unwrap_err().to_string()
    };
    let same = Question::default();
    let text = refused(&|run| run.experiment = "other".to_owned(), same);
    assert_eq!(
        text,
        "the results are of different experiments: sync-commit (2 runs), other (1 run); name one with \
         --experiment"
    );
    let text =
        refused(&|run| drop(run.work.insert("workload".to_owned(), "commit".to_owned())), same);
    assert!(
        text.starts_with("the results are of different workloads: workload is commit in run"),
        "{text}"
    );
    let text =
        refused(&|run| drop(run.work.insert("update_pct".to_owned(), "50".to_owned())), same);
    assert!(text.contains("update_pct is 50 in run 20261002T020000Z-1 and 10 in run"), "{text}");
    let text = refused(&|_| (), Question { metric: Some("tps"), ..same });
    assert_eq!(text, "no run has the metric `tps` (metrics: commits_per_second)");
    let text = refused(&|_| (), Question { experiment: Some("x"), ..same });
    assert_eq!(text, "no run of experiment `x` (experiments: sync-commit (3 runs))");
    assert_eq!(history(Vec::new(), same).unwrap_err(), HistoryError::NoRuns);
}

/// The metric of a command may change its unit or better direction in the experiment file.
#[test]
fn runs_that_define_the_metric_otherwise_are_refused() {
    let defined = |unit: &str, better: Direction| {
        let (name, unit) = ("response_time".to_owned(), unit.to_owned());
        vec![DeclaredMetric { name, unit, better, of: None }]
    };
    let all = |second: Vec<DeclaredMetric>| {
        let mut all = runs(3, None, 1);
        for run in &mut all {
            run.metrics = defined("s", Direction::LowerIsFaster);
            for condition in &mut run.conditions {
                condition.values.insert("response_time".to_owned(), 0.005);
            }
        }
        all[1].metrics = second;
        all
    };
    let question = Question { metric: Some("response_time"), ..Question::default() };
    let other_unit = all(defined("ms", Direction::LowerIsFaster));
    let text = history(other_unit.clone(), question).unwrap_err().to_string();
    assert_eq!(
        text,
        "the runs define the metric differently: unit of response_time is ms in run \
         20261002T020000Z-1 and s in run 20261003T020000Z-1; name runs that define it alike"
    );
    let other_direction = all(defined("s", Direction::HigherIsFaster));
    let text = history(other_direction, question).unwrap_err().to_string();
    assert!(text.contains("better direction of response_time is higher in run"), "{text}");
    // Other metrics of the same runs can be followed, and so can this one if that run has no value of it.
    assert_eq!(follow(other_unit.clone()).runs.len(), 3);
    let mut without = other_unit;
    without[1].conditions.iter_mut().for_each(|condition| condition.values.clear());
    assert_eq!(history(without, question).unwrap().unit, "s");
}

#[test]
fn a_condition_that_failed_or_came_later_leaves_a_gap() {
    let mut all = runs(12, None, 5);
    all[3].conditions[1].values = BTreeMap::new();
    all[3].conditions[1].trials = 0;
    for run in &mut all[..6] {
        run.conditions.truncate(2);
    }
    let found = follow(all);
    let condition = |name: &str| found.conditions.iter().find(|s| s.condition == name).unwrap();
    let gap = &condition("on").points[3];
    assert_eq!((gap.value, gap.trials, gap.to_baseline), (None, 0, None));
    assert_eq!(condition("remote_apply").points.iter().filter(|p| p.value.is_some()).count(), 6);
    assert_eq!(condition("local").points[3].to_baseline, Some(1.0));
}

#[test]
fn a_drift_since_the_last_change_is_a_trend() {
    let mut rng = SplitMix64::new(2);
    // Too few runs to take it for a step.
    let stored =
        stored_runs(8, |run| (-0.006 * f64::from(run) + 0.0005 * unit_noise(&mut rng)).exp());
    let found = follow(stored.iter().map(|s| Run::from_stored(s).unwrap()).collect());
    let series = &found.conditions[0];
    let trend = series.trend.unwrap();
    assert_eq!((trend.verdict, trend.runs), (Verdict::Slower, 8), "{series:?}");
    assert!((trend.per_run - 0.994).abs() < 0.001, "{trend:?}");
}

#[test]
fn a_trend_counts_the_runs_that_lack_the_condition() {
    let mut rng = SplitMix64::new(2);
    let stored =
        stored_runs(8, |run| (-0.02 * f64::from(run) + 0.0005 * unit_noise(&mut rng)).exp());
    let mut all: Vec<Run> = stored.iter().map(|s| Run::from_stored(s).unwrap()).collect();
    for run in [1, 4] {
        all[run].conditions.truncate(2);
    }
    let found = follow(all);
    let condition = |name: &str| found.conditions.iter().find(|s| s.condition == name).unwrap();
    let trend = condition("remote_apply").trend.unwrap();
    assert_eq!((trend.from_run, trend.runs, trend.verdict), (1, 6, Verdict::Slower));
    assert!((trend.per_run - 0.98).abs() < 0.003, "{trend:?}");
}

/// The machine changes at run 11; `on` alone, against the baseline, at run 21.
#[test]
fn ratios_to_the_baseline_show_what_a_change_of_the_machine_hides() {
    let stored = changing_runs();
    let found = follow(stored.iter().map(|s| Run::from_stored(s).unwrap()).collect());
    let condition = |name: &str| found.conditions.iter().find(|s| s.condition == name).unwrap();
    let runs = |changes: &[LevelChange]| changes.iter().map(|c| c.run).collect::<Vec<_>>();
    assert_eq!(condition("local").relative, None);
    assert_eq!(runs(&condition("local").changes), [11]);
    let relative = condition("on").relative.as_ref().unwrap();
    assert_eq!(runs(&relative.changes), [21], "{relative:?}");
    let change = &relative.changes[0];
    assert!((change.ratio.unwrap() - 0.95).abs() < 0.01 && change.before < 1.0, "{change:?}");
    assert_eq!(change.verdict, Verdict::Slower);
    assert!(!runs(&condition("on").changes).contains(&21), "{:?}", condition("on").changes);
    assert_eq!(runs(&condition("remote_apply").relative.as_ref().unwrap().changes), [0; 0]);
}

/// Without a change, runs that depend on each other (an autoregressive process with 0.6) are told to have one.
#[test]
fn runs_that_depend_on_each_other_are_not_judged() {
    let (mut changed, mut judged) = (0, 0);
    for seed in 0..60 {
        let mut rng = SplitMix64::new(seed);
        let mut last = unit_noise(&mut rng);
        let stored = stored_runs(30, |_| {
            last = 0.6 * last + 0.8 * unit_noise(&mut rng);
            (0.03 * last).exp()
        });
        let found = follow(stored.iter().map(|s| Run::from_stored(s).unwrap()).collect());
        let local = &found.conditions[0];
        changed += usize::from(!local.changes.is_empty());
        judged += usize::from(local.changes.iter().any(|c| c.verdict != Verdict::NotJudged));
        let is_dependent = local.autocorrelation.unwrap() > MAX_AUTOCORRELATION;
        assert!(local.changes.iter().all(|c| (c.verdict == Verdict::NotJudged) == is_dependent));
    }
    assert!(changed > 20 && 2 * judged < changed, "{changed}, of which judged {judged}");
}
