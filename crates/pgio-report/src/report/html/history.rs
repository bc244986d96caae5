//! The page of a history: a chart for each condition over the runs, then the tables.
//!
//! Each chart has its own scale, which does not begin at 0, because a change of some per cent must be seen.
//! Levels are dashed lines, changes of the level or of the ratio to the baseline vertical ones; triangles mark changes of
//! the environment.

use maud::{Markup, html};

use super::super::format;
use super::super::history::{headline, lines, summary, title};
use super::look::PLAIN;
use super::page::Section;
use super::svg::{Axis, Frame, Scale, percent, px};
use super::zoom::{self, Line, Mark, Zoom};
use super::{shell, table};
use crate::analysis::history::{History, LevelChange, Point, Series};
use pgio_results::Metric;

const HEIGHT: f64 = 200.0;
/// With more runs the points merge into the line.
const POINTS: usize = 60;
/// Space above and below the values, as a share of their range.
const MARGIN: f64 = 0.12;

/// Renders the page of a history.
pub fn history_page(history: &History) -> String {
    let charts = html! {
        p { (format::metric_name(&history.metric)) ", the typical trial of each run. The scale does not begin \
            at 0." }
        (legend(history))
        div.charts { @for (n, series) in (1..).zip(&history.conditions) { (chart(history, n, series)) } }
    };
    let mut sections = vec![Section { id: "runs", title: "Over the runs", body: charts }];
    let changes = summary(history);
    if !changes.is_empty() {
        let body = html! { @for t in &changes { (table::render(t, "Changes")) } };
        sections.push(Section { id: "changes", title: "Changes", body });
    }
    let each = history.conditions.iter().map(|series| lines(history, series));
    let body = html! { @for t in each { (table::render(&t, "Runs")) } };
    sections.push(Section { id: "values", title: "Values", body });
    let title = title(history);
    let header = html! {
        p.kind { "pgio history" } h1 { (title) }
        @for sentence in headline(history) { p { (table::prose(&sentence)) } }
    };
    shell::simple(&title, header, &sections, true)
}

fn legend(history: &History) -> Markup {
    html! {
        ul.legend {
            li { span.margin-key aria-hidden="true" {} "level between two changes" }
            @if !history.environment.is_empty() {
                li { span.moment-key aria-hidden="true" { "▼" } "the environment changes" }
            }
        }
    }
}

fn chart(history: &History, n: usize, series: &Series) -> Markup {
    let changes = changes(history, series);
    let points: Vec<(f64, Option<f64>)> =
        series.points.iter().map(|point| (point.run as f64, point.value)).collect();
    let frame = Frame {
        id: format!("history-{n}"),
        title: format!(
            "{} of {} over the runs",
            format::metric_name(&history.metric),
            series.condition
        ),
        description: format!(
            "{}; {}.",
            format::counted(history.runs.len(), "run"),
            match changes.as_slice() {
                [] => "no change of the level".to_owned(),
                some => some.iter().map(|(_, what)| what.as_str()).collect::<Vec<_>>().join(", "),
            }
        ),
        height: HEIGHT,
        x: runs(history),
        y: values(history, &series.points),
    };
    let levels = html! { @for level in levels(series) { (frame.line(&level, "margin")) } };
    let line = html! { (frame.line(&points, "c0 thin")) (levels) };
    let many = series.points.len() > POINTS;
    let zoom = Zoom {
        x: "run",
        unit: history.unit.clone(),
        logarithmic: false,
        lines: vec![Line::new(series.condition.clone(), PLAIN, &points)],
        marks: changes.iter().map(|(at, what)| Mark { at: *at, what: what.clone() }).collect(),
    };
    html! {
        figure.chart.zoomable {
            figcaption { (series.condition) }
            (frame.draw(&html! {
                (frame.lines(&line))
                @for (run, tip) in moments(history) { (moment(&frame, run, &tip)) }
                @for (at, what) in &changes {
                    @let x = percent(frame.x_at(*at));
                    line.zero x1=(x) x2=(x) y1="0" y2=(px(HEIGHT)) stroke="currentColor" { title { (what) } }
                }
                @for point in series.points.iter().filter(|_| !many) { (mark(history, &frame, point)) }
            }))
            (zoom::data(&zoom))
        }
    }
}

/// Where the condition's level changes, and where its ratio to the baseline does.
fn changes(history: &History, series: &Series) -> Vec<(f64, String)> {
    let at = |what: String, changes: &[LevelChange]| -> Vec<(f64, String)> {
        let one =
            |c: &LevelChange| (c.run as f64 - 0.5, format!("{what} changes at run {}", c.run));
        changes.iter().map(one).collect()
    };
    let ratio = || format!("the ratio to {}", history.baseline);
    let relative = series.relative.iter().flat_map(|relative| at(ratio(), &relative.changes));
    at("the level".to_owned(), &series.changes).into_iter().chain(relative).collect()
}

fn mark(history: &History, frame: &Frame, point: &Point) -> Markup {
    html! { @if let Some(value) = point.value {
        @let shown = format::metric(&Metric::new(Some(value), history.unit.clone()));
        (PLAIN.mark(frame.x_at(point.run as f64), frame.y_at(value), &format!("run {}: {shown}", point.run)))
    } }
}

/// Each run at which the environment changes, with what changes.
fn moments(history: &History) -> Vec<(f64, String)> {
    let runs = history.environment.chunk_by(|a, b| a.run == b.run);
    let one = |changes: &[crate::analysis::history::EnvironmentChange]| {
        let what: Vec<String> = changes.iter().map(|e| e.what.to_string()).collect();
        (changes[0].run as f64, format!("run {}: {}", changes[0].run, what.join(", ")))
    };
    runs.map(one).collect()
}

fn moment(frame: &Frame, run: f64, tip: &str) -> Markup {
    html! {
        svg.moment x=(percent(frame.x_at(run))) y="0" { path d="M-5 -9H5L0 0Z" { title { (tip) } } }
    }
}

/// The level from each change to the next, as the ends of a line.
fn levels(series: &Series) -> Vec<[(f64, Option<f64>); 2]> {
    let Some(first) = series.changes.first() else { return Vec::new() };
    let last = series.points.last().map_or(0, |point| point.run);
    let starts: Vec<usize> =
        std::iter::once(1).chain(series.changes.iter().map(|c| c.run)).collect();
    let ends = series.changes.iter().map(|c| c.run).chain([last + 1]);
    let values = std::iter::once(first.before).chain(series.changes.iter().map(|c| c.after));
    let level = |((start, end), value): ((&usize, usize), f64)| {
        [(*start as f64 - 0.5, Some(value)), (end as f64 - 0.5, Some(value))]
    };
    starts.iter().zip(ends).zip(values).map(level).collect()
}

fn runs(history: &History) -> Axis {
    let scale = Scale::linear(0.5, history.runs.len() as f64 + 0.5);
    let whole = scale.ticks(6).into_iter().filter(|v| v.fract() == 0.0);
    let ticks = whole.map(|v| (v, format!("{v}"))).collect();
    Axis { scale, ticks, caption: "run".to_owned() }
}

fn values(history: &History, points: &[Point]) -> Axis {
    let known = || points.iter().filter_map(|point| point.value);
    let (low, high) = known()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    // Equal values lie in the middle.
    let margin = ((high - low) * MARGIN).max(high.abs() * 0.01);
    let scale = Scale::linear(low - margin, high + margin);
    let label = |v: f64| {
        if history.unit.contains('/') && !history.unit.starts_with("bytes") {
            format::number(v)
        } else {
            format::quantity(v, &history.unit)
        }
    };
    let ticks = scale.ticks(5).into_iter().map(|v| (v, label(v))).collect();
    Axis { scale, ticks, caption: String::new() }
}
