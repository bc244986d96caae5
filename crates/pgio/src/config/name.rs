//! Names that become names of files and directories.
//!
//! A workload's results lie in a directory of its name, so `../../x` would be written to elsewhere.
//! Each such name is checked here, once, when the file is parsed. Names that are only shown, as those
//! of conditions and metrics, are free text and never part of a path.

/// Longer ones have no room left for what is added to them.
const MOST: usize = 64;

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

/// The rest of a sentence that begins with the key, where it must not be.
pub fn check(name: &str) -> Result<(), String> {
    let plain = name.chars().all(|c| is_plain(c) || c == ' ');
    let ends = name.starts_with(is_plain) && name.ends_with(is_plain);
    if plain && ends && !name.starts_with(['.', '-']) && name.len() <= MOST {
        return Ok(());
    }
    Err(format!(
        "must be a name for a directory: letters a to z and A to Z, digits, `_`, `-`, `.` and spaces within, at most {MOST} of them, not beginning with `.` or `-`"
    ))
}

/// A name like the text, which may be any.
pub fn like(text: &str) -> String {
    let name: String = text.chars().take(MOST).map(|c| if is_plain(c) { c } else { '-' }).collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "experiment".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_could_lead_elsewhere_is_refused() {
        for name in ["slob", "device-flush", "a.b_c", "one transaction", "8k", &"x".repeat(MOST)] {
            check(name).unwrap();
        }
        let long = "x".repeat(MOST + 1);
        for name in
            ["", ".", "..", "../../x", "/x", "a/b", ".a", "-a", " a", "a ", "a\nb", "a\0", &long]
        {
            assert!(check(name).unwrap_err().contains("letters"), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_name_like_it(text in ".*") {
            check(&like(&text)).unwrap();
        }
    }
}
