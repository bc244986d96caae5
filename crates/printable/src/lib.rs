//! Text of others made safe to show: names, messages of servers, output of programs, stored files.
//!
//! What a terminal or a page would obey instead of showing is spelled out, as `\u{1b}`: control
//! characters (C0, DEL, C1), the characters that turn the direction of writing or hide others (bidi
//! embeddings, overrides, isolates and marks, zero-width characters, tags), and the separators that
//! break a line without being a newline. Everything that pgio shows goes through here, at the edge
//! where it is shown; stored values stay as they are.
//!
//! Next: `report::table` and `report::markdown` for what a format needs beyond this.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Characters of a message that are shown; the rest says nothing more to a person.
pub const SHOWN: usize = 2_000;

/// Whether a character shows itself and nothing else.
pub fn is_safe(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            // Soft hyphen, Arabic letter mark, Mongolian vowel separator.
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            // Zero-width space, joiners, directional marks.
            | '\u{200b}'..='\u{200f}'
            // Separators of lines and paragraphs, embeddings and overrides.
            | '\u{2028}'..='\u{202e}'
            // Word joiner, invisible operators, isolates, deprecated format characters.
            | '\u{2060}'..='\u{206f}'
            // Byte order mark, interlinear annotations.
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // Tags.
            | '\u{e0000}'..='\u{e007f}')
}

/// For one line: newlines and tabs are spelled out as well.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, is_safe)
}

/// For text whose lines are lines: newlines stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| c == '\n' || is_safe(c))
}

/// For pages and files in which tabs are no danger either.
pub fn page(text: &str) -> Cow<'_, str> {
    escape(text, |c| matches!(c, '\n' | '\t') || is_safe(c))
}

/// For JSON that was written already: what is unsafe stands inside its strings, and is spelled so that
/// a reader gets the same value.
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

/// The beginning of what is too long, and how long it is.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}... ({} bytes)", &text[..end], text.len())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_spelled_out() {
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
    fn a_long_text_says_how_long_it_is() {
        assert_eq!(cut("four", 4), "four");
        assert_eq!(cut("größer", 3), "grö... (8 bytes)");
    }

    proptest! {
        #[test]
        fn nothing_else_comes_out(text in any::<String>()) {
            prop_assert!(line(&text).chars().all(is_safe));
            prop_assert!(lines(&text).chars().all(|c| c == '\n' || is_safe(c)));
        }

        #[test]
        fn json_keeps_its_values(text in any::<String>()) {
            let text = format!("{text}\u{7f}\u{202e}\u{e0041}\u{1b}");
            let written = serde_json::to_string_pretty(&[&text]).unwrap();
            let safe = json(&written);
            prop_assert!(safe.chars().all(|c| c == '\n' || is_safe(c)));
            let read: Vec<String> = serde_json::from_str(&safe).unwrap();
            prop_assert_eq!(&read[0], &text);
        }
    }
}
