//! A standby is promoted while the changes of a run are in place: nothing is restored there, and the former primary
//! is not started beside it.

use std::fs;

use super::{Managed, change_journal, killed_with_a_restart};
use pgio_tests::fixture::connect;
use pgio_tests::workdir::{
    Workdir, active_sessions, alter_system, auto_conf, experiment_on, is_at_work, show, shows,
    wait_until,
};

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
    let keys = "blocks = 1\nduration = \"60s\"\naa = false";
    let condition = [("b", "wal_writer_delay = \"150ms\"")];
    let dir = Workdir::new();
    let text = experiment_on(&format!("dsn = {both:?}"), keys, "", &condition);
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
    let keys = "blocks = 1\nduration = \"60s\"\naa = false";
    let target = format!("dsn = {both:?}\ncontrol = \"pg_ctl\"");
    let dir = Workdir::new();
    let text = experiment_on(&target, keys, "", &[("b", "max_connections = 50")]);
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
    let result = running.wait().expect(6, &["does not start that server", "pgio undo"]);
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
