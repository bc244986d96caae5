//! JSON as programs print it: with `nan` and `inf`, which JSON does not have. Pure.
//!
//! DRBD prints them before it knows a rate, fio and scripts where there was nothing to divide by. A field that nobody
//! asks for must not hide the others.

use serde_json::Value;

/// What a text is that begins like a document.
#[derive(Debug, PartialEq)]
pub enum Document {
    /// A document of this many bytes.
    Complete(Value, usize),
    /// The text ends within it.
    Unfinished,
    Other,
}

/// Reads a document that is the whole text, where what is no finite number is null.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    match read(text) {
        Some((json, length)) if text[length..].trim().is_empty() => serde_json::from_str(&json),
        _ => serde_json::from_str(text),
    }
}

/// Reads the document at the start of a text that may go on.
pub fn first(text: &str) -> Document {
    match read(text) {
        None => Document::Unfinished,
        Some((json, length)) => {
            serde_json::from_str(&json).map_or(Document::Other, |v| Document::Complete(v, length))
        }
    }
}

/// Returns an object or array at the start of a text as proper JSON, and its length; `None` if the text ends before
/// it does. What cannot be JSON ends it.
fn read(text: &str) -> Option<(String, usize)> {
    let (mut json, mut depth, mut at) = (String::new(), 0_usize, 0);
    while let Some(first) = text[at..].chars().next() {
        let length = match first {
            '"' => match string_length(&text[at..])? {
                0 => return Some((json, at)),
                length => length,
            },
            '-' | '+' | '.' | '0'..='9' | 'a'..='z' | 'A'..='Z' => word_length(&text[at..]),
            _ => first.len_utf8(),
        };
        let token = &text[at..at + length];
        at += length;
        if at == text.len() && !matches!(first, '}' | ']') {
            return None;
        }
        json.push_str(if is_no_number(token) { "null" } else { token });
        match first {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            '"' | ':' | ',' | ' ' | '\t' | '\r' | '\n' => continue,
            _ if depth > 0 && is_word(token) => continue,
            _ => return Some((json, at)),
        }
        if depth == 0 {
            return Some((json, at));
        }
    }
    None
}

/// The length of a string with its quotes, 0 for none, which a line break cuts off. `None`: the text ends before.
fn string_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return Some(at + 1),
            '\n' => return Some(0),
            _ => escaped = c == '\\' && !escaped,
        }
    }
    None
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(text.len())
}

fn is_word(token: &str) -> bool {
    matches!(token, "true" | "false" | "null")
        || is_no_number(token)
        || token.parse::<f64>().is_ok()
}

/// Rust reads the words that C and others print.
fn is_no_number(token: &str) -> bool {
    token.parse::<f64>().is_ok_and(|n| !n.is_finite() && token.ends_with(char::is_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_no_number_is_null() {
        let found =
            parse("{\"a\": nan, \"b\": [-nan, Infinity, -inf, 1e3], \"nan\": \"x, nan\"}\n");
        assert_eq!(
            found.unwrap(),
            json!({"a": null, "b": [null, null, null, 1e3], "nan": "x, nan"})
        );
        for text in ["", "{", "{\"a\": nano}", "{} x", "{\"a\": 1e999}"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_document_ends_where_its_brackets_close() {
        let complete = |value, length| Document::Complete(value, length);
        assert_eq!(first("{\"a]\": [1, \"\\\"}\"]} rest"), complete(json!({"a]": [1, "\"}"]}), 18));
        assert_eq!(first("[0.5] start"), complete(json!([0.5]), 5));
        for text in ["[WARN] x", "[1/2]", "{\"a\n\": 1}", "{a: 1}", "[\u{e4}]"] {
            assert_eq!(first(text), Document::Other, "{text}");
        }
        for text in ["{\"a\": [", "[\"a", "{\"a\": tru"] {
            assert_eq!(first(text), Document::Unfinished, "{text}");
        }
    }
}
