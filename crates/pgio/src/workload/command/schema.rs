//! A schema of pgio's own for what a command makes in the database: made and dropped here, with our
//! mark, and all that its sessions find, so that a program which drops its tables first cannot mean
//! someone else's.

use postgres::Client;

use super::error::CommandError;
use crate::pg::quote::{identifier, literal};

/// In the schema's comment; `destroy` takes what begins and ends like this.
pub const MARK: &str = "pgio command workload: made and dropped by pgio";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Ours,
    Strangers,
}

fn find(admin: &mut Client, name: &str) -> Result<Found, CommandError> {
    let sql = "SELECT coalesce(pg_catalog.obj_description(oid, 'pg_namespace') = $2, false) \
               FROM pg_catalog.pg_namespace WHERE nspname = $1";
    let row = admin.query_opt(sql, &[&name, &MARK]).map_err(failed("looking for the schema"))?;
    Ok(match row.map(|row| row.get::<_, bool>(0)) {
        None => Found::Nothing,
        Some(true) => Found::Ours,
        Some(false) => Found::Strangers,
    })
}

/// Refuses, before anything is made, where the name is taken or the role may make none.
pub(super) fn check(admin: &mut Client, name: &str) -> Result<(), CommandError> {
    if find(admin, name)? == Found::Strangers {
        return Err(CommandError::NotOurs(name.to_owned()));
    }
    let sql = "SELECT pg_catalog.has_database_privilege(current_database(), 'CREATE'), \
                      pg_catalog.quote_ident(current_user), pg_catalog.quote_ident(current_database())";
    let row = admin.query_one(sql, &[]).map_err(failed("looking at the role"))?;
    match row.get::<_, bool>(0) {
        true => Ok(()),
        false => {
            let (role, database): (String, String) = (row.get(1), row.get(2));
            Err(CommandError::Refused(format!(
                "role {role} may not make the schema {name}; run: GRANT CREATE ON DATABASE {database} TO {role}"
            )))
        }
    }
}

pub(super) fn is_there(admin: &mut Client, name: &str) -> Result<bool, CommandError> {
    Ok(find(admin, name)? == Found::Ours)
}

/// An empty one, whatever an earlier trial or a killed run left in it.
pub(super) fn make(admin: &mut Client, name: &str) -> Result<(), CommandError> {
    remove(admin, name)?;
    // A stranger's is refused by CREATE.
    let sql = format!(
        "BEGIN; CREATE SCHEMA {name}; COMMENT ON SCHEMA {name} IS {mark}; COMMIT",
        name = identifier(name),
        mark = literal(MARK)
    );
    admin.batch_execute(&sql).map_err(|source| {
        // The transaction is left open by its failure.
        let _ = admin.batch_execute("ROLLBACK");
        CommandError::Postgres { doing: "making the schema", source }
    })
}

pub(super) fn remove(admin: &mut Client, name: &str) -> Result<(), CommandError> {
    if find(admin, name)? != Found::Ours {
        return Ok(());
    }
    let sql = format!("DROP SCHEMA {} CASCADE", identifier(name));
    admin.batch_execute(&sql).map_err(failed("dropping the schema"))
}

/// What was loaded is left without hint bits to be set and with statistics, so that the first trial
/// does not do it.
pub(super) fn settle(admin: &mut Client, name: &str) -> Result<(), CommandError> {
    let sql = "SELECT format('VACUUM (FREEZE, ANALYZE) %I.%I', schemaname, tablename) \
               FROM pg_catalog.pg_tables WHERE schemaname = $1 ORDER BY tablename";
    let rows = admin.query(sql, &[&name]).map_err(failed("looking at the tables"))?;
    for row in rows {
        admin.batch_execute(row.get(0)).map_err(failed("vacuuming the tables"))?;
    }
    Ok(())
}

fn failed(doing: &'static str) -> impl Fn(postgres::Error) -> CommandError {
    move |source| CommandError::Postgres { doing, source }
}
