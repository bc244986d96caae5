//! A sweep in tables and sentences: along each axis every condition's rate, change and latencies, its
//! knee, and the predicted and measured latency of a commit.
//!
//! Numbers come from `curves`; this file words them. `charts` draws the same curves.

use pgio_results::latency::{Operation, Statistic};
use pgio_results::points::{Axis, Combination, Varied, value_text};

use super::curves::{
    COMMIT_MEAN, CellEffect, Curve, CurveKnee, CurvePoint, Estimate, KneePlace, SweepResult,
    SweptCell,
};
use pgio_report::report::format::{self, NONE};
use pgio_report::report::table::{Column, Table};
use pgio_verdict::resolution::half_width;
use pgio_verdict::waits::Predicted;
use pgio_verdict::{ALPHA, Analysis, Verdict};

/// Marks a decided change, as in the secondary metrics.
const STAR: &str = "*";

pub(super) fn tables(analysis: &Analysis, swept: &SweepResult) -> Vec<Table> {
    let mut tables = Vec::new();
    for axis in &swept.axes {
        tables.push(along(analysis, swept, axis));
        tables.extend(predictions(swept, axis));
    }
    tables.extend(grid(analysis, swept));
    if let Some(last) = tables.last_mut() {
        last.notes.extend(swept.notes.iter().map(|note| format!("Note: {note}.")));
    }
    tables
}

/// Where the primary metric is judged, for the table of conditions.
pub(super) fn where_judged(swept: &SweepResult) -> String {
    let at = middle(swept);
    format!(
        "This table is for the middle point of the sweep ({at}); the tables along the axes show the \
         other points."
    )
}

/// `sessions = 4, delay = 1 ms`
pub(super) fn middle(swept: &SweepResult) -> String {
    words(swept).describe_point(&swept.middle)
}

/// A sweep for describing points in words.
fn words(swept: &SweepResult) -> Varied {
    Varied {
        kind: swept.kind,
        axes: swept.axes.clone(),
        points: vec![swept.middle.clone()],
        at_middle_only: Vec::new(),
    }
}

pub(super) fn along(analysis: &Analysis, swept: &SweepResult, axis: &Axis) -> Table {
    let curves: Vec<&Curve> = swept.curves_along(&axis.name).collect();
    let primary = &analysis.primary_metric;
    let by_amount = curves.first().map(|c| &c.throughput).filter(|name| *name != primary);
    let mut columns = vec![
        Column::left("condition"),
        Column::right(heading(axis)),
        Column::right(format::metric_name(primary)),
    ];
    columns.extend(by_amount.map(|name| Column::right(format::metric_name(name))));
    columns.push(Column::left("change [95 %]"));
    if let Some(class) = &swept.latency_class {
        columns.push(Column::right(format!("{class} mean")));
        columns.push(Column::right("p50 / p95 / p99"));
    }
    let row = |curve: &Curve, point: &CurvePoint| {
        let cell = &swept.cells[point.cell];
        let mut cells = vec![
            curve.condition.clone(),
            value(swept, cell, curve, point),
            rate(cell.metrics.get(primary)),
        ];
        cells.extend(by_amount.map(|name| rate(cell.metrics.get(name))));
        cells.push(effect(cell));
        if let Some(class) = &swept.latency_class {
            cells.push(time(latency(cell, class, Statistic::Mean)));
            cells.push(percentiles(cell, class));
        }
        cells
    };
    let rows = curves.iter().flat_map(|curve| curve.points.iter().map(|p| row(curve, p)));
    let mut others = swept.middle.clone();
    others.remove(&axis.name);
    let others = words(swept).describe_point(&others);
    let at = if others.is_empty() { String::new() } else { format!(" ({others})") };
    let mut notes: Vec<String> = curves
        .iter()
        .flat_map(|c| [note(swept, axis, c), gap_note(swept, axis, c)])
        .flatten()
        .collect();
    let starred = |c: &&Curve| c.points.iter().any(|p| is_shown(&swept.cells[p.cell]));
    if curves.iter().any(starred) {
        notes.push(format!(
            "{STAR} decided at p <= {ALPHA}; away from the middle point all cells are one family."
        ));
    }
    let rows = rows.collect();
    Table { title: format!("Along {}{at}", axis.name), columns, rows, notes }
}

fn heading(axis: &Axis) -> String {
    match &axis.unit {
        Some(unit) => format!("{} ({unit})", axis.name),
        None => axis.name.clone(),
    }
}

/// `16 (knee)`
fn value(swept: &SweepResult, cell: &SweptCell, curve: &Curve, point: &CurvePoint) -> String {
    let at_knee = |k: &CurveKnee| k.place == KneePlace::At && k.value == point.value;
    let mut marks = Vec::new();
    marks.extend(swept.is_middle(cell).then_some("middle"));
    marks.extend(curve.knee.as_ref().is_some_and(at_knee).then_some("knee"));
    let text = value_text(&point.value);
    if marks.is_empty() { text } else { format!("{text} ({})", marks.join(", ")) }
}

/// `4,031 ± 2.1 %`
fn rate(estimate: Option<&Estimate>) -> String {
    let Some(e) = estimate else { return NONE.to_owned() };
    let text = format::marked(format::bare(e.value, &e.unit), e.at_least);
    match (e.interval.low, e.interval.high) {
        (Some(low), Some(high)) if low > 0.0 => {
            format!("{text} ± {}", format::size(half_width(low, high)))
        }
        _ => text,
    }
}

fn latency<'a>(
    cell: &'a SweptCell,
    operation: &Operation,
    statistic: Statistic,
) -> Option<&'a Estimate> {
    cell.metrics.get(&*operation.metric(statistic)?)
}

fn time(estimate: Option<&Estimate>) -> String {
    let shown = |e: &Estimate| format::marked(format::seconds(e.value), e.at_least);
    estimate.map_or_else(|| NONE.to_owned(), shown)
}

/// All in the unit of the largest.
fn percentiles(cell: &SweptCell, operation: &Operation) -> String {
    let value = |statistic| {
        let estimate = latency(cell, operation, statistic)?;
        Some((estimate.value, estimate.at_least))
    };
    let values = [Statistic::P50, Statistic::P95, Statistic::P99].map(value);
    format::side_by_side(&values).unwrap_or_else(|| NONE.to_owned())
}

/// `−53.5 % [−55.0, −51.9]*`
fn effect(cell: &SweptCell) -> String {
    let Some(e) = &cell.effect else { return "baseline".to_owned() };
    match (e.verdict, e.ratio) {
        (Verdict::NotApplicable, _) | (_, None) => NONE.to_owned(),
        (_, Some(ratio)) => {
            format!("{}{}", format::change_as_known(ratio, e.interval, e.bound), star(e))
        }
    }
}

fn star(effect: &CellEffect) -> &'static str {
    if effect.verdict.is_decided() { STAR } else { "" }
}

fn is_shown(cell: &SweptCell) -> bool {
    cell.effect.as_ref().is_some_and(|e| e.verdict.is_decided())
}

/// Names the values of a curve at which no trial counts.
fn gap_note(swept: &SweepResult, axis: &Axis, curve: &Curve) -> Option<String> {
    let missing = curve.points.iter().filter(|p| swept.cells[p.cell].valid == 0);
    let values: Vec<String> = missing.map(|p| value_text(&p.value)).collect();
    let knee = match curve.knee.as_ref().map(|knee| knee.place) {
        Some(KneePlace::At | KneePlace::AtOrBelowFirst | KneePlace::BeyondLast) => {
            " The knee is that of the values before."
        }
        Some(KneePlace::Unknown) | None => "",
    };
    (!values.is_empty()).then(|| {
        format!(
            "{}: no trial counts at {} = {}; see the checks.{knee}",
            curve.condition,
            axis.name,
            values.join(", ")
        )
    })
}

/// The predicted and measured latency of a commit, if the prediction changes along the axis.
pub(super) fn predictions(swept: &SweepResult, axis: &Axis) -> Option<Table> {
    let cell = |p: &CurvePoint| &swept.cells[p.cell];
    let complete = |curve: &&Curve| {
        curve
            .points
            .iter()
            .all(|p| cell(p).predicted.is_some() && cell(p).metrics.contains_key(COMMIT_MEAN))
    };
    let curves: Vec<&Curve> = swept.curves_along(&axis.name).filter(complete).collect();
    if !curves.iter().any(|curve| swept.predicts_change(curve)) {
        return None;
    }
    let row = |curve: &&Curve, point: &CurvePoint| {
        let c = cell(point);
        let (predicted, measured) = (c.predicted.as_ref()?, c.metrics.get(COMMIT_MEAN)?);
        let at_least = if predicted.at_least { "at least " } else { "" };
        Some(vec![
            curve.condition.clone(),
            value_text(&point.value),
            format!(
                "{at_least}{}{}",
                format::seconds(predicted.seconds),
                format::plus_minus(predicted.error)
            ),
            seconds_with_interval(measured),
            difference(measured, predicted),
        ])
    };
    let rows =
        curves.iter().flat_map(|curve| curve.points.iter().filter_map(move |p| row(curve, p)));
    let changing: Vec<&&Curve> = curves.iter().filter(|c| swept.predicts_change(c)).collect();
    let mut notes: Vec<String> = changing.iter().filter_map(|c| sum_note(swept, c)).collect();
    notes.extend(changing.iter().filter_map(|c| slope_note(swept, axis, c)));
    notes.push(
        "First principles: flushes and round trip as probed without PostgreSQL, plus the delay of the \
         link, for a single commit."
            .to_owned(),
    );
    Some(Table {
        title: format!("A commit along {}: from first principles and measured", axis.name),
        columns: vec![
            Column::left("condition"),
            Column::right(heading(axis)),
            Column::right("first principles"),
            Column::right("measured [95 %]"),
            Column::right("difference"),
        ],
        rows: rows.collect(),
        notes,
    })
}

/// The measured latency less that from first principles; nothing is known if both are lower bounds.
fn difference(measured: &Estimate, predicted: &Predicted) -> String {
    if measured.at_least && predicted.at_least {
        return NONE.to_owned();
    }
    let text = format::signed_seconds(measured.value - predicted.seconds);
    if predicted.at_least {
        format!("{}{text}", format::AT_MOST)
    } else {
        format::marked(text, measured.at_least)
    }
}

/// `1.02 ms [0.98, 1.06]`, `≥ 355 ms`
fn seconds_with_interval(e: &Estimate) -> String {
    let (factor, unit) = format::time_unit(e.value);
    let shown = |seconds: f64| format::number(seconds * factor);
    match (e.interval.low, e.interval.high) {
        (Some(low), Some(high)) => {
            format!("{} {unit} [{}, {}]", shown(e.value), shown(low), shown(high))
        }
        _ => format::marked(format::seconds(e.value), e.at_least),
    }
}

/// The parts of the prediction at the middle point.
fn sum_note(swept: &SweepResult, curve: &Curve) -> Option<String> {
    let middle = curve.points.iter().map(|p| &swept.cells[p.cell]).find(|c| swept.is_middle(c))?;
    let predicted = middle.predicted.as_ref()?;
    Some(format!("{} at the middle point: {}.", curve.condition, predicted.from))
}

fn slope_note(swept: &SweepResult, axis: &Axis, curve: &Curve) -> Option<String> {
    let slope = curve.slope.as_ref()?;
    let unit = axis.unit.as_deref().unwrap_or("step");
    let measured = match slope.interval.high {
        Some(high) => format::seconds_with_error(slope.seconds, high - slope.seconds),
        None => format::seconds(slope.seconds),
    };
    let metrics = |p: &CurvePoint| &swept.cells[p.cell].metrics;
    let is_left_out = |p: &CurvePoint| metrics(p).get(COMMIT_MEAN).is_some_and(|e| e.at_least);
    let without = if curve.points.iter().any(is_left_out) {
        ", without the values that are lower bounds"
    } else {
        ""
    };
    Some(format!(
        "{}: each {unit} of {} adds {measured} to a commit; from first principles {}{without}.",
        curve.condition,
        axis.name,
        format::seconds(slope.predicted)
    ))
}

/// Cells that lie on no axis through the middle.
pub(super) fn grid(analysis: &Analysis, swept: &SweepResult) -> Option<Table> {
    if swept.kind != Combination::Grid || swept.axes.len() < 2 {
        return None;
    }
    let primary = &analysis.primary_metric;
    let mut columns = vec![Column::left("condition")];
    columns.extend(swept.axes.iter().map(|axis| Column::right(heading(axis))));
    columns.extend([Column::right(format::metric_name(primary)), Column::left("change [95 %]")]);
    if let Some(class) = &swept.latency_class {
        columns.push(Column::right(format!("{class} mean")));
    }
    let row = |cell: &SweptCell| {
        let mut cells = vec![cell.condition.clone()];
        let value =
            |axis: &Axis| cell.point.get(&axis.name).map_or_else(|| NONE.to_owned(), value_text);
        cells.extend(swept.axes.iter().map(value));
        cells.extend([rate(cell.metrics.get(primary)), effect(cell)]);
        if let Some(class) = &swept.latency_class {
            cells.push(time(latency(cell, class, Statistic::Mean)));
        }
        cells
    };
    Some(Table {
        title: "All cells".to_owned(),
        columns,
        rows: swept.cells.iter().map(row).collect(),
        ..Table::default()
    })
}

// The knee of each curve of a sweep in words. `curves` finds the knee. What is said of the values beside it
// is true of the measured ones: that capacity is higher, only if a greater load had more throughput. Where only a
// lower bound of the latency is known, power is lower than it seems.

/// One sentence for each axis that has knees.
pub(super) fn knees(swept: &SweepResult) -> Vec<String> {
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
    use crate::features::sweep::tests::{Found, analyze};
    use pgio_results::Trial;
    use pgio_verdict::test_support::swept;

    #[test]
    fn a_lower_bound_of_a_commit_is_marked_and_so_is_the_difference() {
        let mut stored = swept(6);
        for t in &mut stored.trials {
            let place = t.place.as_ref().unwrap();
            if place.condition == "on" && place.point["delay"] == 5 {
                let metric = t.metrics.get_mut(COMMIT_MEAN).unwrap();
                (metric.value, metric.at_least) = (Some(0.020), true);
            }
        }
        let analysis = analyze(&stored);
        let found = analysis.sweep.as_ref().unwrap();
        let axis = found.axes.iter().find(|axis| axis.name == "delay").unwrap();
        let table = predictions(found, axis).unwrap();
        let row = |value: &str| -> Vec<&str> {
            let row = table.rows.iter().find(|row| row[0] == "on" && row[1] == value).unwrap();
            row[3..].iter().map(String::as_str).collect()
        };
        assert_eq!(row("5"), ["≥ 20.0 ms", "–"]);
        assert_eq!(row("1"), ["3.80 ms [3.80, 3.81]", "≤ +4.33 µs"]);
        let measured = found.cells[0].metrics[COMMIT_MEAN].clone();
        let seconds = measured.value + 1e-3;
        let predicted = Predicted { seconds, error: None, at_least: true, from: String::new() };
        assert_eq!(difference(&measured, &predicted), "≤ −1.00 ms");
        let slope = table.notes.iter().find(|note| note.starts_with("on: each ms")).unwrap();
        assert!(slope.ends_with("2.00 ms, without the values that are lower bounds."), "{slope}");
    }

    /// The analysis after a change of the trials of a condition at one value of `sessions`.
    fn changed(condition: &str, sessions: u64, change: impl Fn(&mut Trial)) -> Found {
        let mut stored = swept(6);
        for t in &mut stored.trials {
            let place = t.place.as_ref().unwrap();
            if place.condition == condition && place.point["sessions"] == sessions {
                change(t);
            }
        }
        analyze(&stored)
    }

    fn note_on(condition: &str, analysis: &Found) -> String {
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
        let summary = knees(analysis.sweep.as_ref().unwrap()).remove(0);
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
