//! Where a data set lies: its tables and their indexes, each in a tablespace, and how one is moved.
//!
//! By ALTER ... SET TABLESPACE, which copies the files and leaves the rows as they are. Only what
//! carries our mark is named here. Next: the treatment `filesystem` puts a data set on a new one.

use postgres::Client;
use serde::{Deserialize, Serialize};

use super::error::DatasetError;
use super::{mark, sql};

/// A table of the data set, or an index of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    pub schema: String,
    pub name: String,
    pub is_index: bool,
    /// In which it was found.
    pub tablespace: String,
    #[serde(skip)]
    pub bytes: u64,
}

impl Relation {
    fn title(&self) -> String {
        sql::qualified(&self.schema, &self.name)
    }
}

/// Those in current_schema(); none where there is no data set.
pub fn relations(client: &mut Client) -> Result<Vec<Relation>, DatasetError> {
    let failed = |e| DatasetError::from_pg("look for", "the data set", e);
    let marked = mark::find(client).map_err(failed)?.into_iter().filter(|n| n.mark.is_some());
    let names: Vec<String> = marked.map(|n| n.part.to_string()).collect();
    let rows = client.query(sql::RELATIONS, &[&names]).map_err(failed)?;
    let relation = |row: &postgres::Row| Relation {
        schema: row.get("schema"),
        name: row.get("name"),
        is_index: row.get("is_index"),
        tablespace: row.get("tablespace"),
        bytes: row.get::<_, i64>("bytes").unsigned_abs(),
    };
    Ok(rows.iter().map(relation).collect())
}

/// Where it lies now; none where it is gone, as after a load of another data set.
pub fn tablespace_of(
    client: &mut Client,
    relation: &Relation,
) -> Result<Option<String>, DatasetError> {
    let row = client
        .query_opt(sql::TABLESPACE_OF, &[&relation.schema, &relation.name])
        .map_err(|e| DatasetError::from_pg("look for", &relation.title(), e))?;
    Ok(row.map(|row| row.get(0)))
}

/// Waits a few seconds for who uses it, not for ever.
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
