//! Checks before a load, so that it is refused before it changes anything.
//!
//! Next: `load` continues.

use std::path::PathBuf;

use pgio_connect::Client;

use crate::dataset::error::DatasetError;
use crate::dataset::mark::{self, Named, Part};
use crate::dataset::plan::LoadSpec;
use crate::dataset::sql;
use crate::pg::trust::{Owners, find_untrusted};
use crate::pg::words::ServerPath;
use pgio_results::units::BLOCK_BYTES;

/// The state of the server before a load.
#[derive(Debug)]
pub(super) struct Preflight {
    pub(super) schema: String,
    pub(super) tablespace: String,
    /// Empty for a tablespace in the data directory.
    pub(super) tablespace_location: PathBuf,
    /// Marked tables of an earlier load.
    pub(super) existing: Vec<Named>,
}

pub(super) fn check(client: &mut Client, spec: &LoadSpec) -> Result<Preflight, DatasetError> {
    let row = client
        .query_one(sql::PREFLIGHT, &[&spec.tablespace])
        .map_err(|e| DatasetError::from_pg("inspect", "the server", e))?;
    let schema: Option<String> = row.try_get("schema")?;
    let role: String = row.try_get("role")?;
    let tablespace: String = row.try_get("tablespace")?;
    let block_size: i32 = row.try_get("block_size")?;

    if row.try_get("in_recovery")? {
        return Err(DatasetError::ReadOnly);
    }
    if i64::from(block_size) != BLOCK_BYTES as i64 {
        return Err(DatasetError::BlockSize(block_size));
    }
    let schema = schema.ok_or(DatasetError::NoSchema)?;
    if !row.try_get::<_, bool>("tablespace_exists")? {
        return Err(DatasetError::NoTablespace(tablespace));
    }
    let untrusted = find_untrusted(client, &schema, &[], Owners::Trusted)
        .map_err(|e| DatasetError::from_pg("inspect", "the schema", e))?;
    if let Some(untrusted) = untrusted {
        return Err(DatasetError::Untrusted(untrusted));
    }
    let named = mark::find(client).map_err(|e| DatasetError::from_pg("find", "the data set", e))?;
    let existing = replaceable(named, spec, &schema, &role)?;
    if !row.try_get::<_, bool>("may_create")? {
        return Err(DatasetError::NoCreate { schema, role });
    }
    if !row.try_get::<_, bool>("tablespace_usable")? {
        return Err(DatasetError::TablespacePrivilege { tablespace, role });
    }
    let ServerPath(tablespace_location) = row.try_get("tablespace_location")?;
    Ok(Preflight { schema, tablespace, tablespace_location, existing })
}

/// Returns the marked tables that this load replaces or drops. Tables with other names are not checked.
fn replaceable(
    named: Vec<Named>,
    spec: &LoadSpec,
    schema: &str,
    role: &str,
) -> Result<Vec<Named>, DatasetError> {
    let mut existing = Vec::new();
    for found in named {
        let needed = spec.includes(found.part);
        // Nothing reads pgio_base, so a base table of another load is harmless.
        let surplus = !needed && found.part != Part::Base;
        let (schema, name) = (schema.to_owned(), found.part.to_string());
        match found.mark {
            None if needed => return Err(DatasetError::NotOurs { schema, name }),
            Some(_) if (needed || surplus) && !found.owned => {
                let (owner, role) = (found.owner, role.to_owned());
                return Err(DatasetError::NotOwner { schema, name, owner, role });
            }
            Some(_) if needed || surplus => existing.push(found),
            _ => {}
        }
    }
    Ok(existing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::plan::SpaceCheck;
    use pgio_results::units::Layout;

    fn spec(tables: u32, base_table: bool) -> LoadSpec {
        LoadSpec {
            tables,
            streams: 1,
            scale: "8M".to_owned(),
            blocks: 1024,
            seed: 1,
            base_table,
            tablespace: None,
            layout: Layout::default(),
            scan: None,
            space: SpaceCheck::Required,
        }
    }

    fn named(part: Part, marked: bool, owned: bool) -> Named {
        let mark = marked.then(|| spec(9, true).mark(part));
        Named { part, mark, owner: "ada".into(), owned, bytes: 1 }
    }

    #[test]
    fn only_required_names_must_be_marked() {
        let unmarked = || vec![named(Part::Base, false, true), named(Part::Table(3), false, true)];
        let refused =
            |tables, base| replaceable(unmarked(), &spec(tables, base), "s", "r").is_err();
        assert!(!refused(2, false));
        assert!(refused(2, true));
        assert!(refused(3, false));
    }

    #[test]
    fn surplus_tables_are_found_and_must_be_owned() {
        let found = vec![named(Part::Base, true, true), named(Part::Table(7), true, true)];
        let existing = replaceable(found, &spec(2, false), "s", "r").unwrap();
        assert_eq!(existing.iter().map(|n| n.part).collect::<Vec<_>>(), [Part::Table(7)]);
        // A scan table that is not requested would belong to another load.
        let found = vec![named(Part::Scan, true, true)];
        assert_eq!(replaceable(found, &spec(2, false), "s", "r").unwrap().len(), 1);
        let others = vec![named(Part::Table(7), true, false)];
        let error = replaceable(others, &spec(2, false), "s", "r").unwrap_err();
        assert!(matches!(error, DatasetError::NotOwner { owner, .. } if owner == "ada"));
    }
}
