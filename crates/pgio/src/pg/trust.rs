//! Whether objects of the database may be used by a session of pgio.
//!
//! Anyone who may create objects can give them pgio's names and comments, and code on a table (triggers, rules,
//! policies, expressions) runs with the rights of the session that uses it. So a name and a mark are no proof of
//! origin: the owner is.

use std::fmt;

use pgio_connect::{Client, Row};

use super::quote::fill;
use super::words::Shown;

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
