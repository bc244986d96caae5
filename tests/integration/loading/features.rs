//! Features of data sets beyond the original's: filler, widths, fillfactors, unlogged, a scan table.
//!
//! The arithmetic of rows in a block is held against real servers here.

use std::io::Write;
use std::process::{Command, Stdio};

use pgio::dataset::mark::Part;
use pgio::dataset::{self, DatasetError, LoadSpec, SpaceCheck, check_for_run, loaded_spec};
use pgio::pg::private::PrivateCluster;
use pgio_connect::Client;
use pgio_results::units::layout::WIDEST_UPDATED;
use pgio_results::units::{Filler, Layout};

use super::{OLDEST, database, load, number, refused, spec, tables, text};
use pgio_tests::command::TestDatabase;
use pgio_tests::fixture::{INSTALLED, NEWEST, connect, fresh_database, own_primary};

/// Twice as many blocks as a server leaves empty at most, so that two rows on a page show.
const BLOCKS: u64 = 256;

fn made(layout: Layout) -> LoadSpec {
    LoadSpec { layout, ..spec(1, BLOCKS) }
}

fn wide(filler_width: u32, fillfactor: u8) -> Layout {
    Layout { filler_width, fillfactor, ..Layout::default() }
}

/// Rows, blocks that hold them, pages, narrowest and widest filler.
fn shape(client: &mut Client, table: &str) -> String {
    text(
        client,
        &format!(
            "SELECT (count(*), count(DISTINCT (ctid::text::point)[0]),
                     pg_relation_size('{table}') / 8192, min(octet_length(filler)),
                     max(octet_length(filler)))::text FROM {table}"
        ),
    )
}

#[test]
fn rows_of_any_width_and_filler_are_complete_and_one_to_a_page() {
    let random = |layout| Layout { filler: Filler::Random, ..layout };
    for major in [OLDEST, INSTALLED, NEWEST] {
        let conninfo = database(major);
        let mut client = connect(&conninfo);
        let layouts = [
            random(wide(349, 10)),
            random(wide(2000, 20)),
            wide(8116, 100),
            random(wide(8116, 10)),
        ];
        for layout in layouts {
            load(&conninfo, &made(layout));
            let width = layout.filler_width;
            let whole = format!("(256,256,256,{width},{width})");
            assert_eq!(shape(&mut client, "pgio1"), whole, "{major} {layout}");
            // Neither compressed nor moved out, whatever PostgreSQL thinks of so wide a row.
            let outside = "SELECT coalesce(pg_relation_size(nullif(reltoastrelid, 0)), 0)
                           FROM pg_class WHERE relname = 'pgio1'";
            assert_eq!(number(&mut client, outside), 0, "{major} {layout}");
            let inside = format!("SELECT min(pg_column_size(filler))::bigint - {width} FROM pgio1");
            assert_eq!(number(&mut client, &inside), 4, "{major} {layout}");
            let found = check_for_run(&mut client, 1, None).unwrap();
            assert_eq!(found.mark.layout, layout);
        }
    }
}

#[test]
fn the_largest_fillfactor_is_the_last_with_one_row_per_page() {
    for major in [OLDEST, INSTALLED, NEWEST] {
        let conninfo = database(major);
        for filler_width in [349, 1024, 1989, 3000, 4036] {
            let largest = wide(filler_width, 10).largest_fillfactor().unwrap();
            load(&conninfo, &made(wide(filler_width, largest)));
            let error = refused(&conninfo, &made(wide(filler_width, largest + 1)));
            assert!(
                matches!(error, DatasetError::Layout { blocks: BLOCKS, pages, .. } if pages < BLOCKS),
                "{major} {filler_width}: {error}"
            );
        }
    }
}

/// Pages after each row was updated three times, each time in a transaction of its own.
fn pages_after_updates(cluster: &PrivateCluster, layout: Layout) -> i64 {
    let conninfo = fresh_database(cluster);
    load(&conninfo, &made(layout));
    let mut client = connect(&conninfo);
    client.batch_execute("SET synchronous_commit = off").unwrap();
    client
        .batch_execute(
            "DO $$ BEGIN
                 FOR k IN 1..3 * 256 LOOP
                     UPDATE pgio1 SET scratch = scratch + 1 WHERE mykey = 1 + k % 256;
                     COMMIT;
                 END LOOP;
             END $$",
        )
        .unwrap();
    number(&mut client, "SELECT pg_relation_size('pgio1') / 8192")
}

#[test]
fn updates_stay_in_their_blocks_up_to_the_widest_updated_row() {
    // A server of its own: a transaction in any database, such as another test's load, holds back
    // the pruning that makes room for the next version.
    let cluster = own_primary(INSTALLED);
    for fillfactor in [10, 99] {
        let pages = pages_after_updates(&cluster, wide(WIDEST_UPDATED, fillfactor));
        // So may an autovacuum worker, for a moment.
        assert!(pages < 275, "{fillfactor}: {pages}");
    }
    let pages = pages_after_updates(&cluster, wide(WIDEST_UPDATED + 1, 10));
    assert!(pages > 375, "{pages}");
}

/// Returns the compressed size of all fillers, as a share of their bytes.
fn compressed(client: &mut Client) -> f64 {
    let fillers = text(client, "SELECT string_agg(filler, '' ORDER BY ctid) FROM pgio1");
    let mut gzip = Command::new("gzip")
        .args(["-9", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = gzip.stdin.take().unwrap();
    let bytes = fillers.len();
    let writer = std::thread::spawn(move || stdin.write_all(fillers.as_bytes()).unwrap());
    let out = gzip.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(out.status.success());
    out.stdout.len() as f64 / bytes as f64
}

#[test]
fn a_random_filler_does_not_compress() {
    let conninfo = database(INSTALLED);
    let mut client = connect(&conninfo);
    load(&conninfo, &made(Layout { filler: Filler::Random, ..Layout::default() }));
    let random = compressed(&mut client);
    // Seven bits of eight, which is all that text can hold.
    assert!((0.87..1.0).contains(&random), "{random}");
    load(&conninfo, &made(Layout::default()));
    let plain = compressed(&mut client);
    assert!(plain < 0.01, "{plain}");
}

#[test]
fn unlogged_tables_are_unlogged_with_their_indexes_and_stay_so() {
    for major in [OLDEST, NEWEST] {
        let conninfo = database(major);
        let layout = Layout { unlogged: true, ..Layout::default() };
        load(&conninfo, &LoadSpec { base_table: true, ..made(layout) });
        let mut client = connect(&conninfo);
        let persistence =
            "SELECT string_agg(relname || ' ' || relpersistence::text, ', ' ORDER BY relname)
                           FROM pg_class WHERE relname ~ '^pgio'";
        assert_eq!(text(&mut client, persistence), "pgio1 u, pgio1_idx u, pgio_base p", "{major}");
        let found = check_for_run(&mut client, 1, None).unwrap();
        assert_eq!(found.warnings.len(), 1);
        client.batch_execute("ALTER TABLE pgio1 SET LOGGED").unwrap();
        let error = check_for_run(&mut client, 1, None).unwrap_err();
        assert!(matches!(error, DatasetError::Altered { property: "unlogged", .. }), "{error}");
    }
}

#[test]
fn a_scan_table_is_created_and_dropped_with_its_load() {
    for major in [OLDEST, INSTALLED, NEWEST] {
        let conninfo = database(major);
        let mut client = connect(&conninfo);
        let layout = Layout { filler: Filler::Random, ..Layout::default() };
        let scan = Some("16M".parse().unwrap());
        load(&conninfo, &LoadSpec { scan, ..made(layout) });
        assert_eq!(tables(&mut client), "pgio1 pgio_scan");
        assert_eq!(shape(&mut client, "pgio_scan"), "(2048,2048,2048,1024,1024)", "{major}");
        let indexes = "SELECT count(*) FROM pg_indexes WHERE tablename = 'pgio_scan'";
        assert_eq!(number(&mut client, indexes), 0);
        let found = check_for_run(&mut client, 1, None).unwrap();
        assert_eq!((found.scan_table().unwrap(), found.blocks), (2048, BLOCKS));

        let loaded = load(&conninfo, &made(layout));
        assert_eq!(loaded.dropped, ["pgio_scan"]);
        let found = check_for_run(&mut client, 1, None).unwrap();
        assert!(matches!(found.scan_table(), Err(DatasetError::NoScanTable)));

        let scan = Some("8M".parse().unwrap());
        load(&conninfo, &LoadSpec { scan, ..made(layout) });
        let mut dropped = dataset::destroy(&mut client).unwrap().dropped;
        dropped.sort_unstable();
        assert_eq!(dropped, ["pgio1", "pgio_scan"]);
    }
}

#[test]
fn a_users_own_scan_table_is_refused_and_kept() {
    let conninfo = database(INSTALLED);
    let mut client = connect(&conninfo);
    client.batch_execute("CREATE TABLE pgio_scan AS SELECT 1 AS precious").unwrap();
    let error =
        refused(&conninfo, &LoadSpec { scan: Some("8M".parse().unwrap()), ..spec(1, BLOCKS) });
    assert!(matches!(error, DatasetError::NotOurs { .. }), "{error}");
    load(&conninfo, &spec(1, BLOCKS));
    assert_eq!(check_for_run(&mut client, 1, None).unwrap().scan, None);
    assert_eq!(dataset::destroy(&mut client).unwrap().kept, ["pgio_scan"]);
    assert_eq!(number(&mut client, "SELECT precious::bigint FROM pgio_scan"), 1);
}

#[test]
fn a_reload_from_the_mark_creates_identical_tables() {
    let conninfo = database(INSTALLED);
    let layout =
        Layout { filler: Filler::Random, filler_width: 3000, fillfactor: 50, unlogged: true };
    let scan = Some("8M".parse().unwrap());
    let asked = LoadSpec { layout, scan, base_table: true, ..spec(2, 300) };
    load(&conninfo, &asked);
    let mut client = connect(&conninfo);
    let fillers = "SELECT md5(string_agg(filler, '' ORDER BY mykey)) FROM pgio2";
    let before = text(&mut client, fillers);
    let again = loaded_spec(&mut client).unwrap().unwrap();
    // A reset does not stop an experiment for want of this knowledge.
    assert_eq!(again, LoadSpec { space: SpaceCheck::IfKnown, ..asked });
    load(&conninfo, &again);
    assert_eq!(text(&mut client, fillers), before);
    assert_eq!(dataset::verify::count_rows(&mut client, Part::Scan).unwrap(), 1024);
}

#[test]
fn a_mark_of_an_older_pgio_is_read() {
    let conninfo = database(INSTALLED);
    load(&conninfo, &spec(1, BLOCKS));
    let mut client = connect(&conninfo);
    client
        .batch_execute(
            "COMMENT ON TABLE pgio1 IS 'pgio data set: version=2 scale=8M blocks=256 table=1 \
             tables=1 seed=42 (made by pgio setup, removed by pgio destroy)'",
        )
        .unwrap();
    let found = check_for_run(&mut client, 1, None).unwrap();
    assert_eq!((found.mark.version, found.mark.layout), (2, Layout::default()));
    load(&conninfo, &spec(1, 300));
}

#[test]
fn a_run_refuses_a_data_set_of_another_shape() {
    // Loads of other tests on the shared server would be in its checkpoints.
    let server = own_primary(INSTALLED);
    let db = TestDatabase::at(&fresh_database(&server));
    db.pgio(&["setup", "--fillfactor", "27"]).assert_refused(2, &["FILLFACTOR=27", "is 26"]);
    db.pgio(&["setup", "--filler-width", "348"]).assert_refused(2, &["from 349 to 8116"]);
    assert_eq!(db.relations(), "");
    let load = ["setup", "--scale", "8M", "--create-base-table=FALSE", "--filler", "random"];
    let result = db.succeed(&[&load[..], &["--unlogged", "TRUE", "--scan-scale", "8M"]].concat());
    assert!(result.out.contains("Scan table loading time: "), "{result:?}");

    let run = |more: &[&str]| db.pgio(&[&["run", "--run-time", "200ms"], more].concat());
    run(&["--filler", "plain"]).assert_refused(4, &["FILLER=plain was requested", "FILLER=random"]);
    run(&["--unlogged", "FALSE"]).assert_refused(4, &["UNLOGGED=false was requested"]);
    run(&["--scan-scale", "16M"]).assert_refused(4, &["SCAN_SCALE=16M", "SCAN_SCALE=8M"]);
    let result = run(&["--filler", "random", "--scan-scale", "1024", "--update-pct", "100"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(result.err.contains("the tables are unlogged"), "{result:?}");
    let trial = db.trial(&["--run-time", "200ms", "--update-pct", "100", "--work-unit", "1"]);
    assert_eq!(trial["dataset"]["layout"]["filler"], "random");
    assert_eq!(trial["dataset"]["layout"]["unlogged"], true);
    let checks = trial["checks"].as_array().unwrap();
    let unlogged = checks.iter().find(|check| check["id"] == "unlogged").unwrap();
    assert_eq!(unlogged["verdict"], "warning");

    db.succeed(&["setup", "--scale", "8M", "--filler-width", "8000", "--num-schemas", "2"]);
    run(&["--update-pct", "1"]).assert_refused(2, &["FILLER_WIDTH=8000", "UPDATE_PCT=0"]);
    assert_eq!(run(&[]).code, Some(0));
    assert_eq!(db.succeed(&["destroy"]).out, "Dropped pgio1, pgio2, pgio_base.\n");
}
