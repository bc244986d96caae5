//! Checks of table states without a server.

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
    assert!(
        checked(larger).contains(
            "SCAN_SCALE=8M was requested, but the tables were loaded with SCAN_SCALE=512"
        )
    );
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
