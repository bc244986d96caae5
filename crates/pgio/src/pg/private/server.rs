//! One server of a private cluster: creates its data directory, starts it, stops it.
//!
//! Only the supervisor's main thread starts servers: the kernel sends the death signal when the
//! thread that forked ends. As with `pg_ctl`, a server is ready when postmaster.pid contains `ready`;
//! this module does not connect to it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::process::{Pid, Signal, kill_process};

use super::directory::{ClusterDirectory, Role};
use super::layout::Layout;
use super::{Error, at};
use crate::host::exec::{CommandLine, Exec, Ids, Local, SpawnOptions, spawn};

pub(super) type Setting = (String, String);

const POLL: Duration = Duration::from_millis(10);
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A shutdown during a measurement may have to write gigabytes.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout per signal when the cluster ends. Short, because the data are discarded anyway.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The server programs, the user that runs them, and the cluster's directory.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    pub(super) bindir: &'a Path,
    pub(super) user: Option<Ids>,
    pub(super) directory: &'a ClusterDirectory,
}

impl Programs<'_> {
    /// Hides our PG* variables, which the server and its libpq (walreceiver) would use. Sets HOME,
    /// because ours may be inaccessible to the server's user.
    fn command(&self, layout: &Layout, program: impl AsRef<OsStr>) -> CommandLine {
        CommandLine::new(program)
            .run_as(self.user)
            .directory(&layout.root)
            .hide_env("PG")
            .env("HOME", &layout.root)
            .env("LC_ALL", "C")
    }

    /// Creates the primary's data directory. Uses --no-sync because the cluster does not survive a
    /// crash of the machine anyway. The server itself runs with fsync on.
    pub(super) fn initdb(&self, layout: &Layout) -> Result<(), Error> {
        let data = layout.data(Role::Primary);
        self.directory.make_data(Role::Primary).map_err(at(&data))?;
        let initdb = self
            .command(layout, self.bindir.join("initdb"))
            .args(["--no-sync", "--username=postgres", "--auth=trust"])
            .args(["--encoding=UTF8", "--no-locale"])
            .arg("--pgdata")
            .arg(data);
        Local.run(&initdb)?;
        Ok(())
    }

    /// Copies the primary's files before its first start, so that no base backup is needed.
    pub(super) fn copy_for_standby(&self, layout: &Layout) -> Result<(), Error> {
        let data = layout.data(Role::Standby);
        self.directory.make_data(Role::Standby).map_err(at(&data))?;
        // Run as the server's user, so that a link planted in its files gains nothing.
        let copy = self.command(layout, "cp").arg("-a");
        let copy = copy.arg(layout.data(Role::Primary).join(".")).arg(&data);
        Local.run(&copy)?;
        let signal = "standby.signal";
        self.directory.create_data_file(Role::Standby, signal).map_err(at(&data.join(signal)))
    }

    pub(super) fn start(&self, layout: &Layout, role: Role) -> Result<Child, Error> {
        let path = layout.root.join(role.log());
        let log = self.directory.open_log(role).map_err(at(&path))?;
        let stderr = log.try_clone().map_err(at(&path))?;
        let postgres = self.command(layout, self.bindir.join("postgres"));
        let ties = SpawnOptions {
            stdin: Stdio::null(),
            stdout: log.into(),
            stderr: stderr.into(),
            own_group: false,
            parent_death_signal: Some(Signal::INT),
        };
        Ok(spawn(&postgres.arg("-D").arg(layout.data(role)), ties)?)
    }
}

/// Appends the cluster's settings and then `extra` to postgresql.conf; the last value of a setting
/// wins. Settings on the command line could not be overridden by ALTER SYSTEM.
pub(super) fn configure(
    (layout, directory): (&Layout, &ClusterDirectory),
    role: Role,
    has_standby: bool,
    extra: &[Setting],
) -> Result<(), Error> {
    let name = "postgresql.conf";
    let text = configuration(layout, role, has_standby, extra);
    directory.append(role, name, &text).map_err(at(&layout.data(role).join(name)))
}

fn configuration(layout: &Layout, role: Role, has_standby: bool, extra: &[Setting]) -> String {
    // The setting is a list; its items are quoted like SQL identifiers.
    let sockets = layout.sockets().to_string_lossy().replace('"', "\"\"");
    let mut settings: Vec<Setting> = vec![
        ("listen_addresses".into(), String::new()),
        ("unix_socket_directories".into(), format!("\"{sockets}\"")),
        // In addition to the mode of the directory.
        ("unix_socket_permissions".into(), "0700".into()),
        ("port".into(), role.port().to_string()),
        ("cluster_name".into(), format!("pgio {}", role.name())),
    ];
    let standby = Role::Standby.name();
    match role {
        Role::Primary if has_standby => {
            settings.push(("synchronous_standby_names".into(), standby.into()));
            // Lets a standby catch up after it was stopped for a while.
            settings.push(("wal_keep_size".into(), "1GB".into()));
        }
        Role::Primary => {}
        Role::Standby => {
            let primary = layout.conninfo(Role::Primary, "postgres");
            let conninfo = format!("{primary} application_name={standby}");
            settings.push(("primary_conninfo".into(), conninfo));
            settings.push(("wal_retrieve_retry_interval".into(), "50ms".into()));
        }
    }
    let mut text = String::from("\n# pgio\n");
    for (name, value) in settings.iter().chain(extra) {
        let value = value.replace('\\', r"\\").replace('\'', "''");
        writeln!(text, "{name} = '{value}'").expect("writing to a String cannot fail");
    }
    text
}

/// A standby refuses to start if one of these is lower than on its primary.
const AT_LEAST_AS_PRIMARY: [&str; 5] = [
    "max_connections",
    "max_locks_per_transaction",
    "max_prepared_transactions",
    "max_wal_senders",
    "max_worker_processes",
];

/// The standby's settings: those that it must share with the primary, then its own.
pub(super) fn for_standby(primary: &[Setting], own: &[Setting]) -> Vec<Setting> {
    let shared = |(name, _): &&Setting| AT_LEAST_AS_PRIMARY.contains(&name.as_str());
    primary.iter().filter(shared).chain(own).cloned().collect()
}

/// Waits until the server accepts connections. The error contains the end of its log.
pub(super) fn wait_ready(
    directory: &ClusterDirectory,
    role: Role,
    child: &mut Child,
) -> Result<(), Error> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        // An unreadable pid file counts as missing.
        if directory.pid_file(role).is_ok_and(|text| is_ready(&text, child.id())) {
            return Ok(());
        }
        let ended = child.try_wait().map_err(at(Path::new(role.name())))?.is_some();
        if ended || Instant::now() > deadline {
            let log = directory.log_tail(role).unwrap_or_default();
            return Err(Error::NotStarted { role: role.name(), log: last_lines(&log, 15) });
        }
        thread::sleep(POLL);
    }
}

/// Line 1 of postmaster.pid is the process id, line 8 the state, padded with blanks.
fn is_ready(pid_file: &str, pid: u32) -> bool {
    let mut lines = pid_file.lines().map(str::trim);
    lines.next() == Some(&pid.to_string()) && lines.nth(6) == Some("ready")
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Fast shutdown: disconnects sessions and writes dirty pages.
pub(super) fn stop(role: Role, child: &mut Child) -> Result<(), Error> {
    signal(child, Signal::INT);
    if ended_within(child, STOP_TIMEOUT) {
        return Ok(());
    }
    Err(Error::NotStopped { role: role.name(), seconds: STOP_TIMEOUT.as_secs() })
}

/// Stops all servers, with increasingly strong signals.
pub(super) fn end(mut children: Vec<Child>) {
    for how in [Signal::INT, Signal::QUIT, Signal::KILL] {
        children.iter_mut().for_each(|child| signal(child, how));
        let deadline = Instant::now() + END_TIMEOUT;
        children.retain_mut(|child| {
            !ended_within(child, deadline.saturating_duration_since(Instant::now()))
        });
    }
}

fn signal(child: &mut Child, signal: Signal) {
    // The process id cannot be reused before the child has been waited for.
    if let Ok(None) = child.try_wait() {
        // Fails if the child has ended meanwhile, which is the goal.
        let _: Result<(), rustix::io::Errno> = kill_process(Pid::from_child(child), signal);
    }
}

fn ended_within(child: &mut Child, time: Duration) -> bool {
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
    fn settings_are_quoted_and_extra_ones_come_last() {
        let layout = Layout { root: "/t/pgio-a".into() };
        let given = [("log_line_prefix".into(), r"it's \ %p".into()), ("port".into(), "7".into())];
        let text = configuration(&layout, Role::Primary, false, &given);
        assert!(text.contains("unix_socket_directories = '\"/t/pgio-a/run\"'\n"), "{text}");
        assert!(text.contains("log_line_prefix = 'it''s \\\\ %p'\n"), "{text}");
        assert!(text.ends_with("port = '7'\n"), "{text}");
        assert!(!text.contains("synchronous_standby_names"), "{text}");
    }

    #[test]
    fn the_standby_uses_the_name_that_the_primary_waits_for() {
        let layout = Layout { root: "/t/pgio-a".into() };
        let primary = configuration(&layout, Role::Primary, true, &[]);
        assert!(primary.contains("synchronous_standby_names = 'standby'\n"), "{primary}");
        let standby = configuration(&layout, Role::Standby, true, &[]);
        let expected = "primary_conninfo = 'host=/t/pgio-a/run port=5432 user=postgres \
                       dbname=postgres application_name=standby'\n";
        assert!(standby.contains(expected), "{standby}");
    }

    #[test]
    fn ready_requires_the_pid_and_state_in_the_pid_file() {
        let pid_file = |state| format!("42\n/d\n1700000000\n5432\n/s\n\n  1 2\n{state}\n");
        assert!(!is_ready("", 42), "no file");
        assert!(!is_ready(&pid_file("starting"), 42));
        assert!(is_ready(&pid_file("ready   "), 42));
        assert!(!is_ready(&pid_file("ready"), 43), "left by another process");
    }
}
