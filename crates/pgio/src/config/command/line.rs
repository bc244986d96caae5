//! A text with placeholders in braces, and a command line made of such texts.
//!
//! Only `{name}` in lower case is a placeholder: `${HOME}`, `{print $1}` and JSON stay what they are,
//! and `{{name}}` is `{name}` itself. Pure: what a placeholder stands for is the caller's.

use std::ffi::OsStr;

/// A text as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(String);

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

impl Template {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As written.
    pub fn text(&self) -> &str {
        &self.0
    }

    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.pieces().into_iter().filter_map(|piece| match piece {
            Piece::Placeholder(name) => Some(name),
            Piece::Text(_) => None,
        })
    }

    /// With each placeholder's value in its place; one without a value stays as it is.
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
        // What is before `from` is in `pieces` already.
        let (mut from, mut at) = (0, 0);
        while let Some(open) = text[at..].find('{').map(|found| at + found) {
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

/// The longest name that the text begins with.
fn name(text: &str) -> &str {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let end = text.find(|c| !plain(c)).unwrap_or(text.len());
    match text.starts_with(|c: char| c.is_ascii_lowercase()) {
        true => &text[..end],
        false => "",
    }
}

/// What is run: a program with its arguments, or a text for `sh`.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// The program and its arguments. In a text for `sh` values are quoted where they need it.
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

    /// What people call it: the program, or the shell.
    pub fn program(&self) -> &str {
        match self {
            Line::Words(words) => words.first().map_or("", Template::text),
            Line::Shell(_) => "sh",
        }
    }

    /// As written, for people.
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
    fn placeholders_are_told_from_other_braces() {
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
    fn words_stay_words_and_a_shell_gets_them_quoted() {
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
        fn no_text_is_lost(text in "[{}$a-c ü]{0,24}") {
            let same = |name: &str| Some(format!("{{{name}}}"));
            let undoubled = Template::new(text.clone()).fill(&same);
            // Only the doubling of braces goes.
            prop_assert_eq!(undoubled.replace(['{', '}'], ""), text.replace(['{', '}'], ""));
            if !text.contains("{{") {
                prop_assert_eq!(undoubled, text);
            }
        }
    }
}
