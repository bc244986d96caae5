//! `pgio run` on real servers, as typed: that its numbers are true, and that it stops.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Child, Stdio};
use std::thread;

use pgio::pg::private::PrivateCluster;
use pgio_connect::Client;
use pgio_results::histogram::{BUCKETS, bucket_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use pgio_tests::command::{CommandResult, TestDatabase, wait_until};
use pgio_tests::fixture::{INSTALLED, NEWEST, connect, shared_primary, spec};
use pgio_tests::workdir::{Workdir, experiment, metric};

/// The oldest that is supported.
const OLDEST: u32 = 13;

/// Short enough for many of them, long enough for some hundred calls.
const SHORT: &[&str] = &["--run-time", "400ms", "--telemetry", "0"];

fn total(trial: &Value, what: &str) -> u64 {
    trial["sessions"].as_array().unwrap().iter().map(|s| s[what].as_u64().unwrap()).sum()
}

#[track_caller]
fn assert_near(found: f64, expected: f64, relative: f64) {
    assert!((found - expected).abs() <= relative * expected.abs(), "{found} is not {expected}");
}

/// The server sorts latencies with the formula of `record.sql`, this program with its own.
#[test]
fn record_sql_sorts_latencies_into_the_buckets_of_the_histogram() {
    let sql = include_str!("../../crates/pgio/src/workload/sql/record.sql");
    let formula = sql.lines().find_map(|line| line.trim().strip_prefix("b := ")).unwrap();
    let query = format!("SELECT {} FROM unnest($1::float8[]) us", formula.trim_end_matches(';'));
    // None is at the edge of a bucket. 36 minutes are the last one, and a day is beyond all.
    let minute = 60.0 * 1e6;
    let microseconds =
        [-3.0, 0.0, 0.4, 0.5, 1.0, 7.0, 1e3, 1e6, 30.0 * minute, 36.0 * minute, 1440.0 * minute];
    let mut client = connect(&shared_primary(NEWEST).primary_conninfo());
    let rows = client.query(&query, &[&microseconds.as_slice()]).unwrap();
    let here = microseconds.map(|us| bucket_of(us * 1000.0).clamp(1, BUCKETS) as i32);
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), here);
    assert_eq!((here[0], here[10]), (1, 512));
}

/// The records keep what scripts rely on.
fn record(major: u32) {
    let db = TestDatabase::new(major);
    db.load(1, "32M");
    let arguments = ["--run-time", "1", "--update-pct", "30", "--work-unit", "16"];
    let trial = db.trial(&[&arguments[..], &["--update-work-unit", "4", "--seed", "7"]].concat());
    assert_eq!(trial["schema"], "pgio.trial/1");
    assert_eq!(trial["outcome"]["state"], "complete");
    assert_eq!(trial["seed"], 7);
    assert_eq!(trial["dataset"]["scale"], "32M");
    assert_eq!(trial["dataset"]["blocks_per_table"], 4096);
    assert_eq!(trial["server"]["database"], db.database.as_str());
    assert_eq!(trial["server"]["version_num"].as_u64().unwrap() / 10_000, u64::from(major));
    assert_eq!(trial["settings"]["synchronous_commit"], "on");
    assert_eq!(trial["settings"]["enable_bitmapscan"], "off");

    let units = [
        ("block_visits_per_second", "blocks/s"),
        ("updates_per_second", "rows/s"),
        ("update_calls_per_second", "calls/s"),
        ("commits_per_second", "commits/s"),
        ("riops", "blocks/s"),
        ("cache_hits_per_second", "blocks/s"),
        ("wal_bytes_per_second", "bytes/s"),
    ];
    for (name, unit) in units {
        assert_eq!(trial["metrics"][name]["unit"], unit, "{name}");
        assert!(metric(&trial, name) >= 0.0, "{name}");
    }
    for class in ["read", "update", "commit"] {
        let latency = |which: &str| {
            let name = format!("{class}_latency_{which}");
            assert_eq!(trial["metrics"][&name]["unit"], "s", "{name}");
            metric(&trial, &name)
        };
        assert!(latency("mean") > 0.0 && latency("mean") <= latency("max"));
        assert!(latency("p50") <= latency("p95") && latency("p95") <= latency("p99"));
        // A bucket's middle may lie 2 % over the largest value in it.
        assert!(latency("p99") <= latency("max") * 1.03);
        let counted = &trial["histograms"][class];
        let buckets = counted["buckets"].as_array().unwrap();
        let in_buckets: u64 = buckets.iter().map(|b| b[1].as_u64().unwrap()).sum();
        assert_eq!(counted["count"], in_buckets);
        assert_eq!(in_buckets, total(&trial, &format!("{class}s")));
    }

    let seconds = trial["window"]["seconds"].as_f64().unwrap();
    let (reads, updates) = (total(&trial, "reads"), total(&trial, "updates"));
    let visits = (reads * 16 + updates * 4) as f64;
    assert_near(metric(&trial, "block_visits_per_second") * seconds, visits, 1e-9);
    assert_near(metric(&trial, "updates_per_second") * seconds, (updates * 4) as f64, 1e-9);
    assert_eq!(total(&trial, "commits"), updates);
    let share = updates as f64 / (reads + updates) as f64;
    assert_near(metric(&trial, "update_pct_measured"), 100.0 * share, 1e-9);

    // The server's own counters agree. ANALYZE and our readings add a little.
    let (before, after) = (&trial["database"]["before"], &trial["database"]["after"]);
    let grown = |column: &str| after[column].as_i64().unwrap() - before[column].as_i64().unwrap();
    assert_near(metric(&trial, "riops") * seconds, grown("blks_read") as f64, 1e-9);
    let updated = grown("tup_updated").unsigned_abs();
    assert!((updates * 4..updates * 4 + 100).contains(&updated), "{updated} of {}", updates * 4);
    assert!(grown("blks_hit") + grown("blks_read") >= visits as i64);
}

#[test]
fn a_record_holds_the_documented_fields() {
    // On the oldest, counters come through a collector, half a second late.
    for major in [OLDEST, INSTALLED, NEWEST] {
        record(major);
    }
}

/// Transactions that the server has counted in this database.
fn committed(client: &mut Client) -> i64 {
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    client.query_one(sql, &[]).unwrap().get(0)
}

/// Exactly the rows reported as updated are updated, and every reported commit is one.
fn adds_up(db: &TestDatabase, tables: u32, arguments: &[&str]) -> Value {
    let (scratch, commits) = (db.scratch(tables), committed(&mut db.client()));
    let (number, counting) = (tables.to_string(), &mut db.client());
    let trial = db.trial(&[SHORT, &["--num-schemas", &number], arguments].concat());
    assert_eq!(
        (db.scratch(tables) - scratch).unsigned_abs(),
        total(&trial, "rows_updated"),
        "{arguments:?}"
    );
    // Counters of an ended session may arrive a moment later. Besides the workload's, there
    // are the transactions by which sessions are prepared.
    let result = total(&trial, "commits") as i64;
    wait_until("the commits are counted", || committed(counting) - commits >= result);
    let sessions = trial["sessions"].as_array().unwrap().len() as i64;
    let others = committed(counting) - commits - result;
    assert!(others < 120 + 100 * sessions, "{others} besides {result}, {arguments:?}");
    trial
}

/// The statements are the same on every version, and windows last as long beside others as alone.
#[test]
fn run_does_the_requested_shares_and_units_of_work() {
    thread::scope(|scope| {
        scope.spawn(|| shares_are_what_was_asked(INSTALLED));
        units_are_what_was_asked(NEWEST);
    });
}

fn shares_are_what_was_asked(major: u32) {
    let db = TestDatabase::new(major);
    db.load(1, "8M");
    let many: [&str; 2] = ["--work-unit", "1"];
    for asked in [0, 1, 50, 75, 99, 100] {
        let pct = asked.to_string();
        let units = [&many[..], &["--update-work-unit", "8", "--update-pct", &pct]].concat();
        let trial = adds_up(&db, 1, &units);
        let (reads, updates) = (total(&trial, "reads"), total(&trial, "updates"));
        let (calls, share) = ((reads + updates) as f64, f64::from(asked) / 100.0);
        // Six standard deviations of a binomial draw.
        let room = 6.0 * (calls * share * (1.0 - share)).sqrt();
        assert!((updates as f64 - calls * share).abs() <= room, "{updates} of {calls}, {asked} %");
        assert_eq!(total(&trial, "rows_updated"), updates * 8);
        assert_eq!(total(&trial, "blocks_read"), reads);
    }
}

fn units_are_what_was_asked(major: u32) {
    let db = TestDatabase::new(major);
    db.load(2, "8M");
    for access in ["index", "bitmap"] {
        for unit in ["1", "8", "255"] {
            let units = ["--work-unit", unit, "--update-work-unit", unit, "--access", access];
            let trial = adds_up(&db, 1, &[&units[..], &["--update-pct", "50"]].concat());
            let unit: u64 = unit.parse().unwrap();
            assert_eq!(total(&trial, "blocks_read"), total(&trial, "reads") * unit);
            assert_eq!(total(&trial, "rows_updated"), total(&trial, "updates") * unit);
            let bitmap = if access == "bitmap" { "on" } else { "off" };
            assert_eq!(trial["settings"]["enable_bitmapscan"], bitmap);
        }
    }
    let units = ["--work-unit", "8", "--update-work-unit", "8"];
    let several = ["--update-pct", "50", "--num-threads", "2"];
    let trial = adds_up(&db, 2, &[&units[..], &several].concat());
    let mut tables = BTreeMap::new();
    for session in trial["sessions"].as_array().unwrap() {
        assert!(session["commits"].as_u64().unwrap() > 0, "{session}");
        *tables.entry(session["table"].as_str().unwrap()).or_insert(0) += 1;
    }
    assert_eq!(tables, BTreeMap::from([("pgio1", 2), ("pgio2", 2)]));

    let trial = adds_up(&db, 1, &["--batch", "50", "--update-pct", "20", "--work-unit", "1"]);
    assert_eq!(total(&trial, "blocks_read"), total(&trial, "reads") * 50);

    let updates = ["--update-pct", "100", "--update-work-unit", "1"];
    let trial = adds_up(&db, 1, &[&updates[..], &["--commit-every", "10"]].concat());
    // Every slice ends with the commit that is owed.
    let slices = trial["timeline"].as_array().unwrap().len() as u64;
    let full = total(&trial, "updates") / 10;
    assert!((full..=full + slices).contains(&total(&trial, "commits")), "{trial:#}");
    let trial = adds_up(&db, 1, &[&updates[..], &["--commit-every", "0"]].concat());
    assert_eq!(total(&trial, "commits"), 1);
    assert!(total(&trial, "updates") > 1);
}

/// Returns the increment of each key's row.
fn counted_up(db: &TestDatabase, seed: &str, amount: &[&str]) -> Vec<i64> {
    db.client()
        .batch_execute(
            "DROP TABLE IF EXISTS before; CREATE TABLE before AS SELECT mykey, scratch FROM pgio1",
        )
        .unwrap();
    let work = ["--update-pct", "50", "--work-unit", "1", "--update-work-unit", "1"];
    db.trial(&[amount, &work, &["--seed", seed]].concat());
    let sql =
        "SELECT n.scratch - b.scratch FROM pgio1 n JOIN before b USING (mykey) ORDER BY mykey";
    db.client().query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn the_same_seed_does_the_same_work() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    // How far a run comes differs; one that comes further has done all that the other has, but for
    // the call that a slice's end cuts off: it is drawn and not made.
    let strays = |a: &[i64], b: &[i64]| {
        let (short, long) = if a.iter().sum::<i64>() <= b.iter().sum() { (a, b) } else { (b, a) };
        short.iter().zip(long).map(|(short, long)| (short - long).max(0)).sum::<i64>()
    };
    let (first, again) = (counted_up(&db, "5", SHORT), counted_up(&db, "5", SHORT));
    // A short window has four slices.
    assert!(strays(&first, &again) <= 4, "{}", strays(&first, &again));
    // Two streams of any length that counts hardly meet on 1,024 rows; unless one is so much longer that
    // it has been everywhere.
    let fixed = &["--work-loop", "400"];
    let (first, other) = (counted_up(&db, "5", fixed), counted_up(&db, "6", fixed));
    let shorter = first.iter().sum::<i64>().min(other.iter().sum());
    assert!(strays(&first, &other) > shorter / 2, "{} of {shorter}", strays(&first, &other));
}

#[test]
fn the_data_set_keeps_its_size_and_no_session_is_lost() {
    let db = TestDatabase::new(INSTALLED);
    // On a busy machine, a session delayed in mid-update keeps the others from pruning,
    // which a table of 8M shows and this one does not.
    db.load(1, "100M");
    let units = ["--work-unit", "8", "--update-work-unit", "8", "--update-pct", "50"];
    let trial = db.trial(&[&["--run-time", "1500ms", "--num-threads", "4"], &units[..]].concat());
    let bytes = |which: &str| trial["dataset"][which].as_f64().unwrap();
    assert_near(bytes("bytes_after"), bytes("bytes_before"), 0.02);
    let sessions = trial["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 4);
    assert!(sessions.iter().all(|s| s["commits"].as_u64().unwrap() > 0), "{sessions:#?}");
    assert_eq!(metric(&trial, "deadlocks"), 0.0);
}

#[test]
fn deadlocks_are_survived_and_counted() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    // One that is detected early leaves time for more.
    let quick = db.new_role("quick", "SUPERUSER");
    quick
        .client()
        .batch_execute(&format!("ALTER ROLE {} SET deadlock_timeout = '20ms'", quick.user))
        .unwrap();
    let work = ["--update-pct", "100", "--update-work-unit", "8", "--work-unit", "1"];
    let trial =
        adds_up(&quick, 1, &[&work[..], &["--commit-every", "10", "--num-threads", "4"]].concat());
    assert!(metric(&trial, "deadlocks") > 0.0, "{trial:#}");
    assert_eq!(trial["sessions"].as_array().unwrap().len(), 4);
}

fn start(db: &TestDatabase, arguments: &[&str]) -> Child {
    let long = ["run", "--run-time", "600", "--update-pct", "50", "--work-unit", "8"];
    let units = ["--update-work-unit", "8", "--num-threads", "4", "--json", "stopped.json"];
    let mut command = db.command(&[&long[..], &units, arguments].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Four that work and one that looks on.
    wait_until("the sessions are there", || db.sessions() == 5);
    // Work is reported slice by slice, and a session that began a second slice has reported the first.
    let sql = "SELECT pid, query_start::text FROM pg_stat_activity \
               WHERE datname = current_database() AND application_name LIKE 'pgio:%' \
               AND query LIKE '%DO $pgio$%'";
    let mut client = db.client();
    let mut begun: BTreeMap<i32, BTreeSet<String>> = BTreeMap::new();
    wait_until("a slice of each is over", || {
        for row in client.query(sql, &[]).unwrap() {
            begun.entry(row.get(0)).or_default().insert(row.get(1));
        }
        begun.values().filter(|slices| slices.len() > 1).count() == 4
    });
    child
}

#[test]
fn ctrl_c_and_kill_leave_nothing_running() {
    let db = TestDatabase::new(NEWEST);
    db.load(1, "8M");
    let child = start(&db, &[]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let result = CommandResult::from_output(child.wait_with_output().unwrap());
    assert_eq!(result.code, Some(130), "{result:?}");
    // A server process takes a moment to notice that its client has left.
    wait_until("the server's side has ended", || db.sessions() == 0);
    let trial = db.record("stopped.json");
    assert_eq!(trial["outcome"]["state"], "interrupted");
    // Work done until then is recorded.
    assert!(total(&trial, "commits") > 0);
    assert!(
        result.out.contains("\nINTERRUPTED ") && result.out.contains("\nblock visits "),
        "{result:?}"
    );
    assert!(trial["window"]["seconds"].as_f64().unwrap() < 600.0);

    let mut child = start(&db, &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the server's side has ended", || db.sessions() == 0);
    db.succeed(&["run", "--run-time", "200ms"]);
}

#[test]
fn a_server_lost_during_a_run_fails_the_trial() {
    let cluster = PrivateCluster::start(&spec(INSTALLED)).unwrap();
    let db = TestDatabase::at(&cluster.primary_conninfo());
    db.load(1, "8M");
    let child = start(&db, &["--classic-files", "files"]);
    let pid = fs::read_to_string(cluster.data_dir().join("postmaster.pid")).unwrap();
    let pid = Pid::from_raw(pid.lines().next().unwrap().parse().unwrap()).unwrap();
    kill_process(pid, Signal::QUIT).unwrap();
    let result = CommandResult::from_output(child.wait_with_output().unwrap());
    result.assert_refused(5, &["the workload failed in a session"]);
    let trial = db.record("stopped.json");
    assert_eq!(trial["outcome"]["state"], "failed");
    assert!(result.err.contains(trial["outcome"]["error"].as_str().unwrap()), "{result:?}");
    assert!(total(&trial, "reads") > 0, "work done until then is recorded");
}

/// On the newest, which has all of them.
#[test]
fn a_roles_timeouts_do_not_break_a_run() {
    let db = TestDatabase::new(NEWEST);
    db.load(1, "8M");
    let hurried = db.new_role("hurried", "SUPERUSER");
    let settings = [
        ("statement_timeout", "300ms"),
        ("lock_timeout", "1ms"),
        ("idle_in_transaction_session_timeout", "50ms"),
        // Also of a session that has just been connected, on a machine with other things to do.
        ("idle_session_timeout", "1s"),
        ("transaction_timeout", "1s"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_read_only", "on"),
    ];
    let mut client = db.client();
    for (name, value) in settings {
        let sql = format!("ALTER ROLE {} SET {name} = '{value}'", hurried.user);
        client.batch_execute(&sql).unwrap();
    }
    let work = ["--run-time", "1500ms", "--update-pct", "50", "--num-threads", "2"];
    let trial = hurried.trial(&work);
    for name in ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"] {
        assert_eq!(trial["settings"][name], "0", "{name}");
    }
    assert_eq!(trial["settings"]["idle_session_timeout"], "0");
    assert_eq!(trial["settings"]["default_transaction_isolation"], "read committed");
    assert_eq!(trial["settings"]["default_transaction_read_only"], "off");
    assert_eq!(trial["warnings"], serde_json::json!([]));
    hurried.trial(&[&work[..4], &["--commit-every", "0"]].concat());
    hurried.succeed(&["setup", "--scale", "128M"]);
    hurried.succeed(&["destroy"]);
}

/// Numbers come from the server as text.
#[test]
fn numbers_do_not_depend_on_the_settings_of_a_role_or_a_condition() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let rounding = db.new_role("rounding", "SUPERUSER");
    let set = format!("ALTER ROLE {} SET extra_float_digits = -10", rounding.user);
    db.client().batch_execute(&set).unwrap();
    let is_right = |trial: &Value| {
        let seconds = trial["window"]["seconds"].as_f64().unwrap();
        assert!((0.4..60.0).contains(&seconds), "{seconds}");
        let latency = metric(trial, "commit_latency_mean");
        assert!(latency > 0.0 && latency < seconds, "{latency}");
    };
    let small = ["--update-pct", "50", "--work-unit", "8", "--update-work-unit", "8"];
    is_right(&rounding.trial(&[SHORT, &small].concat()));
    let conditions = [("plain", ""), ("rounded", "extra_float_digits = -10")];
    for woven in ["false", "\"50ms\""] {
        let dir = Workdir::new();
        let keys = format!("blocks = 1\nduration = \"400ms\"\naa = false\nweave = {woven}");
        dir.compare(&experiment(&rounding.conninfo, &keys, "", &conditions)).expect(0, &[]);
        let trials = dir.trials();
        assert_eq!(trials.len(), 2);
        trials.iter().for_each(is_right);
    }
}

#[test]
fn a_role_with_select_and_update_is_sufficient() {
    let db = TestDatabase::new(NEWEST);
    db.load(1, "8M");
    let modest = db.new_role("modest", "");
    let grant = format!("GRANT SELECT, UPDATE ON pgio1 TO {}", modest.user);
    db.client().batch_execute(&grant).unwrap();
    let trial = adds_up(&modest, 1, &["--update-pct", "50"]);
    let warnings = trial["warnings"].as_array().unwrap();
    let remedies: Vec<_> = warnings.iter().map(|w| w["try"].as_str().unwrap()).collect();
    assert!(remedies.iter().any(|r| r.contains("GRANT pg_checkpoint")), "{remedies:?}");
    let result = modest.succeed(&["run", "--run-time", "200ms"]);
    assert!(result.out.contains("GRANT pg_checkpoint"), "{result:?}");
}
