//! Results of `pgio device` as a document: each test's median and spread, and for two places the
//! ratio with its interval, worded like an experiment's table.

use super::format::{self, NONE, NOT_DECIDED};
use super::statement::effect;
use super::table::{Column, Document, Table, columns};
use pgio_results::latency::{Class, Statistic};
use pgio_results::metrics::{definition, latency_name};
use pgio_results::model::{DeviceRecord, DeviceTest};
use pgio_results::units::human;
use pgio_verdict::Verdict;
use pgio_verdict::device::{Described, TestResult};

const MEAN: &str = latency_name(Class::Device, Statistic::Mean);
const PERCENTILES: [&str; 3] = [
    latency_name(Class::Device, Statistic::P50),
    latency_name(Class::Device, Statistic::P95),
    latency_name(Class::Device, Statistic::P99),
];

pub fn document(record: &DeviceRecord, results: &[TestResult]) -> Document {
    let region = human::bytes(record.region_bytes);
    let rounds = format::counted(record.rounds as usize, "round");
    let what = match record.places.as_slice() {
        [place, baseline] => {
            format!("{}, compared with {} (95 % intervals)", place.name, baseline.name)
        }
        places => places.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", "),
    };
    let mut tables = vec![match record.places.len() {
        2 => two(record, results),
        _ => one(results),
    }];
    if record.places.len() == 2 {
        tables.push(latencies(record, results));
    }
    Document {
        title: what,
        subtitle: format!("{rounds}, direct I/O in {region}, {}", record.fio),
        tables,
        ..Document::default()
    }
}

fn one(results: &[TestResult]) -> Table {
    let row = |r: &TestResult| {
        let found = r.places.first().cloned().unwrap_or_default();
        let mean = found.medians.get(MEAN).copied();
        vec![
            title(&r.test),
            median(&found, &r.test),
            spread(&found).unwrap_or_else(|| NONE.to_owned()),
            mean.map_or_else(|| NONE.to_owned(), format::seconds),
            percentiles(&found),
        ]
    };
    Table {
        columns: columns("test | > median | > spread | > mean latency | > p50 / p95 / p99"),
        rows: results.iter().map(row).collect(),
        notes: explained(results),
        ..Table::default()
    }
}

const SPREAD: &str =
    "Medians of the rounds; the spread is the largest distance of a round from it.";

/// The baseline first, as in an experiment's table.
fn two(record: &DeviceRecord, results: &[TestResult]) -> Table {
    let name = |place: usize| record.places[place].name.as_str();
    let with_spread = |r: &TestResult, place: usize| {
        let found = &r.places[place];
        match spread(found) {
            Some(spread) => format!("{} {spread}", median(found, &r.test)),
            None => median(found, &r.test),
        }
    };
    let row = |r: &TestResult| {
        let c = r.comparison.as_ref();
        vec![
            title(&r.test),
            with_spread(r, 1),
            with_spread(r, 0),
            c.map_or_else(|| NONE.to_owned(), |c| effect(c, false)),
            c.and_then(|c| c.ratio).map_or_else(|| NONE.to_owned(), |r| format!("{r:.3}")),
        ]
    };
    Table {
        columns: vec![
            Column::left("test"),
            Column::right(name(1)),
            Column::right(name(0)),
            Column::left("effect [95 %]"),
            Column::right("ratio"),
        ],
        rows: results.iter().map(row).collect(),
        notes: notes(results),
        ..Table::default()
    }
}

fn notes(results: &[TestResult]) -> Vec<String> {
    let compared = || results.iter().filter_map(|r| Some((&r.test, r.comparison.as_ref()?)));
    let mut notes = explained(results);
    if compared().any(|(_, c)| !c.verdict.is_decided()) {
        notes.push(NOT_DECIDED.to_owned());
    }
    if compared().any(|(_, c)| c.verdict == Verdict::TooFewBlocks) {
        notes.push("Fewer than 6 rounds cannot decide at 95 %: use --rounds 6 or more.".to_owned());
    }
    if results.len() > 1 {
        let tests = format::counted(results.len(), "test");
        notes.push(format!("Each interval is for its test alone, not adjusted for {tests}."));
    }
    for (test, c) in compared().filter(|(_, c)| c.verdict != Verdict::TooFewBlocks) {
        notes.extend(c.warnings.iter().map(|w| format!("{}: {w}.", title(test))));
    }
    notes
}

fn latencies(record: &DeviceRecord, results: &[TestResult]) -> Table {
    let row =
        |r: &TestResult| vec![title(&r.test), percentiles(&r.places[1]), percentiles(&r.places[0])];
    Table {
        title: "Latency p50 / p95 / p99 (medians of the rounds)".to_owned(),
        columns: vec![
            Column::left("test"),
            Column::right(&record.places[1].name),
            Column::right(&record.places[0].name),
        ],
        rows: results.iter().map(row).collect(),
        ..Table::default()
    }
}

/// `throughput, 1 MiB writes`, `random reads, depth 32`
fn title(test: &DeviceTest) -> String {
    match test.kind.as_str() {
        "random_read" => format!("random reads, depth {}", test.depth),
        "random_write" => format!("random writes, depth {}", test.depth),
        kind => format!("{kind}, {} writes", human::bytes(test.block_bytes)),
    }
}

fn explained(results: &[TestResult]) -> Vec<String> {
    let mut notes = vec![SPREAD.to_owned()];
    let random = results.iter().find(|r| r.test.kind.starts_with("random"));
    notes.extend(random.map(|r| {
        let block = human::bytes(r.test.block_bytes);
        format!("Random I/O uses {block} requests; the depth is the number in flight.")
    }));
    notes
}

fn median(found: &Described, test: &DeviceTest) -> String {
    let unit = definition(&test.metric).map_or("", |def| def.unit);
    match found.median {
        // The headings name places, so every cell shows the unit, which must be short.
        Some(value) if unit == "operations/s" => human::rate(value),
        Some(value) => format::quantity(value, unit),
        None => NONE.to_owned(),
    }
}

/// `±2.1 %`
fn spread(found: &Described) -> Option<String> {
    let (median, low, high) = (found.median?, found.lowest?, found.highest?);
    let farthest = (high - median).max(median - low) / median;
    (found.runs > 1 && farthest.is_finite()).then(|| format!("±{}", format::size(farthest)))
}

fn percentiles(found: &Described) -> String {
    let values = PERCENTILES.map(|name| found.medians.get(name).copied());
    let Some(largest) = values.iter().flatten().copied().reduce(f64::max) else {
        return NONE.to_owned();
    };
    let (factor, unit) = format::time_unit(largest);
    let shown = values.map(|v| v.map_or_else(|| NONE.to_owned(), |v| format::number(v * factor)));
    format!("{} {unit}", shown.join(" / "))
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;
    use pgio_results::test_support::device_record;
    use pgio_verdict::device::results;

    fn rendered(record: &DeviceRecord) -> String {
        text::render(&document(record, &results(record)))
    }

    #[test]
    fn a_device_report_compares_two_places() {
        insta::assert_snapshot!(rendered(&device_record(6, 0.9)));
    }

    #[test]
    fn a_device_report_of_too_few_rounds_is_undecided() {
        insta::assert_snapshot!(rendered(&device_record(5, 0.9)));
    }

    #[test]
    fn a_device_report_of_one_place_has_no_comparison() {
        let mut record = device_record(5, 1.0);
        record.places.truncate(1);
        record.runs.retain(|r| r.place == 0);
        insta::assert_snapshot!(rendered(&record));
    }
}
