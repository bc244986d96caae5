//! Converts delay, loss and rate of a network link from text to nanoseconds, a share, and bits per
//! second.
//!
//! It has the notation of `tc`, so that users can try a line of an experiment manually.
//! [`exact_delay`], [`exact_share`] and [`exact_bit_rate`] write values that are parsed again.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LinkError {
    #[error("`{0}` is not a delay: use a number with us, ms or s, for example 500us or 1ms")]
    Delay(String),
    #[error("`{0}` is not a percentage: use 0% to 100%, for example 0.5%")]
    Share(String),
    #[error("`{0}` is not a rate: use a number with kbit, mbit or gbit, for example 100mbit")]
    BitRate(String),
}

const DELAYS: &[(&str, u64)] = &[("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

const RATES: &[(&str, u64)] =
    &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];

/// `500us`, `1ms`, `1.5ms`, `2s`.
pub(super) fn parse_delay(text: &str) -> Result<Duration, LinkError> {
    let found = DELAYS
        .iter()
        .find_map(|(unit, nanoseconds)| scaled(text.strip_suffix(unit)?, *nanoseconds));
    found.map(Duration::from_nanos).ok_or_else(|| LinkError::Delay(text.to_owned()))
}

/// `1%`, `0.25%`; 0 to 1.
pub(super) fn parse_share(text: &str) -> Result<f64, LinkError> {
    let number = text.strip_suffix('%').filter(|digits| is_decimal(digits));
    let share = number.and_then(|digits| digits.parse::<f64>().ok()).map(|n| n / 100.0);
    share.filter(|s| (0.0..=1.0).contains(s)).ok_or_else(|| LinkError::Share(text.to_owned()))
}

/// `64kbit`, `100mbit`, `2.5gbit`; never 0. Decimal units, as for network cards.
pub(super) fn parse_bit_rate(text: &str) -> Result<u64, LinkError> {
    let found = RATES.iter().find_map(|(unit, bits)| scaled(text.strip_suffix(unit)?, *bits));
    found.filter(|bits| *bits > 0).ok_or_else(|| LinkError::BitRate(text.to_owned()))
}

/// The shortest text without a fraction, if possible.
pub(super) fn exact_delay(delay: Duration) -> String {
    let nanoseconds = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    for (unit, length) in DELAYS.iter().rev() {
        if nanoseconds > 0 && nanoseconds.is_multiple_of(*length) {
            return format!("{}{unit}", nanoseconds / length);
        }
    }
    format!("{}us", nanoseconds as f64 / 1e3)
}

pub(super) fn exact_share(share: f64) -> String {
    // Undo the rounding error of the division by 100.
    let percent = (share * 100.0 * 1e9).round() / 1e9;
    format!("{percent}%")
}

pub(super) fn exact_bit_rate(bits: u64) -> String {
    let (unit, size) =
        RATES.iter().find(|(_, size)| bits.is_multiple_of(*size)).unwrap_or(&("bit", 1));
    format!("{}{unit}", bits / size)
}

/// A decimal number of units, in the base unit.
fn scaled(digits: &str, unit: u64) -> Option<u64> {
    if !is_decimal(digits) {
        return None;
    }
    let value = digits.parse::<f64>().ok()? * unit as f64;
    // Larger doubles do not represent every integer; such values are unrealistic anyway.
    (value < 9e15).then(|| value.round() as u64)
}

/// Rust's parser would accept `inf`, `1e9` and a sign.
fn is_decimal(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    [whole, fraction]
        .iter()
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_all_notations() {
        assert_eq!(parse_delay("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_delay("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_delay("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_share("1%"), Ok(0.01));
        assert_eq!(parse_share("100%"), Ok(1.0));
        assert_eq!(parse_bit_rate("100mbit"), Ok(100_000_000));
        assert_eq!(parse_bit_rate("2.5gbit"), Ok(2_500_000_000));
        assert_eq!(parse_bit_rate("9600bit"), Ok(9600));
        for wrong in ["", "ms", "1", "-1ms", "1e3ms", "inf s", "1 ms", ".5ms", "5.ms", "1m"] {
            assert!(parse_delay(wrong).is_err(), "{wrong}");
        }
        for wrong in ["1", "101%", "-1%", "%", "nan%", "1e1%"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
        for wrong in ["100", "0mbit", "1MB", "mbit", "1mbps", "-1mbit"] {
            assert!(parse_bit_rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            parse_bit_rate("10MB").unwrap_err().to_string(),
            "`10MB` is not a rate: use a number with kbit, mbit or gbit, for example 100mbit"
        );
    }

    #[test]
    fn exact_texts_are_short() {
        assert_eq!(exact_delay(Duration::from_millis(1)), "1ms");
        assert_eq!(exact_delay(Duration::from_micros(1500)), "1500us");
        assert_eq!(exact_delay(Duration::from_nanos(1500)), "1.5us");
        assert_eq!(exact_delay(Duration::ZERO), "0us");
        assert_eq!(exact_share(0.07), "7%");
        assert_eq!(exact_bit_rate(100_000_000), "100mbit");
        assert_eq!(exact_bit_rate(1_500_000_000), "1500mbit");
    }

    proptest! {
        #[test]
        fn delays_read_back(microseconds in 0_u64..10_000_000_000) {
            let delay = Duration::from_micros(microseconds);
            prop_assert_eq!(parse_delay(&exact_delay(delay)), Ok(delay));
        }

        #[test]
        fn shares_read_back(millionths in 0_u32..=1_000_000) {
            let share = f64::from(millionths) / 1e6;
            let read = parse_share(&exact_share(share)).unwrap();
            prop_assert!((read - share).abs() < 1e-12);
        }

        #[test]
        fn rates_read_back(bits in 1_u64..9_000_000_000_000_000) {
            prop_assert_eq!(parse_bit_rate(&exact_bit_rate(bits)), Ok(bits));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse_delay(&text);
            let _ = parse_share(&text);
            let _ = parse_bit_rate(&text);
        }
    }
}
