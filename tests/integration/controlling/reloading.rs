//! Settings of a user's server that a reload changes: what overrides them, and what fsync = off requires.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::Managed;
use pgio_tests::fixture::{NEWEST, connect, own_primary};
use pgio_tests::workdir::{Workdir, alter_system, auto_conf, experiment_on, show, wait_until};

const QUICK: &str = "blocks = 1\nduration = \"100ms\"\naa = false";
const LONG: &str = "blocks = 1\nduration = \"60s\"\naa = false";

/// An experiment with one condition on the server, which pgio may not restart.
fn experiment_of(server: &Managed, keys: &str, condition: &str) -> String {
    experiment_on(&format!("dsn = {:?}", server.dsn()), keys, "", &[("b", condition)])
}

#[test]
fn a_setting_of_the_command_line_is_refused_and_its_line_is_restored() {
    let server = Managed::start("");
    let (dsn, name) = (server.dsn(), "checkpoint_timeout");
    alter_system(&dsn, name, Some("10min"));
    wait_until("loaded", || show(&dsn, name) == "10min");
    let condition = "checkpoint_timeout = \"7min\"";
    let dir = Workdir::new();
    let mut running = dir.start_compare(&experiment_of(&server, LONG, condition));
    running.wait_until("in force", || show(&dsn, name) == "7min");
    running.kill();

    // Nothing that a line says is in force any more.
    server.stop();
    server.start_again("-c checkpoint_timeout=30min");
    dir.pgio(&["undo"]).expect(0, &["Restored checkpoint_timeout: `10min`"]);
    assert_eq!(auto_conf(&dsn, name).as_deref(), Some("10min"));
    assert!(dir.journals().is_empty());

    let dir = Workdir::new();
    let refused = dir.compare(&experiment_of(&server, QUICK, condition));
    refused.expect(4, &["checkpoint_timeout cannot be changed", "command line"]);
    assert!(!dir.out().exists() && dir.journals().is_empty());
    assert_eq!(auto_conf(&dsn, name).as_deref(), Some("10min"));
}

#[test]
fn files_written_without_fsync_are_flushed_when_it_is_on_again() {
    let server = Managed::start("");
    let dir = Workdir::new();
    // A `sync` that only notes how many lines of the server's file name fsync at that moment.
    let (bin, log) = (dir.path().join("bin"), dir.path().join("log"));
    let file = server.data().join("postgresql.auto.conf");
    let script =
        format!("#!/bin/sh\ngrep -c fsync '{}' >>'{}' || true\n", file.display(), log.display());
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("sync"), script).unwrap();
    fs::set_permissions(bin.join("sync"), Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
    let start = |arguments: &[&str]| {
        let mut command = dir.command(arguments);
        command.env("PATH", &path);
        dir.start(command)
    };
    let condition = "fsync = \"off\"";
    dir.write("short.toml", &experiment_of(&server, QUICK, condition));
    start(&["compare", "short.toml", "--out", "out"]).wait().expect(0, &[]);
    // Once for each trial; an invalid one was repeated.
    let before = fs::read_to_string(&log).unwrap();
    assert!(!before.is_empty() && before.lines().all(|line| line == "0"), "{before}");

    dir.write("long.toml", &experiment_of(&server, LONG, condition));
    let mut running = start(&["compare", "long.toml", "--out", "long"]);
    running.wait_until("in force", || show(&server.dsn(), "fsync") == "off");
    running.kill();
    let flushed = "Restored files written without fsync on host local: on disk";
    start(&["undo"]).wait().expect(0, &["Restored fsync: absent", flushed]);
    assert_eq!(fs::read_to_string(&log).unwrap(), before + "0\n");
    assert_eq!(show(&server.dsn(), "fsync"), "on");
    assert!(dir.journals().is_empty());

    let unknown = experiment_of(&server, &format!("{QUICK}\ntelemetry = \"0s\""), condition);
    let refused = Workdir::new().compare(&unknown);
    refused.expect(4, &["fsync cannot be turned off", "set host in [target]"]);
}

/// PostgreSQL has them from 17 on.
#[test]
fn summaries_of_wal_may_be_kept_for_less_long_where_there_are_none() {
    let cluster = own_primary(NEWEST);
    let dsn = cluster.primary_conninfo();
    let condition = [("b", "wal_summary_keep_time = \"1h\"")];
    let text = experiment_on(&format!("dsn = {dsn:?}"), QUICK, "", &condition);
    Workdir::new().compare(&text).expect(0, &[]);
    assert_eq!(auto_conf(&dsn, "wal_summary_keep_time"), None);

    let refused = || {
        let result = Workdir::new().compare(&text);
        result.expect(4, &["wal_summary_keep_time cannot be changed", "incremental backup"]);
    };
    alter_system(&dsn, "summarize_wal", Some("on"));
    wait_until("on", || show(&dsn, "summarize_wal") == "on");
    refused();
    let mut client = connect(&dsn);
    client.batch_execute("CHECKPOINT").unwrap();
    let found = "SELECT EXISTS (SELECT FROM pg_available_wal_summaries())";
    wait_until("summarized", || client.query_one(found, &[]).unwrap().get(0));
    alter_system(&dsn, "summarize_wal", None);
    wait_until("off", || show(&dsn, "summarize_wal") == "off");
    refused();
}
