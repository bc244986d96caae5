//! What can be wrong with a file, said with its file, line and key.
//!
//! One sentence each, as one reads compiler messages. Values are quoted only where they
//! cannot hold a password.

/// The first thing wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{message}", prefix(.key.as_deref()))]
pub struct ConfigError {
    pub file: String,
    /// From 1.
    pub line: usize,
    /// Absent where the text is not even a key and a value.
    pub key: Option<String>,
    pub message: String,
}

fn prefix(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!("{key}: "))
}

/// Completes "unknown key": the nearest of the valid names, or all of them.
pub(crate) fn nearest(given: &str, valid: &[&str]) -> String {
    let folded = given.to_ascii_lowercase();
    let distance = |name: &str| strsim::osa_distance(&folded, &name.to_ascii_lowercase());
    // Half of the letters wrong is no slip any more: then the list says more than a guess.
    let limit = (given.chars().count() / 2).max(1);
    match valid.iter().min_by_key(|name| distance(name)) {
        Some(name) if distance(name) <= limit => format!("the nearest valid one is `{name}`"),
        _ => format!("valid are {}", valid.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_file_line_and_key() {
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
    fn nearest_guesses_a_slip_and_lists_otherwise() {
        let valid = ["scale", "work_unit"];
        assert_eq!(nearest("SCALES", &valid), "the nearest valid one is `scale`");
        assert_eq!(nearest("wrok_unit", &valid), "the nearest valid one is `work_unit`");
        assert_eq!(nearest("colour", &valid), "valid are scale, work_unit");
    }
}
