//! Measures how much of the data set is in memory, and reads it there.
//!
//! pg_buffercache counts shared_buffers, fincore on the host the kernel's page cache;
//! either may be missing. A missing extension is created in a transaction that is
//! rolled back: what is in memory stays, and the database never has the extension.

use std::fmt;

use postgres::{Client, Transaction};

use crate::dataset::mark;
use crate::host::exec::{CommandLine, Exec};
use crate::host::proc::meminfo;
use crate::pg::quote;
use crate::pg::server::directories;
use crate::pg::trust::{is_trusted, is_trusted_schema};
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;

const RELATIONS: &str = include_str!("sql/relations.sql");
const BUFFERED: &str = include_str!("sql/buffered.sql");
const RESIDENT: &str = include_str!("resident.sh");

const PREWARM: &str = "pg_prewarm";
const BUFFERCACHE: &str = "pg_buffercache";

/// The data set's tables that workloads read, and their indexes.
#[derive(Debug, Clone, Default)]
pub(super) struct Relations {
    oids: Vec<u32>,
    /// The first file of each, relative to the data directory.
    files: Vec<String>,
    bytes: u64,
}

impl Relations {
    pub(super) fn of_data_set(client: &mut Client) -> Result<Relations, TreatmentError> {
        let asking = "find the data set";
        let names = names(&mark::find(client).map_err(TreatmentError::postgres(asking))?);
        let rows = client.query(RELATIONS, &[&names]).map_err(TreatmentError::postgres(asking))?;
        let mut relations = Relations::default();
        for row in &rows {
            relations.oids.push(row.try_get("oid")?);
            relations.files.push(row.try_get("file")?);
            relations.bytes += row.try_get::<_, i64>("bytes")?.unsigned_abs();
        }
        Ok(relations)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.oids.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the names of the marked tables that workloads read; nothing reads pgio_base.
fn names(found: &[mark::Named]) -> Vec<String> {
    let marked = found.iter().filter(|named| named.mark.is_some()).map(|named| named.part);
    let read = marked.filter(|part| match part {
        mark::Part::Table(_) | mark::Part::Scan => true,
        mark::Part::Base => false,
    });
    read.map(|part| part.to_string()).collect()
}

/// Shares of the data set's bytes, 0 to 1; absent where they could not be measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Resident {
    buffers: Option<f64>,
    page_cache: Option<f64>,
}

impl Resident {
    pub(super) fn measure(
        context: &mut Context<'_>,
        relations: &Relations,
    ) -> Result<Resident, TreatmentError> {
        Ok(Resident {
            buffers: buffered_share(context.admin()?, relations),
            page_cache: page_cache_share(context, relations)?,
        })
    }

    /// The larger of the two, since either cache can hold all of the data set.
    pub(super) fn larger_share(self) -> Option<f64> {
        self.buffers.into_iter().chain(self.page_cache).max_by(f64::total_cmp)
    }
}

impl fmt::Display for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |share: Option<f64>| match share {
            Some(share) => format!("{:.0} %", share * 100.0),
            None => "an unknown part".to_owned(),
        };
        let (buffers, page_cache) = (share(self.buffers), share(self.page_cache));
        write!(f, "{buffers} in shared_buffers, {page_cache} in the page cache")
    }
}

/// Returns none if pg_buffercache is not installed or this role may not use it.
fn buffered_share(client: &mut Client, relations: &Relations) -> Option<f64> {
    let mut transaction = client.transaction().ok()?;
    let schema = with_extension(&mut transaction, BUFFERCACHE).ok()?;
    let sql = quote::fill(BUFFERED, &[("schema", &quote::identifier(&schema))]);
    let bytes: i64 = transaction.query_one(&sql, &[&relations.oids]).ok()?.try_get(0).ok()?;
    // Dropping the transaction rolls it back.
    Some(bytes as f64 / relations.bytes.max(1) as f64)
}

fn page_cache_share(
    context: &mut Context<'_>,
    relations: &Relations,
) -> Result<Option<f64>, TreatmentError> {
    let directories = directories(context.admin()?)
        .map_err(TreatmentError::postgres("query the data directory"))?;
    let Some(data) = directories.into_iter().find(|d| d.role == "data") else { return Ok(None) };
    let Ok(host) = context.host(None) else { return Ok(None) };
    let files = relations.files.iter().map(|file| format!("{}/{file}", data.path));
    let ask = CommandLine::new("sh").args(["-c", RESIDENT, "sh"]).args(files);
    let text = host.run(&ask)?;
    let resident: Option<u64> = text.lines().map(|line| line.trim().parse::<u64>().ok()).sum();
    let seen = !text.trim().is_empty();
    Ok(resident.filter(|_| seen).map(|bytes| bytes as f64 / relations.bytes.max(1) as f64))
}

/// The memory of the server's host, if that is known.
pub(super) fn host_memory(context: &Context<'_>) -> Result<Option<u64>, TreatmentError> {
    let Ok(host) = context.host(None) else { return Ok(None) };
    let text = host.run(&CommandLine::new("cat").arg("/proc/meminfo"))?;
    Ok(meminfo::parse(&text).get("total").copied())
}

pub(super) fn prewarm(client: &mut Client, relations: &Relations) -> Result<(), TreatmentError> {
    let reading = "read the data set into memory";
    let mut transaction = client.transaction().map_err(TreatmentError::postgres(reading))?;
    let schema =
        with_extension(&mut transaction, PREWARM).map_err(TreatmentError::postgres(reading))?;
    let function = quote::qualified(&schema, PREWARM);
    // All arguments with their types, since others may have a function of fewer arguments in that schema.
    let sql = format!(
        "SELECT {function}($1::oid::regclass, 'buffer'::text, 'main'::text, NULL::bigint, NULL::bigint)"
    );
    for oid in &relations.oids {
        transaction.execute(&sql, &[oid]).map_err(TreatmentError::postgres(reading))?;
    }
    transaction.rollback().map_err(TreatmentError::postgres(reading))
}

/// Refuses if [`prewarm`] would fail.
pub(super) fn check_extension(client: &mut Client) -> Result<(), TreatmentError> {
    let asking = "look for the extension pg_prewarm";
    let existing = client
        .query_opt("SELECT FROM pg_available_extensions WHERE name = $1", &[&PREWARM])
        .map_err(TreatmentError::postgres(asking))?;
    if existing.is_none() {
        return Err(TreatmentError::Refused(
            "the extension pg_prewarm is not installed on the server: install PostgreSQL's contrib package there".to_owned(),
        ));
    }
    let mut transaction = client.transaction().map_err(TreatmentError::postgres(asking))?;
    with_extension(&mut transaction, PREWARM).map(drop).map_err(TreatmentError::postgres(
        "create extension pg_prewarm; as a superuser, run CREATE EXTENSION pg_prewarm once",
    ))
}

/// Returns the schema of the extension, which exists until the transaction ends.
fn with_extension(
    transaction: &mut Transaction<'_>,
    name: &str,
) -> Result<String, postgres::Error> {
    const TEMPORARY_SCHEMA: &str = "pgio_rolled_back";
    // Otherwise creating it fails.
    let find = format!(
        "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace \
         WHERE e.extname = $1 AND {} AND {}",
        is_trusted("e.extowner"),
        is_trusted_schema("n.nspowner")
    );
    let existing = transaction.query_opt(&find, &[&name])?;
    if let Some(row) = existing {
        return row.try_get(0);
    }
    transaction.batch_execute(&format!(
        "CREATE SCHEMA {TEMPORARY_SCHEMA}; CREATE EXTENSION {name} SCHEMA {TEMPORARY_SCHEMA}"
    ))?;
    Ok(TEMPORARY_SCHEMA.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::mark::{Mark, Named, Part};
    use pgio_results::units::Layout;

    #[test]
    fn the_data_set_in_memory_includes_the_table_for_scans() {
        let mark = Mark {
            version: mark::VERSION,
            scale: "8M".to_owned(),
            blocks: 1024,
            tables: 1,
            seed: 1,
            layout: Layout::default(),
        };
        let named =
            |part, mark| Named { part, mark, owner: "app".to_owned(), owned: true, bytes: 8 << 20 };
        let ours =
            [Part::Base, Part::Scan, Part::Table(1)].map(|part| named(part, Some(mark.clone())));
        let mut found = ours.to_vec();
        found.push(named(Part::Table(2), None));
        assert_eq!(names(&found), ["pgio_scan", "pgio1"]);
    }
}
