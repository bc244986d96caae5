//! The owner's side of a private cluster: starts it, connects to it, sends commands, stops it.
//!
//! Dropping a [`PrivateCluster`] stops it and waits for the end. If the process ends without
//! dropping it (killed, or with the cluster in a static), the pipe to the supervisor closes and the
//! supervisor stops the cluster.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::find::find_observed;
use super::reap::reap;
use super::server::{self, Goal};
use super::supervisor::{Command, read_answer};
use super::task::{Layout, Member, STANDBY, Setting, Task};
use super::version::check_version_options;
use super::{Binaries, Error, Observer, Progress, ServerVersion, VersionRequest, at, layout};
use crate::config::experiment::StandbyTarget;
use crate::host::exec::{CommandLine, SpawnOptions, own_stderr, spawn};
use crate::host::stop::Stop;
use crate::pg::session;

const DATABASE: &str = "pgio";
/// How long an abandoned supervisor may take to remove what it made.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// What to start.
#[derive(Debug, Clone)]
pub struct Spec {
    /// `None` means the newest installed server, or else the newest available for download.
    pub pg: Option<VersionRequest>,
    /// One standby, named `standby`, before the ones in `standbys`; the primary's commits wait for it.
    pub standby: bool,
    pub standbys: Vec<StandbyTarget>,
    /// Further options of initdb.
    pub initdb: Vec<String>,
    /// Settings for postgresql.conf, unquoted.
    pub primary_settings: Vec<Setting>,
    /// For all standbys; each one's own settings come after them.
    pub standby_settings: Vec<Setting>,
    /// The pgio program, which has the subcommand `supervise`.
    pub supervisor_exe: PathBuf,
    /// Where the cluster's directory is created; `None` means /var/tmp.
    pub base_dir: Option<PathBuf>,
    /// The name of that directory.
    pub name: String,
    /// Where the directory of the primary's WAL is created; `None` means inside the data.
    pub wal_dir: Option<PathBuf>,
}

impl Spec {
    pub fn new(supervisor_exe: impl Into<PathBuf>) -> Self {
        Self {
            pg: None,
            standby: false,
            standbys: Vec::new(),
            initdb: Vec::new(),
            primary_settings: Vec::new(),
            standby_settings: Vec::new(),
            supervisor_exe: supervisor_exe.into(),
            base_dir: None,
            name: layout::new_name(),
            wal_dir: None,
        }
    }

    /// The directories of the cluster, which do not exist before it starts.
    pub fn directories(&self) -> Result<Vec<PathBuf>, Error> {
        Ok(self.task(Path::new(""))?.directories())
    }

    /// The existing directories that it uses, the main one first.
    fn bases(&self) -> impl Iterator<Item = PathBuf> {
        let main = self.base_dir.clone().unwrap_or_else(layout::default_base);
        let standbys = self.standbys.iter().filter_map(|s| s.directory.clone());
        std::iter::once(main).chain(self.wal_dir.clone()).chain(standbys)
    }

    fn task(&self, bindir: &Path) -> Result<Task, Error> {
        let absolute = |path: &Path| {
            let absolute = std::path::absolute(path).map_err(at(path))?;
            match absolute.to_str() {
                Some(_) => Ok(absolute),
                None => Err(Error::NotUtf8 { path: absolute }),
            }
        };
        let first = self.standby.then(|| StandbyTarget::named(STANDBY));
        let mut standbys: Vec<StandbyTarget> =
            first.into_iter().chain(self.standbys.iter().cloned()).collect();
        for standby in &mut standbys {
            standby.directory = standby.directory.as_deref().map(absolute).transpose()?;
            standby.settings.splice(0..0, self.standby_settings.iter().cloned());
        }
        let base = self.base_dir.clone().unwrap_or_else(layout::default_base);
        Ok(Task {
            bindir: bindir.to_owned(),
            base_dir: absolute(&base)?,
            name: self.name.clone(),
            wal_dir: self.wal_dir.as_deref().map(absolute).transpose()?,
            initdb: self.initdb.clone(),
            settings: self.primary_settings.clone(),
            standbys,
        })
    }
}

/// Running servers with an empty database `pgio`. The current user and root, who can enter the
/// socket directory, connect as superuser `postgres` without a password.
pub struct PrivateCluster {
    binaries: Binaries,
    layout: Layout,
    standbys: Vec<StandbyTarget>,
    supervisor: Mutex<Supervisor>,
}

impl PrivateCluster {
    /// Returns when the database exists, the standbys stream, and one that commits wait for is
    /// synchronous.
    pub fn start(spec: &Spec) -> Result<Self, Error> {
        Self::start_observed(spec, &Stop::new(), &mut |_| {})
    }

    /// As [`start`](Self::start), until a stop is requested; the observer receives each step, a download's progress
    /// included.
    pub fn start_observed(spec: &Spec, stop: &Stop, observer: Observer<'_>) -> Result<Self, Error> {
        for base in spec.bases() {
            layout::check_base(&base)?;
        }
        let binaries = find_observed(spec.pg, stop, observer)?;
        check_version_options(&binaries, &spec.initdb)?;
        observer(&Progress::Start);
        for base in spec.bases() {
            reap(&base);
        }
        let bindir = std::path::absolute(&binaries.directory).map_err(at(&binaries.directory))?;
        let task = spec.task(&bindir)?;
        let mut supervisor = Supervisor::start(&spec.supervisor_exe, &task)?;
        let answer = supervisor.first_answer(stop)?;
        let layout = serde_json::from_str(&answer).map_err(|_| Error::Protocol(answer))?;
        let standbys = task.standbys;
        let cluster = Self { binaries, layout, standbys, supervisor: Mutex::new(supervisor) };
        let created = cluster.create_database(stop);
        if created.is_err() && stop.requested() {
            cluster.supervisor().abandon(stop);
        }
        created.map(|()| cluster)
    }

    /// Creates the database, also on the standbys.
    fn create_database(&self, stop: &Stop) -> Result<(), Error> {
        // CREATE DATABASE is the first commit that waits for a standby.
        self.wait_synchronous(stop)?;
        let mut client = self.connect("postgres")?;
        client.batch_execute(&format!("CREATE DATABASE {DATABASE}"))?;
        self.wait_replayed(stop)
    }

    pub fn version(&self) -> ServerVersion {
        self.binaries.version
    }

    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The primary's data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.layout.primary().data()
    }

    /// The data directory of the first standby; `None` without one.
    pub fn standby_data_dir(&self) -> Option<PathBuf> {
        Some(self.layout.standbys().first()?.data())
    }

    /// What each standby is, and its data directory.
    pub fn standbys(&self) -> impl Iterator<Item = (&StandbyTarget, PathBuf)> {
        self.standbys.iter().zip(self.layout.standbys().iter().map(Member::data))
    }

    /// The main directory of the cluster; it is removed with the cluster.
    pub fn directory(&self) -> &Path {
        &self.layout.root
    }

    /// The only socket on which the primary listens.
    pub fn primary_socket(&self) -> PathBuf {
        self.layout.sockets().join(format!(".s.PGSQL.{}", self.layout.primary().port))
    }

    /// A connection string for any libpq client, to the database `pgio` as superuser.
    pub fn primary_conninfo(&self) -> String {
        self.primary_conninfo_to(DATABASE)
    }

    pub fn primary_conninfo_to(&self, database: &str) -> String {
        self.layout.conninfo(self.layout.primary(), database)
    }

    /// How to connect to the first standby; `None` without one.
    pub fn standby_conninfo(&self) -> Option<String> {
        Some(self.layout.conninfo(self.layout.standbys().first()?, DATABASE))
    }

    /// The connection string of the standby of this name.
    pub fn conninfo_of(&self, standby: &str) -> Option<String> {
        Some(self.layout.conninfo(self.layout.member(standby)?, DATABASE))
    }

    /// The connection string of a standby, if others stream from it.
    pub fn upstream_conninfo(&self, standby: &str) -> Option<String> {
        let feeds = self.standbys.iter().any(|s| s.from.as_deref() == Some(standby));
        self.conninfo_of(standby).filter(|_| feeds)
    }

    /// Fast shutdown and start, for settings that require a restart; sessions are disconnected.
    /// Returns when the primary accepts connections and a running standby is synchronous again.
    pub fn restart_primary(&self) -> Result<(), Error> {
        if self.command(Command::RestartPrimary)? { self.wait_synchronous_again() } else { Ok(()) }
    }

    /// Stops the primary, for work on its files, until [`PrivateCluster::start_primary`].
    pub fn stop_primary(&self) -> Result<(), Error> {
        self.command(Command::StopPrimary).map(drop)
    }

    /// Returns when the primary accepts connections and a running standby is synchronous again.
    pub fn start_primary(&self) -> Result<(), Error> {
        if self.command(Command::StartPrimary)? { self.wait_synchronous_again() } else { Ok(()) }
    }

    /// Stops all standbys. Afterwards commits on the primary wait, unless `synchronous_commit` is local or off.
    pub fn stop_standby(&self) -> Result<(), Error> {
        self.command(Command::StopStandby).map(drop)
    }

    /// Starts all standbys. Returns when they stream and one is synchronous again, if commits wait.
    pub fn start_standby(&self) -> Result<(), Error> {
        self.command(Command::StartStandby)?;
        self.wait_synchronous_again()
    }

    /// Like dropping it, but returns an error if something was left behind.
    pub fn stop(self) -> Result<(), Error> {
        self.supervisor().finish()
    }

    fn supervisor(&self) -> MutexGuard<'_, Supervisor> {
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the standby should be running.
    fn command(&self, command: Command) -> Result<bool, Error> {
        let mut supervisor = self.supervisor();
        supervisor.send(command)?;
        supervisor.answer()?;
        match command {
            Command::StopStandby => supervisor.standby_stopped = true,
            Command::StartStandby => supervisor.standby_stopped = false,
            Command::RestartPrimary | Command::StopPrimary | Command::StartPrimary => {}
        }
        Ok(!supervisor.standby_stopped)
    }

    fn connect(&self, database: &str) -> Result<pgio_connect::Client, Error> {
        Ok(session::open_private(&self.primary_conninfo_to(database))?)
    }

    /// After a start of one of the servers, which may be part of an undo: a stop does not end that.
    fn wait_synchronous_again(&self) -> Result<(), Error> {
        self.wait_synchronous(&Stop::new())
    }

    fn wait_synchronous(&self, stop: &Stop) -> Result<(), Error> {
        let own = self.standbys.iter().filter(|s| s.from.is_none());
        let names: Vec<&str> = own.map(|s| s.name.as_str()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let mut client = self.connect("postgres")?;
        for name in &names {
            server::wait(&mut client, name, &Goal::Stream, stop)?;
        }
        if server::requires_standby(&mut client)? {
            server::wait_for_synchronous(&mut client, stop)
        } else {
            Ok(())
        }
    }

    /// Waits until each standby without a delay has replayed all of its upstream's WAL, cascaded ones as well.
    pub fn wait_replayed(&self, stop: &Stop) -> Result<(), Error> {
        let mut delayed: Vec<&str> = Vec::new();
        for standby in &self.standbys {
            let upstream = standby.from.as_deref();
            // What follows a delayed standby has the WAL early, but nothing forces it to replay.
            if !standby.apply_delay.is_zero() || upstream.is_some_and(|u| delayed.contains(&u)) {
                delayed.push(&standby.name);
                continue;
            }
            let from = upstream.and_then(|name| self.layout.member(name));
            let from = from.unwrap_or_else(|| self.layout.primary());
            let conninfo = self.layout.conninfo(from, "postgres");
            let mut client = session::open_private(&conninfo)?;
            let position = server::position(&mut client)?;
            server::wait(&mut client, &standby.name, &Goal::Replay(position), stop)?;
        }
        Ok(())
    }
}

impl fmt::Debug for PrivateCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = &self.layout.root;
        f.debug_struct("PrivateCluster").field("directory", directory).finish_non_exhaustive()
    }
}

/// Handle of the supervisor process.
struct Supervisor {
    process: Child,
    /// The supervisor stops when it is closed; `None` afterwards.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    standby_stopped: bool,
}

impl Supervisor {
    fn start(program: &Path, task: &Task) -> Result<Self, Error> {
        let ties = SpawnOptions {
            stdin: Stdio::piped(),
            stdout: Stdio::piped(),
            stderr: own_stderr(),
            // The supervisor must outlive the owner to clean up.
            parent_death_signal: None,
        };
        let task = serde_json::to_string(task).map_err(|e| Error::Protocol(e.to_string()))?;
        let mut process = spawn(&CommandLine::new(program).arg("supervise"), ties)?;
        let mut commands = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("its stdout is a pipe"));
        // Not as an argument, which every user can see: settings may hold secrets.
        if let Some(pipe) = &mut commands {
            writeln!(pipe, "{task}").map_err(|_| Error::SupervisorGone)?;
        }
        Ok(Self { process, commands, answers, standby_stopped: false })
    }

    fn send(&mut self, command: Command) -> Result<(), Error> {
        let pipe = self.commands.as_mut().ok_or(Error::SupervisorGone)?;
        writeln!(pipe, "{command}").map_err(|_| Error::SupervisorGone)
    }

    /// The answer to the task, unless a stop is requested before it.
    fn first_answer(&mut self, stop: &Stop) -> Result<String, Error> {
        while !self.has_answer() {
            if stop.requested() {
                self.abandon(stop);
                return Err(Error::Stopped);
            }
        }
        self.answer()
    }

    /// Waits for an answer, or for the supervisor's end, for a moment. Correct only before the first answer was read,
    /// since the reader may hold a later one.
    fn has_answer(&self) -> bool {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let answers = PollFd::new(self.answers.get_ref(), PollFlags::IN);
        // After another error, the read reports what is wrong.
        !matches!(poll(&mut [answers], Some(&timeout)), Ok(0) | Err(Errno::INTR))
    }

    /// Closes the pipe, at which the supervisor removes what it made. A step that takes long may delay that, so it is
    /// awaited for a while only; the supervisor outlives this process.
    fn abandon(&mut self, stop: &Stop) {
        self.commands = None;
        let deadline = Instant::now() + ABANDON_TIMEOUT;
        let mut is_running = || matches!(self.process.try_wait(), Ok(None));
        while !stop.urgent() && Instant::now() < deadline && is_running() {
            thread::sleep(POLL);
        }
    }

    fn answer(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        // No timeout: the supervisor has timeouts of its own.
        match self.answers.read_line(&mut line) {
            Ok(0) | Err(_) => Err(Error::SupervisorGone),
            Ok(_) => match read_answer(&line) {
                Some(answer) => answer.map_err(Error::Supervisor),
                None => Err(Error::Protocol(line)),
            },
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.commands.take().is_none() {
            return Ok(());
        }
        let answer = self.answer();
        let _ = self.process.wait();
        match answer {
            // After success the supervisor sends no answer.
            Err(Error::SupervisorGone) => Ok(()),
            other => other.map(drop),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _: Result<(), Error> = self.finish();
    }
}
