//! The connected standbys, and which of them commits wait for.

use pgio_connect::Client;

use super::server::{ServerError, read};
use crate::pg::words::Shown;

/// A synchronous standby as the primary sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standby {
    pub name: String,
    pub state: String,
    /// `sync`, `quorum`, `potential` or `async`; absent when the role may not see it.
    pub sync_state: Option<String>,
}

impl Standby {
    /// Whether it streams and commits wait for it.
    pub fn is_synchronous(&self) -> bool {
        self.state == "streaming" && matches!(self.sync_state.as_deref(), Some("sync" | "quorum"))
    }
}

/// Connected standbys, and which of them commits wait for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replication {
    pub synchronous_standby_names: String,
    pub standbys: Vec<Standby>,
}

impl Replication {
    /// Whether commits can wait for a standby, connected or not.
    pub fn is_required(&self) -> bool {
        !self.synchronous_standby_names.trim().is_empty()
    }

    pub fn has_synchronous(&self) -> bool {
        self.is_required() && self.standbys.iter().any(Standby::is_synchronous)
    }

    /// One line for evidence, such as `pgio_standby: sync`.
    pub fn describe(&self) -> String {
        if self.standbys.is_empty() {
            return "no standby connected".to_owned();
        }
        let mut all: Vec<String> = self
            .standbys
            .iter()
            .map(|s| format!("{}: {}", s.name, s.sync_state.as_deref().unwrap_or("hidden")))
            .collect();
        all.sort();
        all.join(", ")
    }

    /// The reason why no standby can confirm a commit although one is required. It lists the
    /// connected names, because a wrong name is the usual cause.
    pub fn missing(&self) -> Option<String> {
        let names = self.synchronous_standby_names.trim();
        if names.is_empty() || self.has_synchronous() || self.is_hidden() {
            return None;
        }
        let mut connected: Vec<&str> = self.standbys.iter().map(|s| s.name.as_str()).collect();
        connected.sort_unstable();
        connected.dedup();
        Some(match connected.as_slice() {
            [] => format!("synchronous_standby_names is `{names}`, but no standby is connected"),
            all if self.standbys.iter().all(|s| s.sync_state.as_deref() == Some("async")) => {
                format!("`{names}` names no connected standby (connected: {})", all.join(", "))
            }
            _ => format!(
                "synchronous_standby_names is `{names}` but no such standby streams ({})",
                self.describe()
            ),
        })
    }

    /// Whether the role lacks pg_monitor, which hides the details of pg_stat_replication.
    pub fn is_hidden(&self) -> bool {
        self.standbys.iter().any(|s| s.sync_state.is_none())
    }
}

pub fn current(client: &mut Client) -> Result<Replication, ServerError> {
    let Shown(names) = client
        .query_one("SELECT coalesce(current_setting('synchronous_standby_names', true), '')", &[])
        .and_then(|row| row.try_get(0))
        .map_err(read("synchronous_standby_names"))?;
    let rows = client
        .query(
            "SELECT coalesce(application_name, ''), coalesce(state, ''), sync_state \
             FROM pg_stat_replication ORDER BY 1",
            &[],
        )
        .map_err(read("pg_stat_replication"))?;
    let standby = |row: &pgio_connect::Row| -> Result<Standby, ServerError> {
        let (Shown(name), state, sync_state) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Standby { name, state, sync_state })
    };
    let standbys = rows.iter().map(standby).collect::<Result<_, _>>()?;
    Ok(Replication { synchronous_standby_names: names, standbys })
}

/// The names of the standbys that stream, as far as the role may see them.
pub fn streaming(client: &mut Client) -> Vec<String> {
    let standbys = current(client).into_iter().flat_map(|found| found.standbys);
    standbys.filter(|s| s.state == "streaming").map(|s| s.name).collect()
}

/// What replays this server's WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followers {
    /// A physical standby, connected or with a slot.
    pub standby: bool,
    pub archive: bool,
    /// A replication slot, of a standby or of a subscriber.
    pub slot: bool,
}

/// A logical walsender always has a slot.
const FOLLOWERS: &str = "SELECT \
    EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical') \
    OR EXISTS (SELECT FROM pg_stat_replication r WHERE NOT EXISTS ( \
        SELECT FROM pg_replication_slots s WHERE s.slot_type = 'logical' AND s.active_pid = r.pid)), \
    current_setting('archive_mode') <> 'off', \
    EXISTS (SELECT FROM pg_replication_slots)";

pub fn followers(client: &mut Client) -> Result<Followers, pgio_connect::Error> {
    let row = client.query_one(FOLLOWERS, &[])?;
    Ok(Followers { standby: row.try_get(0)?, archive: row.try_get(1)?, slot: row.try_get(2)? })
}

// Parses `synchronous_standby_names` as the server does: the number of standbys that commits wait for, and which
// connected standbys match. Covers only the necessary part of the grammar (syncrep_gram.y); the server rejects
// everything else.

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

    fn standby(state: &str, sync: Option<&str>) -> Standby {
        Standby {
            name: "s1".to_owned(),
            state: state.to_owned(),
            sync_state: sync.map(str::to_owned),
        }
    }

    #[test]
    fn only_a_streaming_sync_or_quorum_standby_counts() {
        assert!(standby("streaming", Some("sync")).is_synchronous());
        assert!(standby("streaming", Some("quorum")).is_synchronous());
        assert!(!standby("catchup", Some("sync")).is_synchronous());
        assert!(!standby("streaming", Some("potential")).is_synchronous());
        assert!(!standby("streaming", None).is_synchronous());
    }

    #[test]
    fn an_unmatched_name_is_reported_with_the_connected_names() {
        let replication = |names: &str, standbys: &[(&str, &str, &str)]| Replication {
            synchronous_standby_names: names.to_owned(),
            standbys: standbys
                .iter()
                .map(|(name, state, sync)| Standby {
                    name: (*name).to_owned(),
                    state: (*state).to_owned(),
                    sync_state: Some((*sync).to_owned()),
                })
                .collect(),
        };
        let async_ones = [("b", "streaming", "async"), ("a", "streaming", "async")];
        assert_eq!(
            replication("ANY 1 (x,y)", &async_ones).missing().unwrap(),
            "`ANY 1 (x,y)` names no connected standby (connected: a, b)"
        );
        assert_eq!(
            replication("x", &[]).missing().unwrap(),
            "synchronous_standby_names is `x`, but no standby is connected"
        );
        let lagging = replication("a", &[("a", "catchup", "sync")]).missing().unwrap();
        assert!(lagging.ends_with("`a` but no such standby streams (a: sync)"), "{lagging}");
        assert_eq!(replication("", &async_ones).missing(), None);
        assert_eq!(replication("a", &[("a", "streaming", "sync")]).missing(), None);
    }

    #[test]
    fn without_synchronous_standby_names_nothing_is_synchronous() {
        let mut r = Replication {
            synchronous_standby_names: String::new(),
            standbys: vec![standby("streaming", Some("sync"))],
        };
        assert!(!r.has_synchronous());
        r.synchronous_standby_names = "*".to_owned();
        assert!(r.has_synchronous());
        assert_eq!(r.describe(), "s1: sync");
    }

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
