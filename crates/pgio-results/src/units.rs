//! Converts sizes, durations, rates and counts between text and base units.
//!
//! pgio internally uses bytes, 8 kB blocks, nanoseconds and [`Duration`]. Only this module parses
//! other units ([`Scale`], [`parse_bytes`], [`parse_duration`]) and formats them ([`human`]). No
//! I/O, no environment.
//!
//! Next: `config::keys`, which defines the unit of each setting.

pub mod human;
pub mod layout;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use layout::{Filler, Layout};

/// PostgreSQL's block size; pgio supports only servers with the default of 8 kB.
pub const BLOCK_BYTES: u64 = 8192;

/// The smallest table, as in the original pgio.
pub const MIN_SCALE_BLOCKS: u64 = 1024;

/// The largest table: block numbers have 32 bits, and PostgreSQL reserves one of them.
pub const MAX_SCALE_BLOCKS: u64 = u32::MAX as u64;

const BINARY_UNITS: [(char, u64); 4] =
    [('T', 1 << 40), ('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

/// The size of one table, as written and in blocks.
#[derive(Debug, Clone)]
pub struct Scale {
    text: String,
    blocks: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` {problem}: use N blocks of 8 kB or NM, NG, NT (25600 and 200M are the same), \
         at least 1024 blocks (8M)"
)]
pub struct ScaleError {
    text: String,
    problem: &'static str,
}

impl Scale {
    /// The scale with this number of blocks, in its shortest form.
    pub fn from_blocks(blocks: u64) -> Result<Self, ScaleError> {
        let text = match blocks.checked_mul(BLOCK_BYTES) {
            Some(bytes) if bytes > 0 && bytes.is_multiple_of(1 << 20) => exact_bytes(bytes),
            _ => blocks.to_string(),
        };
        text.parse()
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    pub fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES
    }
}

impl FromStr for Scale {
    type Err = ScaleError;

    fn from_str(text: &str) -> Result<Self, ScaleError> {
        let fail = |problem| ScaleError { text: text.to_owned(), problem };
        let (digits, blocks_per_unit) = match text.char_indices().next_back() {
            Some((at, 'M' | 'm')) => (&text[..at], (1 << 20) / BLOCK_BYTES),
            Some((at, 'G' | 'g')) => (&text[..at], (1 << 30) / BLOCK_BYTES),
            Some((at, 'T' | 't')) => (&text[..at], (1 << 40) / BLOCK_BYTES),
            _ => (text, 1),
        };
        if !is_digits(digits) {
            return Err(fail("is not a size"));
        }
        let blocks = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(blocks_per_unit));
        match blocks {
            Some(blocks) if blocks < MIN_SCALE_BLOCKS => Err(fail("is too small")),
            Some(blocks) if blocks <= MAX_SCALE_BLOCKS => {
                Ok(Self { text: text.to_owned(), blocks })
            }
            _ => Err(fail("is more than PostgreSQL allows in one table (just under 32T)")),
        }
    }
}

/// As the user wrote it, because the classic output repeats it.
impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Two notations of the same size are equal.
impl PartialEq for Scale {
    fn eq(&self, other: &Self) -> bool {
        self.blocks == other.blocks
    }
}

impl Eq for Scale {}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size: use bytes or NK, NM, NG, NT, for example 512M")]
pub struct BytesError(String);

/// Bytes from `4096`, `4K`, `512M`, `1G`, `2T`: binary units, either case, `iB` tolerated.
pub fn parse_bytes(text: &str) -> Result<u64, BytesError> {
    let fail = || BytesError(text.to_owned());
    let plain = text.strip_suffix("iB").unwrap_or(text);
    let unit = plain.char_indices().next_back().and_then(|(at, last)| {
        let (_, bytes) = BINARY_UNITS.iter().find(|(c, _)| c.eq_ignore_ascii_case(&last))?;
        Some((&plain[..at], *bytes))
    });
    // `iB` requires a unit; reject "12iB".
    let (digits, factor) = unit.unwrap_or((text, 1));
    if !is_digits(digits) {
        return Err(fail());
    }
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(fail)
}

/// The shortest text that [`parse_bytes`] converts back to the same number.
pub fn exact_bytes(bytes: u64) -> String {
    match BINARY_UNITS.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((suffix, unit)) => format!("{}{suffix}", bytes / unit),
        None => bytes.to_string(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration: use a whole number with ms, s, m or h, for example 500ms or 2s")]
pub struct DurationError(String);

/// A duration from `500ms`, `2s`, `10m`, `1h`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(DurationError(text.to_owned())),
    };
    let total = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(milliseconds));
    total.map(Duration::from_millis).ok_or_else(|| DurationError(text.to_owned()))
}

/// The shortest text that [`parse_duration`] converts back; fractions of a millisecond are dropped.
pub fn exact_duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    for (unit, length) in [("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if milliseconds > 0 && milliseconds.is_multiple_of(length) {
            return format!("{}{unit}", milliseconds / length);
        }
    }
    format!("{milliseconds}ms")
}

/// Rust's integer parser would accept a `+`.
fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scale(text: &str) -> Scale {
        text.parse().unwrap()
    }

    fn scale_error(text: &str) -> String {
        text.parse::<Scale>().unwrap_err().to_string()
    }

    #[test]
    fn scale_is_parsed_from_blocks_and_from_sizes() {
        assert_eq!(scale("200M").blocks(), 25_600);
        assert_eq!(scale("25600"), scale("200m"));
        assert_eq!(scale("1g").blocks(), 131_072);
        assert_eq!(scale("4G").bytes(), 4 << 30);
        assert_eq!(scale("1T").blocks(), 134_217_728);
        assert_eq!(scale("1024").bytes(), 8 << 20);
        assert_eq!(scale("4294967295").blocks(), MAX_SCALE_BLOCKS);
        assert_eq!(scale("200m").to_string(), "200m");
    }

    #[test]
    fn scale_errors_name_the_minimum_and_the_forms() {
        assert_eq!(
            scale_error("1023"),
            "`1023` is too small: use N blocks of 8 kB or NM, NG, NT (25600 and 200M are the \
                         same), at least 1024 blocks (8M)"
        );
        for small in ["0", "7M", "0G"] {
            assert!(scale_error(small).contains("is too small"), "{small}");
        }
        for no_size in ["12X", "-5", "+2000", "", "M", "1.5G", " 200M", "200 M", "200MB", "２００M"]
        {
            assert!(scale_error(no_size).contains("is not a size"), "{no_size}");
        }
        for large in ["32T", "4294967296", "18446744073709551615T", "99999999999999999999"] {
            assert!(scale_error(large).contains("just under 32T"), "{large}");
        }
    }

    #[test]
    fn sizes_are_parsed_with_optional_units_and_other_text_is_refused() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("4k"), Ok(4096));
        assert_eq!(parse_bytes("1GiB"), Ok(1 << 30));
        for wrong in ["", "K", "-1", "1X", "12iB", "16777216T", "1 G"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            parse_bytes("x").unwrap_err().to_string(),
            "`x` is not a size: use bytes or NK, NM, NG, NT, for example 512M"
        );
    }

    #[test]
    fn durations_are_parsed_with_optional_units_and_other_text_is_refused() {
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_hours(1)));
        assert_eq!(parse_duration("300"), Ok(Duration::from_mins(5)));
        for wrong in ["", "s", "-1s", "1.5s", "1 s", "1d", "18446744073709551615h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            parse_duration("soon").unwrap_err().to_string(),
            "`soon` is not a duration: use a whole number with ms, s, m or h, for example \
                         500ms or 2s"
        );
    }

    proptest! {
        #[test]
        fn scale_reads_back(blocks in MIN_SCALE_BLOCKS..=MAX_SCALE_BLOCKS) {
            prop_assert_eq!(Scale::from_blocks(blocks).unwrap().blocks(), blocks);
        }

        #[test]
        fn whole_units_of_scale_read_back(n in 1_u64..32_000, unit in prop::sample::select(&['G', 'g'])) {
            let written = scale(&format!("{n}{unit}"));
            prop_assert_eq!(Scale::from_blocks(written.blocks()).unwrap(), written);
        }

        #[test]
        fn bytes_read_back(n in any::<u64>(), shift in 0_u32..50) {
            let bytes = n >> shift << shift;
            prop_assert_eq!(parse_bytes(&exact_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn duration_reads_back(n in any::<u32>(), unit in prop::sample::select(&[1_u64, 1000, 60_000, 3_600_000])) {
            let duration = Duration::from_millis(u64::from(n) * unit);
            prop_assert_eq!(parse_duration(&exact_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Scale>();
            let _ = parse_bytes(&text);
            let _ = parse_duration(&text);
        }
    }
}
