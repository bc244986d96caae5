//! Parses the URI form of a connection string:
//! `postgresql://user:password@host:port,host/db?key=value`.
//!
//! Splits and percent-decodes like libpq. Unlike libpq, it rejects an unencoded `@` in the host
//! part or in the path: the cause is a user name or password without percent-encoding, and part of
//! it would be displayed as a host or a database.
//!
//! Next: `conninfo` for the other form.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::error::BadText;
use super::keywords::{Pair, pair};

const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

pub(super) fn is_uri(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// Splits a URI into pairs; call it only if [`is_uri`].
pub(super) fn parse(text: &str) -> Result<Vec<Pair>, BadText> {
    let scheme = SCHEMES.iter().find(|scheme| text.starts_with(**scheme)).map_or(0, |s| s.len());
    let mut parser = Parser { text, pairs: Vec::new() };
    let mut rest = &text[scheme..];

    if let Some(end) = rest.find(['@', '/']).filter(|end| rest[*end..].starts_with('@')) {
        let (user, password) = cut(&rest[..end], ':');
        parser.keep("user", user)?;
        parser.keep("password", password.unwrap_or(""))?;
        rest = &rest[end + 1..];
    }
    rest = hosts(&mut parser, rest)?;
    if let Some(path) = rest.strip_prefix('/') {
        let end = path.find('?').unwrap_or(path.len());
        parser.refuse_at_sign(&path[..end])?;
        parser.keep("dbname", &path[..end])?;
        rest = &path[end..];
    }
    if let Some(query) = rest.strip_prefix('?') {
        parameters(&mut parser, query)?;
    }
    Ok(parser.pairs)
}

/// Parses `host:port,[v6]:port`; returns the rest, which is empty or starts with `/` or `?`.
fn hosts<'a>(parser: &mut Parser<'a>, mut rest: &'a str) -> Result<&'a str, BadText> {
    let (mut hosts, mut ports) = (OsString::new(), OsString::new());
    loop {
        let host;
        if let Some(v6) = rest.strip_prefix('[') {
            let end = v6.find(']').ok_or_else(|| parser.bad(rest, "`[` without its `]`"))?;
            if end == 0 {
                return Err(parser.bad(rest, "empty IPv6 address"));
            }
            (host, rest) = (&v6[..end], &v6[end + 1..]);
            if !rest.is_empty() && !rest.starts_with([':', '/', '?', ',']) {
                return Err(
                    parser.bad(rest, "expected `:`, `/`, `?` or `,` after the IPv6 address")
                );
            }
        } else {
            let end = rest.find([':', '/', '?', ',']).unwrap_or(rest.len());
            (host, rest) = rest.split_at(end);
            parser.refuse_at_sign(host)?;
        }
        hosts.push(parser.decode(host)?);
        if let Some(after) = rest.strip_prefix(':') {
            let end = after.find(['/', '?', ',']).unwrap_or(after.len());
            parser.refuse_at_sign(&after[..end])?;
            ports.push(parser.decode(&after[..end])?);
            rest = &after[end..];
        }
        let Some(next) = rest.strip_prefix(',') else { break };
        hosts.push(",");
        ports.push(",");
        rest = next;
    }
    parser.keep_decoded("host", hosts);
    parser.keep_decoded("port", ports);
    Ok(rest)
}

fn parameters<'a>(parser: &mut Parser<'a>, query: &'a str) -> Result<(), BadText> {
    if query.is_empty() {
        return Ok(());
    }
    // libpq accepts a trailing `&`.
    for parameter in query.strip_suffix('&').unwrap_or(query).split('&') {
        let (written, value) = cut(parameter, '=');
        let Some(value) = value else {
            return Err(parser.bad(parameter, "expected key=value"));
        };
        if value.contains('=') {
            return Err(parser.bad(parameter, "second `=` in a parameter; write it as %3D"));
        }
        let value = parser.decode(value)?;
        let mut written = parser.decode(written)?.to_string_lossy().into_owned();
        // JDBC's form, which libpq accepts too.
        let jdbc = written == "ssl" && value == "true";
        if jdbc {
            written.replace_range(.., "requiressl");
        }
        let pair = pair(&written, if jdbc { "1".into() } else { value }).map_err(|nearest| {
            parser.bad(parameter, format!("unknown parameter `{written}`; nearest is `{nearest}`"))
        })?;
        parser.pairs.push(pair);
    }
    Ok(())
}

fn cut(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// The URI and the pairs parser so far.
struct Parser<'a> {
    text: &'a str,
    pairs: Vec<Pair>,
}

impl Parser<'_> {
    fn keep(&mut self, keyword: &'static str, encoded: &str) -> Result<(), BadText> {
        let value = self.decode(encoded)?;
        self.keep_decoded(keyword, value);
        Ok(())
    }

    /// An empty part of a URI counts as not given.
    fn keep_decoded(&mut self, keyword: &'static str, value: OsString) {
        if !value.is_empty() {
            self.pairs.push(Pair { keyword, value });
        }
    }

    fn refuse_at_sign(&self, part: &str) -> Result<(), BadText> {
        match part.find('@') {
            Some(at) => {
                let problem = "misplaced `@`; in user, password or database write \
                               @ as %40, / as %2F and : as %3A";
                Err(self.bad(&part[at..], problem))
            }
            None => Ok(()),
        }
    }

    fn decode(&self, encoded: &str) -> Result<OsString, BadText> {
        let mut bytes = Vec::with_capacity(encoded.len());
        let mut rest = encoded.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            if *first != b'%' {
                bytes.push(*first);
                rest = after;
                continue;
            }
            let code = after.get(..2).and_then(|two| Some((hex(two[0])? << 4) | hex(two[1])?));
            match code {
                Some(0) => return Err(self.bad(encoded, "%00 is not allowed")),
                Some(byte) => bytes.push(byte),
                None => return Err(self.bad(encoded, "`%` without two hexadecimal digits")),
            }
            rest = &after[2..];
        }
        Ok(OsString::from_vec(bytes))
    }

    /// `part` must be a slice of the text; the position in characters is computed from it.
    fn bad(&self, part: &str, problem: impl Into<String>) -> BadText {
        let byte = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let before = self.text.char_indices().take_while(|(at, _)| *at < byte).count();
        BadText::new(before + 1, problem)
    }
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_fuzz::{fuzz, print};
    use proptest::prelude::*;

    fn split(text: &str) -> String {
        let pairs = parse(text).unwrap();
        let shown: Vec<_> =
            pairs.iter().map(|p| format!("{}={}", p.keyword, p.value.to_str().unwrap())).collect();
        shown.join(" ")
    }

    fn problem(text: &str) -> String {
        parse(text).err().unwrap().to_string()
    }

    #[test]
    fn parses_like_libpq() {
        for (text, pairs) in [
            ("postgres://", ""),
            ("postgresql:///db", "dbname=db"),
            ("postgres://host", "host=host"),
            ("postgres://me@host/", "user=me host=host"),
            ("postgres://me:pw@host:5/db", "user=me password=pw host=host port=5 dbname=db"),
            ("postgres://a:1,b:2/db", "host=a,b port=1,2 dbname=db"),
            ("postgres://a,b:2/db", "host=a,b port=,2 dbname=db"),
            ("postgres://a,b", "host=a,b port=,"),
            ("postgres://[::1]:5,[fe80::2]/db", "host=::1,fe80::2 port=5, dbname=db"),
            ("postgres://%2Fvar%2Frun:5/db", "host=/var/run port=5 dbname=db"),
            ("postgres:///db?host=/tmp&port=5", "dbname=db host=/tmp port=5"),
            ("postgres://h?user=me", "host=h user=me"),
            ("postgres://h/?ssl=true&", "host=h sslmode=require"),
            ("postgres://a%40b:c%3A%2f@h/d%20e", "user=a@b password=c:/ host=h dbname=d e"),
            ("postgres://h/d?options=-c%20x%3D1+2", "host=h dbname=d options=-c x=1+2"),
            ("postgres://h/%C3%A9", "host=h dbname=é"),
            ("postgres://:pw@h", "password=pw host=h"),
        ] {
            assert_eq!(split(text), pairs, "for {text}");
        }
    }

    #[test]
    fn errors_give_position_and_problem() {
        for (text, start) in [
            (
                "postgres://h/d?hots=1",
                "at character 16: unknown parameter `hots`; nearest is `host`",
            ),
            ("postgres://h/d?host", "at character 16: expected key=value"),
            ("postgres://h/d?&", "at character 16: expected key=value"),
            ("postgres://h/d?options=a=b", "at character 16: second `=`"),
            ("postgres://[::1/d", "at character 12: `[` without"),
            ("postgres://[]/d", "at character 12: empty IPv6"),
            ("postgres://[::1]x", "at character 17: expected"),
            ("postgres://h/a%4", "at character 14: `%` without"),
            ("postgres://h/a%+5", "at character 14: `%` without"),
            ("postgres://h/%00", "at character 14: %00"),
        ] {
            assert!(problem(text).starts_with(start), "for {text}: {}", problem(text));
        }
    }

    #[test]
    fn an_unencoded_password_is_never_displayed_as_a_host() {
        for text in [
            "postgres://me:hu@sh@host/db",
            "postgres://me:1/hush@host/db",
            "postgres://me:hush%4@host/db",
        ] {
            let problem = problem(text);
            assert!(!problem.contains("hu") && !problem.contains("sh@"), "{problem}");
        }
    }

    fn encode(text: &str) -> String {
        text.bytes().map(|b| format!("%{b:02X}")).collect()
    }

    proptest! {
        #[test]
        fn encoding_round_trips(user in "[^\0]+", password in "[^\0]+", db in "[^\0]+") {
            let (u, p, d) = (encode(&user), encode(&password), encode(&db));
            let pairs = parse(&format!("postgres://{u}:{p}@h/{d}")).unwrap();
            let values: Vec<_> = pairs.into_iter().map(|p| p.value.into_string().unwrap()).collect();
            prop_assert_eq!(values, [user, password, "h".to_owned(), db]);
        }
    }

    #[test]
    fn fuzzed_uris_are_parsed_or_refused() {
        let samples = [
            "postgresql://me:p%40ss@[::1]:5432,h:5433/my%20db?sslmode=verify-full&options=-c%20geqo=off",
            "postgres:///db?host=/run/pg&connect_timeout=5",
        ];
        fuzz(&samples, |bytes| match parse(&String::from_utf8_lossy(bytes)) {
            Ok(_) => {}
            Err(error) => print(&error),
        });
    }
}
