//! Percentiles: of the typical trial, of few operations, cut off by the window, below the clock's resolution.

use super::*;

/// The value of which the ratio is one, not the value of all operations together.
#[test]
fn percentiles_are_those_of_the_typical_trial() {
    let mut stored = steady(6);
    for (i, t) in (0..).zip(&mut stored.trials) {
        // One trial in three of a condition has most of the operations, and slow ones.
        let (milliseconds, n) = if i % 6 < 2 { (16.0, 20_000) } else { (2.0, 1000) };
        let h = latencies(milliseconds, n);
        for (name, reading) in pgio_results::latency::class_metrics(Class::Commit, &h) {
            set(t, name, reading.seconds());
        }
        t.histograms.insert("commit".to_owned(), h);
    }
    let analysis = analyze(&stored);
    let [local, on] = ["local", "on"].map(|name| &analysis.condition(name).unwrap().metrics);
    for name in ["commit_latency_p50", "commit_latency_p95", "commit_latency_mean"] {
        let values = [local, on].map(|metrics| metrics[name].value.unwrap());
        // A third of 16 ms and two thirds of 2: the geometric mean is 4 ms and somewhat.
        assert!((0.004..0.005).contains(&values[0]), "{name}: {values:?}");
        let ratio = analysis.comparison("on", name).unwrap().ratio.unwrap();
        assert!((values[1] / values[0] / ratio - 1.0).abs() < 1e-9, "{name}: {values:?}");
    }
    assert!(!local.contains_key("read_latency_p50"));
}

/// Trials of each side by turns, with these numbers of operations of about 2 ms.
fn timed(operations: &[u32]) -> StoredExperiment {
    let mut stored = steady(operations.len() as u32);
    for (t, n) in stored.trials.iter_mut().zip(operations.iter().flat_map(|n| [n, n])) {
        record(t, &latencies(2.0, *n));
    }
    stored
}

fn record(t: &mut Trial, h: &Histogram) {
    for (name, reading) in pgio_results::latency::class_metrics(Class::Commit, h) {
        set(t, name, reading.seconds());
        t.metrics.get_mut(name).unwrap().at_least = reading.at_least;
    }
    t.histograms.insert("commit".to_owned(), h.clone());
}

#[test]
fn a_percentile_of_few_operations_is_left_out() {
    let mut stored = timed(&[2000, 2000, 1999, 2000, 2000, 2000]);
    stored.manifest.primary_metric = "commit_latency_p99".to_owned();
    let analysis = analyze(&stored);
    let primary = analysis.primary("on").unwrap();
    assert_eq!((primary.verdict, primary.ratio, primary.p), (Verdict::NotApplicable, None, None));
    let why = &primary.warnings[0];
    assert!(why.contains("1,999 operations") && why.contains("needs 2,000"), "{why}");
    let metrics = &analysis.condition("on").unwrap().metrics;
    assert!(
        metrics.contains_key("commit_latency_p95") && !metrics.contains_key("commit_latency_p99")
    );
    assert!(analysis.comparison("on", "commit_latency_p95").is_some());
    assert_eq!(analysis.comparison("on", "commit_latency_p99_9"), None);
    let notes: Vec<&String> = analysis.notes.iter().filter(|n| n.contains("left out")).collect();
    assert!(notes.len() == 1 && notes[0].starts_with("p99 and p99.9 of commit"), "{notes:?}");

    let enough = analyze(&timed(&[2000; 6]));
    assert!(enough.comparison("on", "commit_latency_p99").unwrap().ratio.is_some());
}

/// The window's end cuts off an eighth of the operations after half a second.
fn cut_off(t: &mut Trial) {
    let mut h = t.histograms["commit"].clone();
    h.record_censored(5e8, h.count() / 7);
    record(t, &h);
}

#[test]
fn a_percentile_that_was_cut_off_bounds_the_effect() {
    let cut_off_on = |sides: &[usize]| {
        let mut stored = timed(&[4000; 8]);
        stored.manifest.primary_metric = "commit_latency_p99".to_owned();
        for (i, t) in stored.trials.iter_mut().enumerate() {
            if sides.contains(&(i % 2)) {
                cut_off(t);
            }
        }
        analyze(&stored)
    };
    let higher = cut_off_on(&[1]);
    let c = higher.primary("on").unwrap();
    assert_eq!((c.verdict, c.bound), (Verdict::Slower, Some(Bound::AtLeast)));
    assert!(
        c.ratio.unwrap() > 100.0 && c.interval.low.is_some() && c.interval.high.is_none(),
        "{c:?}"
    );
    assert!(c.p.is_some() && c.warnings.iter().any(|w| w.contains("lower bound")), "{c:?}");
    let metrics = &higher.condition("on").unwrap().metrics;
    assert!(metrics["commit_latency_p99"].at_least && !metrics["commit_latency_p50"].at_least);
    assert_eq!(higher.comparison("on", "commit_latency_p50").unwrap().bound, None);

    let lower = cut_off_on(&[0]);
    let c = lower.primary("on").unwrap();
    assert_eq!((c.verdict, c.bound), (Verdict::Faster, Some(Bound::AtMost)));
    assert!(c.interval.low.is_none() && c.interval.high.is_some());

    let both = cut_off_on(&[0, 1]);
    let c = both.primary("on").unwrap();
    assert_eq!(
        (c.verdict, c.ratio, c.interval.low, c.interval.high),
        (Verdict::NotApplicable, None, None, None)
    );
}

/// Lower, as far as is known: the unknown part may make it higher.
#[test]
fn a_lower_bound_below_the_baseline_shows_nothing() {
    let mut stored = timed(&[4000; 8]);
    stored.manifest.primary_metric = "commit_latency_p99".to_owned();
    for t in stored.trials.iter_mut().skip(1).step_by(2) {
        let mut h = latencies(1.0, 4000);
        h.record_censored(1e6, 600);
        record(t, &h);
    }
    let analysis = analyze(&stored);
    let c = analysis.primary("on").unwrap();
    assert_eq!((c.verdict, c.bound, c.p), (Verdict::NoDifference, Some(Bound::AtLeast), None));
}

#[test]
fn a_percentile_under_the_clocks_resolution_is_left_out() {
    let mut stored = steady(1);
    for t in &mut stored.trials {
        set(t, "read_latency_p50", 5e-6);
        set(t, "read_latency_mean", 5e-6);
        t.histograms.insert("read".to_owned(), latencies(0.005, 100));
    }
    let analysis = analyze(&stored);
    let local = &analysis.condition("local").unwrap().metrics;
    assert_eq!(local["read_latency_p50"].value, None);
    assert!(local["read_latency_mean"].value.is_some());
    assert_eq!(analysis.comparison("on", "read_latency_p50"), None);
    assert!(analysis.comparison("on", "read_latency_mean").is_some());
}

#[test]
fn a_judged_percentile_under_the_clocks_resolution_is_not_compared() {
    for primary in [true, false] {
        let mut stored = steady(6);
        for (n, t) in stored.trials.iter_mut().enumerate() {
            set(t, "read_latency_p50", 5e-6 * (1.0 + (n % 2) as f64));
            t.histograms.insert("read".to_owned(), latencies(0.005, 100));
        }
        if primary {
            stored.manifest.primary_metric = "read_latency_p50".to_owned();
        } else {
            stored.manifest.rules.also_judge = vec!["read_latency_p50".to_owned()];
        }
        let analysis = analyze(&stored);
        let Some(c) = analysis.comparison("on", "read_latency_p50") else {
            assert!(!primary);
            continue;
        };
        assert_eq!((c.verdict, c.ratio, c.value), (Verdict::NotApplicable, None, None));
        assert!(c.warnings[0].contains("resolution of the server's clock"), "{c:?}");
    }
}

/// Six blocks in which `commit_latency_p99@a` is compared; of server a, each trial has so many commits, if any
/// are counted.
fn compared_on_server(commits: Option<u64>, seconds: f64) -> Option<Comparison> {
    let name = "commit_latency_p99@a";
    let mut stored = steady(6);
    stored.manifest.metrics =
        pgio_results::joint::declare_metrics(&["commits_per_second"], &["a".to_owned()]);
    for (n, t) in stored.trials.iter_mut().enumerate() {
        let metric = pgio_results::Metric::new(Some(seconds * (1.0 + 0.01 * n as f64)), "s");
        t.metrics.insert(name.to_owned(), metric);
        t.histograms.insert("commit".to_owned(), latencies(2.0, 100_000));
        let session = pgio_results::model::SessionTotals {
            commits: commits.unwrap_or(0),
            ..Default::default()
        };
        let mut part = pgio_results::test_support::target_result(None);
        part.sessions = commits.iter().map(|_| session.clone()).collect();
        t.targets.insert("a".to_owned(), part);
    }
    analyze(&stored).comparison("on", name).cloned()
}

#[test]
fn a_percentile_of_one_server_needs_as_many_operations_there() {
    assert!(compared_on_server(Some(2000), 0.002).unwrap().ratio.is_some());
    assert_eq!(compared_on_server(Some(1999), 0.002), None);
    assert_eq!(compared_on_server(None, 0.002), None);
    assert_eq!(compared_on_server(Some(2000), 5e-6), None, "below the clock's resolution");
}
