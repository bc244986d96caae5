//! What is to be loaded, and how large it will be.
//!
//! The figures per row were measured on PostgreSQL 15; they serve the check for free space and the
//! progress line, nothing that is reported. Next: `space` compares them with what is free.

use super::mark::{Mark, Part, VERSION};
use crate::units::BLOCK_BYTES;

/// A row of 1,068 bytes, seven to a page.
const BASE_ROW_BYTES: u64 = 1171;
/// A b-tree leaf entry at 90 % fill, and the levels above: 22.5 for four million keys, 23.04 for
/// 25,600.
const INDEX_ROW_BYTES: u64 = 23;
/// 1,176 for the row (COPY logs rows, not pages, as they are smaller) and 21 for the index.
const WAL_ROW_BYTES: u64 = 1200;
/// A key to be sorted, when maintenance_work_mem does not hold them all.
const SORT_ROW_BYTES: u64 = 24;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadSpec {
    /// pgio1 to pgioN.
    pub tables: u32,
    /// Tables loaded at the same time; 0 counts as 1.
    pub streams: u32,
    /// As it was asked for, such as `200M`; goes into the mark.
    pub scale: String,
    /// Per table: the number of rows, and of 8 kB blocks.
    pub blocks: u64,
    pub seed: u64,
    /// Make pgio_base too.
    pub base_table: bool,
    /// The database's (or default_tablespace's) when absent.
    pub tablespace: Option<String>,
}

impl LoadSpec {
    pub fn concurrent(&self) -> u32 {
        self.streams.clamp(1, self.tables.max(1))
    }

    pub fn parts(&self) -> Vec<Part> {
        let base = self.base_table.then_some(Part::Base);
        base.into_iter().chain((1..=self.tables).map(Part::Table)).collect()
    }

    /// Bytes of the table alone: what progress counts.
    pub fn heap_bytes(&self, part: Part) -> u64 {
        self.blocks * self.row_bytes(part)
    }

    pub(super) fn row_bytes(&self, part: Part) -> u64 {
        match part {
            Part::Base => BASE_ROW_BYTES,
            Part::Table(_) => BLOCK_BYTES,
        }
    }

    /// The table with its index.
    pub fn part_bytes(&self, part: Part) -> u64 {
        match part {
            Part::Base => self.heap_bytes(part),
            Part::Table(_) => self.heap_bytes(part) + self.blocks * INDEX_ROW_BYTES,
        }
    }

    pub fn total_heap_bytes(&self) -> u64 {
        self.parts().into_iter().map(|p| self.heap_bytes(p)).sum()
    }

    /// WAL written when wal_level is not minimal.
    pub fn wal_bytes(&self) -> u64 {
        self.parts().len() as u64 * self.blocks * WAL_ROW_BYTES
    }

    /// What sorting for the indexes may need beside the tables.
    pub fn sort_bytes(&self) -> u64 {
        u64::from(self.concurrent()) * self.blocks * SORT_ROW_BYTES
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            version: VERSION,
            scale: self.scale.clone(),
            blocks: self.blocks,
            tables: self.tables,
            seed: self.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_those_of_the_original_tables() {
        let spec = LoadSpec {
            tables: 2,
            streams: 8,
            scale: "200M".into(),
            blocks: 25_600,
            seed: 1,
            base_table: true,
            tablespace: None,
        };
        assert_eq!(spec.heap_bytes(Part::Table(1)), 200 << 20);
        assert_eq!(spec.heap_bytes(Part::Base).div_ceil(1 << 20), 29);
        assert_eq!(spec.parts(), [Part::Base, Part::Table(1), Part::Table(2)]);
        assert_eq!(spec.concurrent(), 2);
        assert_eq!(spec.total_heap_bytes(), (400 << 20) + 25_600 * 1171);
    }
}
