//! Compares the values of settings without the server: whether two spellings mean the same
//! (`5min` and `300`, `on` and `true`), and whether the server would accept a value.
//!
//! The server checks at SET or ALTER SYSTEM, which is too late for a value that is
//! applied after hours of other trials. Only the server can judge the values of string settings.

use pgio_connect::{Client, Row};

use crate::pg::words::{self, Shown};

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

// Settings in the server's configuration files that are not in force yet: somebody prepared them for a restart or a
// reload, which pgio must not anticipate. What the role may not read is left out. Names only, since a value may be a
// secret.

/// For a role that may not see files. The server sets the mark at a reload and does not see that somebody took the
/// change back since.
const MARKED: &str = "SELECT name FROM pg_settings WHERE pending_restart \
    AND source NOT IN ('command line', 'environment variable', 'override') ORDER BY name";
/// Lines that were removed have no other trace.
const REMOVED: &str = "SELECT p.name FROM pg_settings p \
    WHERE p.pending_restart AND p.source = 'configuration file' \
      AND NOT EXISTS (SELECT FROM pg_file_settings f WHERE lower(f.name) = lower(p.name)) ORDER BY 1";
/// A line that waits for a restart has this error, too. A removed one has an entry without name and file.
const BROKEN: &str = "SELECT coalesce(name, sourcefile || ' line ' || sourceline) FROM pg_file_settings \
    WHERE error IS NOT NULL AND error <> 'setting could not be applied' \
      AND coalesce(name, sourcefile) IS NOT NULL ORDER BY seqno";
const NOT_APPLIED: &str = include_str!("sql/not_applied.sql");
const NOT_LOADED: &str = include_str!("sql/not_loaded.sql");

/// What a reload would put in force. With a line that cannot be read a reload puts nothing in force: then that line.
pub fn for_reload(client: &mut Client) -> Result<Vec<String>, pgio_connect::Error> {
    let mut names = names(client, BROKEN)?;
    if names.is_empty() {
        for row in readable(client, NOT_LOADED)? {
            names.extend(not_loaded(&row)?);
        }
    }
    names.dedup();
    Ok(names)
}

/// What a restart would put in force, and what would keep the server from starting.
pub fn for_restart(client: &mut Client) -> Result<Vec<String>, pgio_connect::Error> {
    let mut all = for_reload(client)?;
    let sees_files = "SELECT has_table_privilege('pg_file_settings', 'SELECT') \
        AND has_function_privilege('pg_show_all_file_settings()', 'EXECUTE')";
    let queries: &[&str] = if client.query_one(sees_files, &[])?.try_get(0)? {
        &[REMOVED, NOT_APPLIED]
    } else {
        &[MARKED]
    };
    for query in queries {
        all.extend(names(client, query)?);
    }
    all.sort();
    all.dedup();
    Ok(all)
}

fn names(client: &mut Client, query: &str) -> Result<Vec<String>, pgio_connect::Error> {
    readable(client, query)?.iter().map(|row| row.try_get(0)).collect()
}

/// Only a superuser or a role with grants may see files.
fn readable(client: &mut Client, query: &str) -> Result<Vec<Row>, pgio_connect::Error> {
    match client.query(query, &[]) {
        Err(error) if words::is_denied(&error) => Ok(Vec::new()),
        other => other,
    }
}

fn not_loaded(row: &Row) -> Result<Option<String>, pgio_connect::Error> {
    let setting: Option<Shown> = row.try_get("setting")?;
    let found = SettingDescription {
        setting: setting.map_or_else(String::new, String::from),
        unit: row.try_get("unit")?,
        vartype: row.try_get("vartype")?,
        range: row.try_get::<_, Option<f64>>("low")?.zip(row.try_get("high")?),
        choices: row.try_get("choices")?,
        ..SettingDescription::default()
    };
    let in_file: Option<Shown> = row.try_get("in_file")?;
    let same = in_file.is_some_and(|in_file| is_same(&found, &in_file.0));
    if same { Ok(None) } else { row.try_get("name").map(Some) }
}

/// The server shows some values in another spelling than the file: `iso, mdy` as `ISO, MDY`. What is not surely
/// another value counts as the same.
fn is_same(found: &SettingDescription, in_file: &str) -> bool {
    let bare = |text: &str| text.to_ascii_lowercase().replace(['"', ' ', '-', '_'], "");
    match found.vartype.as_str() {
        "string" => bare(&found.setting) == bare(in_file),
        // Such as a hidden synonym of an enum, or a hexadecimal number.
        _ => is_current_value(found, in_file) || refusal(found, in_file).is_some(),
    }
}

/// Parts of such names. Extensions name theirs as they like.
pub const WORDS: [&str; 12] = [
    "command",
    "conninfo",
    "passw",
    "passphrase",
    "secret",
    "token",
    "salt",
    "credential",
    "dsn",
    "uri",
    "url",
    "key",
];

const HIDDEN: &str = "(not shown, because it might contain a password)";

/// Returns the value of a setting as messages show it.
pub fn shown<'a>(name: &str, value: &'a str) -> &'a str {
    if may_hold_secret(name) && !value.is_empty() { HIDDEN } else { value }
}

/// As [`shown`], in quotes unless it is hidden.
pub fn quoted(name: &str, value: &str) -> String {
    match shown(name, value) {
        HIDDEN => HIDDEN.to_owned(),
        value => format!("`{value}`"),
    }
}

pub fn may_hold_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
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

    #[test]
    fn another_spelling_of_the_value_is_not_a_pending_change() {
        let same = |vartype: &str, unit: Option<&str>, setting: &str, in_file: &str| {
            let found = SettingDescription {
                setting: setting.to_owned(),
                unit: unit.map(str::to_owned),
                vartype: vartype.to_owned(),
                range: Some((0.0, 1e9)),
                choices: vec!["minimal".to_owned(), "replica".to_owned()],
                ..SettingDescription::default()
            };
            is_same(&found, in_file)
        };
        assert!(same("string", None, "ISO, MDY", "iso, mdy"));
        assert!(same("string", None, "UTF8", "utf-8") && !same("string", None, "a", "b"));
        assert!(same("integer", Some("kB"), "4096", "4MB") && same("integer", None, "16", "0x10"));
        assert!(!same("integer", Some("kB"), "4096", "9MB"));
        assert!(same("enum", None, "replica", "hot_standby"), "a hidden synonym");
        assert!(!same("enum", None, "replica", "minimal"));
        assert!(same("bool", None, "on", "tru") && !same("bool", None, "on", "off"));
    }

    #[test]
    fn names_are_recognized_by_a_part() {
        for name in ["primary_conninfo", "restore_command", "myExtension.ApiToken", "ssl_key_file"]
        {
            assert!(may_hold_secret(name), "{name}");
        }
        assert!(!may_hold_secret("checkpoint_timeout"));
    }

    #[test]
    fn values_that_may_hold_a_secret_are_not_shown() {
        let command = "curl -u me:geheim https://archive/%f";
        assert!(!shown("archive_command", command).contains("geheim"));
        assert_eq!(shown("archive_command", ""), "");
        assert_eq!(shown("work_mem", "4MB"), "4MB");
        assert_eq!(quoted("archive_command", command), HIDDEN);
        assert_eq!(quoted("work_mem", "4MB"), "`4MB`");
    }
}
