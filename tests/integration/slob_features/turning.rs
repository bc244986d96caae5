//! Inserts and deletes: as many as asked, and the tables as they were.

use std::process::Stdio;

use super::{SINGLE, assert_share, count, metric};
use pgio_tests::command::{CommandResult, TestDatabase};
use pgio_tests::fixture::{INSTALLED, NEWEST, own_primary};

const OLDEST: u32 = 13;

const TURNS: &[&str] = &["--insert-pct", "20", "--delete-pct", "20", "--update-pct", "20"];

fn turns_over(major: u32) {
    // A server of its own: a transaction in any database, such as another test's load, holds back the
    // pruning that makes room for the next version of a row.
    let cluster = own_primary(major);
    let db = TestDatabase::at(&cluster.primary_conninfo());
    db.load(1, "8M");
    let mut client = db.client();
    let arguments = ["run", "--json", "trial.json", "--run-time", "10", "--num-threads", "2"];
    let mut command = db.command(&[&arguments[..], TURNS, SINGLE].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut largest = 0;
    while child.try_wait().unwrap().is_none() {
        let sql = "SELECT coalesce(pg_relation_size(to_regclass('pgio_turnover')), 0)";
        largest = largest.max(client.query_one(sql, &[]).unwrap().get::<_, i64>(0));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let result = CommandResult::from_output(child.wait_with_output().unwrap());
    assert_eq!(result.code, Some(0), "{result:?}");
    let trial = db.record("trial.json");

    let [reads, updates, inserts, deletes] =
        ["read", "update", "insert", "delete"].map(|class| count(&trial, class));
    let calls = reads + updates + inserts + deletes;
    // The two are drawn together, and take turns.
    assert_share(&trial, "insert_pct_measured", 20.0, calls);
    assert_share(&trial, "delete_pct_measured", 20.0, calls);
    assert!(inserts >= deletes && inserts <= deletes + 2.0, "{inserts} and {deletes}");
    let seconds = trial["window"]["seconds"].as_f64().unwrap();
    // Every delete found its row.
    assert!((metric(&trial, "deletes_per_second") * seconds - deletes).abs() < 1e-6);
    assert_eq!(count(&trial, "commit"), updates + inserts + deletes);
    // Deleted rows free their space: the file holds the rows of some slices, not of all.
    assert!(largest > 0 && (largest as f64) < inserts * 8192.0 * 0.75, "{largest} of {inserts}");
    // The data set is what it was, and nothing is left behind.
    let bytes = |which: &str| trial["dataset"][which].as_f64().unwrap();
    let growth = bytes("bytes_after") / bytes("bytes_before") - 1.0;
    assert!(growth.abs() < 0.02, "{growth} after {updates} updates");
    let left: i64 = client
        .query_one("SELECT count(*) FROM pg_class WHERE relname LIKE 'pgio_turnover%'", &[])
        .unwrap()
        .get(0);
    assert_eq!(left, 0);
    let rows: i64 =
        client.query_one("SELECT count(DISTINCT mykey) FROM pgio1", &[]).unwrap().get(0);
    assert_eq!(rows, 1024);
}

#[test]
fn inserts_and_deletes_leave_the_data_as_it_was() {
    turns_over(INSTALLED);
}

#[test]
fn inserts_and_deletes_leave_the_data_as_it_was_on_the_newest() {
    turns_over(NEWEST);
}

/// An insert reuses a block only if the fillfactor is right.
#[test]
fn inserts_and_deletes_leave_the_data_as_it_was_on_the_oldest() {
    turns_over(OLDEST);
}

#[test]
fn a_foreign_pgio_turnover_table_is_refused_and_kept() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    db.client().batch_execute("CREATE TABLE pgio_turnover (mine int)").unwrap();
    let result = db.pgio(&[&["run", "--run-time", "1"], TURNS, SINGLE].concat());
    result.assert_refused(5, &["pgio_turnover", "exists"]);
    db.client().batch_execute("SELECT mine FROM pgio_turnover").unwrap();
    // One of ours that a killed run left is replaced, and removed by `destroy`.
    let marked = "COMMENT ON TABLE pgio_turnover IS 'pgio slob workload: made and dropped by pgio'";
    db.client().batch_execute(marked).unwrap();
    db.succeed(&["destroy", "--yes"]);
    let left = db.relations();
    assert!(!left.contains("pgio"), "{left}");
}
