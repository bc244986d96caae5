//! A user's server that never ran with the changed lines, or was restarted since, is not restarted by an undo. Short,
//! since that is its only subject.

use super::{Managed, QUICK, REFUSED, killed_with_a_restart};
use crate::fixture::connect;
use crate::managed::plain_role;
use crate::workdir::{Workdir, alter_system, auto_conf, experiment_on, show};

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
