//! The client-side engine on real servers: that it does what the server-side engine does, keeps the
//! rate that it is asked for, shows what it costs to wait, and stops.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pgio::pg::private::PrivateCluster;
use pgio_connect::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::tls_server::{PASSWORD, shared};
use pgio_tests::command::{CommandResult, TestDatabase, wait_until};
use pgio_tests::fixture::{INSTALLED, NEWEST, connect, own_primary};
use pgio_tests::workdir::{
    Workdir, condition_of, experiment, metric, pgio_sessions, sessions_waiting_for_standby,
};

const CLIENT: [&str; 4] = ["--engine", "client", "--telemetry", "0"];

fn total(trial: &Value, what: &str) -> u64 {
    trial["sessions"].as_array().unwrap().iter().map(|s| s[what].as_u64().unwrap()).sum()
}

fn verdict(trial: &Value, check: &str) -> String {
    let checks = trial["checks"].as_array().unwrap();
    let found = checks.iter().find(|c| c["id"] == check);
    found.unwrap_or_else(|| panic!("no {check} in {trial:#}"))["verdict"].as_str().unwrap().into()
}

/// A unit of reads, one of updates, the access method and the depth of the pipeline.
type Mix = (&'static str, &'static str, &'static str, &'static str);

fn does_what_was_asked(major: u32, mixes: &[Mix]) {
    let db = TestDatabase::new(major);
    db.load(2, "8M");
    let work = ["--run-time", "1500ms", "--warmup", "200ms", "--num-threads", "3", "--seed", "5"];
    let mut starts = Vec::new();
    for &(unit, update_unit, access, pipeline) in mixes {
        let before = db.scratch(2);
        let units = ["--work-unit", unit, "--update-work-unit", update_unit, "--access", access];
        let mix = ["--update-pct", "40", "--pipeline", pipeline];
        // The warm-up updates as well.
        let mut arguments = [&CLIENT[..], &work, &units, &mix].concat();
        let warm = arguments.iter().position(|a| *a == "--warmup").unwrap();
        arguments.drain(warm..warm + 2);
        let trial = db.trial(&arguments);
        let updated = total(&trial, "rows_updated");
        assert_eq!((db.scratch(2) - before).unsigned_abs(), updated, "{arguments:?}");
        let (reads, updates) = (total(&trial, "reads"), total(&trial, "updates"));
        assert_eq!(total(&trial, "blocks_read"), reads * unit.parse::<u64>().unwrap());
        assert_eq!(updated, updates * update_unit.parse::<u64>().unwrap());
        assert_eq!(total(&trial, "commits"), updates);
        let (calls, share) = ((reads + updates) as f64, 0.4);
        let room = 6.0 * (calls * share * (1.0 - share)).sqrt();
        assert!((updates as f64 - calls * share).abs() <= room, "{updates} of {calls}");
        assert_eq!(trial["histograms"]["read"]["count"], reads);
        assert_eq!(trial["histograms"]["update"]["count"], updates);
        assert_eq!(trial["sessions"].as_array().unwrap().len(), 6);
        let timeline = trial["timeline"].as_array().unwrap();
        let in_slices: u64 = timeline.iter().map(|s| s["commits"].as_u64().unwrap()).sum();
        assert_eq!((timeline.len(), in_slices), (4, updates));
        assert_eq!(trial["settings"]["plan_cache_mode"], "force_generic_plan");
        assert_eq!(trial["workload"]["keys"]["engine"], "client");
        starts.push(verdict(&trial, "common-start"));
    }
    if mixes.len() == 1 {
        return;
    }
    // A busy machine may wake a session late, which is a warning; one after the other, all would be.
    assert!(starts.iter().any(|start| start == "ok"), "{starts:?}");
    // Warm-up and two threads; nothing of the warm-up is counted.
    let trial = db.trial(&[&CLIENT[..], &work, &["--client-threads", "2"]].concat());
    let seconds = trial["window"]["seconds"].as_f64().unwrap();
    assert!((1.4..2.5).contains(&seconds), "{seconds}");
    let reads = total(&trial, "reads") as f64;
    assert!((metric(&trial, "calls_per_second") * seconds / reads - 1.0).abs() < 1e-9);
    wait_until("no session is left", || db.sessions() == 0);
}

#[test]
fn the_client_engine_does_the_requested_work() {
    let mixes = [("1", "1", "index", "1"), ("8", "4", "bitmap", "1"), ("255", "8", "index", "4")];
    does_what_was_asked(INSTALLED, &mixes);
}

#[test]
fn the_client_engine_does_the_requested_work_on_the_newest() {
    does_what_was_asked(NEWEST, &[("255", "8", "index", "4")]);
}

const ONE_ROW_CALLS: [&str; 4] = ["--num-threads", "4", "--work-unit", "1"];

fn a_rate_is_kept(arrivals: &str) {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let rate = ["--run-time", "4", "--rate", "1000", "--arrivals", arrivals];
    let trial = db.trial(&[&CLIENT[..], &ONE_ROW_CALLS, &rate].concat());
    // Those that a busy machine is late for at the window's very end do not begin.
    let reached = metric(&trial, "rate_reached") / 100.0;
    assert!(reached > 0.95, "{reached} {arrivals}");
    // Six standard deviations of a Poisson count; what is fixed is exact.
    let due = total(&trial, "reads") as f64 / reached;
    let room = if arrivals == "fixed" { 1e-6 } else { 6.0 * 4000f64.sqrt() };
    assert!((due - 4000.0).abs() <= room, "{due} {arrivals}");
    assert_ne!(verdict(&trial, "rate-not-reached"), "invalid");
    assert_eq!(trial["histograms"]["lag"]["count"], trial["histograms"]["read"]["count"]);
    assert_eq!(trial["workload"]["primary_metric"], "read_latency_p99");
}

#[test]
fn a_rate_is_kept_and_one_above_capacity_is_reported() {
    thread::scope(|scope| {
        for arrivals in ["fixed", "poisson"] {
            scope.spawn(move || a_rate_is_kept(arrivals));
        }
    });
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let rate = ["--run-time", "2", "--rate", "50000000"];
    let result =
        db.pgio(&[&["run", "--json", "over.json"], &CLIENT[..], &ONE_ROW_CALLS, &rate].concat());
    let trial = db.record("over.json");
    assert!(metric(&trial, "rate_reached") < 50.0, "{result:?}");
    assert_eq!(verdict(&trial, "rate-not-reached"), "warning");
    // Delayed calls count in the latencies: half of the calls began seconds late, not microseconds.
    assert!(metric(&trial, "schedule_lag_p50") > 0.5, "{trial:#}");
    assert!(metric(&trial, "read_latency_p50") > 0.5, "{trial:#}");
}

/// Stops every session of the workload for half a second, inside the window.
fn stall(db: &TestDatabase, child: &Child) {
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
               AND application_name LIKE 'pgio:%' AND query LIKE 'SELECT scratch FROM%'";
    let mut client = db.client();
    let mut pids: Vec<Pid> = Vec::new();
    wait_until("the sessions are at work", || {
        let rows = client.query(sql, &[]).unwrap();
        pids = rows.iter().map(|row| Pid::from_raw(row.get(0)).unwrap()).collect();
        pids.len() == 4
    });
    assert!(child.id() > 0);
    thread::sleep(Duration::from_millis(700));
    pids.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
    thread::sleep(Duration::from_millis(500));
    pids.iter().for_each(|pid| kill_process(*pid, Signal::CONT).unwrap());
}

fn stalled(db: &TestDatabase, more: &[&str]) -> Value {
    let work = ["run", "--run-time", "4", "--num-threads", "4", "--work-unit", "1"];
    let json = ["--json", "stalled.json"];
    let mut command = db.command(&[&work[..], &json, &CLIENT, more].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    stall(db, &child);
    let result = CommandResult::from_output(child.wait_with_output().unwrap());
    assert_eq!(result.code, Some(0), "{result:?}");
    db.record("stalled.json")
}

/// A closed loop cannot show a stall: while the server was frozen, no calls were due.
#[test]
fn a_stall_is_seen_by_the_open_loop_and_hidden_by_the_closed() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let closed = stalled(&db, &[]);
    assert!(metric(&closed, "read_latency_max") > 0.4, "{closed:#}");
    assert!(metric(&closed, "read_latency_p99") < 0.1, "{closed:#}");

    // Half of what it could do, but not more than a busy machine can do as well.
    let capacity = metric(&closed, "calls_per_second");
    let rate = (capacity / 2.0).min(5000.0).to_string();
    let rate = rate.split('.').next().unwrap();
    let open = stalled(&db, &["--rate", rate]);
    assert!(metric(&open, "read_latency_max") > 0.4, "{open:#}");
    // An eighth of the window: those that came then waited a quarter of a second in the mean.
    assert!(metric(&open, "read_latency_p99") > 0.3, "{open:#}");
    assert!(metric(&open, "schedule_lag_p99") > 0.3, "{open:#}");
}

/// Transactions and inserted rows that the server has counted in this database.
fn counted(client: &mut Client) -> [i64; 2] {
    let sql = "SELECT xact_commit, tup_inserted FROM pg_stat_database \
               WHERE datname = current_database()";
    let row = client.query_one(sql, &[]).unwrap();
    [row.get(0), row.get(1)]
}

#[test]
fn commits_are_counted_row_by_row() {
    let db = TestDatabase::new(INSTALLED);
    let mut counting = db.client();
    let keys = "blocks = 1\nduration = \"300ms\"\naa = false\ntelemetry = \"0s\"";
    let conditions = [("off", "synchronous_commit = \"off\""), ("on", "")];
    let once = &conditions[..1];
    for (workload, rows, conditions) in [
        ("sessions = 3\nengine = \"client\"", 1, &conditions[..]),
        ("sessions = 2\nengine = \"client\"\nrows_per_transaction = 5\nindex = true", 5, once),
        ("sessions = 2\nrows_per_transaction = 3\nindex = true\npayload = 100", 3, once),
        ("engine = \"client\"\npayload = 20000\ntransactions = 50\npipeline = 8", 1, once),
        // More answers than a socket holds, before the last row is sent.
        ("engine = \"client\"\nrows_per_transaction = 30000\ntransactions = 2", 30_000, once),
    ] {
        let dir = Workdir::new();
        let before = counted(&mut counting);
        dir.compare(&experiment(&db.conninfo, keys, workload, conditions)).expect(0, &[]);
        let trials = dir.trials();
        let commits: i64 = trials.iter().map(|t| total(t, "commits").cast_signed()).sum();
        let counted_by_pgio = [commits, commits * rows];
        // Counters of an ended session may arrive a moment later.
        let mut others = [0; 2];
        wait_until("transactions and rows are counted", || {
            let now = counted(&mut counting);
            others = [0, 1].map(|n| now[n] - before[n] - counted_by_pgio[n]);
            others.iter().all(|others| *others >= 0)
        });
        // Preparing and looking on are transactions as well; the catalogs' rows of the table.
        let sessions: usize = trials.iter().map(|t| t["sessions"].as_array().unwrap().len()).sum();
        let most = [200 * (trials.len() + sessions) as i64, 250 * trials.len() as i64];
        assert!(
            others[0] < most[0] && others[1] < most[1],
            "{others:?} besides {counted_by_pgio:?}"
        );
        for trial in trials {
            assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
            let commits = total(&trial, "commits");
            assert!(commits > 0, "{trial:#}");
            assert_eq!(trial["histograms"]["commit"]["count"], commits);
            assert_eq!(trial["histograms"]["transaction"]["count"], commits);
            assert!(trial["metrics"]["commit_latency_p50"]["value"].is_number());
            let expected = if condition_of(&trial) == "off" { "off" } else { "on" };
            assert_eq!(trial["settings"]["synchronous_commit"], expected);
            if expected == "off" {
                let evidence = trial["evidence"].as_array().unwrap();
                let read = |when: &str| {
                    evidence.iter().any(|e| {
                        e["when"] == when
                            && e["what"] == "synchronous_commit (sessions)"
                            && e["found"] == "off"
                    })
                };
                assert!(read("before") && read("during"), "{evidence:#?}");
            }
            for asked in [2, 50] {
                let fixed = workload.contains(&format!("transactions = {asked}"));
                assert!(!fixed || commits == asked, "{commits} of {asked}");
            }
        }
    }
}

#[test]
fn a_client_that_is_stopped_leaves_nothing_running() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let start = || {
        let work = ["run", "--run-time", "600", "--update-pct", "50", "--num-threads", "4"];
        let json = ["--json", "stopped.json", "--work-unit", "8", "--update-work-unit", "8"];
        let mut command = db.command(&[&work[..], &json, &CLIENT].concat());
        let before = db.scratch(1);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the sessions are there", || db.sessions() >= 5);
        wait_for_updates(&db, before);
        child
    };
    let child = start();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let result = CommandResult::from_output(child.wait_with_output().unwrap());
    assert_eq!(result.code, Some(130), "{result:?}");
    wait_until("the server's side has ended", || db.sessions() == 0);
    let trial = db.record("stopped.json");
    assert_eq!(trial["outcome"]["state"], "interrupted");
    assert!(total(&trial, "commits") > 0);

    // One session that is ended from outside makes a failed trial.
    let child = start();
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name LIKE 'pgio:%' \
                 AND query LIKE '%scratch%' LIMIT 1) one";
    assert_eq!(db.client().query_one(ended, &[]).unwrap().get::<_, i64>(0), 1);
    let result = CommandResult::from_output(child.wait_with_output().unwrap());
    result.assert_refused(5, &["the workload failed in a session", "terminating connection"]);
    assert_eq!(db.record("stopped.json")["outcome"]["state"], "failed");
    wait_until("the others have ended", || db.sessions() == 0);
}

/// Waits until the window is open and work has been committed in it.
fn wait_for_updates(db: &TestDatabase, before: i64) {
    wait_until("rows are updated", || (db.scratch(1) - before).unsigned_abs() > 100);
}

/// A stopped postmaster, continued on drop.
struct Frozen(Pid);

impl Frozen {
    fn new(cluster: &PrivateCluster) -> Frozen {
        let file = cluster.data_dir().join("postmaster.pid");
        let pid = fs::read_to_string(file).unwrap().lines().next().unwrap().parse().unwrap();
        let postmaster = Pid::from_raw(pid).unwrap();
        kill_process(postmaster, Signal::STOP).unwrap();
        Frozen(postmaster)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Each request to cancel is a connection, and here none is answered.
#[test]
fn an_interrupt_ends_the_run_if_the_server_refuses_connections() {
    let cluster = own_primary(INSTALLED);
    let db = TestDatabase::at(&cluster.primary_conninfo());
    db.load(1, "8M");
    let work = ["run", "--run-time", "600", "--update-pct", "50", "--num-threads", "4"];
    let json = ["--json", "stopped.json"];
    let mut command = db.command(&[&work[..], &json, &CLIENT].concat());
    let before = db.scratch(1);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the sessions are there", || db.sessions() >= 5);
    wait_for_updates(&db, before);
    let frozen = Frozen::new(&cluster);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let asked = Instant::now();
    wait_until("the run has ended", || child.try_wait().unwrap().is_some());
    let took = asked.elapsed();
    drop(frozen);
    let result = CommandResult::from_output(child.wait_with_output().unwrap());
    assert_eq!(result.code, Some(130), "{result:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(db.record("stopped.json")["outcome"]["state"], "interrupted");
}

/// Somebody holds the last key while the session updates all of them in order, and then wants the
/// first: the session is the victim, since it looks for a deadlock once there is one, and sooner.
#[test]
fn a_deadlock_is_counted_and_survived() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let quick = db.new_role("eager", "SUPERUSER");
    let sql = format!("ALTER ROLE {} SET deadlock_timeout = '800ms'", quick.user);
    db.client().batch_execute(&sql).unwrap();
    let before = db.scratch(1);
    let work = ["run", "--run-time", "6", "--update-pct", "100", "--update-work-unit", "1024"];
    let json = ["--json", "deadlocks.json"];
    let mut command = quick.command(&[&work[..], &json, &CLIENT].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut other = db.client();
    other.batch_execute("SET deadlock_timeout = '10s'").unwrap();
    let mut looking = db.client();
    let mut count = |sql: &str| -> i64 { looking.query_one(sql, &[]).unwrap().get(0) };
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let first = count(deadlocks);
    // Then it is left alone: on a slow machine every call would meet the holder.
    while child.try_wait().unwrap().is_none() && count(deadlocks) == first {
        let mut holder = other.transaction().unwrap();
        let _ = holder.execute("UPDATE pgio1 SET scratch = scratch WHERE mykey = 1024", &[]);
        // Soon enough for the session, which looks for a deadlock once.
        let until = Instant::now() + Duration::from_millis(500);
        while count(waiting) == 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = holder.execute("UPDATE pgio1 SET scratch = scratch WHERE mykey = 1", &[]);
        holder.rollback().unwrap();
    }
    assert!(child.wait().unwrap().success());
    let trial = quick.record("deadlocks.json");
    assert!(metric(&trial, "deadlocks") > 0.0, "{trial:#}");
    let updated = total(&trial, "rows_updated");
    assert!(updated > 0 && updated == total(&trial, "updates") * 1024);
    assert_eq!((db.scratch(1) - before).unsigned_abs(), updated, "what was lost is not counted");
}

#[test]
fn an_interrupt_while_clients_wait_for_a_standby_leaves_nothing() {
    let cluster = crate::sync_rep::pair();
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"60s\"\naa = false";
    let workload = "sessions = 3\nengine = \"client\"";
    let conditions = [("remote", "synchronous_commit = \"on\", wal_writer_delay = 150")];
    let mut running = dir.start_compare(&experiment(&dsn, keys, workload, &conditions));
    let inserting = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO%'";
    running.wait_until("in the window", || {
        connect(&dsn).query_one(inserting, &[]).unwrap().get::<_, i64>(0) == 3
    });
    cluster.stop_standby().unwrap();
    running.wait_until("all waiting", || sessions_waiting_for_standby(&dsn) == 3);
    running.signal(Signal::INT);
    running.wait_for(Duration::from_secs(20)).expect(130, &["kept in out"]);
    wait_until("no session of ours", || pgio_sessions(&dsn) == 0);
    assert_eq!(dir.trials()[0]["outcome"]["state"], "interrupted");
}

#[test]
fn the_client_engine_connects_with_passwords_and_tls() {
    let Some(server) = shared() else { return };
    let at = format!("host=localhost hostaddr=127.0.0.1 port={} dbname=postgres", server.port);
    let keys = "blocks = 1\nduration = \"1s\"\naa = false\ntelemetry = \"0s\"";
    let super_user = format!("{at} user=postgres sslmode=disable");
    let mut looking = connect(&super_user);
    looking.batch_execute("GRANT CREATE ON SCHEMA public TO PUBLIC").unwrap();
    let workload = "sessions = 4\nengine = \"client\"\npayload = 50000";
    let tls = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
               WHERE query LIKE 'INSERT INTO%' AND ssl = $1";
    for (how, encrypted) in [
        ("user=keen sslmode=disable", false),
        ("user=keen sslmode=require channel_binding=require", true),
        ("user=tls_only sslmode=prefer", true),
        ("user=tls_only sslmode=require ssl_max_protocol_version=TLSv1.2", true),
    ] {
        let dir = Workdir::new();
        dir.write(
            "pgpass",
            &format!("*:*:*:keen:{}\n", PASSWORD.replace('\\', "\\\\").replace(':', "\\:")),
        );
        let pass = dir.path().join("pgpass");
        fs::set_permissions(&pass, fs::Permissions::from_mode(0o600)).unwrap();
        let dsn = format!("{at} {how} passfile={}", pass.display());
        let mut running = dir.start_compare(&experiment(&dsn, keys, workload, &[("as it is", "")]));
        running.wait_until("in the window", || {
            looking.query_one(tls, &[&encrypted]).unwrap().get::<_, i64>(0) == 4
        });
        running.wait().expect(0, &[]);
        let trial = &dir.trials()[0];
        assert_eq!(trial["outcome"]["state"], "complete", "{how}");
        assert!(total(trial, "commits") >= 4, "{how}");
    }
    // Without channel binding, a connection that requires it fails with the reason.
    let dir = Workdir::new();
    let dsn = format!("{at} user=keen password=wrong-one sslmode=require");
    dir.compare(&experiment(&dsn, keys, workload, &[("as it is", "")]))
        .expect(3, &["password authentication failed"]);
}

/// One of each kind: the others are tried beside the rule, in `config::engine`.
#[test]
fn keys_that_contradict_each_other_are_refused_before_anything() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    for (arguments, words) in [
        (&["--rate", "100"][..], ["RATE", "ENGINE=client"]),
        (&["--engine", "both"], ["server or client", "both"]),
    ] {
        let result = db.pgio(&[&["run", "--run-time", "1"], arguments].concat());
        assert_eq!(result.code, Some(2), "{result:?}");
        assert!(words.iter().all(|word| result.err.contains(word)), "{result:?}");
    }
}
