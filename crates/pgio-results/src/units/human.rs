//! Formats numbers for people: three significant digits, binary bytes, `1,234,567`.
//!
//! For display only; `units::exact_bytes` and `units::exact_duration` write values that are parsed
//! again.

/// Text for a value that is not finite, such as a mean without data.
const NO_NUMBER: &str = "n/a";

const BINARY: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// `1,234,567`
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `200 MiB`, `1.46 GiB`
pub fn bytes(n: u64) -> String {
    binary(n as f64)
}

/// `200 MiB/s`
pub fn byte_rate(bytes_per_second: f64) -> String {
    if bytes_per_second.is_finite() {
        format!("{}/s", binary(bytes_per_second))
    } else {
        NO_NUMBER.to_owned()
    }
}

/// `12,830/s`, `0.512/s`
pub fn rate(per_second: f64) -> String {
    with_unit(per_second, "/s")
}

/// `1,500/min`
pub fn rate_per_minute(per_minute: f64) -> String {
    with_unit(per_minute, "/min")
}

/// `12.3 µs`, `1.85 ms`, `2.04 s`, from nanoseconds
pub fn latency(nanoseconds: f64) -> String {
    // The limits are the values at which three digits would round up to 1,000.
    if nanoseconds < 999.5e3 {
        with_unit(nanoseconds / 1e3, " µs")
    } else if nanoseconds < 999.5e6 {
        with_unit(nanoseconds / 1e6, " ms")
    } else {
        with_unit(nanoseconds / 1e9, " s")
    }
}

/// `12,830 blocks/s`, from the number and what follows it, here ` blocks/s`
pub fn with_unit(value: f64, unit: &str) -> String {
    if value.is_finite() { format!("{}{unit}", significant(value)) } else { NO_NUMBER.to_owned() }
}

fn binary(bytes: f64) -> String {
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < BINARY.len() {
        value /= 1024.0;
        unit += 1;
    }
    let number = if value.fract() == 0.0 { integer(value) } else { significant(value) };
    format!("{number} {}", BINARY[unit])
}

/// Three significant digits below 1,000, three decimals below 1, whole numbers above.
fn significant(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.9995 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => integer(value),
    }
}

fn integer(value: f64) -> String {
    let sign = if value <= -0.5 { "-" } else { "" };
    format!("{sign}{}", count(value.abs().round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(115_470), "115,470");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn bytes_are_binary() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1,023 B");
        assert_eq!(bytes(8192), "8 KiB");
        assert_eq!(bytes(200 << 20), "200 MiB");
        assert_eq!(bytes(1_565_000_000), "1.46 GiB");
        assert_eq!(bytes((1 << 20) - 1), "1.00 MiB");
        assert_eq!(bytes(u64::MAX), "16,384 PiB");
        assert_eq!(byte_rate(5e6), "4.77 MiB/s");
    }

    #[test]
    fn rates_and_latencies_have_three_digits() {
        assert_eq!(rate(12_830.4), "12,830/s");
        assert_eq!(rate(0.512), "0.512/s");
        assert_eq!(rate(9.996), "10.0/s");
        assert_eq!(rate_per_minute(1500.4), "1,500/min");
        for nothing in [f64::NAN, f64::INFINITY] {
            assert_eq!([rate(nothing), latency(nothing), byte_rate(nothing)], ["n/a"; 3]);
        }
        assert_eq!(latency(350.0), "0.350 µs");
        assert_eq!(latency(12_340.0), "12.3 µs");
        assert_eq!(latency(999_600.0), "1.00 ms");
        assert_eq!(latency(1_850_000.0), "1.85 ms");
        assert_eq!(latency(2.04e9), "2.04 s");
        assert_eq!(latency(0.0), "0 µs");
        assert_eq!(rate(-1234.0), "-1,234/s");
    }

    proptest! {
        #[test]
        fn counts_read_back(n in any::<u64>()) {
            prop_assert_eq!(count(n).replace(',', "").parse::<u64>().unwrap(), n);
        }

        #[test]
        fn a_displayed_latency_is_within_rounding_of_its_value(nanoseconds in 1e3_f64..1e12) {
            let text = latency(nanoseconds);
            let (number, unit) = text.split_once(' ').unwrap();
            let factor = match unit { "µs" => 1e3, "ms" => 1e6, _ => 1e9 };
            let read = number.replace(',', "").parse::<f64>().unwrap() * factor;
            prop_assert!((read / nanoseconds - 1.0).abs() < 0.006, "{}", text);
        }
    }
}
