//! Latency by percentile: for each class of operation a line for each condition.
//!
//! From the merged histograms of the trials that count. The horizontal axis is the share of slower
//! operations on a logarithmic scale, which stretches the tail. A line begins where the server's clock
//! is fine enough for a percentile and ends where fewer than [`MIN_BEYOND`] operations are slower,
//! because beyond that it would show single operations.

use std::f64::consts::LOG10_2;

use maud::{Markup, html};

use super::super::format::{self, NONE};
use super::super::table::{Column, Table};
use super::page::{Page, Section};
use super::svg::{Axis, Scale};
use super::table;
use super::timeline::{Line, Points, Stroke, TimeLine, Zoom};
use pgio_results::histogram::{Histogram, MIN_QUANTILE_NS, Reading, center_ns};
use pgio_results::units::human;

const CLASSES: [&str; 9] =
    ["read", "update", "scan", "insert", "delete", "commit", "transaction", "delivery", "lag"];
const MIN_BEYOND: f64 = 10.0;
const HEIGHT: f64 = 260.0;
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// The trials of one condition together.
struct Merged<'a> {
    condition: &'a str,
    histogram: Histogram,
}

pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let classes: Vec<(&str, Vec<Merged<'_>>)> = CLASSES
        .iter()
        .map(|class| (*class, merged(page, class)))
        .filter(|(_, all)| !all.is_empty())
        .collect();
    let body = html! {
        p { "All operations of the trials that count, together: the merged distribution, not the \
             typical trial's percentiles that are compared above. From 90 on, each label to the right \
             looks at ten times fewer operations; lines end where fewer than " (MIN_BEYOND)
            " were slower." }
        (page.looks.legend(page.conditions()))
        div.charts { @for (class, all) in &classes { (figure(page, class, all)) } }
        @for (class, all) in &classes { (table::render(&numbers(class, all), class)) }
    };
    (!classes.is_empty()).then_some(Section { id: "latency", title: "Latency", body })
}

fn merged<'a>(page: &Page<'a>, class: &str) -> Vec<Merged<'a>> {
    let merged = |condition: &'a str| {
        let mut histogram = Histogram::default();
        for (_, trial) in page.counted(condition) {
            if let Some(one) = trial.histograms.get(class) {
                histogram.merge(one);
            }
        }
        Merged { condition, histogram }
    };
    page.conditions().map(merged).filter(|m| m.histogram.total_count() > 0).collect()
}

/// The percentile, as the negative decimal logarithm of the share above it, and the latency in seconds.
fn curve(h: &Histogram) -> Points {
    let total = h.total_count() as f64;
    let slowest = h.max().map_or(0.0, |r| r.ns);
    let mut below = 0.0;
    let mut points = Vec::new();
    for (at, n) in h.all_counts().counts().iter().enumerate() {
        let n = *n as f64;
        let beyond = total - below - n / 2.0;
        below += n;
        // The center of the last bucket may be above the maximum.
        let ns = center_ns(at + 1).min(slowest);
        if n > 0.0 && beyond >= MIN_BEYOND && ns >= MIN_QUANTILE_NS {
            points.push((-(beyond / total).log10(), Some(ns / 1e9)));
        }
    }
    points
}

fn figure(page: &Page<'_>, class: &str, all: &[Merged<'_>]) -> Markup {
    let curves: Vec<_> = all.iter().map(|m| (m.condition, curve(&m.histogram))).collect();
    let points = || curves.iter().flat_map(|(_, points)| points);
    if points().count() < 2 {
        return html! { p.note {
            "Too few " (class) " operations above "
            (human::latency(MIN_QUANTILE_NS)) " to draw their percentiles; see the table."
        } };
    }
    let slowest = points().filter_map(|p| p.1).fold(f64::MIN, f64::max);
    let fastest = points().filter_map(|p| p.1).fold(f64::MAX, f64::min);
    let out = points().map(|p| p.0).fold(0.5, f64::max);
    let y = Scale::logarithmic(fastest / 1.15, slowest * 1.15);
    let x = Scale::linear(0.0, out * 1.02);
    let named = [(0.0, "0"), (LOG10_2, "50"), (1.0, "90"), (2.0, "99"), (3.0, "99.9")];
    let named = named.into_iter().chain([(4.0, "99.99"), (5.0, "99.999"), (6.0, "99.9999")]);
    let line = |(name, points): (&str, Points)| {
        let (label, look) = (name.to_owned(), page.looks.get(name));
        Line { label, look, stroke: Stroke::Normal, points }
    };
    let chart = TimeLine {
        id: format!("latency-{class}"),
        caption: class.to_owned(),
        title: format!("Latency of {class} operations by percentile"),
        description: describe(class, all),
        height: HEIGHT,
        x: Axis {
            scale: x,
            ticks: named.filter(|(v, _)| *v <= out).map(|(v, l)| (v, l.to_owned())).collect(),
            caption: "percentile".to_owned(),
        },
        y: Axis {
            scale: y,
            ticks: y.ticks(8).into_iter().map(|v| (v, short_seconds(v))).collect(),
            ..Axis::default()
        },
        lines: curves.into_iter().map(line).collect(),
        zoom: Some(Zoom { x: "percentile", unit: "s".to_owned(), logarithmic: true }),
        ..TimeLine::default()
    };
    chart.draw()
}

/// `500 µs`, `2 ms`: ticks are round, so that no digit is needed behind the point.
fn short_seconds(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 0.999e-3 => (s * 1e6, "µs"),
        s if s < 0.999 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    format!("{} {unit}", value.round())
}

fn describe(class: &str, all: &[Merged<'_>]) -> String {
    let one = |m: &Merged<'_>| {
        let q = |q| shown(quantile(&m.histogram, q));
        format!("{}: median {}, 99th percentile {}", m.condition, q(0.5), q(0.99))
    };
    let all: Vec<String> = all.iter().map(one).collect();
    format!("A line for each condition, of the latency of {class} operations. {}.", all.join("; "))
}

fn numbers(class: &str, all: &[Merged<'_>]) -> Table {
    let mut columns = vec![Column::left(class), Column::right("operations"), Column::right("mean")];
    columns.extend(QUANTILES.map(|(name, _)| Column::right(name)));
    columns.push(Column::right("max"));
    let row = |m: &Merged<'_>| {
        let h = &m.histogram;
        let mut cells = vec![m.condition.to_owned(), human::count(h.count()), shown(h.mean())];
        cells.extend(QUANTILES.map(|(_, q)| shown(quantile(h, q))));
        cells.push(shown(h.max()));
        cells
    };
    let missing =
        all.iter().any(|m| QUANTILES.iter().any(|(_, q)| quantile(&m.histogram, *q).is_none()));
    let why = format!(
        "{NONE}: under {}, where the server's clock is too coarse for a percentile, or fewer than \
         {MIN_BEYOND} operations slower.",
        human::latency(MIN_QUANTILE_NS)
    );
    let cut_off = all.iter().any(|m| m.histogram.censored_count() > 0);
    let bounds = format!(
        "{}marks a lower bound: windows' ends cut off calls that were due and not answered. Lines \
         include the time these had waited by then.",
        format::AT_LEAST
    );
    let notes = [missing.then_some(why), cut_off.then_some(bounds)];
    Table {
        title: format!("Latency: {class}, all trials merged"),
        columns,
        rows: all.iter().map(row).collect(),
        notes: notes.into_iter().flatten().collect(),
    }
}

/// A percentile, if the clock is fine enough and enough operations are slower.
fn quantile(h: &Histogram, q: f64) -> Option<Reading> {
    let beyond = h.total_count() as f64 * (1.0 - q);
    let fit = |r: &Reading| r.ns >= MIN_QUANTILE_NS && beyond >= MIN_BEYOND * 0.999;
    h.quantile(q).filter(fit)
}

fn shown(reading: Option<Reading>) -> String {
    let text = |r: Reading| format::marked(format::seconds(r.seconds()), r.at_least);
    reading.map_or_else(|| NONE.to_owned(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_rises_and_stops_before_single_operations() {
        let mut h = Histogram::default();
        for i in 1..=10_000 {
            h.record(f64::from(i) * 1e3);
        }
        let points = curve(&h);
        assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{points:?}");
        let (out, slowest) = points.last().unwrap();
        assert!(*out <= 3.0 && slowest.unwrap() <= 0.01, "{points:?}");
        assert!(points[0].1.unwrap() >= MIN_QUANTILE_NS / 1e9);
        assert_eq!(quantile(&h, 0.9999), None);
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([2e-5, 5e-4, 2e-3, 1.0].map(short_seconds), ["20 µs", "500 µs", "2 ms", "1 s"]);
    }
}
