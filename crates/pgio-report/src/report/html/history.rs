//! The page of a history: a chart for each condition over the runs, then the tables.
//!
//! Each chart has its own scale, which does not begin at 0, because a change of some per cent must be seen.
//! Levels are dashed lines, changes of the level or of the ratio to the baseline vertical ones; triangles mark changes of
//! the environment.

use maud::{Markup, html};

use super::super::format;
use super::super::history::{headline, lines, summary, title};
use super::page::{self, Section};
use super::svg::{Axis, LineStyle, Scale};
use super::table;
use super::timeline::{Dot, Line, Moment, Points, Shape, Stroke, TimeLine, Zoom};
use pgio_results::Metric;
use pgio_verdict::history::{History, LevelChange, Point, Series};

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
    page::simple(&title, header, &sections, true)
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
    let line = |stroke, points| Line {
        label: series.condition.clone(),
        look: LineStyle::default(),
        stroke,
        points,
    };
    let points = series.points.iter().map(|point| (point.run as f64, point.value)).collect();
    let mut lines = vec![line(Stroke::Thin, points)];
    lines.extend(levels(series).into_iter().map(|level| line(Stroke::Level, level)));
    let many = series.points.len() > POINTS;
    let dots = series.points.iter().filter(|_| !many).filter_map(|point| dot(history, point));
    let described = match changes.as_slice() {
        [] => "no change of the level".to_owned(),
        some => some.iter().map(|(_, what)| what.as_str()).collect::<Vec<_>>().join(", "),
    };
    let moment = |(at, what): (f64, String), shape| Moment { at, tip: what.clone(), what, shape };
    let changes = changes.into_iter().map(|change| moment(change, Shape::Line));
    let flags = moments(history).into_iter().map(|flag| moment(flag, Shape::Flag));
    let metric = format::metric_name(&history.metric);
    let chart = TimeLine {
        id: format!("history-{n}"),
        caption: series.condition.clone(),
        title: format!("{metric} of {} over the runs", series.condition),
        description: format!("{}; {described}.", format::counted(history.runs.len(), "run")),
        height: HEIGHT,
        x: runs(history),
        y: values(history, &series.points),
        lines,
        dots: dots.collect(),
        moments: flags.chain(changes).collect(),
        zoom: Some(Zoom { x: "run", unit: history.unit.clone(), logarithmic: false }),
    };
    chart.draw()
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

fn dot(history: &History, point: &Point) -> Option<Dot> {
    let value = point.value?;
    let shown = format::metric(&Metric::new(Some(value), history.unit.clone()));
    Some(Dot {
        x: point.run as f64,
        y: value,
        tip: format!("run {}: {shown}", point.run),
        ..Dot::default()
    })
}

/// Each run at which the environment changes, with what changes.
fn moments(history: &History) -> Vec<(f64, String)> {
    let runs = history.environment.chunk_by(|a, b| a.run == b.run);
    let one = |changes: &[pgio_verdict::history::EnvironmentChange]| {
        let what: Vec<String> = changes.iter().map(|e| e.what.to_string()).collect();
        (changes[0].run as f64, format!("run {}: {}", changes[0].run, what.join(", ")))
    };
    runs.map(one).collect()
}

/// The level from each change to the next, as the ends of a line.
fn levels(series: &Series) -> Vec<Points> {
    let Some(first) = series.changes.first() else { return Vec::new() };
    let last = series.points.last().map_or(0, |point| point.run);
    let starts: Vec<usize> =
        std::iter::once(1).chain(series.changes.iter().map(|c| c.run)).collect();
    let ends = series.changes.iter().map(|c| c.run).chain([last + 1]);
    let values = std::iter::once(first.before).chain(series.changes.iter().map(|c| c.after));
    let level = |((start, end), value): ((&usize, usize), f64)| {
        vec![(*start as f64 - 0.5, Some(value)), (end as f64 - 0.5, Some(value))]
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
