//! Where the sessions' time went, as bars: the waits of each class of operation, and the shares of all
//! time.
//!
//! Groups always have the same order. Each has a color and a letter. A wide part shows its name, a
//! narrower one its letter, so that color is never required. The tables have the numbers with their
//! errors.

use maud::{Markup, html};

use super::super::summary::operation;
use super::super::{explain, format};
use super::page::{Page, Section};
use super::svg::{Row, percent, picture, px, rows};
use super::table;
use pgio_results::waits::{GROUPS, WaitGroup};
use pgio_verdict::Condition;

const BAR: f64 = 26.0;
/// The parts of a bar, as shares of the chart, that have room for the longest name, and for a letter, even on a phone.
const NAME_SHARE: f64 = 0.4;
const LETTER_SHARE: f64 = 0.05;

/// A bar and its parts, in the common unit of the chart.
struct Bar<'a> {
    name: &'a str,
    parts: Vec<(WaitGroup, f64)>,
}

/// A class of operation with a bar for each condition.
type ClassBars<'a> = (&'a str, Vec<Bar<'a>>);

impl Bar<'_> {
    fn total(&self) -> f64 {
        self.parts.iter().map(|(_, value)| value).sum()
    }
}

/// The bars of the operation that the answers are about, and of all time; the others are in the details.
pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let (main, _) = main_and_others(page);
    let shares = shares(page);
    if shares.is_empty() && main.is_none() {
        return None;
    }
    let bars = main.iter().flat_map(|(_, bars)| bars).chain(&shares);
    let body = html! {
        (legend(&shown_groups(bars)))
        div.charts {
            @if let Some((class, bars)) = &main { (class_figure(class, bars)) }
            @if !shares.is_empty() {
                (figure("waits-all", "All of the sessions' time", &shares, 1.0, per_cent))
            }
        }
    };
    Some(Section { id: "waits", title: "Where the time went", body })
}

/// Every decided difference in a sentence, the bars of the other operations, and the table with the errors.
pub(super) fn details(page: &Page<'_>) -> Option<Section> {
    // The list has the sentences of the decided differences.
    let mut table = explain::undecided_time(page.analysis)?;
    table.title = "In numbers".to_owned();
    let sentences = differences(page);
    let (_, others) = main_and_others(page);
    let body = html! {
        @if !sentences.is_empty() { ul { @for text in &sentences { li { (table::prose(text)) } } } }
        @if !others.is_empty() {
            (legend(&shown_groups(others.iter().flat_map(|(_, bars)| bars))))
            div.charts { @for (class, bars) in &others { (class_figure(class, bars)) } }
        }
        (table::render(&table, "Where the time went"))
    };
    Some(Section { id: "waits-details", title: "Where the time went, in detail", body })
}

/// The operation whose time the answers show, and the others.
fn main_and_others<'a>(page: &Page<'a>) -> (Option<ClassBars<'a>>, Vec<ClassBars<'a>>) {
    let mut all = classes(page);
    let known =
        operation(page.analysis).and_then(|(main, _)| all.iter().position(|(c, _)| *c == main));
    let main = known.or((!all.is_empty()).then_some(0)).map(|at| all.remove(at));
    (main, all)
}

fn class_figure(class: &str, bars: &[Bar<'_>]) -> Markup {
    let longest = bars.iter().map(Bar::total).fold(0.0, f64::max);
    figure(&format!("waits-{class}"), &format!("Mean {class}"), bars, longest, format::seconds)
}

/// The kinds of wait that the bars show.
fn shown_groups<'a, 'b: 'a>(bars: impl Iterator<Item = &'a Bar<'b>>) -> Vec<WaitGroup> {
    let shown: Vec<WaitGroup> = bars.flat_map(|b| &b.parts).map(|(group, _)| *group).collect();
    GROUPS.iter().filter(|group| shown.contains(group)).copied().collect()
}

/// The decided differences from the baseline, as sentences.
fn differences(page: &Page<'_>) -> Vec<String> {
    let decided = explain::shown_differences(page.analysis).filter(|d| explain::is_decided(d));
    decided.map(|d| explain::difference(page.analysis, d)).collect()
}

/// For each class of operation, one bar per condition: the mean in seconds.
fn classes<'a>(page: &Page<'a>) -> Vec<ClassBars<'a>> {
    let mut all: Vec<(&str, Vec<Bar<'_>>)> = Vec::new();
    for d in &page.analysis.decompositions {
        let parts = d.parts.iter().filter(|p| p.seconds > 0.0).map(|p| (p.group, p.seconds));
        let bar = Bar { name: &d.condition, parts: parts.collect() };
        match all.iter_mut().find(|(class, _)| *class == d.class) {
            Some((_, bars)) => bars.push(bar),
            None => all.push((&d.class, vec![bar])),
        }
    }
    all.retain(|(_, bars)| bars.iter().any(|b| !b.parts.is_empty()));
    all
}

fn per_cent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The shares of the sessions' time, by condition. Each share is a mean over trials, so their sum only
/// approximates 1; the bars are scaled to exactly 1.
fn shares<'a>(page: &Page<'a>) -> Vec<Bar<'a>> {
    let bar = |c: &'a Condition| {
        let share = |g: &WaitGroup| {
            let value = c.metrics.get(g.metric())?.value.filter(|v| *v > 0.0)?;
            Some((*g, value))
        };
        let mut bar = Bar { name: &c.name, parts: GROUPS.iter().filter_map(share).collect() };
        let total = bar.total();
        bar.parts.iter_mut().for_each(|(_, value)| *value /= total);
        bar
    };
    page.analysis.conditions.iter().map(bar).filter(|b| !b.parts.is_empty()).collect()
}

/// Bars below each other; a bar of `whole` spans the chart.
fn figure(
    id: &str,
    title: &str,
    bars: &[Bar<'_>],
    whole: f64,
    shown: impl Fn(f64) -> String,
) -> Markup {
    let about: Vec<String> = bars
        .iter()
        .map(|b| {
            let parts = b.parts.iter().map(|(g, v)| format!("{} {}", g.title(), shown(*v)));
            format!("{}: {}", b.name, parts.collect::<Vec<_>>().join(", "))
        })
        .collect();
    let drawn = bars.iter().map(|bar| Row {
        name: bar.name,
        // A bar that always spans the chart needs no figure.
        text: if whole == 1.0 { String::new() } else { shown(bar.total()) },
        strip: strip(bar, whole, &shown),
    });
    let all: Vec<Row<'_>> = drawn.collect();
    let about = format!("{}.", about.join(". "));
    html! {
        figure.chart {
            figcaption { (title) }
            div.plot.forest.bars { (rows(&picture(id, title, &about, "100%", &html! {}), BAR, &all)) }
        }
    }
}

fn strip(bar: &Bar<'_>, whole: f64, shown: impl Fn(f64) -> String) -> Markup {
    let mut from = 0.0;
    let mut parts = Vec::new();
    for (group, value) in &bar.parts {
        parts.push((*group, *value, from / whole, value / whole));
        from += value;
    }
    html! { g.bar {
        @for (group, value, at, width) in parts {
            rect.(class(group)) x=(percent(at)) width=(percent(width)) y="0" height=(px(BAR)) {
                title { (bar.name) ": " (group.title()) " " (shown(value)) }
            }
            @if let Some(label) = label(group, width) {
                text x=(percent(at + width / 2.0)) y=(px(BAR / 2.0)) dy="0.35em" text-anchor="middle" { (label) }
            }
        }
    } }
}

/// The name if it fits, else the letter if that does.
fn label(group: WaitGroup, width: f64) -> Option<&'static str> {
    match width {
        w if w >= NAME_SHARE => Some(group.title()),
        w if w >= LETTER_SHARE => Some(letter(group)),
        _ => None,
    }
}

fn letter(group: WaitGroup) -> &'static str {
    match group {
        WaitGroup::Cpu => "C",
        WaitGroup::DataFileRead => "R",
        WaitGroup::DataFileWrite => "W",
        WaitGroup::Flush => "F",
        WaitGroup::SyncRep => "S",
        WaitGroup::Locks => "L",
        WaitGroup::Client => "I",
        WaitGroup::Other => "O",
    }
}

fn class(group: WaitGroup) -> String {
    let at = GROUPS.iter().position(|g| *g == group).unwrap_or_default();
    format!("w{at}")
}

fn legend(groups: &[WaitGroup]) -> Markup {
    html! {
        ul.legend {
            @for group in groups {
                li { span.wait-key.(class(*group)) aria-hidden="true" { (letter(*group)) } (group.title()) }
            }
        }
    }
}
