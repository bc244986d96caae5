//! The `commit` workload: transactions of INSERTs, by time or by number.

use pgio_tests::fixture::{INSTALLED, connect, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, condition_of, experiment};

const ONCE: &str = "blocks = 1\naa = false";

fn relation(dsn: &str, name: &str) -> Option<String> {
    connect(dsn).query_one("SELECT to_regclass($1)::text", &[&name]).unwrap().get(0)
}

#[test]
fn a_fixed_number_of_transactions_is_done_exactly() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    for (sessions, rows, payload) in [(1, 1, 0), (3, 5, 100)] {
        let dir = Workdir::new();
        let workload = format!(
            "transactions = 10000\nsessions = {sessions}\nrows_per_transaction = {rows}\n\
             payload = {payload}"
        );
        let conditions = [("lazy", "synchronous_commit = \"off\"")];
        dir.compare(&experiment(&dsn, ONCE, &workload, &conditions)).expect(0, &[]);
        let trial = &dir.trials()[0];
        assert_eq!(condition_of(trial), "lazy");
        assert_eq!(trial["histograms"]["commit"]["count"], 10_000);
        assert_eq!(trial["histograms"]["transaction"]["count"], 10_000);
        assert_eq!(trial["sessions"].as_array().unwrap().len(), sessions);
        assert_eq!(trial["workload"]["keys"]["rows_per_transaction"], rows);
        let metric = |name: &str| trial["metrics"][name]["value"].as_f64().unwrap();
        let seconds = trial["window"]["seconds"].as_f64().unwrap();
        let per_ten_thousand = metric("seconds_per_10000_transactions");
        assert!((per_ten_thousand / seconds - 1.0).abs() < 1e-6, "{per_ten_thousand} of {seconds}");
        assert!((metric("commits_per_second") * seconds - 10_000.0).abs() < 1.0);
        assert_eq!(relation(&dsn, "pgio_commit"), None);
    }
}

#[test]
fn a_users_own_table_is_kept() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    connect(&dsn)
        .batch_execute(
            "CREATE TABLE pgio_commit (precious text); INSERT INTO pgio_commit VALUES ('x')",
        )
        .unwrap();
    let dir = Workdir::new();
    let text = experiment(&dsn, "duration = \"100ms\"", "", &[("a", "")]);
    dir.compare(&text).expect(4, &["pgio_commit", "not"]);
    assert!(!dir.out().exists(), "refused before anything is written");
    let row = connect(&dsn).query_one("SELECT precious FROM pgio_commit", &[]).unwrap();
    assert_eq!(row.get::<_, String>(0), "x");
}
