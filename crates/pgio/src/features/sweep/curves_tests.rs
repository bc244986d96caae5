use std::sync::Arc;

use pgio_results::metrics::{DeclaredMetric, Direction};
use pgio_results::{Check, Trial};
use serde_json::{Value, json};

use super::*;
use crate::features::sweep::tests::analyze;
use pgio_verdict::test_support::{experiment, set, swept, trial};
use pgio_verdict::{TrialStatus, trial_statuses};

fn at(sessions: u64, delay: u64) -> Point {
    Point::from([("sessions".to_owned(), json!(sessions)), ("delay".to_owned(), json!(delay))])
}

fn cell<'a>(swept: &'a SweepResult, condition: &str, point: &Point) -> &'a SweptCell {
    swept.cells.iter().find(|c| c.condition == condition && c.point == *point).unwrap()
}

fn curve<'a>(swept: &'a SweepResult, axis: &'a str, condition: &str) -> &'a Curve {
    swept.curves_along(axis).find(|c| c.condition == condition).unwrap()
}

#[test]
fn an_experiment_without_axes_has_no_sweep() {
    let stored = experiment(&["local"], vec![trial("local", 1, &[("commits_per_second", 1.0)])]);
    assert_eq!(analyze(&stored).sweep, None);
}

#[test]
fn cells_show_no_percentile_below_the_clocks_resolution() {
    let mut stored = swept(2);
    stored.manifest.metrics =
        pgio_results::joint::declare_metrics(&["commits_per_second"], &["a".to_owned()]);
    for t in &mut stored.trials {
        for (name, seconds) in [("commit_latency_p99@a", 5e-6), ("read_latency_p99@a", 5e-5)] {
            t.metrics.insert(name.to_owned(), Metric::new(Some(seconds), "s"));
        }
    }
    let analysis = analyze(&stored);
    let shown = &cell(analysis.sweep.as_ref().unwrap(), "on", &at(16, 1)).metrics;
    assert!(shown.contains_key("read_latency_p99@a"), "{shown:?}");
    assert!(!shown.contains_key("commit_latency_p99@a"), "{shown:?}");
}

#[test]
fn every_cell_is_compared_within_its_point() {
    let analysis = analyze(&swept(6));
    let found = analysis.sweep.as_ref().unwrap();
    // Two conditions at six points, and the twin at the middle.
    assert_eq!(found.cells.len(), 13);
    assert_eq!(found.latency_class.as_ref().map(Operation::name), Some("commit"));
    let middle = cell(found, "on", &at(4, 1)).effect.as_ref().unwrap();
    assert_eq!(middle.ratio, analysis.primary("on").unwrap().ratio);
    assert_eq!(cell(found, "local", &at(16, 1)).effect, None, "the baseline has none");
    for (point, expected) in [(at(1, 1), 0.25), (at(4, 0), 0.5), (at(4, 5), 0.125)] {
        let effect = cell(found, "on", &point).effect.as_ref().unwrap();
        let ratio = effect.ratio.unwrap();
        assert!((ratio / expected - 1.0).abs() < 0.05, "{ratio} at {point:?}");
        assert_eq!(effect.blocks, 6);
    }
    assert_eq!(cell(found, "on", &at(4, 1)).trials, 6);
    assert_eq!(analysis.condition("on").unwrap().trials, 6, "of the middle point");
    assert_eq!(trial_statuses(&swept(6)), vec![TrialStatus::Counts; 78]);
}

#[test]
fn declared_metrics_of_a_command_are_compared_at_every_point() {
    let mut stored = swept(6);
    let declared = |name: &str| DeclaredMetric {
        name: name.to_owned(),
        unit: "tps".to_owned(),
        better: Direction::HigherIsFaster,
        of: None,
    };
    stored.manifest.metrics = vec![declared("tps"), declared("beside")];
    stored.manifest.primary_metric = "tps".to_owned();
    for trial in &mut stored.trials {
        let value = trial.metrics["commits_per_second"].clone();
        trial.metrics.insert("beside".to_owned(), value.clone());
        trial.metrics.insert("tps".to_owned(), value);
    }
    let analysis = analyze(&stored);
    let found = analysis.sweep.as_ref().unwrap();
    let away = cell(found, "on", &at(1, 1));
    assert!((away.effect.as_ref().unwrap().ratio.unwrap() / 0.25 - 1.0).abs() < 0.05);
    assert!(away.metrics.contains_key("tps") && away.metrics.contains_key("beside"));
}

/// Six blocks are enough to detect large effects in any number of cells; five are not.
#[test]
fn away_from_the_middle_one_family_is_adjusted() {
    for (blocks, shown) in [(5, false), (6, true)] {
        let analysis = analyze(&swept(blocks));
        let found = analysis.sweep.unwrap();
        let away = cell(&found, "on", &at(1, 1)).effect.clone().unwrap();
        assert_eq!(away.verdict.is_decided(), shown, "{blocks}");
        assert!(away.p_adjusted >= away.p);
        let middle = cell(&found, "on", &at(4, 1)).effect.clone().unwrap();
        assert_eq!(middle.verdict.is_decided(), shown);
    }
}

#[test]
fn a_curve_has_its_values_in_order_and_its_knee() {
    let analysis = analyze(&swept(6));
    let found = analysis.sweep.as_ref().unwrap();
    let on = curve(found, "sessions", "on");
    let values: Vec<&Value> = on.points.iter().map(|p| &p.value).collect();
    assert_eq!(values, [&json!(1), &json!(4), &json!(16), &json!(64)]);
    let knee = on.knee.as_ref().unwrap();
    assert_eq!((knee.place, &knee.value), (KneePlace::At, &json!(16)));
    assert_eq!((knee.agreeing, knee.blocks), (6, 6));
    let local = curve(found, "sessions", "local").knee.as_ref().unwrap();
    assert_eq!(local.place, KneePlace::BeyondLast);
    let delay = curve(found, "delay", "on");
    assert_eq!(delay.knee, None, "a delay is no load");
    assert!(found.curves_along("delay").all(|c| c.points.len() == 3));
    assert!(!found.curves.iter().any(|c| c.condition == "local-aa"), "at the middle only");
}

#[test]
fn the_slope_over_a_delay_is_compared_with_the_prediction() {
    let analysis = analyze(&swept(6));
    let found = analysis.sweep.as_ref().unwrap();
    let seconds = |delay| cell(found, "on", &at(4, delay)).predicted.as_ref().unwrap().seconds;
    assert!((seconds(0) - 0.0018).abs() < 1e-9, "two flushes and 0.1 ms: {}", seconds(0));
    assert!((seconds(5) - seconds(0) - 0.010).abs() < 1e-9);
    let slope = curve(found, "delay", "on").slope.unwrap();
    assert!((slope.predicted - 0.002).abs() < 1e-9, "{slope:?}");
    assert!((slope.seconds - 0.002).abs() < 1e-4, "{slope:?}");
    assert!(
        slope.interval.low.unwrap() < slope.seconds && slope.seconds < slope.interval.high.unwrap()
    );
    assert_eq!(curve(found, "delay", "local").slope, None, "it waits for no link");
    assert_eq!(curve(found, "sessions", "on").slope, None, "the same is foretold of each");
}

#[test]
fn the_slope_leaves_out_lower_bounds() {
    let mut stored = swept(6);
    for t in &mut stored.trials {
        let p = t.place.as_ref().unwrap();
        if p.condition == "on" && p.point == at(4, 5) {
            let metric = t.metrics.get_mut(COMMIT_MEAN).unwrap();
            (metric.value, metric.at_least) = (Some(0.1), true);
        }
    }
    let analysis = analyze(&stored);
    let slope = curve(analysis.sweep.as_ref().unwrap(), "delay", "on").slope.unwrap();
    assert!((slope.seconds - 0.002).abs() < 1e-5, "{slope:?}");
    assert!((slope.predicted - 0.002).abs() < 1e-9, "{slope:?}");
}

#[test]
fn a_lower_bound_of_the_latency_is_no_knee_and_hides_none() {
    let knee = |sessions: u64, seconds: f64| {
        let mut stored = swept(6);
        for t in &mut stored.trials {
            let p = t.place.as_ref().unwrap();
            if p.condition == "on" && p.point == at(sessions, 1) {
                let metric = t.metrics.get_mut(COMMIT_MEAN).unwrap();
                (metric.value, metric.at_least) = (Some(seconds), true);
            }
        }
        let analysis = analyze(&stored);
        curve(analysis.sweep.as_ref().unwrap(), "sessions", "on").knee.clone().unwrap()
    };
    // As measured, power is greatest there: at the end of the range, inside it, at its first value.
    for (sessions, seconds) in [(64, 0.003), (16, 0.0038), (1, 0.0001)] {
        let found = knee(sessions, seconds);
        assert_eq!((found.place, &found.value), (KneePlace::Unknown, &json!(sessions)));
        assert_eq!((found.agreeing, found.blocks), (0, 6));
    }
    for (sessions, seconds) in [(64, 0.0152), (4, 0.0038), (1, 0.0038)] {
        let found = knee(sessions, seconds);
        assert_eq!((found.place, &found.value), (KneePlace::At, &json!(16)), "{sessions}");
        assert_eq!((found.agreeing, found.blocks), (6, 6));
    }
}

#[test]
fn a_block_without_a_point_has_no_knee_of_its_own_and_an_invalid_trial_is_left_out() {
    let mut stored = swept(6);
    let is = |t: &&mut Trial| {
        let p = t.place.as_ref().unwrap();
        p.block == 2 && p.condition == "on" && p.point == at(16, 1)
    };
    let broken = stored.trials.iter_mut().find(is).unwrap();
    broken.checks.push(Check::invalid("durability", "fsync is off", "turn it on"));
    let analysis = analyze(&stored);
    let found = analysis.sweep.as_ref().unwrap();
    let knee = curve(found, "sessions", "on").knee.as_ref().unwrap();
    assert_eq!((knee.agreeing, knee.blocks), (5, 5));
    let cell = cell(found, "on", &at(16, 1));
    assert_eq!((cell.trials, cell.valid), (6, 5));
    assert!(analysis.checks.iter().any(|f| f.id == "invalid-trials"), "wherever it was");
}

#[test]
fn the_knee_is_found_among_the_loads_whose_rate_was_reached() {
    let mut stored = swept(6);
    for t in &mut stored.trials {
        let p = t.place.as_ref().unwrap();
        if p.condition == "on" && p.point == at(64, 1) {
            t.checks.push(Check::invalid("rate-not-reached", "40 %", "ask for less"));
        }
    }
    let analysis = analyze(&stored);
    let found = analysis.sweep.as_ref().unwrap();
    let knee = curve(found, "sessions", "on").knee.as_ref().unwrap();
    assert_eq!((knee.place, &knee.value), (KneePlace::BeyondLast, &json!(16)));
    assert_eq!((knee.agreeing, knee.blocks), (6, 6));
    assert_eq!(curve(found, "sessions", "local").knee.as_ref().unwrap().value, json!(64));
    // Two points are no curve.
    for t in &mut stored.trials {
        if t.place.as_ref().unwrap().point == at(16, 1) {
            t.checks.push(Check::invalid("rate-not-reached", "40 %", "ask for less"));
        }
    }
    let analysis = analyze(&stored);
    assert_eq!(curve(analysis.sweep.as_ref().unwrap(), "sessions", "on").knee, None);
}

#[test]
fn an_axis_that_is_not_a_load_has_no_knee() {
    let mut stored = swept(6);
    let rename = |point: &mut Point| {
        let value = point.remove("sessions").unwrap();
        point.insert("hot_table".to_owned(), value);
    };
    for t in &mut stored.trials {
        rename(&mut t.place.as_mut().unwrap().point);
    }
    let sweep = stored.manifest.varied.as_mut().unwrap();
    sweep.axes[0].name = "hot_table".to_owned();
    sweep.points.iter_mut().for_each(rename);
    let analysis = analyze(&stored);
    let found = analysis.sweep.as_ref().unwrap();
    assert_eq!(curve(found, "hot_table", "on").points.len(), 4);
    assert_eq!(curve(found, "hot_table", "on").knee, None);
}

#[test]
fn the_operation_of_a_mix_is_the_call() {
    let mut stored = swept(1);
    assert_eq!(operation(&stored.trials).as_ref().map(Operation::name), Some("commit"));
    set(&mut stored.trials[0], "call_latency_mean", 0.001);
    assert_eq!(operation(&stored.trials).as_ref().map(Operation::name), Some("call"));
}

#[test]
fn an_environment_is_compared_within_its_point() {
    let mut stored = swept(6);
    for t in &mut stored.trials {
        let delay = t.place.as_ref().unwrap().point["delay"].to_string();
        Arc::make_mut(&mut t.environment).insert("setting.commit_delay".to_owned(), delay);
    }
    assert!(trial_statuses(&stored).iter().all(|s| *s == TrialStatus::Counts));
    Arc::make_mut(&mut stored.trials[3].environment)
        .insert("setting.commit_delay".to_owned(), "77".to_owned());
    assert_eq!(trial_statuses(&stored).iter().filter(|s| **s == TrialStatus::Invalid).count(), 1);
}

#[test]
fn a_trial_at_an_unknown_point_counts_as_unknown_condition() {
    let mut stored = swept(6);
    stored.trials[0].place.as_mut().unwrap().point = at(99, 1);
    assert_eq!(trial_statuses(&stored)[0], TrialStatus::UnknownCondition);
    let analysis = analyze(&stored);
    assert!(analysis.checks.iter().any(|f| f.id == "unknown-condition"));
}

#[test]
fn estimates_are_geometric_means_unless_a_value_is_zero() {
    let e = estimate(&[100.0, 200.0, 400.0], "x".to_owned()).unwrap();
    assert!((e.value - 200.0).abs() < 1e-9);
    assert!(e.interval.low.unwrap() < 100.0 && e.interval.high.unwrap() > 400.0);
    let e = estimate(&[0.0, 2.0], String::new()).unwrap();
    assert_eq!(e.value, 1.0);
    assert_eq!(estimate(&[], String::new()), None);
    assert_eq!(estimate(&[3.0, 4.0], String::new()).unwrap().interval.low, None);
}

#[test]
fn the_throughput_metric_depends_on_the_axis() {
    let mut stored = swept(1);
    let along = |stored: &pgio_results::store::StoredExperiment, axis: &str| {
        throughput(&stored.manifest, &stored.trials, axis)
    };
    assert_eq!(along(&stored, "rows_per_transaction"), "commits_per_second", "not measured");
    set(&mut stored.trials[0], "rows_per_second", 1.0);
    assert_eq!(along(&stored, "rows_per_transaction"), "rows_per_second");
    assert_eq!(along(&stored, "sessions"), "commits_per_second");
    stored.manifest.primary_metric = "commit_latency_p99".to_owned();
    assert_eq!(along(&stored, "sessions"), "commits_per_second", "the workload's own rate");
    stored.trials[0].workload.primary_metric = "commit_latency_p99".to_owned();
    assert_eq!(along(&stored, "rate"), "commit_latency_p99", "nothing counts the calls");
    set(&mut stored.trials[0], "calls_per_second", 1.0);
    assert_eq!(along(&stored, "rate"), "calls_per_second", "at a rate that is given");
}

#[test]
fn least_squares_finds_the_slope_of_a_line() {
    let found = least_squares(&[0.0, 1.0, 5.0], &[3.0, 5.0, 13.0]).unwrap();
    assert!((found - 2.0).abs() < 1e-12);
    assert_eq!(least_squares(&[1.0, 1.0], &[3.0, 5.0]), None);
}
