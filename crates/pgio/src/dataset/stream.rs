//! Loads one table with one connection, in one transaction, so that it is either complete or absent.
//!
//! The same transaction drops the earlier table, so that any failure keeps it. Next: `load` runs
//! several streams.

use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pgio_connect::{Client, Transaction};
use pgio_results::units::{Filler, Layout};

use crate::dataset::error::DatasetError;
use crate::dataset::mark::Part;
use crate::dataset::plan::LoadSpec;
use crate::host::stop::Stop;
use crate::rng::{Permutation, SplitMix64, derive};

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
    client
        .batch_execute(super::SESSION)
        .map_err(|e| DatasetError::from_pg("set up", "a session", e))
}

pub(super) fn load_part(
    client: &mut Client,
    shared: &Shared<'_>,
    part: Part,
) -> Result<(), StreamError> {
    let name = part.to_string();
    let table = super::qualified(shared.schema, &name);
    let failed = |e| stream_error(shared, &name, e);

    let mut transaction = client.begin("START TRANSACTION READ WRITE").map_err(failed)?;
    create(&mut transaction, shared, part, &table).map_err(failed)?;
    copy(&mut transaction, shared, part, &table)?;
    check_layout(&mut transaction, shared, part, &table)?;
    if matches!(part, Part::Table(_)) {
        let index = super::identifier(&format!("{name}_idx"));
        let tablespace = super::identifier(shared.tablespace);
        let names = [("index", &*index), ("table", &*table), ("tablespace", &*tablespace)];
        transaction.batch_execute(&super::fill(super::INDEX, &names)).map_err(failed)?;
    }
    let mark = shared.spec.mark(part).comment(part);
    let comment = [("table", &*table), ("comment", &*super::literal(&mark))];
    transaction.batch_execute(&super::fill(super::COMMENT_TABLE, &comment)).map_err(failed)?;
    if shared.should_stop() {
        return Err(StreamError::Stopped);
    }
    transaction.commit().map_err(failed)?;
    shared.committed.lock().unwrap_or_else(PoisonError::into_inner).push(part);

    // The table is now complete; a stop from here on only loses its statistics.
    match client.batch_execute(&super::fill(super::SETTLE, &[("table", &table)])) {
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
        transaction.batch_execute(&super::fill(super::DROP_TABLE, &[("table", table)]))?;
    }
    let statement = match part {
        Part::Base => super::CREATE_BASE,
        Part::Scan | Part::Table(_) => super::CREATE_TABLE,
    };
    let layout = shared.spec.layout_of(part);
    let tablespace = super::identifier(shared.tablespace);
    let names = [
        ("table", table),
        ("tablespace", &*tablespace),
        ("unlogged", if layout.unlogged { "UNLOGGED " } else { "" }),
        ("filler_width", &*layout.filler_width.to_string()),
        ("parameters", &*parameters(layout)),
    ];
    transaction.batch_execute(&super::fill(statement, &names))
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
    let statement = super::fill(super::COPY, &[("table", table)]);
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
        .query_one(super::PAGES, &[&table])
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

// Encodes rows in the binary format of COPY into one large, reused buffer. Only two numbers change per row, and the
// filler if it is random; the rest of a chunk is written once. This module does not use connections. Format:
// PostgreSQL documentation, COPY, "Binary Format".

/// Signature, flags and the length of an absent header extension.
pub(super) const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
pub(super) const TRAILER: [u8; 2] = (-1i16).to_be_bytes();

const KEY_OFFSET: usize = 2 + 4;
const SCRATCH_OFFSET: usize = KEY_OFFSET + 8 + 4;
const FILLER_OFFSET: usize = SCRATCH_OFFSET + 8 + 4;
/// Size of a chunk: large enough to make call overhead negligible, small enough for the CPU cache.
const CHUNK_BYTES: usize = 256 * 1024;

/// The original's limit, which keeps `sum(scratch)` and increments far from overflow.
const SCRATCH_LIMIT: u64 = 1_000_000_000;

/// The rows of one table: each key from 1 to N once, in an order specific to the table.
#[derive(Debug)]
pub(super) struct Rows {
    keys: Permutation,
    scratch: SplitMix64,
    /// Absent if the filler is plain.
    filler: Option<SplitMix64>,
    row_bytes: usize,
    buffer: Vec<u8>,
}

impl Rows {
    pub(super) fn new(part: Part, rows: u64, seed: u64, layout: Layout) -> Rows {
        let index = match part {
            Part::Base => 0,
            Part::Table(n) => u64::from(n),
            // No table has this number.
            Part::Scan => u64::MAX,
        };
        let template = template_row(layout.filler_width);
        let random = layout.filler == Filler::Random;
        Rows {
            keys: Permutation::new(rows, derive(seed, "keys", index)),
            scratch: SplitMix64::new(derive(seed, "scratch", index)),
            filler: random.then(|| SplitMix64::new(derive(seed, "filler", index))),
            row_bytes: template.len(),
            buffer: template.repeat(CHUNK_BYTES / template.len()),
        }
    }

    /// Returns the maximum number of rows that [`Rows::chunk`] returns.
    pub(super) fn chunk_rows(&self) -> u64 {
        (self.buffer.len() / self.row_bytes) as u64
    }

    /// Returns the encoded rows at these positions of the table.
    pub(super) fn chunk(&mut self, positions: Range<u64>) -> &[u8] {
        debug_assert!(positions.end - positions.start <= self.chunk_rows());
        let rows = (positions.end - positions.start) as usize;
        for (position, row) in positions.zip(self.buffer.chunks_exact_mut(self.row_bytes)) {
            let key = self.keys.get(position) as i64 + 1;
            // The slight modulo bias is irrelevant, because the column is only summed.
            let scratch = (self.scratch.next_u64() % SCRATCH_LIMIT) as i64;
            row[KEY_OFFSET..KEY_OFFSET + 8].copy_from_slice(&key.to_be_bytes());
            row[SCRATCH_OFFSET..SCRATCH_OFFSET + 8].copy_from_slice(&scratch.to_be_bytes());
            if let Some(stream) = &mut self.filler {
                fill(&mut row[FILLER_OFFSET..], stream);
            }
        }
        &self.buffer[..rows * self.row_bytes]
    }
}

fn template_row(filler_width: u32) -> Vec<u8> {
    let mut row = Vec::new();
    row.extend_from_slice(&3i16.to_be_bytes());
    for _bigint in 0..2 {
        row.extend_from_slice(&8i32.to_be_bytes());
        row.extend_from_slice(&[0; 8]);
    }
    row.extend_from_slice(&filler_width.to_be_bytes());
    row.resize(row.len() + filler_width as usize, b'X');
    row
}

/// Fills with seven random bits per byte, the maximum that is valid text in every server encoding. A
/// compressor can only remove the eighth bit. A zero byte, which is invalid in text, becomes 1.
fn fill(filler: &mut [u8], stream: &mut SplitMix64) {
    const SEVEN_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    for bytes in filler.chunks_mut(8) {
        let word = stream.next_u64() & SEVEN_BITS;
        // Sets the top bit of each byte that is not 0; no byte carries into the next.
        let not_zero = (word + SEVEN_BITS) & !SEVEN_BITS;
        let word = word | (!not_zero & !SEVEN_BITS) >> 7;
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    fn bigint(bytes: &[u8]) -> i64 {
        i64::from_be_bytes(bytes.try_into().unwrap())
    }

    /// Returns all rows of a table.
    fn table(part: Part, blocks: u64, seed: u64, layout: Layout) -> Vec<Vec<u8>> {
        let mut rows = Rows::new(part, blocks, seed, layout);
        let mut all = Vec::new();
        let mut at = 0;
        while at < blocks {
            let end = (at + rows.chunk_rows()).min(blocks);
            let row_bytes = rows.row_bytes;
            let chunk = rows.chunk(at..end);
            assert_eq!(chunk.len() % row_bytes, 0);
            all.extend(chunk.chunks(row_bytes).map(<[u8]>::to_vec));
            at = end;
        }
        all
    }

    fn keys(part: Part, blocks: u64, seed: u64) -> Vec<i64> {
        let rows = table(part, blocks, seed, Layout::default());
        rows.iter().map(|row| bigint(&row[KEY_OFFSET..KEY_OFFSET + 8])).collect()
    }

    fn fillers(part: Part, seed: u64) -> Vec<Vec<u8>> {
        let layout = Layout { filler: Filler::Random, filler_width: 1021, ..Layout::default() };
        table(part, 600, seed, layout)
            .into_iter()
            .map(|row| row[FILLER_OFFSET..].to_vec())
            .collect()
    }

    #[test]
    fn rows_have_the_binary_copy_format() {
        let mut rows = Rows::new(Part::Table(1), 1024, 42, Layout::default());
        let row = rows.chunk(0..1);
        assert_eq!(row.len(), 1054);
        assert_eq!(row[..6], [0, 3, 0, 0, 0, 8]);
        assert!((1..=1024).contains(&bigint(&row[6..14])));
        assert_eq!(row[14..18], [0, 0, 0, 8]);
        assert!((0..1_000_000_000).contains(&bigint(&row[18..26])));
        assert_eq!(row[26..30], 1024i32.to_be_bytes());
        assert!(row[30..].iter().all(|b| *b == b'X'));
    }

    #[test]
    fn each_key_occurs_once_and_tables_differ() {
        let mut first = keys(Part::Table(1), 2000, 42);
        assert_ne!(first, keys(Part::Table(2), 2000, 42));
        assert_ne!(first, keys(Part::Scan, 2000, 42));
        assert_eq!(first, keys(Part::Table(1), 2000, 42));
        first.sort_unstable();
        assert!(first.into_iter().eq(1..=2000));
    }

    #[test]
    fn random_fillers_are_seeded_and_differ_between_rows() {
        let rows = fillers(Part::Table(1), 42);
        assert_eq!(rows, fillers(Part::Table(1), 42));
        assert!(rows != fillers(Part::Table(1), 43) && rows != fillers(Part::Table(2), 42));
        let mut starts: Vec<&[u8]> = rows.iter().map(|row| &row[..16]).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), 600);
        assert!(rows.iter().flatten().all(|byte| (1..128).contains(byte)));
    }

    #[test]
    fn random_fillers_have_seven_bits_of_entropy_per_byte() {
        let mut counts = [0u64; 256];
        for byte in fillers(Part::Table(1), 42).iter().flatten() {
            counts[usize::from(*byte)] += 1;
        }
        let all: u64 = counts.iter().sum();
        let share = |n: &u64| *n as f64 / all as f64;
        let entropy: f64 =
            counts.iter().filter(|n| **n > 0).map(|n| -share(n) * share(n).log2()).sum();
        // Values 0 and 1 are merged: the entropy is 7 - 2/128 bits.
        assert!((6.98..7.0).contains(&entropy), "{entropy}");
    }

    proptest! {
        #[test]
        fn fillers_of_any_width_are_filled_completely(width in 0usize..40, seed: u64) {
            let mut filler = vec![0; width];
            fill(&mut filler, &mut SplitMix64::new(seed));
            prop_assert!(filler.iter().all(|byte| (1..128).contains(byte)));
        }
    }
}
