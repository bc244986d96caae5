//! Names of settings whose values may hold a password.

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
