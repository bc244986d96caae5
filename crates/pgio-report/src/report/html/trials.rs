//! The primary metric of every trial, in order of execution.
//!
//! The chart shows what an interval hides: a drift over the experiment, a single outlier, and the trials
//! that do not count (crossed out). Lines join the trials of a condition.

use maud::html;

use super::super::format::{self, metric_name};
use super::page::{Page, Section};
use super::svg::{Axis, Scale};
use super::timeline::{Dot, Line, Ring, Stroke, TimeLine};
use crate::analysis::TrialStatus;
use pgio_results::Trial;

const HEIGHT: f64 = 260.0;

pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let metric = &page.analysis.primary_metric;
    let value = |t: &Trial| t.metrics.get(metric).and_then(|m| m.value).filter(|v| v.is_finite());
    let values = |condition| -> Vec<(usize, f64)> {
        page.trials(condition).filter_map(|(line, t)| Some((line, value(t)?))).collect()
    };
    let all: Vec<(&str, Vec<(usize, f64)>)> =
        page.conditions().map(|name| (name, values(name))).filter(|(_, v)| !v.is_empty()).collect();
    let count: usize = all.iter().map(|(_, values)| values.len()).sum();
    if count < 2 {
        return None;
    }
    let counts = |line: usize| page.statuses[line - 1] == TrialStatus::Counts;
    let mut chart = chart(page, &all);
    for (name, values) in &all {
        let look = page.looks.get(name);
        let counted = values.iter().filter(|(line, _)| counts(*line));
        let points = counted.map(|(line, value)| (*line as f64, Some(*value))).collect();
        let label = (*name).to_owned();
        chart.lines.push(Line { label, look, stroke: Stroke::Thin, points });
        chart.dots.extend(values.iter().map(|(line, value)| Dot {
            x: *line as f64,
            y: *value,
            look,
            tip: tip(page, *line, name, *value),
            ring: if counts(*line) { Ring::None } else { Ring::Crossed },
            ..Dot::default()
        }));
    }
    let body = html! {
        p { "In order of execution; vertical lines separate blocks. "
            @if page.stored.manifest.sweep.is_some() { "Only trials at the middle point. " }
            @if page.has_left_out() { "Crossed-out trials do not count; the table of trials gives the reason." } }
        (page.looks.legend(all.iter().map(|(name, _)| *name)))
        (chart.draw())
    };
    Some(Section { id: "trials", title: "Every trial", body })
}

/// The chart without its values.
fn chart(page: &Page<'_>, all: &[(&str, Vec<(usize, f64)>)]) -> TimeLine {
    let values = || all.iter().flat_map(|(_, v)| v).map(|(_, value)| *value);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    // A scale that does not start at zero makes small differences visible.
    let from = if low < 0.0 {
        low
    } else if low > high * 0.6 {
        (low - (high - low) * 0.25).max(0.0)
    } else {
        0.0
    };
    let y = Scale::linear(from, high + (high - from) * 0.06);
    let metric = &page.analysis.primary_metric;
    let unit = page.analysis.unit(metric);
    let trials = page.statuses.len() as f64;
    TimeLine {
        id: "trials-plot".to_owned(),
        title: format!("{} of every trial", metric_name(metric)),
        description: format!(
            "{} trials of {} conditions, from {} to {}. The table of trials below has each value.",
            all.iter().map(|(_, values)| values.len()).sum::<usize>(),
            all.len(),
            format::quantity(low, unit),
            format::quantity(high, unit)
        ),
        height: HEIGHT,
        x: Axis {
            scale: Scale::linear(0.5, trials + 0.5),
            ticks: block_starts(page),
            caption: "block".to_owned(),
        },
        y: Axis {
            scale: y,
            ticks: y.ticks(5).into_iter().map(|v| (v, format::bare(v, unit))).collect(),
            caption: metric_name(metric),
        },
        ..TimeLine::default()
    }
}

/// The start of each block, with labels few enough for a phone.
fn block_starts(page: &Page<'_>) -> Vec<(f64, String)> {
    let mut starts: Vec<(u32, usize)> = Vec::new();
    for (line, trial) in (1..).zip(&page.stored.trials) {
        let Some(place) = trial.place.as_ref().filter(|p| !p.is_burn_in()) else { continue };
        if starts.last().is_none_or(|(block, _)| *block != place.block) {
            starts.push((place.block, line));
        }
    }
    let every = starts.len().div_ceil(12).max(1);
    let label = |(i, (block, line)): (usize, &(u32, usize))| {
        let text = if i % every == 0 { block.to_string() } else { String::new() };
        (*line as f64 - 0.5, text)
    };
    starts.iter().enumerate().map(label).collect()
}

fn tip(page: &Page<'_>, line: usize, name: &str, value: f64) -> String {
    let metric = &page.analysis.primary_metric;
    let unit = page.analysis.unit(metric);
    let is_bound = page.stored.trials[line - 1].metrics.get(metric).is_some_and(|m| m.at_least);
    let shown = format::marked(format::quantity(value, unit), is_bound);
    let why = match page.statuses[line - 1] {
        TrialStatus::Counts => "",
        _ => ", does not count",
    };
    format!("trial {line}, {name}: {shown}{why}")
}
