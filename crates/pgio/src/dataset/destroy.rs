//! Removes all objects with pgio's mark, and nothing else.
//!
//! Each transaction drops a few tables: thousands in one transaction would exceed the server's lock
//! table, while one table per transaction would scan shared_buffers for every table. After a failure,
//! call it again. This module does not ask for confirmation; the command does.

use pgio_connect::Client;

use super::error::DatasetError;
use super::mark;
use super::verify;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DestroySummary {
    pub dropped: Vec<String>,
    /// Objects that have such a name but no mark, and were kept.
    pub kept: Vec<String>,
}

/// Refuses while another pgio loads or removes the data set.
pub fn refuse_while_loading(client: &mut Client) -> Result<(), DatasetError> {
    with_lock(client, |_| Ok(()))
}

/// Drops the marked tables and helper objects of workloads in the schema of the session.
pub fn destroy(client: &mut Client) -> Result<DestroySummary, DatasetError> {
    with_lock(client, |client| {
        let schema = verify::current_schema(client)?;
        let mut result = DestroySummary::default();
        for helper in helpers(client)? {
            if !helper.marked {
                result.kept.push(helper.name);
                continue;
            }
            drop_named(client, helper.statement, helper.placeholder, &helper.name, &helper.quoted)?;
            result.dropped.push(helper.name);
        }
        let named =
            mark::find(client).map_err(|e| DatasetError::from_pg("find", "the data set", e))?;
        let (marked, others): (Vec<_>, Vec<_>) = named.iter().partition(|n| n.mark.is_some());
        let names: Vec<String> = marked.iter().map(|n| n.part.to_string()).collect();
        drop_tables(client, &schema, &names)?;
        result.dropped.extend(names);
        result.kept.extend(others.iter().map(|n| n.part.to_string()));
        Ok(result)
    })
}

/// Each table takes about four locks, index and TOAST included; a server has at least 10 locks per
/// connection.
const TABLES_PER_TRANSACTION: usize = 16;

pub(super) fn drop_tables(
    client: &mut Client,
    schema: &str,
    names: &[String],
) -> Result<(), DatasetError> {
    for chunk in names.chunks(TABLES_PER_TRANSACTION) {
        let failed = |name| move |e| DatasetError::from_pg("drop", name, e);
        let mut transaction = client.transaction().map_err(failed(&chunk[0]))?;
        transaction.batch_execute(super::LOCK_TIMEOUT).map_err(failed(&chunk[0]))?;
        for name in chunk {
            let table = super::qualified(schema, name);
            let statement = super::fill(super::DROP_TABLE, &[("table", &table)]);
            transaction.batch_execute(&statement).map_err(failed(name))?;
        }
        transaction.commit().map_err(failed(&chunk[0]))?;
    }
    Ok(())
}

/// Drops an object. Waits only a few seconds for locks of other sessions; the session's lock_timeout
/// does not change.
fn drop_named(
    client: &mut Client,
    statement: &str,
    placeholder: &str,
    name: &str,
    quoted: &str,
) -> Result<(), DatasetError> {
    let failed = |e| DatasetError::from_pg("drop", name, e);
    let mut transaction = client.transaction().map_err(failed)?;
    transaction.batch_execute(super::LOCK_TIMEOUT).map_err(failed)?;
    transaction.batch_execute(&super::fill(statement, &[(placeholder, quoted)])).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// Returns the quoted names of the tables of workloads.
pub(super) fn workload_tables(client: &mut Client) -> Result<Vec<String>, DatasetError> {
    let marked = helpers(client)?.into_iter().filter(|h| h.marked && h.placeholder == "table");
    Ok(marked.map(|h| h.quoted).collect())
}

/// Returns the names of the helper objects that [`destroy`] drops.
pub fn helper_names(client: &mut Client) -> Result<Vec<String>, DatasetError> {
    Ok(helpers(client)?.into_iter().filter(|h| h.marked).map(|h| h.name).collect())
}

struct Helper {
    name: String,
    quoted: String,
    statement: &'static str,
    placeholder: &'static str,
    marked: bool,
}

fn helpers(client: &mut Client) -> Result<Vec<Helper>, DatasetError> {
    let rows = client
        .query(super::HELPERS, &[])
        .map_err(|e| DatasetError::from_pg("find", "the workload's objects", e))?;
    let helper = |row: &pgio_connect::Row| -> Result<Helper, DatasetError> {
        let (statement, placeholder) = match row.try_get("kind")? {
            "table" => (super::DROP_TABLE, "table"),
            "schema" => (super::DROP_SCHEMA, "schema"),
            _ => (super::DROP_ROUTINE, "routine"),
        };
        let comment: Option<&str> = row.try_get("comment")?;
        let marked = comment.is_some_and(mark::is_workload_comment);
        let (name, quoted) = (row.try_get("name")?, row.try_get("statement_name")?);
        Ok(Helper { name, quoted, statement, placeholder, marked })
    };
    rows.iter().map(helper).collect()
}

/// Runs `work` while holding the lock on the data set of a schema, which excludes other loads and
/// removals.
pub(super) fn with_lock<T>(
    admin: &mut Client,
    work: impl FnOnce(&mut Client) -> Result<T, DatasetError>,
) -> Result<T, DatasetError> {
    let failed = |e| DatasetError::from_pg("lock", "the data set", e);
    if !admin.query_one(super::LOCK, &[]).map_err(failed)?.try_get::<_, bool>(0)? {
        return Err(DatasetError::Busy);
    }
    let result = work(admin);
    // This fails only if the connection is lost, which also releases the lock.
    let _ = admin.query_one(super::UNLOCK, &[]);
    result
}
