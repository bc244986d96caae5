//! Whether objects of the database may be used by a session of pgio.
//!
//! Anyone who may create objects can give them pgio's names and comments, and code on a table (triggers, rules,
//! policies, expressions) runs with the rights of the session that uses it. So a name and a mark are no proof of
//! origin: the owner is.

use std::fmt;

use postgres::{GenericClient, Row};

use super::quote::fill;

const UNTRUSTED: &str = include_str!("sql/untrusted.sql");

/// A condition in SQL: the role with the oid in {owner} could not gain rights by code in what it owns. It is the
/// session's role, a superuser, or a role that an ordinary session's role was granted. A superuser is a member of
/// every role, so that proves nothing.
const TRUSTED: &str = "EXISTS (SELECT FROM pg_roles o, pg_roles me \
    WHERE o.oid = {owner} AND me.rolname = current_user \
      AND (o.oid = me.oid OR o.rolsuper OR NOT me.rolsuper AND pg_has_role(me.oid, o.oid, 'USAGE')))";

/// Returns [`TRUSTED`] for the owner that this expression gives.
pub fn is_trusted(owner: &str) -> String {
    fill(TRUSTED, &[("owner", owner)])
}

/// A relation that a session of pgio must not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrusted {
    /// Its name, quoted where necessary.
    pub relation: String,
    /// What it has or is, such as `belongs to role mallory`.
    pub why: String,
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

/// Finds a table or view of these names that must not be used. Those that do not exist are not found.
pub fn find_untrusted(
    client: &mut impl GenericClient,
    schema: &str,
    names: &[&str],
    owners: Owners,
) -> Result<Option<Untrusted>, postgres::Error> {
    let query = fill(UNTRUSTED, &[("trusted", &is_trusted("relowner"))]);
    let row = client.query_opt(&query, &[&schema, &names, &(owners == Owners::Granting)])?;
    let untrusted = |row: Row| Ok(Untrusted { relation: row.try_get(0)?, why: row.try_get(1)? });
    row.map(untrusted).transpose()
}
