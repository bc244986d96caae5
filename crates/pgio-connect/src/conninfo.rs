//! Parses the `keyword=value` form of a connection string as libpq does.
//!
//! Only splits; `resolve` checks the values. Errors give the position and never quote the string,
//! which may contain a password.
//!
//! Next: `uri` for the other form.

use super::error::BadText;
use super::keywords::{Pair, names_secret, pair};

/// Splits `host=/tmp dbname='my db'` into pairs, in the order written.
pub(super) fn parse(text: &str) -> Result<Vec<Pair>, BadText> {
    let mut rest = Cursor::new(text);
    let mut pairs: Vec<Pair> = Vec::new();
    loop {
        rest.skip_spaces();
        let at = rest.at;
        if rest.peek().is_none() {
            return Ok(pairs);
        }
        let written = rest.take_while(|c| c != '=' && !is_space(c));
        rest.skip_spaces();
        if rest.next() != Some('=') {
            return Err(BadText::new(
                at,
                "expected keyword=value (quote a value with spaces: '...')",
            ));
        }
        rest.skip_spaces();
        let value = match rest.peek() {
            Some('\'') => quoted(&mut rest)?,
            _ => bare(&mut rest),
        };
        let named = match pair(&written, value) {
            Ok(pair) => pair,
            Err(nearest) => {
                // After a password with an unquoted space, the "keyword" may be part of the
                // password.
                let secret = pairs.iter().any(|p| names_secret(p.keyword));
                let name = if secret { String::new() } else { format!(" `{written}`") };
                return Err(BadText::new(
                    at,
                    format!("unknown keyword{name}; nearest is `{nearest}`"),
                ));
            }
        };
        pairs.push(named);
    }
}

fn bare(rest: &mut Cursor) -> String {
    let mut value = String::new();
    while let Some(c) = rest.next() {
        match c {
            '\\' => value.extend(rest.next()),
            c if is_space(c) => break,
            c => value.push(c),
        }
    }
    value
}

fn quoted(rest: &mut Cursor) -> Result<String, BadText> {
    let at = rest.at;
    rest.next();
    let mut value = String::new();
    while let Some(c) = rest.next() {
        match c {
            '\'' => return Ok(value),
            '\\' => value.extend(rest.next()),
            c => value.push(c),
        }
    }
    Err(BadText::new(at, "quoted value without its closing '"))
}

/// Whether C's isspace accepts the character.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// Characters with their position, counted from 1 for messages.
struct Cursor<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Cursor { chars: text.chars().peekable(), at: 1 }
    }

    fn peek(&mut self) -> Option<char> {
        self.chars.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.chars.next();
        self.at += usize::from(c.is_some());
        c
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(c) = self.peek().filter(|c| wanted(*c)) {
            taken.push(c);
            self.next();
        }
        taken
    }

    fn skip_spaces(&mut self) {
        self.take_while(is_space);
    }
}

/// Quotes a value only if it must be.
pub(super) fn quote_if_needed(value: &str) -> String {
    let special = |c: char| c.is_whitespace() || c == '\'' || c == '\\';
    if value.is_empty() || value.contains(special) { quote(value) } else { value.to_owned() }
}

/// Quotes a value for this form.
pub(super) fn quote(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_fuzz::{fuzz, print};
    use proptest::prelude::*;

    fn split(text: &str) -> Vec<(&'static str, String)> {
        let pairs = parse(text).unwrap();
        pairs.into_iter().map(|p| (p.keyword, p.value.into_string().unwrap())).collect()
    }

    fn problem(text: &str) -> String {
        parse(text).err().unwrap().to_string()
    }

    #[test]
    fn parses_like_libpq() {
        let own = |k, v: &str| (k, v.to_owned());
        assert_eq!(
            split("host=/tmp dbname='my db' options='-c x=1'"),
            [own("host", "/tmp"), own("dbname", "my db"), own("options", "-c x=1")]
        );
        assert_eq!(split("  port \t=\n 5433  "), [own("port", "5433")]);
        assert_eq!(split(r"user=a\ b\\c\'"), [own("user", r"a b\c'")]);
        assert_eq!(split(r"user='a\'b\\c'"), [own("user", r"a'b\c")]);
        assert_eq!(split("dbname='a'user=b"), [own("dbname", "a"), own("user", "b")]);
        assert_eq!(split("host="), [own("host", "")]);
        // After an empty value libpq takes the next word.
        assert_eq!(split("host= dbname=x"), [own("host", "dbname=x")]);
        assert_eq!(split("requiressl=1"), [own("sslmode", "require")]);
        assert!(split(" ").is_empty());
    }

    #[test]
    fn errors_give_position_and_problem() {
        assert_eq!(
            problem("host=a prot=5"),
            "at character 8: unknown keyword `prot`; nearest is `port`"
        );
        assert!(problem("host=a b").starts_with("at character 8: expected keyword=value"));
        assert!(problem("user='a").starts_with("at character 6: quoted value"));
        assert!(problem("=x").starts_with("at character 1: unknown keyword"));
    }

    #[test]
    fn errors_do_not_quote_a_password() {
        for text in ["password=top hush", "password=top hush=1", "password='hush", "a hush"] {
            assert!(!problem(text).contains("hush"), "{}", problem(text));
        }
    }

    proptest! {
        #[test]
        fn quoting_round_trips(dbname in any::<String>(), user in any::<String>()) {
            let text = format!("dbname = {} user={}", quote(&dbname), quote(&user));
            prop_assert_eq!(split(&text), [("dbname", dbname), ("user", user)]);
        }
    }

    #[test]
    fn fuzzed_strings_are_parsed_or_refused() {
        let samples = [
            r"host=h,g port = 5432 dbname='my db' password='a\'b\\' sslmode=verify-full",
            "hostaddr=::1 options='-c geqo=off' connect_timeout=5",
        ];
        fuzz(&samples, |bytes| match parse(&String::from_utf8_lossy(bytes)) {
            Ok(_) => {}
            Err(error) => print(&error),
        });
    }
}
