//! Checks whether a run may use the data set; an error states the reason if not.
//!
//! The check uses page counts and statistics, which are cheap to read. Before it calls a table damaged, it counts.
//! This module must not change anything. Next: `workload` relies on the result.

use pgio_connect::Client;

use super::error::DatasetError;
use super::mark::{self, Mark, Part, VERSION};
use super::plan::{LoadSpec, SpaceCheck};
use crate::config::Layer;
use crate::pg::session::{Owners, find_untrusted};
use crate::pg::words::Shown;
use pgio_results::Warning;
use pgio_results::units::{Layout, Scale, human};

/// A data set that a run may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    pub schema: String,
    /// The mark; a run may use fewer tables and fewer blocks.
    pub mark: Mark,
    /// Number of tables that the run uses.
    pub tables: u32,
    /// Number of blocks of each table that the run uses: keys 1 to this number.
    pub blocks: u64,
    /// Size of these tables, indexes included.
    pub bytes: u64,
    /// Blocks of pgio_scan if it exists and belongs to the same load.
    pub scan: Option<u64>,
    pub warnings: Vec<Warning>,
}

impl Dataset {
    /// Returns the number of blocks, which is also the number of rows, of the scan table.
    pub fn scan_table(&self) -> Result<u64, DatasetError> {
        self.scan.ok_or(DatasetError::NoScanTable)
    }

    /// Size of the part of these tables that the run uses.
    pub fn used_bytes(&self) -> u64 {
        (self.bytes as f64 * (self.blocks as f64 / self.mark.blocks.max(1) as f64)) as u64
    }

    /// Refuses tables that differ from the keys; keys that are not set accept any value.
    pub fn check_keys(&self, keys: &Layer) -> Result<(), DatasetError> {
        let Layout { filler, filler_width, fillfactor, unlogged } = self.mark.layout;
        let scan =
            |blocks: u64| Scale::from_blocks(blocks).map_or(blocks.to_string(), |s| s.to_string());
        let scan_requested = keys.scan_scale.as_ref().map(|scale| scan(scale.blocks()));
        let properties = [
            ("FILLER", keys.filler.map(|f| f.name().to_owned()), filler.name().to_owned()),
            ("FILLER_WIDTH", keys.filler_width.map(|n| n.to_string()), filler_width.to_string()),
            ("FILLFACTOR", keys.fillfactor.map(|n| n.to_string()), fillfactor.to_string()),
            ("UNLOGGED", keys.unlogged.map(|yes| yes.to_string()), unlogged.to_string()),
            ("SCAN_SCALE", scan_requested, self.scan.map_or("none".to_owned(), scan)),
        ];
        for (key, requested, loaded) in properties {
            if let Some(requested) = requested.filter(|requested| *requested != loaded) {
                return Err(DatasetError::Differs { key, requested, loaded });
            }
        }
        Ok(())
    }
}

/// The state of a table on the server.
#[derive(Debug, Clone)]
struct TableState {
    part: Part,
    mark: Option<Mark>,
    pages: u64,
    bytes: u64,
    /// An estimate; absent before the first ANALYZE.
    rows: Option<f64>,
    /// Known only where the estimate differs from the load.
    counted: Option<u64>,
    indexed: bool,
    unlogged: bool,
    fillfactor: i32,
    filler_width: i32,
}

impl TableState {
    /// Returns a property that was altered after the load: its name, its current and its loaded value.
    fn altered(&self, loaded: Layout) -> Option<(&'static str, String, String)> {
        let properties = [
            ("unlogged", self.unlogged.to_string(), loaded.unlogged.to_string()),
            ("fillfactor", self.fillfactor.to_string(), loaded.fillfactor.to_string()),
            ("filler_width", self.filler_width.to_string(), loaded.filler_width.to_string()),
        ];
        properties.into_iter().find(|(_, now, then)| now != then)
    }
}

/// Checks tables 1 to `tables`; `blocks` is the requested SCALE, or absent for the loaded one.
pub fn check_for_run(
    client: &mut Client,
    tables: u32,
    blocks: Option<u64>,
) -> Result<Dataset, DatasetError> {
    let schema = current_schema(client)?;
    let requested = i32::try_from(tables).unwrap_or(i32::MAX);
    let rows = client
        .query(super::TABLE_STATE, &[&requested])
        .map_err(|e| DatasetError::from_pg("inspect", "the data set", e))?;
    let states = rows.iter().map(|row| -> Result<_, DatasetError> {
        let Some(part) = Part::from_name(row.try_get("name")?) else { return Ok(None) };
        let comment = row.try_get::<_, Option<Shown>>("comment")?;
        let is_table: bool = row.try_get("is_table")?;
        let comment = comment.filter(|_| is_table);
        Ok(Some(TableState {
            part,
            mark: comment.and_then(|c| Mark::parse_for(part, &c.0)),
            pages: row.try_get::<_, i64>("pages")?.unsigned_abs(),
            bytes: row.try_get::<_, i64>("bytes")?.unsigned_abs(),
            rows: Some(row.try_get("rows_estimated")?).filter(|r| *r > 0.0),
            counted: None,
            indexed: row.try_get("indexed")?,
            unlogged: row.try_get("unlogged")?,
            fillfactor: row.try_get("fillfactor")?,
            filler_width: row.try_get("filler_width")?,
        }))
    });
    let mut states = states.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
    // Before anything reads the tables.
    let marked = states.iter().filter(|state| state.mark.is_some());
    let names: Vec<String> = marked.map(|state| state.part.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let untrusted = find_untrusted(client, &schema, &names, Owners::Trusted)
        .map_err(|e| DatasetError::from_pg("inspect", "the data set", e))?;
    if let Some(untrusted) = untrusted {
        return Err(DatasetError::Untrusted(untrusted));
    }
    loop {
        let checked = check(&schema, &states, tables, blocks);
        let Err(DatasetError::Damaged { table, .. }) = &checked else { return checked };
        // The statistics may be wrong, after a load or a crash in the middle of changes.
        let uncounted = |s: &&mut TableState| s.part.to_string() == *table && s.counted.is_none();
        let Some(state) = states.iter_mut().find(uncounted) else { return checked };
        state.counted = Some(count_rows(client, state.part)?);
    }
}

/// Reads the mark of the first table, which any run uses.
pub fn read_mark(client: &mut Client) -> Result<Mark, DatasetError> {
    let schema = current_schema(client)?;
    let found = mark::find(client).map_err(|e| DatasetError::from_pg("find", "the data set", e))?;
    mark_of_first(&schema, &found)
}

fn mark_of_first(schema: &str, named: &[mark::Named]) -> Result<Mark, DatasetError> {
    let first = Part::Table(1);
    if let Some(found) = named.iter().find(|n| n.part == first) {
        let (schema, name) = (schema.to_owned(), first.to_string());
        return found.mark.clone().ok_or(DatasetError::NotOurs { schema, name });
    }
    let tables = named.iter().filter(|n| matches!(n.part, Part::Table(_)));
    let marks: Vec<&Mark> = tables.filter_map(|n| n.mark.as_ref()).collect();
    let requested = marks.first().ok_or(DatasetError::NoDataset)?.tables;
    let (missing, found) = (first.to_string(), marks.len() as u32);
    Err(DatasetError::Missing { missing, found, usable: 0, requested })
}

/// Returns the specification of the existing data set, to load it again; `None` if there is none.
pub fn loaded_spec(client: &mut Client) -> Result<Option<LoadSpec>, DatasetError> {
    let failed = |e| DatasetError::from_pg("find", "the data set", e);
    let found = mark::find(client).map_err(failed)?;
    let mark_of = |part| found.iter().find(|n| n.part == part)?.mark.clone();
    let Some(mark) = mark_of(Part::Table(1)) else { return Ok(None) };
    let scan = mark_of(Part::Scan).and_then(|mark| Scale::from_blocks(mark.blocks).ok());
    let tablespace =
        client.query_one(super::TABLESPACE_OF_TABLES, &[]).and_then(|row| row.try_get(0));
    let tablespace = tablespace.map_err(failed)?;
    Ok(Some(LoadSpec {
        tables: mark.tables,
        // The tables do not show the number of streams of the original load.
        streams: STREAMS.min(mark.tables),
        scale: mark.scale,
        blocks: mark.blocks,
        seed: mark.seed,
        base_table: mark_of(Part::Base).is_some(),
        tablespace,
        layout: mark.layout,
        scan,
        // It was loaded there before.
        space: SpaceCheck::IfKnown,
    }))
}

const STREAMS: u32 = 4;

/// Returns the size of all marked tables, indexes and pgio_base included.
pub fn size(client: &mut Client) -> Result<u64, pgio_connect::Error> {
    let ours = mark::find(client)?.into_iter().filter(|n| n.mark.is_some());
    Ok(ours.map(|n| n.bytes).sum())
}

/// Counts the rows by reading the whole table.
pub fn count_rows(client: &mut Client, part: Part) -> Result<u64, DatasetError> {
    let name = part.to_string();
    let table = super::qualified(&current_schema(client)?, &name);
    let row = client
        .query_one(&super::fill(super::COUNT_ROWS, &[("table", &table)]), &[])
        .map_err(|e| DatasetError::from_pg("count", &name, e))?;
    Ok(row.try_get::<_, i64>(0)?.unsigned_abs())
}

pub(super) fn current_schema(client: &mut Client) -> Result<String, DatasetError> {
    client
        .query_one("SELECT nullif(current_setting('pgio.schema'), '')", &[])
        .and_then(|row| row.try_get::<_, Option<String>>(0))
        .map_err(|e| DatasetError::from_pg("find", "the schema", e))?
        .ok_or(DatasetError::NoSchema)
}

/// Checks the states of tables, which are in the order of their numbers, pgio_scan last.
fn check(
    schema: &str,
    states: &[TableState],
    tables: u32,
    blocks: Option<u64>,
) -> Result<Dataset, DatasetError> {
    let (scan, states) = match states {
        [states @ .., last] if last.part == Part::Scan => (Some(last), states),
        states => (None, states),
    };
    let set = check_same_load(schema, states, tables)?;
    let requested = blocks.unwrap_or(set.blocks);
    if requested > set.blocks {
        let (loaded, scale) = (set.blocks, set.scale);
        return Err(DatasetError::TooSmall { requested, loaded, scale });
    }
    for state in states {
        if !state.indexed {
            return Err(DatasetError::NoIndex { table: state.part.to_string() });
        }
        check_table(state, &set)?;
    }
    let scan = scan.and_then(|state| Some((state, state.mark.as_ref()?)));
    let scan = scan.filter(|(_, mark)| (mark.seed, mark.layout) == (set.seed, set.layout));
    if let Some((state, mark)) = scan {
        check_table(state, mark)?;
    }
    let bytes = states.iter().map(|s| s.bytes).sum();
    let warnings = growth_warning(states, set.blocks)
        .into_iter()
        .chain(unlogged_warning(set.layout))
        .chain(states.iter().filter_map(statistics_warning))
        .collect();
    let scan = scan.map(|(_, mark)| mark.blocks);
    let schema = schema.to_owned();
    Ok(Dataset { schema, mark: set, tables, blocks: requested, bytes, scan, warnings })
}

/// Checks that a table has its loaded properties and all its rows.
fn check_table(state: &TableState, mark: &Mark) -> Result<(), DatasetError> {
    let table = state.part.to_string();
    if let Some((property, found, loaded)) = state.altered(mark.layout) {
        return Err(DatasetError::Altered { table, property, found, loaded });
    }
    if let Some(found) = state.counted {
        let all = || Err(DatasetError::Damaged { table, blocks: mark.blocks, found });
        return if found == mark.blocks { Ok(()) } else { all() };
    }
    let rows = estimated_rows(state);
    // A crash empties an unlogged table but not its statistics; no page holds two of the loaded rows.
    let is_short = state.pages < mark.blocks;
    let found = if is_short { rows.min(state.pages) } else { rows };
    // Statistics are sampled if a table has more than 30,000 pages.
    if is_short || found.abs_diff(mark.blocks) > mark.blocks / 10 {
        return Err(DatasetError::Damaged { table, blocks: mark.blocks, found });
    }
    Ok(())
}

/// Returns one warning for all tables that have grown.
fn growth_warning(states: &[TableState], blocks: u64) -> Option<Warning> {
    let grown = || states.iter().filter(|s| s.pages > blocks + blocks / 10);
    let largest = grown().max_by_key(|s| s.pages)?;
    let (pages, blocks) = (human::count(largest.pages), human::count(blocks));
    let others = match grown().count() - 1 {
        0 => String::new(),
        n => format!(", and {} other tables have grown too", human::count(n as u64)),
    };
    Some(Warning::new(
        format!("{} has grown from {blocks} to {pages} blocks{others}", largest.part),
        "updates in one long transaction leave dead rows",
        "load again with `pgio setup`, so that all runs use the same data",
    ))
}

/// Warns of an estimate that made the rows be counted.
fn statistics_warning(state: &TableState) -> Option<Warning> {
    let counted = state.counted?;
    let name = state.part;
    Some(Warning::new(
        format!("the server's statistics of {name} are wrong"),
        format!("it estimates {} rows, but {counted} were counted", estimated_rows(state)),
        format!("run VACUUM ANALYZE {name}"),
    ))
}

fn unlogged_warning(layout: Layout) -> Option<Warning> {
    layout.unlogged.then(|| {
        Warning::new(
            "the tables are unlogged",
            "changes write no WAL, so a commit waits neither for the disk nor for a standby",
            "load with UNLOGGED=FALSE to measure durability or replication",
        )
    })
}

/// Estimates the rows from the statistics, or without these from the pages, each with one row.
fn estimated_rows(state: &TableState) -> u64 {
    match state.rows {
        Some(rows) => rows.round() as u64,
        None => state.pages,
    }
}

fn check_same_load(schema: &str, states: &[TableState], tables: u32) -> Result<Mark, DatasetError> {
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
            let text = |m: &Mark| {
                if m.layout.is_default() {
                    format!("SCALE={} seed {}", m.scale, m.seed)
                } else {
                    format!("SCALE={} seed {}, {}", m.scale, m.seed, m.layout)
                }
            };
            let (first, expected) = (first_part.to_string(), text(first));
            return Err(DatasetError::Mixed { table, first, found: text(mark), expected });
        }
    }
    let (first, _) = set.ok_or(DatasetError::NoDataset)?;
    let parts = states.iter().map(|s| Some(s.part)).chain([None]);
    let mut expected = (1..=tables).zip(parts);
    if let Some((n, _)) = expected.find(|(n, found)| Some(Part::Table(*n)) != *found) {
        let (missing, found) = (Part::Table(n).to_string(), states.len() as u32);
        return Err(DatasetError::Missing { missing, found, usable: n - 1, requested: tables });
    }
    Ok(first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::units::Filler;

    fn state(number: u32) -> TableState {
        TableState {
            part: Part::Table(number),
            mark: Some(Mark {
                version: 2,
                scale: "8M".into(),
                blocks: 1024,
                tables: 4,
                seed: 1,
                layout: Layout::default(),
            }),
            pages: 1024,
            bytes: 1024 * 8192,
            rows: Some(1024.0),
            counted: None,
            indexed: true,
            unlogged: false,
            fillfactor: 10,
            filler_width: 1024,
        }
    }

    /// A scan table of half the size.
    fn scan() -> TableState {
        let mut scan = state(1);
        scan.mark.as_mut().unwrap().blocks = 512;
        TableState { part: Part::Scan, pages: 512, rows: Some(512.0), indexed: false, ..scan }
    }

    fn loaded(states: &[TableState]) -> Dataset {
        check("public", states, 1, None).unwrap()
    }

    fn verdict(states: &[TableState], tables: u32, blocks: Option<u64>) -> String {
        match check("public", states, tables, blocks) {
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
    fn matching_data_sets_are_accepted() {
        let two = [state(1), state(2)];
        assert_eq!(verdict(&two, 2, None), "1024 blocks, 0 warnings");
        assert_eq!(verdict(&two, 2, Some(1000)), "1000 blocks, 0 warnings");
        assert_eq!(verdict(&changed(|s| s.rows = None), 2, None), "1024 blocks, 0 warnings");
        assert_eq!(verdict(&changed(|s| s.pages = 5000), 2, None), "1024 blocks, 1 warnings");
    }

    #[test]
    fn several_grown_tables_cause_one_warning() {
        let grown = |number, pages| TableState { pages, ..state(number) };
        let states = [grown(1, 1024), grown(2, 2000), grown(3, 5000), grown(4, 1500)];
        let found = check("public", &states, 4, None).unwrap();
        assert_eq!(found.warnings.len(), 1);
        assert_eq!(
            found.warnings[0].what,
            "pgio3 has grown from 1,024 to 5,000 blocks, and 2 other tables have grown too"
        );
    }

    #[test]
    fn the_scan_table_must_belong_to_the_same_load() {
        assert_eq!(loaded(&[state(1), scan()]).scan_table().unwrap(), 512);
        let without = loaded(&[state(1)]).scan_table().unwrap_err();
        insta::assert_snapshot!(without, @"the data set has no scan table; load again with `pgio setup --scan-scale SIZE`");
        let mut other = scan();
        other.mark.as_mut().unwrap().seed = 7;
        assert_eq!(loaded(&[state(1), other]).scan, None);
        let foreign = TableState { mark: None, ..scan() };
        assert_eq!(loaded(&[state(1), foreign]).scan, None);
        let cut = TableState { pages: 100, ..scan() };
        assert!(verdict(&[state(1), cut], 1, None).starts_with("pgio_scan should have 512 rows"));
    }

    #[test]
    fn keys_that_differ_from_the_load_are_named() {
        let found = loaded(&[state(1), scan()]);
        let checked = |layer: Layer| match found.check_keys(&layer) {
            Ok(()) => "accepted".to_owned(),
            Err(e) => e.to_string(),
        };
        assert_eq!(checked(Layer::default()), "accepted");
        let same = Layer { fillfactor: Some(10), unlogged: Some(false), ..Layer::default() };
        assert_eq!(checked(same), "accepted");
        let random = Layer { filler: Some(Filler::Random), ..Layer::default() };
        insta::assert_snapshot!(checked(random), @"FILLER=random was requested, but the tables were loaded with FILLER=plain; load again with `pgio setup`, or remove FILLER to use the tables as they are");
        let unlogged = Layer { unlogged: Some(true), ..Layer::default() };
        assert!(checked(unlogged).starts_with("UNLOGGED=true was requested"));
        let larger = Layer { scan_scale: Some("8M".parse().unwrap()), ..Layer::default() };
        assert!(checked(larger).contains(
            "SCAN_SCALE=8M was requested, but the tables were loaded with SCAN_SCALE=512"
        ));
    }

    #[test]
    fn altered_properties_are_named() {
        insta::assert_snapshot!(verdict(&changed(|s| s.unlogged = true), 2, None), @"pgio2 was loaded with unlogged = false, but now has true; load again with `pgio setup`");
        insta::assert_snapshot!(verdict(&changed(|s| s.fillfactor = 100), 2, None), @"pgio2 was loaded with fillfactor = 10, but now has 100; load again with `pgio setup`");
        assert!(verdict(&changed(|s| s.filler_width = 2000), 2, None).contains("filler_width"));
        let other = changed(|s| s.mark.as_mut().unwrap().layout.filler = Filler::Random);
        insta::assert_snapshot!(verdict(&other, 2, None), @"pgio2 belongs to another load than pgio1 (SCALE=8M seed 1, random filler of 1,024 bytes, fillfactor 10, not SCALE=8M seed 1); load all tables again with `pgio setup`");
    }

    #[test]
    fn unlogged_tables_cause_a_warning() {
        let mut table = TableState { unlogged: true, ..state(1) };
        table.mark.as_mut().unwrap().layout.unlogged = true;
        assert_eq!(loaded(&[table]).warnings[0].what, "the tables are unlogged");
    }

    #[test]
    fn a_run_learns_why_the_first_table_has_no_mark() {
        let named = |part, marked: bool| mark::Named {
            part,
            mark: state(1).mark.filter(|_| marked),
            owner: "ada".to_owned(),
            owned: true,
            bytes: 1,
        };
        let refusal = |all: &[mark::Named]| mark_of_first("public", all).unwrap_err().to_string();
        let [one, two, three] = [1, 2, 3].map(Part::Table);
        assert_eq!(mark_of_first("public", &[named(one, true)]).unwrap().tables, 4);
        insta::assert_snapshot!(refusal(&[]), @"the database contains no data set; create one with `pgio setup`");
        insta::assert_snapshot!(refusal(&[named(one, false), named(two, true)]), @"public.pgio1 exists but was not created by this pgio (its comment lacks the mark); drop it if you do not need it, for example if the original pgio created it, or use another database or schema");
        insta::assert_snapshot!(refusal(&[named(two, true), named(three, true), named(Part::Base, true)]), @"pgio1 is missing: the data set has 2 of 4 tables; load them with `pgio setup`");
        insta::assert_snapshot!(refusal(&[named(Part::Base, true)]), @"the database contains no data set; create one with `pgio setup`");
        // A user's table of another number is no data set.
        insta::assert_snapshot!(refusal(&[named(two, false)]), @"the database contains no data set; create one with `pgio setup`");
    }

    #[test]
    fn only_the_tables_before_a_missing_one_are_usable() {
        let gap = verdict(&[state(1), state(3)], 3, None);
        insta::assert_snapshot!(gap, @"pgio2 is missing: the data set has 2 of 3 tables; load them with `pgio setup`, or set NUM_SCHEMAS=1");
        insta::assert_snapshot!(verdict(&[state(2)], 2, None), @"pgio1 is missing: the data set has 1 of 2 tables; load them with `pgio setup`");
    }

    #[test]
    fn a_table_that_a_crash_emptied_is_reported_as_empty() {
        insta::assert_snapshot!(verdict(&changed(|s| s.pages = 0), 2, None), @"pgio2 should have 1024 rows but has 0; load again with `pgio setup`");
    }

    #[test]
    fn mismatches_are_refused_with_the_reason() {
        let one = [state(1)];
        insta::assert_snapshot!(verdict(&[], 2, None), @"the database contains no data set; create one with `pgio setup`");
        insta::assert_snapshot!(verdict(&one, 2, None), @"pgio2 is missing: the data set has 1 of 2 tables; load them with `pgio setup`, or set NUM_SCHEMAS=1");
        insta::assert_snapshot!(verdict(&one, 1, Some(2048)), @"SCALE requires 2048 blocks per table, but the tables have 1024 (SCALE=8M); lower SCALE, or load again with `pgio setup`");
        insta::assert_snapshot!(verdict(&changed(|s| s.mark = None), 2, None), @"public.pgio2 exists but was not created by this pgio (its comment lacks the mark); drop it if you do not need it, for example if the original pgio created it, or use another database or schema");
        insta::assert_snapshot!(verdict(&changed(|s| s.mark.as_mut().unwrap().seed = 7), 2, None), @"pgio2 belongs to another load than pgio1 (SCALE=8M seed 7, not SCALE=8M seed 1); load all tables again with `pgio setup`");
        insta::assert_snapshot!(verdict(&changed(|s| s.mark.as_mut().unwrap().version = 4), 2, None), @"pgio2 was created by a newer pgio (data set version 4); use that version, or load again with `pgio setup`");
        insta::assert_snapshot!(verdict(&changed(|s| s.indexed = false), 2, None), @"pgio2 has no valid b-tree index on mykey; load again with `pgio setup`");
        insta::assert_snapshot!(verdict(&changed(|s| s.rows = Some(512.0)), 2, None), @"pgio2 should have 1024 rows but has 512; load again with `pgio setup`");
    }
}
