//! One server of the private cluster: make its data directory, start it, stop it.
//!
//! Only the supervisor starts servers, and from its main thread: the kernel's signal on the
//! parent's death follows the thread that forked. A server is up when it says so in
//! postmaster.pid, as for `pg_ctl`; nothing here connects to it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::layout::{Layout, Role};
use super::place::Place;
use super::{Error, at};
use crate::host::exec::{CommandLine, Exec, Ids, Local, SpawnOptions, spawn};

pub(super) type Setting = (String, String);

const POLL: Duration = Duration::from_millis(10);
const START: Duration = Duration::from_secs(60);
/// A restart in a measurement may have gigabytes to write out first.
const STOP: Duration = Duration::from_secs(300);
/// At the end the data are thrown away: the second wait is for an immediate shutdown.
const END: Duration = Duration::from_secs(10);

/// Where the programs are and whom they run as.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    pub(super) bindir: &'a Path,
    pub(super) user: Option<Ids>,
    pub(super) place: &'a Place,
}

impl Programs<'_> {
    /// libpq in the server (walreceiver) would obey PG* variables of ours, and so would
    /// the server itself; HOME may be a directory that the server user cannot enter.
    fn command(&self, layout: &Layout, program: impl AsRef<OsStr>) -> CommandLine {
        CommandLine::new(program)
            .run_as(self.user)
            .directory(&layout.root)
            .hide_env("PG")
            .env("HOME", &layout.root)
            .env("LC_ALL", "C")
    }

    /// A new primary's data directory. Not synced: a crash of the machine ends the cluster
    /// anyhow. The server itself runs with fsync on.
    pub(super) fn initdb(&self, layout: &Layout) -> Result<(), Error> {
        let data = layout.data(Role::Primary);
        self.place.make_data(Role::Primary).map_err(at(&data))?;
        let initdb = self
            .command(layout, self.bindir.join("initdb"))
            .args(["--no-sync", "--username=postgres", "--auth=trust"])
            .args(["--encoding=UTF8", "--no-locale"])
            .arg("--pgdata")
            .arg(data);
        Local.run(&initdb)?;
        Ok(())
    }

    /// Both servers begin as the same files, so no base backup is needed.
    pub(super) fn copy_for_standby(&self, layout: &Layout) -> Result<(), Error> {
        let data = layout.data(Role::Standby);
        self.place.make_data(Role::Standby).map_err(at(&data))?;
        // As the server's user, who gains nothing by a link in his own files.
        let copy = self.command(layout, "cp").arg("-a");
        let copy = copy.arg(layout.data(Role::Primary).join(".")).arg(&data);
        Local.run(&copy)?;
        let signal = "standby.signal";
        self.place.create_data_file(Role::Standby, signal).map_err(at(&data.join(signal)))
    }

    pub(super) fn start(&self, layout: &Layout, role: Role) -> Result<Child, Error> {
        let path = layout.root.join(role.log());
        let log = self.place.open_log(role).map_err(at(&path))?;
        let twin = log.try_clone().map_err(at(&path))?;
        let postgres = self.command(layout, self.bindir.join("postgres"));
        let ties = SpawnOptions {
            stdin: Stdio::null(),
            stdout: log.into(),
            stderr: twin.into(),
            own_group: false,
            parent_death_signal: Some(Signal::INT),
        };
        Ok(spawn(&postgres.arg("-D").arg(layout.data(role)), ties)?)
    }
}

/// Adds to postgresql.conf what makes the server one of this cluster, and then `extra`, of
/// which the last wins. Not on the command line, where ALTER SYSTEM could not override it.
pub(super) fn configure(
    (layout, place): (&Layout, &Place),
    role: Role,
    has_standby: bool,
    extra: &[Setting],
) -> Result<(), Error> {
    let name = "postgresql.conf";
    let text = configuration(layout, role, has_standby, extra);
    place.append(role, name, &text).map_err(at(&layout.data(role).join(name)))
}

fn configuration(layout: &Layout, role: Role, has_standby: bool, extra: &[Setting]) -> String {
    // A list whose items are quoted like SQL names.
    let sockets = layout.sockets().to_string_lossy().replace('"', "\"\"");
    let mut settings: Vec<Setting> = vec![
        ("listen_addresses".into(), String::new()),
        ("unix_socket_directories".into(), format!("\"{sockets}\"")),
        // Beside the directory, which keeps others out too.
        ("unix_socket_permissions".into(), "0700".into()),
        ("port".into(), role.port().to_string()),
        ("cluster_name".into(), format!("pgio {}", role.name())),
    ];
    let standby = Role::Standby.name();
    match role {
        Role::Primary if has_standby => {
            settings.push(("synchronous_standby_names".into(), standby.into()));
            // So that a standby that was stopped for a while finds what it missed.
            settings.push(("wal_keep_size".into(), "1GB".into()));
        }
        Role::Primary => {}
        Role::Standby => {
            let primary = layout.conninfo(Role::Primary, "postgres");
            let named = format!("{primary} application_name={standby}");
            settings.push(("primary_conninfo".into(), named));
            settings.push(("wal_retrieve_retry_interval".into(), "50ms".into()));
        }
    }
    let mut text = String::from("\n# pgio\n");
    for (name, value) in settings.iter().chain(extra) {
        let value = value.replace('\\', r"\\").replace('\'', "''");
        writeln!(text, "{name} = '{value}'").expect("a String takes every write");
    }
    text
}

/// A standby refuses to start with less of these than its primary has.
const AT_LEAST_AS_PRIMARY: [&str; 5] = [
    "max_connections",
    "max_locks_per_transaction",
    "max_prepared_transactions",
    "max_wal_senders",
    "max_worker_processes",
];

/// The standby's settings: what it must share with the primary, then its own.
pub(super) fn for_standby(primary: &[Setting], own: &[Setting]) -> Vec<Setting> {
    let shared = |(name, _): &&Setting| AT_LEAST_AS_PRIMARY.contains(&name.as_str());
    primary.iter().filter(shared).chain(own).cloned().collect()
}

/// Waits until the server takes connections. An error holds the end of its log.
pub(super) fn wait_ready(place: &Place, role: Role, child: &mut Child) -> Result<(), Error> {
    let deadline = Instant::now() + START;
    loop {
        // What cannot be read yet says no more than what is not there.
        if place.pid_file(role).is_ok_and(|text| is_ready(&text, child.id())) {
            return Ok(());
        }
        let ended = child.try_wait().map_err(at(Path::new(role.name())))?.is_some();
        if ended || Instant::now() > deadline {
            let log = place.log_tail(role).unwrap_or_default();
            return Err(Error::NotStarted { role: role.name(), log: last_lines(&log, 15) });
        }
        thread::sleep(POLL);
    }
}

/// Line 1 of postmaster.pid is the process, line 8 its state, padded with blanks.
fn is_ready(pid_file: &str, pid: u32) -> bool {
    let mut lines = pid_file.lines().map(str::trim);
    lines.next() == Some(&pid.to_string()) && lines.nth(6) == Some("ready")
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Fast shutdown: sessions are ended, dirty pages written.
pub(super) fn stop(role: Role, child: &mut Child) -> Result<(), Error> {
    signal(child, Signal::INT);
    if gone_within(child, STOP) {
        return Ok(());
    }
    Err(Error::NotStopped { role: role.name(), seconds: STOP.as_secs() })
}

/// Stops all at once and for good, whatever it takes.
pub(super) fn end(mut children: Vec<Child>) {
    for how in [Signal::INT, Signal::QUIT, Signal::KILL] {
        children.iter_mut().for_each(|child| signal(child, how));
        let deadline = Instant::now() + END;
        children.retain_mut(|child| {
            !gone_within(child, deadline.saturating_duration_since(Instant::now()))
        });
    }
}

fn signal(child: &mut Child, signal: Signal) {
    // Until it has been waited for, its number cannot be another process's.
    if let Ok(None) = child.try_wait() {
        // It may have ended since, which is as good.
        let _: Result<(), rustix::io::Errno> = kill_process(Pid::from_child(child), signal);
    }
}

fn gone_within(child: &mut Child, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return true,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return true,
            _ if Instant::now() > deadline => return false,
            _ => thread::sleep(POLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_quoted_and_those_given_come_last() {
        let layout = Layout { root: "/t/pgio-a".into() };
        let given = [("log_line_prefix".into(), r"it's \ %p".into()), ("port".into(), "7".into())];
        let text = configuration(&layout, Role::Primary, false, &given);
        assert!(text.contains("unix_socket_directories = '\"/t/pgio-a/run\"'\n"), "{text}");
        assert!(text.contains("log_line_prefix = 'it''s \\\\ %p'\n"), "{text}");
        assert!(text.ends_with("port = '7'\n"), "{text}");
        assert!(!text.contains("synchronous_standby_names"), "{text}");
    }

    #[test]
    fn the_standby_follows_the_primary_under_the_name_that_it_waits_for() {
        let layout = Layout { root: "/t/pgio-a".into() };
        let primary = configuration(&layout, Role::Primary, true, &[]);
        assert!(primary.contains("synchronous_standby_names = 'standby'\n"), "{primary}");
        let standby = configuration(&layout, Role::Standby, true, &[]);
        let follows = "primary_conninfo = 'host=/t/pgio-a/run port=5432 user=postgres \
                       dbname=postgres application_name=standby'\n";
        assert!(standby.contains(follows), "{standby}");
    }

    #[test]
    fn ready_is_what_the_pid_file_says_of_this_process() {
        let says = |state| format!("42\n/d\n1700000000\n5432\n/s\n\n  1 2\n{state}\n");
        assert!(!is_ready("", 42), "no file");
        assert!(!is_ready(&says("starting"), 42));
        assert!(is_ready(&says("ready   "), 42));
        assert!(!is_ready(&says("ready"), 43), "left by another process");
    }
}
