//! The kinds of value: the range or the names that a key takes, as help, messages and documents show
//! them.

use std::fmt;
use std::ops::RangeInclusive;

/// The values that a key takes; used for parsing, help and documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Whole(RangeInclusive<u64>),
    Duration {
        /// Whether zero is allowed.
        zero: bool,
    },
    Scale,
    Bytes,
    /// A number with up to three decimals; the range is in whole units.
    Decimal(RangeInclusive<u32>),
    /// A part of a table: percent, blocks or bytes.
    TablePortion,
    Text,
    Switch,
    OneOf(&'static [&'static str]),
}

impl Kind {
    /// Returns the placeholder in help: `--work-unit <N>`.
    pub fn placeholder(&self) -> &'static str {
        match self {
            Self::Whole(_) | Self::Decimal(_) => "N",
            Self::Duration { .. } => "DURATION",
            Self::Scale | Self::Bytes | Self::TablePortion => "SIZE",
            Self::Text => "TEXT",
            Self::Switch => "TRUE|FALSE",
            Self::OneOf(_) => "NAME",
        }
    }

    /// Returns the TOML types that an experiment file may use.
    pub fn toml_types(&self) -> &'static [&'static str] {
        match self {
            Self::Whole(_) => &["integer"],
            Self::Duration { .. } | Self::Scale | Self::Bytes | Self::TablePortion => {
                &["string", "integer"]
            }
            Self::Decimal(_) => &["integer", "float"],
            Self::Text | Self::OneOf(_) => &["string"],
            Self::Switch => &["boolean"],
        }
    }
}

/// Completes "must be ...".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(range) if *range.end() >= u64::from(u32::MAX) => {
                write!(f, "a whole number of at least {}", range.start())
            }
            Self::Whole(range) => {
                write!(f, "a whole number from {} to {}", range.start(), range.end())
            }
            Self::Duration { zero: true } => {
                f.write_str("a duration such as 500ms, 2s or 10m, at most 720h")
            }
            Self::Duration { zero: false } => {
                f.write_str("a duration above zero such as 500ms, 2s or 10m, at most 720h")
            }
            Self::Scale => f.write_str("a size such as 25600 (8 kB blocks), 200M, 4G or 1T"),
            Self::Bytes => f.write_str("a size of at least 512 bytes such as 4K, 512M or 8G"),
            Self::Decimal(range) => write!(
                f,
                "a number from {} to {} with at most three decimals",
                range.start(),
                range.end()
            ),
            Self::TablePortion => {
                f.write_str("a part of each table such as 5%, 1024 (8 kB blocks) or 8M")
            }
            Self::Text => f.write_str("a non-empty string"),
            Self::Switch => f.write_str("TRUE or FALSE"),
            Self::OneOf(names) => f.write_str(&names.join(" or ")),
        }
    }
}
