//! Removing what carries our mark, and nothing else.
//!
//! A few tables go at a time: thousands in one transaction would need more locks than a server has,
//! and each in its own would read through shared_buffers as often. What fails half way is finished by
//! calling again. Asks nobody; that is the command's part.

use postgres::Client;

use super::error::DatasetError;
use super::load::exclusively;
use super::mark;
use super::{sql, verify};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Destroyed {
    pub dropped: Vec<String>,
    /// Bears a name like ours without our mark: not touched.
    pub left: Vec<String>,
}

/// Drops the tables and the workloads' helpers of ours in current_schema().
pub fn destroy(client: &mut Client) -> Result<Destroyed, DatasetError> {
    exclusively(client, |client| {
        let schema = verify::current_schema(client)?;
        let mut result = Destroyed::default();
        for found in helpers(client)? {
            if !found.ours {
                result.left.push(found.name);
                continue;
            }
            drop_named(client, found.statement, found.placeholder, &found.name, &found.quoted)?;
            result.dropped.push(found.name);
        }
        let named =
            mark::find(client).map_err(|e| DatasetError::from_pg("look for", "the data set", e))?;
        let (ours, others): (Vec<_>, Vec<_>) = named.iter().partition(|n| n.mark.is_some());
        let names: Vec<String> = ours.iter().map(|n| n.part.to_string()).collect();
        drop_tables(client, &schema, &names)?;
        result.dropped.extend(names);
        result.left.extend(others.iter().map(|n| n.part.to_string()));
        Ok(result)
    })
}

/// Each takes some four locks, with its index and TOAST; the most frugal server has 10 for each of
/// its connections.
const TABLES_AT_A_TIME: usize = 16;

pub(super) fn drop_tables(
    client: &mut Client,
    schema: &str,
    names: &[String],
) -> Result<(), DatasetError> {
    for some in names.chunks(TABLES_AT_A_TIME) {
        let failed = |name| move |e| DatasetError::from_pg("drop", name, e);
        let mut transaction = client.transaction().map_err(failed(&some[0]))?;
        transaction.batch_execute(sql::LOCK_TIMEOUT).map_err(failed(&some[0]))?;
        for name in some {
            let table = sql::qualified(schema, name);
            let statement = sql::fill(sql::DROP_TABLE, &[("table", &table)]);
            transaction.batch_execute(&statement).map_err(failed(name))?;
        }
        transaction.commit().map_err(failed(&some[0]))?;
    }
    Ok(())
}

/// Waits a few seconds for who uses it, not for ever; leaves the session's own lock_timeout alone.
fn drop_named(
    client: &mut Client,
    statement: &str,
    placeholder: &str,
    name: &str,
    quoted: &str,
) -> Result<(), DatasetError> {
    let failed = |e| DatasetError::from_pg("drop", name, e);
    let mut transaction = client.transaction().map_err(failed)?;
    transaction.batch_execute(sql::LOCK_TIMEOUT).map_err(failed)?;
    transaction.batch_execute(&sql::fill(statement, &[(placeholder, quoted)])).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// The workloads' own tables, quoted.
pub(super) fn tables_of_workloads(client: &mut Client) -> Result<Vec<String>, DatasetError> {
    let ours = helpers(client)?.into_iter().filter(|h| h.ours && h.placeholder == "table");
    Ok(ours.map(|h| h.quoted).collect())
}

struct Helper {
    name: String,
    quoted: String,
    statement: &'static str,
    placeholder: &'static str,
    ours: bool,
}

fn helpers(client: &mut Client) -> Result<Vec<Helper>, DatasetError> {
    let rows = client
        .query(sql::HELPERS, &[])
        .map_err(|e| DatasetError::from_pg("look for", "the workload's objects", e))?;
    let helper = |row: &postgres::Row| {
        let (statement, placeholder) = match row.get("kind") {
            "table" => (sql::DROP_TABLE, "table"),
            _ => (sql::DROP_ROUTINE, "routine"),
        };
        let comment: Option<&str> = row.get("comment");
        let ours = comment.is_some_and(mark::is_workload);
        let (name, quoted) = (row.get("name"), row.get("statement_name"));
        Helper { name, quoted, statement, placeholder, ours }
    };
    Ok(rows.iter().map(helper).collect())
}
