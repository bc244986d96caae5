//! Parses the text of a value, the same for pgio.conf, experiment files and flags.
//!
//! Messages complete a sentence that begins with the key ("must be ..."); they never repeat text
//! that may contain a password.

use std::time::Duration;

use super::value::{Bytes, ConnectString, Decimal, Kind, MAX_DURATION, TablePortion};
use pgio_results::units::{self, BLOCK_BYTES, Filler, Scale};

/// A value of a workload key.
pub(crate) trait Value: Sized {
    /// The error completes a sentence that begins with the key, such as "must be ...".
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String>;
}

pub(crate) fn must_be(kind: &Kind, text: &str) -> String {
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

impl Value for Filler {
    fn from_text(text: &str, kind: &Kind) -> Result<Self, String> {
        Self::named(text).ok_or_else(|| must_be(kind, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Access;

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
    fn sizes_in_bytes_have_a_unit() {
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
