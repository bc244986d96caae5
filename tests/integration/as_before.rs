//! After an experiment and after an undo all is as it was before, to the byte.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use pgio::pg::leftovers;
use pgio_connect::{Env, resolve};

use pgio_tests::fixture::{INSTALLED, OwnPrimary, connect, own_primary};
use pgio_tests::workdir::{
    Workdir, active_sessions, alter_system, auto_conf, experiment, experiment_on, show, wait_until,
};

const LONG: &str = "blocks = 1\nduration = \"60s\"\naa = false";
const SHORT: &str = "blocks = 1\nduration = \"100ms\"\naa = false";
const SET: &str =
    "wal_writer_delay = \"150ms\", checkpoint_timeout = \"11min\", bgwriter_delay = 500";

fn text_of(cluster: &OwnPrimary) -> String {
    fs::read_to_string(cluster.data_dir().join("postgresql.auto.conf")).unwrap()
}

fn has_table(dsn: &str) -> bool {
    let sql = "SELECT to_regclass('pgio_commit') IS NOT NULL";
    connect(dsn).query_one(sql, &[]).unwrap().get(0)
}

/// The line of `undo` names the server, as a run may have a table on several.
fn removed(dsn: &str) -> String {
    let params = resolve(dsn, &Env::default()).unwrap();
    let (database, socket) = (&params.dbname, &params.hosts[0]);
    format!("Removed table public.pgio_commit in {database} on {socket} as postgres.")
}

/// Two of the three settings have lines, among others.
fn prepared() -> (OwnPrimary, String, String) {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    for (name, value) in [
        ("wal_writer_delay", "333ms"),
        ("work_mem", "5MB"),
        ("bgwriter_delay", "300"),
        ("log_line_prefix", "it''s %m "),
        // Two elements, of which one has a comma.
        ("search_path", "a,b', 'public"),
    ] {
        alter_system(&dsn, name, Some(value));
    }
    wait_until("set", || show(&dsn, "bgwriter_delay") == "300ms");
    let text = text_of(&cluster);
    (cluster, dsn, text)
}

#[test]
fn postgresql_auto_conf_is_restored_byte_for_byte() {
    let (cluster, dsn, text) = prepared();
    let dir = Workdir::new();
    dir.compare(&experiment(&dsn, SHORT, "", &[("a", ""), ("set", SET)])).expect(0, &[]);
    assert_eq!(text_of(&cluster), text, "after an experiment");
    assert!(!has_table(&dsn));

    let dir = Workdir::new();
    let mut running = dir.start_compare(&experiment(&dsn, LONG, "", &[("set", SET)]));
    running.wait_until("at work", || active_sessions(&dsn) > 0);
    assert_ne!(text_of(&cluster), text);
    running.kill();
    assert!(has_table(&dsn));
    let result = dir.pgio(&["undo"]).expect(0, &[&removed(&dsn)]);
    assert!(!result.out.contains("byte"), "{result}");
    assert_eq!(text_of(&cluster), text, "after an undo");
    assert!(!has_table(&dsn));
    assert_eq!(dir.pgio(&["undo"]).expect(0, &[]).out, dir.nothing_to_undo());
}

#[test]
fn lost_comments_of_auto_conf_are_reported() {
    let (cluster, dsn, text) = prepared();
    let path = cluster.data_dir().join("postgresql.auto.conf");
    fs::write(&path, format!("{text}# by hand\n")).unwrap();
    let dir = Workdir::new();
    let one = "wal_writer_delay = \"150ms\"";
    let mut running = dir.start_compare(&experiment(&dsn, LONG, "", &[("set", one)]));
    running.wait_until("at work", || active_sessions(&dsn) > 0);
    running.kill();
    dir.pgio(&["undo"]).expect(0, &["Restored wal_writer_delay", "not byte for byte"]);
    assert_eq!(text_of(&cluster), text, "all but the comment");
    assert_eq!(auto_conf(&dsn, "wal_writer_delay").as_deref(), Some("333ms"));
}

#[test]
fn lines_that_may_hold_a_password_and_lists_that_would_change_are_not_sent_again() {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let file = cluster.data_dir().join("postgresql.auto.conf");
    for line in [
        "primary_conninfo = 'user=repl password=geheim'",
        "shared_preload_libraries = ''",
        "search_path = 'Own, public'",
    ] {
        let text = format!("checkpoint_timeout = '9min'\nlog_statement = 'ddl'\n{line}\n");
        fs::write(&file, text).unwrap();
        connect(&dsn).batch_execute("SELECT pg_reload_conf()").unwrap();
        wait_until("reloaded", || show(&dsn, "log_statement") == "ddl");
        let set = "checkpoint_timeout = \"11min\"";
        let text = experiment(&dsn, SHORT, "", &[("a", ""), ("set", set)]);
        Workdir::new().compare(&text).expect(0, &["not byte for byte"]);
        assert_eq!(auto_conf(&dsn, "checkpoint_timeout").as_deref(), Some("9min"));
        assert!(text_of(&cluster).contains(line), "{}", text_of(&cluster));
    }
    // The server itself logs a value that a reload changes.
    let log = fs::read_to_string(cluster.directory().join("primary.log")).unwrap();
    let statements: Vec<&str> = log.lines().filter(|line| line.contains("ALTER SYSTEM")).collect();
    assert!(!statements.is_empty());
    assert!(!statements.iter().any(|line| line.contains("geheim")), "{statements:?}");
}

#[test]
fn a_run_that_changed_nothing_leaves_no_table() {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let mut running = dir.start_compare(&experiment(&dsn, LONG, "", &[("a", "")]));
    running.wait_until("at work", || active_sessions(&dsn) > 0);
    running.kill();
    assert!(has_table(&dsn) && dir.journals().is_empty());
    // The server takes a moment to end the sessions of a killed run.
    let mut session = connect(&dsn);
    leftovers::announce(&mut session, "killed").unwrap();
    let ending = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        drop(session);
    });
    // It blocks no run, and a table of the user is not ours.
    dir.pgio(&["undo"]).expect(0, &[&removed(&dsn)]);
    ending.join().unwrap();
    assert!(!has_table(&dsn));
}

#[test]
fn a_private_server_whose_supervisor_was_killed_too_is_removed() {
    let dir = Workdir::new();
    let text = experiment_on("private = true\npg = 15", LONG, "", &[("a", "")]);
    let mut running = dir.start_compare(&text);
    let clusters = || {
        let found = fs::read_dir(dir.path().join("state/clusters")).into_iter().flatten();
        found.map(|e| e.unwrap().path()).collect::<Vec<_>>()
    };
    // A note is written beside its place and renamed.
    let mut root = None;
    running.wait_until("noted", || {
        let notes = clusters().into_iter().filter_map(|note| fs::read_to_string(note).ok());
        root = notes.into_iter().find(|text| text.starts_with('/'));
        root.is_some()
    });
    let root = root.unwrap();
    running.wait_until("it is being made", || fs::exists(&root).unwrap());
    assert_eq!(dir.pgio(&["undo"]).expect(0, &[]).out, dir.nothing_to_undo(), "it lives");
    let children = format!("/proc/{0}/task/{0}/children", running.pid());
    let children = fs::read_to_string(children).unwrap();
    let supervisor = children.split_whitespace().find(|pid| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().contains("supervise")
    });
    let kill = ["-9", supervisor.unwrap(), &running.pid().to_string()];
    assert!(Command::new("kill").args(kill).status().unwrap().success());
    drop(running);
    // Its lock on the directory ends with it.
    let status = format!("/proc/{}/status", supervisor.unwrap());
    let has_ended = || fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"));
    wait_until("the supervisor ended", has_ended);
    assert!(fs::exists(&root).unwrap());
    let expected = format!("Removed the abandoned private PostgreSQL in {root}.");
    dir.pgio(&["undo"]).expect(0, &[&expected]);
    assert!(!fs::exists(&root).unwrap() && clusters().is_empty());
    assert_eq!(dir.pgio(&["undo"]).expect(0, &[]).out, dir.nothing_to_undo());
}
