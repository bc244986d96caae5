//! Along the axes of a sweep: the primary metric by the axis's value, latency against throughput with
//! the knee marked, and the tables of the text report.
//!
//! Bars are 95 % intervals over blocks. An axis of words has its values side by side. Latency is on
//! a logarithmic scale; rates start at zero, unless that would leave some of them on the axis.

use maud::{Markup, html};

use super::curves::{Curve, CurvePoint, Estimate, KneePlace, SweepResult};
use super::tables;
use pgio_report::report::format;
use pgio_report::report::html::svg::{Axis as Scaled, LineStyles, Scale};
use pgio_report::report::html::table;
use pgio_report::report::html::timeline::{Dot, Line, Ring, Stroke, TimeLine};
use pgio_results::latency::Statistic;
use pgio_results::points::{Axis, Combination, value_text};
use pgio_results::store::Manifest;
use pgio_verdict::Analysis;

const HEIGHT: f64 = 240.0;
/// From such a ratio of the largest to the smallest value on, a scale is logarithmic.
const MIN_LOG_RANGE: f64 = 8.0;
/// From this ratio on, a scale of rates is logarithmic, too.
const MIN_LOG_RANGE_OF_RATES: f64 = 30.0;

/// What the charts of a page share.
struct Page<'a> {
    analysis: &'a Analysis,
    looks: LineStyles,
}

pub(super) fn body(manifest: &Manifest, analysis: &Analysis, swept: &SweepResult) -> Markup {
    let page = &Page { analysis, looks: LineStyles::new(manifest) };
    let notes = swept.notes.iter().map(|note| format!("Note: {note}."));
    html! {
        p { (sweep_kind_phrase(swept.kind)) (tables::middle(swept)) "." }
        @for sentence in tables::knees(swept) { p { (table::prose(&sentence)) } }
        @for note in notes { p.note { (table::prose(&note)) } }
        @for (n, axis) in (1..).zip(&swept.axes) { (axis_section(page, swept, n, axis)) }
        @if let Some(grid) = tables::grid(page.analysis, swept) { (table::render(&grid, "All cells")) }
    }
}

fn sweep_kind_phrase(kind: Combination) -> &'static str {
    match kind {
        Combination::OneAtATime => "One axis at a time, from the middle point: ",
        Combination::Grid => {
            "Every combination of the axes; along each, the others are at the middle point: "
        }
    }
}

fn axis_section(page: &Page<'_>, swept: &SweepResult, n: usize, axis: &Axis) -> Markup {
    let curves: Vec<&Curve> = swept.curves_along(&axis.name).collect();
    let charts = [by_value(page, swept, n, axis, &curves), by_load(page, swept, n, axis, &curves)];
    let has_knee = curves.iter().any(|c| knee(c).is_some());
    html! {
        h3 { "Along " (axis.name) }
        (page.looks.legend(curves.iter().map(|c| c.condition.as_str())))
        @if has_knee { p.note { span.knee-key aria-hidden="true" {} "the knee: beyond it more load mostly adds latency" } }
        div.charts { @for chart in charts.iter().flatten() { (chart) } }
        (table::render(&tables::along(page.analysis, swept, axis), &axis.name))
        @if let Some(predicted) = tables::predictions(swept, axis) {
            (table::render(&predicted, "From first principles and measured"))
        }
    }
}

fn knee(curve: &Curve) -> Option<&serde_json::Value> {
    curve.knee.as_ref().filter(|k| k.place == KneePlace::At).map(|k| &k.value)
}

fn bounds(e: &Estimate) -> Option<(f64, f64)> {
    e.interval.sides().filter(|(low, high)| low.is_finite() && high.is_finite())
}

/// The primary metric against the axis's value.
fn by_value(
    page: &Page<'_>,
    swept: &SweepResult,
    n: usize,
    axis: &Axis,
    curves: &[&Curve],
) -> Option<Markup> {
    let primary = &page.analysis.primary_metric;
    let numeric = axis.values.iter().all(|v| v.at.is_some());
    let place = |at: usize, point: &CurvePoint| point.at.filter(|_| numeric).unwrap_or(at as f64);
    let places = |curve: &&Curve| -> Vec<f64> {
        curve.points.iter().enumerate().map(|(at, point)| place(at, point)).collect()
    };
    let all: Vec<f64> = curves.iter().flat_map(places).collect();
    let (low, high) = (all.iter().copied().fold(f64::MAX, f64::min), max(&all));
    if all.is_empty() || high <= low {
        return None;
    }
    let x = x_scale(low, high, numeric);
    let first = curves.iter().max_by_key(|c| c.points.len())?;
    let ticks = first.points.iter().enumerate();
    let ticks = ticks.map(|(at, p)| (place(at, p), value_text(&p.value))).collect();
    let drawn = curves.iter().map(|curve| {
        let points = curve.points.iter().enumerate().filter_map(|(at, point)| {
            let e = swept.cells[point.cell].metrics.get(primary)?;
            let dot = dot(page, axis, curve, point, &shown_estimate(e));
            let down = bounds(e).filter(|(low, _)| *low > 0.0);
            Some(Dot { x: place(at, point), y: e.value, down, ..dot })
        });
        (*curve, points.collect::<Vec<_>>())
    });
    let drawn: Vec<(&Curve, Vec<Dot>)> = drawn.collect();
    let unit = page.analysis.unit(primary);
    let title = format!("{} along {}", format::metric_name(primary), axis.name);
    let x = Scaled { scale: x, ticks, caption: caption(axis) };
    let y = rates(&drawn, |d| (d.y, d.down), unit, format::metric_name(primary));
    Some(chart(page, format!("sweep-value-{n}"), title, [x, y], drawn))
}

/// The value with its unit, and its mark if it is a lower bound.
fn shown_estimate(e: &Estimate) -> String {
    format::marked(format::quantity(e.value, &e.unit), e.at_least)
}

/// Latency against throughput.
fn by_load(
    page: &Page<'_>,
    swept: &SweepResult,
    n: usize,
    axis: &Axis,
    curves: &[&Curve],
) -> Option<Markup> {
    let class = swept.latency_class.as_ref()?;
    let latency = class.metric(Statistic::Mean)?;
    let rate = &curves.first()?.throughput;
    let drawn = curves.iter().map(|curve| {
        let points = curve.points.iter().filter_map(|point| {
            let metrics = &swept.cells[point.cell].metrics;
            let (x, y) = (metrics.get(rate)?, metrics.get(&*latency)?);
            let what = format!("{} at {}", shown_estimate(x), shown_estimate(y));
            (y.value > 0.0).then(|| Dot {
                x: x.value,
                y: y.value,
                across: bounds(x),
                down: bounds(y).filter(|(low, _)| *low > 0.0),
                ..dot(page, axis, curve, point, &what)
            })
        });
        (*curve, points.collect::<Vec<_>>())
    });
    let drawn: Vec<(&Curve, Vec<Dot>)> = drawn.collect();
    let dots = || drawn.iter().flat_map(|(_, dots)| dots);
    if dots().count() < 2 {
        return None;
    }
    let reach = |d: &Dot| d.down.unwrap_or((d.y, d.y));
    let fastest = dots().map(|d| reach(d).0).fold(f64::MAX, f64::min);
    let slowest = dots().map(|d| reach(d).1).fold(f64::MIN, f64::max);
    let scale = Scale::logarithmic(fastest / 1.15, slowest * 1.15);
    let unit = page.analysis.unit(rate);
    let x = rates(&drawn, |d| (d.x, d.across), unit, format::metric_name(rate));
    let y = Scaled {
        scale,
        ticks: below_caption(scale.ticks(6), scale).map(|v| (v, format::seconds(v))).collect(),
        caption: format!("mean latency of a {class}"),
    };
    let title = format!("Latency against throughput along {}", axis.name);
    Some(chart(page, format!("sweep-load-{n}"), title, [x, y], drawn))
}

/// A point of a curve, without its value.
fn dot(page: &Page<'_>, axis: &Axis, curve: &Curve, point: &CurvePoint, what: &str) -> Dot {
    let is_knee = knee(curve) == Some(&point.value);
    Dot {
        look: page.looks.get(&curve.condition),
        tip: tip(axis, curve, point, what),
        ring: if is_knee { Ring::Knee } else { Ring::None },
        ..Dot::default()
    }
}

fn chart(
    page: &Page<'_>,
    id: String,
    title: String,
    [x, y]: [Scaled; 2],
    drawn: Vec<(&Curve, Vec<Dot>)>,
) -> Markup {
    let line = |(curve, dots): &(&Curve, Vec<Dot>)| Line {
        label: curve.condition.clone(),
        look: page.looks.get(&curve.condition),
        stroke: Stroke::Normal,
        points: dots.iter().map(|d| (d.x, Some(d.y))).collect(),
    };
    let tips = drawn.iter().flat_map(|(_, dots)| dots).map(|dot| dot.tip.as_str());
    let tips = tips.collect::<Vec<_>>().join("; ");
    let chart = TimeLine {
        id,
        caption: title.clone(),
        title,
        description: format!("{tips}. The table below has each value."),
        height: HEIGHT,
        x,
        y,
        lines: drawn.iter().map(line).collect(),
        dots: drawn.into_iter().flat_map(|(_, dots)| dots).collect(),
        ..TimeLine::default()
    };
    chart.draw()
}

/// `on, sessions 16: 4,031 commits/s at 3.97 ms`
fn tip(axis: &Axis, curve: &Curve, point: &CurvePoint, what: &str) -> String {
    let unit = axis.unit.as_ref().map_or_else(String::new, |u| format!(" {u}"));
    format!("{}, {} {}{unit}: {what}", curve.condition, axis.name, value_text(&point.value))
}

fn caption(axis: &Axis) -> String {
    axis.unit.as_ref().map_or_else(|| axis.name.clone(), |u| format!("{} ({u})", axis.name))
}

fn x_scale(low: f64, high: f64, numeric: bool) -> Scale {
    if numeric && low > 0.0 && high / low >= MIN_LOG_RANGE {
        return logarithmic(low, high);
    }
    let room = (high - low) * 0.04;
    Scale::linear(low - room, high + room)
}

/// With room for marks at both ends.
fn logarithmic(low: f64, high: f64) -> Scale {
    let room = (high / low).powf(0.04);
    Scale::logarithmic(low / room, high * room)
}

/// A scale for rates and their intervals; one that is far wider than its value runs off the chart.
fn rates(
    drawn: &[(&Curve, Vec<Dot>)],
    extent: impl Fn(&Dot) -> (f64, Option<(f64, f64)>),
    unit: &str,
    caption: String,
) -> Scaled {
    let all = || drawn.iter().flat_map(|(_, dots)| dots).map(&extent);
    let ends =
        all().map(|(value, interval)| interval.map_or(value, |(_, high)| high.min(value * 2.0)));
    let low = all().map(|(value, _)| value).fold(f64::MAX, f64::min);
    let high = ends.fold(0.0, f64::max);
    let scale = if low > 0.0 && high / low >= MIN_LOG_RANGE_OF_RATES {
        logarithmic(low, high)
    } else {
        Scale::linear(0.0, if high > 0.0 { high * 1.06 } else { 1.0 })
    };
    let from_zero = scale.bounds().0 <= 0.0;
    let ticks =
        if from_zero && unit.starts_with("bytes") { scale.binary_ticks(4) } else { scale.ticks(4) };
    let ticks = below_caption(ticks, scale).map(|v| (v, format::bare(v, unit))).collect();
    Scaled { scale, ticks, caption }
}

/// Those whose label does not run into the caption above the chart.
fn below_caption(ticks: Vec<f64>, scale: Scale) -> impl Iterator<Item = f64> {
    ticks.into_iter().filter(move |tick| scale.at(*tick) < 0.95)
}

fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MIN, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_start_at_zero_unless_some_would_lie_on_it() {
        let curve = Curve {
            axis: String::new(),
            condition: String::new(),
            throughput: String::new(),
            points: Vec::new(),
            knee: None,
            slope: None,
        };
        let lowest = |values: [f64; 2]| {
            let dot = |y| Dot { x: 1.0, y, ..Dot::default() };
            let drawn = [(&curve, values.map(dot).into())];
            rates(&drawn, |d| (d.y, d.down), "commits/s", String::new()).scale.bounds().0
        };
        assert_eq!(lowest([100.0, 2000.0]), 0.0);
        assert_eq!(lowest([0.0, 4000.0]), 0.0);
        assert!(lowest([100.0, 4000.0]) > 80.0);
    }
}
