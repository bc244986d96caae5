//! Conditions on several servers in one window: on two real servers, with what may go wrong.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::schema;
use pgio_tests::fixture::{INSTALLED, OwnPrimary, connect, fresh_database, own_primary};
use pgio_tests::workdir::{
    BETWEEN_TRIAL_CHECKS, Workdir, active_sessions, auto_conf, check, condition_of, show, tolerate,
    wait_until,
};

/// Two servers whose settings no test changes.
fn pair() -> &'static [OwnPrimary; 2] {
    static PAIR: OnceLock<[OwnPrimary; 2]> = OnceLock::new();
    PAIR.get_or_init(own_pair)
}

fn own_pair() -> [OwnPrimary; 2] {
    [(), ()].map(|()| own_primary(INSTALLED))
}

pub(crate) fn databases() -> [String; 2] {
    pair().each_ref().map(|server| fresh_database(server))
}

/// An experiment of one block on servers `a` and `b`.
fn experiment(dsns: &[String; 2], keys: &str, work: &str, conditions: &str) -> String {
    // On a busy machine sessions begin late.
    let quiet = if keys.contains("tolerate") {
        String::new()
    } else {
        tolerate(&[&BETWEEN_TRIAL_CHECKS[..], &["participants-apart"]].concat())
    };
    let telemetry = if keys.contains("telemetry") { "" } else { "telemetry = \"0s\"" };
    format!(
        "[experiment]\nname = \"joint\"\nblocks = 1\naa = false\nrepeats = 0\nwarmup = \"0s\"\n{quiet}\n{keys}\n{telemetry}\n\
         [targets.a]\ndsn = {:?}\n[targets.b]\ndsn = {:?}\n[workload]\n{work}\n{conditions}\n",
        dsns[0], dsns[1]
    )
}

const COMMIT: &str = "kind = \"commit\"\nsessions = 2";
const TOGETHER: &str = "[[condition]]\nname = \"together\"\ntarget = [\"a\", \"b\"]\n";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// Whether two values are equal but for rounding.
fn equal(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

#[test]
fn the_sum_is_stored_with_each_servers_part() {
    let dir = Workdir::new();
    let alone = "[[condition]]\nname = \"alone\"\ntarget = \"a\"\n";
    for engine in ["server", "client"] {
        let work = format!("{COMMIT}\nengine = {engine:?}");
        let keys = "duration = \"1s\"\nbaseline = \"alone\"\ntelemetry = \"500ms\"";
        let text = experiment(&databases(), keys, &work, &format!("{TOGETHER}{alone}"));
        dir.write("experiment.toml", &text);
        dir.pgio(&["compare", "experiment.toml", "--out", engine]).expect(0, &[]);
        dir.pgio(&["report", engine, "--all"]).expect(0, &["Each server"]);
        let file = dir.path().join(engine).join("trials.jsonl");
        let lines = fs::read_to_string(file).unwrap();
        for line in lines.lines() {
            let trial: Value = serde_json::from_str(line).unwrap();
            schema::assert_valid("pgio.trial/1", &trial);
            assert_eq!(trial["outcome"]["state"], "complete", "{trial}");
            let rate = |of: &Value| number(&of["metrics"]["commits_per_second"]["value"]);
            let own = |name: &str| number(&trial["metrics"][name]["value"]);
            assert!(equal(
                own("commits_per_second@a"),
                match condition_of(&trial) {
                    "alone" => rate(&trial),
                    _ => rate(&trial["targets"]["a"]),
                }
            ));
            if condition_of(&trial) == "alone" {
                // The record of one server stays as it was, but for its own metrics.
                assert!(trial.get("targets").is_none() && own("share@a") == 1.0, "{trial}");
                continue;
            }
            let (a, b) = (&trial["targets"]["a"], &trial["targets"]["b"]);
            assert!(rate(a) > 0.0 && rate(b) > 0.0);
            // Windows of two servers end a little apart; the sum's is the longer.
            let done = |of: &Value| rate(of) * number(&of["seconds"]);
            let sum = (done(a) + done(b)) / number(&trial["window"]["seconds"]);
            assert!(equal(rate(&trial), sum), "{} {sum}", rate(&trial));
            let counted = number(&trial["histograms"]["commit"]["count"]);
            assert!(equal(counted, done(a) + done(b)), "{counted}");
            assert_eq!(trial["sessions"].as_array().unwrap().len(), 4);
            for target in [a, b] {
                assert!(equal(number(&target["share"]), rate(target) / rate(&trial)), "{target}");
            }
            // Each server proved its settings, and has its waits; hosts are observed once.
            let evidence = trial["evidence"].to_string();
            assert!(evidence.contains("\"a: ") && evidence.contains("\"b: "), "{evidence}");
            assert!(a["telemetry"]["waits"].is_object() && b["telemetry"]["waits"].is_object());
            let hosts = trial["telemetry"]["hosts"].as_object().unwrap();
            assert_eq!(hosts.keys().collect::<Vec<_>>(), ["local"]);
            assert!(
                a["clock"]["moved_seconds"].is_number()
                    && b["clock"]["round_trip_seconds"].is_number()
            );
            assert!(check(&trial, "participants-apart")["message"].is_string());
        }
        let report = dir.pgio(&["report", engine, "--format", "json"]).expect(0, &[]);
        let analysis: Value = serde_json::from_str(&report.out).unwrap();
        schema::assert_valid("pgio.analysis/1", &analysis);
        let servers = analysis["servers"].as_array().unwrap();
        let named: Vec<String> = servers
            .iter()
            .map(|s| format!("{} {}", s["condition"], s["target"]).replace('"', ""))
            .collect();
        assert_eq!(named, ["together a", "together b", "alone a"]);
        let page = fs::read_to_string(dir.path().join(engine).join("report.html")).unwrap();
        assert!(page.contains("Each server") && page.contains("share of the sum"));
        let csv = dir.pgio(&["report", engine, "--format", "csv"]).expect(0, &[]);
        assert!(csv.out.contains("commits_per_second@b") && csv.out.contains("share@a"));
    }
}

#[test]
fn a_plan_shows_where_servers_differ() {
    let (dir, dsns) = (Workdir::new(), databases());
    let mut other = connect(&dsns[1]);
    let name: String = other.query_one("SELECT current_database()::text", &[]).unwrap().get(0);
    other.batch_execute(&format!("ALTER DATABASE {name} SET work_mem = '6MB'")).unwrap();
    let condition = format!("{TOGETHER}postgres = {{ work_mem = \"8MB\", commit_delay = 10 }}\n");
    dir.write("experiment.toml", &experiment(&dsns, "", COMMIT, &condition));
    let plan = dir.pgio(&["compare", "experiment.toml", "--plan"]).expect(
        0,
        &[
            "together changes work_mem = 8MB in the workload's sessions; now 4096 (unit kB)",
            "together on b changes work_mem = 8MB in the workload's sessions; now 6144 (unit kB)",
            "together runs on a, b in one window",
        ],
    );
    assert_eq!(plan.out.matches("changes commit_delay").count(), 1, "{plan}");
}

#[test]
fn a_kill_leaves_a_journal_for_each_server_and_all_are_undone() {
    let own = own_pair();
    let dsns = own.each_ref().map(|server| server.primary_conninfo());
    let dir = Workdir::new();
    let condition = format!("{TOGETHER}postgres = {{ wal_writer_delay = \"150ms\" }}\n");
    let text = experiment(&dsns, "duration = \"60s\"", COMMIT, &condition);
    let mut running = dir.start_compare(&text);
    running.wait_until("in the window of both", || dsns.iter().all(|dsn| active_sessions(dsn) > 0));
    assert!(dsns.iter().all(|dsn| show(dsn, "wal_writer_delay") == "150ms"));
    running.kill();
    assert_eq!(
        dir.journals()
            .iter()
            .filter(|path| path.extension().is_some_and(|e| e == "journal"))
            .count(),
        2
    );
    dir.pgio(&["compare", "experiment.toml"]).expect(6, &["pgio undo"]);
    let undone = dir.pgio(&["undo"]).expect(0, &[]);
    assert_eq!(undone.out.matches("Restored wal_writer_delay: absent").count(), 2, "{undone}");
    for dsn in &dsns {
        assert_eq!(auto_conf(dsn, "wal_writer_delay"), None);
        wait_until("reloaded", || show(dsn, "wal_writer_delay") == "200ms");
    }
    assert!(dir.journals().is_empty());
    // The same without a kill.
    let again = text.replace("duration = \"60s\"", "duration = \"300ms\"");
    fs::remove_dir_all(dir.out()).unwrap();
    dir.compare(&again).expect(0, &[]);
    assert!(dsns.iter().all(|dsn| auto_conf(dsn, "wal_writer_delay").is_none()));
    let evidence = dir.trials()[0]["evidence"].to_string();
    for server in ["a", "b"] {
        assert!(evidence.contains(&format!("\"{server}: wal_writer_delay")), "{evidence}");
    }
    assert!(dir.journals().is_empty());
}

#[test]
fn a_server_that_fails_in_mid_window_fails_the_trial_and_stops_the_other() {
    let dsns = databases();
    let dir = Workdir::new();
    let mut running = dir.start_compare(&experiment(&dsns, "duration = \"60s\"", COMMIT, TOGETHER));
    running.wait_until("in the window of both", || dsns.iter().all(|dsn| active_sessions(dsn) > 1));
    connect(&dsns[1])
        .batch_execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND query LIKE '%DO%' AND pid <> pg_backend_pid()",
        )
        .unwrap();
    let result = running.wait();
    assert_ne!(result.code, Some(0), "{result}");
    let trial = &dir.trials()[0];
    assert_eq!(trial["outcome"]["state"], "failed", "{trial}");
    let error = trial["outcome"]["error"].as_str().unwrap();
    assert!(error.starts_with("target `b`: "), "{error}");
    assert!(number(&trial["window"]["seconds"]) < 60.0);
    assert_eq!(active_sessions(&dsns[0]), 0);
}

#[test]
fn servers_that_cannot_share_a_window_are_refused() {
    let dsns = databases();
    let refused = |dsns: &[String; 2], work: &str, condition: &str, code: i32, expected: &str| {
        let dir = Workdir::new();
        let result = dir.compare(&experiment(dsns, "duration = \"1s\"", work, condition));
        let result = result.expect(code, &[expected]);
        assert_eq!(result.err.trim_end().lines().count(), 1, "{result}");
        assert!(!dir.out().exists() && dir.journals().is_empty());
    };
    let both = |names: &str| format!("[[condition]]\nname = \"x\"\ntarget = {names}\n");
    refused(&dsns, COMMIT, &both("[\"a\", \"c\"]"), 2, "condition.target: `c` is not a target");
    refused(&dsns, COMMIT, &both("[\"a\", \"a\"]"), 2, "condition.target: names `a` twice");
    let device = "kind = \"device\"";
    refused(&dsns, device, TOGETHER, 2, "`device` cannot run on several targets in one window");
    let counted = format!("{COMMIT}\ntransactions = 10");
    refused(&dsns, &counted, TOGETHER, 4, "a number of transactions has no common end");
    let same = [dsns[0].clone(), fresh_database(&pair()[0])];
    refused(&same, COMMIT, TOGETHER, 4, "targets `a` and `b` are the same server");
    let far = Relay::start(&dsns[1], 40, None);
    let slow = [dsns[0].clone(), far.dsn];
    refused(&slow, COMMIT, TOGETHER, 4, "target `b`: its clock can be read to 2");
    for (dsn, scale) in [(&dsns[0], "8M"), (&dsns[1], "9M")] {
        let keys = ["--scale", scale, "--num-schemas", "1", "--create-base-table", "false"];
        let args = [&["setup", "--connect-string", dsn], &keys[..]].concat();
        Workdir::new().pgio(&args).expect(0, &[]);
    }
    let work = "kind = \"slob\"";
    refused(&dsns, work, TOGETHER, 4, "the data sets of `a` and `b` differ: scale 8M and 9M");
}

/// The way to one server becomes slow after all checks, when the trial's CHECKPOINT passes.
#[test]
fn a_start_that_is_not_known_to_a_hundredth_of_the_window_is_invalid() {
    let dsns = databases();
    // Half of a round trip is twice what may be unknown of a window of 500 ms.
    let far = Relay::start(&dsns[1], 20, Some(b"CHECKPOINT"));
    let text = experiment(
        &[dsns[0].clone(), far.dsn],
        &format!("duration = \"500ms\"\ntelemetry = \"0s\"\n{}", tolerate(&BETWEEN_TRIAL_CHECKS)),
        COMMIT,
        TOGETHER,
    );
    let dir = Workdir::new();
    dir.compare(&text).expect(5, &["participants-apart"]);
    let trial = &dir.trials()[0];
    assert_eq!(trial["outcome"]["state"], "complete", "{trial}");
    let found = check(trial, "participants-apart");
    assert_eq!(found["verdict"], "invalid", "{found}");
    assert!(number(&trial["targets"]["b"]["clock"]["round_trip_seconds"]) >= 0.02);
}

#[test]
fn an_inventory_names_the_servers() {
    let dsns = databases();
    let dir = Workdir::new();
    // The socket directories stand for the addresses of nodes.
    let text = |inventory: &str| {
        format!(
            "[experiment]\nblocks = 1\naa = false\nwarmup = \"0s\"\nduration = \"300ms\"\ntelemetry = \"0s\"\ntogether = true\n\
             repeats = 0\n{}\n[targets]\ninventory = {inventory:?}\ndsn = \"service={{name}}\"\n\
             [workload]\n{COMMIT}\n[[condition]]\nname = \"all\"\n",
            tolerate(&["participants-apart"])
        )
    };
    let service = |name: &str, dsn: &str| {
        let keys: String =
            dsn.split_whitespace().map(|pair| format!("{}\n", pair.replace('\'', ""))).collect();
        format!("[{name}]\n{keys}")
    };
    dir.write("services.conf", &(service("n1", &dsns[0]) + &service("n2", &dsns[1])));
    let run = |inventory: &str, out: &str| {
        dir.write("fleet.toml", &text(inventory));
        let mut command = dir.command(&["compare", "fleet.toml", "--out", out]);
        command.env("PGSERVICEFILE", dir.path().join("services.conf"));
        dir.start(command).wait()
    };
    run("printf 'n1\\nn2\\nn1\\n'", "out").expect(0, &[]);
    dir.pgio(&["report", "out", "--all"]).expect(0, &["n1", "n2", "Each server"]);
    assert_eq!(dir.trials()[0]["targets"].as_object().unwrap().len(), 2);
    let stored = fs::read_to_string(dir.out().join("experiment.toml")).unwrap();
    assert!(stored.contains("# inventory = ") && stored.contains("[targets.\"n2\"]"), "{stored}");

    let rubbish = run("echo Usage: sinfo", "none");
    rubbish.expect(2, &["fleet.toml:11: targets.inventory: the command prints `Usage: sinfo`"]);
    run("echo gone >&2; false", "none").expect(2, &["failed with exit status: 1: gone"]);
    assert!(!dir.path().join("none").exists());
}

/// A slow way to a server: delays its answers, from the start or from the moment when a text passes. Serves until the
/// process ends.
struct Relay {
    dsn: String,
}

impl Relay {
    /// Delays answers by these milliseconds, from when a client sends `after`.
    fn start(dsn: &str, milliseconds: u64, after: Option<&'static [u8]>) -> Relay {
        let value = |key: &str| {
            let pair = dsn.split_whitespace().find_map(|pair| pair.strip_prefix(key));
            pair.unwrap_or_else(|| panic!("no {key} in {dsn}")).trim_matches('\'').to_owned()
        };
        let socket = format!("{}/.s.PGSQL.{}", value("host="), value("port="));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let slow = Arc::new(AtomicBool::new(after.is_none()));
        let delay = Duration::from_millis(milliseconds);
        thread::spawn(move || {
            for client in listener.incoming() {
                let server = UnixStream::connect(&socket).unwrap();
                pass(client.unwrap(), server, delay, (after, Arc::clone(&slow)));
            }
        });
        let rest: Vec<&str> = dsn
            .split_whitespace()
            .filter(|pair| !pair.starts_with("host=") && !pair.starts_with("port="))
            .collect();
        Relay { dsn: format!("host=127.0.0.1 port={port} sslmode=disable {}", rest.join(" ")) }
    }
}

fn pass(
    mut client: TcpStream,
    mut server: UnixStream,
    delay: Duration,
    (after, slow): (Option<&'static [u8]>, Arc<AtomicBool>),
) {
    client.set_nodelay(true).unwrap();
    let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let is_slow = Arc::clone(&slow);
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            if after.is_some_and(|text| buffer[..count].windows(text.len()).any(|w| w == text)) {
                slow.store(true, Ordering::SeqCst);
            }
            if server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Write);
    });
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(count @ 1..) = answers.read(&mut buffer) {
            if is_slow.load(Ordering::SeqCst) {
                thread::sleep(delay);
            }
            if to_client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}
