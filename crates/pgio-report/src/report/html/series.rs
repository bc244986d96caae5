//! Charts over time: throughput by trial, and the activity of devices and servers, with checkpoints.
//!
//! Throughput has a small chart for each condition, all on one scale, with a line for each trial.
//! Everything sampled beside it has one chart for each quantity, with a line for each condition:
//! the mean of its trials that count. Throughput comes from the trials' timelines, the rest from
//! their series files (`effects`), which may be absent. Samples of a woven window are not drawn: they
//! are of all its conditions together.

use maud::{Markup, html};

use super::super::format;
use super::effects::{self, Quantity};
use super::page::{Page, Section};
use super::svg::{Axis, Scale};
use super::timeline::{self, Line, Points, Shape, Stroke, TimeLine, Zoom};
use pgio_results::Trial;
use pgio_results::latency::Work;
use pgio_results::metrics;
use pgio_results::store::StoredExperiment;
use pgio_results::telemetry::Moment;
use pgio_verdict::TrialStatus;

const HEIGHT: f64 = 150.0;
const CHECKPOINT: &str = "checkpoint";

/// At most this many trials are drawn over time; with more, the trials of every second, third, ... block.
const MAX_DRAWN_TRIALS: usize = 400;

/// Whether a trial is drawn over time, so that its samples are worth reading.
pub fn is_drawn(stored: &StoredExperiment, trial: &Trial) -> bool {
    let step = block_step(stored);
    step == 1 || trial.place.as_ref().is_some_and(|p| (p.block as usize).is_multiple_of(step))
}

/// The trials of every n-th block are drawn.
fn block_step(stored: &StoredExperiment) -> usize {
    stored.trials.len().div_ceil(MAX_DRAWN_TRIALS).max(1)
}

pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let panels: Vec<(&str, Vec<(usize, Points)>)> = page
        .conditions()
        .map(|name| (name, timelines(page, name)))
        .filter(|(_, trials)| !trials.is_empty())
        .collect();
    let quantities = effects::all(page);
    if panels.is_empty() && quantities.is_empty() {
        return None;
    }
    let (unit, _) = work_done(page);
    let top = panels.iter().flat_map(|(_, trials)| trials).flat_map(|(_, p)| p);
    let top = top.filter_map(|p| p.1).fold(0.0, f64::max) * 1.06;
    let body = html! {
        @if !panels.is_empty() {
            h3 { "Throughput" }
            p { (unit) " within the window, a line for each trial, all charts on one scale."
                (uncounted_trials_note(page)) (omitted_blocks_note(page)) }
            (moments_legend(page))
            div.charts { @for (n, (name, trials)) in (1..).zip(&panels) {
                (throughput(page, n, name, trials, top, unit))
            } }
        }
        @if !quantities.is_empty() {
            h3 { "Devices and server" }
            p { "Means of the trials that count, a line for each condition."
                (woven_note(page)) (omitted_blocks_note(page)) }
            (page.looks.legend(page.conditions()))
            div.charts { @for (n, q) in (1..).zip(&quantities) { (quantity(page, n, q)) } }
        }
    };
    Some(Section { id: "time", title: "Over time", body })
}

fn omitted_blocks_note(page: &Page<'_>) -> String {
    match block_step(page.stored) {
        1 => String::new(),
        n => format!(" Only one block in {n} is drawn, because there are too many trials."),
    }
}

fn woven_note(page: &Page<'_>) -> &'static str {
    if page.stored.trials.iter().any(|t| t.woven.is_some()) {
        " Woven windows are left out: their samples are of all conditions together."
    } else {
        ""
    }
}

fn uncounted_trials_note(page: &Page<'_>) -> &'static str {
    if page.has_left_out() { " Trials that do not count are gray and dotted." } else { "" }
}

/// The workload's work and the unit of its rate.
fn work_done(page: &Page<'_>) -> (&'static str, Work) {
    let visits = page.stored.trials.iter().flat_map(|t| &t.timeline).any(|s| s.block_visits > 0);
    let work = match metrics::work(&page.analysis.primary_metric) {
        Some(work @ (Work::BlockVisits | Work::Commits | Work::Messages)) => work,
        // Visits include the rows updated.
        Some(Work::RowsUpdated) | None if visits => Work::BlockVisits,
        Some(Work::RowsUpdated) | None => Work::Commits,
    };
    let unit = match work {
        Work::BlockVisits => "block visits/s",
        Work::RowsUpdated => "rows updated/s",
        Work::Commits => "commits/s",
        Work::Messages => "messages/s",
    };
    (unit, work)
}

fn timelines(page: &Page<'_>, condition: &str) -> Vec<(usize, Points)> {
    let (_, work) = work_done(page);
    let points = |t: &Trial| -> Points {
        let slices = t.timeline.iter().filter(|s| s.seconds > 0.0);
        slices.map(|s| (s.at - s.seconds / 2.0, Some(s.done(work) as f64 / s.seconds))).collect()
    };
    let drawn = page.trials(condition).filter(|(_, t)| is_drawn(page.stored, t));
    let all = drawn.map(|(line, t)| (line, points(t)));
    all.filter(|(_, points)| points.len() > 1).collect()
}

fn throughput(
    page: &Page<'_>,
    n: usize,
    name: &str,
    trials: &[(usize, Points)],
    top: f64,
    unit: &str,
) -> Markup {
    let look = page.looks.get(name);
    let counts = |line: usize| page.statuses[line - 1] == TrialStatus::Counts;
    let line = |(line, points): &(usize, Points)| Line {
        label: format!("trial {line}"),
        look: look.solid(),
        stroke: if counts(*line) { Stroke::Thin } else { Stroke::Excluded },
        points: points.clone(),
    };
    let tip = |line: usize, m: &Moment| format!("trial {line}: {} at {:.1} s", m.what, m.at);
    let marks =
        trials.iter().flat_map(|(line, _)| moments(page, *line).map(|m| moment(m, tip(*line, m))));
    let chart = TimeLine {
        id: format!("throughput-{n}"),
        caption: name.to_owned(),
        title: format!("Throughput of {name} over time"),
        description: format!(
            "{}: {unit} within the window{}.",
            format::counted(trials.len(), "trial"),
            describe_checkpoints(page, trials)
        ),
        height: HEIGHT,
        x: seconds(trials.iter().map(|(line, _)| page.stored.trials[line - 1].window.seconds)),
        y: from_zero(top, ""),
        lines: trials.iter().map(line).collect(),
        moments: marks.collect(),
        zoom: Some(Zoom { x: "seconds", unit: unit.to_owned(), logarithmic: false }),
        ..TimeLine::default()
    };
    chart.draw()
}

fn quantity(page: &Page<'_>, n: usize, q: &Quantity<'_>) -> Markup {
    let values = || q.lines.iter().flat_map(|(_, points)| points);
    let top = values().filter_map(|p| p.1).fold(0.0, f64::max) * 1.06;
    let means = q.lines.iter().map(|(name, points)| {
        let known: Vec<f64> = points.iter().filter_map(|p| p.1).collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        format!("{name} {}", effects::shown(mean, q.unit))
    });
    let means: Vec<String> = means.collect();
    let own_windows = page.stored.trials.iter().filter(|t| t.woven.is_none());
    let line = |(name, points): &(&str, Points)| {
        let (label, look) = ((*name).to_owned(), page.looks.get(name));
        Line { label, look, stroke: Stroke::Normal, points: points.clone() }
    };
    let lines = |name: &str| page.counted(name).map(|(line, _)| line).collect::<Vec<_>>();
    let conditions = q.lines.iter().map(|(name, _)| *name);
    let checkpoints = conditions
        .flat_map(|name| lines(name).into_iter().flat_map(|line| moments(page, line)))
        .filter(|m| m.what == CHECKPOINT);
    let chart = TimeLine {
        id: format!("quantity-{n}"),
        caption: q.title.clone(),
        title: q.title.clone(),
        description: format!("Means over the window: {}.", means.join("; ")),
        height: HEIGHT,
        x: seconds(own_windows.map(|t| t.window.seconds)),
        y: from_zero(top, q.unit),
        lines: q.lines.iter().map(line).collect(),
        moments: checkpoints.map(|m| moment(m, CHECKPOINT.to_owned())).collect(),
        zoom: Some(Zoom { x: "seconds", unit: q.unit.to_owned(), logarithmic: false }),
        ..TimeLine::default()
    };
    chart.draw()
}

/// The events inside a trial's window.
fn moments<'a>(page: &Page<'a>, line: usize) -> impl Iterator<Item = &'a Moment> {
    let inside = |m: &&Moment| m.at >= 0.0;
    page.samples(line).into_iter().flat_map(|s| &s.moments).filter(inside)
}

/// `; 2 checkpoints`, with the number of trials that have samples if not all do; empty if none does.
fn describe_checkpoints(page: &Page<'_>, trials: &[(usize, Points)]) -> String {
    let lines = || trials.iter().map(|(line, _)| *line);
    let sampled = lines().filter(|line| page.samples(*line).is_some()).count();
    if sampled == 0 {
        return String::new();
    }
    let ends = lines().flat_map(|line| moments(page, line)).filter(|m| m.what == CHECKPOINT);
    let found = match ends.count() {
        0 => "no checkpoint".to_owned(),
        n => format::counted(n, CHECKPOINT),
    };
    if sampled == trials.len() {
        return format!("; {found}");
    }
    format!("; {found} in the samples of {}", format::counted(sampled, "trial"))
}

/// A triangle for a checkpoint, a diamond for anything else.
fn moment(m: &Moment, tip: String) -> timeline::Moment {
    let shape = if m.what == CHECKPOINT { Shape::Triangle } else { Shape::Diamond };
    timeline::Moment { at: m.at, what: m.what.clone(), tip, shape }
}

fn moments_legend(page: &Page<'_>) -> Markup {
    let all = (1..=page.statuses.len()).flat_map(|line| moments(page, line));
    let (mut checkpoints, mut others) = (false, Vec::new());
    for m in all {
        if m.what == CHECKPOINT {
            checkpoints = true;
        } else if !others.contains(&m.what.as_str()) {
            others.push(&m.what);
        }
    }
    html! { @if checkpoints || !others.is_empty() {
        ul.legend {
            @if checkpoints { li { span.moment-key aria-hidden="true" { "▼" } "checkpoint ends" } }
            @if !others.is_empty() { li { span.moment-key aria-hidden="true" { "◆" } (others.join(", ")) } }
        }
    } }
}

fn seconds(windows: impl Iterator<Item = f64>) -> Axis {
    let scale = Scale::linear(0.0, windows.fold(0.1, f64::max));
    let label = |v: f64| match v {
        0.0 => "0".to_owned(),
        v if v.fract() == 0.0 => format!("{v} s"),
        v => format!("{v:.1} s"),
    };
    let ticks = scale.ticks(5).into_iter().map(|v| (v, label(v))).collect();
    Axis { scale, ticks, caption: String::new() }
}

fn from_zero(top: f64, unit: &str) -> Axis {
    let top = match unit {
        // A share that comes near the whole is seen against the whole.
        "share" if top > 0.5 => top.max(1.0),
        _ if top > 0.0 => top,
        _ => 1.0,
    };
    let scale = Scale::linear(0.0, top);
    let ticks = if unit.starts_with("bytes") { scale.binary_ticks(4) } else { scale.ticks(4) };
    let ticks = ticks.into_iter().map(|v| (v, effects::tick(v, unit))).collect();
    Axis { scale, ticks, caption: String::new() }
}
