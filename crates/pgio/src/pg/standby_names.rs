//! `synchronous_standby_names` as the server reads it: how many standbys commits wait for, and which
//! connected ones it names.
//!
//! Only as much of the grammar (syncrep_gram.y) as that takes; the server itself refuses the rest.

use super::server::{Replication, Standby};

/// A parsed value; of an empty one there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandbyNames {
    /// How many of them must answer.
    pub wanted: usize,
    names: Vec<String>,
}

impl StandbyNames {
    /// `None` where it is empty or no list of standbys.
    pub fn parse(text: &str) -> Option<StandbyNames> {
        let text = text.trim();
        let (wanted, list) = match text.split_once('(') {
            // A quoted name may hold a parenthesis.
            Some((head, rest)) if !head.contains('"') => {
                (number(head)?, rest.trim_end().strip_suffix(')')?)
            }
            _ => (1, text),
        };
        let names = names(list)?;
        (wanted > 0 && !names.is_empty()).then_some(StandbyNames { wanted, names })
    }

    fn holds(&self, name: &str) -> bool {
        // The server compares without regard to case.
        self.names.iter().any(|n| n == "*" || n.eq_ignore_ascii_case(name))
    }

    /// The standbys of which it would make synchronous ones.
    pub fn connected<'a>(&self, replication: &'a Replication) -> Vec<&'a Standby> {
        let all = replication.standbys.iter();
        all.filter(|s| s.state == "streaming" && self.holds(&s.name)).collect()
    }
}

/// Of `2`, `FIRST 2` and `ANY 2`.
fn number(head: &str) -> Option<usize> {
    let words: Vec<&str> = head.split_whitespace().collect();
    match words.as_slice() {
        [n] => n.parse().ok(),
        [how, n] if ["first", "any"].contains(&how.to_ascii_lowercase().as_str()) => n.parse().ok(),
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
            // Nothing may follow but another name.
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
    fn every_form_is_read_and_what_is_none_is_not() {
        let read = |text: &str| StandbyNames::parse(text).map(|n| (n.wanted, n.names.join("|")));
        let found = |wanted: usize, names: &str| Some((wanted, names.to_owned()));
        assert_eq!(read("a"), found(1, "a"));
        assert_eq!(read(" a , \"b c\" "), found(1, "a|b c"));
        assert_eq!(read("2 (a, b)"), found(2, "a|b"));
        assert_eq!(read("FIRST 1 (*)"), found(1, "*"));
        assert_eq!(read("any 2(a,\"b\" , c)"), found(2, "a|b|c"));
        assert_eq!(read("\"odd (name)\""), found(1, "odd (name)"));
        for none in
            ["", "  ", "ANY 1 (a", "ANY (a)", "SOME 1 (a)", "a,,b", "a,", "0 (a)", "1 ()", "\"a"]
        {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn only_streaming_standbys_of_that_name_are_meant() {
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
