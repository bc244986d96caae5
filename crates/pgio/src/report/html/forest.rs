//! The forest plot: each condition's effect with its interval, over the noise floor.
//!
//! Ratios lie on a logarithmic scale, on which halving and doubling are equally far from nothing.
//! The shaded band is what the baseline measured twice differs by: an effect inside it is none. A
//! condition that cannot be compared keeps its row, with the reason.

use maud::{Markup, html};

use super::super::format;
use super::super::sentence::sentence;
use super::Page;
use super::svg::{Scale, percent, picture, px};
use crate::analysis::{Comparison, NoiseFloor, Verdict};
use crate::results::metrics::{Direction, definition};

const TEXT_AT: f64 = 18.0;
const INTERVAL_AT: f64 = 36.0;
/// Name and effect share a line up to so many characters: what a phone has room for.
const ONE_LINE: usize = 42;

struct Row<'a> {
    name: &'a str,
    effect: String,
    verdict: Verdict,
    /// Ratio with its interval, where there is one.
    found: Option<(f64, f64, f64)>,
    top: f64,
    height: f64,
}

pub(super) fn figure(page: &Page<'_>) -> Markup {
    let rows = rows(page);
    if rows.is_empty() {
        return html! {};
    }
    let floor = page.analysis.noise_floor.get(&page.analysis.primary_metric);
    let scale = scale(&rows, floor);
    let height: f64 = rows.iter().map(|r| r.height).sum();
    let about: Vec<String> = rows.iter().map(|r| sentence(page.analysis, r.name)).collect();
    let body = html! {
        (band(floor, scale, height))
        g.grid { @for (ratio, label) in ticks(scale) {
            @let x = percent(scale.at(ratio));
            line.zero[ratio == 1.0] x1=(x) x2=(x) y1="0" y2=(px(height)) {}
            text.tick x=(x) y=(px(height + 18.0)) text-anchor="middle" { (label) }
        } }
        @for row in &rows { (draw(row, page, scale)) }
    };
    let title = format!(
        "Change of {} against {}",
        format::metric_name(&page.analysis.primary_metric),
        page.analysis.baseline
    );
    let (left, right) = directions(&page.analysis.primary_metric);
    html! {
        figure.chart #forest {
            figcaption { (title) ", with 95 % intervals" }
            div.plot.forest {
                (picture("forest-plot", &title, &about.join(" "), height + 24.0, &body))
                p.ends aria-hidden="true" { span { "← " (left) } span { (right) " →" } }
            }
            @if let Some(text) = floor_text(page, floor) {
                p.note { span.floor-key aria-hidden="true" {} (text) }
            }
        }
    }
}

fn rows<'a>(page: &Page<'a>) -> Vec<Row<'a>> {
    let mut top = 0.0;
    let others = page.conditions().filter(|name| *name != page.analysis.baseline);
    others
        .map(|name| {
            let comparison = page.analysis.primary(name);
            let effect = comparison.map_or_else(|| "not compared".to_owned(), effect);
            let short = name.chars().count() + effect.chars().count() <= ONE_LINE;
            let height = if short { 54.0 } else { 72.0 };
            let row = Row {
                name,
                effect,
                verdict: comparison.map_or(Verdict::NotApplicable, |c| c.verdict),
                found: comparison.and_then(|c| Some((c.ratio?, c.low?, c.high?))),
                top,
                height,
            };
            top += height;
            row
        })
        .collect()
}

/// `−53.5 % [−55.3, −51.6] slower`
fn effect(c: &Comparison) -> String {
    let found = match (c.ratio, c.low, c.high) {
        (Some(ratio), Some(low), Some(high)) => format::change_with_interval(ratio, low, high),
        (Some(ratio), ..) => format::change(ratio),
        _ => format::NONE.to_owned(),
    };
    format!("{found} {}", word(c.verdict))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Slower => "slower",
        Verdict::Faster => "faster",
        Verdict::Higher => "higher",
        Verdict::Lower => "lower",
        Verdict::NoDifference => "~",
        Verdict::TooFewBlocks => "too few blocks",
        Verdict::NotApplicable => "no ratio",
    }
}

/// What lies to the left and to the right of no change.
fn directions(metric: &str) -> (&'static str, &'static str) {
    match definition(metric).map(|d| d.direction) {
        Some(Direction::HigherIsFaster) => ("slower", "faster"),
        Some(Direction::LowerIsFaster) => ("faster", "slower"),
        Some(Direction::Neutral) | None => ("less", "more"),
    }
}

fn scale(rows: &[Row<'_>], floor: Option<&NoiseFloor>) -> Scale {
    let intervals = rows.iter().filter_map(|r| r.found).flat_map(|(r, l, h)| [r, l, h]);
    let floors = floor.iter().flat_map(|f| [f.low, f.high]).flatten();
    let (mut low, mut high) = (0.99, 1.01);
    for ratio in intervals.chain(floors).filter(|r| *r > 0.0) {
        low = f64::min(low, ratio);
        high = f64::max(high, ratio);
    }
    let room = (high / low).powf(0.06);
    Scale::logarithmic(low / room, high * room)
}

/// Round changes: evenly spaced where they are small, by halves and doubles where they are large.
fn ticks(scale: Scale) -> Vec<(f64, String)> {
    let inside = |ratio: &f64| (0.02..=0.98).contains(&scale.at(*ratio));
    let (low, high) = scale.bounds();
    let ratios: Vec<f64> = if high / low < 3.0 {
        let per_cent = Scale::linear((low - 1.0) * 100.0, (high - 1.0) * 100.0).ticks(5);
        per_cent.into_iter().map(|p| 1.0 + p / 100.0).collect()
    } else {
        vec![0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1000.0]
    };
    let label = |ratio: f64| {
        let change = (ratio - 1.0) * 100.0;
        let sign = if change.abs() < 1e-9 {
            ""
        } else if change < 0.0 {
            "−"
        } else {
            "+"
        };
        let digits =
            if change.abs() < 10.0 && (change.abs() * 10.0).round() % 10.0 != 0.0 { 1 } else { 0 };
        format!("{sign}{:.digits$} %", change.abs())
    };
    ratios.into_iter().filter(inside).map(|ratio| (ratio, label(ratio))).collect()
}

fn band(floor: Option<&NoiseFloor>, scale: Scale, height: f64) -> Markup {
    let bounds = floor.and_then(|f| Some((f.low?, f.high?)));
    html! { @if let Some((low, high)) = bounds {
        @let (from, to) = (scale.at(low), scale.at(high));
        rect.floor x=(percent(from)) width=(percent(to - from)) y="0" height=(px(height)) {}
    } }
}

fn draw(row: &Row<'_>, page: &Page<'_>, scale: Scale) -> Markup {
    let look = page.looks.get(row.name);
    let text_y = row.top + TEXT_AT;
    let y = row.top + INTERVAL_AT;
    let two_lines = row.height > 60.0;
    html! {
        text.name x="0" y=(px(text_y)) { (row.name) }
        @if two_lines {
            text.effect x="0" y=(px(row.top + 58.0)) { (row.effect) }
        } @else {
            text.effect x="100%" y=(px(text_y)) text-anchor="end" { (row.effect) }
        }
        @if let Some((ratio, low, high)) = row.found {
            @let (from, to) = (percent(scale.at(low)), percent(scale.at(high)));
            g class={ "interval c" (look.colour) " " (if row.verdict.is_decided() { "decided" } else { "open" }) } {
                line x1=(from) x2=(to) y1=(px(y)) y2=(px(y)) {}
                line x1=(from) x2=(from) y1=(px(y - 5.0)) y2=(px(y + 5.0)) {}
                line x1=(to) x2=(to) y1=(px(y - 5.0)) y2=(px(y + 5.0)) {}
            }
            (look.mark(scale.at(ratio), y, &row.effect))
        }
    }
}

fn floor_text(page: &Page<'_>, floor: Option<&NoiseFloor>) -> Option<String> {
    let floor = floor?;
    let aa = page.analysis.aa.as_ref()?;
    let interval = format::interval(floor.low?, floor.high?);
    Some(format!(
        "Shaded: the noise floor. {aa} is {} measured twice, and its effect is {interval} %: what \
         lies inside is no difference.",
        page.analysis.baseline
    ))
}
