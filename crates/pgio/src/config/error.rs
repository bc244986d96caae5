//! Errors in configuration files, with file, line and key.
//!
//! Each error is one sentence in the form of a compiler message. It quotes a value only if the
//! value cannot contain a password.

/// The first error in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{message}", prefix(.key.as_deref()))]
pub struct ConfigError {
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// Absent if the line is not a key with a value.
    pub key: Option<String>,
    pub message: String,
}

fn prefix(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!("{key}: "))
}

/// More names, such as all metrics', fill a screen and are cut.
const MAX_LISTED: usize = 80;

/// Hint for an unknown name: the nearest valid name, or all of them.
pub(crate) fn nearest(given: &str, valid: &[&str]) -> String {
    let folded = given.to_ascii_lowercase();
    let distance = |name: &str| strsim::osa_distance(&folded, &name.to_ascii_lowercase());
    // If more than half of the letters differ, it is not a typo: the list helps more than a guess.
    let limit = (given.chars().count() / 2).max(1);
    match valid.iter().min_by_key(|name| distance(name)) {
        Some(name) if distance(name) <= limit => format!("the nearest valid one is `{name}`"),
        _ if valid.len() > MAX_LISTED => "docs/KEYS.md lists the valid names".to_owned(),
        _ => format!("valid names: {}", valid.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_file_line_and_key() {
        let error = |key: Option<&str>| ConfigError {
            file: "pgio.conf".to_owned(),
            line: 3,
            key: key.map(str::to_owned),
            message: "is wrong".to_owned(),
        };
        assert_eq!(error(Some("SCALE")).to_string(), "pgio.conf:3: SCALE: is wrong");
        assert_eq!(error(None).to_string(), "pgio.conf:3: is wrong");
    }

    #[test]
    fn nearest_suggests_a_name_for_a_typo_and_lists_all_otherwise() {
        let valid = ["scale", "work_unit"];
        assert_eq!(nearest("SCALES", &valid), "the nearest valid one is `scale`");
        assert_eq!(nearest("wrok_unit", &valid), "the nearest valid one is `work_unit`");
        assert_eq!(nearest("colour", &valid), "valid names: scale, work_unit");
    }
}
