//! Features of `slob` beyond uniform visits: requested shares are reached on real servers. Draws: `drawing`.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use pgio_tests::command::{CommandResult, TestDatabase, wait_until};
use pgio_tests::fixture::{INSTALLED, NEWEST, own_primary};
use pgio_tests::workdir::{alter_system, metric, show};

const OLDEST: u32 = 13;

const SINGLE: &[&str] = &["--work-unit", "1", "--update-work-unit", "1", "--telemetry", "0"];

fn count(trial: &Value, class: &str) -> f64 {
    trial["histograms"][class]["count"].as_f64().unwrap_or(0.0)
}

/// Within six standard deviations of a binomial draw.
#[track_caller]
fn assert_share(trial: &Value, name: &str, asked: f64, draws: f64) {
    let measured = metric(trial, name);
    let room = 600.0 * (asked / 100.0 * (1.0 - asked / 100.0) / draws).sqrt();
    assert!((measured - asked).abs() <= room, "{name} is {measured}, asked {asked} of {draws}");
}

/// Returns the increment of each key's row by a run.
fn counted_up(db: &TestDatabase, table: &str, arguments: &[&str]) -> (Value, Vec<i64>) {
    let copy = format!(
        "DROP TABLE IF EXISTS before; CREATE TABLE before AS SELECT mykey, scratch FROM {table}"
    );
    db.client().batch_execute(&copy).unwrap();
    let trial = db.trial(arguments);
    let sql = format!(
        "SELECT n.scratch - b.scratch FROM {table} n JOIN before b USING (mykey) ORDER BY mykey"
    );
    let rows = db.client().query(&sql, &[]).unwrap();
    (trial, rows.iter().map(|row| row.get(0)).collect())
}

#[test]
fn the_hot_spot_gets_its_share_and_ranges_do_not_straddle_it() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    // Keys 513 to 614 of 1024.
    let hot = ["--hot-spot", "10%", "--hot-offset", "50%", "--hot-pct", "80"];
    let work = ["--work-loop", "4000", "--update-pct", "100", "--update-work-unit", "4"];
    let (trial, up) = counted_up(&db, "pgio1", &[&hot[..], &work, &["--work-unit", "4"]].concat());
    assert_eq!(count(&trial, "update"), 4000.0);
    assert_eq!(metric(&trial, "hot_pct_asked"), 80.0);
    assert_share(&trial, "hot_pct_measured", 80.0, 4000.0);
    // Counts during the run agree with the rows.
    let inside: i64 = up[512..614].iter().sum();
    let all: i64 = up.iter().sum();
    assert_eq!(all, 16_000);
    assert_eq!(100.0 * inside as f64 / all as f64, metric(&trial, "hot_pct_measured"));
    assert_eq!(trial["workload"]["keys"]["hot_spot"], 102);
}

#[test]
fn a_call_that_is_drawn_but_not_made_does_not_count_as_hot() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "64M");
    // Calls of many blocks: few in a slice, and each slice ends with a draw that is not made.
    let work = ["--run-time", "1s", "--work-unit", "4096", "--update-pct", "0"];
    for skew in [
        &["--hot-spot", "80%", "--hot-pct", "100"][..],
        &["--skew", "gaussian", "--gaussian-mean", "50", "--gaussian-sd", "0.1"],
    ] {
        let trial = db.trial(&[&work[..], skew].concat());
        assert!(count(&trial, "read") > 0.0);
        let hot = metric(&trial, "hot_pct_measured");
        assert!((60.0..=100.0).contains(&hot), "{skew:?}: {hot} %");
    }
}

#[test]
fn fixed_work_is_the_same_work_every_time() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let work = ["--work-loop", "3000", "--update-pct", "30", "--skew", "zipf", "--seed", "5"];
    let arguments = [&work[..], SINGLE, &["--num-threads", "2"]].concat();
    let (trial, first) = counted_up(&db, "pgio1", &arguments);
    assert_eq!(count(&trial, "read") + count(&trial, "update"), 6000.0);
    let busy = |class| count(&trial, class) * metric(&trial, &format!("{class}_latency_mean"));
    let each = ["read", "update", "commit"].map(busy).iter().sum::<f64>() / 6000.0;
    assert!((metric(&trial, "call_latency_mean") / each - 1.0).abs() < 1e-6, "{each}");
    assert!(trial["window"]["asked_seconds"].is_null());
    for session in trial["sessions"].as_array().unwrap() {
        let calls = ["reads", "updates"].map(|class| session[class].as_u64().unwrap());
        assert_eq!(calls.iter().sum::<u64>(), 3000, "{session}");
    }
    // Slices fall elsewhere with other work on the machine; a warm-up has a stream of its own.
    let (_, again) = counted_up(&db, "pgio1", &[&arguments[..], &["--warmup", "1"]].concat());
    let warm = again.iter().sum::<i64>() - first.iter().sum::<i64>();
    assert!(warm > 0, "the warm-up did nothing");
    let (_, again) = counted_up(&db, "pgio1", &arguments);
    assert_eq!(first, again);
}

#[test]
fn sessions_rest_as_often_and_as_long_as_asked() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let rests = ["--think-pct", "50", "--think-min", "4ms", "--think-max", "12ms"];
    let work = ["--run-time", "1", "--num-threads", "4", "--update-pct", "20"];
    let trial = db.trial(&[&rests[..], &work, SINGLE].concat());
    let calls = count(&trial, "read") + count(&trial, "update");
    // Each session may be cut off in a rest that it has not counted, or in a call.
    assert_share(&trial, "think_pct_measured", 50.0, calls);
    assert!(metric(&trial, "think_time_mean") >= 0.004, "{trial:#}");
    assert!(metric(&trial, "think_share") <= 1.0);
    assert!(metric(&trial, "read_latency_mean") < metric(&trial, "think_time_mean"));

    // A rest of several slices is one rest.
    let long = ["--think-pct", "100", "--think-min", "600ms", "--think-max", "600ms"];
    let trial = db.trial(&[&long[..], &["--run-time", "1"], SINGLE].concat());
    assert!(count(&trial, "read") <= 2.0, "{trial:#}");
    assert!(metric(&trial, "think_share") > 0.9);
}

#[test]
fn scans_are_counted_apart_and_need_their_table() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let scans = ["--work-loop", "400", "--scan-pct", "12.5", "--update-pct", "20"];
    let arguments = [&scans[..], SINGLE].concat();
    let refused = |db: &TestDatabase| {
        db.pgio(&[&["run"], &arguments[..]].concat())
            .assert_refused(4, &["pgio_scan", "--scan-scale"]);
    };
    refused(&db);
    let mut client = db.client();
    // A stranger's table of that name is not touched.
    client
        .batch_execute(
            "CREATE TABLE pgio_scan WITH (fillfactor = 10) AS
               SELECT i::bigint AS mykey, 0::bigint AS scratch, repeat('X', 1024)::char(1024) AS filler
                 FROM generate_series(1, 2000) i",
        )
        .unwrap();
    refused(&db);
    client
        .batch_execute(
            "COMMENT ON TABLE pgio_scan IS 'pgio data set: version=3 scale=2000 blocks=2000 table=scan tables=1 seed=1'",
        )
        .unwrap();
    let trial = db.trial(&arguments);
    let (reads, updates, scans) =
        (count(&trial, "read"), count(&trial, "update"), count(&trial, "scan"));
    assert!(scans > 5.0, "{trial:#}");
    let calls = reads + updates + scans;
    assert_share(&trial, "scan_pct_measured", 12.5, calls);
    assert_share(&trial, "update_pct_measured", 20.0, calls);
    let seconds = trial["window"]["seconds"].as_f64().unwrap();
    let blocks = metric(&trial, "blocks_scanned_per_second") * seconds / scans;
    assert!((blocks - 2000.0).abs() < 1e-6, "{blocks}");
    let visits = metric(&trial, "block_visits_per_second") * seconds;
    assert!((visits - reads - updates).abs() < 1e-6, "{visits}");
    let mut counted = || -> f64 {
        let sql = "SELECT seq_scan::float8 FROM pg_stat_user_tables WHERE relname = 'pgio_scan'";
        client.query_one(sql, &[]).unwrap().get(0)
    };
    wait_until("the server has counted the scans", || counted() >= scans);
    assert!(counted() <= scans + 2.0);
}

/// By what they do it is decided whether a window waits for sessions whose time is over: `workload/stall.rs`.
#[test]
fn sessions_that_work_are_told_from_those_that_are_blocked() {
    const ACTIVITY: &str = include_str!("../../crates/pgio/src/workload/sql/activity.sql");
    let db = TestDatabase::new(INSTALLED);
    let pid_of = |client: &mut pgio_connect::Client| -> i32 {
        client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0)
    };
    let (mut looking, mut idle) = (db.client(), db.client());
    idle.batch_execute("CREATE TABLE locked (); BEGIN; LOCK TABLE locked").unwrap();
    let idle = (pid_of(&mut idle), idle);
    let mut started = Vec::new();
    let mut start = |sql: &'static str| -> i32 {
        let mut client = db.client();
        let pid = pid_of(&mut client);
        started.push((pid, thread::spawn(move || client.batch_execute(sql))));
        pid
    };
    let computes = start("DO 'BEGIN LOOP NULL; END LOOP; END'");
    let waits = start("SELECT pg_sleep(600)");
    let blocked = start("BEGIN; LOCK TABLE locked");
    let mut is_seen = |pids: &[i32], expected: (bool, bool)| {
        wait_until("the sessions are seen as they are", || {
            let row = looking.query_one(ACTIVITY, &[&pids]).unwrap();
            (row.get(0), row.get(1)) == expected
        });
    };
    is_seen(&[computes], (true, false));
    is_seen(&[waits], (false, true));
    is_seen(&[blocked, idle.0], (false, false));
    // One that computes or waits is enough.
    is_seen(&[blocked, idle.0, waits], (false, true));
    is_seen(&[blocked, computes, waits], (true, true));
    for (pid, session) in started {
        db.client().execute("SELECT pg_terminate_backend($1)", &[&pid]).unwrap();
        let _ = session.join().unwrap();
    }
}

#[test]
fn wider_updates_write_as_much_more_wal() {
    const WITHOUT_FSYNC: &[&str] = &["--tolerate", "durability"];
    // Without full-page images, whose size depends on what earlier runs left in the blocks.
    let cluster = own_primary(INSTALLED);
    let db = TestDatabase::at(&cluster.primary_conninfo());
    for name in ["full_page_writes", "fsync", "autovacuum"] {
        alter_system(&db.conninfo, name, Some("off"));
        wait_until("reloaded", || show(&db.conninfo, name) == "off");
    }
    db.load(1, "8M");
    let wal = |width: &str| {
        let work = ["--work-loop", "5000", "--update-pct", "100"];
        let arguments = [&work[..], SINGLE, &["--update-width", width], WITHOUT_FSYNC].concat();
        metric(&db.trial(&arguments), "wal_bytes_per_update")
    };
    let (none, some, all) = (wal("0"), wal("300"), wal("1024"));
    assert!((some - none - 300.0).abs() < 30.0, "{none}, {some}, {all}");
    assert!((all - none - 1024.0).abs() < 60.0, "{none}, {some}, {all}");
}

#[test]
fn a_ramp_spreads_the_sessions_over_the_warm_up() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let arguments = ["run", "--json", "trial.json", "--num-threads", "4"];
    let ramp = ["--warmup", "4", "--ramp", "3s", "--run-time", "1"];
    // They leave the processors to others.
    let rests = ["--think-pct", "100", "--think-min", "20ms", "--think-max", "20ms"];
    let mut command = db.command(&[&arguments[..], &ramp, &rests, SINGLE].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the sessions are there", || db.sessions() == 5);
    // The first of all is the one that looks on.
    let sql = "SELECT extract(epoch FROM max(at) - min(at))::float8 FROM (
                 SELECT backend_start AS at FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name LIKE 'pgio:%'
                  ORDER BY backend_start OFFSET 1) sessions";
    let spread: f64 = db.client().query_one(sql, &[]).unwrap().get(0);
    assert!(spread > 2.4, "{spread}");
    let result = CommandResult::from_output(child.wait_with_output().unwrap());
    assert_eq!(result.code, Some(0), "{result:?}");
    let trial = db.record("trial.json");
    // The window opened for all at once. A busy machine may wake a session late, which is a warning, but not
    // by a step of the ramp, which takes a second.
    let began = trial["checks"].as_array().unwrap().iter().find(|c| c["id"] == "common-start");
    let began = began.unwrap()["message"].as_str().unwrap();
    let milliseconds = |word: &str| word.parse::<f64>().ok();
    let late = began.split(' ').find_map(milliseconds).unwrap_or_else(|| panic!("{began}"));
    assert!(late < 1000.0, "{began}");
    assert!(trial["sessions"].as_array().unwrap().iter().all(|s| s["reads"].as_u64() > Some(0)));
}

#[test]
fn all_sessions_may_share_a_table_or_visit_a_hot_one() {
    let db = TestDatabase::new(INSTALLED);
    db.load(2, "8M");
    let work = ["--work-loop", "2000", "--update-pct", "100", "--num-threads", "2"];
    let single = db.trial(&[&work[..], SINGLE, &["--table-model", "single"]].concat());
    let sessions = single["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 4);
    assert!(sessions.iter().all(|s| s["table"] == "pgio1"), "{sessions:#?}");
    assert_eq!(single["dataset"]["tables"], 1);

    let hot = ["--hot-table", "2", "--hot-table-pct", "60"];
    let (trial, up) = counted_up(&db, "pgio1", &[&work[..], SINGLE, &hot].concat());
    assert_share(&trial, "hot_table_pct_measured", 60.0, 8000.0);
    // Two of the four sessions have pgio1 for their own, and do the rest of their work there.
    let (own, room) = (4000.0 * 0.4, 6.0 * (4000.0_f64 * 0.4 * 0.6).sqrt());
    let found = up.iter().sum::<i64>() as f64;
    assert!((found - own).abs() < room, "{found} is not {own}");
}

/// One of each kind: the others are tried beside the rules, in `config::resolve` and `config::experiment`.
#[test]
fn contradictions_are_refused_before_anything_is_done() {
    // No server is asked.
    let db = TestDatabase::at("host=/nonexistent user=nobody dbname=none");
    let run = ["run", "--skew", "pareto"];
    db.pgio(&run).assert_refused(2, &["uniform or zipf or gaussian"]);
    let file = |line: &str| {
        format!("[workload]\nkind = \"slob\"\n{line}\n\n[[condition]]\nname = \"a\"\n")
    };
    for (line, words) in [
        ("work_loop = 9\nrun_time = \"5s\"", "conflicts with run_time"),
        ("scan_pct = \"many\"", "integer or float"),
    ] {
        db.write("wrong.toml", &file(line));
        db.pgio(&["compare", "wrong.toml", "--plan"]).assert_refused(2, &["wrong.toml:", words]);
    }
}

const TURNS: &[&str] = &["--insert-pct", "20", "--delete-pct", "20", "--update-pct", "20"];

fn turns_over(major: u32) {
    // A server of its own: a transaction in any database, such as another test's load, holds back the
    // pruning that makes room for the next version of a row.
    let cluster = own_primary(major);
    let db = TestDatabase::at(&cluster.primary_conninfo());
    db.load(1, "8M");
    let mut client = db.client();
    let arguments = ["run", "--json", "trial.json", "--run-time", "3", "--num-threads", "2"];
    let mut command = db.command(&[&arguments[..], TURNS, SINGLE].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut largest = 0;
    while child.try_wait().unwrap().is_none() {
        let sql = "SELECT coalesce(pg_relation_size(to_regclass('pgio_turnover')), 0)";
        largest = largest.max(client.query_one(sql, &[]).unwrap().get::<_, i64>(0));
        thread::sleep(Duration::from_millis(50));
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
    // On the oldest, an insert reuses a block only if the fillfactor is right.
    for major in [OLDEST, INSTALLED, NEWEST] {
        turns_over(major);
    }
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
