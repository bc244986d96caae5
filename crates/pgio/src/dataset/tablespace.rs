//! The tablespaces of a data set's tables and indexes, and moving them.
//!
//! ALTER ... SET TABLESPACE copies the files and does not change rows. This module returns only tables
//! with the mark, and their indexes. Next: the treatment `filesystem` moves a data set to a new
//! tablespace.

use pgio_connect::Client;
use serde::{Deserialize, Serialize};

use super::error::DatasetError;
use super::{mark, sql};
use crate::pg::trust::is_trusted;

/// A table of the data set, or an index of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    pub schema: String,
    pub name: String,
    pub is_index: bool,
    /// The tablespace at the time of the query.
    pub tablespace: String,
    #[serde(skip)]
    pub bytes: u64,
}

impl Relation {
    fn title(&self) -> String {
        sql::qualified(&self.schema, &self.name)
    }
}

/// Returns the relations in the schema of the session; empty if there is no data set.
pub fn relations(client: &mut Client) -> Result<Vec<Relation>, DatasetError> {
    let failed = |e| DatasetError::from_pg("find", "the data set", e);
    let marked = mark::find(client).map_err(failed)?.into_iter().filter(|n| n.mark.is_some());
    let names: Vec<String> = marked.map(|n| n.part.to_string()).collect();
    let query = sql::fill(sql::RELATIONS, &[("trusted", &is_trusted("t.relowner"))]);
    let rows = client.query(&query, &[&names]).map_err(failed)?;
    let relation = |row: &pgio_connect::Row| {
        Ok(Relation {
            schema: row.try_get("schema")?,
            name: row.try_get("name")?,
            is_index: row.try_get("is_index")?,
            tablespace: row.try_get("tablespace")?,
            bytes: row.try_get::<_, i64>("bytes")?.unsigned_abs(),
        })
    };
    rows.iter().map(relation).collect::<Result<_, _>>().map_err(failed)
}

/// Returns the current tablespace; `None` if the relation no longer exists, for example after another
/// load.
pub fn tablespace_of(
    client: &mut Client,
    relation: &Relation,
) -> Result<Option<String>, DatasetError> {
    client
        .query_opt(sql::TABLESPACE_OF, &[&relation.schema, &relation.name])
        .and_then(|row| row.map(|row| row.try_get(0)).transpose())
        .map_err(|e| DatasetError::from_pg("find", &relation.title(), e))
}

/// Moves a relation to a tablespace. Waits only a few seconds for locks of other sessions.
pub fn move_to(
    client: &mut Client,
    relation: &Relation,
    tablespace: &str,
) -> Result<(), DatasetError> {
    let kind = if relation.is_index { "INDEX" } else { "TABLE" };
    let title = relation.title();
    let values = [("kind", kind), ("name", &title), ("tablespace", &sql::identifier(tablespace))];
    let failed = |e| DatasetError::from_pg("move", &title, e);
    let mut transaction = client.transaction().map_err(failed)?;
    transaction.batch_execute(sql::LOCK_TIMEOUT).map_err(failed)?;
    transaction.batch_execute(&sql::fill(sql::SET_TABLESPACE, &values)).map_err(failed)?;
    transaction.commit().map_err(failed)
}
