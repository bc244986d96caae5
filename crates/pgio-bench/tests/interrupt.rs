//! Ctrl-C ends a long bench at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A psql that takes a while for each turn.
const PSQL: &str = "#!/bin/sh\necho turn >>turns\nsleep 5\nfor file; do :; done\n\
    sed -e '1,/timing/d' -e 's/.*/Time: 1.000 ms/' \"$file\"\n";
const TIMEOUT: Duration = Duration::from_secs(150);

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "still not: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn truth_is_interrupted_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let psql = dir.path().join("psql");
    fs::write(&psql, PSQL).unwrap();
    fs::set_permissions(&psql, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_pgio-bench"))
        .args(["truth", "commit-delay"])
        .current_dir(dir.path())
        .env("PATH", path)
        .env("PGIO_STATE_DIR", dir.path().join("state"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let turns = || fs::read_to_string(dir.path().join("turns")).unwrap_or_default();
    wait_until("the first turn", || !turns().is_empty());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    wait_until("ended", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopped"), "{output:?}");
    assert_eq!(turns(), "turn\n");
}
