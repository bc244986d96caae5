//! The knee of each curve of a sweep in words.
//!
//! `analysis::sweep` finds the knee. What is said of the values beside it is true of the measured ones: that
//! capacity is higher, only if a greater load had more throughput. Where only a lower bound of the latency is
//! known, power is lower than it seems.

use crate::analysis::Analysis;
use crate::analysis::sweep::{Curve, CurveKnee, CurvePoint, KneePlace, SweepResult};
use crate::report::format;
use pgio_results::operation::Statistic;
use pgio_results::sweep::{Axis, value_text};

/// One sentence for each axis that has knees.
pub(super) fn knees(analysis: &Analysis) -> Vec<String> {
    let Some(swept) = &analysis.sweep else { return Vec::new() };
    let sentence = |axis: &Axis| {
        let knee = |curve: &Curve| {
            let knee = curve.knee.as_ref()?;
            let where_ = match knee.place {
                KneePlace::At => format!("at {}", value_text(&knee.value)),
                KneePlace::AtOrBelowFirst => format!("at {} or below", value_text(&knee.value)),
                KneePlace::BeyondLast => format!("none up to {}", value_text(&knee.value)),
                KneePlace::Unknown => "unknown".to_owned(),
            };
            Some(format!("{} {where_}", curve.condition))
        };
        let all: Vec<String> = swept.curves_along(&axis.name).filter_map(knee).collect();
        (!all.is_empty()).then(|| {
            format!(
                "Knee along {} (beyond it more load mostly adds latency): {}.",
                axis.name,
                all.join("; ")
            )
        })
    };
    swept.axes.iter().filter_map(sentence).collect()
}

/// Where the knee is, and what lies beyond it.
pub(super) fn note(swept: &SweepResult, axis: &Axis, curve: &Curve) -> Option<String> {
    let knee = curve.knee.as_ref()?;
    let (condition, name, at) = (&curve.condition, &axis.name, value_text(&knee.value));
    let sure = match knee.blocks {
        0 => String::new(),
        n => format!(" (in {} of {})", knee.agreeing, format::counted(n, "block")),
    };
    Some(match knee.place {
        KneePlace::At => format!(
            "{condition}: the knee is at {name} = {at}{sure}: beyond it latency grows faster than \
             throughput.{}",
            capacity(swept, curve, knee).unwrap_or_default()
        ),
        KneePlace::AtOrBelowFirst => format!(
            "{condition}: the knee is at {name} = {at} or below{sure}: beyond it latency grows faster \
             than throughput."
        ),
        KneePlace::BeyondLast if power_rises(swept, curve, knee) => format!(
            "{condition}: no knee within the range{sure}: up to {name} = {at} throughput grows \
             faster than latency."
        ),
        KneePlace::BeyondLast => format!(
            "{condition}: no knee within the range{sure}: the ratio throughput / latency is greatest \
             at the last value, {at}."
        ),
        KneePlace::Unknown => format!(
            "{condition}: the knee is unknown: the ratio throughput / latency is greatest at {name} = \
             {at}, where the window's end cut off operations and the latency is only a lower bound."
        ),
    })
}

/// Where throughput is highest: beyond the knee, at it, or, with much more latency, before it.
fn capacity(swept: &SweepResult, curve: &Curve, knee: &CurveKnee) -> Option<String> {
    let throughput =
        |point: &CurvePoint| Some(swept.cells[point.cell].metrics.get(&curve.throughput)?.value);
    let at = curve.points.iter().position(|p| p.value == knee.value)?;
    let at_knee = throughput(&curve.points[at])?;
    let (before, beyond) = (&curve.points[..at], &curve.points[at + 1..]);
    let is_more = |value: f64| value > at_knee;
    if beyond.iter().filter_map(throughput).any(is_more) {
        return Some(" Capacity is higher.".to_owned());
    }
    let known = before.iter().filter_map(|p| Some((p, throughput(p)?)));
    let highest = known.filter(|(_, v)| is_more(*v)).max_by(|(_, a), (_, b)| a.total_cmp(b));
    Some(match highest {
        Some((p, _)) => {
            format!(" The highest throughput was measured at {}.", value_text(&p.value))
        }
        None => " Throughput is highest here.".to_owned(),
    })
}

/// Whether throughput grows faster than latency at every step up to the last value, not only in all. A step to
/// a lower bound of the latency is unknown.
fn power_rises(swept: &SweepResult, curve: &Curve, knee: &CurveKnee) -> bool {
    let power = |point: &CurvePoint| {
        let metrics = &swept.cells[point.cell].metrics;
        let latency = metrics.get(&*swept.latency_class.as_ref()?.metric(Statistic::Mean)?)?;
        Some((metrics.get(&curve.throughput)?.value / latency.value, latency.at_least))
    };
    let Some(last) = curve.points.iter().position(|p| p.value == knee.value) else { return false };
    let powers: Option<Vec<(f64, bool)>> = curve.points[..=last].iter().map(power).collect();
    let rises = |pair: &[(f64, bool)]| pair[0].0 < pair[1].0 && !pair[1].1;
    powers.is_some_and(|all| all.windows(2).all(rises))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyze;
    use crate::analysis::sweep::COMMIT_MEAN;
    use crate::analysis::test_support::swept;
    use pgio_results::Trial;

    /// The analysis after a change of the trials of a condition at one value of `sessions`.
    fn changed(condition: &str, sessions: u64, change: impl Fn(&mut Trial)) -> Analysis {
        let mut stored = swept(6);
        for t in &mut stored.trials {
            let place = t.place.as_ref().unwrap();
            if place.condition == condition && place.point["sessions"] == sessions {
                change(t);
            }
        }
        analyze(&stored)
    }

    fn note_on(condition: &str, analysis: &Analysis) -> String {
        let found = analysis.sweep.as_ref().unwrap();
        let axis = found.axes.iter().find(|axis| axis.name == "sessions").unwrap();
        let curve = found.curves_along("sessions").find(|c| c.condition == condition).unwrap();
        note(found, axis, curve).unwrap()
    }

    /// The note on a condition whose throughput and latency are multiplied at one value of `sessions`.
    fn noted(condition: &str, sessions: u64, throughput: f64, latency: f64) -> String {
        let analysis = changed(condition, sessions, |t| {
            for (name, factor) in [("commits_per_second", throughput), (COMMIT_MEAN, latency)] {
                let metric = t.metrics.get_mut(name).unwrap();
                metric.value = metric.value.map(|v| v * factor);
            }
        });
        note_on(condition, &analysis)
    }

    #[test]
    fn capacity_is_higher_only_if_more_was_measured() {
        let at_16 = "on: the knee is at sessions = 16 (in 6 of 6 blocks): beyond it latency grows \
                     faster than throughput.";
        let more = noted("on", 64, 1.2, 1.0);
        assert_eq!(more, format!("{at_16} Capacity is higher."));
        let less = noted("on", 64, 0.8, 1.0);
        assert_eq!(less, format!("{at_16} Throughput is highest here."));
        let before = noted("on", 4, 5.0, 9.0);
        assert_eq!(before, format!("{at_16} The highest throughput was measured at 4."));
    }

    #[test]
    fn throughput_grows_faster_only_if_it_does_at_every_step() {
        let none = "local: no knee within the range (in 6 of 6 blocks): ";
        assert_eq!(
            noted("local", 4, 1.0, 1.0),
            format!("{none}up to sessions = 64 throughput grows faster than latency.")
        );
        assert_eq!(
            noted("local", 4, 1.0, 9.0),
            format!("{none}the ratio throughput / latency is greatest at the last value, 64.")
        );
    }

    #[test]
    fn no_knee_is_stated_at_a_lower_bound_and_no_step_to_one() {
        let bounded = |sessions: u64| {
            changed("local", sessions, |t| t.metrics.get_mut(COMMIT_MEAN).unwrap().at_least = true)
        };
        let analysis = bounded(64);
        assert_eq!(
            note_on("local", &analysis),
            "local: the knee is unknown: the ratio throughput / latency is greatest at sessions = 64, \
             where the window's end cut off operations and the latency is only a lower bound."
        );
        let summary = knees(&analysis).remove(0);
        assert!(summary.ends_with(": local unknown; on at 16."), "{summary}");
        let none = "local: no knee within the range (in 6 of 6 blocks): ";
        assert_eq!(
            note_on("local", &bounded(16)),
            format!("{none}the ratio throughput / latency is greatest at the last value, 64.")
        );
        assert_eq!(
            note_on("local", &bounded(1)),
            format!("{none}up to sessions = 64 throughput grows faster than latency.")
        );
    }
}
