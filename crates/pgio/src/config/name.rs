//! Names that are used as file and directory names, and the limit of PostgreSQL's names.
//!
//! The results of a workload are stored in a directory of its name, so a name such as `../../x`
//! would write outside the results. This module checks each such name when the file is parsed. Names
//! of conditions and metrics are only displayed: they are free text and never part of a path.

/// Bytes of an identifier; PostgreSQL truncates longer ones.
pub(crate) const MAX_IDENTIFIER: usize = 63;

/// Maximum length; pgio appends suffixes to a name, and the file system limits the result.
const MAX_LENGTH: usize = 64;

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

/// Checks a name. The error completes a sentence that begins with the key.
pub fn check(name: &str) -> Result<(), String> {
    let plain = name.chars().all(|c| is_plain(c) || c == ' ');
    let ends = name.starts_with(is_plain) && name.ends_with(is_plain);
    if plain && ends && !name.starts_with(['.', '-']) && name.len() <= MAX_LENGTH {
        return Ok(());
    }
    Err(format!(
        "must be usable as a directory name: letters a to z and A to Z, digits, `_`, `-`, `.` and inner spaces, at most {MAX_LENGTH} characters, not beginning with `.` or `-`"
    ))
}

/// Derives a valid name from any text.
pub fn from_text(text: &str) -> String {
    let name: String =
        text.chars().take(MAX_LENGTH).map(|c| if is_plain(c) { c } else { '-' }).collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "experiment".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        let longest = "x".repeat(MAX_LENGTH);
        for name in ["slob", "device-flush", "a.b_c", "one transaction", "8k", &longest] {
            check(name).unwrap();
        }
        let long = "x".repeat(MAX_LENGTH + 1);
        for name in
            ["", ".", "..", "../../x", "/x", "a/b", ".a", "-a", " a", "a ", "a\nb", "a\0", &long]
        {
            assert!(check(name).unwrap_err().contains("letters"), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_valid_name(text in ".*") {
            check(&from_text(&text)).unwrap();
        }
    }
}
