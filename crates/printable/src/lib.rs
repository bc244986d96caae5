//! Escapes untrusted text for display: names, server messages, program output, stored files.
//!
//! Characters that a terminal or a web page would interpret are written as escapes such as `\u{1b}`:
//! control characters (C0, DEL, C1), characters that change the writing direction or hide text (bidi
//! embeddings, overrides, isolates and marks, zero-width characters, tags), and line separators other
//! than newline. All text that pgio shows passes through this module when it is shown; stored values
//! are not changed.
//!
//! Next: `report::table` and `report::markdown` add the escapes that a format needs.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Maximum number of characters of a message to show; longer messages are not useful.
pub const MAX_MESSAGE: usize = 2_000;

/// Returns whether a character is displayed as itself and has no other effect.
pub fn is_safe(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            // Soft hyphen, Arabic letter mark, Mongolian vowel separator.
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            // Zero-width space, joiners, directional marks.
            | '\u{200b}'..='\u{200f}'
            // Line and paragraph separators, embeddings and overrides.
            | '\u{2028}'..='\u{202e}'
            // Word joiner, invisible operators, isolates, deprecated format characters.
            | '\u{2060}'..='\u{206f}'
            // Byte order mark, interlinear annotations.
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // Tags.
            | '\u{e0000}'..='\u{e007f}')
}

/// Escapes text for one line, newlines and tabs included.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, is_safe)
}

/// Escapes text of several lines; newlines stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| c == '\n' || is_safe(c))
}

/// Escapes text for pages and files; newlines and tabs stay.
pub fn page(text: &str) -> Cow<'_, str> {
    escape(text, |c| matches!(c, '\n' | '\t') || is_safe(c))
}

/// Escapes serialized JSON. Unsafe characters occur only inside its strings, so JSON escapes keep
/// every value the same.
pub fn json(text: &str) -> Cow<'_, str> {
    let keep = |c| c == '\n' || is_safe(c);
    if text.chars().all(keep) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if keep(c) {
            safe.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(safe)
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&keep) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if keep(c) => safe.push(c),
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            // Writing to a string cannot fail.
            c => drop(write!(safe, "\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(safe)
}

/// Cuts the middle of text that is too long and states its length. The end of a message is its advice.
pub fn truncate(text: &str, limit: usize) -> Cow<'_, str> {
    if text.char_indices().nth(limit).is_none() {
        return Cow::Borrowed(text);
    }
    let tail = limit / 4;
    let at = |found: Option<(usize, char)>| found.map_or(text.len(), |(at, _)| at);
    let head = &text[..at(text.char_indices().nth(limit - tail))];
    let end = &text[at(text.char_indices().nth_back(tail.saturating_sub(1)))..];
    Cow::Owned(format!("{head} ... ({} bytes) ... {end}", text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (given, shown) in [
            ("plain, größer, 日本語, 1 µs – ≥", "plain, größer, 日本語, 1 µs – ≥"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\u{9b}31m\u{7f}", "a\\u{9b}31m\\u{7f}"),
            ("a\rb\tc\nd", "a\\rb\\tc\\nd"),
            ("user\u{202e}txt\u{2066}\u{200f}", "user\\u{202e}txt\\u{2066}\\u{200f}"),
            ("a\u{2028}b\u{2029}c\u{feff}\u{200b}", "a\\u{2028}b\\u{2029}c\\u{feff}\\u{200b}"),
        ] {
            assert_eq!(line(given), shown);
        }
        assert_eq!(lines("a\nb\u{1b}"), "a\nb\\u{1b}");
    }

    #[test]
    fn truncated_text_ends_with_its_length() {
        assert_eq!(truncate("four", 4), "four");
        assert_eq!(truncate("größer als hier", 8), "größer ... (17 bytes) ... er");
    }

    proptest! {
        #[test]
        fn output_is_always_safe(text in any::<String>()) {
            prop_assert!(line(&text).chars().all(is_safe));
            prop_assert!(lines(&text).chars().all(|c| c == '\n' || is_safe(c)));
        }

        #[test]
        fn escaped_json_has_the_same_values(text in any::<String>()) {
            let text = format!("{text}\u{7f}\u{202e}\u{e0041}\u{1b}");
            let written = serde_json::to_string_pretty(&[&text]).unwrap();
            let safe = json(&written);
            prop_assert!(safe.chars().all(|c| c == '\n' || is_safe(c)));
            let read: Vec<String> = serde_json::from_str(&safe).unwrap();
            prop_assert_eq!(&read[0], &text);
        }
    }
}
