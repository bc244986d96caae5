//! The type of passwords, and how one is found in texts before they are shown or stored.
//!
//! It finds a password in the output of programs, in any encoding: plain, URL-encoded, with
//! backslashes as in a conninfo string, JSON or a shell, with doubled quotes as in SQL, or a
//! mixture of these.
//!
//! The search matches the password character by character, each in any of its encodings. A password
//! that is split into several words or encoded as a whole (base64, a hash) is not found.

use std::fmt;

/// Minimum length of a password to search for; shorter ones occur in every text.
const MIN_LENGTH: usize = 3;

/// Maximum number of backslashes before one character, for repeatedly quoted text.
const MAX_BACKSLASHES: usize = 8;

/// A password: bytes, since a server may use another encoding than UTF-8. It has no Display and no
/// Serialize, and Debug redacts.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Secret(text.into())
    }

    /// The password as it is, only for sending it to the server.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Secret {
    /// Whether the text contains the password. Always false for one that is too short.
    pub fn is_in(&self, text: &str) -> bool {
        self.spans(text).next().is_some()
    }

    /// Like [`Self::is_in`], and as it is also for a password of any length but none.
    pub fn is_exactly_in(&self, text: &str) -> bool {
        let length = self.expose().len().max(1);
        self.is_in(text) || text.as_bytes().windows(length).any(|part| part == self.expose())
    }

    /// Replaces each occurrence of the password by `by`.
    pub fn hidden_in(&self, text: &str, by: &str) -> String {
        let (mut hidden, mut from) = (String::new(), 0);
        for (start, end) in self.spans(text) {
            hidden.push_str(&text[from..start]);
            hidden.push_str(by);
            from = end;
        }
        hidden + &text[from..]
    }

    /// Positions of the password in the text, without overlaps.
    fn spans<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
        let long_enough = self.expose().len() >= MIN_LENGTH;
        let mut starts = text.char_indices().map(|(at, _)| at).filter(move |_| long_enough);
        let mut free = 0;
        std::iter::from_fn(move || {
            let (start, end) = starts
                .by_ref()
                .filter(|start| *start >= free)
                .find_map(|start| Some((start, self.end_at(text, start)?)))?;
            free = end;
            Some((start, end))
        })
    }

    /// The farthest end of a match that begins at `start`.
    fn end_at(&self, text: &str, start: usize) -> Option<usize> {
        let mut ends = vec![start];
        for chunk in self.expose().utf8_chunks() {
            let other = Some(chunk.invalid()).filter(|bytes| !bytes.is_empty());
            for part in chunk.valid().chars().map(Ok).chain(other.map(Err)) {
                let mut next = Vec::new();
                for at in ends {
                    let (rest, mut found) =
                        (&text.as_bytes()[at..], |length| next.push(at + length));
                    match part {
                        Ok(c) => spellings(rest, c, &mut found),
                        Err(bytes) => replacements(rest, bytes, &mut found),
                    }
                }
                next.sort_unstable();
                next.dedup();
                ends = next;
                if ends.is_empty() {
                    return None;
                }
            }
        }
        ends.pop()
    }
}

/// Calls `found` with the length of each encoding of the character at the beginning of the text.
fn spellings(text: &[u8], c: char, found: &mut dyn FnMut(usize)) {
    let mut buffer = [0; 4];
    let plain = c.encode_utf8(&mut buffer).as_bytes();
    let backslashes = text.iter().take_while(|b| **b == b'\\').count();
    for before in 0..=backslashes.min(MAX_BACKSLASHES) {
        let rest = &text[before..];
        if rest.starts_with(plain) {
            found(before + plain.len());
        }
        // A JSON escape, whose backslash may itself be escaped.
        if before > 0 && rest.first() == Some(&b'u') {
            let (units, length) = utf16(c);
            if starts_with_any_case(&text[before - 1..], &units) {
                found(before - 1 + length);
            }
        }
    }
    url_encoded(text, plain, found);
    let others: &[&str] = match c {
        ' ' => &["+"],
        '\'' => &["''", r"'\''", r#"'"'"'"#, "&#39;", "&apos;"],
        '"' => &["\"\"", "&quot;"],
        '&' => &["&amp;"],
        '<' => &["&lt;"],
        '>' => &["&gt;"],
        _ => &[],
    };
    for other in others.iter().filter(|other| text.starts_with(other.as_bytes())) {
        found(other.len());
    }
}

fn url_encoded(text: &[u8], bytes: &[u8], found: &mut dyn FnMut(usize)) {
    let encoded: String = bytes.iter().map(|b| format!("%{b:02x}")).collect();
    if starts_with_any_case(text, &encoded) {
        found(encoded.len());
    }
}

/// Like [`spellings`] for bytes that are not UTF-8: whoever read them as text has replaced them.
fn replacements(text: &[u8], bytes: &[u8], found: &mut dyn FnMut(usize)) {
    let replaced = char::REPLACEMENT_CHARACTER.to_string();
    if text.starts_with(replaced.as_bytes()) {
        found(replaced.len());
    }
    url_encoded(text, bytes, found);
}

/// The character as a JSON escape, and the length of the escape.
fn utf16(c: char) -> (String, usize) {
    let text: String = c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}")).collect();
    let length = text.len();
    (text, length)
}

fn starts_with_any_case(text: &[u8], lower: &str) -> bool {
    text.get(..lower.len()).is_some_and(|head| head.eq_ignore_ascii_case(lower.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PASSWORD: &str = r#"p@ss'w"o\rd &ü"#;

    fn hidden(text: &str) -> String {
        Secret::new(PASSWORD).hidden_in(text, "***")
    }

    #[test]
    fn every_encoding_of_a_password_is_hidden() {
        for spelled in [
            PASSWORD,
            // URL, fully and partly encoded.
            "p%40ss%27w%22o%5Crd%20%26%C3%BC",
            "p%40ss'w%22o%5crd+&ü",
            // conninfo, SQL, JSON, shell.
            r#"p@ss\'w"o\\rd &ü"#,
            r#"p@ss''w"o\rd &ü"#,
            r#"p@ss'w\"o\\rd &\u00fc"#,
            r#"p@ss'\''w"o\rd &ü"#,
            r#"p@ss'"'"'w"o\rd &ü"#,
            // JSON inside JSON.
            r#"p@ss'w\\\"o\\\\rd &\\u00FC"#,
            "p@ss&#39;w&quot;o\\rd &amp;ü",
        ] {
            assert_eq!(hidden(&format!("a={spelled}; b")), "a=***; b", "{spelled}");
            assert!(Secret::new(PASSWORD).is_in(spelled));
        }
    }

    #[test]
    fn a_password_that_is_not_utf8_is_hidden() {
        let secret = Secret::new(b"p\xfcw\xfc");
        for spelled in ["p\u{fffd}w\u{fffd}", "p%FCw%fc"] {
            assert_eq!(secret.hidden_in(&format!("a={spelled}; b"), "***"), "a=***; b");
        }
    }

    #[test]
    fn other_text_is_unchanged() {
        for text in ["", "p@ss", "tps = 1\nü", r#"p@ss'w"o\rd &u"#] {
            assert_eq!(hidden(text), text);
        }
        assert_eq!(Secret::new("ab").hidden_in("abc", "***"), "abc");
        assert_eq!(Secret::new("").hidden_in("abc", "***"), "abc");
        assert_eq!(Secret::new("aaa").hidden_in("aaaaaaa", "*"), "**a");
    }

    proptest! {
        #[test]
        fn any_password_is_hidden_in_any_text(a in ".*", b in ".*", secret in ".{3,12}") {
            let hidden = Secret::new(&*secret).hidden_in(&format!("{a}{secret}{b}"), "");
            prop_assert!(hidden.len() <= a.len() + b.len());
        }
    }
}
