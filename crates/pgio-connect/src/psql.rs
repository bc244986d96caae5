//! Parses what follows `psql` on a command line: `-h db1 -p 5433 -U bench pgio`. Scripts keep
//! connections in this form, which their shell splits at spaces without regard to quotes.
//!
//! Only options that name the server are taken. Next: `resolve` for the other forms.

use super::error::BadText;
use super::keywords::{Pair, names_secret};
use super::{conninfo, uri};

/// Letter, long name, keyword.
const OPTIONS: [(char, &str, &str); 4] = [
    ('h', "host", "host"),
    ('p', "port", "port"),
    ('U', "username", "user"),
    ('d', "dbname", "dbname"),
];

/// psql's other options with a value, which is no database.
const WITH_VALUE: &str = "cfvFRTPoL";

/// Whether the text has options: a conninfo string and a name do not begin like this.
pub(super) fn has_options(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace().peekable();
    let Some(first) = words.next() else { return false };
    let is_conninfo = first.contains('=') || words.peek().is_some_and(|next| next.starts_with('='));
    let is_option = |word: &str| word.starts_with('-') && word != "-";
    is_option(first) || (!is_conninfo || uri::is_uri(first)) && words.any(is_option)
}

/// `parse_database` parses what names the database, which may be a connection string.
pub(super) fn parse(
    text: &str,
    parse_database: impl Fn(&str) -> Result<Vec<Pair>, BadText>,
) -> Result<Vec<Pair>, BadText> {
    let mut given: Vec<(&'static str, &str)> = Vec::new();
    let (mut operands, mut refused) = (Vec::new(), None);
    let mut words = text.split_ascii_whitespace();
    let mut ended = false;
    while let Some(word) = words.next() {
        let value_of = |value: Option<_>| {
            value.ok_or_else(|| BadText::new(position(text, word), "option without its value"))
        };
        if ended || !word.starts_with('-') || word == "-" {
            operands.push(word);
        } else if word == "--" {
            ended = true;
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            // As psql, take a name that is cut off: no other option begins with these two letters.
            let is_meant = |option: &&(_, &str, _)| name.len() >= 2 && option.1.starts_with(name);
            match OPTIONS.iter().find(is_meant) {
                Some(option) => given.push((option.2, value_of(value.or_else(|| words.next()))?)),
                None if word == "--no-password" => {}
                None => refused = refused.or(Some((word, format!("--{name}")))),
            }
        } else {
            let mut letters = word[1..].chars();
            while let Some(letter) = letters.next() {
                let value = Some(letters.as_str()).filter(|value| !value.is_empty());
                if let Some(option) = OPTIONS.iter().find(|option| option.0 == letter) {
                    given.push((option.2, value_of(value.or_else(|| words.next()))?));
                    break;
                }
                if letter != 'w' {
                    refused = refused.or(Some((word, format!("-{letter}"))));
                }
                if WITH_VALUE.contains(letter) {
                    let _ = value.or_else(|| words.next());
                    break;
                }
            }
        }
    }
    // As in psql, a database or a user may also be an operand, in this order.
    for word in operands {
        match ["dbname", "user"].iter().find(|name| given.iter().all(|(k, _)| k != *name)) {
            Some(keyword) => given.push((keyword, word)),
            None => refused = refused.or(Some((word, "a third name".to_owned()))),
        }
    }
    let mut pairs = Vec::new();
    // The values of a connection string win.
    given.sort_by_key(|(keyword, _)| *keyword == "dbname");
    for (keyword, value) in given {
        match keyword {
            "dbname" => pairs.extend(parse_database(value)?),
            _ => pairs.push(Pair { keyword, value: value.into() }),
        }
    }
    match refused {
        None => Ok(pairs),
        Some((word, what)) => {
            let instead = without_options(&pairs);
            let problem = format!("{what} is not supported; remove it, or write {instead}");
            Err(BadText::new(position(text, word), problem))
        }
    }
}

/// The same without options, for the user.
fn without_options(pairs: &[Pair]) -> String {
    let shown = pairs.iter().filter(|pair| !names_secret(pair.keyword));
    let shown: Vec<String> = shown
        .map(|pair| {
            format!("{}={}", pair.keyword, conninfo::quote_if_needed(&pair.value.to_string_lossy()))
        })
        .collect();
    if shown.is_empty() { "host=... dbname=...".to_owned() } else { shown.join(" ") }
}

/// The word's position in characters, from 1; it must be a slice of the text.
fn position(text: &str, word: &str) -> usize {
    let byte = (word.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    text.char_indices().take_while(|(at, _)| *at < byte).count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &str) -> String {
        assert!(has_options(text), "{text}");
        without_options(&parse(text, crate::resolve::parse).unwrap())
    }

    #[test]
    fn parses_like_psql() {
        let whole = "host=db1 port=5433 user=bench dbname=pgio";
        for text in [
            "-h db1 -p 5433 -U bench pgio",
            "-h db1 -p 5433 -U bench -d pgio",
            "-hdb1 -p5433 -Ubench -dpgio",
            "-w -h db1 --port=5433 --username bench --dbname=pgio --no-password",
            "--ho=db1 --po 5433 --user=bench --db pgio",
            "--host=db1 -p 5433 pgio bench",
            "pgio bench -h db1\t-wp 5433",
            "-h db1 -p 5433 -- pgio bench",
            "-h db1 -p 5433 -d pgio bench",
        ] {
            let mut pairs: Vec<_> = split(text).split(' ').map(str::to_owned).collect();
            pairs.sort_by_key(|pair| whole.find(pair.as_str()));
            assert_eq!(pairs.join(" "), whole, "{text}");
        }
        assert_eq!(split("-h db1 -d host=db2"), "host=db1 host=db2");
        assert_eq!(split("postgresql://db2/d -p 1"), "port=1 host=db2 dbname=d");
        // The shell leaves quotes in a variable's words.
        assert_eq!(split("-U 'me' d"), r"user='\'me\'' dbname=d");
    }

    #[test]
    fn other_forms_have_no_options() {
        for text in [
            "",
            "pgio",
            "my db",
            "my - db",
            "options='-c a=1 -c b=2'",
            "options = '-c a=1 -c b=2'",
            "postgresql://h/d",
        ] {
            assert!(!has_options(text), "{text}");
        }
    }

    #[test]
    fn other_options_are_refused_with_what_to_write() {
        let problem = |text: &str| parse(text, crate::resolve::parse).err().unwrap().to_string();
        assert_eq!(
            problem("-h db1 -W pgio"),
            "at character 8: -W is not supported; remove it, or write host=db1 dbname=pgio"
        );
        assert!(
            problem("-c hush pgio")
                .ends_with("-c is not supported; remove it, or write dbname=pgio")
        );
        assert!(problem("--set=a=hush d").starts_with("at character 1: --set is not supported"));
        assert!(problem("-h a b c d").starts_with("at character 10: a third name"));
        assert_eq!(problem("d -p"), "at character 3: option without its value");
        let secret = problem("-X postgresql://u:hush@h/d");
        assert!(secret.contains("user=u host=h dbname=d") && !secret.contains("hush"), "{secret}");
    }

    proptest! {
        #[test]
        fn never_panics(text in "[a-hpUdwW=\\- '\u{e9}]{0,40}|.*") {
            let _ = (has_options(&text), parse(&text, crate::resolve::parse));
        }
    }
}
