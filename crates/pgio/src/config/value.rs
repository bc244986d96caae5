//! The kinds of value that workload keys take, and how each is parsed.
//!
//! pgio.conf, experiment files and flags share these parsers. Messages complete a sentence
//! that begins with the key ("must be ..."); they never repeat text that may contain a
//! password. [`super::keys`] assigns a kind to each key. The file is long because every kind is a
//! few lines of the same shape, which are easiest to read side by side.

pub mod mail;

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::units::{self, BLOCK_BYTES, Filler, Scale};

/// Thirty days; a longer window, warm-up or limit is a typo.
pub const MAX_DURATION: Duration = Duration::from_secs(720 * 3600);

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

/// How a statement finds the blocks that it visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Index scan: each session reads one block at a time.
    Index,
    /// Bitmap scan: blocks are prefetched, asynchronously on PostgreSQL 18.
    Bitmap,
}

impl Access {
    pub const NAMES: &'static [&'static str] = &["index", "bitmap"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Bitmap => "bitmap",
        }
    }
}

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

impl Skew {
    pub const NAMES: &'static [&'static str] = &["uniform", "zipf", "gaussian"];
}

/// How sessions are assigned to tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableModel {
    /// Sessions are assigned to the tables in turn.
    Many,
    /// All sessions use pgio1.
    Single,
}

impl TableModel {
    pub const NAMES: &'static [&'static str] = &["many", "single"];
}

/// The engine that sends the statements of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineName {
    /// PL/pgSQL blocks that run inside the sessions.
    Server,
    /// pgio sends each statement.
    Client,
}

impl EngineName {
    pub const NAMES: &'static [&'static str] = &["server", "client"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// The arrival process of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// Calls arrive at equal intervals.
    Fixed,
    /// Calls arrive independently of each other, like those of many users.
    Poisson,
}

impl Arrivals {
    pub const NAMES: &'static [&'static str] = &["fixed", "poisson"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Poisson => "poisson",
        }
    }
}

/// A test of the workload `device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceTest {
    /// Large sequential writes.
    Throughput,
    /// Small sequential writes.
    Latency,
    RandomRead,
    RandomWrite,
}

impl DeviceTest {
    pub const ALL: [DeviceTest; 4] =
        [Self::Throughput, Self::Latency, Self::RandomRead, Self::RandomWrite];

    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::RandomRead => "random_read",
            Self::RandomWrite => "random_write",
        }
    }
}

/// One test, or all tests, each as a separate workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceTests {
    All,
    One(DeviceTest),
}

impl DeviceTests {
    pub const NAMES: &'static [&'static str] =
        &["all", "throughput", "latency", "random_read", "random_write"];
}

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

    fn parse(text: &str) -> Option<Self> {
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

impl fmt::Debug for ConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectString(..)")
    }
}

/// A value of a workload key.
pub(super) trait Value: Sized {
    /// The error completes a sentence that begins with the key, such as "must be ...".
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String>;
}

fn must_be(kind: &Kind, text: &str) -> String {
    if text.is_empty() {
        format!("has no value; it must be {kind}")
    } else {
        format!("must be {kind}, not `{text}`")
    }
}

fn whole<T: TryFrom<u64>>(text: &str, kind: &Kind) -> Result<T, String> {
    let in_range = |n: &u64| matches!(kind, Kind::Whole(range) if range.contains(n));
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let number = if digits { text.parse::<u64>().ok().filter(in_range) } else { None };
    number.and_then(|n| T::try_from(n).ok()).ok_or_else(|| must_be(kind, text))
}

impl Value for u8 {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        whole(text, kind)
    }
}

impl Value for u32 {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        whole(text, kind)
    }
}

impl Value for u64 {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        whole(text, kind)
    }
}

impl Value for Duration {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        let duration = units::parse_duration(text).map_err(|_| must_be(kind, text))?;
        let zero = duration.is_zero() && *kind != (Kind::Duration { zero: true });
        if zero || duration > MAX_DURATION {
            return Err(must_be(kind, text));
        }
        Ok(duration)
    }
}

impl Value for Scale {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        if text.is_empty() {
            return Err(must_be(kind, text));
        }
        text.parse().map_err(|error: units::ScaleError| error.to_string())
    }
}

impl Value for Bytes {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        const SECTOR: u64 = 512;
        match units::parse_bytes(text) {
            Ok(bytes) if bytes >= SECTOR => Ok(Self(bytes)),
            _ => Err(must_be(kind, text)),
        }
    }
}

impl Value for Decimal {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        let in_range = |n: &Decimal| match kind {
            Kind::Decimal(range) => {
                (Self::whole(*range.start())..=Self::whole(*range.end())).contains(n)
            }
            _ => false,
        };
        Self::parse(text).filter(in_range).ok_or_else(|| must_be(kind, text))
    }
}

impl Value for TablePortion {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        let whole_table = Decimal::whole(100);
        let portion = match text.strip_suffix('%') {
            Some(percent) => {
                Decimal::parse(percent).filter(|p| *p <= whole_table).map(Self::Percent)
            }
            // A bare number is a number of blocks, as in SCALE.
            None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok().map(Self::Blocks),
            None => units::parse_bytes(text).ok().and_then(whole_blocks).map(Self::Blocks),
        };
        portion.ok_or_else(|| must_be(kind, text))
    }
}

fn whole_blocks(bytes: u64) -> Option<u64> {
    bytes.is_multiple_of(BLOCK_BYTES).then_some(bytes / BLOCK_BYTES)
}

impl Value for Skew {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "zipf" => Ok(Self::Zipf),
            "gaussian" => Ok(Self::Gaussian),
            _ => Err(must_be(kind, text)),
        }
    }
}

impl Value for TableModel {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        match text {
            "many" => Ok(Self::Many),
            "single" => Ok(Self::Single),
            _ => Err(must_be(kind, text)),
        }
    }
}

impl Value for DeviceTests {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        let one = DeviceTest::ALL.into_iter().find(|test| test.name() == text);
        match (text, one) {
            ("all", _) => Ok(Self::All),
            (_, Some(test)) => Ok(Self::One(test)),
            _ => Err(must_be(kind, text)),
        }
    }
}

impl Value for String {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        if text.is_empty() { Err(must_be(kind, text)) } else { Ok(text.to_owned()) }
    }
}

impl Value for ConnectString {
    fn from_text(text: &str, _: &Kind) -> Result<Self, String> {
        Ok(Self::new(text))
    }
}

/// The original accepts only `TRUE`; other cases clearly mean the same.
impl Value for bool {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(must_be(kind, text)),
        }
    }
}

impl Value for Access {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        match text {
            "index" => Ok(Self::Index),
            "bitmap" => Ok(Self::Bitmap),
            _ => Err(must_be(kind, text)),
        }
    }
}

impl Value for Filler {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        Self::named(text).ok_or_else(|| must_be(kind, text))
    }
}

impl Value for EngineName {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        let named = [Self::Server, Self::Client].into_iter().find(|e| e.name() == text);
        named.ok_or_else(|| must_be(kind, text))
    }
}

impl Value for Arrivals {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        let named = [Self::Fixed, Self::Poisson].into_iter().find(|a| a.name() == text);
        named.ok_or_else(|| must_be(kind, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_checked_against_the_range() {
        let kind = Kind::Whole(0..=100);
        assert_eq!(u8::from_text("100", &kind), Ok(100));
        for wrong in ["101", "-1", "+5", "10%", "1.5", "99999999999999999999"] {
            assert_eq!(
                u8::from_text(wrong, &kind),
                Err(format!("must be a whole number from 0 to 100, not `{wrong}`"))
            );
        }
        let open = Kind::Whole(1..=u64::MAX);
        assert_eq!(
            u32::from_text("5000000000", &open),
            Err("must be a whole number of at least 1, not `5000000000`".to_owned())
        );
        assert_eq!(
            u32::from_text("", &open),
            Err("has no value; it must be a whole number of at least 1".to_owned())
        );
    }

    #[test]
    fn zero_durations_are_refused_unless_allowed() {
        assert_eq!(Duration::from_text("0", &Kind::Duration { zero: true }), Ok(Duration::ZERO));
        assert_eq!(
            Duration::from_text("0s", &Kind::Duration { zero: false }),
            Err("must be a duration above zero such as 500ms, 2s or 10m, at most 720h, not `0s`"
                .to_owned())
        );
    }

    #[test]
    fn switches_accept_any_case() {
        assert_eq!(bool::from_text("True", &Kind::Switch), Ok(true));
        assert_eq!(bool::from_text("FALSE", &Kind::Switch), Ok(false));
        assert_eq!(
            bool::from_text("yes", &Kind::Switch),
            Err("must be TRUE or FALSE, not `yes`".to_owned())
        );
    }

    #[test]
    fn access_names_round_trip() {
        let kind = Kind::OneOf(Access::NAMES);
        for access in [Access::Index, Access::Bitmap] {
            assert_eq!(Access::from_text(access.name(), &kind), Ok(access));
        }
        assert_eq!(
            Access::from_text("seq", &kind),
            Err("must be index or bitmap, not `seq`".to_owned())
        );
    }

    #[test]
    fn decimals_are_exact() {
        let percent = Kind::Decimal(0..=100);
        let read = |text| Decimal::from_text(text, &percent);
        for (text, shown) in [("0", "0"), ("100", "100"), ("12.5", "12.5"), ("0.125", "0.125")] {
            assert_eq!(read(text).unwrap().to_string(), shown);
        }
        assert_eq!(read("12.5").unwrap().share(), 0.125);
        for wrong in ["", ".5", "0.1234", "100.001", "-1", "1e1", "5%", "inf", "99999999999"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            read("101").unwrap_err(),
            "must be a number from 0 to 100 with at most three decimals, not `101`"
        );
    }

    #[test]
    fn table_portions_are_blocks_or_percent() {
        let read =
            |text| TablePortion::from_text(text, &Kind::TablePortion).map(|s| s.blocks(25_600));
        assert_eq!((read("1024"), read("8M"), read("16K")), (Ok(1024), Ok(1024), Ok(2)));
        assert_eq!((read("10%"), read("0.1%"), read("100%")), (Ok(2560), Ok(26), Ok(25_600)));
        for wrong in ["", "%", "101%", "-5", "1.5", "4K", "ten"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn device_test_names_round_trip() {
        let kind = Kind::OneOf(DeviceTests::NAMES);
        for test in DeviceTest::ALL {
            assert!(DeviceTests::NAMES.contains(&test.name()));
            assert_eq!(DeviceTests::from_text(test.name(), &kind), Ok(DeviceTests::One(test)));
        }
        assert_eq!(DeviceTests::from_text("all", &kind), Ok(DeviceTests::All));
        assert!(DeviceTests::from_text("some", &kind).unwrap_err().contains("all or throughput"));
        assert_eq!(Bytes::from_text("4K", &Kind::Bytes), Ok(Bytes(4096)));
        for wrong in ["0", "511", "4 k", ""] {
            assert!(Bytes::from_text(wrong, &Kind::Bytes).is_err(), "{wrong}");
        }
    }

    #[test]
    fn connect_strings_are_redacted() {
        let secret = ConnectString::new("host=db password=hunter2");
        assert_eq!(format!("{secret:?}"), "ConnectString(..)");
        assert_eq!(secret.expose(), "host=db password=hunter2");
    }
}
