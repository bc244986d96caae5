//! `pgio undo` of a throttle after a kill: prior limits, later changes, reboots.

use std::fs;

use pgio::host::blkio::Limit;

use super::{Server, in_namespace_or_rerun};
use pgio_tests::workdir::Workdir;

#[test]
fn after_kill_9_undo_restores_the_prior_limit() {
    if !in_namespace_or_rerun("undoing::after_kill_9_undo_restores_the_prior_limit", true) {
        return;
    }
    let server = Server::start();
    for prior in [None, Some(9000)] {
        server.set(Limit::WriteIops, prior);
        let dir = Workdir::new();
        server.in_mid_trial(&dir).kill();
        assert_eq!(server.limit(Limit::WriteIops), Some(500));
        let again =
            server.experiment("blocks = 1\nduration = \"1s\"", 1, &[("a", "write_iops = 99")]);
        dir.compare(&again).expect(6, &["pgio undo"]);
        dir.pgio(&["undo"]).expect(0, &["Restored write_iops of loop"]);
        assert_eq!(server.limit(Limit::WriteIops), prior);
        let result = dir.pgio(&["undo"]).expect(0, &[]);
        assert_eq!(result.out, dir.nothing_to_undo());
    }
}

#[test]
fn undo_asks_about_a_limit_that_someone_changed() {
    if !in_namespace_or_rerun("undoing::undo_asks_about_a_limit_that_someone_changed", true) {
        return;
    }
    let server = Server::start();
    for (flag, expected) in [("--keep", Some(900)), ("--restore", None)] {
        server.forget();
        let dir = Workdir::new();
        server.in_mid_trial(&dir).kill();
        server.set(Limit::WriteIops, Some(900));
        for _ in 0..2 {
            dir.pgio(&["undo"]).expect(6, &["write_iops", "900", "500", "--keep", "--restore"]);
            assert_eq!(server.limit(Limit::WriteIops), Some(900));
        }
        dir.pgio(&["undo", flag]).expect(0, &["write_iops"]);
        assert_eq!(server.limit(Limit::WriteIops), expected, "{flag}");
        assert!(dir.journals().is_empty());
    }
}

/// The journal is on disk, but the reboot removed the limits that it names.
#[test]
fn undo_handles_a_reboot() {
    if !in_namespace_or_rerun("undoing::undo_handles_a_reboot", true) {
        return;
    }
    let server = Server::start();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    // The limit after the reboot: none, the prior one, one that someone else set.
    for (now, code, result) in
        [(None, 0, "Kept"), (Some(9000), 0, "Restored"), (Some(500), 6, "--keep")]
    {
        server.set(Limit::WriteIops, Some(9000));
        let dir = Workdir::new();
        server.in_mid_trial(&dir).kill();
        let journal = &dir.journals()[0];
        let text = fs::read_to_string(journal).unwrap();
        assert!(text.contains(boot.trim()));
        fs::write(journal, text.replace(boot.trim(), "an-earlier-one")).unwrap();
        server.set(Limit::WriteIops, now);
        dir.pgio(&["undo"]).expect(code, &[result]);
        assert_eq!(server.limit(Limit::WriteIops), now);
    }
}
