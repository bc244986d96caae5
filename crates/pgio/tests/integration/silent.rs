//! Servers that do not answer: Ctrl-C still works, and changes that could not be undone are in the
//! journal.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use pgio::pg::private::PrivateCluster;
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{INSTALLED, connect, spec};
use crate::workdir::{
    CommandResult, Running, Workdir, auto_conf, experiment, sessions_at_work, sessions_of_ours,
    show, wait_until,
};

/// An upper bound for correctness, not for speed: without timeouts pgio would wait forever.
const BOUND: Duration = Duration::from_secs(20);
const LONG: &str = "blocks = 1\nduration = \"60s\"\naa = false";
const SET: &str = "wal_writer_delay = \"150ms\"";

/// All processes of a server, stopped; continued when dropped.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn stop(cluster: &PrivateCluster) -> Stopped {
        let text = std::fs::read_to_string(cluster.data_dir().join("postmaster.pid")).unwrap();
        let postmaster: i32 = text.lines().next().unwrap().trim().parse().unwrap();
        let mut stopped = Stopped(vec![Pid::from_raw(postmaster).unwrap()]);
        // Its own start of another process is over before its children are counted.
        kill_process(stopped.0[0], Signal::STOP).unwrap();
        let children = format!("/proc/{postmaster}/task/{postmaster}/children");
        for child in std::fs::read_to_string(children).unwrap().split_whitespace() {
            let child = Pid::from_raw(child.parse().unwrap()).unwrap();
            // One that ends by itself just now cannot be stopped.
            if kill_process(child, Signal::STOP).is_ok() {
                stopped.0.push(child);
            }
        }
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}

fn cluster() -> PrivateCluster {
    PrivateCluster::start(&spec(INSTALLED)).unwrap()
}

fn interrupt(running: Running) -> CommandResult {
    running.signal(Signal::INT);
    running.wait_for(BOUND)
}

#[test]
fn an_interrupt_ends_the_wait_for_a_server_silent_after_login() {
    for scope in ["login", "greeting"] {
        let dir = Workdir::new();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        let seen = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, seen) = (stream.unwrap(), seen.clone());
                thread::spawn(move || {
                    let mut bytes = [0; 1024];
                    let _ = stream.read(&mut bytes);
                    if scope == "login" {
                        // AuthenticationOk, BackendKeyData, ReadyForQuery.
                        let _ = stream.write_all(
                            b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x01Z\0\0\0\x05I",
                        );
                        let _ = stream.read(&mut bytes);
                    }
                    seen.fetch_add(1, Ordering::SeqCst);
                    // Until the other end is gone.
                    while stream.read(&mut bytes).is_ok_and(|n| n > 0) {}
                });
            }
        });
        let dsn = format!("host={} user=x dbname=x connect_timeout=3600", dir.path().display());
        dir.write("e.toml", &experiment(&dsn, LONG, "", &[("a", "")]));
        for command in [
            &["compare", "e.toml", "--out", "out"][..],
            &["run", "--connect-string", &dsn],
            &["setup", "--connect-string", &dsn],
        ] {
            let before = asked.load(Ordering::SeqCst);
            let mut running = dir.start(dir.command(command));
            running.until("it waits", || asked.load(Ordering::SeqCst) > before);
            interrupt(running).expect(130, &["stopped"]);
        }
    }
}

#[test]
fn pgio_leaves_a_frozen_server_and_undoes_later() {
    let cluster = cluster();
    let dsn = cluster.primary_conninfo();
    let keys = "blocks = 1\nduration = \"60s\"\nwarmup = \"60s\"\naa = false";
    let warming = experiment(&dsn, keys, "", &[("set", SET)]).replacen("warmup = \"0s\"\n", "", 1);
    for (name, text) in
        [("window", experiment(&dsn, LONG, "", &[("set", SET)])), ("warm-up", warming)]
    {
        for engine in ["server", "client"] {
            for signals in [1, 2] {
                let dir = Workdir::new();
                let text = text.replace(
                    "kind = \"commit\"\n",
                    &format!("kind = \"commit\"\nengine = \"{engine}\"\n"),
                );
                let mut running = dir.start_compare(&text);
                running.until("in force", || show(&dsn, "wal_writer_delay") == "150ms");
                running.until("at work", || {
                    sessions_at_work(&dsn) > 0 || engine == "client" && sessions_of_ours(&dsn) > 1
                });
                let stopped = Stopped::stop(&cluster);
                running.signal(Signal::INT);
                if signals == 2 {
                    thread::sleep(Duration::from_millis(300));
                    running.signal(Signal::INT);
                }
                let left = ["wal_writer_delay", "run `pgio undo` first"];
                let result = running.wait_for(BOUND);
                assert_eq!(result.code, Some(6), "{name} {engine} {signals}: {result}");
                assert!(result.err.contains(left[1]), "{result}");
                assert_eq!(dir.journals().len(), 1);
                drop(stopped);
                dir.pgio(&["undo"]).expect(0, &["Restored wal_writer_delay"]);
                assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
                wait_until("reloaded", || show(&dsn, "wal_writer_delay") == "200ms");
                wait_until("no session is left", || sessions_of_ours(&dsn) == 0);
            }
        }
    }
}

#[test]
fn an_interrupt_works_between_trials_and_while_connecting() {
    let cluster = cluster();
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let text = experiment(
        &dsn,
        "blocks = 500\nduration = \"100ms\"\naa = false",
        "",
        &[("a", ""), ("b", "")],
    );
    for pause in [0, 70, 130] {
        let dir = Workdir::new();
        let mut running = dir.start_compare(&text);
        running.until("trials are stored", || {
            std::fs::read_to_string(dir.out().join("trials.jsonl"))
                .is_ok_and(|t| t.lines().count() > 1)
        });
        thread::sleep(Duration::from_millis(pause));
        let stopped = Stopped::stop(&cluster);
        interrupt(running).expect(130, &["stopped"]);
        drop(stopped);
    }
    // While it connects, and with a load under way.
    let stopped = Stopped::stop(&cluster);
    let running = dir.start_compare(&text);
    thread::sleep(Duration::from_millis(500));
    interrupt(running).expect(130, &["stopped"]);
    drop(stopped);
    let load = ["setup", "--connect-string", &dsn, "--scale", "400M", "--num-schemas", "2"];
    let mut running = dir.start(dir.command(&load));
    let copying = "SELECT count(*) FROM pg_stat_progress_copy";
    let mut admin = connect(&dsn);
    running.until("it loads", || admin.query_one(copying, &[]).unwrap().get::<_, i64>(0) > 0);
    let stopped = Stopped::stop(&cluster);
    interrupt(running).expect(130, &["stopped"]);
    drop(stopped);
}

#[test]
fn an_undo_does_not_wait_forever() {
    let cluster = cluster();
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let mut running = dir.start_compare(&experiment(&dsn, LONG, "", &[("set", SET)]));
    running.until("in force", || show(&dsn, "wal_writer_delay") == "150ms");
    running.kill();
    let stopped = Stopped::stop(&cluster);
    let result = dir.start(dir.command(&["undo"])).wait().expect(6, &["could not be undone"]);
    assert!(result.out.contains("Still in place: wal_writer_delay"), "{result}");
    assert_eq!(dir.journals().len(), 1);
    drop(stopped);
    dir.pgio(&["undo"]).expect(0, &["Restored wal_writer_delay"]);
}
