//! Whether two spellings of a setting's value mean the same: `5min` and `300`, `on` and `true`.

/// A setting as pg_settings describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Described {
    pub setting: String,
    pub unit: Option<String>,
    pub vartype: String,
    pub context: String,
}

/// Whether `asked` is what the server now has.
pub(super) fn agree(described: &Described, asked: &str) -> bool {
    let found = described.setting.as_str();
    match described.vartype.as_str() {
        "bool" => truth(asked).is_some() && truth(asked) == truth(found),
        "integer" | "real" => {
            match (number(asked, described.unit.as_deref()), found.parse::<f64>()) {
                // The server rounds to whole units.
                (Some(asked), Ok(found)) => (asked - found).abs() <= 0.5,
                _ => asked == found,
            }
        }
        "enum" => asked.eq_ignore_ascii_case(found) || truth(asked).is_some_and(|a| truth(found) == Some(a)),
        _ => asked == found,
    }
}

/// As the server reads a boolean, unambiguous prefixes left out.
fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// A number with an optional unit of time or memory, in the setting's own unit.
fn number(text: &str, own: Option<&str>) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c)));
    // `1e3` is a number, `1e` of nothing is not; units never begin with an E of their own.
    let (value, unit) = text.split_at(digits.unwrap_or(text.len()));
    let value: f64 = value.parse().ok()?;
    match unit.trim() {
        "" => Some(value),
        unit => Some(value * scale(unit)? / own.and_then(own_scale)?),
    }
}

/// A setting's own unit may carry a factor, such as `8kB`.
fn own_scale(unit: &str) -> Option<f64> {
    let digits = unit.find(|c: char| !c.is_ascii_digit())?;
    let factor = if digits == 0 { 1.0 } else { unit[..digits].parse().ok()? };
    Some(factor * scale(&unit[digits..])?)
}

/// In bytes or microseconds.
fn scale(unit: &str) -> Option<f64> {
    Some(match unit {
        "B" => 1.0,
        "kB" => 1024.0,
        "MB" => 1024.0 * 1024.0,
        "GB" => 1024.0 * 1024.0 * 1024.0,
        "TB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "min" => 60e6,
        "h" => 3600e6,
        "d" => 86400e6,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(vartype: &str, unit: Option<&str>, setting: &str) -> Described {
        Described {
            setting: setting.to_owned(),
            unit: unit.map(str::to_owned),
            vartype: vartype.to_owned(),
            context: "user".to_owned(),
        }
    }

    #[test]
    fn spellings_of_one_value_agree() {
        assert!(agree(&setting("integer", Some("s"), "300"), "5min"));
        assert!(agree(&setting("integer", Some("8kB"), "16384"), "128MB"));
        assert!(agree(&setting("integer", None, "20000"), "20000"));
        assert!(agree(&setting("bool", None, "off"), "false"));
        assert!(agree(&setting("enum", None, "on"), "true"));
        assert!(agree(&setting("enum", None, "remote_apply"), "REMOTE_APPLY"));
        assert!(agree(&setting("real", Some("ms"), "0.5"), "0.5"));
    }

    #[test]
    fn different_values_do_not() {
        assert!(!agree(&setting("integer", Some("s"), "300"), "6min"));
        assert!(!agree(&setting("integer", Some("s"), "300"), "5MB2"));
        assert!(!agree(&setting("bool", None, "on"), "off"));
        assert!(!agree(&setting("enum", None, "local"), "on"));
        assert!(!agree(&setting("string", None, "a"), "b"));
    }
}
