//! The data set on real servers: its contents, and that nothing else is ever changed.
//!
//! Next: `features` has layouts beyond the original's, `many` many tables, `stopping` interrupts loads, `room` runs out of
//! space.

mod features;
mod many;
pub(crate) mod room;
mod stopping;

use std::cell::RefCell;
use std::process::Command;
use std::thread;
use std::time::Duration;

use pgio::dataset::lines::Batches;
use pgio::dataset::mark::Part;
use pgio::dataset::{
    self, DatasetError, LoadEvent, LoadSpec, LoadSummary, SpaceCheck, check_for_run, verify,
};
use pgio::host::stop::Stop;
use pgio_connect::Client;
use pgio_results::units::Layout;

use pgio_tests::fixture::{
    INSTALLED, NEWEST, connect, fresh_database, is_installed, shared_primary,
};

/// The oldest that is supported: COPY FREEZE sets no visibility map there.
const OLDEST: u32 = 13;

fn database(major: u32) -> String {
    fresh_database(shared_primary(major))
}

fn spec(tables: u32, blocks: u64) -> LoadSpec {
    LoadSpec {
        tables,
        streams: 2,
        scale: blocks.to_string(),
        blocks,
        seed: 42,
        base_table: false,
        tablespace: None,
        layout: Layout::default(),
        scan: None,
        space: SpaceCheck::Required,
    }
}

fn load_by(conninfo: &str, spec: &LoadSpec, stop: &Stop) -> Result<LoadSummary, DatasetError> {
    load_telling(conninfo, spec, stop, &mut |_| {})
}

fn load_telling(
    conninfo: &str,
    spec: &LoadSpec,
    stop: &Stop,
    on_event: &mut dyn FnMut(LoadEvent),
) -> Result<LoadSummary, DatasetError> {
    let connect_again = || Client::connect(conninfo);
    dataset::load(&mut connect(conninfo), &connect_again, spec, stop, on_event)
}

fn load(conninfo: &str, spec: &LoadSpec) -> LoadSummary {
    load_by(conninfo, spec, &Stop::new()).unwrap()
}

fn refused(conninfo: &str, spec: &LoadSpec) -> DatasetError {
    load_by(conninfo, spec, &Stop::new()).unwrap_err()
}

fn text(client: &mut Client, query: &str) -> String {
    let rows = client.query(query, &[]).unwrap();
    let rows = rows.iter().map(|r| r.get::<_, Option<String>>(0).unwrap_or_default());
    rows.collect::<Vec<_>>().join(" ")
}

fn number(client: &mut Client, query: &str) -> i64 {
    client.query_one(query, &[]).unwrap().get(0)
}

/// Every relation of the schema with what its file is, so that a rewrite shows.
fn relations(client: &mut Client) -> String {
    text(
        client,
        "SELECT relname || ':' || relfilenode || ':' || pg_relation_size(oid) FROM pg_class
          WHERE relnamespace = current_schema()::regnamespace ORDER BY relname",
    )
}

fn tables(client: &mut Client) -> String {
    text(client, "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
}

/// The tables have more rows than one COPY statement takes.
#[test]
fn the_tables_are_those_of_the_original() {
    let conninfo = database(NEWEST);
    let spec = LoadSpec { scale: "200M".into(), streams: 1, base_table: true, ..spec(1, 25_600) };
    let events = RefCell::new(Vec::new());
    let loaded =
        load_telling(&conninfo, &spec, &Stop::new(), &mut |e| events.borrow_mut().push(e)).unwrap();
    let mut client = connect(&conninfo);
    let size = |client: &mut Client, table: &str| {
        text(client, &format!("SELECT pg_size_pretty(pg_table_size('{table}'))"))
    };
    assert_eq!(size(&mut client, "pgio1"), "200 MB");
    assert_eq!(size(&mut client, "pgio_base"), "29 MB");
    assert_eq!(loaded.heap_bytes, (200 << 20) + 25_600 * 1171);

    let names = events.borrow().iter().filter_map(name_of).collect::<Vec<_>>();
    assert_eq!(names, ["base", "waiting 1", "table 1", "waiting 1", "complete"]);
    let last = events.borrow().iter().rev().find_map(|e| match e {
        LoadEvent::Progress { done, total, .. } => Some((*done, *total)),
        _ => None,
    });
    assert_eq!(last, Some((loaded.heap_bytes, loaded.heap_bytes)));

    let columns = "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', '
                   ORDER BY attnum) FROM pg_attribute
                   WHERE attrelid = 'pgio1'::regclass AND attnum > 0";
    assert_eq!(text(&mut client, columns), "mykey bigint, scratch bigint, filler character(1024)");
    assert_eq!(
        text(
            &mut client,
            "SELECT array_to_string(reloptions, ',') FROM pg_class WHERE relname = 'pgio1'"
        ),
        "fillfactor=10"
    );
    let whole = "SELECT (count(*), count(DISTINCT mykey), max(mykey))::text FROM pgio1";
    assert_eq!(text(&mut client, whole), "(25600,25600,25600)");
    assert_eq!(number(&mut client, "SELECT pg_relation_size('pgio1') / 8192"), 25_600);
}

/// Progress comes as often as it comes; the rest has an order.
fn name_of(event: &LoadEvent) -> Option<String> {
    match event {
        LoadEvent::Warning(w) => Some(w.what.clone()),
        LoadEvent::BaseLoaded { .. } => Some("base".into()),
        LoadEvent::ScanLoaded { .. } => Some("scan".into()),
        LoadEvent::BatchWaiting { count, .. } => Some(format!("waiting {count}")),
        LoadEvent::TableLoaded { table, .. } => Some(format!("table {table}")),
        LoadEvent::GroupComplete { .. } => Some("complete".into()),
        LoadEvent::Progress { .. } => None,
    }
}

#[test]
fn loaded_rows_are_complete_in_random_order_and_one_to_a_page() {
    for major in [OLDEST, INSTALLED, NEWEST] {
        let conninfo = database(major);
        load(&conninfo, &spec(3, 500));
        let mut client = connect(&conninfo);
        for table in ["pgio1", "pgio2", "pgio3"] {
            let whole = format!(
                "SELECT (count(*), count(DISTINCT mykey), min(mykey), max(mykey),
                         count(DISTINCT (ctid::text::point)[0]),
                         bool_and(filler = repeat('X', 1024)),
                         bool_and(scratch BETWEEN 0 AND 999999999))::text FROM {table}"
            );
            assert_eq!(text(&mut client, &whole), "(500,500,1,500,500,t,t)", "{major} {table}");
            let near = format!(
                "SELECT count(*) FROM (SELECT abs(mykey - lag(mykey) OVER (ORDER BY ctid)) AS step
                 FROM {table}) AS steps WHERE step < 20"
            );
            // About 40 by chance.
            assert!(number(&mut client, &near) < 120, "{major} {table}");
        }
        let order =
            "SELECT count(*) FROM pgio1 a JOIN pgio2 b ON a.ctid = b.ctid AND a.mykey = b.mykey";
        assert!(number(&mut client, order) < 20, "tables have orders of their own");
        assert_eq!(number(&mut client, "SELECT pg_relation_size('pgio1') / 8192"), 500);
        assert_eq!(verify::count_rows(&mut client, Part::Table(1)).unwrap(), 500);
    }
}

#[test]
fn a_scan_after_the_load_dirties_no_pages() {
    for major in [OLDEST, INSTALLED, NEWEST] {
        let conninfo = database(major);
        load(&conninfo, &spec(1, 512));
        let mut client = connect(&conninfo);
        let plan = text(
            &mut client,
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT text) SELECT sum(scratch) FROM pgio1",
        );
        let dirtied = plan.split("dirtied=").skip(1).filter_map(|rest| {
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
        });
        let dirtied = dirtied.max().unwrap_or(0);
        assert!(plan.contains("Seq Scan"), "{plan}");
        assert!(dirtied <= 10, "{major}: {plan}");
        // Nothing for autovacuum to do in the first trial either.
        let visible = "SELECT relallvisible::bigint FROM pg_class WHERE relname = 'pgio1'";
        assert_eq!(number(&mut client, visible), 512, "{major}");
    }
}

#[test]
fn a_load_replaces_marked_tables_and_drops_surplus_ones() {
    let conninfo = database(INSTALLED);
    load(&conninfo, &LoadSpec { base_table: true, ..spec(4, 256) });
    let loaded = load(&conninfo, &LoadSpec { seed: 7, ..spec(2, 300) });
    assert_eq!(loaded.dropped, ["pgio3", "pgio4"]);
    let mut client = connect(&conninfo);
    assert_eq!(tables(&mut client), "pgio1 pgio2 pgio_base");
    let mark = verify::read_mark(&mut client).unwrap();
    assert_eq!((mark.blocks, mark.seed, mark.tables, &*mark.scale), (300, 7, 2, "300"));
    client.batch_execute("DROP TABLE pgio1").unwrap();
    let error = verify::read_mark(&mut client).unwrap_err();
    assert!(matches!(error, DatasetError::Missing { found: 1, requested: 2, .. }), "{error}");
}

#[test]
fn a_run_accepts_only_a_matching_data_set() {
    let conninfo = database(INSTALLED);
    let mut client = connect(&conninfo);
    assert!(matches!(check_for_run(&mut client, 1, None), Err(DatasetError::NoDataset)));
    assert!(matches!(verify::read_mark(&mut client), Err(DatasetError::NoDataset)));
    load(&conninfo, &spec(2, 256));
    let found = check_for_run(&mut client, 2, Some(250)).unwrap();
    assert_eq!((found.blocks, found.mark.blocks, &*found.schema), (250, 256, "public"));
    assert_eq!(found.bytes, dataset::size(&mut client).unwrap());
    assert!(found.warnings.is_empty());
    assert!(matches!(
        check_for_run(&mut client, 3, None),
        Err(DatasetError::Missing { found: 2, requested: 3, .. })
    ));
    client.batch_execute("DROP INDEX pgio2_idx").unwrap();
    assert!(matches!(check_for_run(&mut client, 2, None), Err(DatasetError::NoIndex { .. })));
    client.batch_execute("CREATE INDEX ON pgio2 (mykey); TRUNCATE pgio2; ANALYZE pgio2").unwrap();
    assert!(matches!(check_for_run(&mut client, 2, None), Err(DatasetError::Damaged { .. })));
    // A wrong estimate alone costs no load.
    let wrong = "UPDATE pg_class SET reltuples = 481 WHERE relname = 'pgio1'";
    client.batch_execute(wrong).unwrap();
    let found = check_for_run(&mut client, 1, None).unwrap();
    let [warning] = &found.warnings[..] else { panic!("{:?}", found.warnings) };
    assert_eq!(warning.why, "it estimates 481 rows, but 256 were counted");
    client.batch_execute("VACUUM ANALYZE pgio1").unwrap();
    assert!(check_for_run(&mut client, 1, None).unwrap().warnings.is_empty());
    client.batch_execute("DELETE FROM pgio1 WHERE mykey % 5 = 0; ANALYZE pgio1").unwrap();
    assert!(matches!(
        check_for_run(&mut client, 1, None),
        Err(DatasetError::Damaged { found: 205, .. })
    ));
    client.batch_execute("DROP TABLE pgio2; CREATE VIEW pgio2 AS SELECT 1").unwrap();
    assert!(matches!(check_for_run(&mut client, 2, None), Err(DatasetError::NotOurs { .. })));
}

#[test]
fn a_users_own_table_is_refused_before_anything_changes() {
    let conninfo = database(INSTALLED);
    load(&conninfo, &spec(2, 256));
    let mut client = connect(&conninfo);
    client.batch_execute("CREATE TABLE pgio3 AS SELECT 1 AS precious").unwrap();
    let before = relations(&mut client);
    let error = refused(&conninfo, &spec(4, 256));
    assert!(
        error.to_string().starts_with("public.pgio3 exists but was not created by this pgio"),
        "{error}"
    );
    assert_eq!(relations(&mut client), before);
    // A load of two tables does not need its name, so it stays.
    load(&conninfo, &spec(2, 256));
    assert_eq!(number(&mut client, "SELECT precious::bigint FROM pgio3"), 1);
    // A copy of a table of ours with its comment is not ours.
    client.batch_execute("DROP TABLE pgio3; ALTER TABLE pgio2 RENAME TO pgio3").unwrap();
    let error = refused(&conninfo, &spec(3, 256));
    assert!(matches!(error, DatasetError::NotOurs { .. }), "{error}");
}

#[test]
fn destroy_drops_only_objects_with_the_mark_of_pgio() {
    let conninfo = database(INSTALLED);
    load(&conninfo, &LoadSpec { base_table: true, ..spec(2, 256) });
    let mut client = connect(&conninfo);
    client
        .batch_execute(
            "CREATE TABLE pgio9 (); CREATE TABLE accounts (); CREATE TABLE pgio_notes ();
             CREATE TABLE pgio_commit ();
             COMMENT ON TABLE pgio_commit IS 'pgio commit workload: made and dropped by pgio';
             CREATE PROCEDURE pgio_visit(n int) LANGUAGE sql AS 'SELECT 1';
             COMMENT ON PROCEDURE pgio_visit IS 'pgio slob workload: made and dropped by pgio';
             CREATE FUNCTION pgio_own() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        )
        .unwrap();
    let destroyed = dataset::destroy(&mut client).unwrap();
    assert_eq!(destroyed.dropped, ["pgio_visit", "pgio_commit", "pgio1", "pgio2", "pgio_base"]);
    assert_eq!(destroyed.kept, ["pgio_own", "pgio_notes", "pgio9"]);
    assert_eq!(tables(&mut client), "accounts pgio9 pgio_notes");
    assert_eq!(dataset::destroy(&mut client).unwrap().dropped, Vec::<String>::new());
}

#[test]
fn a_table_in_use_is_named_and_stays() {
    // Both wait for the table as long as pgio is patient, so each has a database and waits beside the other.
    thread::scope(|scope| {
        scope.spawn(|| {
            while_in_use(|conninfo| {
                let error = refused(conninfo, &spec(1, 256));
                assert!(matches!(error, DatasetError::InUse { .. }), "{error}");
            });
        });
        while_in_use(|conninfo| {
            let error = dataset::destroy(&mut connect(conninfo)).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with("pgio1 is in use by another session"), "{text}");
        });
    });
}

fn while_in_use(refuse: impl Fn(&str)) {
    let conninfo = database(INSTALLED);
    load(&conninfo, &spec(1, 256));
    let mut reader = connect(&conninfo);
    let mut reading = reader.transaction().unwrap();
    reading.batch_execute("SELECT FROM pgio1").unwrap();
    refuse(&conninfo);
    reading.rollback().unwrap();
    check_for_run(&mut connect(&conninfo), 1, None).unwrap();
}

#[test]
fn a_second_load_at_the_same_time_is_refused() {
    let conninfo = database(INSTALLED);
    let tried = RefCell::new(None);
    load_telling(&conninfo, &spec(1, 256), &Stop::new(), &mut |event| {
        if let LoadEvent::BatchWaiting { .. } = event {
            tried.borrow_mut().get_or_insert_with(|| refused(&conninfo, &spec(1, 256)));
        }
    })
    .unwrap();
    assert!(matches!(tried.into_inner(), Some(DatasetError::Busy)));
}

#[test]
fn a_load_reports_missing_privileges_with_the_grant() {
    let conninfo = database(INSTALLED);
    let mut client = connect(&conninfo);
    let role = format!("modest_{}", text(&mut client, "SELECT current_database()::text"));
    client.batch_execute(&format!("CREATE ROLE {role} LOGIN")).unwrap();
    let modest = format!("{conninfo} user={role}");
    let error = refused(&modest, &spec(1, 256));
    assert_eq!(
        error.to_string(),
        format!(
            "role {role} may not create tables in schema public; as the schema's owner, run: GRANT CREATE ON SCHEMA public TO {role}"
        )
    );
    client.batch_execute(&format!("GRANT CREATE ON SCHEMA public TO {role}")).unwrap();
    // Allowed now, but the role may not see the server's directories.
    let unknown = refused(&modest, &spec(1, 256));
    assert!(matches!(unknown, DatasetError::UnknownSpace { .. }), "{unknown}");
    let unchecked = LoadSpec { space: SpaceCheck::Off, ..spec(1, 256) };
    let mut warnings = Vec::new();
    load_telling(&modest, &unchecked, &Stop::new(), &mut |event| {
        if let LoadEvent::Warning(w) = event {
            warnings.push(w);
        }
    })
    .unwrap();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].why, "the role may not read data_directory");
    // The role may not replace tables that the superuser loaded.
    load(&conninfo, &spec(1, 256));
    let error = refused(&modest, &spec(1, 256));
    assert!(matches!(error, DatasetError::NotOwner { .. }), "{error}");
    let elsewhere = format!("{conninfo} options='-c search_path=nowhere'");
    assert!(matches!(refused(&elsewhere, &spec(1, 256)), DatasetError::NoSchema));
    let nowhere = LoadSpec { tablespace: Some("nowhere".into()), ..spec(1, 256) };
    assert!(matches!(refused(&conninfo, &nowhere), DatasetError::NoTablespace(_)));
}

#[test]
fn a_schema_name_may_need_quotes() {
    let conninfo = database(INSTALLED);
    let mut client = connect(&conninfo);
    client.batch_execute("CREATE SCHEMA \"My \"\"own\"").unwrap();
    let conninfo = format!("{conninfo} options='-c search_path=\"My\\\\ \"\"own\"'");
    load(&conninfo, &spec(2, 256));
    let mut client = connect(&conninfo);
    assert_eq!(check_for_run(&mut client, 2, None).unwrap().schema, "My \"own");
    assert_eq!(dataset::destroy(&mut client).unwrap().dropped, ["pgio1", "pgio2"]);
}

#[test]
fn sizes_are_listed_as_psql_lists_them() {
    let conninfo = database(INSTALLED);
    load(&conninfo, &spec(1, 256));
    if !is_installed("psql") {
        return;
    }
    let query = include_str!("../../crates/pgio/src/dataset/sql/table_sizes.sql");
    let listed = || {
        let psql = Command::new("psql").args(["-X", "-c", query, &conninfo]).output().unwrap();
        assert!(psql.status.success(), "{}", String::from_utf8_lossy(&psql.stderr));
        String::from_utf8(psql.stdout).unwrap()
    };
    // Other tests on this server make its shared catalogs grow.
    loop {
        let before = listed();
        let ours = dataset::lines::table_sizes(&mut connect(&conninfo)).unwrap();
        assert!(ours.contains(" \"public\".\"pgio1\" "), "{ours}");
        if listed() == before {
            assert_eq!(ours, before);
            return;
        }
    }
}

#[test]
fn batches_print_when_tables_complete() {
    let conninfo = database(INSTALLED);
    let mut waiting = Vec::new();
    load_telling(&conninfo, &spec(4, 256), &Stop::new(), &mut |event| match event {
        LoadEvent::BatchWaiting { count, .. } => waiting.push(count),
        LoadEvent::GroupComplete { .. } => waiting.push(0),
        _ => {}
    })
    .unwrap();
    let mut expected = Batches::new(4, 2).due(4);
    expected.push(0);
    assert_eq!(waiting, expected);
    assert_eq!(waiting, [2, 3, 4, 4, 0]);
}

/// An automatic ANALYZE has such a snapshot, too.
#[test]
fn a_vacuum_waits_for_a_snapshot_that_keeps_dead_rows() {
    for major in [OLDEST, NEWEST] {
        let conninfo = database(major);
        let spec = spec(1, 256);
        load(&conninfo, &spec);
        let mut reader = connect(&conninfo);
        reader
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pgio1")
            .unwrap();
        let mut client = connect(&conninfo);
        client.batch_execute("UPDATE pgio1 SET scratch = 1").unwrap();
        let reading = thread::spawn(move || {
            thread::sleep(Duration::from_millis(500));
            reader.batch_execute("COMMIT").unwrap();
        });
        // A wait this short is not worth a word on an idle machine; on a busy one it may last longer.
        dataset::vacuum(&mut client, &spec, &Stop::new(), &mut |_| {}).unwrap();
        reading.join().unwrap();
        client.batch_execute("CREATE EXTENSION pgstattuple").unwrap();
        let dead = number(&mut client, "SELECT dead_tuple_count FROM pgstattuple('pgio1')");
        assert_eq!(dead, 0, "{major}");
    }
}

#[test]
fn a_stop_ends_the_wait_for_a_snapshot_and_the_session_is_named_once() {
    let conninfo = database(INSTALLED);
    let spec = spec(1, 256);
    load(&conninfo, &spec);
    let mut reader = connect(&format!("{conninfo} application_name=reporting"));
    // VACUUM would wait for the lock, for longer than it is allowed to.
    reader
        .batch_execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pgio1;
             LOCK TABLE pgio1 IN SHARE UPDATE EXCLUSIVE MODE",
        )
        .unwrap();
    let mut client = connect(&conninfo);
    client.batch_execute("UPDATE pgio1 SET scratch = 1; SET lock_timeout = '1ms'").unwrap();
    let stop = Stop::new();
    let mut named = Vec::new();
    dataset::vacuum(&mut client, &spec, &stop, &mut |session| {
        named.push((session.pid, session.application_name.clone()));
        stop.request();
    })
    .unwrap();
    let pid: i32 = reader.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    assert_eq!(named, [(pid, "reporting".to_owned())]);
}
