//! Texts with placeholders in braces, and command lines made of such texts.
//!
//! Only `{name}` in lower case is a placeholder: `${HOME}`, `{print $1}` and JSON are not, and
//! `{{name}}` is a literal `{name}`. Pure: callers supply the values of placeholders.

use std::ffi::OsStr;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Template(String);

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

impl Template {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text as written.
    pub fn text(&self) -> &str {
        &self.0
    }

    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.pieces().into_iter().filter_map(|piece| match piece {
            Piece::Placeholder(name) => Some(name),
            Piece::Text(_) => None,
        })
    }

    /// Replaces each placeholder by its value; a placeholder without a value stays.
    pub fn fill(&self, value: &dyn Fn(&str) -> Option<String>) -> String {
        let filled = self.pieces().into_iter().map(|piece| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Placeholder(name) => value(name).unwrap_or_else(|| format!("{{{name}}}")),
        });
        filled.collect()
    }

    fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let text = self.0.as_str();
        // The text before `from` is already in `pieces`.
        let (mut from, mut at) = (0, 0);
        while let Some(open) = text[at..].find('{').map(|offset| at + offset) {
            let doubled = text[open + 1..].starts_with('{');
            let name_at = open + 1 + usize::from(doubled);
            let name = name(&text[name_at..]);
            let close = name_at + name.len();
            let closed = text[close..].starts_with(if doubled { "}}" } else { "}" });
            if name.is_empty() || !closed || text[..open].ends_with('$') {
                at = open + 1;
                continue;
            }
            if doubled {
                pieces.push(Piece::Text(&text[from..=open]));
                pieces.push(Piece::Text(&text[name_at..=close]));
                at = close + 2;
            } else {
                pieces.push(Piece::Text(&text[from..open]));
                pieces.push(Piece::Placeholder(name));
                at = close + 1;
            }
            from = at;
        }
        pieces.push(Piece::Text(&text[from..]));
        pieces
    }
}

/// Returns the longest name at the beginning of the text.
fn name(text: &str) -> &str {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let end = text.find(|c| !plain(c)).unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_lowercase()) { &text[..end] } else { "" }
}

/// A command line: a program with its arguments, or a text for `sh`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Line {
    /// Never empty.
    Words(Vec<Template>),
    Shell(Template),
}

impl Line {
    pub fn texts(&self) -> impl Iterator<Item = &Template> {
        match self {
            Line::Words(words) => words.as_slice(),
            Line::Shell(text) => std::slice::from_ref(text),
        }
        .iter()
    }

    /// Returns the program and its arguments. In a text for `sh`, values are quoted if necessary.
    pub fn fill(
        &self,
        value: &dyn Fn(&str) -> Option<String>,
        quoted: fn(&OsStr) -> String,
    ) -> Vec<String> {
        match self {
            Line::Words(words) => words.iter().map(|word| word.fill(value)).collect(),
            Line::Shell(text) => {
                let quoted = |name: &str| value(name).map(|v| quoted(OsStr::new(&v)));
                ["sh", "-c", &text.fill(&quoted)].map(str::to_owned).to_vec()
            }
        }
    }

    /// The program to show in messages: the first word, or `sh`.
    pub fn program(&self) -> &str {
        match self {
            Line::Words(words) => words.first().map_or("", Template::text),
            Line::Shell(_) => "sh",
        }
    }

    /// The line as written, for display.
    pub fn shown(&self) -> String {
        self.texts().map(Template::text).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(name: &str) -> Option<String> {
        (name != "unknown").then(|| format!("<{name}>"))
    }

    #[test]
    fn placeholders_differ_from_other_braces() {
        for (text, filled) in [
            ("-T {seconds}", "-T <seconds>"),
            ("{a}{b_1}", "<a><b_1>"),
            ("{{seconds}} {seconds}", "{seconds} <seconds>"),
            ("${HOME} ${seconds}", "${HOME} ${seconds}"),
            ("awk '{print $1}' {x", "awk '{print $1}' {x"),
            ("{\"a\": {\"b\": 1}} {}", "{\"a\": {\"b\": 1}} {}"),
            ("{Upper} {1} {a-b} {{a}", "{Upper} {1} {a-b} {<a>"),
            ("{unknown}ü{a}", "{unknown}ü<a>"),
        ] {
            assert_eq!(Template::new(text).fill(&value), filled, "{text}");
        }
        let text = Template::new("{a} {{b}} {c}");
        assert_eq!(text.placeholders().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn words_stay_separate_and_shell_text_is_quoted() {
        let words = Line::Words(["p", "{a} b", ""].map(Template::new).to_vec());
        let quoted: fn(&OsStr) -> String = |word| format!("'{}'", word.to_string_lossy());
        assert_eq!(words.fill(&value, quoted), ["p", "<a> b", ""]);
        assert_eq!((words.program(), words.shown().as_str()), ("p", "p {a} b "));
        let shell = Line::Shell(Template::new("p {a} | q"));
        assert_eq!(shell.fill(&value, quoted), ["sh", "-c", "p '<a>' | q"]);
        assert_eq!(shell.program(), "sh");
    }

    proptest! {
        #[test]
        fn filling_loses_no_text(text in "[{}$a-c ü]{0,24}") {
            let same = |name: &str| Some(format!("{{{name}}}"));
            let undoubled = Template::new(text.clone()).fill(&same);
            // Only doubled braces change.
            prop_assert_eq!(undoubled.replace(['{', '}'], ""), text.replace(['{', '}'], ""));
            if !text.contains("{{") {
                prop_assert_eq!(undoubled, text);
            }
        }
    }
}
