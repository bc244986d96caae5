//! The part of a single trial's report after the classic lines: rates, latencies by class, WAL, and
//! warnings.
//!
//! Everything comes from the stored trial. A single trial does not show how much its numbers vary from
//! trial to trial; use `compare` for that.

use super::format::{self, NONE};
use super::table::{Column, Document, Label, Remark, Table};
use super::text;
use pgio_results::histogram::{Histogram, MIN_QUANTILE_NS, Reading};
use pgio_results::latency::Statistic;
use pgio_results::latency::{MIN_BEYOND, min_operations};
use pgio_results::units::human;
use pgio_results::{CheckVerdict, Outcome, Trial};

/// Widest label of the plain lines, with the gap after it.
const LABEL: usize = 16;

/// The text after the classic lines.
pub fn render(trial: &Trial) -> String {
    let mut lines = String::new();
    for (label, value) in facts(trial) {
        lines += &format!("{label:<LABEL$}{value}\n");
    }
    let document =
        Document { tables: latencies(trial), remarks: remarks(trial), ..Document::default() };
    let rest = text::render(&document);
    let lines = printable::lines(&lines);
    if rest.is_empty() { lines.into_owned() } else { format!("{lines}\n{rest}") }
}

fn facts(trial: &Trial) -> Vec<(&'static str, String)> {
    let metric =
        |name: &str| trial.metrics.get(name).filter(|m| m.value.is_some()).map(format::metric);
    let count = |name: &str| trial.metrics.get(name).and_then(|m| m.value).map(format::number);
    let mut facts = Vec::new();
    match &trial.outcome {
        Outcome::Complete => {}
        Outcome::Failed { error } => facts.push(("FAILED", error.clone())),
        Outcome::Interrupted => {
            facts.push(("INTERRUPTED", "only data until the interruption".into()));
        }
    }
    for (label, name) in [
        ("block visits", "block_visits_per_second"),
        ("updates", "updates_per_second"),
        ("commits", "commits_per_second"),
    ] {
        facts.extend(metric(name).map(|value| (label, value)));
    }
    facts.extend(metric("wal_bytes_per_second").map(|rate| {
        let per_commit = metric("wal_bytes_per_commit").map(|b| format!(", {b} per commit"));
        let share = trial.metrics.get("wal_fpi_share").and_then(|m| m.value);
        let share =
            share.map_or_else(String::new, |s| format!(" (at most {:.0} % of it)", s * 100.0));
        let images =
            count("wal_full_page_images").map(|n| format!(", {n} full-page images{share}"));
        ("WAL", format!("{rate}{}{}", per_commit.unwrap_or_default(), images.unwrap_or_default()))
    }));
    facts.extend(count("checkpoints").map(|n| ("checkpoints", format!("{n} inside the window"))));
    facts.extend(mix(trial).map(|mix| ("mix", mix)));
    facts.extend(beyond(trial));
    facts.extend(count("deadlocks").map(|n| ("deadlocks", format!("{n} rolled back"))));
    facts.extend(trial.dataset.as_ref().map(|d| {
        let (before, after) = (human::bytes(d.bytes_before), human::bytes(d.bytes_after));
        let used = d.bytes_used.map_or_else(String::new, |n| format!(", {} used", human::bytes(n)));
        ("data size", format!("{before} before, {after} after{used}"))
    }));
    let layout = trial.dataset.as_ref().map(|d| d.layout);
    facts.extend(layout.filter(|l| !l.is_default()).map(|l| ("rows", l.to_string())));
    facts
}

/// The requested mix and the measured one.
fn mix(trial: &Trial) -> Option<String> {
    let asked = trial.workload.keys.get("update_pct").map(|v| format!("{v} % updates requested"));
    let measured = trial.metrics.get("update_pct_measured").and_then(|m| m.value);
    let measured = measured.map(|v| format!("{v:.2} % measured"));
    match (asked, measured) {
        (Some(asked), Some(measured)) => Some(format!("{asked}, {measured}")),
        (asked, measured) => asked.or(measured),
    }
}

/// Requested and measured shares of operations other than reads and updates.
fn beyond(trial: &Trial) -> Vec<(&'static str, String)> {
    let metric = |name: &str| trial.metrics.get(name).and_then(|m| m.value);
    let key = |name: &str| trial.workload.keys.get(name).and_then(serde_json::Value::as_f64);
    let shown = |name: &str| trial.metrics.get(name).map(format::metric).unwrap_or_default();
    let shares = [
        ("scans", key("scan_pct"), "scan_pct_measured"),
        ("inserts", key("insert_pct"), "insert_pct_measured"),
        ("deletes", key("delete_pct"), "delete_pct_measured"),
        ("hot visits", metric("hot_pct_asked"), "hot_pct_measured"),
        ("hot table", key("hot_table_pct"), "hot_table_pct_measured"),
        ("pauses", key("think_pct"), "think_pct_measured"),
    ];
    let both = |(label, asked, measured): (&'static str, Option<f64>, &str)| {
        let (asked, found) = (asked?, metric(measured)?);
        let asked = (asked * 1000.0).round() / 1000.0;
        Some((label, format!("{asked} % requested, {found:.2} % measured")))
    };
    let mut lines: Vec<_> = shares.into_iter().filter_map(both).collect();
    for (label, text) in &mut lines {
        match *label {
            "scans" => *text += &format!(", {} scanned", shown("blocks_scanned_per_second")),
            "pauses" => {
                let share = 100.0 * metric("think_share").unwrap_or(0.0);
                let text_of = |name: &str| trial.workload.keys.get(name).and_then(|v| v.as_str());
                let [shortest, longest] = ["think_min", "think_max"].map(text_of);
                *text += &format!(
                    ", {} each ({} to {} requested), {share:.1} % of the time",
                    shown("think_time_mean"),
                    shortest.unwrap_or_default(),
                    longest.unwrap_or_default(),
                );
            }
            _ => {}
        }
    }
    let width = trial.workload.keys.get("update_width");
    lines.extend(width.map(|width| {
        (
            "update width",
            format!("{width} bytes, {} of WAL per update", shown("wal_bytes_per_update")),
        )
    }));
    lines
}

fn latencies(trial: &Trial) -> Vec<Table> {
    let classes: Vec<(&str, &Histogram)> =
        ["read", "update", "scan", "insert", "delete", "commit", "lag"]
            .iter()
            .filter_map(|class| Some((*class, trial.histograms.get(*class)?)))
            .filter(|(_, h)| h.total_count() > 0)
            .collect();
    if classes.is_empty() {
        return Vec::new();
    }
    let mut columns = vec![Column::left("latency")];
    columns.extend(["calls", "mean", "p50", "p95", "p99", "p99.9", "max"].map(Column::right));
    let is_coarse = |h: &Histogram| h.quantile(0.5).is_none_or(|r| r.ns < MIN_QUANTILE_NS);
    let coarse = classes.iter().any(|(_, h)| is_coarse(h));
    let cut_off: u64 = classes.iter().map(|(_, h)| h.censored_count()).sum();
    let why = format!(
        "{NONE}: the server's clock has steps of 1 µs, so a percentile under {} is meaningless; \
         see the mean.",
        human::latency(MIN_QUANTILE_NS)
    );
    let bounds = format!(
        "≥: the window's end cut off calls that were due and not answered ({}); \
         their waiting time until then counts, so this is a lower bound.",
        human::count(cut_off)
    );
    let rows: Vec<Vec<String>> = classes.iter().map(|(class, h)| latency_row(class, h)).collect();
    let marked = classes.iter().flat_map(|(_, h)| readings(h)).flatten().any(|r| r.at_least);
    let percentiles = || Statistic::PERCENTILES.into_iter().filter_map(Statistic::quantile);
    let few = classes.iter().any(|(_, h)| percentiles().any(|q| is_of_few(h, q)));
    let few = few.then(|| {
        format!(
            "{NONE}: fewer than {MIN_BEYOND} calls are beyond this percentile; use a longer window."
        )
    });
    let notes = [coarse.then_some(why), few, marked.then_some(bounds)];
    vec![Table {
        title: String::new(),
        columns,
        rows,
        notes: notes.into_iter().flatten().collect(),
    }]
}

fn latency_row(class: &str, h: &Histogram) -> Vec<String> {
    let shown = |reading: Option<Reading>| {
        let text = |r: Reading| format::marked(human::latency(r.ns), r.at_least);
        reading.map_or_else(|| NONE.to_owned(), text)
    };
    let mut cells = vec![class.to_owned(), human::count(h.count())];
    cells.extend(readings(h).into_iter().map(shown));
    cells
}

/// Mean, percentiles and maximum.
fn readings(h: &Histogram) -> Vec<Option<Reading>> {
    let quantiles = Statistic::PERCENTILES.into_iter().filter_map(Statistic::quantile);
    let quantiles = quantiles.map(|q| quantile(h, q));
    std::iter::once(h.mean()).chain(quantiles).chain([h.max()]).collect()
}

/// A percentile, if the clock is fine enough for it and enough operations are beyond it.
fn quantile(h: &Histogram, q: f64) -> Option<Reading> {
    h.quantile(q).filter(|reading| reading.ns >= MIN_QUANTILE_NS && !is_of_few(h, q))
}

fn is_of_few(h: &Histogram, q: f64) -> bool {
    h.total_count() < min_operations(q)
}

fn remarks(trial: &Trial) -> Vec<Remark> {
    let failing = trial.checks.iter().filter(|c| c.verdict != CheckVerdict::Ok);
    let mut remarks: Vec<Remark> = failing
        .map(|c| Remark {
            label: c.verdict.into(),
            text: if c.remedy.is_empty() {
                format!("{}: {}", c.id, c.message)
            } else {
                format!("{}: {}; {}", c.id, c.message, c.remedy)
            },
        })
        .collect();
    remarks.extend(
        trial.warnings.iter().map(|w| Remark { label: Label::Warning, text: w.to_string() }),
    );
    remarks
}
