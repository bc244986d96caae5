//! The shipped presets with the real programs, and that their tables are separate.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::command_workload::{ONCE, experiment, output, schemas};
use pgio_tests::fixture::{INSTALLED, connect, fresh_database, is_installed, shared_primary};
use pgio_tests::timing::run_in_parallel;
use pgio_tests::workdir::{SAMPLED, Workdir, metric};

fn run(dsn: &str, keys: &str, workload: &str) -> (Workdir, Vec<Value>) {
    let dir = Workdir::new();
    let keys = format!("{ONCE}\n{keys}");
    let text = experiment(
        &format!("dsn = {dsn:?}"),
        &keys,
        workload,
        &[("a", "synchronous_commit = \"off\"")],
    );
    dir.compare(&text).expect(0, &[]);
    let trials = dir.trials();
    assert!(trials.iter().all(|t| t["outcome"]["state"] == "complete"), "{trials:?}");
    (dir, trials)
}

#[test]
fn pgbench() {
    // Each preset has a database of its own, and its windows last as long beside others as alone.
    run_in_parallel(["pgbench", "pgbench-N", "pgbench-S"], pgbench_preset);
}

fn pgbench_preset(preset: &str) {
    let dsn = fresh_database(shared_primary(INSTALLED));
    // pgbench -i drops tables of these names wherever it finds them.
    connect(&dsn)
        .batch_execute("CREATE TABLE pgbench_accounts AS SELECT 'precious' AS mine")
        .unwrap();
    let workload = format!("preset = \"{preset}\"\nsessions = 2\nparameters = {{ scale = 1 }}");
    let keys = format!("warmup = \"1s\"\nduration = \"2s\"\n{SAMPLED}");
    let (dir, trials) = run(&dsn, &keys, &workload);
    let trial = &trials[0];
    let (tps, latency) =
        (metric(trial, "transactions_per_second"), metric(trial, "pgbench_latency_mean"));
    assert!((tps * latency / 2.0 - 1.0).abs() < 0.3, "{tps} × {latency} s is 2 sessions");
    assert_eq!(metric(trial, "failed_transactions"), 0.0);
    assert_eq!(trial["window"]["asked_seconds"], 2.0);
    let seconds = trial["window"]["seconds"].as_f64().unwrap();
    assert!((1.9..12.0).contains(&seconds), "{seconds}");
    // Seen by their name: pgbench's own, and no other session.
    let evidence = trial["evidence"].as_array().unwrap();
    let seen = evidence.iter().find(|e| e["what"] == "sessions of the command").unwrap();
    // With the one that it begins and ends before them, where that takes its time to go.
    assert!(seen["found"] == "2" || seen["found"] == "3", "{seen}");
    assert_eq!(trial["telemetry"]["waits"]["sessions"], 2, "{trial}");
    let groups = ["cpu", "flush", "client", "locks", "other"];
    let shares = groups.map(|group| metric(trial, &format!("wait_share_{group}")));
    assert!(shares.iter().sum::<f64>() > 0.5, "{shares:?}");
    assert_eq!(trial["settings"]["synchronous_commit"], "off");
    let text = output(&dir, "0001.stdout");
    assert!(text.contains("number of clients: 2"), "{text}");
    assert!(output(&dir, "0001.stderr").contains("progress: 1."), "its progress is kept");
    assert_eq!(schemas(&dsn), 0, "dropped at the end");
    let row = connect(&dsn).query_one("SELECT mine FROM pgbench_accounts", &[]).unwrap();
    assert_eq!(row.get::<_, String>(0), "precious");
}

#[test]
fn data_are_made_before_each_trial_or_once() {
    for (once, makings) in [(false, 2), (true, 1)] {
        let dsn = fresh_database(shared_primary(INSTALLED));
        let dir = Workdir::new();
        let log = dir.path().join("made").display().to_string();
        let workload = format!(
            "schema = \"pgio_command\"\nsetup_once = {once}\n\
             setup = \"echo made >>{log}; psql -qX -c 'CREATE TABLE t AS SELECT 1 AS x'\"\n\
             run = \"psql -qAtX -c 'UPDATE t SET x = x + 1' -c 'SELECT x FROM t'\"\n\
             metric = [{{ name = \"x\", unit = \"x\", better = \"higher\", regex = \"^[0-9]+$\" }}]"
        );
        let keys = "blocks = 2\naa = false\nburn_in = false";
        dir.compare(&experiment(&format!("dsn = {dsn:?}"), keys, &workload, &[("a", "")]))
            .expect(0, &[]);
        assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), makings);
        let values: Vec<f64> = dir.trials().iter().map(|t| metric(t, "x")).collect();
        assert_eq!(values, if once { [2.0, 3.0] } else { [2.0, 2.0] });
    }
}

/// All points of a sweep have one schema: what one made is used by the others only where it is what they
/// would make.
#[test]
fn data_of_one_point_are_not_taken_for_those_of_another() {
    for of_point in [true, false] {
        let dsn = fresh_database(shared_primary(INSTALLED));
        let dir = Workdir::new();
        let log = dir.path().join("made").display().to_string();
        let rows = if of_point { "{sessions}" } else { "7" };
        let workload = format!(
            "schema = \"pgio_command\"\nsetup_once = true\nsessions = [1, 4]\n\
             setup = \"echo made >>{log}; psql -qX -c 'CREATE TABLE t AS SELECT {rows} AS x'\"\n\
             run = \"psql -qAtX -c 'SELECT x FROM t' -c 'SELECT 0 AS s{{sessions}}'\"\n\
             metric = [{{ name = \"x\", unit = \"x\", better = \"higher\", regex = \"^[1-9]$\" }}]"
        );
        let keys = "blocks = 2\naa = false\nburn_in = false";
        dir.compare(&experiment(&format!("dsn = {dsn:?}"), keys, &workload, &[("a", "")]))
            .expect(0, &[]);
        let trials = dir.trials();
        assert_eq!(trials.len(), 4);
        for trial in &trials {
            let sessions = trial["place"]["point"]["sessions"].as_f64().unwrap();
            assert_eq!(metric(trial, "x"), if of_point { sessions } else { 7.0 }, "{trial:#}");
        }
        let made = fs::read_to_string(&log).unwrap().lines().count();
        assert!(if of_point { made >= 2 } else { made == 1 }, "{made}");
    }
}

#[test]
fn a_script_for_pgbench() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    connect(&dsn).batch_execute("CREATE TABLE orders AS SELECT 1 AS id").unwrap();
    let script = tempfile::Builder::new().suffix(".sql").tempfile().unwrap();
    fs::write(script.path(), "SELECT id FROM orders;\n").unwrap();
    let workload = format!(
        "preset = \"pgbench-script\"\nparameters = {{ script = {:?} }}\nsessions = 1",
        script.path()
    );
    let (dir, trials) = run(&dsn, "warmup = 0\nduration = \"1s\"", &workload);
    assert!(metric(&trials[0], "transactions_per_second") > 0.0);
    assert!(output(&dir, "0001.stdout").contains("transaction type: /tmp/"));
    let [p50, p95] = ["p50", "p95"].map(|p| metric(&trials[0], &format!("pgbench_latency_{p}")));
    assert!(0.0 < p50 && p50 <= p95, "{p50} {p95}");

    // Each transaction takes 30 ms and they begin every 10 ms, so that latencies from the scheduled start grow.
    fs::write(script.path(), "SELECT pg_sleep(0.03) FROM orders;\n").unwrap();
    let workload = workload.replace(" }", ", rate = 100, threads = 1 }");
    let (dir, trials) = run(&dsn, "warmup = \"1s\"\nduration = \"3s\"", &workload);
    let trial = &trials[0];
    let median = metric(trial, "pgbench_latency_p50");
    let lag = metric(trial, "pgbench_schedule_lag_mean");
    assert!(lag > 0.1 && median > 0.1, "{trial:#}");
    assert!(trial["metrics"]["pgbench_latency_p99"]["value"].is_null(), "too few for it");
    let said = output(&dir, "0001.stdout");
    assert!(said.contains("number of transactions actually processed"), "{said}");
    assert_eq!(said.matches("latency p").count(), 1, "{said}");
}

/// The cause comes first, and all that the program wrote is kept, whichever line failed.
#[test]
fn a_failing_script_reports_its_reason() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let script = tempfile::Builder::new().suffix(".sql").tempfile().unwrap();
    fs::write(script.path(), "SELECT id FROM no_such_table;\n").unwrap();
    for (keys, line) in [("warmup = 0", "run"), ("warmup = \"1s\"", "warm_up")] {
        let workload = format!(
            "preset = \"pgbench-script\"\nparameters = {{ script = {:?} }}\nsessions = 1",
            script.path()
        );
        let keys = format!("{ONCE}\n{keys}\nduration = \"1s\"");
        let dir = Workdir::new();
        let text = experiment(&format!("dsn = {dsn:?}"), &keys, &workload, &[("a", "")]);
        dir.compare(&text);
        let trial = &dir.trials()[0];
        let error = trial["outcome"]["error"].as_str().unwrap();
        let cause = error.find("relation \"no_such_table\" does not exist").expect(error);
        let explained = error.find("LINE 1:").expect(error);
        assert!(cause < explained, "{error}");
        assert!(error.contains(&format!("`pgbench` ({line})")), "{error}");
        assert!(error.contains("full output: output/0001.stderr"), "{error}");
        assert!(output(&dir, "0001.stderr").contains("no_such_table"));
    }
}

#[test]
fn sysbench() {
    if !is_installed("sysbench") {
        return;
    }
    // Each lane has a database of its own, and its windows last as long beside others as alone.
    let lanes: [&[&str]; 3] = [
        &["read_write", "write_only"],
        &["read_only", "point_select", "update_index"],
        &["update_non_index", "insert"],
    ];
    run_in_parallel(lanes, sysbench_scripts);
}

fn sysbench_scripts(scripts: &[&str]) {
    let dsn = fresh_database(shared_primary(INSTALLED));
    for script in scripts {
        let workload = format!(
            "preset = \"sysbench-oltp_{script}\"\nsessions = 2\nparameters = {{ tables = 2, table_size = 1000 }}"
        );
        let (dir, trials) = run(&dsn, "warmup = 0\nduration = \"1s\"", &workload);
        let trial = &trials[0];
        assert!(metric(trial, "transactions_per_second") > 0.0);
        assert!(metric(trial, "queries_per_second") >= metric(trial, "transactions_per_second"));
        assert!(metric(trial, "sysbench_latency_mean") > 0.0);
        assert!(metric(trial, "sysbench_latency_p95") > 0.0);
        assert!(output(&dir, "0001.stdout").contains("General statistics"), "{script}");
        assert_eq!(schemas(&dsn), 0);
    }
}

#[test]
fn fio() {
    if !is_installed("fio") {
        return;
    }
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let job = dir.path().join("two jobs.fio");
    let text = format!(
        "[global]\ndirectory={}\nsize=1m\nbs=8k\ntime_based\nruntime=1\n[a]\nrw=randwrite\n[b]\nrw=randread\n",
        dir.path().display()
    );
    fs::write(&job, text).unwrap();
    let workload = format!("preset = \"fio\"\nparameters = {{ job = {job:?} }}");
    let out = Workdir::new();
    let text = experiment(&format!("dsn = {dsn:?}"), ONCE, &workload, &[("a", "")]);
    out.compare(&text).expect(0, &["io operations/s"]);
    let trial = &out.trials()[0];
    let (operations, bytes) =
        (metric(trial, "io_operations_per_second"), metric(trial, "io_bytes_per_second"));
    assert!((bytes / operations / 8192.0 - 1.0).abs() < 0.05, "{bytes} of {operations}");
    // The first job only writes.
    assert!(metric(trial, "fio_write_latency_mean") > 0.0);
    assert_eq!(trial["metrics"]["fio_read_latency_mean"]["value"], Value::Null);
}

/// Debian's `bhm` of the same package takes mail and forgets it.
#[test]
#[ignore = "two minutes: postal tells what it did at each full one"]
fn postal() {
    if !is_installed("postal") || !is_installed("bhm") {
        return;
    }
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = tempfile::tempdir().unwrap();
    let users = dir.path().join("users");
    fs::write(&users, "someone@example.invalid\n").unwrap();
    let (_sink, server) = black_hole(dir.path());
    let workload = format!(
        "preset = \"postal\"\nsessions = 2\nrun_time = \"125s\"\n\
         parameters = {{ server = \"{server}\", users = {users:?}, max_kilobytes = 2 }}"
    );
    let out = Workdir::new();
    let text = experiment(&format!("dsn = {dsn:?}"), ONCE, &workload, &[("a", "")]);
    out.compare(&text).expect(0, &["messages per minute"]);
    let messages = metric(&out.trials()[0], "messages_per_minute");
    assert!(messages > 10.0);
    assert!(metric(&out.trials()[0], "postal_errors") < messages);
}

struct Sink(Child);

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn black_hole(dir: &Path) -> (Sink, String) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new("bhm")
        .current_dir(dir)
        .args(["-p", &port.to_string(), "-t", "20", "users"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    (Sink(child), format!("[127.0.0.1]{port}"))
}
