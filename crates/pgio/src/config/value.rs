//! The types of value that workload keys take.
//!
//! [`super::keys`] assigns a kind to each key. Next: `kind` for ranges and names, `from_text` for the
//! parsers, `mail` for the values of the workload `mail`.

use crate::exit_code::{HasExitCode, USAGE};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

pub(super) use super::from_text::Value;

/// Thirty days; a longer window, warm-up or limit is a typo.
pub const MAX_DURATION: Duration = Duration::from_secs(720 * 3600);

/// How a statement finds the blocks that it visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Index scan: each session reads one block at a time.
    Index,
    /// Bitmap scan: blocks are prefetched, asynchronously on PostgreSQL 18.
    Bitmap,
}

choice! { Access: Index "index", Bitmap "bitmap" }

/// The distribution of visits over the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skew {
    /// All keys are equally likely.
    Uniform,
    /// The probability of key k is proportional to a power of 1 / k.
    Zipf,
    /// A normal distribution around one position of the table.
    Gaussian,
}

choice! { Skew: Uniform "uniform", Zipf "zipf", Gaussian "gaussian" }

/// How sessions are assigned to tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableModel {
    /// Sessions are assigned to the tables in turn.
    Many,
    /// All sessions use pgio1.
    Single,
}

choice! { TableModel: Many "many", Single "single" }

/// The engine that sends the statements of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineName {
    /// PL/pgSQL blocks that run inside the sessions.
    Server,
    /// pgio sends each statement.
    Client,
}

choice! { EngineName: Server "server", Client "client" }

/// The arrival process of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Arrivals {
    /// Calls arrive at equal intervals.
    Fixed,
    /// Calls arrive independently of each other, like the calls of many users.
    Poisson,
}

choice! { Arrivals: Fixed "fixed", Poisson "poisson" }

/// A size in bytes, written with an optional unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// An exact number with up to three decimals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal(u32);

impl Decimal {
    pub const fn whole(n: u32) -> Self {
        Self(n * 1000)
    }

    pub const fn from_thousandths(n: u32) -> Self {
        Self(n)
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    /// Converts percent to a fraction: 12.5 is 0.125.
    pub fn share(self) -> f64 {
        f64::from(self.0) / 100_000.0
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 3 {
            return None;
        }
        let thousandths = format!("{decimals:0<3}").parse::<u32>().ok()?;
        whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(thousandths).map(Self)
    }
}

/// The shortest form: 12.5.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

impl std::iter::Sum for Decimal {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, next| Self(sum.0.saturating_add(next.0)))
    }
}

/// A part of a table, in blocks or in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TablePortion {
    Blocks(u64),
    Percent(Decimal),
}

impl TablePortion {
    /// Converts to a number of blocks of a table with `table` blocks.
    pub fn blocks(self, table: u64) -> u64 {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Percent(percent) => (table as f64 * percent.share()).round() as u64,
        }
    }
}

impl fmt::Display for TablePortion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(blocks) => write!(f, "{blocks}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// A connect string as psql takes it: a database name, a conninfo string or a URI. It may contain
/// a password, so it is neither printed nor serialized. An empty one means libpq's environment.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectString(String);

impl ConnectString {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Use only to open a connection.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for ConnectString {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for ConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectString(..)")
    }
}

/// Reads a percentage from 0.1% to below 100%, such as `5%`, as a fraction.
pub fn share(text: &str) -> Option<f64> {
    let percent = text.strip_suffix('%')?.trim_end().parse::<f64>().ok()?;
    (0.1..100.0).contains(&percent).then_some(percent / 100.0)
}

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

/// Bytes of an identifier; PostgreSQL truncates longer ones.
pub(crate) const MAX_IDENTIFIER: usize = 63;

/// Maximum length; pgio appends suffixes to a name, and the file system limits the result.
pub(super) const MAX_NAME_LENGTH: usize = 64;

fn is_plain_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

/// Checks a name. The error completes a sentence that begins with the key.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = name.chars().all(|c| is_plain_in_name(c) || c == ' ');
    let ends = name.starts_with(is_plain_in_name) && name.ends_with(is_plain_in_name);
    if plain && ends && !name.starts_with(['.', '-']) && name.len() <= MAX_NAME_LENGTH {
        return Ok(());
    }
    Err(format!(
        "must be usable as a directory name: letters a to z and A to Z, digits, `_`, `-`, `.` and inner spaces, at most {MAX_NAME_LENGTH} characters, not beginning with `.` or `-`"
    ))
}

/// Derives a valid name from any text.
pub fn name_from_text(text: &str) -> String {
    let name: String = text
        .chars()
        .take(MAX_NAME_LENGTH)
        .map(|c| if is_plain_in_name(c) { c } else { '-' })
        .collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "experiment".to_owned() } else { name.to_owned() }
}

// Errors in configuration files, with file, line and key. Each error is one sentence in the form of a compiler
// message. It quotes a value only if the value cannot contain a password.

/// The first error in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{message}", prefix(.key.as_deref()))]
pub struct ConfigError {
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// Absent if the line is not a key with a value.
    pub key: Option<String>,
    pub message: String,
}

impl HasExitCode for ConfigError {
    fn code(&self) -> u8 {
        USAGE
    }
}

fn prefix(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!("{key}: "))
}

/// More names, such as all metrics', fill a screen and are cut.
const MAX_LISTED: usize = 80;

/// Hint for an unknown name: the nearest valid name, or all of them.
pub(crate) fn nearest(given: &str, valid: &[&str]) -> String {
    let folded = given.to_ascii_lowercase();
    let distance = |name: &str| strsim::osa_distance(&folded, &name.to_ascii_lowercase());
    // If more than half of the letters differ, it is not a typo: the list helps more than a guess.
    let limit = (given.chars().count() / 2).max(1);
    match valid.iter().min_by_key(|name| distance(name)) {
        Some(name) if distance(name) <= limit => format!("the nearest valid one is `{name}`"),
        _ if valid.len() > MAX_LISTED => "docs/KEYS.md lists the valid names".to_owned(),
        _ => format!("valid names: {}", valid.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        let longest = "x".repeat(MAX_NAME_LENGTH);
        for name in ["slob", "device-flush", "a.b_c", "one transaction", "8k", &longest] {
            check_name(name).unwrap();
        }
        let long = "x".repeat(MAX_NAME_LENGTH + 1);
        for name in
            ["", ".", "..", "../../x", "/x", "a/b", ".a", "-a", " a", "a ", "a\nb", "a\0", &long]
        {
            assert!(check_name(name).unwrap_err().contains("letters"), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_valid_name(text in ".*") {
            check_name(&name_from_text(&text)).unwrap();
        }
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let error = |key: Option<&str>| ConfigError {
            file: "pgio.conf".to_owned(),
            line: 3,
            key: key.map(str::to_owned),
            message: "is wrong".to_owned(),
        };
        assert_eq!(error(Some("SCALE")).to_string(), "pgio.conf:3: SCALE: is wrong");
        assert_eq!(error(None).to_string(), "pgio.conf:3: is wrong");
    }

    #[test]
    fn nearest_suggests_a_name_for_a_typo_and_lists_all_otherwise() {
        let valid = ["scale", "work_unit"];
        assert_eq!(nearest("SCALES", &valid), "the nearest valid one is `scale`");
        assert_eq!(nearest("wrok_unit", &valid), "the nearest valid one is `work_unit`");
        assert_eq!(nearest("colour", &valid), "valid names: scale, work_unit");
    }
}
