//! Numbers of a report as text: metric values in their unit, changes in per cent.
//!
//! The minus is U+2212, as wide as the plus. Sizes and latencies are `units::human`'s; here is
//! only what knows metrics and ratios.

use std::fmt;

use pgio_results::units::human;
use pgio_results::{Metric, joint};
use pgio_verdict::{Bound, Interval, MAX_FACTOR};

/// Shown if there is no number.
pub const NONE: &str = "–";
/// What `~` means.
pub const NOT_DECIDED: &str = "~ not decided: the interval includes no change.";

/// At least three significant digits where they are needed (from 0.01 to 0.1: two), grouped whole numbers from 1,000;
/// what is whole stays whole.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        _ if size.fract() == 0.0 || size >= 99.95 => human::count(size.round() as u64),
        // Three digits of small values, as many as twelve places behind the point.
        _ if size < 0.00995 => {
            let zeros = (-size.log10()).ceil().clamp(1.0, 10.0) as usize;
            format!("{size:.*}", zeros + 2)
        }
        _ if size < 0.9995 => format!("{size:.3}"),
        _ if size < 9.995 => format!("{size:.2}"),
        _ => format!("{size:.1}"),
    };
    if value < 0.0 { format!("−{text}") } else { text }
}

/// Before a value that is a lower bound, and before an effect that is one.
pub(super) const AT_LEAST: &str = "≥ ";
/// Before an effect that is an upper bound.
pub const AT_MOST: &str = "≤ ";

/// `2,919 commits/s`, `≥ 355 ms`, `4.77 MiB/s`, `10.1 %`, `3 checkpoints`
pub(super) fn metric(metric: &Metric) -> String {
    match metric.value {
        Some(value) if value.is_finite() => marked(quantity(value, &metric.unit), metric.at_least),
        _ => NONE.to_owned(),
    }
}

/// As [`metric`], without the unit of a rate, which the heading has: `2,919`.
pub(super) fn metric_below_heading(metric: &Metric) -> String {
    match metric.value {
        Some(value) if value.is_finite() && is_counted_rate(&metric.unit) => {
            marked(number(value), metric.at_least)
        }
        _ => self::metric(metric),
    }
}

/// Whether it is the rate of something counted. The unit of a rate of bytes depends on the value, so it stays
/// beside each.
fn is_counted_rate(unit: &str) -> bool {
    unit.ends_with("/s") && !unit.contains("B/s") && unit != "bytes/s"
}

/// With its mark, where the value is a lower bound.
pub fn marked(text: String, at_least: bool) -> String {
    if at_least { format!("{AT_LEAST}{text}") } else { text }
}

pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "s" => seconds(value),
        "bytes" => human::bytes(value.max(0.0).round() as u64),
        "bytes/s" => human::byte_rate(value),
        "share" => format!("{:.1} %", value * 100.0),
        _ => format!("{} {unit}", number(value)),
    }
}

/// `0.310 / 0.522 / ≥ 1.10 ms`: seconds, each with whether it is a lower bound, all in the unit of
/// the largest.
pub fn side_by_side(values: &[Option<(f64, bool)>]) -> Option<String> {
    let largest = values.iter().flatten().map(|(v, _)| *v).reduce(f64::max)?;
    let (factor, unit) = time_unit(largest);
    let one = |v: &Option<(f64, bool)>| match v {
        Some((value, at_least)) => marked(number(value * factor), *at_least),
        None => NONE.to_owned(),
    };
    let shown: Vec<String> = values.iter().map(one).collect();
    Some(format!("{} {unit}", shown.join(" / ")))
}

/// Without the unit, where the heading or the axis has it.
pub fn bare(value: f64, unit: &str) -> String {
    match unit {
        "s" | "bytes" | "bytes/s" => quantity(value, unit),
        _ => number(value),
    }
}

pub fn seconds(value: f64) -> String {
    let text = human::latency(value.abs() * 1e9);
    if value < 0.0 { format!("−{text}") } else { text }
}

/// A change in per cent from its ratio, with as many decimals as its neighbors.
fn signed(ratio: f64, decimals: usize) -> String {
    let change = (ratio - 1.0) * 100.0;
    let sign = if change < 0.0 { '−' } else { '+' };
    format!("{sign}{:.decimals$}", change.abs())
}

/// In place of a ratio above [`MAX_FACTOR`].
const BEYOND: &str = "> ×100";

/// Enough decimals that no change but none at all prints as zero: a bound that prints as 0.0 would
/// seem to contradict its verdict. A change that even [`MAX_DECIMALS`] do not show counts as none: a
/// bound that the verdict cut at 1 lies a rounding error beyond it.
fn decimals(ratios: &[f64]) -> usize {
    let shown = || ratios.iter().filter(|r| shows(**r, MAX_DECIMALS));
    (1..MAX_DECIMALS).find(|d| shown().all(|r| shows(*r, *d))).unwrap_or(MAX_DECIMALS)
}

/// Whether this many decimals show that the ratio is not 1.
fn shows(ratio: f64, decimals: usize) -> bool {
    (ratio - 1.0).abs() * 100.0 >= 0.5 / 10f64.powi(decimals as i32)
}

const MAX_DECIMALS: usize = 4;

/// `−53.5 %`
pub(super) fn change(ratio: f64) -> String {
    percent(ratio, decimals(&[ratio]))
}

fn percent(ratio: f64, decimals: usize) -> String {
    if ratio > MAX_FACTOR { BEYOND.to_owned() } else { format!("{} %", signed(ratio, decimals)) }
}

/// A change, and what is known of its interval: `−53.5 % [−55.0, −51.9]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeText {
    /// `−53.5 %`, `≥ +53.5 %`
    pub(super) value: String,
    /// `[−55.0, −51.9]`, `[from +51.9]`
    pub(super) interval: Option<String>,
}

impl fmt::Display for ChangeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.value)?;
        self.interval.iter().try_for_each(|interval| write!(f, " {interval}"))
    }
}

/// `[−55.0, −51.9]`; an open end is shown as `–` or `> ×100`. `None` if both are open.
pub fn interval(known: Interval) -> Option<String> {
    let ends: Vec<f64> = known.low.into_iter().chain(known.high).collect();
    let d = decimals(&ends);
    let end = |ratio: f64| if ratio > MAX_FACTOR { BEYOND.to_owned() } else { signed(ratio, d) };
    let low = known.low.map_or_else(|| NONE.to_owned(), end);
    let high = known.high.map_or_else(|| BEYOND.to_owned(), end);
    let is_known = |end: &f64| *end <= MAX_FACTOR;
    ends.iter().any(is_known).then(|| format!("[{low}, {high}]"))
}

/// `−53.5 % [−55.0, −51.9]`; of an effect that is a bound, `≥ +53.5 % [from +51.9]` or `≤ −53.5 % [to −51.9]`;
/// without an interval if neither end is known.
pub fn change_as_known(ratio: f64, known: Interval, bound: Option<Bound>) -> ChangeText {
    let (mark, word, end) = match bound {
        None => {
            let ends = [Some(ratio), known.low, known.high];
            let d = decimals(&ends.into_iter().flatten().collect::<Vec<_>>());
            return ChangeText { value: percent(ratio, d), interval: interval(known) };
        }
        Some(Bound::AtLeast) => (AT_LEAST, "from", known.low),
        Some(Bound::AtMost) => (AT_MOST, "to", known.high),
    };
    let Some(end) = end else {
        return ChangeText { value: format!("{mark}{}", change(ratio)), interval: None };
    };
    let d = decimals(&[ratio, end]);
    ChangeText {
        value: format!("{mark}{}", percent(ratio, d)),
        interval: Some(format!("[{word} {}]", signed(end, d))),
    }
}

/// The size of a change and its bounds without signs, ascending: `53.5 %`, `51.9 to 55.0 %`. Bounds on
/// both sides of no change keep their signs: `−1.2 to +5.0 %`.
pub(super) fn size_with_interval(ratio: f64, known: Interval) -> (String, String) {
    let (low, high) = (known.low.unwrap_or(0.0), known.high.unwrap_or(f64::INFINITY));
    let d = decimals(&[ratio, low, high]);
    let size = |r: f64| {
        if r > MAX_FACTOR {
            BEYOND.to_owned()
        } else {
            format!("{:.d$}", ((r - 1.0) * 100.0).abs())
        }
    };
    let unit = |text: String| if text == BEYOND { text } else { format!("{text} %") };
    let shown = unit(size(ratio));
    if low < 1.0 && high > 1.0 && shows(low, MAX_DECIMALS) && shows(high, MAX_DECIMALS) {
        let high = if high > MAX_FACTOR { BEYOND.to_owned() } else { signed(high, d) };
        return (shown, format!("{} to {}", signed(low, d), unit(high)));
    }
    let (near, far) = if high > 1.0 { (low, high) } else { (high, low) };
    (shown, format!("{} to {}", size(near), unit(size(far))))
}

/// The size of a relative change: `±4.1 %` without the sign.
pub fn size(relative: f64) -> String {
    let d = decimals(&[1.0 + relative]);
    format!("{:.d$} %", relative.abs() * 100.0)
}

/// A change that is detected in either direction: `a loss of 12.8 % or a gain of 14.7 %`. A loss of so many per cent
/// and a gain of as many are not equally far from no change.
pub fn loss_or_gain(relative: f64) -> String {
    format!("a loss of {} or a gain of {}", size(fall(relative)), size(relative))
}

/// The fall that is as far from no change as this rise: 0.5 for 1.
pub(super) fn fall(rise: f64) -> f64 {
    rise / (1.0 + rise)
}

/// `2.1 s`, `34 min`, `5.2 h`, `3.1 days`
pub(super) fn long_time(seconds: f64) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    match seconds {
        s if s < 2.0 * MINUTE => format!("{s:.1} s"),
        s if s < 2.0 * HOUR => format!("{:.1} min", s / MINUTE),
        s if s < 2.0 * DAY => format!("{:.1} h", s / HOUR),
        s => format!("{:.1} days", s / DAY),
    }
}

/// A metric's name as people read it: `commits/s`, `commit latency p95`, `WAL bytes/s`.
pub fn metric_name(name: &str) -> String {
    if let Some((metric, target)) = joint::split_name(name) {
        return format!("{} of {target}", metric_name(metric));
    }
    match rate_name(name) {
        Some(RateName { things, per }) => format!("{things}/{per}"),
        None => words(&name.replace("p99_9", "p99.9")),
    }
}

/// The name of a rate: what it counts, and the unit of time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RateName {
    /// `commits`, `WAL bytes`
    pub(super) things: String,
    per: &'static str,
}

/// `None` for what is no rate, and for the metric of one of several servers.
pub(super) fn rate_name(name: &str) -> Option<RateName> {
    if joint::split_name(name).is_some() {
        return None;
    }
    let rate = |suffix: &str, per: &'static str| {
        Some(RateName { things: words(name.strip_suffix(suffix)?), per })
    };
    rate("_per_second", "s").or_else(|| rate("_per_minute", "min"))
}

/// The words of an identifier.
fn words(name: &str) -> String {
    match name.strip_prefix("wal_") {
        Some(rest) => format!("WAL {}", rest.replace('_', " ")),
        None => name.replace('_', " "),
    }
}

/// `1 block`, `6 blocks`
pub fn counted(n: usize, what: &str) -> String {
    format!("{} {what}{}", human::count(n as u64), if n == 1 { "" } else { "s" })
}

/// Small numbers in words, as sentences have them.
pub fn small(n: usize) -> String {
    const WORDS: [&str; 7] = ["no", "one", "two", "three", "four", "five", "six"];
    WORDS.get(n).map_or_else(|| human::count(n as u64), |word| (*word).to_owned())
}

/// `1.02 ± 0.05 ms`: both in the unit of the larger.
pub fn seconds_with_error(value: f64, error: f64) -> String {
    let (factor, unit) = time_unit(value.abs().max(error));
    let error = error * factor;
    // One digit of an error is enough.
    let error =
        if (0.00095..0.00995).contains(&error) { format!("{error:.3}") } else { number(error) };
    format!("{} ± {error} {unit}", number(value * factor))
}

/// The error of seconds, if known.
pub fn plus_minus(error: Option<f64>) -> String {
    error.map_or_else(String::new, |e| format!(" ± {}", seconds(e)))
}

/// The unit for a time of this size, and the number of units per second.
pub fn time_unit(seconds: f64) -> (f64, &'static str) {
    if seconds < 999.5e-6 {
        (1e6, "µs")
    } else if seconds < 0.9995 {
        (1e3, "ms")
    } else {
        (1.0, "s")
    }
}

/// `+1.10 ms`, `−20.0 µs`
pub fn signed_seconds(value: f64) -> String {
    if value < 0.0 { seconds(value) } else { format!("+{}", seconds(value)) }
}

/// `2026-11-20 12:00 UTC`; an unparsable time is shown unchanged.
pub(super) fn moment(text: &str) -> String {
    match text.parse::<jiff::Timestamp>() {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_and_a_gain_are_equally_far_from_no_change() {
        assert_eq!(loss_or_gain(0.147), "a loss of 12.8 % or a gain of 14.7 %");
        assert_eq!(loss_or_gain(1.301), "a loss of 56.5 % or a gain of 130.1 %");
    }

    #[test]
    fn values_carry_their_unit() {
        let shown = |value, unit: &str| metric(&Metric::new(value, unit));
        assert_eq!(shown(Some(2919.4), "commits/s"), "2,919 commits/s");
        assert_eq!(shown(Some(0.00185), "s"), "1.85 ms");
        assert_eq!(shown(Some(5e6), "bytes/s"), "4.77 MiB/s");
        assert_eq!(shown(Some(10.12), "%"), "10.1 %");
        assert_eq!(shown(Some(0.0833), "share"), "8.3 %");
        let cut = Metric { at_least: true, ..Metric::new(Some(0.355), "s") };
        assert_eq!(metric(&cut), "≥ 355 ms");
        let below = |value, unit: &str| metric_below_heading(&Metric::new(value, unit));
        assert_eq!(below(Some(2919.4), "commits/s"), "2,919");
        assert_eq!(below(Some(5e6), "bytes/s"), "4.77 MiB/s");
        assert_eq!(below(Some(12.0), "MB/s"), "12 MB/s");
        assert_eq!(below(Some(0.00185), "s"), "1.85 ms");
        assert_eq!(below(None, "commits/s"), "–");
        assert_eq!(shown(None, "s"), "–");
        assert_eq!(shown(Some(f64::NAN), "s"), "–");
        assert_eq!(number(-0.05), "−0.050");
        assert_eq!([number(0.0004), number(-1.234e-7)], ["0.000400", "−0.000000123"]);
        // A median of 1.49 ms beside a p99 of more than a second.
        assert_eq!(
            [number(0.00149), number(0.00151), number(0.00996)],
            ["0.00149", "0.00151", "0.010"]
        );
        assert_eq!([number(1.0), number(0.0), number(1.5)], ["1", "0", "1.50"]);
    }

    #[test]
    fn changes_have_a_sign_and_one_decimal() {
        let shown = |ratio, low, high| change_as_known(ratio, Interval::new(low, high), None);
        assert_eq!(shown(0.465, 0.45, 0.481).to_string(), "−53.5 % [−55.0, −51.9]");
        // A bound that the verdict cut at 1.
        assert_eq!(shown(1.0239, 1.000_000_000_9, 1.053).to_string(), "+2.4 % [+0.0, +5.3]");
        assert_eq!(change(1.023), "+2.3 %");
        let at_least = Interval { low: Some(1.5), high: None };
        let bounded = |ratio, known, bound| change_as_known(ratio, known, Some(bound)).to_string();
        assert_eq!(bounded(1.535, at_least, Bound::AtLeast), "≥ +53.5 % [from +50.0]");
        let at_most = Interval { low: None, high: Some(0.55) };
        assert_eq!(bounded(0.5, at_most, Bound::AtMost), "≤ −50.0 % [to −45.0]");
        assert_eq!(change_as_known(0.5, Interval::UNKNOWN, None).to_string(), "−50.0 %");
        let size = |ratio, low, high| size_with_interval(ratio, Interval::new(low, high));
        assert_eq!(size(0.465, 0.45, 0.481), ("53.5 %".into(), "51.9 to 55.0 %".into()));
        assert_eq!(size(1.02, 0.988, 1.05), ("2.0 %".into(), "−1.2 to +5.0 %".into()));
        assert_eq!(change(1.0), "+0.0 %");
    }

    /// Six blocks cannot resolve seventy comparisons; their bounds were numbers of up to 249 digits.
    #[test]
    fn no_number_exceeds_a_hundredfold() {
        let wide = change_as_known(0.763, Interval { low: None, high: None }, None);
        assert_eq!(wide.to_string(), "−23.7 %");
        let above = change_as_known(1.5, Interval { low: Some(0.9), high: None }, None);
        assert_eq!(above.to_string(), "+50.0 % [−10.0, > ×100]");
        let below = change_as_known(0.5, Interval { low: None, high: Some(1.2) }, None);
        assert_eq!(below.to_string(), "−50.0 % [–, +20.0]");
        assert_eq!([change(1.2e170), change(100.0)], ["> ×100", "+9900.0 %"]);
        let huge = change_as_known(1e170, Interval::new(1e90, 1e200), None).to_string();
        assert_eq!(huge, "> ×100");
        let size = size_with_interval(50.0, Interval { low: Some(20.0), high: None });
        assert_eq!(size, ("4900.0 %".into(), "1900.0 to > ×100".into()));
    }

    #[test]
    fn interval_bounds_near_no_change_are_not_rounded_to_it() {
        assert_eq!(interval(Interval::new(0.98, 0.9998)).unwrap(), "[−2.00, −0.02]");
    }

    #[test]
    fn metric_names_are_displayed_in_words() {
        assert_eq!(metric_name("commits_per_second"), "commits/s");
        assert_eq!(metric_name("messages_per_minute"), "messages/min");
        assert_eq!(metric_name("commit_latency_p95"), "commit latency p95");
        assert_eq!(metric_name("wal_bytes_per_commit"), "WAL bytes per commit");
        assert_eq!(metric_name("wal_bytes_per_second"), "WAL bytes/s");
        assert_eq!(metric_name("commits_per_second@a"), "commits/s of a");
        assert_eq!(rate_name("commits_per_second").unwrap().things, "commits");
        assert_eq!(rate_name("commits_per_second@a"), None);
        assert_eq!(rate_name("commit_latency_p95"), None);
        assert_eq!(
            (counted(1, "block"), counted(6, "block")),
            ("1 block".into(), "6 blocks".into())
        );
    }
}
