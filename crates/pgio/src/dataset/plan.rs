//! The specification of a load, and estimates of its size.
//!
//! The sizes per row were measured on PostgreSQL 15. They are used for the check of free space and for
//! progress, not for results. Next: `space` compares them with the free space.

use super::mark::{Mark, Part, VERSION};
use pgio_results::units::{BLOCK_BYTES, Layout, Scale};

/// A row of 1,068 bytes, seven per page.
const BASE_ROW_BYTES: u64 = 1171;
/// A b-tree leaf entry at 90 % fill, upper levels included: 22.5 for four million keys, 23.04 for
/// 25,600.
const INDEX_ROW_BYTES: u64 = 23;
/// WAL per row in addition to the filler: the original's row takes 1,176 bytes (COPY logs rows instead
/// of pages) and the index 21.
const WAL_BESIDE_FILLER: u64 = 176;
/// Temporary space per key if the sort exceeds maintenance_work_mem.
const SORT_ROW_BYTES: u64 = 24;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadSpec {
    /// Number of tables pgio1 to pgioN.
    pub tables: u32,
    /// Tables loaded in parallel; 0 counts as 1.
    pub streams: u32,
    /// The scale as specified, such as `200M`; stored in the mark.
    pub scale: String,
    /// Number of rows and of 8 kB blocks per table.
    pub blocks: u64,
    pub seed: u64,
    /// Whether to create pgio_base.
    pub base_table: bool,
    /// Absent: default_tablespace or the database's tablespace.
    pub tablespace: Option<String>,
    /// Layout of all tables except pgio_base, which has the original's layout.
    pub layout: Layout,
    /// Size of pgio_scan; absent: do not create it.
    pub scan: Option<Scale>,
    pub space: SpaceCheck,
}

/// What a load does about free disk space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceCheck {
    /// Refuse if there is too little, or if that cannot be known.
    Required,
    /// Refuse if there is too little, and warn if that cannot be known.
    IfKnown,
    /// Only warn.
    Off,
}

impl LoadSpec {
    /// Returns the number of streams that load at the same time; pgio_base and pgio_scan occupy one too.
    pub fn concurrent(&self) -> usize {
        (self.streams.max(1) as usize).min(self.parts().len())
    }

    pub fn parts(&self) -> Vec<Part> {
        let base = self.base_table.then_some(Part::Base);
        // The scan table starts early because it may be the largest.
        let scan = self.scan.as_ref().map(|_| Part::Scan);
        base.into_iter().chain(scan).chain((1..=self.tables).map(Part::Table)).collect()
    }

    pub(super) fn includes(&self, part: Part) -> bool {
        match part {
            Part::Base => self.base_table,
            Part::Scan => self.scan.is_some(),
            Part::Table(n) => n <= self.tables,
        }
    }

    pub(super) fn rows(&self, part: Part) -> u64 {
        match (part, &self.scan) {
            (Part::Scan, Some(scale)) => scale.blocks(),
            _ => self.blocks,
        }
    }

    pub(super) fn layout_of(&self, part: Part) -> Layout {
        match part {
            Part::Base => Layout::default(),
            Part::Scan | Part::Table(_) => self.layout,
        }
    }

    /// Returns the size of the table without its index; progress is measured in these bytes.
    pub fn heap_bytes(&self, part: Part) -> u64 {
        self.rows(part) * self.row_bytes(part)
    }

    pub(super) fn row_bytes(&self, part: Part) -> u64 {
        match part {
            Part::Base => BASE_ROW_BYTES,
            Part::Scan | Part::Table(_) => BLOCK_BYTES,
        }
    }

    /// Returns the size of the table with its index.
    pub fn part_bytes(&self, part: Part) -> u64 {
        match part {
            Part::Base | Part::Scan => self.heap_bytes(part),
            Part::Table(_) => self.heap_bytes(part) + self.blocks * INDEX_ROW_BYTES,
        }
    }

    pub fn total_heap_bytes(&self) -> u64 {
        self.parts().into_iter().map(|p| self.heap_bytes(p)).sum()
    }

    /// Returns the amount of WAL if wal_level is not minimal.
    pub fn wal_bytes(&self) -> u64 {
        let logged = self.parts().into_iter().filter(|p| !self.layout_of(*p).unlogged);
        let row = |part| u64::from(self.layout_of(part).filler_width) + WAL_BESIDE_FILLER;
        logged.map(|part| self.rows(part) * row(part)).sum()
    }

    /// Returns the temporary space for sorting during index creation.
    pub fn sort_bytes(&self) -> u64 {
        // Only pgio1 to pgioN have an index.
        let sorts = u64::from(self.streams.clamp(1, self.tables.max(1)));
        sorts * self.blocks * SORT_ROW_BYTES
    }

    pub(super) fn mark(&self, part: Part) -> Mark {
        let scale = match (part, &self.scan) {
            (Part::Scan, Some(scale)) => scale.to_string(),
            _ => self.scale.clone(),
        };
        Mark {
            version: VERSION,
            scale,
            blocks: self.rows(part),
            tables: self.tables,
            seed: self.seed,
            layout: self.layout_of(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> LoadSpec {
        LoadSpec {
            tables: 2,
            streams: 8,
            scale: "200M".into(),
            blocks: 25_600,
            seed: 1,
            base_table: true,
            tablespace: None,
            layout: Layout::default(),
            scan: None,
            space: SpaceCheck::Required,
        }
    }

    #[test]
    fn estimates_match_the_original_tables() {
        let spec = spec();
        assert_eq!(spec.heap_bytes(Part::Table(1)), 200 << 20);
        assert_eq!(spec.heap_bytes(Part::Base).div_ceil(1 << 20), 29);
        assert_eq!(spec.parts(), [Part::Base, Part::Table(1), Part::Table(2)]);
        assert_eq!(spec.concurrent(), 3);
        assert_eq!(spec.sort_bytes(), 2 * 25_600 * 24);
        assert_eq!(spec.total_heap_bytes(), (400 << 20) + 25_600 * 1171);
        assert_eq!(spec.wal_bytes(), 3 * 25_600 * 1200);
    }

    #[test]
    fn the_scan_table_has_its_own_size_and_no_index() {
        let spec = LoadSpec { scan: Some("1G".parse().unwrap()), ..spec() };
        assert_eq!(spec.parts()[..3], [Part::Base, Part::Scan, Part::Table(1)]);
        assert_eq!(spec.part_bytes(Part::Scan), 1 << 30);
        let mark = spec.mark(Part::Scan);
        assert_eq!((&*mark.scale, mark.blocks), ("1G", 131_072));
        assert_eq!(spec.mark(Part::Table(1)).blocks, 25_600);
    }

    #[test]
    fn unlogged_tables_write_no_wal_and_the_base_table_keeps_its_layout() {
        let layout = Layout { unlogged: true, filler_width: 4000, ..Layout::default() };
        let spec = LoadSpec { layout, ..spec() };
        assert_eq!(spec.wal_bytes(), 25_600 * 1200);
        assert_eq!(spec.mark(Part::Base).layout, Layout::default());
        assert_eq!(spec.mark(Part::Table(2)).layout, layout);
    }
}
