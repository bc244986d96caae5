//! Tables that explain an effect: where the time of an operation went, which reads reached the device, the writes of a
//! replicated device on both sides, and the standbys.
//!
//! A table without samples is omitted. Numbers and attribution come from `pgio_verdict::waits` and
//! `pgio_verdict::reconcile`; this file words them.

use super::format::{self, NONE};
use super::table::{Column, Table, columns};
use pgio_results::units::human;
use pgio_results::waits::{GROUPS, WaitGroup};
use pgio_verdict::Analysis;
use pgio_verdict::reconcile::Reconciliation;
use pgio_verdict::replica::Replica;
use pgio_verdict::standbys::StandbyUse;
use pgio_verdict::waits::{Decomposition, DecompositionDifference, Part, PartDifference};

/// A kind of wait has a column if it takes at least this share of any operation.
const SHOWN_SHARE: f64 = 0.005;

/// A sentence names a part that makes up at least this share of the difference.
const NAMED_SHARE_OF_DIFFERENCE: f64 = 0.1;

pub(super) fn tables(analysis: &Analysis) -> Vec<Table> {
    let tables = [where_the_time_went, reads, replicas, standbys];
    tables.into_iter().filter_map(|table| table(analysis)).collect()
}

pub(super) fn where_the_time_went(analysis: &Analysis) -> Option<Table> {
    time_table(analysis, |d| is_decided(d) || is_commit(d))
}

/// The same without the decided differences, for a place that lists them.
pub(super) fn undecided_time(analysis: &Analysis) -> Option<Table> {
    time_table(analysis, |d| !is_decided(d) && is_commit(d))
}

/// `is_noted` picks the differences that have a sentence below the table.
fn time_table(
    analysis: &Analysis,
    is_noted: impl Fn(&DecompositionDifference) -> bool,
) -> Option<Table> {
    let all = &analysis.decompositions;
    if all.is_empty() {
        return None;
    }
    let part = |d: &Decomposition, group: WaitGroup| -> Option<Part> {
        d.parts.iter().find(|p| p.group == group).copied()
    };
    let is_shown = |group: &WaitGroup| {
        all.iter().any(|d| part(d, *group).is_some_and(|p| p.share >= SHOWN_SHARE))
    };
    let groups: Vec<WaitGroup> = GROUPS.iter().copied().filter(is_shown).collect();
    let mut columns = columns("condition | operation | > mean");
    columns.extend(groups.iter().map(|g| Column::right(g.title())));
    let row = |d: &Decomposition| {
        let mut cells = vec![d.condition.clone(), d.class.clone(), format::seconds(d.mean_seconds)];
        cells.extend(
            groups.iter().map(|g| part(d, *g).map_or_else(|| NONE.to_owned(), |p| share(d, &p))),
        );
        cells
    };
    let mut notes: Vec<String> = shown_differences(analysis)
        .filter(|d| is_noted(d))
        .map(|d| difference(analysis, d))
        .collect();
    notes.push(
        "Shares of the mean, sampled; ± is half of the 95 % interval. docs/METHODOLOGY.md has the \
         rule that assigns waits to operations."
            .to_owned(),
    );
    Some(Table {
        title: "Where the time went".to_owned(),
        columns,
        rows: all.iter().map(row).collect(),
        notes,
    })
}

/// The differences to show: without the A/A twin, and without transactions if the commits are shown,
/// because a transaction consists mostly of its commit.
pub(super) fn shown_differences(
    analysis: &Analysis,
) -> impl Iterator<Item = &DecompositionDifference> {
    let all = &analysis.decomposition_differences;
    let has_commits = |name: &str| all.iter().any(|d| d.class == "commit" && d.condition == name);
    all.iter()
        .filter(|d| !analysis.is_aa(&d.condition))
        .filter(move |d| d.class != "transaction" || !has_commits(&d.condition))
}

/// Whether the interval excludes zero.
pub(super) fn is_decided(d: &DecompositionDifference) -> bool {
    d.interval.excludes(0.0)
}

/// Commits are always shown, because replication affects them most.
fn is_commit(d: &DecompositionDifference) -> bool {
    matches!(d.class.as_str(), "commit" | "transaction")
}

/// `55 ± 3 %`
fn share(d: &Decomposition, part: &Part) -> String {
    if d.mean_seconds <= 0.0 {
        return NONE.to_owned();
    }
    // One decimal if whole per cents would hide the error.
    let decimals = usize::from(part.share_error < 0.01);
    format!("{:.decimals$} ± {:.decimals$} %", part.share * 100.0, part.share_error * 100.0)
}

/// The time that a condition adds to an operation, and the waits that make it up.
pub(super) fn difference(analysis: &Analysis, d: &DecompositionDifference) -> String {
    let mut text = format!(
        "{}: {} per {} against {}",
        d.condition,
        with_reach(d.seconds, d.interval.high, true),
        d.class,
        analysis.baseline
    );
    if is_decided(d) {
        let parts: Vec<String> = largest_parts(d).into_iter().map(part).collect();
        text += &format!(", of which {}", parts.join(", "));
    } else if d.interval.low.is_some() {
        text += ", not distinguishable from zero";
    } else {
        text += &format!(", in {} only", format::counted(d.blocks, "block"));
    }
    // At least nothing is no news.
    match d.predicted.as_ref().filter(|p| !(p.at_least && p.seconds == 0.0)) {
        Some(p) if p.at_least => {
            text += &format!(
                "; from first principles at least {}{} ({})",
                format::signed_seconds(p.seconds),
                format::plus_minus(p.error),
                p.from
            );
        }
        Some(p) => {
            text += &format!(
                "; from first principles {}{} ({})",
                format::signed_seconds(p.seconds),
                format::plus_minus(p.error),
                p.from
            );
        }
        None => {}
    }
    text + "."
}

/// The largest parts of the difference, in descending order.
fn largest_parts(d: &DecompositionDifference) -> Vec<&PartDifference> {
    let mut parts: Vec<&PartDifference> = d
        .parts
        .iter()
        .filter(|p| {
            p.seconds.abs() >= NAMED_SHARE_OF_DIFFERENCE * d.seconds.abs() && p.seconds != 0.0
        })
        .collect();
    parts.sort_by(|a, b| b.seconds.abs().total_cmp(&a.seconds.abs()));
    parts
}

fn part(p: &PartDifference) -> String {
    format!("{} {}", p.group.title(), with_reach(p.seconds, p.interval.high, false))
}

/// `1.02 ± 0.05 ms`, if an interval is known.
fn with_reach(estimate: f64, high: Option<f64>, plus: bool) -> String {
    let text = match high {
        Some(high) => format::seconds_with_error(estimate, high - estimate),
        None => format::seconds(estimate),
    };
    if plus && estimate >= 0.0 { format!("+{text}") } else { text }
}

pub(super) fn reads(analysis: &Analysis) -> Option<Table> {
    let all = &analysis.reconciliation;
    let shown = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), format::number);
    let row = |r: &Reconciliation| {
        vec![
            r.condition.clone(),
            format::number(r.reads.buffer_misses),
            shown(r.reads.page_cache_reads),
            shown(r.reads.device_reads),
            shown(r.reads.device_read_blocks),
        ]
    };
    let table = Table {
        title: "Reads: requested from the system, read from the device".to_owned(),
        columns: columns(
            "condition | > buffer misses/s | > from the page cache/s | > device reads/s | > device blocks of 8 kB/s",
        ),
        rows: all.iter().map(row).collect(),
        notes: all.iter().map(|r| format!("{}: {}.", r.condition, r.sentence)).collect(),
    };
    (!all.is_empty()).then_some(table)
}

/// The title of [`replicas`] in every format.
pub(super) const REPLICAS_TITLE: &str = "Primary and secondary: writes of DRBD's disks";

/// `425 / 431 (+1.4 %)` in each cell: the primary's disk, the secondary's.
pub(super) fn replicas(analysis: &Analysis) -> Option<Table> {
    let all = &analysis.replicas;
    let row = |r: &Replica| {
        let (ours, theirs) = (&r.primary, &r.secondary);
        vec![
            r.condition.clone(),
            format!("{}: {} / {}: {}", ours.host, ours.device, theirs.host, theirs.device),
            side_by_side(Some(ours.writes), Some(theirs.writes)),
            side_by_side(Some(ours.merged_writes), Some(theirs.merged_writes)),
            side_by_side(Some(ours.sectors_written), Some(theirs.sectors_written)),
            side_by_side(ours.flushes, theirs.flushes),
        ]
    };
    let table = Table {
        title: REPLICAS_TITLE.to_owned(),
        columns: columns("condition | disks | > writes/s | > merged/s | > sectors/s | > flushes/s"),
        rows: all.iter().map(row).collect(),
        notes: vec![
            "A sector is 512 bytes; merged writes were combined with others before they reached the disk."
                .to_owned(),
        ],
    };
    (!all.is_empty()).then_some(table)
}

fn side_by_side(ours: Option<f64>, theirs: Option<f64>) -> String {
    let shown = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), format::number);
    let change = match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours > 0.0 && theirs > 0.0 => {
            format!("\n({})", format::change(theirs / ours))
        }
        _ => String::new(),
    };
    format!("{} / {}{change}", shown(ours), shown(theirs))
}

/// How far each standby was behind, by how much it is delayed, and the use of its disk.
pub(super) fn standbys(analysis: &Analysis) -> Option<Table> {
    let all = &analysis.standbys;
    let shown =
        |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| NONE.to_owned(), show);
    let bytes = |value: f64| human::bytes(value.max(0.0) as u64);
    let row = |s: &StandbyUse| {
        let from = s.from.as_ref().map_or(String::new(), |from| format!("\nfrom {from}"));
        let delay = s.apply_delay_seconds.filter(|delay| *delay > 0.0);
        let delay = delay.map_or(String::new(), |d| format!("\ndelay {}", format::seconds(d)));
        vec![
            s.condition.clone(),
            format!("{}{from}{delay}", s.name),
            s.sync_state.clone(),
            format!("{} / {}", shown(s.mean_bytes_behind, bytes), shown(s.max_bytes_behind, bytes)),
            shown(s.flush_seconds, format::seconds),
            shown(s.replay_seconds, format::seconds),
            s.device.clone().unwrap_or_else(|| NONE.to_owned()),
            shown(s.written_bytes_per_second, human::byte_rate),
            shown(s.flushes_per_second, format::number),
            shown(s.utilisation, |share| format!("{:.0} %", share * 100.0)),
        ]
    };
    let table = Table {
        title: "Standbys".to_owned(),
        columns: columns(
            "condition | standby | state | > behind (mean / max) | > flush lag | > replay lag | disk | > written | > flushes/s | > busy",
        ),
        rows: all.iter().map(row).collect(),
        notes: vec![
            "Behind: WAL that the server it streams from has and it has not replayed. The disk's \
             figures include everything else on that disk."
                .to_owned(),
        ],
    };
    (!all.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::demo;

    #[test]
    fn a_standby_shows_its_place_its_delay_and_its_disk() {
        let mut analysis = analyze(&demo());
        assert_eq!(standbys(&analysis), None, "no standby");
        analysis.standbys = vec![StandbyUse {
            condition: "any".to_owned(),
            name: "b".to_owned(),
            from: Some("a".to_owned()),
            sync_state: "async".to_owned(),
            apply_delay_seconds: Some(5.0),
            max_bytes_behind: Some(8192.0),
            device: Some("vdc".to_owned()),
            utilisation: Some(0.25),
            ..StandbyUse::default()
        }];
        let table = standbys(&analysis).unwrap();
        let row: Vec<&str> = table.rows[0].iter().map(String::as_str).collect();
        assert_eq!(row.len(), table.columns.len());
        assert_eq!(row[1], "b\nfrom a\ndelay 5.00 s");
        assert!(row[3].starts_with(NONE) && row[3].contains('8'), "{row:?}");
        assert_eq!((row[6], row[9]), ("vdc", "25 %"));
    }
}
