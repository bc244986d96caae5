//! stdout and stderr that take nothing: the work and the undo go on all the same, and the exit code tells what is
//! missing.

use std::fs::File;
use std::io;
use std::process::{Output, Stdio};

use pgio::pg::private::PrivateCluster;
use pgio_report::analysis::test_support::{demo, write_runs};
use rustix::process::Signal;

use pgio_tests::fixture::{INSTALLED, spec};
use pgio_tests::workdir::{Workdir, auto_conf, experiment, show, wait_until};

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

#[test]
fn output_that_stdout_does_not_take_is_a_failure_unless_its_reader_has_left() {
    let dir = Workdir::new();
    write_runs(dir.path(), &[demo()]).unwrap();
    let commands: [&[&str]; 4] = [
        &["report", "run-0001", "--format", "json"],
        &["--help"],
        &["report", "--help"],
        &["--version"],
    ];
    for arguments in commands {
        let run =
            |stdout: Stdio| -> Output { dir.command(arguments).stdout(stdout).output().unwrap() };
        let full = run(File::options().write(true).open("/dev/full").unwrap().into());
        let err = String::from_utf8_lossy(&full.stderr);
        assert_eq!(full.status.code(), Some(7), "{arguments:?}: {err}");
        assert!(err.contains("cannot write to stdout: No space left on device"), "{err}");

        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let left = run(writer.into());
        let err = String::from_utf8_lossy(&left.stderr);
        assert_eq!((left.status.code(), &*err), (Some(0), ""), "{arguments:?}");
    }
}
