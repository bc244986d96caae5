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

use pgio_connect::Client;
use rustix::process::{Pid, Signal, kill_process};

use super::directory::{ClusterDirectory, WAL};
use super::task::{Layout, Member, Setting};
use super::{Error, at};
use crate::config::experiment::StandbyTarget;
use crate::host::exec::{CommandLine, Exec, Ids, SpawnOptions, Tied, spawn};
use crate::host::stop::Stop;

/// Nothing may go on writing when the supervisor is killed: the directory is removed then.
const TIED: Tied = Tied(Signal::KILL);
const POLL: Duration = Duration::from_millis(10);
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A shutdown during a measurement may have to write gigabytes.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout per signal when the cluster ends. Short, because the data are discarded anyway.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The server programs, the user that runs them, and the cluster.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    pub(super) bindir: &'a Path,
    pub(super) user: Option<Ids>,
    pub(super) layout: &'a Layout,
}

impl Programs<'_> {
    /// Hides our PG* variables, which the server and its libpq (walreceiver) would use. Sets HOME,
    /// because ours may be inaccessible to the server's user.
    fn command(&self, program: impl AsRef<OsStr>) -> CommandLine {
        CommandLine::new(program)
            .run_as(self.user)
            .directory(&self.layout.root)
            .hide_env("PG")
            .env("HOME", &self.layout.root)
            .env("LC_ALL", "C")
    }

    /// Creates the primary's data directory. Uses --no-sync because the cluster does not survive a
    /// crash of the machine anyway. The server itself runs with fsync on.
    pub(super) fn initdb(
        &self,
        directory: &ClusterDirectory,
        wal: Option<&Path>,
        options: &[String],
    ) -> Result<(), Error> {
        let primary = self.layout.primary();
        directory.make(&primary.name).map_err(at(&primary.data()))?;
        let mut initdb = self
            .command(self.bindir.join("initdb"))
            .args(["--no-sync", "--username=postgres", "--auth=trust"])
            .args(["--encoding=UTF8", "--no-locale"])
            .arg("--pgdata")
            .arg(primary.data());
        if let Some(wal) = wal {
            initdb = initdb.arg("--waldir").arg(wal);
        }
        TIED.run(&initdb.args(options))?;
        Ok(())
    }

    /// Copies the primary's files before its first start, so that no base backup is needed.
    pub(super) fn copy_for_standby(
        &self,
        directory: &ClusterDirectory,
        standby: &Member,
        wal_is_apart: bool,
    ) -> Result<(), Error> {
        let (data, primary) = (standby.data(), self.layout.primary().data());
        directory.make(&standby.name).map_err(at(&data))?;
        // Run as the server's user, so that a link planted in its files gains nothing.
        let copy = |from: &Path, to: &Path| {
            TIED.run(&self.command("cp").arg("-a").arg(from.join(".")).arg(to)).map(drop)
        };
        copy(&primary, &data)?;
        if wal_is_apart {
            // The copied link leads to the primary's WAL.
            let own = data.join("pg_wal");
            TIED.run(&self.command("rm").arg(&own))?;
            TIED.run(&self.command("mkdir").args(["-m", "700"]).arg(&own))?;
            copy(&primary.join("pg_wal"), &own)?;
        }
        let signal = "standby.signal";
        directory.create_data_file(&standby.name, signal).map_err(at(&data.join(signal)))
    }

    /// `logs` is the main directory.
    pub(super) fn start(&self, logs: &ClusterDirectory, member: &Member) -> Result<Child, Error> {
        let path = self.layout.root.join(member.log());
        let log = logs.open_log(&member.log()).map_err(at(&path))?;
        let stderr = log.try_clone().map_err(at(&path))?;
        let postgres = self.command(self.bindir.join("postgres"));
        let options = SpawnOptions {
            stdin: Stdio::null(),
            stdout: log.into(),
            stderr: stderr.into(),
            parent_death_signal: Some(Signal::INT),
        };
        Ok(spawn(&postgres.arg("-D").arg(member.data()), options)?)
    }
}

/// Appends settings to postgresql.conf; the last value of a setting wins. Settings on the command
/// line could not be overridden by ALTER SYSTEM.
pub(super) fn configure(
    directory: &ClusterDirectory,
    member: &Member,
    settings: &[Setting],
) -> Result<(), Error> {
    let name = "postgresql.conf";
    let mut text = String::from("\n# pgio\n");
    for (name, value) in settings {
        let value = value.replace('\\', r"\\").replace('\'', "''");
        writeln!(text, "{name} = '{value}'").expect("writing to a String cannot fail");
    }
    directory.append(&member.name, name, &text).map_err(at(&member.data().join(name)))
}

fn common_settings(layout: &Layout, member: &Member) -> Vec<Setting> {
    // The setting is a list; its items are quoted like SQL identifiers.
    let sockets = layout.sockets().to_string_lossy().replace('"', "\"\"");
    let mut settings = vec![
        ("listen_addresses".into(), String::new()),
        ("unix_socket_directories".into(), format!("\"{sockets}\"")),
        // In addition to the mode of the directory.
        ("unix_socket_permissions".into(), "0700".into()),
        ("port".into(), member.port.to_string()),
        ("cluster_name".into(), format!("pgio {}", member.name)),
    ];
    if !layout.standbys().is_empty() {
        // Lets a standby catch up after it was stopped for a while.
        settings.push(("wal_keep_size".into(), "1GB".into()));
    }
    settings
}

/// The primary's settings. Without a wish of the user, the first of its own standbys is
/// synchronous and the others stand by to replace it.
pub(super) fn primary_settings(
    layout: &Layout,
    standbys: &[StandbyTarget],
    user_settings: &[Setting],
) -> Vec<Setting> {
    let mut settings = common_settings(layout, layout.primary());
    let own = standbys.iter().filter(|s| s.from.is_none()).map(|s| s.name.as_str());
    let names: Vec<&str> = own.collect();
    if !names.is_empty() {
        settings.push(("synchronous_standby_names".into(), names.join(", ")));
    }
    settings.extend_from_slice(user_settings);
    settings
}

/// The settings of a standby, its own last.
pub(super) fn standby_settings(
    layout: &Layout,
    member: &Member,
    spec: &StandbyTarget,
    of_primary: &[Setting],
) -> Vec<Setting> {
    let from = spec.from.as_deref().and_then(|name| layout.member(name));
    let upstream = layout.conninfo(from.unwrap_or_else(|| layout.primary()), "postgres");
    let mut settings = common_settings(layout, member);
    settings.extend([
        ("primary_conninfo".into(), format!("{upstream} application_name={}", member.name)),
        ("wal_retrieve_retry_interval".into(), "50ms".into()),
    ]);
    let shared = |(name, _): &&Setting| AT_LEAST_AS_PRIMARY.contains(&name.as_str());
    settings.extend(of_primary.iter().filter(shared).cloned());
    settings.extend_from_slice(&spec.settings);
    if !spec.apply_delay.is_zero() {
        let delay = format!("{}ms", spec.apply_delay.as_millis());
        settings.push(("recovery_min_apply_delay".into(), delay));
    }
    if spec.archive {
        let archive = archive_directory(member).to_string_lossy().replace('%', "%%");
        let target = archive.replace('\'', r"'\''");
        settings.extend([
            ("archive_mode".into(), "always".into()),
            // The server's shell runs it; a segment that exists is complete.
            ("archive_command".into(), format!("test -f '{target}/%f' || cp %p '{target}/%f'")),
        ]);
    }
    settings
}

/// The archive of a standby, beside its data.
pub(super) fn archive_directory(member: &Member) -> std::path::PathBuf {
    member.root.join(archive_name(&member.name))
}

pub(super) fn archive_name(member: &str) -> String {
    format!("{member}.archive")
}

/// The primary's WAL directory below the cluster's directory for it.
pub(super) fn wal_directory(root: &Path) -> std::path::PathBuf {
    root.join(WAL)
}

/// A standby refuses to start if one of these is lower than on its primary.
const AT_LEAST_AS_PRIMARY: [&str; 5] = [
    "max_connections",
    "max_locks_per_transaction",
    "max_prepared_transactions",
    "max_wal_senders",
    "max_worker_processes",
];

/// Waits until the server accepts connections. The error contains the end of its log.
pub(super) fn wait_ready(
    (logs, data): (&ClusterDirectory, &ClusterDirectory),
    member: &Member,
    child: &mut Child,
) -> Result<(), Error> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        // An unreadable pid file counts as missing.
        if data.pid_file(&member.name).is_ok_and(|text| is_ready(&text, child.id())) {
            return Ok(());
        }
        let ended = child.try_wait().map_err(at(Path::new(&member.name)))?.is_some();
        if ended || Instant::now() > deadline {
            let log = logs.log_tail(&member.log()).unwrap_or_default();
            return Err(Error::NotStarted { role: member.title(), log: last_lines(&log, 15) });
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
pub(super) fn stop(member: &Member, child: &mut Child) -> Result<(), Error> {
    signal(child, Signal::INT);
    if ended_within(child, STOP_TIMEOUT) {
        return Ok(());
    }
    Err(Error::NotStopped { role: member.title(), seconds: STOP_TIMEOUT.as_secs() })
}

/// Stops all servers, with increasingly strong signals.
pub(super) fn end_all(mut children: Vec<Child>) {
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

// Waits, while a cluster starts, for its standbys: until they stream, commits can be confirmed, and they have
// replayed what was done. Asks the server that a standby streams from. Not used during a measurement.

const TIMEOUT: Duration = Duration::from_secs(60);

/// What a standby has to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    Stream,
    /// Replay up to this position in the WAL.
    Replay(String),
}

impl Goal {
    fn describe(&self) -> &'static str {
        match self {
            Goal::Stream => "stream",
            Goal::Replay(_) => "replay",
        }
    }
}

const STATE: &str = "SELECT coalesce(max(state), 'not connected') FROM pg_stat_replication \
     WHERE application_name = $1";
const REPLAYED: &str = "SELECT coalesce(max(CASE WHEN replay_lsn >= $2::text::pg_lsn THEN 'reached' \
     ELSE 'at ' || coalesce(replay_lsn::text, 'an unknown position') END), 'not connected') \
     FROM pg_stat_replication WHERE application_name = $1";
/// Absent where nothing waits for a standby.
const SYNCHRONOUS: &str = "SELECT coalesce(string_agg(application_name || ': ' || sync_state, ', '), \
     'none is connected'), coalesce(bool_or(sync_state IN ('sync', 'quorum')), false) \
     FROM pg_stat_replication";

/// A requested stop ends the wait.
pub(super) fn wait(
    client: &mut Client,
    standby: &str,
    goal: &Goal,
    stop: &Stop,
) -> Result<(), Error> {
    let mut reached = || -> Result<(bool, String), Error> {
        let state: String = match goal {
            Goal::Stream => client.query_one(STATE, &[&standby])?.try_get(0)?,
            Goal::Replay(position) => {
                client.query_one(REPLAYED, &[&standby, position])?.try_get(0)?
            }
        };
        Ok((["streaming", "reached"].contains(&state.as_str()), state))
    };
    poll(&format!("standby {standby}"), goal.describe(), &mut reached, stop)
}

/// Waits until commits find a standby that confirms them, unless a stop is requested.
pub(super) fn wait_for_synchronous(client: &mut Client, stop: &Stop) -> Result<(), Error> {
    let mut reached = || {
        let row = client.query_one(SYNCHRONOUS, &[])?;
        Ok((row.try_get(1)?, row.try_get(0)?))
    };
    poll("a standby", "become synchronous", &mut reached, stop)
}

/// Whether commits wait for a standby.
pub(super) fn requires_standby(client: &mut Client) -> Result<bool, Error> {
    let names: String = client.query_one("SHOW synchronous_standby_names", &[])?.try_get(0)?;
    Ok(!names.trim().is_empty())
}

/// The end of the WAL that the server has written or received.
pub(super) fn position(client: &mut Client) -> Result<String, Error> {
    let position = "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
         ELSE pg_current_wal_lsn() END)::text";
    Ok(client.query_one(position, &[])?.try_get(0)?)
}

fn poll(
    standby: &str,
    goal: &'static str,
    reached: &mut dyn FnMut() -> Result<(bool, String), Error>,
    stop: &Stop,
) -> Result<(), Error> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (done, state) = reached()?;
        if done {
            return Ok(());
        }
        if stop.requested() {
            return Err(Error::Stopped);
        }
        if Instant::now() > deadline {
            let (standby, seconds) = (standby.to_owned(), TIMEOUT.as_secs());
            return Err(Error::NotReplicating { standby, goal, seconds, state });
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::private::task::tests::layout;

    fn value<'a>(settings: &'a [Setting], name: &str) -> Option<&'a str> {
        settings.iter().rfind(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn given_settings_come_last_and_values_are_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("pgio-a");
        std::fs::create_dir(&root).unwrap();
        let directory = ClusterDirectory::fill(&root, None, None).unwrap();
        directory.make("primary").unwrap();
        std::fs::write(root.join("primary/postgresql.conf"), "").unwrap();
        let layout = layout(root.to_str().unwrap(), &[]);
        let given = [("log_line_prefix".into(), r"it's \ %p".into()), ("port".into(), "7".into())];
        let settings = primary_settings(&layout, &[], &given);
        configure(&directory, layout.primary(), &settings).unwrap();
        let text = std::fs::read_to_string(root.join("primary/postgresql.conf")).unwrap();
        let sockets = format!("unix_socket_directories = '\"{}/run\"'\n", root.display());
        assert!(text.contains(&sockets), "{text}");
        assert!(text.contains("log_line_prefix = 'it''s \\\\ %p'\n"), "{text}");
        assert!(text.ends_with("port = '7'\n"), "{text}");
        assert!(!text.contains("synchronous_standby_names"), "{text}");
    }

    #[test]
    fn a_standby_uses_the_name_that_the_primary_waits_for() {
        let layout = layout("/t/pgio-a", &["a", "b", "c"]);
        let specs = [
            StandbyTarget::named("a"),
            StandbyTarget::named("b"),
            StandbyTarget { from: Some("a".to_owned()), ..StandbyTarget::named("c") },
        ];
        let primary = primary_settings(&layout, &specs, &[]);
        assert_eq!(value(&primary, "synchronous_standby_names"), Some("a, b"), "c is not its own");
        let given = [("synchronous_standby_names".to_owned(), String::new())];
        let primary = primary_settings(&layout, &specs, &given);
        assert_eq!(value(&primary, "synchronous_standby_names"), Some(""));
        let settings =
            |at: usize| standby_settings(&layout, &layout.standbys()[at], &specs[at], &[]);
        let from_primary =
            "host=/t/pgio-a/run port=5432 user=postgres dbname=postgres application_name=b";
        assert_eq!(value(&settings(1), "primary_conninfo"), Some(from_primary));
        let cascaded =
            "host=/t/pgio-a/run port=5433 user=postgres dbname=postgres application_name=c";
        assert_eq!(value(&settings(2), "primary_conninfo"), Some(cascaded));
    }

    #[test]
    fn a_standby_has_its_delay_its_archive_and_what_the_primary_demands() {
        let layout = layout("/t/it's", &["b"]);
        let spec = StandbyTarget {
            apply_delay: Duration::from_millis(1500),
            archive: true,
            settings: vec![("shared_buffers".into(), "64MB".into())],
            ..StandbyTarget::named("b")
        };
        let of_primary = [("max_connections".into(), "300".into()), ("fsync".into(), "off".into())];
        let settings = standby_settings(&layout, &layout.standbys()[0], &spec, &of_primary);
        assert_eq!(value(&settings, "recovery_min_apply_delay"), Some("1500ms"));
        assert_eq!(value(&settings, "max_connections"), Some("300"));
        assert_eq!(value(&settings, "shared_buffers"), Some("64MB"));
        assert_eq!(value(&settings, "fsync"), None);
        let command = value(&settings, "archive_command").unwrap();
        let target = r"'/t/it'\''s/b.archive/%f'";
        assert_eq!(command, format!("test -f {target} || cp %p {target}"));
    }

    #[test]
    fn ready_requires_the_pid_and_state_in_the_pid_file() {
        let pid_file = |state| format!("42\n/d\n1700000000\n5432\n/s\n\n  1 2\n{state}\n");
        assert!(!is_ready("", 42), "no file");
        assert!(!is_ready(&pid_file("starting"), 42));
        assert!(is_ready(&pid_file("ready   "), 42));
        assert!(!is_ready(&pid_file("ready"), 43), "left by another process");
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let stop = Stop::new();
        let waited = |stops_at: u32, reached_at: u32| {
            let mut polls = 0;
            let mut reached = || {
                polls += 1;
                if polls == stops_at {
                    stop.request();
                }
                Ok((polls == reached_at, "async".to_owned()))
            };
            poll("a standby", "become synchronous", &mut reached, &stop)
        };
        assert!(waited(0, 2).is_ok());
        assert!(waited(1, 1).is_ok(), "what is reached is no stop");
        assert!(matches!(waited(0, 100), Err(Error::Stopped)));
    }
}
