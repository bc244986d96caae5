//! Opens the SQL sessions of pgio, all of which begin with the same statements.
//!
//! Objects that others planted are not found, because search_path is pg_catalog alone: names of tables are qualified,
//! and the schema in which pgio creates tables, the first of the user's search_path, is kept in the setting
//! `pgio.schema`. Only the sessions of a user's program have the user's path.

use pgio_connect::{Client, SimpleQueryMessage};

use super::words;
use pgio_connect::{ConnectError, ConnectParams};

/// Sent as one message.
pub const PREAMBLE: &str = include_str!("sql/preamble.sql");

/// The search_path of every session.
pub const SEARCH_PATH: (&str, &str) = ("search_path", "pg_catalog, pg_temp");

/// Opens a session.
#[expect(clippy::disallowed_methods, reason = "the session is prepared here")]
pub fn open(params: &ConnectParams) -> Result<Client, ConnectError> {
    let mut client = pgio_connect::connect(params)?;
    prepare(&mut client, &params.describe())?;
    Ok(client)
}

/// Opens a session at a private server, whose socket pgio chose.
#[expect(clippy::disallowed_methods, reason = "the session is prepared here")]
pub fn open_private(conninfo: &str) -> Result<Client, ConnectError> {
    let at = "a private server";
    let mut client = Client::connect(conninfo).map_err(|error| ConnectError::NotReady {
        at: at.to_owned(),
        message: error.to_string(),
    })?;
    prepare(&mut client, at)?;
    Ok(client)
}

/// Begins a session at the server `at`; refuses one in which a setting is not in force.
fn prepare(client: &mut Client, at: &str) -> Result<(), ConnectError> {
    let refused = |problem| ConnectError::Session { at: at.to_owned(), problem };
    let answer = client.simple_query(PREAMBLE).map_err(|error| refused(words::sentence(&error)))?;
    let rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let text = |at| row.try_get(at).ok().flatten().map(str::to_owned);
            Some((0..row.len()).map(text).collect())
        }
        _ => None,
    });
    check(rows).map_err(refused)
}

/// Checks the rows that [`PREAMBLE`] returned.
pub fn check(rows: impl IntoIterator<Item = Vec<Option<String>>>) -> Result<(), String> {
    let mut has_path = false;
    for row in rows {
        let [Some(name), Some(wanted), found] = row.as_slice() else { continue };
        let found = found.as_deref().unwrap_or_default();
        if found != wanted {
            return Err(format!("{name} is `{found}` after pgio set it to `{wanted}`"));
        }
        has_path |= (name.as_str(), found) == SEARCH_PATH;
    }
    if has_path { Ok(()) } else { Err("search_path could not be read back".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_force_counts() {
        let row = |texts: &[&str]| texts.iter().map(|t| Some((*t).to_owned())).collect::<Vec<_>>();
        let path = |found: &str| row(&["search_path", "pg_catalog, pg_temp", found]);
        let first = [row(&["f"]), row(&["pg_catalog, pg_temp"])];
        let judged = |rest: &[Vec<Option<String>>]| check(first.iter().chain(rest).cloned());
        assert_eq!(judged(&[path("pg_catalog, pg_temp")]), Ok(()));
        let refused = judged(&[path("public")]).unwrap_err();
        assert_eq!(refused, "search_path is `public` after pgio set it to `pg_catalog, pg_temp`");
        assert!(judged(&[]).unwrap_err().contains("could not be read back"));
    }
}
