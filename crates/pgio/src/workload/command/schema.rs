//! pgio's own schema for a command's data. It is created and dropped here, carries pgio's mark, and is
//! the only schema in the search path, so that a program that drops its tables first cannot drop
//! someone else's.

use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::CommandError;
use crate::dataset::mark::COMMAND_SCHEMA;
use crate::pg::session::{Owners, Untrusted, find_untrusted, is_trusted};
use crate::pg::words::Shown;
use crate::pg::{identifier, literal};

const HOLD: &str = include_str!("hold.sql");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SchemaOwner {
    Missing,
    Pgio,
    Other,
}

fn find(admin: &mut Client, name: &str) -> Result<SchemaOwner, CommandError> {
    let sql = format!(
        "SELECT coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace') = $2, false) AND {} \
         FROM pg_catalog.pg_namespace n WHERE nspname = $1",
        is_trusted("n.nspowner")
    );
    let row = admin
        .query_opt(&sql, &[&name, &COMMAND_SCHEMA])
        .map_err(failed("looking for the schema"))?;
    Ok(match row.map(|row| row.try_get::<_, bool>(0)).transpose()? {
        None => SchemaOwner::Missing,
        Some(true) => SchemaOwner::Pgio,
        Some(false) => SchemaOwner::Other,
    })
}

/// Refuses, before anything is created, a name that is in use or a role that cannot create the schema.
pub(super) fn check(admin: &mut Client, name: &str) -> Result<(), CommandError> {
    if find(admin, name)? == SchemaOwner::Other {
        return Err(CommandError::NotOurs(name.to_owned()));
    }
    let untrusted = find_untrusted(admin, name, &[], Owners::Trusted);
    if let Some(untrusted) = untrusted.map_err(failed("checking the schema"))? {
        return Err(CommandError::Refused(format!("{untrusted}; {}", Untrusted::REMEDY)));
    }
    let sql = "SELECT pg_catalog.has_database_privilege(current_database(), 'CREATE'), \
                      pg_catalog.quote_ident(current_user), pg_catalog.quote_ident(current_database())";
    let row = admin.query_one(sql, &[]).map_err(failed("checking the role"))?;
    if row.try_get::<_, bool>(0)? {
        Ok(())
    } else {
        let (Shown(role), Shown(database)) = (row.try_get(1)?, row.try_get(2)?);
        Err(CommandError::Refused(format!(
            "role {role} has no privilege to create the schema {name}; run: GRANT CREATE ON DATABASE {database} TO {role}"
        )))
    }
}

pub(super) fn exists(admin: &mut Client, name: &str) -> Result<bool, CommandError> {
    Ok(find(admin, name)? == SchemaOwner::Pgio)
}

/// Creates an empty schema and drops the one of an earlier trial or a killed run.
pub(super) fn create(admin: &mut Client, name: &str) -> Result<(), CommandError> {
    remove(admin, name)?;
    // CREATE fails if the schema is not pgio's.
    let sql = format!(
        "BEGIN; CREATE SCHEMA {name}; COMMENT ON SCHEMA {name} IS {mark}; COMMIT",
        name = identifier(name),
        mark = literal(COMMAND_SCHEMA)
    );
    admin.batch_execute(&sql).map_err(|source| {
        // The failure leaves the transaction open.
        let _ = admin.batch_execute("ROLLBACK");
        CommandError::Postgres { doing: "creating the schema", source }
    })
}

pub(super) fn remove(admin: &mut Client, name: &str) -> Result<(), CommandError> {
    if find(admin, name)? != SchemaOwner::Pgio {
        return Ok(());
    }
    let sql = format!("DROP SCHEMA {} CASCADE", identifier(name));
    admin.batch_execute(&sql).map_err(failed("dropping the schema"))
}

/// Returns whether nothing is in the schema, of which kind ever.
pub(super) fn is_empty(admin: &mut Client, name: &str) -> Result<bool, CommandError> {
    let sql = "SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_depend d \
               JOIN pg_catalog.pg_namespace n ON d.refobjid = n.oid \
               WHERE d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass AND n.nspname = $1)";
    let row = admin.query_one(sql, &[&name]).map_err(failed("looking at the schema"))?;
    Ok(row.get(0))
}

/// The tables outside the schema while `setup` runs: only a session that took its search_path from PGOPTIONS finds no
/// others, and whether the program's sessions do is known only when they are there.
pub(super) struct HeldTables {
    next_look: Instant,
    holds: bool,
    /// Whether a session was ended that would have changed one.
    pub(super) defended: bool,
}

const LOOK_INTERVAL: Duration = Duration::from_millis(250);

impl HeldTables {
    /// Begins a transaction, which [`HeldTables::release`] ends.
    pub(super) fn hold(admin: &mut Client, schema: &str) -> Result<HeldTables, CommandError> {
        admin
            .batch_execute(&HOLD.replace("{schema}", &literal(schema)))
            .map_err(failed("holding the tables of other schemas"))?;
        Ok(HeldTables { next_look: Instant::now(), holds: true, defended: false })
    }

    /// Ends the sessions of the program that wait for a table. Lets go of all tables if someone else waits, or a
    /// session that has the schema and names a table outside.
    pub(super) fn look(&mut self, admin: &mut Client) {
        if Instant::now() >= self.next_look {
            self.look_again(admin);
        }
    }

    pub(super) fn look_again(&mut self, admin: &mut Client) {
        if !self.holds {
            return;
        }
        self.next_look = Instant::now() + LOOK_INTERVAL;
        // A name of ours is in PGOPTIONS beside the schema.
        let may_wait = "coalesce(application_name LIKE 'pgio%' OR backend_start < now() \
                                 OR datname <> current_database() OR usename <> session_user, true)";
        let sql = format!(
            "SELECT {may_wait}, NOT {may_wait} AND pg_catalog.pg_terminate_backend(pid) \
             FROM pg_catalog.pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        );
        // In a transaction, the view stays the same. If the server is gone, the trial ends by other means.
        let found = admin
            .batch_execute("SELECT pg_catalog.pg_stat_clear_snapshot()")
            .and_then(|()| admin.query(&sql, &[]))
            .unwrap_or_default();
        let has = |column| found.iter().any(|row| row.try_get(column).unwrap_or(false));
        self.defended |= has(1);
        if has(0) && !self.defended {
            self.release(admin);
        }
    }

    pub(super) fn release(&mut self, admin: &mut Client) {
        if std::mem::take(&mut self.holds) {
            // A server that is gone holds nothing.
            let _ = admin.batch_execute("COMMIT");
        }
    }
}

/// Vacuums and analyzes the loaded tables, so that the first trial does not set hint bits or gather
/// statistics.
pub(super) fn vacuum_tables(admin: &mut Client, name: &str) -> Result<(), CommandError> {
    let sql = "SELECT format('VACUUM (FREEZE, ANALYZE) %I.%I', schemaname, tablename) \
               FROM pg_catalog.pg_tables WHERE schemaname = $1 ORDER BY tablename";
    let rows = admin.query(sql, &[&name]).map_err(failed("looking at the tables"))?;
    for row in rows {
        admin.batch_execute(row.try_get(0)?).map_err(failed("vacuuming the tables"))?;
    }
    Ok(())
}

impl From<pgio_connect::Error> for CommandError {
    fn from(source: pgio_connect::Error) -> CommandError {
        failed("reading the server's answer")(source)
    }
}

fn failed(doing: &'static str) -> impl Fn(pgio_connect::Error) -> CommandError {
    move |source| CommandError::Postgres { doing, source }
}
