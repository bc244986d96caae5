//! Servers that do not answer: Ctrl-C still works, and changes that could not be undone are in the
//! journal.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use pgio::pg::private::PrivateCluster;
use rustix::process::{Pid, Signal, kill_process};

use pgio_tests::fixture::{
    INSTALLED, OwnPrimary, connect, fresh_database, own_primary, shared_primary,
};
use pgio_tests::timing::run_in_parallel;
use pgio_tests::workdir::{
    CommandResult, Running, SAMPLED, Workdir, active_sessions, auto_conf, experiment,
    pgio_sessions, show, wait_until,
};

/// An upper bound for correctness, not for speed: without timeouts pgio would wait forever.
const BOUND: Duration = Duration::from_secs(20);
const LONG: &str = "blocks = 1\nduration = \"60s\"\naa = false\ntelemetry = \"1s\"";
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

fn cluster() -> OwnPrimary {
    own_primary(INSTALLED)
}

fn interrupt(running: Running) -> CommandResult {
    running.signal(Signal::INT);
    running.wait_for(BOUND)
}

/// Listens as a server does, and falls silent after a part of the login; counts who waits for it.
fn falls_silent(dir: &Workdir, after_login: bool) -> Arc<AtomicU32> {
    let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let seen = asked.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.unwrap(), seen.clone());
            thread::spawn(move || {
                let mut bytes = [0; 1024];
                let _ = stream.read(&mut bytes);
                if after_login {
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
    asked
}

#[test]
fn an_interrupt_ends_the_wait_for_a_server_silent_after_login() {
    let commands = ["compare", "run", "setup"];
    let all = commands.into_iter().flat_map(|command| [(command, true), (command, false)]);
    run_in_parallel(all, |(command, after_login)| {
        let dir = Workdir::new();
        let asked = falls_silent(&dir, after_login);
        let dsn = format!("host={} user=x dbname=x connect_timeout=3600", dir.path().display());
        dir.write("e.toml", &experiment(&dsn, LONG, "", &[("a", "")]));
        let arguments = match command {
            "compare" => ["compare", "e.toml", "--out", "out"].to_vec(),
            other => vec![other, "--connect-string", &dsn],
        };
        let mut running = dir.start(dir.command(&arguments));
        running.wait_until("it waits", || asked.load(Ordering::SeqCst) > 0);
        interrupt(running).expect(130, &["stopped"]);
    });
}

/// Freezes the server of a run that changed a setting, interrupts the run, and undoes later.
fn leaves_a_frozen_server(cluster: &PrivateCluster, text: &str, engine: &str, signals: usize) {
    let (dsn, dir) = (cluster.primary_conninfo(), Workdir::new());
    let text =
        text.replace("kind = \"commit\"\n", &format!("kind = \"commit\"\nengine = \"{engine}\"\n"));
    let mut running = dir.start_compare(&text);
    running.wait_until("in force", || show(&dsn, "wal_writer_delay") == "150ms");
    running.wait_until("at work", || {
        active_sessions(&dsn) > 0 || engine == "client" && pgio_sessions(&dsn) > 1
    });
    let stopped = Stopped::stop(cluster);
    running.signal(Signal::INT);
    if signals == 2 {
        // Two signals that are pending at the same time are one.
        let err = dir.path().join("stderr");
        let is_seen = || std::fs::read_to_string(&err).unwrap().contains("press Ctrl-C again");
        running.wait_until("the first is seen", is_seen);
        running.signal(Signal::INT);
    }
    let result = running.wait_for(BOUND);
    assert_eq!(result.code, Some(6), "{engine} {signals}: {result}");
    assert!(result.err.contains("run `pgio undo` first"), "{result}");
    assert_eq!(dir.journals().len(), 1);
    drop(stopped);
    dir.pgio(&["undo"]).expect(0, &["Restored wal_writer_delay"]);
    assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
    wait_until("reloaded", || show(&dsn, "wal_writer_delay") == "200ms");
    wait_until("no session is left", || pgio_sessions(&dsn) == 0);
}

#[test]
fn pgio_leaves_a_frozen_server_and_undoes_later() {
    let parts = ["window", "warm-up"];
    let all = parts.into_iter().flat_map(|part| [(part, "server"), (part, "client")]);
    run_in_parallel(all, |(part, engine)| {
        let cluster = cluster();
        let dsn = cluster.primary_conninfo();
        let text = match part {
            "window" => experiment(&dsn, LONG, "", &[("set", SET)]),
            _ => {
                let keys = format!("{LONG}\nwarmup = \"60s\"");
                let text = experiment(&dsn, &keys, "", &[("set", SET)]);
                text.replacen("warmup = \"0s\"\n", "", 1)
            }
        };
        for signals in [1, 2] {
            leaves_a_frozen_server(&cluster, &text, engine, signals);
        }
    });
}

/// Connections that a server's socket has, with those that it has not accepted yet.
fn connections_to(cluster: &PrivateCluster) -> usize {
    let socket = cluster.primary_socket().display().to_string();
    std::fs::read_to_string("/proc/net/unix").unwrap().matches(&socket).count()
}

#[test]
fn an_interrupt_works_between_trials_and_while_connecting() {
    let cluster = cluster();
    let keys = format!("blocks = 500\nduration = \"100ms\"\naa = false\n{SAMPLED}");
    let text = |dsn: &str| experiment(dsn, &keys, "", &[("a", ""), ("b", "")]);
    let has_trials = |dir: &Workdir| {
        std::fs::read_to_string(dir.out().join("trials.jsonl")).is_ok_and(|t| t.lines().count() > 1)
    };
    // The server freezes at a different moment of each.
    let dirs = [Workdir::new(), Workdir::new(), Workdir::new()];
    let start = |dir: &Workdir| dir.start_compare(&text(&fresh_database(&cluster)));
    let mut between_trials: Vec<Running> = dirs.iter().map(start).collect();
    for (dir, running) in dirs.iter().zip(&mut between_trials) {
        running.wait_until("trials are stored", || has_trials(dir));
    }
    let (loads, dsn) = (Workdir::new(), cluster.primary_conninfo());
    let load = ["setup", "--connect-string", &dsn, "--scale", "400M", "--num-schemas", "2"];
    let mut load = loads.start(loads.command(&load));
    let copying = "SELECT count(*) FROM pg_stat_progress_copy";
    let mut admin = connect(&dsn);
    load.wait_until("it loads", || admin.query_one(copying, &[]).unwrap().get::<_, i64>(0) > 0);
    let stopped = Stopped::stop(&cluster);
    run_in_parallel(between_trials.into_iter().chain([load]), |running| {
        interrupt(running).expect(130, &["stopped"]);
    });

    // With the others gone, a connection more is its own.
    let (dir, before) = (Workdir::new(), connections_to(&cluster));
    let mut connecting = dir.start_compare(&text(&dsn));
    connecting.wait_until("it connects", || connections_to(&cluster) > before);
    interrupt(connecting).expect(130, &["stopped"]);
    drop(stopped);
}

#[test]
fn an_undo_does_not_wait_forever() {
    let cluster = cluster();
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let mut running = dir.start_compare(&experiment(&dsn, LONG, "", &[("set", SET)]));
    running.wait_until("in force", || show(&dsn, "wal_writer_delay") == "150ms");
    running.kill();
    let stopped = Stopped::stop(&cluster);
    // The limit of each attempt is the user's; that they come to an end is pgio's.
    let mut undo = dir.command(&["undo"]);
    undo.env("PGCONNECT_TIMEOUT", "2");
    let result = dir.start(undo).wait().expect(6, &["could not be undone"]);
    assert!(result.out.contains("Still in place: wal_writer_delay"), "{result}");
    assert_eq!(dir.journals().len(), 1);
    drop(stopped);
    dir.pgio(&["undo"]).expect(0, &["Restored wal_writer_delay"]);
}

#[test]
fn a_run_under_nohup_survives_its_terminal() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    dir.write("e.toml", &experiment(&dsn, LONG, "", &[("a", "")]));
    let plain = dir.command(&["compare", "e.toml", "--out", "out"]);
    let mut command = Command::new("nohup");
    command.arg(plain.get_program()).args(plain.get_args()).current_dir(dir.path());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut running = dir.start(command);
    running.wait_until("it is measured", || active_sessions(&dsn) > 0);
    running.signal(Signal::HUP);
    thread::sleep(Duration::from_secs(1));
    // It is idle for a moment between two slices.
    running.wait_until("still measured", || active_sessions(&dsn) > 0);
    running.signal(Signal::TERM);
    running.wait().expect(130, &["--resume"]);
}
