//! A user's server that never ran with the changed lines, was restarted since, or has settings that someone prepared is
//! not restarted by an undo.

use super::{Managed, QUICK, REFUSED, killed_with_a_restart};
use crate::managed::plain_role;
use pgio_tests::fixture::connect;
use pgio_tests::workdir::{Workdir, alter_system, auto_conf, experiment_on, show};

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
    let target = format!("dsn = {plain:?}\ncontrol = \"pg_ctl\"");
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
