//! Loads one table with one connection, in one transaction, so that it is either complete or absent.
//!
//! The same transaction drops the earlier table, so that any failure keeps it. Next: `load` runs
//! several streams.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pgio_connect::{Client, Transaction};

use super::rows::{HEADER, Rows, TRAILER};
use crate::dataset::error::DatasetError;
use crate::dataset::mark::Part;
use crate::dataset::plan::LoadSpec;
use crate::dataset::sql;
use crate::host::stop::Stop;
use pgio_results::units::Layout;

/// Rows per COPY statement, 128 MiB of table. The driver reports a server error only at the end of a
/// COPY (until then it continues to send, and the server discards the data), so each COPY is limited.
const COPY_ROWS: u64 = 16_384;

/// Since version 16 the server extends a table by up to 64 pages at a time, and a COPY leaves those that it did
/// not fill. VACUUM truncates the ones at the end of the file. The others stay empty: at most 0.4 % of the table,
/// and only where the server's limit on pinned buffers makes the steps no power of two (small shared_buffers).
const MAX_EXTENSION: u64 = 64;

/// State shared by all streams of a load.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) spec: &'a LoadSpec,
    pub(super) schema: &'a str,
    pub(super) tablespace: &'a str,
    /// Existing marked tables to replace.
    pub(super) replaced: &'a [Part],
    pub(super) stop: &'a Stop,
    /// Whether a stream has failed.
    pub(super) failed: AtomicBool,
    /// Bytes loaded so far by all streams.
    pub(super) loaded: AtomicU64,
    /// Tables that are complete.
    pub(super) committed: Mutex<Vec<Part>>,
}

impl Shared<'_> {
    pub(super) fn should_stop(&self) -> bool {
        self.stop.requested() || self.failed.load(Ordering::Relaxed)
    }
}

/// Why a stream ended early. `Stopped` is not an error of the stream; the coordinator reports the
/// reason.
#[derive(Debug)]
pub(super) enum StreamError {
    Stopped,
    Failed(DatasetError),
}

impl From<DatasetError> for StreamError {
    fn from(error: DatasetError) -> StreamError {
        StreamError::Failed(error)
    }
}

pub(super) fn prepare(client: &mut Client) -> Result<(), DatasetError> {
    client.batch_execute(sql::SESSION).map_err(|e| DatasetError::from_pg("set up", "a session", e))
}

pub(super) fn load_part(
    client: &mut Client,
    shared: &Shared<'_>,
    part: Part,
) -> Result<(), StreamError> {
    let name = part.to_string();
    let table = sql::qualified(shared.schema, &name);
    let failed = |e| stream_error(shared, &name, e);

    let mut transaction = client.begin("START TRANSACTION READ WRITE").map_err(failed)?;
    create(&mut transaction, shared, part, &table).map_err(failed)?;
    copy(&mut transaction, shared, part, &table)?;
    check_layout(&mut transaction, shared, part, &table)?;
    if matches!(part, Part::Table(_)) {
        let index = sql::identifier(&format!("{name}_idx"));
        let tablespace = sql::identifier(shared.tablespace);
        let names = [("index", &*index), ("table", &*table), ("tablespace", &*tablespace)];
        transaction.batch_execute(&sql::fill(sql::INDEX, &names)).map_err(failed)?;
    }
    let mark = shared.spec.mark(part).comment(part);
    let comment = [("table", &*table), ("comment", &*sql::literal(&mark))];
    transaction.batch_execute(&sql::fill(sql::COMMENT_TABLE, &comment)).map_err(failed)?;
    if shared.should_stop() {
        return Err(StreamError::Stopped);
    }
    transaction.commit().map_err(failed)?;
    shared.committed.lock().unwrap_or_else(PoisonError::into_inner).push(part);

    // The table is now complete; a stop from here on only loses its statistics.
    match client.batch_execute(&sql::fill(sql::SETTLE, &[("table", &table)])) {
        Err(_) if shared.should_stop() => Ok(()),
        settled => settled.map_err(failed),
    }
}

fn stream_error(shared: &Shared<'_>, name: &str, error: pgio_connect::Error) -> StreamError {
    let canceled = error.code() == Some(&pgio_connect::SqlState::QUERY_CANCELED);
    if canceled && shared.should_stop() {
        return StreamError::Stopped;
    }
    StreamError::Failed(DatasetError::from_pg("load", name, error))
}

fn create(
    transaction: &mut Transaction<'_>,
    shared: &Shared<'_>,
    part: Part,
    table: &str,
) -> Result<(), pgio_connect::Error> {
    if shared.replaced.contains(&part) {
        transaction.batch_execute(&sql::fill(sql::DROP_TABLE, &[("table", table)]))?;
    }
    let statement = match part {
        Part::Base => sql::CREATE_BASE,
        Part::Scan | Part::Table(_) => sql::CREATE_TABLE,
    };
    let layout = shared.spec.layout_of(part);
    let tablespace = sql::identifier(shared.tablespace);
    let names = [
        ("table", table),
        ("tablespace", &*tablespace),
        ("unlogged", if layout.unlogged { "UNLOGGED " } else { "" }),
        ("filler_width", &*layout.filler_width.to_string()),
        ("parameters", &*parameters(layout)),
    ];
    transaction.batch_execute(&sql::fill(statement, &names))
}

/// Returns the storage parameters. A toast_tuple_target as large as a block prevents that a row is
/// compressed or moved out of line.
fn parameters(layout: Layout) -> String {
    let whole = if layout.must_be_kept_whole() { ", toast_tuple_target = 8160" } else { "" };
    format!("fillfactor = {}{whole}", layout.fillfactor)
}

fn copy(
    transaction: &mut Transaction<'_>,
    shared: &Shared<'_>,
    part: Part,
    table: &str,
) -> Result<(), StreamError> {
    let blocks = shared.spec.rows(part);
    let name = part.to_string();
    let mut rows = Rows::new(part, blocks, shared.spec.seed, shared.spec.layout_of(part));
    let statement = sql::fill(sql::COPY, &[("table", table)]);
    let mut arrived = 0;
    let mut position = 0;
    while position < blocks {
        let until = (position + COPY_ROWS).min(blocks);
        let mut writer =
            transaction.copy_in(&statement).map_err(|e| stream_error(shared, &name, e))?;
        // If a write fails, the connection is lost, and finish() returns the reason.
        let mut healthy = writer.write_all(HEADER).is_ok();
        while healthy && position < until {
            if shared.should_stop() {
                // Dropping the unfinished writer makes the server abort the COPY.
                return Err(StreamError::Stopped);
            }
            let end = (position + rows.chunk_rows()).min(until);
            healthy = writer.write_all(rows.chunk(position..end)).is_ok();
            let bytes = (end - position) * shared.spec.row_bytes(part);
            shared.loaded.fetch_add(bytes, Ordering::Relaxed);
            position = end;
        }
        let _ = writer.write_all(&TRAILER);
        arrived += writer.finish().map_err(|e| stream_error(shared, &name, e))?;
    }
    if arrived != blocks {
        return Err(DatasetError::MissingRows { table: name, loaded: arrived, blocks }.into());
    }
    Ok(())
}

/// Checks that the table has one row per page, on which the whole method depends.
fn check_layout(
    transaction: &mut Transaction<'_>,
    shared: &Shared<'_>,
    part: Part,
    table: &str,
) -> Result<(), StreamError> {
    if part == Part::Base {
        return Ok(());
    }
    let row = transaction
        .query_one(sql::PAGES, &[&table])
        .map_err(|e| stream_error(shared, &part.to_string(), e))?;
    let pages: i64 = row.try_get(0).map_err(DatasetError::from)?;
    let pages = pages.unsigned_abs();
    let blocks = shared.spec.rows(part);
    if has_one_row_per_page(pages, blocks) {
        return Ok(());
    }
    Err(DatasetError::Layout { table: part.to_string(), pages, blocks }.into())
}

/// Returns whether a table of so many rows has a page for each, beside those that each COPY may leave empty.
fn has_one_row_per_page(pages: u64, blocks: u64) -> bool {
    let most_empty = blocks.div_ceil(COPY_ROWS) * (MAX_EXTENSION - 1);
    (blocks..=blocks + most_empty).contains(&pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_counts_allow_for_empty_pages_of_each_copy() {
        let one = COPY_ROWS;
        assert!(has_one_row_per_page(one, one) && has_one_row_per_page(one + 63, one));
        assert!(!has_one_row_per_page(one - 1, one) && !has_one_row_per_page(one + 64, one));
        // 4 GB are 32 COPY statements.
        let many = 32 * COPY_ROWS;
        assert!(has_one_row_per_page(many + 32 * 63, many));
        assert!(!has_one_row_per_page(many + 32 * 63 + 1, many));
        // Two rows on each page, or two pages for each row.
        assert!(!has_one_row_per_page(many / 2, many) && !has_one_row_per_page(2 * many, many));
    }
}
