//! The forest plot: each condition's effect with its interval, over the noise floor.
//!
//! The scale is logarithmic, so halving and doubling are equally far from no change. The shaded band is
//! the noise floor: an effect inside it may be noise. A condition that cannot be compared keeps its row,
//! with the reason.

use maud::{Markup, html};

use super::super::format;
use super::super::margin;
use super::super::outcomes::instead_of_effect;
use super::super::screening::is_shown;
use super::super::sentence::sentence;
use super::look::clipped;
use super::page::Page;
use super::svg::{Scale, percent, picture, px};
use crate::analysis::screening::ScreeningResult;
use crate::analysis::{Analysis, Comparison, NoiseFloor, Verdict};
use pgio_results::metrics::Direction;

/// Vertical positions in a row: its name, its interval, and the effect if it is below the interval.
const NAME_AT: f64 = 16.0;
const INTERVAL_AT: f64 = 34.0;
const BELOW_AT: f64 = 56.0;
/// Line height of an effect with two lines.
const LINE_HEIGHT: f64 = 18.0;
/// Maximum characters of a name on a phone.
const MAX_NAME_CHARACTERS: usize = 38;
/// Widths in pixels: of a character of an effect and of a name in a wide font, and of the narrowest plot
/// on a phone and with `.wide`.
const CHARACTER_WIDTH: f64 = 7.5;
const NAME_CHARACTER_WIDTH: f64 = 8.6;
const MIN_WIDTH: f64 = 320.0;
const MIN_WIDE_WIDTH: f64 = 510.0;

struct Row<'a> {
    name: &'a str,
    label: Label,
    verdict: Verdict,
    /// Ratio with its interval, if it has one.
    estimate_and_bounds: Option<(f64, f64, f64)>,
    beside: LabelPlacement,
    top: f64,
}

/// The text of a row: the effect and its verdict, or what stands in place of them.
#[derive(Debug, Clone)]
struct Label {
    text: String,
    /// Effect and verdict apart, if the effect has an interval; a long text takes a line for each.
    parts: Option<[String; 2]>,
}

impl Label {
    fn plain(text: String) -> Label {
        Label { text, parts: None }
    }

    fn in_parts(effect: String, verdict: &str) -> Label {
        let text = format!("{effect} {verdict}");
        Label { text, parts: Some([effect, verdict.to_owned()]) }
    }

    fn width(&self) -> f64 {
        width(&self.text)
    }

    /// The lines on a phone.
    fn lines(&self) -> &[String] {
        match &self.parts {
            Some(parts) if self.width() > MIN_WIDTH => parts,
            _ => std::slice::from_ref(&self.text),
        }
    }
}

/// The side of the interval that shows the effect on screens with enough room. On others the effect is
/// to the right of the name or, if the name is long, below it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LabelPlacement {
    left: bool,
    room: Room,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Room {
    OnAPhone,
    OnAWideScreen,
    Nowhere,
}

impl Row<'_> {
    fn height(&self) -> f64 {
        if self.beside.room == Room::OnAPhone || self.is_one_line() {
            return 50.0;
        }
        50.0 + LINE_HEIGHT * self.label.lines().len() as f64
    }

    /// Whether name and effect have room on one line of a phone.
    fn is_one_line(&self) -> bool {
        let name =
            clipped(self.name, MAX_NAME_CHARACTERS).chars().count() as f64 * NAME_CHARACTER_WIDTH;
        name + self.label.width() + CHARACTER_WIDTH <= MIN_WIDTH
    }
}

fn width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER_WIDTH
}

/// What one row shows.
struct Entry<'a> {
    name: &'a str,
    comparison: Option<&'a Comparison>,
    /// Text in place of an effect, if there is none to show.
    instead: Option<String>,
    /// The effect in a sentence.
    about: String,
}

/// The effects of all conditions.
pub(super) fn figure(page: &Page<'_>) -> Markup {
    let analysis = page.analysis;
    let others = page.conditions().filter(|name| *name != analysis.baseline);
    let entry = |name| {
        let described = analysis.condition(name);
        Entry {
            name,
            comparison: analysis.primary(name),
            instead: described.and_then(|c| instead_of_effect(analysis, c)),
            about: sentence(analysis, name),
        }
    };
    let floor = analysis.noise_floor.get(&analysis.primary_metric);
    let metric = format::metric_name(&analysis.primary_metric);
    let title = format!("Change of {metric} against {}", analysis.baseline);
    plot(page, &title, &others.map(entry).collect::<Vec<_>>(), floor)
}

/// The effects of factors on the primary metric that the table shows, in its order.
pub(super) fn effects(page: &Page<'_>, screened: &ScreeningResult) -> Markup {
    let shown = screened.effects.iter().filter(|e| is_shown(e));
    let primary = shown.map(|e| &e.comparison).filter(|c| c.primary);
    let metric = format::metric_name(&page.analysis.primary_metric);
    let title = format!("Change of {metric}, high against low");
    plot(page, &title, &primary.map(of_effect).collect::<Vec<_>>(), None)
}

fn of_effect(c: &Comparison) -> Entry<'_> {
    let about = format!("{}: {}.", c.condition, effect(c).text);
    Entry { name: &c.condition, comparison: Some(c), instead: None, about }
}

fn plot(page: &Page<'_>, title: &str, entries: &[Entry<'_>], floor: Option<&NoiseFloor>) -> Markup {
    let scale = scale(page, entries, floor);
    let rows = rows(entries, scale);
    if rows.is_empty() {
        return html! {};
    }
    let height: f64 = rows.iter().map(Row::height).sum();
    let about: Vec<&str> = entries.iter().map(|entry| entry.about.as_str()).collect();
    let body = html! {
        (band(floor, scale, height))
        (margin_lines(page, scale, height))
        g.grid { @for (ratio, label) in ticks(scale) {
            @let x = percent(scale.at(ratio));
            line.zero[ratio == 1.0] x1=(x) x2=(x) y1="0" y2=(px(height)) {}
            text.tick x=(x) y=(px(height + 18.0)) text-anchor="middle" { (label) }
        } }
        @for row in &rows { (draw(row, page, scale)) }
    };
    let (left, right) = directions(page.analysis);
    html! {
        figure.chart #forest {
            figcaption { (title) ", with 95 % intervals" }
            div.plot.forest {
                (picture("forest-plot", title, &about.join(" "), height + 24.0, &body))
                p.ends aria-hidden="true" { span { "← " (left) } span { (right) " →" } }
            }
            @if let Some(text) = floor_text(page, floor) {
                p.note { span.floor-key aria-hidden="true" {} (text) }
            }
            @if let Some(share) = page.analysis.margin {
                p.note { span.margin-key aria-hidden="true" {} "Dashed: the margin of "
                    (margin::share(share)) ". An effect matters beyond it." }
            }
        }
    }
}

fn rows<'a>(entries: &[Entry<'a>], scale: Scale) -> Vec<Row<'a>> {
    let mut top = 0.0;
    entries
        .iter()
        .map(|entry| {
            let none = || Label::plain("not compared".to_owned());
            let own = || entry.comparison.map_or_else(none, effect);
            let label = entry.instead.clone().map_or_else(own, Label::plain);
            let estimate_and_bounds = entry.comparison.and_then(estimate_and_bounds);
            let row = Row {
                name: entry.name,
                beside: estimate_and_bounds
                    .map_or(BELOW_INTERVAL, |(_, l, h)| beside(label.width(), l, h, scale)),
                label,
                verdict: entry.comparison.map_or(Verdict::NotApplicable, |c| c.verdict),
                estimate_and_bounds,
                top,
            };
            top += row.height();
            row
        })
        .collect()
}

fn estimate_and_bounds(c: &Comparison) -> Option<(f64, f64, f64)> {
    Some((c.ratio?, c.interval.low?, c.interval.high?))
        .filter(|(ratio, low, _)| *ratio > 0.0 && *low > 0.0)
}

/// The position of a text without an interval.
const BELOW_INTERVAL: LabelPlacement = LabelPlacement { left: false, room: Room::OnAPhone };

/// `width` is the label's.
fn beside(width: f64, low: f64, high: f64, scale: Scale) -> LabelPlacement {
    let wanted = width + 16.0;
    let (before, after) = (scale.at(low), 1.0 - scale.at(high));
    // Away from the line of no change, if there is room.
    let on_a_phone = |part: f64| part * MIN_WIDTH >= wanted;
    let left = if on_a_phone(before) { true } else { !on_a_phone(after) && before > after };
    let room = match before.max(after) {
        part if on_a_phone(part) => Room::OnAPhone,
        part if part * MIN_WIDE_WIDTH >= wanted => Room::OnAWideScreen,
        _ => Room::Nowhere,
    };
    LabelPlacement { left, room }
}

/// `−53.5 % [−55.3, −51.6] slower`
fn effect(c: &Comparison) -> Label {
    let verdict = word(c.verdict);
    let Some(ratio) = c.ratio else {
        return Label::plain(format!("{} {verdict}", format::NONE));
    };
    let change = format::change_as_known(ratio, c.interval, c.bound);
    match change.interval {
        Some(_) => Label::in_parts(change.to_string(), verdict),
        None => Label::plain(format!("{change} {verdict}")),
    }
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

fn scale(page: &Page<'_>, entries: &[Entry<'_>], floor: Option<&NoiseFloor>) -> Scale {
    let compared = entries.iter().filter_map(|entry| entry.comparison);
    let intervals = compared.filter_map(estimate_and_bounds).flat_map(|(r, l, h)| [r, l, h]);
    let margins = margins(page.analysis);
    let floors = floor.iter().flat_map(|f| [f.interval.low, f.interval.high]).flatten();
    let (mut low, mut high) = (0.99, 1.01);
    for ratio in intervals.chain(floors).chain(margins).filter(|r| *r > 0.0) {
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

fn band(floor: Option<&NoiseFloor>, scale: Scale, height: f64) -> Markup {
    let bounds = floor.and_then(|f| Some((f.interval.low?, f.interval.high?)));
    html! { @if let Some((low, high)) = bounds {
        @let (from, to) = (scale.at(low), scale.at(high));
        rect.floor x=(percent(from)) width=(percent(to - from)) y="0" height=(px(height)) {}
    } }
}

/// The ratios at the borders of the margin, if there is one.
fn margins(analysis: &Analysis) -> impl Iterator<Item = f64> {
    analysis.margin.into_iter().flat_map(|share| [1.0 - share, 1.0 + share])
}

fn margin_lines(page: &Page<'_>, scale: Scale, height: f64) -> Markup {
    html! { @for ratio in margins(page.analysis) {
        @let x = percent(scale.at(ratio));
        line.margin x1=(x) x2=(x) y1="0" y2=(px(height)) {}
    } }
}

fn draw(row: &Row<'_>, page: &Page<'_>, scale: Scale) -> Markup {
    let look = page.looks.get(row.name);
    let y = row.top + INTERVAL_AT;
    let state = if row.verdict.is_decided() { "decided" } else { "open" };
    html! {
        text.name x="0" y=(px(row.top + NAME_AT)) { (clipped(row.name, MAX_NAME_CHARACTERS)) }
        @if let Some((ratio, low, high)) = row.estimate_and_bounds {
            @let (from, to) = (percent(scale.at(low)), percent(scale.at(high)));
            g class={ "interval c" (look.color) " " (state) } {
                line x1=(from) x2=(to) y1=(px(y)) y2=(px(y)) {}
                line x1=(from) x2=(from) y1=(px(y - 5.0)) y2=(px(y + 5.0)) {}
                line x1=(to) x2=(to) y1=(px(y - 5.0)) y2=(px(y + 5.0)) {}
            }
            (look.mark(scale.at(ratio), y, &row.label.text))
            @let (beside, elsewhere) = match row.beside.room {
                Room::OnAPhone => (Some("effect"), None),
                Room::OnAWideScreen => (Some("effect wide"), Some("effect narrow")),
                Room::Nowhere => (None, Some("effect")),
            };
            @if let Some(class) = beside {
                @if row.beside.left {
                    text class=(class) x=(from) dx="-10" y=(px(y)) dy="0.35em" text-anchor="end" { (row.label.text) }
                } @else {
                    text class=(class) x=(to) dx="10" y=(px(y)) dy="0.35em" { (row.label.text) }
                }
            }
            @if let Some(class) = elsewhere {
                @if row.is_one_line() {
                    text class=(class) x="100%" y=(px(row.top + NAME_AT)) text-anchor="end" { (row.label.text) }
                } @else {
                    @for (n, line) in row.label.lines().iter().enumerate() {
                        text class=(class) x="0" y=(px(row.top + BELOW_AT + n as f64 * LINE_HEIGHT)) { (line) }
                    }
                }
            }
        } @else {
            @for (n, line) in row.label.lines().iter().enumerate() {
                text.effect x="0" y=(px(y + n as f64 * LINE_HEIGHT)) dy="0.35em" { (line) }
            }
        }
    }
}

fn floor_text(page: &Page<'_>, floor: Option<&NoiseFloor>) -> Option<String> {
    let floor = floor?;
    let aa = page.analysis.aa.as_ref()?;
    let interval = format::interval(floor.interval)?;
    Some(format!(
        "Shaded: the noise floor. {aa} is {} measured twice, and its effect is {interval}\u{a0}%: \
         effects inside may be noise.",
        page.analysis.baseline
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

    #[test]
    fn a_long_effect_takes_two_lines_where_it_would_be_cut() {
        let label = |verdict| Label::in_parts("−53.5 % [−55.3, −51.6]".to_owned(), verdict);
        let long = label("undecided: 4 of 6 blocks valid");
        assert_eq!(long.lines(), ["−53.5 % [−55.3, −51.6]", "undecided: 4 of 6 blocks valid"]);
        assert!(long.lines().iter().all(|line| width(line) <= MIN_WIDTH));
        assert_eq!(label("slower").lines(), ["−53.5 % [−55.3, −51.6] slower"]);
        let row = |label: &Label, room| Row {
            name: "on",
            label: label.clone(),
            verdict: Verdict::NoDifference,
            estimate_and_bounds: Some((0.5, 0.4, 0.6)),
            beside: LabelPlacement { left: true, room },
            top: 0.0,
        };
        assert_eq!(row(&long, Room::Nowhere).height(), 86.0);
        assert_eq!(row(&long, Room::OnAPhone).height(), 50.0);
        // Name and effect side by side, or the effect below.
        assert_eq!(row(&label("slower"), Room::Nowhere).height(), 50.0);
    }

    #[test]
    fn the_effect_label_is_placed_beside_the_interval_if_it_fits() {
        let scale = Scale::logarithmic(0.1, 1.1);
        let place = |low, high| {
            let b = beside(width("−53.5 % [−55.3, −51.6] slower"), low, high, scale);
            (b.left, b.room)
        };
        assert_eq!(place(0.9, 0.95), (true, Room::OnAPhone));
        assert_eq!(place(0.11, 0.12), (false, Room::OnAPhone));
        assert_eq!(place(0.4, 0.5), (true, Room::OnAWideScreen));
        assert_eq!(place(0.15, 0.35), (false, Room::OnAWideScreen));
        assert_eq!(place(0.12, 0.95), (true, Room::Nowhere));
    }
}
