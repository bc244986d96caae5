//! Opens the SQL sessions of pgio, all of which begin with the same statements.
//!
//! Objects that others planted are not found, because search_path is pg_catalog alone: names of tables are qualified,
//! and the schema in which pgio creates tables, the first of the user's search_path, is kept in the setting
//! `pgio.schema`. Only the sessions of a user's program have the user's path.

use std::fmt;

use pgio_connect::{Client, ConnectError, ConnectParams, Row, SimpleQueryMessage};

use super::fill;
use super::words::{self, Shown};

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

// Whether objects of the database may be used by a session of pgio. Anyone who may create objects can give them
// pgio's names and comments, and code on a table (triggers, rules, policies, expressions) runs with the rights of
// the session that uses it. So a name and a mark are no proof of origin: the owner is.

const UNTRUSTED: &str = include_str!("sql/untrusted.sql");

/// A condition in SQL: the role with the oid in {owner} could not gain rights by code in what it owns. It is the
/// session's role, a superuser, or a role that an ordinary session's role was granted. A superuser is a member of
/// every role, so that proves nothing. Code can return to the role that logged in, so that one counts as well.
/// Role 6171, pg_database_owner, stands for the owner of the database.
const TRUSTED: &str = "NOT EXISTS (SELECT FROM pg_roles me LEFT JOIN pg_roles o \
      ON o.oid = CASE {owner} WHEN 6171 THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) \
                 ELSE {owner} END \
    WHERE me.rolname IN (current_user, session_user) \
      AND (o.oid = me.oid OR o.rolsuper OR NOT me.rolsuper AND pg_has_role(me.oid, o.oid, 'USAGE')) IS NOT TRUE)";

/// A condition in SQL: no code can make the session a superuser's.
const ORDINARY: &str =
    "NOT EXISTS (SELECT FROM pg_roles WHERE rolname IN (current_user, session_user) AND rolsuper)";

/// Returns [`TRUSTED`] for the owner that this expression gives.
pub fn is_trusted(owner: &str) -> String {
    fill(TRUSTED, &[("owner", owner)])
}

/// Returns a condition in SQL: the schema's owner, given as an expression, may be trusted with what the session uses
/// there. He can replace a relation by another of its name, also after it was checked. To an ordinary role he granted
/// the use.
pub fn is_trusted_schema(owner: &str) -> String {
    format!("({ORDINARY} OR {})", is_trusted(owner))
}

/// A schema, role or relation that a session of pgio must not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrusted {
    /// Its name, quoted where necessary.
    pub relation: String,
    /// What it has or is, such as `belongs to role mallory`.
    pub why: String,
}

impl Untrusted {
    pub const REMEDY: &str = "connect as the owner, name a schema of this role first in its search_path, or remove \
        from the tables what pgio did not create";
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Untrusted { relation, why } = self;
        write!(f, "{relation} {why}, so that code of others could run with the rights of this role")
    }
}

/// Who may own relations that a session of pgio uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Only roles that could not gain rights.
    Trusted,
    /// To a session of an ordinary role also others, which granted it the use.
    Granting,
}

/// Finds the schema, a table or view of these names in it, or the role that would own new ones, if it must not be used.
/// Those that do not exist are not found.
pub fn find_untrusted(
    client: &mut Client,
    schema: &str,
    names: &[&str],
    owners: Owners,
) -> Result<Option<Untrusted>, pgio_connect::Error> {
    let values = [
        ("trusted_schema", is_trusted_schema("nspowner")),
        ("trusted_role", is_trusted("(SELECT oid FROM pg_roles WHERE rolname = current_user)")),
        ("trusted", is_trusted("relowner")),
        ("ordinary", ORDINARY.to_owned()),
    ];
    let query = fill(UNTRUSTED, &values.each_ref().map(|(name, sql)| (*name, sql.as_str())));
    let row = client.query_opt(&query, &[&schema, &names, &(owners == Owners::Granting)])?;
    let untrusted = |row: Row| {
        let (Shown(relation), Shown(why)) = (row.try_get(0)?, row.try_get(1)?);
        Ok(Untrusted { relation, why })
    };
    row.map(untrusted).transpose()
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
