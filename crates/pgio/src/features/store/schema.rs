//! The schema `pgio_results`: its versions, and the rights that each use needs.
//!
//! A migration is a numbered SQL file that is never changed once released; [`upgrade`] applies those that
//! are missing, in one transaction. A newer schema is refused, because its meaning is unknown. Rights are
//! asked for before anything is written, so that the message names the one that is missing.

use pgio_connect::Client;

use super::{ArchiveError, failed};
use crate::pg::fill;
use crate::pg::session::{Owners, find_untrusted, is_trusted_schema};

const CREATE: &str = include_str!("sql/create.sql");
const STATE: &str = include_str!("sql/state.sql");
const MISSING: &str = include_str!("sql/missing.sql");

/// Each takes the schema from the version before it to the next, the first one from none to 1.
const MIGRATIONS: &[&str] =
    &[include_str!("sql/001_tables.sql"), include_str!("sql/002_views.sql")];

/// The version that this pgio writes and reads.
pub(super) const VERSION: i32 = MIGRATIONS.len() as i32;

/// Serializes migrations; the class of advisory locks is the first half of `pgio`.
const LOCK: i64 = 0x7067_696f_0000_0001;

/// What storing does, beyond reading the version.
const WRITES: &[(&str, &str)] = &[
    ("experiments", "SELECT"),
    ("experiments", "INSERT"),
    ("experiments", "DELETE"),
    ("conditions", "INSERT"),
    ("condition_metrics", "INSERT"),
    ("trials", "SELECT"),
    ("trials", "INSERT"),
    ("trial_metrics", "INSERT"),
    ("comparisons", "INSERT"),
];
const READS: &[(&str, &str)] = &[
    ("runs", "SELECT"),
    ("run_conditions", "SELECT"),
    ("run_values", "SELECT"),
    ("trial_values", "SELECT"),
];

#[derive(Debug)]
struct State {
    database: String,
    role: String,
    may_create: bool,
    /// `None` without the schema.
    owner: Option<String>,
    is_owner: bool,
    is_ours: bool,
    is_usable: bool,
}

/// Makes or upgrades the schema as needed, and checks the rights for writing.
pub(super) fn prepare_to_write(client: &mut Client) -> Result<(), ArchiveError> {
    let mut transaction = client.transaction().map_err(failed("beginning"))?;
    let lock = transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]);
    lock.map_err(failed("locking the schema pgio_results"))?;
    let state = state(&mut transaction)?;
    match &state.owner {
        None if !state.may_create => {
            let State { database, role, .. } = state;
            return Err(ArchiveError::NoCreate { database, role });
        }
        None => {
            transaction
                .batch_execute(CREATE)
                .map_err(failed("creating the schema pgio_results"))?;
            upgrade(&mut transaction, 0)?;
        }
        Some(owner) => {
            let found = version(&mut transaction, &state, owner)?;
            if found < VERSION && !state.is_owner {
                let State { database, role, .. } = state;
                let owner = owner.clone();
                return Err(ArchiveError::Upgrade {
                    database,
                    role,
                    owner,
                    found,
                    wanted: VERSION,
                });
            }
            upgrade(&mut transaction, found)?;
            check(&mut transaction, &state, owner, WRITES)?;
        }
    }
    transaction.commit().map_err(failed("committing the schema pgio_results"))
}

/// Checks version and rights for reading; changes nothing.
pub(super) fn check_readable(client: &mut Client) -> Result<(), ArchiveError> {
    let state = state(client)?;
    let Some(owner) = &state.owner else {
        return Err(ArchiveError::Missing { database: state.database });
    };
    let found = version(client, &state, owner)?;
    if found < VERSION {
        let State { database, role, .. } = state;
        let owner = owner.clone();
        return Err(ArchiveError::Upgrade { database, role, owner, found, wanted: VERSION });
    }
    check(client, &state, owner, READS)
}

fn state(client: &mut Client) -> Result<State, ArchiveError> {
    let query = fill(STATE, &[("trusted_schema", &is_trusted_schema("s.nspowner"))]);
    let row =
        client.query_one(&query, &[]).map_err(failed("looking for the schema pgio_results"))?;
    let unreadable = || failed("reading the names of database and roles");
    Ok(State {
        database: row.try_get(0).map_err(unreadable())?,
        role: row.try_get(1).map_err(unreadable())?,
        may_create: row.try_get(2)?,
        owner: row.try_get(3).map_err(unreadable())?,
        is_owner: row.try_get(4)?,
        is_ours: row.try_get(5)?,
        is_usable: row.try_get(6)?,
    })
}

fn version(client: &mut Client, state: &State, owner: &str) -> Result<i32, ArchiveError> {
    let (database, role) = (state.database.clone(), state.role.clone());
    if !state.is_ours {
        return Err(ArchiveError::NotOurs { database });
    }
    if !state.is_usable {
        let owner = owner.to_owned();
        return Err(ArchiveError::OtherOwner { database, owner });
    }
    check_trusted(client)?;
    let usable = client.query_one("SELECT has_schema_privilege('pgio_results', 'USAGE')", &[]);
    if !usable.map_err(failed("checking privileges"))?.try_get::<_, bool>(0)? {
        return Err(ArchiveError::NoUsage { database, role, owner: owner.to_owned() });
    }
    check(client, state, owner, &[("schema_version", "SELECT")])?;
    let row =
        client.query_one("SELECT coalesce(max(version), 0) FROM pgio_results.schema_version", &[]);
    let found: i32 = row.map_err(failed("reading the schema's version"))?.try_get(0)?;
    if found > VERSION {
        Err(ArchiveError::Newer { database, found, known: VERSION })
    } else {
        Ok(found)
    }
}

/// Refuses tables and views that may run code of others, before any of them is used.
pub(super) fn check_trusted(client: &mut Client) -> Result<(), ArchiveError> {
    let named = WRITES.iter().chain(READS).map(|(name, _)| *name);
    let names: Vec<&str> = named.chain(["schema_version"]).collect();
    let found = find_untrusted(client, "pgio_results", &names, Owners::Granting);
    match found.map_err(failed("checking the schema pgio_results"))? {
        Some(untrusted) => Err(ArchiveError::Untrusted(untrusted)),
        None => Ok(()),
    }
}

fn check(
    client: &mut Client,
    state: &State,
    owner: &str,
    wanted: &[(&str, &str)],
) -> Result<(), ArchiveError> {
    let (relations, privileges): (Vec<&str>, Vec<&str>) = wanted.iter().copied().unzip();
    let missing = client.query_opt(&format!("{MISSING} LIMIT 1"), &[&relations, &privileges]);
    let Some(row) = missing.map_err(failed("checking privileges"))? else { return Ok(()) };
    Err(ArchiveError::NoPrivilege {
        database: state.database.clone(),
        role: state.role.clone(),
        owner: owner.to_owned(),
        privilege: row.try_get(0)?,
        relation: row.try_get(1)?,
    })
}

fn upgrade(client: &mut Client, from: i32) -> Result<(), ArchiveError> {
    for (version, migration) in (1..).zip(MIGRATIONS).skip(from.max(0) as usize) {
        let doing = || failed(format!("upgrading the schema pgio_results to version {version}"));
        client.batch_execute(migration).map_err(doing())?;
        let record = "INSERT INTO pgio_results.schema_version (version, pgio) VALUES ($1, $2)";
        let version: i32 = version;
        client.execute(record, &[&version, &env!("CARGO_PKG_VERSION")]).map_err(doing())?;
    }
    Ok(())
}
