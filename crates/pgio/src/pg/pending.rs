//! Settings in the server's configuration files that are not in force yet: somebody prepared them for a restart or
//! a reload, which pgio must not anticipate.
//!
//! Read-only. What the role may not read is left out. Names only, since a value may be a secret.

use crate::pg::words::{self, Shown};
use pgio_connect::{Client, Row};

use super::values::{SettingDescription, is_current_value, refusal};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
