//! May a run use what is there? What fits is returned, what does not is an error that says why.
//!
//! Rows are judged by pages and by the statistics, which cost nothing to read; [`count_rows`] is for
//! those who ask. Changes nothing. Next: `workload`, which trusts the answer.

use postgres::Client;

use super::error::DatasetError;
use super::mark::{self, Mark, Part, VERSION};
use super::plan::LoadSpec;
use super::sql;
use crate::results::Warning;
use crate::units::human;

/// A data set that a run may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    pub schema: String,
    /// As loaded; a run may use fewer tables and fewer blocks.
    pub mark: Mark,
    /// Tables the run asked for.
    pub tables: u32,
    /// Blocks of each table the run asked for: keys 1 to this.
    pub blocks: u64,
    /// Of these tables, with their indexes.
    pub bytes: u64,
    pub warnings: Vec<Warning>,
}

/// One table as the server describes it.
#[derive(Debug, Clone)]
struct TableState {
    part: Part,
    mark: Option<Mark>,
    pages: u64,
    bytes: u64,
    /// Absent before the first ANALYZE.
    rows: Option<f64>,
    indexed: bool,
}

/// Checks tables 1 to `tables`; `blocks` is the SCALE asked for, or absent for what is loaded.
pub fn check_for_run(
    client: &mut Client,
    tables: u32,
    blocks: Option<u64>,
) -> Result<Dataset, DatasetError> {
    let schema = current_schema(client)?;
    let asked = i32::try_from(tables).unwrap_or(i32::MAX);
    let rows = client
        .query(sql::TABLE_STATE, &[&asked])
        .map_err(|e| DatasetError::from_pg("look at", "the data set", e))?;
    let states = rows.iter().filter_map(|row| {
        let part = Part::from_name(row.get("name"))?;
        let comment = row.get::<_, Option<String>>("comment");
        let comment = comment.filter(|_| row.get("is_table"));
        Some(TableState {
            part,
            mark: comment.and_then(|c| Mark::of(part, &c)),
            pages: row.get::<_, i64>("pages").unsigned_abs(),
            bytes: row.get::<_, i64>("bytes").unsigned_abs(),
            rows: Some(row.get("rows_estimated")).filter(|r| *r > 0.0),
            indexed: row.get("indexed"),
        })
    });
    judge(&schema, &states.collect::<Vec<_>>(), tables, blocks)
}

/// What is loaded, read from the first table; none when there is no data set.
pub fn read_mark(client: &mut Client) -> Result<Option<Mark>, DatasetError> {
    let found =
        mark::find(client).map_err(|e| DatasetError::from_pg("look for", "the data set", e))?;
    let first = |n: mark::Named| n.mark.filter(|_| n.part == Part::Table(1));
    Ok(found.into_iter().find_map(first))
}

/// How what is there was loaded, so that it can be loaded again; none when there is no data set.
pub fn as_loaded(client: &mut Client) -> Result<Option<LoadSpec>, DatasetError> {
    let failed = |e| DatasetError::from_pg("look for", "the data set", e);
    let Some(mark) = read_mark(client)? else { return Ok(None) };
    let base_table = mark::find(client)
        .map_err(failed)?
        .iter()
        .any(|n| n.part == Part::Base && n.mark.is_some());
    let tablespace = client.query_one(sql::PLACE_OF_TABLES, &[]).map_err(failed)?.get(0);
    Ok(Some(LoadSpec {
        tables: mark.tables,
        // How many are loaded at a time leaves no trace in the tables.
        streams: STREAMS.min(mark.tables),
        scale: mark.scale,
        blocks: mark.blocks,
        seed: mark.seed,
        base_table,
        tablespace,
    }))
}

const STREAMS: u32 = 4;

/// Bytes of all tables of ours with their indexes, pgio_base included.
pub fn size(client: &mut Client) -> Result<u64, postgres::Error> {
    let ours = mark::find(client)?.into_iter().filter(|n| n.mark.is_some());
    Ok(ours.map(|n| n.bytes).sum())
}

/// Reads the whole table.
pub fn count_rows(client: &mut Client, part: Part) -> Result<u64, DatasetError> {
    let name = part.to_string();
    let table = sql::qualified(&current_schema(client)?, &name);
    let row = client
        .query_one(&sql::fill(sql::COUNT_ROWS, &[("table", &table)]), &[])
        .map_err(|e| DatasetError::from_pg("count", &name, e))?;
    Ok(row.get::<_, i64>(0).unsigned_abs())
}

pub(super) fn current_schema(client: &mut Client) -> Result<String, DatasetError> {
    client
        .query_one("SELECT current_schema()::text", &[])
        .map_err(|e| DatasetError::from_pg("look for", "the schema", e))?
        .get::<_, Option<String>>(0)
        .ok_or(DatasetError::NoSchema)
}

fn judge(
    schema: &str,
    states: &[TableState],
    tables: u32,
    blocks: Option<u64>,
) -> Result<Dataset, DatasetError> {
    let set = all_of_one_load(schema, states, tables)?;
    let asked = blocks.unwrap_or(set.blocks);
    if asked > set.blocks {
        let (loaded, scale) = (set.blocks, set.scale);
        return Err(DatasetError::TooSmall { asked, loaded, scale });
    }
    let mut warnings = Vec::new();
    for state in states {
        let table = state.part.to_string();
        if !state.indexed {
            return Err(DatasetError::NoIndex { table });
        }
        let found = rows_found(state);
        // Statistics are a sample when a table has more than 30,000 pages.
        if state.pages < set.blocks || found.abs_diff(set.blocks) > set.blocks / 10 {
            return Err(DatasetError::Damaged { table, blocks: set.blocks, found });
        }
        if state.pages > set.blocks + set.blocks / 10 {
            let pages = human::count(state.pages);
            let blocks = human::count(set.blocks);
            warnings.push(Warning::new(
                format!("{table} has grown to {pages} blocks from {blocks}"),
                "updates in one long transaction leave dead rows behind",
                "load again with `pgio setup`, so that runs work on the same data",
            ));
        }
    }
    let bytes = states.iter().map(|s| s.bytes).sum();
    let schema = schema.to_owned();
    Ok(Dataset { schema, mark: set, tables, blocks: asked, bytes, warnings })
}

/// Pages bound the rows from above, one a page; the statistics may say less.
fn rows_found(state: &TableState) -> u64 {
    match state.rows {
        Some(rows) => rows.round() as u64,
        None => state.pages,
    }
}

fn all_of_one_load(schema: &str, states: &[TableState], tables: u32) -> Result<Mark, DatasetError> {
    let mut set: Option<(&Mark, Part)> = None;
    let mut found = 0;
    for number in 1..=tables {
        let part = Part::Table(number);
        let Some(state) = states.iter().find(|s| s.part == part) else { continue };
        let (schema, name) = (schema.to_owned(), part.to_string());
        let mark = state.mark.as_ref().ok_or(DatasetError::NotOurs { schema, name })?;
        found += 1;
        let table = part.to_string();
        if mark.version > VERSION {
            return Err(DatasetError::Version { table, found: mark.version });
        }
        let (first, first_part) = *set.get_or_insert((mark, part));
        if (mark.blocks, mark.seed) != (first.blocks, first.seed) {
            let text = |m: &Mark| format!("SCALE={} seed {}", m.scale, m.seed);
            let (first, expected) = (first_part.to_string(), text(first));
            return Err(DatasetError::Mixed { table, first, found: text(mark), expected });
        }
    }
    let (first, _) = set.ok_or(DatasetError::NoDataset)?;
    let present = |n: &u32| states.iter().any(|s| s.part == Part::Table(*n));
    if let Some(missing) = (1..=tables).find(|n| !present(n)) {
        let missing = Part::Table(missing).to_string();
        return Err(DatasetError::Missing { missing, found, asked: tables });
    }
    Ok(first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(number: u32) -> TableState {
        let mark = Mark { version: 2, scale: "8M".into(), blocks: 1024, tables: 4, seed: 1 };
        let part = Part::Table(number);
        let bytes = 1024 * 8192;
        TableState { part, mark: Some(mark), pages: 1024, bytes, rows: Some(1024.0), indexed: true }
    }

    fn verdict(states: &[TableState], tables: u32, blocks: Option<u64>) -> String {
        match judge("public", states, tables, blocks) {
            Ok(found) => format!("{} blocks, {} warnings", found.blocks, found.warnings.len()),
            Err(e) => e.to_string(),
        }
    }

    fn changed(change: impl FnOnce(&mut TableState)) -> Vec<TableState> {
        let mut states = vec![state(1), state(2)];
        change(&mut states[1]);
        states
    }

    #[test]
    fn what_fits_is_taken() {
        let two = [state(1), state(2)];
        assert_eq!(verdict(&two, 2, None), "1024 blocks, 0 warnings");
        assert_eq!(verdict(&two, 2, Some(1000)), "1000 blocks, 0 warnings");
        assert_eq!(verdict(&changed(|s| s.rows = None), 2, None), "1024 blocks, 0 warnings");
        assert_eq!(verdict(&changed(|s| s.pages = 5000), 2, None), "1024 blocks, 1 warnings");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        let one = [state(1)];
        insta::assert_snapshot!(verdict(&[], 2, None), @"there is no data set in this database; make one with `pgio setup`");
        insta::assert_snapshot!(verdict(&one, 2, None), @"pgio2 is missing: 1 of the 2 tables are there; load them with `pgio setup`, or ask for 1");
        insta::assert_snapshot!(verdict(&one, 1, Some(2048)), @"SCALE asks for 2048 blocks a table and the tables hold 1024 (SCALE=8M); lower SCALE, or load again with `pgio setup`");
        insta::assert_snapshot!(verdict(&changed(|s| s.mark = None), 2, None), @"public.pgio2 exists and is not pgio's (its comment lacks our mark); if it may go, as when the original pgio made it, drop it yourself, else use another database or schema");
        insta::assert_snapshot!(verdict(&changed(|s| s.mark.as_mut().unwrap().seed = 7), 2, None), @"pgio2 is of another load than pgio1 (SCALE=8M seed 7, not SCALE=8M seed 1); load all again with `pgio setup`");
        insta::assert_snapshot!(verdict(&changed(|s| s.mark.as_mut().unwrap().version = 3), 2, None), @"pgio2 was made by a newer pgio (data set version 3); use that one, or load again with `pgio setup`");
        insta::assert_snapshot!(verdict(&changed(|s| s.indexed = false), 2, None), @"pgio2 has no valid b-tree on mykey; load again with `pgio setup`");
        insta::assert_snapshot!(verdict(&changed(|s| s.rows = Some(512.0)), 2, None), @"pgio2 should hold 1024 rows and holds 512; load again with `pgio setup`");
    }
}
