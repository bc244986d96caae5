//! The width of the judged primary intervals, which `precision =` limits.
//!
//! The experiment loop checks it between blocks to decide whether to run another; the report warns if the
//! limit of blocks was reached first.

use super::comparison::Comparison;

/// The width of the primary intervals.
#[derive(Debug, Clone, PartialEq)]
pub enum Width {
    /// The widest half-width, of a ratio (0.05 is ±5 %), and its condition.
    Widest(String, f64),
    /// This condition has no interval yet.
    None(String),
}

impl Width {
    pub fn is_within(&self, precision: f64) -> bool {
        matches!(self, Width::Widest(_, half) if *half <= precision)
    }

    /// Compares it with the requested precision, in words.
    pub fn describe(&self, precision: f64) -> String {
        let requested = precision * 100.0;
        match self {
            Width::Widest(_, half) if self.is_within(precision) => format!(
                "the widest interval is ±{:.1} %, within the requested ±{requested:.1} %",
                half * 100.0
            ),
            Width::Widest(condition, half) => format!(
                "the widest interval is ±{:.1} % (`{condition}`), wider than the requested ±{requested:.1} %",
                half * 100.0
            ),
            Width::None(condition) => {
                format!("`{condition}` has no interval yet; requested precision: ±{requested:.1} %")
            }
        }
    }
}

/// Over all judged comparisons of the primary metric, including that with the A/A twin; `None` if there are
/// none. Those that `judge` leaves out share their family with the other secondary metrics.
pub fn width(comparisons: &[Comparison]) -> Option<Width> {
    let mut widest: Option<(String, f64)> = None;
    for c in comparisons.iter().filter(|c| c.primary && c.judged) {
        let (Some(low), Some(high)) = (c.interval.low, c.interval.high) else {
            return Some(Width::None(c.condition.clone()));
        };
        let half = half_width(low, high);
        if !half.is_finite() {
            return Some(Width::None(c.condition.clone()));
        }
        if widest.as_ref().is_none_or(|(_, w)| half > *w) {
            widest = Some((c.condition.clone(), half));
        }
    }
    widest.map(|(condition, half)| Width::Widest(condition, half))
}

/// p with high / low = (1 + p) / (1 - p): the interval is its middle ± p.
pub fn half_width(low: f64, high: f64) -> f64 {
    (high - low) / (high + low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::comparison::Interval;
    use crate::analysis::test_support::demo;
    use crate::analysis::{analyze, primary_comparisons};
    use pgio_results::Trial;
    use pgio_results::model::Slice;

    #[test]
    fn the_widest_interval_decides() {
        let mut stored = demo();
        let Some(Width::Widest(condition, half)) = width(&analyze(&stored).comparisons) else {
            panic!("six blocks have intervals");
        };
        let analysis = analyze(&stored);
        let c = analysis.primary(&condition).unwrap();
        assert!(
            (c.interval.high.unwrap() / c.interval.low.unwrap() - (1.0 + half) / (1.0 - half))
                .abs()
                < 1e-9
        );
        assert!(Width::Widest(condition.clone(), half).is_within(half));
        assert!(!Width::Widest(condition, half).is_within(half * 0.99));
        // Every comparison counts: one without an interval is infinitely wide.
        stored
            .trials
            .retain(|t| t.place.as_ref().is_some_and(|p| p.condition != "on" || p.block < 4));
        let found = width(&analyze(&stored).comparisons);
        assert_eq!(found, Some(Width::None("on".to_owned())));
    }

    /// The interval of one comparison, as the family left it.
    fn judgment(c: &Comparison) -> (String, Option<f64>, Interval, Option<f64>) {
        (c.condition.clone(), c.ratio, c.interval, c.p_adjusted)
    }

    #[test]
    fn the_loop_checks_the_same_intervals_as_the_report() {
        let lists: [(&[&str], &[&str]); 5] = [
            (&[], &[]),
            (&["on"], &[]),
            (&[], &["commit_latency_mean", "wal_bytes_per_second"]),
            (&["on", "remote_write"], &["commit_latency_mean", "degraded_time"]),
            (&["on"], &["degraded_longest"]),
        ];
        for (judge, also_judge) in lists {
            let mut stored = demo();
            stored.manifest.rules.judge = judge.iter().map(|name| (*name).to_owned()).collect();
            stored.manifest.rules.also_judge =
                also_judge.iter().map(|name| (*name).to_owned()).collect();
            let stall = |at: u32, commits: u64| Slice {
                at: f64::from(at),
                seconds: 1.0,
                commits,
                ..Slice::default()
            };
            for t in &mut stored.trials {
                t.timeline = (1..=9).map(|at| stall(at, 1000)).collect();
                if t.place.as_ref().is_some_and(|p| p.condition == "on" && p.block % 2 == 0) {
                    t.timeline.push(stall(10, 1));
                }
            }
            let analysis = analyze(&stored);
            let reported: Vec<_> = analysis
                .comparisons
                .iter()
                .filter(|c| c.primary && c.judged)
                .map(judgment)
                .collect();
            let looked: Vec<_> = primary_comparisons(&stored).iter().map(judgment).collect();
            assert_eq!(looked, reported, "{judge:?} {also_judge:?}");
            assert_eq!(width(&analysis.comparisons), width(&primary_comparisons(&stored)));
        }
    }

    #[test]
    fn unjudged_conditions_do_not_delay_the_end() {
        let mut stored = demo();
        stored.manifest.rules.judge = vec!["on".to_owned()];
        // Only three blocks of another condition are valid.
        let kept = |t: &Trial| {
            t.place.as_ref().is_some_and(|p| p.condition != "remote_write" || p.block < 4)
        };
        stored.trials.retain(kept);
        let found = width(&analyze(&stored).comparisons);
        assert!(matches!(&found, Some(Width::Widest(name, _)) if name == "on"), "{found:?}");
    }

    #[test]
    fn the_width_is_described_in_per_cent() {
        let widest = |half| Width::Widest("on".to_owned(), half);
        insta::assert_snapshot!(widest(0.062).describe(0.05), @"the widest interval is ±6.2 % (`on`), wider than the requested ±5.0 %");
        insta::assert_snapshot!(widest(0.04).describe(0.05), @"the widest interval is ±4.0 %, within the requested ±5.0 %");
        insta::assert_snapshot!(Width::None("on".to_owned()).describe(0.05), @"`on` has no interval yet; requested precision: ±5.0 %");
    }
}
