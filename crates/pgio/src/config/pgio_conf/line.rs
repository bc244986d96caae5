//! Parses one line of pgio.conf: `KEY=VALUE` with the shell's quoting, but no other shell syntax.
//!
//! Messages never repeat the value, because it may contain a password. The caller interprets keys.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

pub(super) struct Assignment<'a> {
    pub(super) key: &'a str,
    pub(super) value: String,
}

pub(super) struct LineError<'a> {
    pub(super) key: Option<&'a str>,
    pub(super) message: String,
}

/// What earlier lines have set.
#[derive(Debug, Default)]
pub(super) struct Variables(BTreeMap<String, (String, bool)>);

impl Variables {
    pub(super) fn set(&mut self, name: &str, value: &str) {
        let used = self.is_used(name);
        self.0.insert(name.to_owned(), (value.to_owned(), used));
    }

    pub(super) fn is_used(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|(_, used)| *used)
    }

    /// Returns the value of `NAME` or `{NAME}` after a `$`. The values of the environment and other forms are a shell's.
    fn expand(&mut self, chars: &mut Peekable<Chars<'_>>) -> Result<&str, String> {
        let braced = chars.next_if_eq(&'{').is_some();
        let mut name = String::new();
        name.extend(std::iter::from_fn(|| chars.next_if(|c| is_part(*c))));
        let is_closed = !braced || chars.next_if_eq(&'}').is_some();
        match self.0.get_mut(&name).filter(|_| is_closed) {
            Some((value, used)) => {
                *used = true;
                Ok(value)
            }
            None => Err(needs_shell('$')),
        }
    }
}

/// Parses a line; returns `None` for a blank line or a comment.
pub(super) fn parse<'a>(
    line: &'a str,
    variables: &mut Variables,
) -> Result<Option<Assignment<'a>>, LineError<'a>> {
    let line = line.trim_start_matches(is_blank);
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let line = match line.strip_prefix("export") {
        Some(rest) if rest.starts_with(is_blank) => rest.trim_start_matches(is_blank),
        _ => line,
    };
    let (key, rest) = line.split_at(name_length(line));
    if !key.is_empty() && rest.trim_start_matches(is_blank).starts_with('=') {
        let message = match rest.strip_prefix('=') {
            Some(value) => match value_of(value, variables) {
                Ok(value) => return Ok(Some(Assignment { key, value })),
                Err(message) => message,
            },
            None => NO_SPACES.to_owned(),
        };
        return Err(LineError { key: Some(key), message });
    }
    let message = "is not KEY=VALUE; write one setting per line, or # before a comment";
    Err(LineError { key: None, message: message.to_owned() })
}

const NO_SPACES: &str = "has spaces around `=`; write KEY=VALUE without spaces";

/// The shell's blanks; a no-break space is an ordinary character.
fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

/// Returns the word after `=` without quotes; only a comment may follow it.
fn value_of(text: &str, variables: &mut Variables) -> Result<String, String> {
    let mut value = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => single_quoted(&mut chars, &mut value)?,
            '"' => double_quoted(&mut chars, &mut value, variables)?,
            '$' => value.push_str(variables.expand(&mut chars)?),
            ' ' | '\t' => {
                after_value(chars.collect::<String>().trim_start_matches(is_blank), text)?;
                break;
            }
            '`' | '\\' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => {
                return Err(needs_shell(c));
            }
            // Bash expands a home directory here, also in lists such as PATH.
            '~' if value.is_empty() || value.ends_with(':') => return Err(needs_shell(c)),
            _ => value.push(c),
        }
    }
    Ok(value)
}

fn after_value(rest: &str, whole: &str) -> Result<(), String> {
    if rest.is_empty() || rest.starts_with('#') {
        Ok(())
    } else if let Some(c) = rest.chars().next().filter(|c| ";&|<>".contains(*c)) {
        Err(needs_shell(c))
    } else if whole.starts_with(is_blank) {
        Err(NO_SPACES.to_owned())
    } else {
        Err("has several words; quote the value, or write the next setting on its own line"
            .to_owned())
    }
}

fn single_quoted(chars: &mut Peekable<Chars<'_>>, value: &mut String) -> Result<(), String> {
    for c in chars {
        match c {
            '\'' => return Ok(()),
            _ => value.push(c),
        }
    }
    Err(unbalanced('\''))
}

fn double_quoted(
    chars: &mut Peekable<Chars<'_>>,
    value: &mut String,
    variables: &mut Variables,
) -> Result<(), String> {
    while let Some(c) = chars.next() {
        match c {
            '"' => return Ok(()),
            '$' => value.push_str(variables.expand(chars)?),
            '`' => return Err(needs_shell(c)),
            // Before other characters, the backslash is literal.
            '\\' => match chars.next_if(|next| "\"\\$`".contains(*next)) {
                Some(escaped) => value.push(escaped),
                None => value.push('\\'),
            },
            _ => value.push(c),
        }
    }
    Err(unbalanced('"'))
}

fn unbalanced(quote: char) -> String {
    format!("has an unterminated {quote}; close it on the same line")
}

fn needs_shell(c: char) -> String {
    format!(
        "contains {c}, which only a shell can evaluate, but pgio does not execute this file; write the \
         resulting value, or put a literal {c} in single quotes"
    )
}
