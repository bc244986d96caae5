//! Compares the values of settings without the server: whether two spellings mean the same
//! (`5min` and `300`, `on` and `true`), and whether the server would accept a value.
//!
//! The server checks at SET or ALTER SYSTEM, which is too late for a value that is
//! applied after hours of other trials. Only the server can judge the values of string settings.

/// A setting as pg_settings describes it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SettingDescription {
    pub setting: String,
    pub unit: Option<String>,
    pub vartype: String,
    pub context: String,
    /// Where the value comes from, such as `configuration file`.
    pub source: String,
    /// The range of a number.
    pub range: Option<(f64, f64)>,
    /// The values of an enum, without hidden synonyms.
    pub choices: Vec<String>,
}

/// Returns why the server would refuse the value.
pub fn refusal(described: &SettingDescription, asked: &str) -> Option<String> {
    match described.vartype.as_str() {
        "bool" => parse_bool(asked).is_none().then(|| "it is on or off".to_owned()),
        "integer" | "real" => {
            let unit = described.unit.as_deref();
            let (low, high) = described.range?;
            let range = format!(
                "it is {low} to {high}{}",
                unit.map_or(String::new(), |u| format!(" (unit {u})"))
            );
            // The server rounds before it compares.
            let fits = |n: f64| n >= low - 0.5 && n <= high + 0.5;
            let fits_real = |n: f64| n >= low && n <= high;
            match parse_number(asked, unit) {
                Some(n) if described.vartype == "real" && fits_real(n) => None,
                Some(n) if described.vartype == "integer" && fits(n) => None,
                _ => Some(range),
            }
        }
        "enum" => {
            let is = |choice: &String| {
                choice.eq_ignore_ascii_case(asked)
                    || parse_bool(asked).is_some_and(|a| parse_bool(choice) == Some(a))
            };
            (!described.choices.iter().any(is))
                .then(|| format!("it is one of {}", described.choices.join(", ")))
        }
        _ => None,
    }
}

/// Returns whether `asked` means the server's current value.
pub fn is_current_value(described: &SettingDescription, asked: &str) -> bool {
    let found = described.setting.as_str();
    match described.vartype.as_str() {
        "bool" => parse_bool(asked).is_some() && parse_bool(asked) == parse_bool(found),
        "integer" | "real" => {
            match (parse_number(asked, described.unit.as_deref()), found.parse::<f64>()) {
                (Some(asked), Ok(found)) => {
                    // The server rounds integers to whole units, and shows six digits of a real number.
                    let rounding = match described.vartype.as_str() {
                        "integer" => 0.5,
                        _ => 1e-5 * asked.abs(),
                    };
                    (asked - found).abs() <= rounding
                }
                _ => asked == found,
            }
        }
        "enum" => {
            asked.eq_ignore_ascii_case(found)
                || parse_bool(asked).is_some_and(|a| parse_bool(found) == Some(a))
        }
        _ => asked == found,
    }
}

/// Returns whether `asked` is a number above the server's current value.
pub fn exceeds_current(described: &SettingDescription, asked: &str) -> bool {
    let asked = parse_number(asked, described.unit.as_deref());
    let found = described.setting.parse::<f64>().ok();
    // The server rounds to whole units.
    asked.zip(found).is_some_and(|(asked, found)| asked.round() > found)
}

/// Parses a boolean as the server does, without unambiguous prefixes.
fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// Parses a number with an optional unit of time or memory, in the setting's own unit.
fn parse_number(text: &str, own: Option<&str>) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c)));
    // `1e3` is a number, `1e` of nothing is not; units never begin with an E of their own.
    let (value, unit) = text.split_at(digits.unwrap_or(text.len()));
    let value: f64 = value.parse().ok()?;
    match unit.trim() {
        "" => Some(value),
        unit => {
            let (dimension, factor) = unit_scale(unit)?;
            let (own_dimension, own_factor) = own.and_then(setting_unit_scale)?;
            (dimension == own_dimension).then_some(value * factor / own_factor)
        }
    }
}

/// A setting's own unit may carry a factor, such as `8kB`.
fn setting_unit_scale(unit: &str) -> Option<(Dimension, f64)> {
    let digits = unit.find(|c: char| !c.is_ascii_digit())?;
    let factor = if digits == 0 { 1.0 } else { unit[..digits].parse().ok()? };
    let (dimension, scale) = unit_scale(&unit[digits..])?;
    Some((dimension, factor * scale))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Memory,
    Time,
}

/// The factor to bytes or microseconds.
fn unit_scale(unit: &str) -> Option<(Dimension, f64)> {
    use Dimension::{Memory, Time};
    Some(match unit {
        "B" => (Memory, 1.0),
        "kB" => (Memory, 1024.0),
        "MB" => (Memory, 1024.0 * 1024.0),
        "GB" => (Memory, 1024.0 * 1024.0 * 1024.0),
        "TB" => (Memory, 1024.0 * 1024.0 * 1024.0 * 1024.0),
        "us" => (Time, 1.0),
        "ms" => (Time, 1e3),
        "s" => (Time, 1e6),
        "min" => (Time, 60e6),
        "h" => (Time, 3600e6),
        "d" => (Time, 86400e6),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(vartype: &str, unit: Option<&str>, setting: &str) -> SettingDescription {
        SettingDescription {
            setting: setting.to_owned(),
            unit: unit.map(str::to_owned),
            vartype: vartype.to_owned(),
            context: "user".to_owned(),
            ..SettingDescription::default()
        }
    }

    #[test]
    fn invalid_values_are_detected() {
        let delay = SettingDescription {
            range: Some((1.0, 10_000.0)),
            ..setting("integer", Some("ms"), "200")
        };
        assert_eq!(refusal(&delay, "1s"), None);
        assert_eq!(refusal(&delay, "10000"), None);
        for wrong in ["11s", "0", "ten", "1kB", "1 parsec", ""] {
            assert!(refusal(&delay, wrong).is_some(), "{wrong}");
        }
        let target = SettingDescription { range: Some((0.0, 1.0)), ..setting("real", None, "0.9") };
        assert_eq!(refusal(&target, "0.5"), None);
        assert_eq!(refusal(&target, "1.2"), Some("it is 0 to 1".to_owned()));
        let choices = ["local", "on", "off"].map(str::to_owned).to_vec();
        let commit = SettingDescription { choices, ..setting("enum", None, "on") };
        assert_eq!(refusal(&commit, "LOCAL"), None);
        assert_eq!(refusal(&commit, "yes"), None);
        assert!(refusal(&commit, "banana").is_some());
        assert!(refusal(&setting("bool", None, "on"), "perhaps").is_some());
        assert_eq!(refusal(&setting("string", None, "a"), "anything"), None);
    }

    #[test]
    fn is_current_value_accepts_any_spelling_of_the_value() {
        assert!(is_current_value(&setting("integer", Some("s"), "300"), "5min"));
        assert!(is_current_value(&setting("integer", Some("8kB"), "16384"), "128MB"));
        assert!(is_current_value(&setting("integer", None, "20000"), "20000"));
        assert!(is_current_value(&setting("bool", None, "off"), "false"));
        assert!(is_current_value(&setting("enum", None, "on"), "true"));
        assert!(is_current_value(&setting("enum", None, "remote_apply"), "REMOTE_APPLY"));
        assert!(is_current_value(&setting("real", Some("ms"), "0.5"), "0.5"));
        assert!(is_current_value(&setting("real", Some("ms"), "0.5"), "500us"));
        assert!(is_current_value(&setting("real", None, "0.333333"), "0.33333333"));
        assert!(is_current_value(&setting("real", None, "0"), "0"));
    }

    #[test]
    fn is_current_value_rejects_other_values() {
        assert!(!is_current_value(&setting("integer", Some("s"), "300"), "6min"));
        assert!(!is_current_value(&setting("integer", Some("s"), "300"), "5MB2"));
        assert!(!is_current_value(&setting("real", None, "0.9"), "0.5"));
        assert!(!is_current_value(&setting("real", None, "0.2"), "0.01"));
        assert!(!is_current_value(&setting("bool", None, "on"), "off"));
        assert!(!is_current_value(&setting("enum", None, "local"), "on"));
        assert!(!is_current_value(&setting("string", None, "a"), "b"));
    }
}
