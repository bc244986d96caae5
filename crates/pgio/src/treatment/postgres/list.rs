//! Settings whose value is a list of names.
//!
//! ALTER SYSTEM takes each element as a constant of its own, or it would take the whole list for one name. It stores
//! the elements in double quotes where they need them; what stands in double quotes may contain commas. Sends nothing
//! to the server. Next: [`super::setting`], which does.

use pgio_connect::Client;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::setting::{alter_system, failed};
use crate::pg::literal;
use crate::pg::values::{SettingDescription, is_current_value, may_hold_secret};
use crate::pg::words::Shown;
use crate::treatment::error::TreatmentError;

/// Those of PostgreSQL 13 to 18. Extensions cannot define any.
const LISTS: &[&str] = &[
    "local_preload_libraries",
    "oauth_validator_libraries",
    "search_path",
    "session_preload_libraries",
    "shared_preload_libraries",
    "temp_tablespaces",
    "unix_socket_directories",
];

#[derive(Debug)]
struct Element {
    /// Without double quotes around it.
    text: String,
    is_quoted: bool,
}

/// Refuses a list that ALTER SYSTEM could not store.
pub(super) fn check(name: &str, value: &str) -> Result<(), TreatmentError> {
    elements(name, value).map(drop)
}

/// The value as ALTER SYSTEM takes it.
pub(super) fn constants(name: &str, value: &str) -> Result<String, TreatmentError> {
    let Some(elements) = elements(name, value)? else {
        return Ok(literal(value));
    };
    let all: Vec<String> = elements.iter().map(|element| literal(&element.text)).collect();
    Ok(all.join(", "))
}

/// Whether a line means the same after it is set again to its value. Without double quotes the server may read an
/// element in lower case, and ALTER SYSTEM would quote it as it is.
pub(super) fn survives_rewrite(name: &str, value: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_$/.-".contains(c);
    let survives = |element: &Element| {
        element.is_quoted || !element.text.is_empty() && element.text.chars().all(is_plain)
    };
    match elements(name, value) {
        Ok(elements) => elements.is_none_or(|elements| elements.iter().all(survives)),
        Err(_) => false,
    }
}

/// Compares two lines. In a list, double quotes around the elements and blanks between them do not count.
pub(super) fn same_line(name: &str, one: Option<&str>, other: Option<&str>) -> bool {
    let texts = |value: &str| {
        parse(value).map(|all| all.into_iter().map(|element| element.text).collect::<Vec<_>>())
    };
    let same = |one: &str, other: &str| {
        let texts = (texts(one), texts(other));
        texts.0.is_some() && texts.0 == texts.1
    };
    one == other
        || LISTS.contains(&name) && one.zip(other).is_some_and(|(one, other)| same(one, other))
}

/// The elements; none if the setting is no list.
fn elements(name: &str, value: &str) -> Result<Option<Vec<Element>>, TreatmentError> {
    if !LISTS.contains(&name) {
        return Ok(None);
    }
    let Some(elements) = parse(value) else {
        return Err(TreatmentError::Refused(format!(
            "{name} cannot be `{value}`: double quotes must enclose whole elements, as in `one, \"another one\"`"
        )));
    };
    // Stored as a list with one empty name.
    if elements.iter().all(|element| element.text.is_empty()) {
        return Err(TreatmentError::Refused(format!(
            "ALTER SYSTEM cannot set {name} to an empty list (the server would not start with what it stores): remove the line of {name} from postgresql.auto.conf; an empty list can stand in postgresql.conf"
        )));
    }
    Ok(Some(elements))
}

/// None if the double quotes do not match.
fn parse(list: &str) -> Option<Vec<Element>> {
    let mut elements = Vec::new();
    let mut rest = Some(list);
    while let Some(list) = rest {
        let (element, after) = parse_first(list.trim_ascii())?;
        elements.push(element);
        rest = after;
    }
    Some(elements)
}

/// The first element, and what follows its comma.
fn parse_first(list: &str) -> Option<(Element, Option<&str>)> {
    let Some(mut inside) = list.strip_prefix('"') else {
        let (text, after) =
            list.split_once(',').map_or((list, None), |(text, after)| (text, Some(after)));
        return Some((Element { text: text.trim_ascii_end().to_owned(), is_quoted: false }, after));
    };
    let mut text = String::new();
    loop {
        let (part, after) = inside.split_once('"')?;
        text.push_str(part);
        let Some(doubled) = after.strip_prefix('"') else {
            let after = after.trim_ascii_start();
            let next = after.strip_prefix(',');
            let is_end = next.is_some() || after.is_empty();
            return is_end.then_some((Element { text, is_quoted: true }, next));
        };
        text.push('"');
        inside = doubled;
    }
}

/// Settings for which the server computes a number when it starts if they have this value.
const AUTOMATIC: &[(&str, &str)] = &[
    ("commit_timestamp_buffers", "0"),
    ("io_max_concurrency", "-1"),
    ("subtransaction_buffers", "0"),
    ("transaction_buffers", "0"),
    ("wal_buffers", "-1"),
];

/// Sources of a number that the server computed, the first of one that a configuration file asks for.
const COMPUTED: &[&str] = &["override", "default"];

/// Whether the server runs with the value that was asked for.
pub(super) fn is_in_force(name: &str, found: &SettingDescription, asked: &str) -> bool {
    is_current_value(found, asked)
        || same_line(name, Some(&found.setting), Some(asked))
        || is_automatic(name, found, asked) && COMPUTED.contains(&found.source.as_str())
}

fn is_automatic(name: &str, found: &SettingDescription, asked: &str) -> bool {
    AUTOMATIC.iter().any(|(automatic, value)| {
        let as_set = SettingDescription { setting: (*value).to_owned(), ..found.clone() };
        *automatic == name && is_current_value(&as_set, asked)
    })
}

/// What the journal keeps of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AutoConf {
    /// Names in the order of their lines.
    order: Vec<String>,
    /// Digest of names and values.
    lines: String,
    /// Digest of the whole text; absent where the role may not read files of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl AutoConf {
    pub(super) fn read(client: &mut Client) -> Result<AutoConf, TreatmentError> {
        let found = lines(client)?;
        let digests = (digest_of(&found), digest(client));
        let order = found.into_iter().map(|(name, _)| name).collect();
        Ok(AutoConf { order, lines: digests.0, digest: digests.1 })
    }

    /// Restores the order of the lines. Returns whether the file is as it was, as far as is
    /// known; new lines of others stay at its end.
    pub(super) fn restore_order(&self, client: &mut Client) -> Result<bool, TreatmentError> {
        let found = lines(client)?;
        let at = |name: &String| self.order.iter().position(|n| n == name).unwrap_or(usize::MAX);
        let mut wanted = found.clone();
        wanted.sort_by_key(|(name, _)| at(name));
        let first = found.iter().zip(&wanted).position(|(found, wanted)| found.0 != wanted.0);
        let moved = first.map_or(&[][..], |first| &wanted[first..]);
        // The server may log what is sent as SQL; and what is not UTF-8 is not known exactly.
        let may_be_sent = |name: &str, value: &str| {
            !may_hold_secret(name)
                && survives_rewrite(name, value)
                && !value.contains(char::REPLACEMENT_CHARACTER)
        };
        if !moved.iter().all(|(name, value)| may_be_sent(name, value)) {
            return Ok(false);
        }
        for (name, value) in moved {
            // Fails where the role may change some settings only.
            if alter_system(client, name, Some(value)).is_err() {
                return Ok(false);
            }
        }
        if digest_of(&wanted) != self.lines {
            // Some lines of ours are not restored yet, or others added theirs.
            return Ok(true);
        }
        Ok(self.digest.is_none() || digest(client) == self.digest)
    }
}

fn lines(client: &mut Client) -> Result<Vec<(String, String)>, TreatmentError> {
    let rows = client
        .query(
            "SELECT name, coalesce(setting, '') FROM pg_file_settings \
             WHERE sourcefile LIKE '%/postgresql.auto.conf' AND name IS NOT NULL ORDER BY seqno",
            &[],
        )
        .map_err(failed("read the order of postgresql.auto.conf"))?;
    let line = |row: &pgio_connect::Row| Ok((row.try_get(0)?, row.try_get::<_, Shown>(1)?.into()));
    rows.iter().map(line).collect()
}

fn digest(client: &mut Client) -> Option<String> {
    let text =
        "SELECT pg_read_binary_file(current_setting('data_directory') || '/postgresql.auto.conf')";
    let bytes: Vec<u8> = client.query_one(text, &[]).ok()?.try_get(0).ok()?;
    Some(hex(&bytes))
}

fn digest_of(lines: &[(String, String)]) -> String {
    let text: Vec<String> =
        lines.iter().map(|(name, value)| format!("{name}\0{value}\0")).collect();
    hex(text.concat().as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "search_path";

    #[test]
    fn a_list_without_names_is_refused() {
        for empty in ["", " ", "\"\"", ",", "\"\", "] {
            let why = check("shared_preload_libraries", empty).unwrap_err().to_string();
            assert!(why.contains("to an empty list"), "{empty:?}: {why}");
        }
        check("shared_preload_libraries", "a, \"\"").unwrap();
        check("cluster_name", "").unwrap();
    }

    #[test]
    fn a_comma_in_double_quotes_separates_nothing() {
        for (list, sent) in [
            ("a,b", "'a', 'b'"),
            (" a , \"b\" ", "'a', 'b'"),
            ("\"a,b\", public", "'a,b', 'public'"),
            ("\"a\"\"b\" ,\"$user\"", "'a\"b', '$user'"),
            ("/tmp/my dir,/run", "'/tmp/my dir', '/run'"),
        ] {
            assert_eq!(constants(NAME, list).unwrap(), sent, "{list}");
        }
        assert_eq!(constants("oauth_validator_libraries", "a, b").unwrap(), "'a', 'b'");
        assert_eq!(constants("log_line_prefix", "a,\"b").unwrap(), "'a,\"b'");
        for broken in ["\"a", "a, \"b", "\"a\" b, c"] {
            let why = constants(NAME, broken).unwrap_err().to_string();
            assert!(why.starts_with("search_path cannot be `"), "{why}");
        }
    }

    #[test]
    fn spelling_does_not_count_in_lists_alone() {
        let same = |name: &str, one: &str, other: &str| same_line(name, Some(one), Some(other));
        assert!(same(NAME, "a,b", "\"a\", b") && same(NAME, "\"a", "\"a"));
        assert!(!same(NAME, "\"a,b\"", "a, b") && !same(NAME, "a b", "ab"));
        assert!(!same(NAME, "\"a", "\"b"), "both are broken");
        assert!(!same("log_line_prefix", "%m [%p] ", "%m[%p]"));
        assert!(same_line(NAME, None, None) && !same_line(NAME, Some(""), None));
    }

    #[test]
    fn only_what_stays_the_same_is_set_again() {
        for same in ["a, b", "\"a,b\", public", "\"$user\", public", "$user", "\"Own\"", "/tmp"] {
            assert!(survives_rewrite(NAME, same), "{same}");
        }
        for changed in ["Own, public", "a b", "a,,b", "", "\"\"", "\"a", "ä"] {
            assert!(!survives_rewrite(NAME, changed), "{changed}");
        }
        assert!(survives_rewrite("log_line_prefix", "Own \"a,") && survives_rewrite("a", ""));
    }

    #[test]
    fn a_list_is_in_force_with_other_blanks_and_quotes() {
        let in_force = |name: &str, shown: &str, asked: &str| {
            let found = SettingDescription {
                setting: shown.to_owned(),
                vartype: "string".to_owned(),
                ..SettingDescription::default()
            };
            is_in_force(name, &found, asked)
        };
        let libraries = |shown, asked| in_force("shared_preload_libraries", shown, asked);
        assert!(libraries("auto_explain, pg_stat_statements", "auto_explain,pg_stat_statements"));
        assert!(libraries("a, \"$libdir/x\", \"Upper\"", "a,$libdir/x , Upper"));
        assert!(libraries("\"Upper\"", "\"Upper\""));
        for other in ["a", "b, a", "a, b, c", "A, b", ""] {
            assert!(!libraries("a, b", other), "{other}");
        }
        assert!(in_force("unix_socket_directories", "/run, /tmp", "/run,/tmp"));
        assert!(!in_force("cluster_name", "a, b", "a,b"), "no list");
    }

    #[test]
    fn an_automatic_value_is_in_force_if_the_server_computed_the_number() {
        let in_force = |name: &str, source: &str, asked: &str| {
            let found = SettingDescription {
                setting: "2048".to_owned(),
                unit: Some("8kB".to_owned()),
                vartype: "integer".to_owned(),
                source: source.to_owned(),
                ..SettingDescription::default()
            };
            is_in_force(name, &found, asked)
        };
        assert!(in_force("wal_buffers", "override", "-1"), "set in a file");
        assert!(in_force("wal_buffers", "default", "-1"), "set nowhere, from 15 on");
        assert!(in_force("transaction_buffers", "override", "0"));
        assert!(!in_force("wal_buffers", "configuration file", "-1"), "16MB is set");
        assert!(!in_force("wal_buffers", "override", "64MB"));
        assert!(!in_force("transaction_buffers", "override", "-1"));
        assert!(!in_force("autovacuum_work_mem", "override", "-1"), "not computed");
        assert!(in_force("wal_buffers", "configuration file", "16MB"));
    }
}
