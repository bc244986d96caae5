//! pgio.conf, the original's file: parsed like shell assignments, never executed.
//!
//! The original sources the file, so a plain assignment has the same meaning here as in bash, and so
//! has `$NAME` of an earlier line. Anything else that only a shell could evaluate is refused, with a hint. Unknown keys are errors,
//! because a misspelled key would silently leave its default in effect. `line` parses one line.

mod line;

use std::collections::BTreeMap;

use self::line::{Assignment, Variables};
use super::error::{ConfigError, nearest};
use super::keys::{KEYS, Key, Layer};
use pgio_results::Warning;

/// The original uses it for tracing.
const DEBUG_KEY: &str = "PGIO_DEBUG";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PgioConf {
    pub layer: Layer,
    pub warnings: Vec<Warning>,
}

/// Parses the text of a pgio.conf, with U+FFFD for what was not UTF-8; errors contain the name `file`.
pub fn parse(text: &str, file: &str) -> Result<PgioConf, ConfigError> {
    let mut conf = PgioConf::default();
    let mut seen = BTreeMap::new();
    let mut variables = Variables::default();
    let mut own: BTreeMap<&str, usize> = BTreeMap::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (at, line) in text.split('\n').enumerate() {
        let number = at + 1;
        let error = |key: Option<String>, message: String| ConfigError {
            file: file.to_owned(),
            line: number,
            key,
            message,
        };
        let line = line.strip_suffix('\r').unwrap_or(line);
        let Assignment { key, value } = match line::parse(line, &mut variables) {
            Ok(Some(assignment)) => assignment,
            Ok(None) => continue,
            Err(wrong) => return Err(error(wrong.key.map(str::to_owned), wrong.message)),
        };
        if value.contains(char::REPLACEMENT_CHARACTER) {
            let wrong = "is not UTF-8; convert the line, or keep a password in ~/.pgpass";
            return Err(error(Some(key.to_owned()), wrong.to_owned()));
        }
        variables.set(key, &value);
        if key == DEBUG_KEY {
            conf.warnings.push(debug_ignored(file, number));
            continue;
        }
        let Some(known) =
            KEYS.iter().filter(|k| k.is_conf_key()).find(|known| known.conf_name() == key)
        else {
            own.entry(key).or_insert(number);
            continue;
        };
        let is_connection = known.conf_name() == "CONNECT_STRING";
        let value = if is_connection { words_of_psql(value) } else { value };
        known.set(&mut conf.layer, &value).map_err(|wrong| error(Some(key.to_owned()), wrong))?;
        if let Some(earlier) = seen.insert(key, number) {
            conf.warnings.push(repeated(file, key, earlier, number));
        }
    }
    // One that no other line uses is a misspelled key.
    let misspelled = own.into_iter().filter(|(key, _)| !variables.is_used(key));
    match misspelled.min_by_key(|(_, line)| *line) {
        None => Ok(conf),
        Some((key, line)) => Err(ConfigError {
            file: file.to_owned(),
            line,
            key: Some(key.to_owned()),
            message: unknown(key),
        }),
    }
}

/// Writes two names as psql's options: the original's shell makes a database and a user of them,
/// where they would be one name as an argument.
fn words_of_psql(text: String) -> String {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    match words[..] {
        [database, user]
            if !text.contains('=')
                && !text.contains("://")
                && !user.starts_with('-')
                && !database.starts_with('-') =>
        {
            format!("-d {database} -U {user}")
        }
        _ => text,
    }
}

fn unknown(key: &str) -> String {
    if key.starts_with("PG") {
        return "is not a key of pgio.conf; set host=, port=, user= and so on in \
                CONNECT_STRING, or export the variable before you start pgio"
            .to_owned();
    }
    let names: Vec<String> = KEYS.iter().filter(|k| k.is_conf_key()).map(Key::conf_name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    format!("is not a key of pgio.conf; {}", nearest(key, &names))
}

fn repeated(file: &str, key: &str, earlier: usize, line: usize) -> Warning {
    Warning {
        what: format!("{file}: {key} is set in line {earlier} and again in line {line}"),
        why: "the last setting takes effect, as in the original".to_owned(),
        try_this: format!("delete line {earlier}"),
    }
}

fn debug_ignored(file: &str, line: usize) -> Warning {
    Warning {
        what: format!("{file}: {DEBUG_KEY} in line {line} is ignored"),
        why: "it enables tracing in the original's scripts, which pgio does not use".to_owned(),
        try_this: format!("delete line {line}"),
    }
}

#[cfg(test)]
mod tests;
