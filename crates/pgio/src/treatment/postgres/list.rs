//! Settings whose value is a list of names.
//!
//! ALTER SYSTEM takes each element as a constant of its own, or it would take the whole list for one name. It stores
//! the elements in double quotes where they need them; what stands in double quotes may contain commas. Sends nothing
//! to the server. Next: [`super::setting`], which does.

use crate::pg::quote::literal;
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
}
