//! May a run use what is there? What fits is returned, what does not is an error that says why.
//!
//! Rows are judged by pages and by the statistics, which cost nothing to read; [`count_rows`] is for
//! those who ask. Changes nothing. Next: `workload`, which trusts the answer.

use postgres::Client;

use super::error::DatasetError;
use super::mark::{self, Mark, Part, VERSION};
use super::plan::LoadSpec;
use super::sql;
use crate::config::Layer;
use crate::results::Warning;
use crate::units::{Layout, Scale, human};

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
    /// Blocks of pgio_scan, where it is there and of the same load.
    pub scan: Option<u64>,
    pub warnings: Vec<Warning>,
}

impl Dataset {
    /// Blocks, and as many rows, of the table for whole scans.
    pub fn scan_table(&self) -> Result<u64, DatasetError> {
        self.scan.ok_or(DatasetError::NoScanTable)
    }

    /// Refuses tables that were made otherwise than the keys say; a key that is not given takes what
    /// is there.
    pub fn must_be(&self, given: &Layer) -> Result<(), DatasetError> {
        let Layout { filler, filler_width, fillfactor, unlogged } = self.mark.layout;
        let scan =
            |blocks: u64| Scale::from_blocks(blocks).map_or(blocks.to_string(), |s| s.to_string());
        let scan_asked = given.scan_scale.as_ref().map(|scale| scan(scale.blocks()));
        let keys = [
            ("FILLER", given.filler.map(|f| f.name().to_owned()), filler.name().to_owned()),
            ("FILLER_WIDTH", given.filler_width.map(|n| n.to_string()), filler_width.to_string()),
            ("FILLFACTOR", given.fillfactor.map(|n| n.to_string()), fillfactor.to_string()),
            ("UNLOGGED", given.unlogged.map(|yes| yes.to_string()), unlogged.to_string()),
            ("SCAN_SCALE", scan_asked, self.scan.map_or("none".to_owned(), scan)),
        ];
        for (key, asked, loaded) in keys {
            if let Some(asked) = asked.filter(|asked| *asked != loaded) {
                return Err(DatasetError::Differs { key, asked, loaded });
            }
        }
        Ok(())
    }
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
    unlogged: bool,
    fillfactor: i32,
    filler_width: i32,
}

impl TableState {
    /// What somebody altered: its name, what it is now, what it was loaded with.
    fn altered(&self, loaded: Layout) -> Option<(&'static str, String, String)> {
        let found = [
            ("unlogged", self.unlogged.to_string(), loaded.unlogged.to_string()),
            ("fillfactor", self.fillfactor.to_string(), loaded.fillfactor.to_string()),
            ("filler_width", self.filler_width.to_string(), loaded.filler_width.to_string()),
        ];
        found.into_iter().find(|(_, now, then)| now != then)
    }
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
            unlogged: row.get("unlogged"),
            fillfactor: row.get("fillfactor"),
            filler_width: row.get("filler_width"),
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
    let found = mark::find(client).map_err(failed)?;
    let mark_of = |part| found.iter().find(|n| n.part == part)?.mark.clone();
    let Some(mark) = mark_of(Part::Table(1)) else { return Ok(None) };
    let scan = mark_of(Part::Scan).and_then(|mark| Scale::from_blocks(mark.blocks).ok());
    let tablespace = client.query_one(sql::PLACE_OF_TABLES, &[]).map_err(failed)?.get(0);
    Ok(Some(LoadSpec {
        tables: mark.tables,
        // How many are loaded at a time leaves no trace in the tables.
        streams: STREAMS.min(mark.tables),
        scale: mark.scale,
        blocks: mark.blocks,
        seed: mark.seed,
        base_table: mark_of(Part::Base).is_some(),
        tablespace,
        layout: mark.layout,
        scan,
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

/// `states` in the order of their numbers, pgio_scan last.
fn judge(
    schema: &str,
    states: &[TableState],
    tables: u32,
    blocks: Option<u64>,
) -> Result<Dataset, DatasetError> {
    let (scan, states) = match states {
        [states @ .., last] if last.part == Part::Scan => (Some(last), states),
        states => (None, states),
    };
    let set = all_of_one_load(schema, states, tables)?;
    let asked = blocks.unwrap_or(set.blocks);
    if asked > set.blocks {
        let (loaded, scale) = (set.blocks, set.scale);
        return Err(DatasetError::TooSmall { asked, loaded, scale });
    }
    for state in states {
        if !state.indexed {
            return Err(DatasetError::NoIndex { table: state.part.to_string() });
        }
        check_whole(state, &set)?;
    }
    let scan = scan.and_then(|state| Some((state, state.mark.as_ref()?)));
    let scan = scan.filter(|(_, mark)| (mark.seed, mark.layout) == (set.seed, set.layout));
    if let Some((state, mark)) = scan {
        check_whole(state, mark)?;
    }
    let bytes = states.iter().map(|s| s.bytes).sum();
    let warnings = grown(states, set.blocks).into_iter().chain(unlogged(set.layout)).collect();
    let scan = scan.map(|(_, mark)| mark.blocks);
    let schema = schema.to_owned();
    Ok(Dataset { schema, mark: set, tables, blocks: asked, bytes, scan, warnings })
}

/// As it was loaded, and with its rows.
fn check_whole(state: &TableState, mark: &Mark) -> Result<(), DatasetError> {
    let table = state.part.to_string();
    if let Some((what, found, loaded)) = state.altered(mark.layout) {
        return Err(DatasetError::Altered { table, what, found, loaded });
    }
    let found = rows_found(state);
    // Statistics are a sample when a table has more than 30,000 pages.
    if state.pages < mark.blocks || found.abs_diff(mark.blocks) > mark.blocks / 10 {
        return Err(DatasetError::Damaged { table, blocks: mark.blocks, found });
    }
    Ok(())
}

/// One warning, however many they are.
fn grown(states: &[TableState], blocks: u64) -> Option<Warning> {
    let grown = || states.iter().filter(|s| s.pages > blocks + blocks / 10);
    let most = grown().max_by_key(|s| s.pages)?;
    let (pages, blocks) = (human::count(most.pages), human::count(blocks));
    let others = match grown().count() - 1 {
        0 => String::new(),
        n => format!(", and {} others have grown too", human::count(n as u64)),
    };
    Some(Warning::new(
        format!("{} has grown to {pages} blocks from {blocks}{others}", most.part),
        "updates in one long transaction leave dead rows behind",
        "load again with `pgio setup`, so that runs work on the same data",
    ))
}

fn unlogged(layout: Layout) -> Option<Warning> {
    layout.unlogged.then(|| {
        Warning::new(
            "the tables are unlogged",
            "changing them writes no WAL, so a commit waits neither for the disk nor for a standby",
            "load with UNLOGGED=FALSE where durability or replication is measured",
        )
    })
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
    for state in states {
        let table = state.part.to_string();
        let Some(mark) = &state.mark else {
            return Err(DatasetError::NotOurs { schema: schema.to_owned(), name: table });
        };
        if mark.version > VERSION {
            return Err(DatasetError::Version { table, found: mark.version });
        }
        let (first, first_part) = *set.get_or_insert((mark, state.part));
        let load = |m: &Mark| (m.blocks, m.seed, m.layout);
        if load(mark) != load(first) {
            let text = |m: &Mark| match m.layout.is_default() {
                true => format!("SCALE={} seed {}", m.scale, m.seed),
                false => format!("SCALE={} seed {}, {}", m.scale, m.seed, m.layout),
            };
            let (first, expected) = (first_part.to_string(), text(first));
            return Err(DatasetError::Mixed { table, first, found: text(mark), expected });
        }
    }
    let (first, _) = set.ok_or(DatasetError::NoDataset)?;
    let parts = states.iter().map(|s| Some(s.part)).chain([None]);
    let mut wanted = (1..=tables).map(Part::Table).zip(parts);
    if let Some((missing, _)) = wanted.find(|(part, found)| Some(*part) != *found) {
        let (missing, found) = (missing.to_string(), states.len() as u32);
        return Err(DatasetError::Missing { missing, found, asked: tables });
    }
    Ok(first.clone())
}

#[cfg(test)]
mod tests;
