//! The interval plot: each condition's effect with its interval, over the noise floor.
//!
//! The scale is logarithmic, so halving and doubling are equally far from no change. The shaded band is the noise floor: an
//! effect inside it may be noise. A condition that cannot be compared keeps its row, with the reason. Name and effect are
//! text of the page, which the browser wraps, above the strip of their row.

use maud::{Markup, html};

use super::super::statement::Statement;
use super::super::{format, lead, margin};
use super::page::Page;
use super::svg::{self, LineStyles, Scale, percent, picture, px};
use pgio_results::metrics::Direction;
use pgio_verdict::{Analysis, Comparison, NoiseFloor, Verdict};

/// The height of the strip of a row, and where its interval is.
const STRIP: f64 = 20.0;
const MIDDLE: f64 = STRIP / 2.0;

struct Row<'a> {
    name: &'a str,
    /// `−53.5 % [−55.3, −51.6] slower`, or what stands in place of an effect.
    effect: String,
    verdict: Verdict,
    /// Ratio with its interval, if it has one.
    estimate_and_bounds: Option<(f64, f64, f64)>,
    /// The effect in a sentence.
    about: String,
}

/// The effects of all conditions.
pub(super) fn conditions(page: &Page<'_>) -> Markup {
    let analysis = page.analysis;
    let others = page.conditions().filter(|name| *name != analysis.baseline);
    let row = |name| {
        let described = analysis.condition(name);
        let instead = described.and_then(|c| lead::instead_of_effect(analysis, c));
        let compared = analysis.primary(name);
        let own = || compared.map_or_else(|| "not compared".to_owned(), effect);
        Row {
            name,
            effect: instead.unwrap_or_else(own),
            verdict: compared.map_or(Verdict::NotApplicable, |c| c.verdict),
            estimate_and_bounds: compared.and_then(estimate_and_bounds),
            about: Statement::new(analysis, name).long(),
        }
    };
    let floor = analysis.noise_floor.get(&analysis.primary_metric);
    let metric = format::metric_name(&analysis.primary_metric);
    let title = format!("Change of {metric} against {}", analysis.baseline);
    plot(analysis, &page.looks, &title, &others.map(row).collect::<Vec<_>>(), floor)
}

/// Effects on the primary metric that are no comparisons of a condition with the baseline, in this order.
pub fn contrasts<'a>(
    analysis: &Analysis,
    looks: &LineStyles,
    title: &str,
    all: impl Iterator<Item = &'a Comparison>,
) -> Markup {
    let row = |c: &'a Comparison| {
        let effect = effect(c);
        Row {
            name: &c.condition,
            about: format!("{}: {effect}.", c.condition),
            effect,
            verdict: c.verdict,
            estimate_and_bounds: estimate_and_bounds(c),
        }
    };
    plot(analysis, looks, title, &all.map(row).collect::<Vec<_>>(), None)
}

fn plot(
    analysis: &Analysis,
    looks: &LineStyles,
    title: &str,
    rows: &[Row<'_>],
    floor: Option<&NoiseFloor>,
) -> Markup {
    if rows.is_empty() {
        return html! {};
    }
    let scale = scale(analysis, rows, floor);
    let bounds = floor.and_then(|f| f.interval.sides());
    let about: Vec<&str> = rows.iter().map(|row| row.about.as_str()).collect();
    let behind = html! {
        @if let Some((low, high)) = bounds {
            @let (from, to) = (scale.at(low), scale.at(high));
            rect.floor x=(percent(from)) width=(percent(to - from)) y="0" height="100%" {}
        }
        @for ratio in margins(analysis) {
            @let x = percent(scale.at(ratio));
            line.margin x1=(x) x2=(x) y1="0" y2="100%" {}
        }
        g.grid { @for (ratio, label) in ticks(scale) {
            @let x = percent(scale.at(ratio));
            line.zero[ratio == 1.0] x1=(x) x2=(x) y1="0" y2="100%" {}
            text.tick x=(x) y="100%" dy="18" text-anchor="middle" { (label) }
        } }
    };
    let strips = rows.iter().map(|row| svg::Row {
        name: row.name,
        text: row.effect.clone(),
        strip: interval(row, looks, scale),
    });
    let strips: Vec<svg::Row<'_>> = strips.collect();
    let (left, right) = directions(analysis);
    html! {
        figure.chart #forest {
            figcaption { (title) ", with 95 % intervals" }
            div.plot.forest {
                (svg::rows(&picture("forest-plot", title, &about.join(" "), "100%", &behind), STRIP, &strips))
                p.ends aria-hidden="true" { span { "← " (left) } span { (right) " →" } }
            }
            @if let Some(text) = floor_text(analysis, floor) {
                p.note { span.floor-key aria-hidden="true" {} (text) }
            }
            @if let Some(share) = analysis.margin {
                p.note { span.margin-key aria-hidden="true" {} "Dashed: the margin of "
                    (margin::share(share)) ". An effect matters beyond it." }
            }
        }
    }
}

fn interval(row: &Row<'_>, looks: &LineStyles, scale: Scale) -> Markup {
    let look = looks.get(row.name);
    let state = if row.verdict.is_decided() { "decided" } else { "open" };
    html! { @if let Some((ratio, low, high)) = row.estimate_and_bounds {
        @let (from, to) = (percent(scale.at(low)), percent(scale.at(high)));
        g class={ "interval c" (look.color) " " (state) } {
            line x1=(from) x2=(to) y1=(px(MIDDLE)) y2=(px(MIDDLE)) {}
            @for end in [from, to] {
                line x1=(end) x2=(end) y1=(px(MIDDLE - 5.0)) y2=(px(MIDDLE + 5.0)) {}
            }
        }
        (look.mark(scale.at(ratio), MIDDLE, &row.effect))
    } }
}

fn estimate_and_bounds(c: &Comparison) -> Option<(f64, f64, f64)> {
    Some((c.ratio?, c.interval.low?, c.interval.high?))
        .filter(|(ratio, low, _)| *ratio > 0.0 && *low > 0.0)
}

/// `−53.5 % [−55.3, −51.6] slower`
fn effect(c: &Comparison) -> String {
    let change = |ratio| format::change_as_known(ratio, c.interval, c.bound).to_string();
    format!("{} {}", c.ratio.map_or_else(|| format::NONE.to_owned(), change), word(c.verdict))
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
        Verdict::NotJudged => "not judged",
    }
}

/// The labels to the left and to the right of no change.
fn directions(analysis: &Analysis) -> (&'static str, &'static str) {
    match analysis.definition(&analysis.primary_metric).map(|d| d.direction) {
        Some(Direction::HigherIsFaster) => ("slower", "faster"),
        Some(Direction::LowerIsFaster) => ("faster", "slower"),
        Some(Direction::Neutral) | None => ("less", "more"),
    }
}

fn scale(analysis: &Analysis, rows: &[Row<'_>], floor: Option<&NoiseFloor>) -> Scale {
    let intervals =
        rows.iter().filter_map(|row| row.estimate_and_bounds).flat_map(|(r, l, h)| [r, l, h]);
    let floors = floor.iter().flat_map(|f| [f.interval.low, f.interval.high]).flatten();
    let (mut low, mut high) = (0.99, 1.01);
    for ratio in intervals.chain(floors).chain(margins(analysis)).filter(|r| *r > 0.0) {
        low = f64::min(low, ratio);
        high = f64::max(high, ratio);
    }
    let room = (high / low).powf(0.06);
    Scale::logarithmic(low / room, high * room)
}

/// Round changes: evenly spaced where they are small, of the well-known ones as many as have room
/// where they are large.
fn ticks(scale: Scale) -> Vec<(f64, String)> {
    const KNOWN: [f64; 21] = [
        1.0, 0.5, 2.0, 0.1, 10.0, 0.2, 5.0, 0.75, 1.5, 0.3, 3.0, 0.4, 0.6, 0.8, 0.9, 0.05, 0.02,
        0.01, 100.0, 0.001, 1000.0,
    ];
    /// Between two labels, as a part of the width.
    const MIN_LABEL_GAP: f64 = 0.13;
    let inside = |ratio: &f64| (0.03..=0.97).contains(&scale.at(*ratio));
    let (low, high) = scale.bounds();
    let mut ratios: Vec<f64> = Vec::new();
    if high / low < 2.0 {
        let per_cent = Scale::linear((low - 1.0) * 100.0, (high - 1.0) * 100.0).ticks(5);
        ratios.extend(per_cent.into_iter().map(|p| 1.0 + p / 100.0).filter(inside));
    } else {
        for ratio in KNOWN.into_iter().filter(inside) {
            if ratios.iter().all(|r| (scale.at(*r) - scale.at(ratio)).abs() >= MIN_LABEL_GAP) {
                ratios.push(ratio);
            }
        }
    }
    ratios.into_iter().map(|ratio| (ratio, tick(ratio))).collect()
}

/// `−50 %`, `0 %`, `+2.5 %`
fn tick(ratio: f64) -> String {
    let change = (ratio - 1.0) * 100.0;
    let size = (change.abs() * 10.0).round() / 10.0;
    match change {
        _ if size == 0.0 => "0 %".to_owned(),
        c if c < 0.0 => format!("−{size} %"),
        _ => format!("+{size} %"),
    }
}

/// The ratios at the borders of the margin, if there is one.
fn margins(analysis: &Analysis) -> impl Iterator<Item = f64> {
    analysis.margin.into_iter().flat_map(|share| [1.0 - share, 1.0 + share])
}

fn floor_text(analysis: &Analysis, floor: Option<&NoiseFloor>) -> Option<String> {
    let floor = floor?;
    let aa = analysis.aa.as_ref()?;
    let interval = format::interval(floor.interval)?;
    Some(format!(
        "Shaded: the noise floor. {aa} is {} measured twice, and its effect is {interval}\u{a0}%: \
         effects inside may be noise.",
        analysis.baseline
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_a_forest_plot_are_round_percentages_and_include_zero() {
        let labels = |low, high| -> Vec<String> {
            let scale = Scale::logarithmic(low, high);
            let mut all = ticks(scale);
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            all.into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(0.93, 1.04), ["−5 %", "0 %"]);
        assert_eq!(labels(0.97, 1.03), ["−2 %", "0 %", "+2 %"]);
        assert_eq!(labels(0.15, 1.2), ["−80 %", "−70 %", "−50 %", "−25 %", "0 %"]);
        assert_eq!(labels(0.6, 40.0), ["0 %", "+100 %", "+400 %", "+900 %"]);
    }
}
