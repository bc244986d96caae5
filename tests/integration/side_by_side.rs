//! Experiments at the same time: those that touch the same thing exclude each other, others do not.

use std::fs::File;
use std::process::{Command, Stdio};
use std::thread;

use pgio::pg::private::PrivateCluster;
use rustix::process::Signal;
use serde_json::Value;

use pgio_tests::fixture::{
    INSTALLED, NEWEST, OwnPrimary, fresh_database, own_primary, shared_primary,
};
use pgio_tests::workdir::{
    Running, SAMPLED, Workdir, active_sessions, auto_conf, experiment, show, wait_until,
};

const LONG: &str = "blocks = 1\nduration = \"60s\"\naa = false";
const SHORT: &str = "blocks = 1\nduration = \"100ms\"\naa = false";
const SET: &str = "wal_writer_delay = \"150ms\"";

fn cluster() -> OwnPrimary {
    own_primary(INSTALLED)
}

/// In `dir`, with the journals of `state`.
fn compare(dir: &Workdir, state: &Workdir, text: &str) -> Command {
    dir.write("experiment.toml", text);
    let mut command = dir.command(&["compare", "experiment.toml", "--out", "out"]);
    command.env("PGIO_STATE_DIR", state.path().join("state"));
    command
}

fn start(dir: &Workdir, state: &Workdir, text: &str) -> Running {
    dir.start(compare(dir, state, text))
}

/// Refused by the plan as by the run, which changes nothing.
fn refused(state: &Workdir, text: &str, expected: &[&str]) {
    let dir = Workdir::new();
    let mut plan = compare(&dir, state, text);
    plan.arg("--plan");
    dir.start(plan).wait().expect(6, expected);
    start(&dir, state, text).wait().expect(6, expected);
    assert!(!dir.out().exists());
}

#[test]
fn servers_are_changed_side_by_side_and_one_by_one_run_at_a_time() {
    let [a, b, c] = thread::scope(|scope| {
        [(); 3].map(|()| scope.spawn(cluster)).map(|start| start.join().unwrap())
    });
    let [at_a, at_b] = [a.primary_conninfo(), b.primary_conninfo()];
    let long = |dsn: &str| experiment(dsn, LONG, "", &[("set", SET)]);
    let (dir_a, dir_b) = (Workdir::new(), Workdir::new());
    let mut run_a = start(&dir_a, &dir_a, &long(&at_a));
    run_a.wait_until("in force", || show(&at_a, "wal_writer_delay") == "150ms");
    let mut run_b = start(&dir_b, &dir_a, &long(&at_b));
    run_b.wait_until("in force beside it", || show(&at_b, "wal_writer_delay") == "150ms");
    assert!(run_a.is_running());
    assert_eq!(dir_a.journals().len(), 2);

    // The same server, reached in another way, and by who changes nothing.
    let other_way = format!("{at_a} application_name=other options='-c work_mem=8MB'");
    let pid = format!("process {} (pgio compare experiment.toml", run_a.pid());
    let named = ["run ", "experiment `test`", &pid, "is changing server ", "wait until it ends"];
    refused(&dir_a, &long(&other_way), &named);
    refused(&dir_a, &experiment(&other_way, SHORT, "", &[("a", "")]), &named);
    assert_eq!(show(&at_a, "wal_writer_delay"), "150ms");

    // Only the dead one's changes are undone, and only they stand in the way.
    run_a.kill();
    let unfinished = ["an interrupted run left changes in place", "run `pgio undo` first"];
    refused(&dir_a, &experiment(&at_a, SHORT, "", &[("a", "")]), &unfinished);
    refused(&dir_a, &experiment(&other_way, SHORT, "", &[("a", "")]), &unfinished);
    let setup = |dsn: &str| dir_a.pgio(&["setup", "--connect-string", dsn, "--scale", "1024"]);
    setup(&other_way).expect(6, &unfinished);
    setup(&c.primary_conninfo()).expect(0, &["left unrelated changes"]);
    let elsewhere = experiment(&c.primary_conninfo(), SHORT, "", &[("set", SET)]);
    let result = start(&Workdir::new(), &dir_a, &elsewhere).wait().expect(0, &[]);
    let mentions =
        result.err.lines().filter(|line| line.contains("left unrelated changes")).count();
    assert_eq!(mentions, 1, "{result}");
    let pid = format!("process {} (", run_b.pid());
    dir_a.pgio(&["undo"]).expect(0, &["Restored wal_writer_delay", "Skipped run ", &pid]);
    assert_eq!(auto_conf(&at_a, "wal_writer_delay"), None);
    assert!(run_b.is_running());
    assert_eq!(show(&at_b, "wal_writer_delay"), "150ms");
    start(&Workdir::new(), &dir_a, &experiment(&at_a, SHORT, "", &[("a", "")]))
        .wait()
        .expect(0, &[]);

    run_b.signal(Signal::INT);
    run_b.wait().expect(130, &[]);
    wait_until("restored", || show(&at_b, "wal_writer_delay") == "200ms");
    assert!(dir_a.journals().is_empty());
}

#[test]
fn sessions_alone_do_not_block_other_runs() {
    let a = shared_primary(INSTALLED);
    let dsn = fresh_database(a);
    let (first, second) = (Workdir::new(), Workdir::new());
    let session = [("a", "synchronous_commit = \"local\"")];
    let mut running = start(&first, &first, &experiment(&dsn, LONG, "", &session));
    running.wait_until("in the window", || active_sessions(&dsn) > 0);
    // In another database: the tables of one are those of one run.
    let other = fresh_database(a);
    let beside = start(&second, &first, &experiment(&other, SHORT, "", &session)).wait();
    beside.expect(0, &["another run of pgio uses the server", "is at work in database test"]);
    assert!(running.is_running());
    running.kill();
}

fn short(dsn: &str, set: &str) -> String {
    experiment(dsn, SHORT, "", &[("a", ""), ("b", set)])
}

/// With a state directory of its own, as other OS users have.
#[track_caller]
fn alone(text: &str, code: i32, expected: &[&str]) {
    let dir = Workdir::new();
    dir.compare(text).expect(code, expected);
    assert_eq!(dir.out().exists(), code == 0);
}

#[track_caller]
fn run(dsn: &str, code: i32, expected: &[&str]) {
    let run = ["run", "--connect-string", dsn, "--run-time", "300ms"];
    Workdir::new().pgio(&run).expect(code, expected);
}

#[track_caller]
fn setup(dsn: &str, code: i32, expected: &[&str]) {
    let setup = ["setup", "--scale", "1024", "--create-base-table=false", "--connect-string", dsn];
    Workdir::new().pgio(&setup).expect(code, expected);
}

#[test]
fn a_run_of_another_user_takes_its_database_and_its_server_from_who_changes_it() {
    let server = cluster();
    let (dsn, other) = (fresh_database(&server), fresh_database(&server));
    for dsn in [&dsn, &other] {
        setup(dsn, 0, &[]);
    }
    let first = Workdir::new();
    let text = experiment(&dsn, LONG, "", &[("a", "synchronous_commit = \"local\"")]);
    let mut running = first.start_compare(&text);
    running.wait_until("in the window", || active_sessions(&dsn) > 0);
    let at_work = ["run 20", "is at work in database test", "wait until it ends"];
    alone(&short(&dsn, "commit_delay = 1"), 4, &at_work);
    run(&dsn, 4, &at_work);
    alone(&short(&other, SET), 4, &at_work);
    run(&other, 0, &["another run of pgio uses the server"]);
    assert!(running.is_running());
    // What a killed run leaves is not in the way.
    running.kill();
    alone(&short(&dsn, "commit_delay = 1"), 0, &[]);
}

#[test]
fn a_run_of_another_user_that_changes_the_server_takes_all_of_it() {
    let server = cluster();
    let (dsn, other) = (fresh_database(&server), fresh_database(&server));
    setup(&other, 0, &[]);
    let first = Workdir::new();
    let mut running =
        first.start(compare(&first, &first, &experiment(&dsn, LONG, "", &[("set", SET)])));
    running.wait_until("in the window", || active_sessions(&dsn) > 0);
    let changes = ["is at work in database test", "and changes the server: wait until it ends"];
    alone(&short(&other, "commit_delay = 1"), 6, &changes);
    alone(&short(&other, SET), 6, &changes);
    run(&other, 6, &changes);
    setup(&other, 6, &changes);
    assert!(running.is_running());
    running.signal(Signal::INT);
    running.wait().expect(130, &[]);
}

#[test]
fn two_that_start_at_the_same_moment_never_run_both() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    for _ in 0..3 {
        let dirs = [Workdir::new(), Workdir::new()];
        let text = experiment(&dsn, LONG, "", &[("a", "")]);
        let mut started = dirs.each_ref().map(|dir| dir.start_compare(&text));
        wait_until("one is refused", || !started.iter_mut().all(Running::is_running));
        let codes = started.map(|mut running| {
            if running.is_running() {
                running.signal(Signal::INT);
            }
            running.wait().code
        });
        assert!(codes.contains(&Some(4)), "{codes:?}");
        assert!(codes.iter().all(|code| [Some(4), Some(130)].contains(code)), "{codes:?}");
    }
}

#[test]
fn work_of_others_on_the_server_is_foreign_load() {
    let server = cluster();
    let (dsn, other) = (fresh_database(&server), fresh_database(&server));
    let pgbench = |args: &[&str]| {
        let mut command = Command::new("/usr/lib/postgresql/15/bin/pgbench");
        command.args(args).arg(&other).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    if !std::path::Path::new("/usr/lib/postgresql/15/bin/pgbench").exists() {
        pgio_tests::skipped("pgbench is not installed");
        return;
    }
    assert!(pgbench(&["-i", "-s", "1", "-q"]).status().unwrap().success());
    let dir = Workdir::new();
    setup(&dsn, 0, &[]);
    let trial = || -> Value {
        let run = ["run", "--connect-string", &dsn, "--run-time", "2s", "--json", "trial.json"];
        dir.pgio(&run).expect(0, &[]);
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("trial.json")).unwrap())
            .unwrap()
    };
    let check = |trial: &Value| -> (String, String) {
        let checks = trial["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["id"] == "foreign-sessions");
        let found = found.unwrap_or_else(|| panic!("no check: {trial:#}"));
        let text = |key: &str| found[key].as_str().unwrap().to_owned();
        (text("verdict"), text("message"))
    };
    let quiet = check(&trial());
    assert_eq!(quiet, ("ok".into(), "no session of others was active on the server".into()));
    let mut busy = pgbench(&["-c", "3", "-T", "60", "-n"]).spawn().unwrap();
    let (verdict, message) = check(&trial());
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert_eq!(verdict, "warning", "tolerated: {message}");
    for part in ["it would be invalid", "active on average in test", "cores", "changed tuples"] {
        assert!(message.contains(part), "no {part:?}: {message}");
    }
}

#[test]
fn one_command_of_a_host_at_a_time() {
    // Two servers.
    let (a, b) = (own_primary(INSTALLED), own_primary(NEWEST));
    let first = Workdir::new();
    let text = |cluster: &PrivateCluster| {
        let file = first.path().join("flag");
        experiment(&fresh_database(cluster), &format!("{LONG}\n{SAMPLED}"), "", &[("set", "")])
            + &format!(
                "command = {{ name = \"flag\", apply = [\"touch\", {file:?}], verify = [\"test\", \"-e\", {file:?}], undo = [\"rm\", {file:?}] }}\n"
            )
    };
    let mut running = start(&first, &first, &text(&a));
    running.wait_until("in force", || first.path().join("flag").exists());
    // The treatment's own check would only report that the command is already in force.
    let pid = format!("process {} (", running.pid());
    let expected = [pid.as_str(), "is changing whatever commands change on "];
    refused(&first, &text(&b), &expected);
    running.signal(Signal::INT);
    running.wait().expect(130, &[]);
    assert!(!first.path().join("flag").exists());
}

#[test]
fn results_are_written_by_one_and_locked_by_no_reader() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let keys = "blocks = 2\nduration = \"1s\"\naa = false";
    let mut running = dir.start_compare(&experiment(&dsn, keys, "", &[("a", "")]));
    running.wait_until("the first trial is stored", || {
        std::fs::read_to_string(dir.out().join("trials.jsonl")).is_ok_and(|t| t.contains('\n'))
    });
    // It holds its results for as long as the test needs.
    running.signal(Signal::STOP);
    let second = Workdir::new();
    let resume = || {
        let mut resume = second.command(&["compare", "--resume", dir.out().to_str().unwrap()]);
        resume.env("PGIO_STATE_DIR", dir.path().join("state"));
        second.start(resume).wait()
    };
    let pid = format!("process {} (", running.pid());
    resume().expect(7, &[&pid, "is writing to", "wait until it ends"]);
    running.kill();
    let reader = File::open(dir.out().join("trials.jsonl")).unwrap();
    reader.lock().unwrap();
    resume().expect(0, &[]);
}
