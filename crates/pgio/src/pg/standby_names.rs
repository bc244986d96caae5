//! Parses `synchronous_standby_names` as the server does: the number of standbys that commits wait
//! for, and which connected standbys match.
//!
//! Covers only the necessary part of the grammar (syncrep_gram.y); the server rejects everything
//! else.

use super::server::{Replication, Standby};

/// A parsed, non-empty value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandbyNames {
    /// Number of standbys that must confirm a commit.
    pub wanted: usize,
    names: Vec<String>,
}

impl StandbyNames {
    /// `None` if the text is empty or invalid.
    pub fn parse(text: &str) -> Option<StandbyNames> {
        let text = text.trim();
        let (wanted, list) = match text.split_once('(') {
            // A quoted name may contain a parenthesis.
            Some((head, rest)) if !head.contains('"') => {
                (number(head)?, rest.trim_end().strip_suffix(')')?)
            }
            _ => (1, text),
        };
        let names = names(list)?;
        (wanted > 0 && !names.is_empty()).then_some(StandbyNames { wanted, names })
    }

    fn matches(&self, name: &str) -> bool {
        // The server ignores case.
        self.names.iter().any(|n| n == "*" || n.eq_ignore_ascii_case(name))
    }

    /// The streaming standbys that the value names.
    pub fn connected<'a>(&self, replication: &'a Replication) -> Vec<&'a Standby> {
        let all = replication.standbys.iter();
        all.filter(|s| s.state == "streaming" && self.matches(&s.name)).collect()
    }
}

/// Parses the number in `2`, `FIRST 2` and `ANY 2`.
fn number(head: &str) -> Option<usize> {
    let words: Vec<&str> = head.split_whitespace().collect();
    match words.as_slice() {
        [n] => n.parse().ok(),
        [method, n] if ["first", "any"].contains(&method.to_ascii_lowercase().as_str()) => {
            n.parse().ok()
        }
        _ => None,
    }
}

fn names(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = list.trim_start();
    while !rest.is_empty() {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let end = quoted.find('"')?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => rest.split_at(rest.find(',').unwrap_or(rest.len())),
        };
        let name = name.trim();
        if name.is_empty() {
            return None;
        }
        names.push(name.to_owned());
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            // Only another name may follow.
            Some(more) if !more.trim().is_empty() => more.trim_start(),
            Some(_) => return None,
            None if after.is_empty() => "",
            None => return None,
        };
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_parsed_and_invalid_text_is_rejected() {
        let parse = |text: &str| StandbyNames::parse(text).map(|n| (n.wanted, n.names.join("|")));
        let parsed = |wanted: usize, names: &str| Some((wanted, names.to_owned()));
        assert_eq!(parse("a"), parsed(1, "a"));
        assert_eq!(parse(" a , \"b c\" "), parsed(1, "a|b c"));
        assert_eq!(parse("2 (a, b)"), parsed(2, "a|b"));
        assert_eq!(parse("FIRST 1 (*)"), parsed(1, "*"));
        assert_eq!(parse("any 2(a,\"b\" , c)"), parsed(2, "a|b|c"));
        assert_eq!(parse("\"odd (name)\""), parsed(1, "odd (name)"));
        for invalid in
            ["", "  ", "ANY 1 (a", "ANY (a)", "SOME 1 (a)", "a,,b", "a,", "0 (a)", "1 ()", "\"a"]
        {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn only_streaming_standbys_match() {
        let standby = |name: &str, state: &str| Standby {
            name: name.to_owned(),
            state: state.to_owned(),
            sync_state: Some("async".to_owned()),
        };
        let standbys = vec![standby("East", "streaming"), standby("west", "catchup")];
        let replication = Replication { standbys, ..Replication::default() };
        let count = |text: &str| StandbyNames::parse(text).unwrap().connected(&replication).len();
        assert_eq!([count("east"), count("west"), count("*"), count("nowhere")], [1, 0, 1, 0]);
    }
}
