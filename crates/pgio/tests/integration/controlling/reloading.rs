//! Settings of a user's server that a reload changes: what overrides them.

use super::Managed;
use crate::workdir::{Workdir, alter_system, auto_conf, experiment_on, show, wait_until};

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
