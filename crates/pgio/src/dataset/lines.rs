//! The lines that the original's setup prints, verbatim, and a few additional ones.
//!
//! Existing scripts depend on these lines. This module formats text, sizes included, from the server; it must not
//! measure or print. The "Waiting for batch" lines have the counts and the order of the original ([`Batches`]),
//! although pgio starts a table as soon as a stream is free instead of batch by batch.

use std::collections::VecDeque;
use std::time::Duration;

use super::error::DatasetError;
use super::mark::Part;
use crate::pg::words::Shown;
use pgio_connect::Client;
use pgio_results::units::human;

pub fn job_info(scale: &str, tables: u32) -> String {
    format!(
        "\nJob info:      Loading {scale} scale into {tables} schemas as per pgio.conf->NUM_SCHEMAS."
    )
}

pub fn batching_info(threads: u32) -> String {
    format!("Batching info: Loading {threads} schemas per batch as per pgio.conf->NUM_THREADS.")
}

pub fn base_loaded(elapsed: Duration) -> String {
    format!("Base table loading time: {} seconds.", elapsed.as_secs())
}

/// Not in the original, which has no scan table.
pub fn scan_loaded(elapsed: Duration) -> String {
    format!("Scan table loading time: {} seconds.", elapsed.as_secs())
}

/// Replaces the original's line that it uses the existing base table; pgio reads none.
pub fn base_skipped() -> String {
    "NOTICE: Skipping creation of base table as per pgio.conf->CREATE_BASE_TABLE. Loading needs none."
        .to_owned()
}

pub fn batch_waiting(count: u32, elapsed: Duration) -> String {
    format!(
        "Waiting for batch. Global schema count: {count}. Elapsed: {} seconds.",
        elapsed.as_secs()
    )
}

pub fn group_complete(elapsed: Duration) -> String {
    format!("\nGroup data loading phase complete.         Elapsed: {} seconds.", elapsed.as_secs())
}

/// Computes when the original prints a "Waiting for batch" line, and with which count.
///
/// The original starts tables until a counter reaches NUM_THREADS, prints the line, waits for all of
/// them, and continues counting from 1 instead of 0. Therefore later batches are smaller by one, and
/// with NUM_THREADS=1 the remaining tables all start at once. It prints the line again with the last
/// table.
#[derive(Debug, Clone)]
pub struct Batches {
    /// The count to print, and the number of tables that must be complete before.
    waiting: VecDeque<(u32, u32)>,
}

impl Batches {
    pub fn new(tables: u32, threads: u32) -> Batches {
        let mut waiting = VecDeque::new();
        let (mut counter, mut complete) = (1, 0);
        for started in 1..=tables {
            if counter == threads {
                waiting.push_back((started, complete));
                complete = started;
                counter = 1;
            }
            if started == tables {
                waiting.push_back((started, complete));
            }
            counter += 1;
        }
        Batches { waiting }
    }

    /// Returns the counts to print when `complete` tables are complete; each is returned once.
    pub fn due(&mut self, complete: u32) -> Vec<u32> {
        let mut due = Vec::new();
        while let Some((count, _)) = self.waiting.front().copied().filter(|w| w.1 <= complete) {
            due.push(count);
            self.waiting.pop_front();
        }
        due
    }
}

/// Lists tables by name; a long run of numbers becomes one item: `pgio3 to pgio4096`.
pub fn listed(names: &[String]) -> Vec<String> {
    const MIN_ABBREVIATED: usize = 8;
    let number = |name: &String| match Part::from_name(name) {
        Some(Part::Table(n)) => Some(n),
        _ => None,
    };
    let follows = |a: &String, b: &String| number(a).is_some_and(|n| number(b) == Some(n + 1));
    let run = |run: &[String]| match run {
        [first, .., last] if run.len() > MIN_ABBREVIATED => vec![format!("{first} to {last}")],
        short => short.to_vec(),
    };
    names.chunk_by(follows).flat_map(run).collect()
}

/// Formats the progress of a load for a terminal: `1.20 GiB of 4 GiB, 180 MiB/s, 15 s left`.
pub fn progress(done: u64, total: u64, elapsed: Duration) -> String {
    let sizes = format!("{} of {}", human::bytes(done), human::bytes(total));
    // The rate is not meaningful at the start.
    if done == 0 || elapsed < Duration::from_millis(500) {
        return sizes;
    }
    let rate = done as f64 / elapsed.as_secs_f64();
    if done >= total {
        return format!("{sizes}, {}", human::byte_rate(rate));
    }
    let left = ((total - done) as f64 / rate).ceil() as u64;
    let left = match left {
        0..120 => format!("{left} s"),
        120..7200 => format!("{} min", left.div_ceil(60)),
        _ => format!("{} h {} min", left / 3600, left % 3600 / 60),
    };
    format!("{sizes}, {}, {left} left", human::byte_rate(rate))
}

/// The content of pgio_data_load_table_sizes.out: every table that the role may see, largest first, aligned as
/// in psql, with which the original writes this file. Existing scripts parse it; pgio does not need psql.
pub fn table_sizes(client: &mut Client) -> Result<String, DatasetError> {
    let rows = client
        .query(super::TABLE_SIZES, &[])
        .map_err(|e| DatasetError::from_pg("read", "the sizes of tables", e))?;
    let cell = |row: &pgio_connect::Row, at| -> Result<String, DatasetError> {
        Ok(row.try_get::<_, Option<Shown>>(at)?.map_or_else(String::new, String::from))
    };
    let rows: Result<Vec<Vec<String>>, _> =
        rows.iter().map(|row| (0..row.len()).map(|at| cell(row, at)).collect()).collect();
    Ok(aligned(&["table_name", "table_size", "indexes_size", "total_size"], &rows?))
}

/// Aligns text columns like psql: headings centered, cells left-aligned, the last column unpadded.
fn aligned(headings: &[&str], rows: &[Vec<String>]) -> String {
    let width = |text: &str| text.chars().count();
    let widths: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(at, heading)| {
            rows.iter().map(|row| width(&row[at])).fold(width(heading), usize::max)
        })
        .collect();

    let mut out = String::new();
    let heading = headings.iter().zip(&widths).map(|(text, width)| format!(" {text:^width$} "));
    push_line(&mut out, &heading.collect::<Vec<_>>().join("|"));
    let rule = widths.iter().map(|width| "-".repeat(width + 2));
    push_line(&mut out, &rule.collect::<Vec<_>>().join("+"));
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(text, width)| format!(" {text:width$} ")).collect();
        let line = cells.join("|");
        let padding = widths.last().zip(row.last()).map_or(0, |(w, text)| w - width(text) + 1);
        push_line(&mut out, &line[..line.len() - padding]);
    }
    let noun = if rows.len() == 1 { "row" } else { "rows" };
    push_line(&mut out, &format!("({} {noun})", rows.len()));
    out.push('\n');
    out
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    /// Returns every pair (count, complete tables at that time), completing one table after another.
    fn schedule(tables: u32, threads: u32) -> Vec<(u32, u32)> {
        let mut batches = Batches::new(tables, threads);
        (0..=tables)
            .flat_map(|done| batches.due(done).into_iter().map(move |c| (c, done)))
            .collect()
    }

    #[test]
    fn batches_are_counted_as_in_the_original() {
        // Counts from published examples.
        assert_eq!(schedule(1, 1), [(1, 0), (1, 1)]);
        assert_eq!(schedule(4, 2), [(2, 0), (3, 2), (4, 3), (4, 4)]);
        assert_eq!(schedule(16, 8), [(8, 0), (15, 8), (16, 15)]);
        assert_eq!(schedule(16, 16), [(16, 0), (16, 16)]);
        assert_eq!(schedule(3, 1), [(1, 0), (3, 1)]);
        assert_eq!(schedule(3, 8), [(3, 0)]);
        assert!(schedule(0, 1).is_empty());
    }

    #[test]
    fn several_batches_may_be_due_at_once() {
        let mut batches = Batches::new(4, 2);
        assert_eq!(batches.due(0), [2]);
        assert_eq!(batches.due(3), [3, 4]);
        assert_eq!(batches.due(4), [4]);
        assert!(batches.due(4).is_empty());
    }

    #[test]
    fn the_output_of_setup_matches_the_original() {
        let lines = [
            job_info("200M", 1),
            batching_info(1),
            base_loaded(Duration::from_millis(3900)),
            batch_waiting(1, seconds(0)),
            batch_waiting(1, seconds(13)),
            group_complete(seconds(13)),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r"

        Job info:      Loading 200M scale into 1 schemas as per pgio.conf->NUM_SCHEMAS.
        Batching info: Loading 1 schemas per batch as per pgio.conf->NUM_THREADS.
        Base table loading time: 3 seconds.
        Waiting for batch. Global schema count: 1. Elapsed: 0 seconds.
        Waiting for batch. Global schema count: 1. Elapsed: 13 seconds.

        Group data loading phase complete.         Elapsed: 13 seconds.
        ");
    }

    #[test]
    fn long_runs_of_tables_are_abbreviated() {
        let names = |numbers: std::ops::RangeInclusive<u32>| numbers.map(|n| format!("pgio{n}"));
        let few: Vec<String> = names(1..=4).chain(["pgio_base".to_owned()]).collect();
        assert_eq!(listed(&few), few);
        let many: Vec<String> = ["pgio_x".to_owned()]
            .into_iter()
            .chain(names(1..=1))
            .chain(names(3..=4096))
            .chain(["pgio_scan".to_owned()])
            .collect();
        assert_eq!(listed(&many), ["pgio_x", "pgio1", "pgio3 to pgio4096", "pgio_scan"]);
        assert!(listed(&[]).is_empty());
    }

    #[test]
    fn progress_shows_rate_and_time_left() {
        let gib = 1 << 30;
        assert_eq!(progress(0, gib, seconds(9)), "0 B of 1 GiB");
        assert_eq!(progress(gib, 4 * gib, seconds(8)), "1 GiB of 4 GiB, 128 MiB/s, 24 s left");
        assert_eq!(progress(gib, 64 * gib, seconds(8)), "1 GiB of 64 GiB, 128 MiB/s, 9 min left");
        assert_eq!(
            progress(gib, 2048 * gib, seconds(8)),
            "1 GiB of 2 TiB, 128 MiB/s, 4 h 32 min left"
        );
        assert_eq!(progress(gib, gib, seconds(8)), "1 GiB of 1 GiB, 128 MiB/s");
    }

    #[test]
    fn a_single_row_is_counted_in_singular() {
        let row = vec!["\"public\".\"pgio1\"".to_owned(), "200 MB".to_owned()];
        assert_eq!(
            aligned(&["table_name", "size"], &[row]),
            "    table_name    |  size  \n------------------+--------\n \"public\".\"pgio1\" | 200 MB\n(1 row)\n\n"
        );
    }
}
