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
}
