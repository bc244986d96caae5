//! stdout and stderr that take nothing: the work and the undo go on all the same, and the exit code tells what is
//! missing.

use std::io;

use pgio::pg::private::PrivateCluster;
use rustix::process::Signal;

use crate::fixture::{INSTALLED, spec};
use crate::workdir::{Workdir, auto_conf, experiment, show, wait_until};

/// In `pgio compare … 2>&1 | tee log`, Ctrl-C reaches tee as well, which may end first.
#[test]
fn changes_are_undone_when_nobody_reads_stderr() {
    let cluster = PrivateCluster::start(&spec(INSTALLED)).unwrap();
    let dsn = cluster.primary_conninfo();
    for (duration, signal, code) in [("60s", Some(Signal::INT), 130), ("3s", None, 0)] {
        let dir = Workdir::new();
        let keys = format!("blocks = 1\nduration = {duration:?}\naa = false");
        let conditions = [("set", "wal_writer_delay = \"150ms\"")];
        dir.write("experiment.toml", &experiment(&dsn, &keys, "", &conditions));
        let command = dir.command(&["compare", "experiment.toml", "--out", "out"]);
        let (reader, writer) = io::pipe().unwrap();
        let mut running = dir.start_with_stderr(command, writer.into());
        running.wait_until("in force", || show(&dsn, "wal_writer_delay") == "150ms");
        drop(reader);
        if let Some(signal) = signal {
            running.signal(signal);
        }
        running.wait().expect(code, &[]);
        assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
        wait_until("reloaded", || show(&dsn, "wal_writer_delay") == "200ms");
        assert!(dir.journals().is_empty());
    }
}
