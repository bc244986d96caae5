//! Many tables: what must not grow with their number.
//!
//! The tables here are empty and only bear our marks, since what is tried is how they are found,
//! judged and dropped; a real load of 4,096 is a matter of minutes and 34 GB.

use pgio::dataset::mark::{self, Part};
use pgio::dataset::{self, DatasetError, check_for_run, lines};
use pgio::pg::private::PrivateCluster;
use pgio_connect::Client;

use super::number;
use pgio_tests::command::TestDatabase;
use pgio_tests::fixture::{INSTALLED, connect, fresh_database, own_primary, spec_with};

/// A server with the fewest possible locks.
fn frugal() -> PrivateCluster {
    let settings =
        [("max_locks_per_transaction", "10"), ("max_connections", "20"), ("fsync", "off")];
    PrivateCluster::start(&spec_with(INSTALLED, &settings)).unwrap()
}

fn make(client: &mut Client, tables: u32) {
    let statement = format!(
        "DO $$ BEGIN
             FOR n IN 1..{tables} LOOP
                 EXECUTE format('CREATE TABLE pgio%s (mykey bigint PRIMARY KEY, filler char(1024))
                                 WITH (fillfactor = 10)', n);
                 EXECUTE format('COMMENT ON TABLE pgio%s IS %L', n,
                     'pgio data set: version=3 scale=8M blocks=1024 table=' || n
                     || ' tables={tables} seed=1 filler=plain');
                 COMMIT;
             END LOOP;
         END $$"
    );
    client.batch_execute(&statement).unwrap();
}

#[test]
fn hundreds_of_tables_are_judged_and_dropped_with_few_locks() {
    const TABLES: u32 = 600;
    let cluster = frugal();
    let conninfo = fresh_database(&cluster);
    let mut client = connect(&conninfo);
    make(&mut client, TABLES);
    let at_once = "SELECT string_agg(format('DROP TABLE %I', relname), ';') FROM pg_class
                   WHERE relname ~ '^pgio[0-9]+$'";
    let at_once: String = client.query_one(at_once, &[]).unwrap().get(0);
    assert!(client.batch_execute(&at_once).is_err(), "not all at once");

    assert_eq!(mark::find(&mut client).unwrap().len(), TABLES as usize);
    // All are there and ours; that they are empty is said of the first.
    let error = check_for_run(&mut client, TABLES, None).unwrap_err();
    assert!(matches!(&error, DatasetError::Damaged { table, .. } if table == "pgio1"), "{error}");
    let error = check_for_run(&mut client, TABLES + 1, None).unwrap_err();
    assert!(matches!(&error, DatasetError::Missing { missing, .. } if missing == "pgio601"));

    // One that is in use stays, with those of its own transaction.
    let mut reader = connect(&conninfo);
    let mut reading = reader.transaction().unwrap();
    reading.batch_execute("SELECT FROM pgio400").unwrap();
    let error = dataset::destroy(&mut client).unwrap_err();
    assert!(matches!(&error, DatasetError::InUse { object, .. } if object == "pgio400"), "{error}");
    reading.rollback().unwrap();
    let destroyed = dataset::destroy(&mut client).unwrap();
    assert!(destroyed.dropped.contains(&Part::Table(400).to_string()));
    let listed = lines::listed(&destroyed.dropped);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert!(listed[0].ends_with(" to pgio600"), "{listed:?}");
    assert_eq!(number(&mut client, "SELECT count(*) FROM pg_class WHERE relname ~ '^pgio'"), 0);
}

#[test]
fn fewer_sessions_than_tables_visit_all_of_them_in_turn() {
    // Loads of other tests on the shared server would be in its checkpoints.
    let server = own_primary(INSTALLED);
    let db = TestDatabase::at(&fresh_database(&server));
    db.load(7, "8M");
    let scans = "SELECT string_agg((idx_scan > $1)::text, ',')
                 FROM pg_stat_user_tables WHERE relname ~ '^pgio[0-9]'";
    let run = ["--sessions", "3", "--run-time", "1s", "--work-unit", "1", "--update-pct", "20"];
    let trial = db.trial(&run);
    let visited: String = db.client().query_one(scans, &[&20_i64]).unwrap().get(0);
    assert_eq!(visited, ["true"; 7].join(","), "each has its turn");
    let sessions = trial["sessions"].as_array().unwrap();
    let tables: Vec<&str> = sessions.iter().map(|s| s["table"].as_str().unwrap()).collect();
    assert_eq!(tables, ["pgio1 to pgio2", "pgio3 to pgio4", "pgio5 to pgio7"]);
    assert_eq!(trial["workload"]["keys"]["sessions"], 3);
    // Turns are no slices: the time series keeps its steps.
    assert_eq!(trial["timeline"].as_array().unwrap().len(), 4);
    let result = db.pgio(&["run", "--sessions", "1", "--run-time", "100ms"]);
    assert!(result.err.contains("each session has 7 tables and time for 4"), "{result:?}");
    // More than tables go round them.
    let trial = db.trial(&["--sessions", "9", "--run-time", "200ms"]);
    assert_eq!(trial["sessions"].as_array().unwrap().len(), 9);
}
