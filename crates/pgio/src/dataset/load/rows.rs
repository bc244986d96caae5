//! Rows in the binary format of COPY, encoded straight into one large reused buffer.
//!
//! Per row only two numbers change; everything else of a chunk is written once. Knows nothing of
//! connections. Format: PostgreSQL documentation, COPY, "Binary Format". Next: `stream` sends them.

use std::ops::Range;

use crate::dataset::mark::Part;
use crate::rng::{Permutation, SplitMix64, derive};

/// Signature, flags and the length of an absent header extension.
pub(super) const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
pub(super) const TRAILER: [u8; 2] = (-1i16).to_be_bytes();

const FILLER: usize = 1024;
const KEY_AT: usize = 2 + 4;
const SCRATCH_AT: usize = KEY_AT + 8 + 4;
const ROW: usize = SCRATCH_AT + 8 + 4 + FILLER;
/// About 256 kB a chunk: large enough that calls do not count, small enough to stay in the cache.
pub(super) const CHUNK_ROWS: u64 = (256 * 1024 / ROW) as u64;

/// As in the original, so that `sum(scratch)` and increments are far from overflow.
const SCRATCH_LIMIT: u64 = 1_000_000_000;

/// The rows of one table: keys 1 to N in an order of the table's own, each once.
#[derive(Debug)]
pub(super) struct Rows {
    keys: Permutation,
    scratch: SplitMix64,
    buffer: Vec<u8>,
}

impl Rows {
    pub(super) fn new(part: Part, blocks: u64, seed: u64) -> Rows {
        let index = match part {
            Part::Base => 0,
            Part::Table(n) => u64::from(n),
        };
        Rows {
            keys: Permutation::new(blocks, derive(seed, "keys", index)),
            scratch: SplitMix64::new(derive(seed, "scratch", index)),
            buffer: template_row().repeat(CHUNK_ROWS as usize),
        }
    }

    /// The encoded rows at these positions (at most [`CHUNK_ROWS`] of them) of the table.
    pub(super) fn chunk(&mut self, positions: Range<u64>) -> &[u8] {
        debug_assert!(positions.end - positions.start <= CHUNK_ROWS);
        let rows = (positions.end - positions.start) as usize;
        for (position, row) in positions.zip(self.buffer.chunks_exact_mut(ROW)) {
            let key = self.keys.get(position) as i64 + 1;
            // The slight bias of the remainder does not matter for a column that is only summed.
            let scratch = (self.scratch.next_u64() % SCRATCH_LIMIT) as i64;
            row[KEY_AT..KEY_AT + 8].copy_from_slice(&key.to_be_bytes());
            row[SCRATCH_AT..SCRATCH_AT + 8].copy_from_slice(&scratch.to_be_bytes());
        }
        &self.buffer[..rows * ROW]
    }
}

fn template_row() -> Vec<u8> {
    let mut row = Vec::with_capacity(ROW);
    row.extend_from_slice(&3i16.to_be_bytes());
    for _bigint in 0..2 {
        row.extend_from_slice(&8i32.to_be_bytes());
        row.extend_from_slice(&[0; 8]);
    }
    row.extend_from_slice(&(FILLER as i32).to_be_bytes());
    row.extend_from_slice(&[b'X'; FILLER]);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bigint(bytes: &[u8]) -> i64 {
        i64::from_be_bytes(bytes.try_into().unwrap())
    }

    fn keys(part: Part, blocks: u64, seed: u64) -> Vec<i64> {
        let mut rows = Rows::new(part, blocks, seed);
        let mut keys = Vec::new();
        let mut at = 0;
        while at < blocks {
            let end = (at + CHUNK_ROWS).min(blocks);
            let chunk = rows.chunk(at..end);
            assert_eq!(chunk.len() % ROW, 0);
            keys.extend(chunk.chunks(ROW).map(|row| bigint(&row[KEY_AT..KEY_AT + 8])));
            at = end;
        }
        keys
    }

    #[test]
    fn a_row_is_laid_out_as_copy_wants_it() {
        let mut rows = Rows::new(Part::Table(1), 1024, 42);
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
    fn each_key_comes_once_and_tables_differ() {
        let mut first = keys(Part::Table(1), 2000, 42);
        assert_ne!(first, keys(Part::Table(2), 2000, 42));
        assert_eq!(first, keys(Part::Table(1), 2000, 42));
        first.sort_unstable();
        assert!(first.into_iter().eq(1..=2000));
    }
}
