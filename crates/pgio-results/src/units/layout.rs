//! Layout of a table apart from its size: filler, row width, fillfactor, logged or unlogged; and
//! PostgreSQL's arithmetic of rows in a block.
//!
//! In every layout a block contains exactly one row, so that a visit to a row is a visit to a
//! block. The arithmetic follows the server's heap (`RelationGetBufferForTuple`, `heap_update` and
//! bufpage.h); the loader verifies the resulting number of pages. Next: `config::resolve` rejects
//! layouts that break the rule, `dataset` creates the tables.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::{BLOCK_BYTES, human};

/// The content of the filler column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Filler {
    /// The same constant everywhere, as in the original pgio.
    #[default]
    Plain,
    /// Seeded random text, which does not compress.
    Random,
}

impl Filler {
    pub const NAMES: &'static [&'static str] = &["plain", "random"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Random => "random",
        }
    }

    pub fn named(name: &str) -> Option<Filler> {
        [Self::Plain, Self::Random].into_iter().find(|filler| filler.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Layout {
    pub filler: Filler,
    /// Bytes of filler in each row.
    pub filler_width: u32,
    pub fillfactor: u8,
    pub unlogged: bool,
}

/// The layout of the original pgio.
impl Default for Layout {
    fn default() -> Layout {
        Layout { filler: Filler::Plain, filler_width: 1024, fillfactor: 10, unlogged: false }
    }
}

/// PostgreSQL's minimum is 10.
pub const FILLFACTORS: RangeInclusive<u64> = 10..=100;

/// From the narrowest row that is alone in its block at fillfactor 10 to the widest row that fits a
/// block.
pub const FILLER_WIDTHS: RangeInclusive<u64> = 349..=8116;

/// The widest filler with which the next version of an updated row fits into the same block.
pub const WIDEST_UPDATED: u32 = 4028;

const PAGE_HEADER: u64 = 24;
const LINE_POINTER: u64 = 4;
/// Bytes of a row without the filler: tuple header, two bigint, varlena header.
const BESIDE_FILLER: u64 = 24 + 8 + 8 + 4;
/// Row size above which PostgreSQL compresses values or moves them out of line.
const TOAST_THRESHOLD: u64 = 2032;

impl Layout {
    pub fn is_default(self) -> bool {
        self == Layout::default()
    }

    /// Bytes of a row in its block.
    fn tuple_bytes(self) -> u64 {
        (BESIDE_FILLER + u64::from(self.filler_width)).next_multiple_of(8)
    }

    /// Free bytes in a block with one row, after the line pointer of a second one.
    fn free_beside_one(self) -> u64 {
        (BLOCK_BYTES - PAGE_HEADER - 2 * LINE_POINTER).saturating_sub(self.tuple_bytes())
    }

    fn is_alone_at(self, fillfactor: u8) -> bool {
        let reserved = BLOCK_BYTES * u64::from(100 - fillfactor.min(100)) / 100;
        self.free_beside_one() < self.tuple_bytes() + reserved
    }

    /// Whether a block contains only one row.
    pub fn is_alone(self) -> bool {
        self.is_alone_at(self.fillfactor)
    }

    /// The largest fillfactor at which rows of this width are alone in their block.
    pub fn largest_fillfactor(self) -> Option<u8> {
        (10..=100).rev().find(|fillfactor| self.is_alone_at(*fillfactor))
    }

    /// Whether the next version of an updated row fits into the same block. It needs two more line
    /// pointers, one of which redirects from the original to the current version.
    pub fn has_room_for_updates(self) -> bool {
        self.free_beside_one() >= self.tuple_bytes() + 2 * LINE_POINTER
    }

    /// Whether PostgreSQL would compress such a row or move it out of line, unless prevented.
    pub fn must_be_kept_whole(self) -> bool {
        BESIDE_FILLER + u64::from(self.filler_width) > TOAST_THRESHOLD
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (filler, width) = (self.filler.name(), human::count(self.filler_width.into()));
        write!(f, "{filler} filler of {width} bytes, fillfactor {}", self.fillfactor)?;
        f.write_str(if self.unlogged { ", unlogged" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(filler_width: u32) -> Layout {
        Layout { filler_width, ..Layout::default() }
    }

    #[test]
    fn the_constants_match_the_arithmetic() {
        let (narrowest, widest) = FILLER_WIDTHS.into_inner();
        let (narrowest, widest) = (narrowest as u32, widest as u32);
        assert!(wide(narrowest).is_alone() && !wide(narrowest - 1).is_alone());
        assert_eq!(wide(widest).tuple_bytes(), BLOCK_BYTES - 32);
        assert_eq!(wide(widest + 1).tuple_bytes(), BLOCK_BYTES - 24);
        assert!(wide(WIDEST_UPDATED).has_room_for_updates());
        assert!(!wide(WIDEST_UPDATED + 1).has_room_for_updates());
    }

    #[test]
    fn the_default_layout_allows_fillfactors_up_to_26() {
        assert_eq!(Layout::default().largest_fillfactor(), Some(26));
        assert!(Layout { fillfactor: 26, ..Layout::default() }.is_alone());
        assert!(!Layout { fillfactor: 27, ..Layout::default() }.is_alone());
        assert_eq!(wide(348).largest_fillfactor(), None);
        assert_eq!(wide(4036).largest_fillfactor(), Some(99));
        assert_eq!(wide(4037).largest_fillfactor(), Some(100));
        assert_eq!(wide(8116).largest_fillfactor(), Some(100));
    }

    #[test]
    fn only_wide_rows_are_toasted() {
        assert!(!wide(1988).must_be_kept_whole() && wide(1989).must_be_kept_whole());
    }

    #[test]
    fn layouts_are_displayed_as_text() {
        let layout =
            Layout { filler: Filler::Random, filler_width: 4028, fillfactor: 50, unlogged: true };
        assert_eq!(layout.to_string(), "random filler of 4,028 bytes, fillfactor 50, unlogged");
        assert_eq!(Layout::default().to_string(), "plain filler of 1,024 bytes, fillfactor 10");
        for name in Filler::NAMES {
            assert_eq!(Filler::named(name).map(Filler::name), Some(*name));
        }
    }
}
