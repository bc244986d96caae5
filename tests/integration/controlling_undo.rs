//! Undos on a user's server: a restart that is not needed or would be wrong is left out, such as beside a promoted
//! standby, and what overrides a setting or was written without fsync is not forgotten.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::controlling::{Managed, QUICK, REFUSED, change_journal, killed_with_a_restart};
use crate::managed::plain_role;
use pgio_tests::fixture::{NEWEST, connect, own_primary};
use pgio_tests::workdir::{
    Workdir, active_sessions, alter_system, auto_conf, experiment_on, is_at_work, show, shows,
    wait_until,
};

fn long() -> String {
    QUICK.replace("100ms", "60s")
}

/// A server and a standby that streams from it.
fn pair() -> (Managed, Managed) {
    let server = Managed::start("");
    let standby = server.standby();
    wait_until("streaming", || {
        let ask = "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'";
        connect(&server.dsn()).query_one(ask, &[]).unwrap().get(0)
    });
    (server, standby)
}

/// A connection string that leads to the primary of the two.
fn dsn_of_primary(one: &Managed, other: &Managed) -> String {
    format!(
        "host='{},{}' user=postgres dbname=postgres target_session_attrs=read-write",
        one.path().display(),
        other.path().display()
    )
}

#[test]
fn undo_does_not_start_a_server_whose_standby_may_be_the_primary_now() {
    let (server, standby) = pair();
    let dir = killed_with_a_restart(&server);
    server.stop();
    standby.promote();
    dir.pgio(&["undo"]).expect(6, &["(s1)", "may have been promoted", "--restore"]);
    assert_eq!(server.process(), None);
    dir.pgio(&["undo", "--restore"]).expect(0, &["Restored max_connections: absent"]);
    assert_eq!(show(&server.dsn(), "max_connections"), "100");
}

#[test]
fn a_promoted_standby_is_not_taken_for_the_changed_server() {
    let server = Managed::start("");
    let standby = server.standby();
    let (old, new) = (server.dsn(), standby.dsn());
    let both = dsn_of_primary(&server, &standby);
    let keys = long();
    let condition = [("b", "wal_writer_delay = \"150ms\"")];
    let dir = Workdir::new();
    let text = experiment_on(&format!("dsn = {both:?}"), &keys, "", &condition);
    let mut running = dir.start_compare(&text);
    running.wait_until("in the window", || active_sessions(&old) > 0);
    standby.promote();
    alter_system(&new, "wal_writer_delay", Some("150ms"));
    server.crash();
    running.wait().expect(6, &["pgio undo"]);
    assert_eq!(dir.journals().len(), 1);
    let untouched = || assert_eq!(auto_conf(&new, "wal_writer_delay").as_deref(), Some("150ms"));
    dir.pgio(&["undo"]).expect(6, &["has the data directory"]);
    untouched();
    // On another host with the same path, only the timeline tells them apart.
    change_journal(&dir, |begin| {
        begin["node"].as_object_mut().unwrap().remove("data_directory").unwrap();
    });
    dir.pgio(&["undo"]).expect(6, &["is on timeline 2", "timeline 1", "--restore"]);
    untouched();
    server.start_again("");
    dir.pgio(&["undo", "--connect", &old]).expect(0, &["Restored wal_writer_delay: absent"]);
    assert_eq!(auto_conf(&old, "wal_writer_delay"), None);
    untouched();
}

#[test]
fn a_former_primary_is_not_started_beside_a_promoted_standby() {
    let (server, standby) = pair();
    let old = server.dsn();
    let both = dsn_of_primary(&server, &standby);
    let keys = long();
    let target = format!("dsn = {both:?}\ncontrol = \"pg_ctl\"\nhost = \"local\"");
    let dir = Workdir::new();
    let text = experiment_on(&target, &keys, "", &[("b", "max_connections = 50")]);
    let mut running = dir.start_compare(&text);
    running
        .wait_until("in the window", || shows(&old, "max_connections", "50") && is_at_work(&old));
    let file = || fs::read_to_string(server.data().join("postgresql.auto.conf")).unwrap();
    assert!(file().contains("max_connections"));
    standby.promote();
    server.crash();
    let stays_down = |shown: &str| {
        assert_eq!(server.process(), None, "{shown}");
        assert!(!file().contains("max_connections"), "{shown}");
        assert_eq!(dir.journals().len(), 1);
    };
    let result = running.wait().expect(6, &["pgio undo"]);
    stays_down(&result.to_string());
    // As for a journal without standbys, and on another host with the same path.
    change_journal(&dir, |begin| {
        begin.as_object_mut().unwrap().remove("standbys");
        begin["node"].as_object_mut().unwrap().remove("data_directory").unwrap();
    });
    let result = dir.pgio(&["undo"]).expect(6, &["is on timeline 2", "start it yourself"]);
    stays_down(&result.to_string());
    server.start_again("");
    dir.pgio(&["undo", "--connect", &old]).expect(0, &["Restored max_connections: absent"]);
    assert_eq!(show(&old, "max_connections"), "100");
}

#[test]
fn a_crashed_server_with_a_standby_is_not_started() {
    let (server, standby) = pair();
    let (dsn, dir) = (server.dsn(), Workdir::new());
    // The promoted standby is not in the list, or does not answer when it is asked.
    let target = format!("dsn = {dsn:?}\ncontrol = \"pg_ctl\"\nhost = \"local\"");
    let text = experiment_on(&target, &long(), "", &[("b", "max_connections = 50")]);
    let mut running = dir.start_compare(&text);
    running
        .wait_until("in the window", || shows(&dsn, "max_connections", "50") && is_at_work(&dsn));
    standby.promote();
    server.crash();
    running.wait().expect(6, &["one of which may have been promoted since", "pgio undo"]);
    assert_eq!(server.process(), None);
    server.start_again("");
    dir.pgio(&["undo"]).expect(0, &["Restored max_connections: absent"]);
    assert_eq!(show(&dsn, "max_connections"), "100");
}

/// An experiment with one condition on the server, which pgio may not restart.
fn experiment_of(server: &Managed, keys: &str, condition: &str) -> String {
    let target = format!("dsn = {:?}\nhost = \"local\"", server.dsn());
    experiment_on(&target, keys, "", &[("b", condition)])
}

#[test]
fn a_setting_of_the_command_line_is_refused_and_its_line_is_restored() {
    let server = Managed::start("");
    let (dsn, name) = (server.dsn(), "checkpoint_timeout");
    alter_system(&dsn, name, Some("10min"));
    wait_until("loaded", || show(&dsn, name) == "10min");
    let condition = "checkpoint_timeout = \"7min\"";
    let dir = Workdir::new();
    let mut running = dir.start_compare(&experiment_of(&server, &long(), condition));
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

    dir.write("long.toml", &experiment_of(&server, &long(), condition));
    let mut running = start(&["compare", "long.toml", "--out", "long"]);
    running.wait_until("in force", || show(&server.dsn(), "fsync") == "off");
    running.kill();
    let flushed = "Restored files written without fsync on host local: on disk";
    start(&["undo"]).wait().expect(0, &["Restored fsync: absent", flushed]);
    assert_eq!(fs::read_to_string(&log).unwrap(), before + "0\n");
    assert_eq!(show(&server.dsn(), "fsync"), "on");
    assert!(dir.journals().is_empty());

    let unknown = experiment_of(&server, QUICK, condition).replace("\nhost = \"local\"", "");
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

#[test]
fn a_role_that_may_not_alter_a_setting_is_refused_before_the_first_trial() {
    let server = Managed::start("");
    let plain = plain_role(&server.dsn(), "plain");
    let grants = "GRANT pg_read_all_settings TO plain; \
        GRANT SELECT ON pg_file_settings TO plain; \
        GRANT EXECUTE ON FUNCTION pg_show_all_file_settings() TO plain; \
        GRANT EXECUTE ON FUNCTION pg_reload_conf() TO plain";
    connect(&server.dsn()).batch_execute(grants).unwrap();
    let (first, dir) = (server.process(), Workdir::new());
    let target = format!("dsn = {plain:?}\ncontrol = \"pg_ctl\"\nhost = \"local\"");
    let text = experiment_on(&target, QUICK, "", &[("b", "max_connections = 50")]);
    let grant = "GRANT ALTER SYSTEM ON PARAMETER max_connections TO ROLE";
    dir.compare(&text).expect(REFUSED, &["the role may not change max_connections", grant]);
    assert_eq!(server.process(), first, "it was not restarted");
    assert!(!dir.out().exists() && dir.journals().is_empty());
}

/// ALTER SYSTEM refuses the value after the step is in the journal.
#[test]
fn a_value_that_the_server_refuses_restarts_nothing() {
    let server = Managed::start("");
    let (first, dir) = (server.process(), Workdir::new());
    // postgresql.conf has no line of it: only the changed one ever was in a file.
    let condition = [("b", "recovery_target_lsn = \"nowhere\", max_wal_senders = 20")];
    let text = experiment_on(&server.target(), QUICK, "", &condition);
    dir.compare(&text).expect(REFUSED, &["change recovery_target_lsn by ALTER SYSTEM"]);
    assert_eq!(server.process(), first, "it was not restarted");
    for name in ["recovery_target_lsn", "max_wal_senders"] {
        assert_eq!(auto_conf(&server.dsn(), name), None, "{name}");
    }
    assert!(dir.journals().is_empty());
}

#[test]
fn a_server_that_runs_with_its_prior_settings_again_is_not_restarted() {
    let server = Managed::start("");
    let dir = killed_with_a_restart(&server);
    alter_system(&server.dsn(), "max_connections", None);
    server.stop();
    server.start_again("");
    let first = server.process();
    dir.pgio(&["undo"]).expect(0, &["Restored max_connections: absent"]);
    assert_eq!(server.process(), first, "it was not restarted");
    assert_eq!(show(&server.dsn(), "max_connections"), "100");
    assert!(dir.journals().is_empty());
}

#[test]
fn an_undo_puts_nothing_in_force_that_someone_prepared_meanwhile() {
    let server = Managed::start("");
    let (dsn, other) = (server.dsn(), "max_worker_processes");
    let dir = killed_with_a_restart(&server);
    let first = server.process();
    alter_system(&dsn, other, Some("9"));
    for _ in 0..2 {
        let expected = ["Still in place: max_connections", "prepared", "(max_worker_processes)"];
        dir.pgio(&["undo"]).expect(6, &expected);
        assert_eq!(server.process(), first, "it was not restarted");
        assert_eq!(auto_conf(&dsn, "max_connections"), None);
        assert_eq!((show(&dsn, "max_connections").as_str(), dir.journals().len()), ("50", 1));
    }
    dir.pgio(&["undo", "--restore"]).expect(0, &["Restored max_connections: absent"]);
    assert_eq!(show(&dsn, "max_connections"), "100");
    assert_eq!(show(&dsn, other), "9");
    assert!(dir.journals().is_empty());

    let dir = killed_with_a_restart(&server);
    let first = server.process();
    alter_system(&dsn, other, None);
    let expected = ["Restored max_connections: absent", "until someone restarts it"];
    dir.pgio(&["undo", "--keep"]).expect(0, &expected);
    assert_eq!(server.process(), first, "it was not restarted");
    assert_eq!(auto_conf(&dsn, "max_connections"), None);
    assert!(dir.journals().is_empty());
}
