//! The owner's side of a private cluster: starts it, connects to it, sends commands, stops it.
//!
//! Dropping a [`PrivateCluster`] stops it and waits for the end. If the process ends without
//! dropping it (killed, or with the cluster in a static), the pipe to the supervisor closes and the
//! supervisor stops the cluster.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use postgres::NoTls;

use super::directory::Role;
use super::find::find_observed;
use super::layout::{self, Layout};
use super::progress::{Observer, Progress};
use super::protocol::{Command, read_answer};
use super::server::Setting;
use super::supervisor::Task;
use super::sweep::sweep;
use super::{Binaries, Error, ServerVersion, VersionRequest, at};
use crate::host::exec::{CommandLine, SpawnOptions, spawn};

const DATABASE: &str = "pgio";
const SYNCHRONOUS_TIMEOUT: Duration = Duration::from_secs(60);

/// What to start.
#[derive(Debug, Clone)]
pub struct Spec {
    /// `None` means the newest installed server, or else the newest available for download.
    pub pg: Option<VersionRequest>,
    /// With a standby, the primary's commits wait for it (`synchronous_standby_names`).
    pub standby: bool,
    /// Settings for postgresql.conf, unquoted.
    pub primary_settings: Vec<Setting>,
    pub standby_settings: Vec<Setting>,
    /// The pgio program, which has the subcommand `supervise`.
    pub supervisor_exe: PathBuf,
    /// Where the cluster's directory is created; `None` means /var/tmp.
    pub base_dir: Option<PathBuf>,
}

impl Spec {
    pub fn new(supervisor_exe: impl Into<PathBuf>) -> Self {
        Self {
            pg: None,
            standby: false,
            primary_settings: Vec::new(),
            standby_settings: Vec::new(),
            supervisor_exe: supervisor_exe.into(),
            base_dir: None,
        }
    }
}

/// Running servers with an empty database `pgio`. The current user and root, who can enter the
/// socket directory, connect as superuser `postgres` without a password.
pub struct PrivateCluster {
    binaries: Binaries,
    layout: Layout,
    has_standby: bool,
    supervisor: Mutex<Supervisor>,
}

impl PrivateCluster {
    /// Returns when the database exists and the standby, if any, is synchronous.
    pub fn start(spec: &Spec) -> Result<Self, Error> {
        Self::start_observed(spec, &mut |_| {})
    }

    /// As [`start`](Self::start); the observer receives each step, a download's progress included.
    pub fn start_observed(spec: &Spec, observer: Observer<'_>) -> Result<Self, Error> {
        let base_dir = spec.base_dir.clone().unwrap_or_else(layout::default_base);
        layout::check_base(&base_dir)?;
        let binaries = find_observed(spec.pg, observer)?;
        observer(&Progress::Start);
        let absolute = |path: &Path| std::path::absolute(path).map_err(at(path));
        sweep(&base_dir);
        let task = Task {
            bindir: absolute(&binaries.directory)?,
            base_dir: absolute(&base_dir)?,
            standby: spec.standby,
            primary_settings: spec.primary_settings.clone(),
            standby_settings: spec.standby_settings.clone(),
        };
        let mut supervisor = Supervisor::start(&spec.supervisor_exe, &task)?;
        let layout = Layout { root: supervisor.answer()?.into() };
        let has_standby = spec.standby;
        let cluster = Self { binaries, layout, has_standby, supervisor: Mutex::new(supervisor) };
        // CREATE DATABASE is the first commit that waits for the standby.
        cluster.wait_synchronous()?;
        let mut client = cluster.connect("postgres")?;
        // Wait until the standby has replayed it, not only flushed it.
        client.batch_execute("SET synchronous_commit = remote_apply")?;
        client.batch_execute(&format!("CREATE DATABASE {DATABASE}"))?;
        Ok(cluster)
    }

    pub fn version(&self) -> ServerVersion {
        self.binaries.version
    }

    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The primary's data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.layout.data(Role::Primary)
    }

    /// `None` without a standby.
    pub fn standby_data_dir(&self) -> Option<PathBuf> {
        self.has_standby.then(|| self.layout.data(Role::Standby))
    }

    /// The directory of the whole cluster; it is removed with the cluster.
    pub fn directory(&self) -> &Path {
        &self.layout.root
    }

    /// The only socket on which the primary listens.
    pub fn primary_socket(&self) -> PathBuf {
        self.layout.sockets().join(format!(".s.PGSQL.{}", Role::Primary.port()))
    }

    /// A connection string for any libpq client, to the database `pgio` as superuser.
    pub fn primary_conninfo(&self) -> String {
        self.primary_conninfo_to(DATABASE)
    }

    pub fn primary_conninfo_to(&self, database: &str) -> String {
        self.layout.conninfo(Role::Primary, database)
    }

    /// `None` without a standby.
    pub fn standby_conninfo(&self) -> Option<String> {
        self.has_standby.then(|| self.layout.conninfo(Role::Standby, DATABASE))
    }

    /// Fast shutdown and start, for settings that require a restart; sessions are disconnected.
    /// Returns when the primary accepts connections and a running standby is synchronous again.
    pub fn restart_primary(&self) -> Result<(), Error> {
        if self.command(Command::RestartPrimary)? { self.wait_synchronous() } else { Ok(()) }
    }

    /// Stops the primary, for work on its files, until [`PrivateCluster::start_primary`].
    pub fn stop_primary(&self) -> Result<(), Error> {
        self.command(Command::StopPrimary).map(drop)
    }

    /// Returns when the primary accepts connections and a running standby is synchronous again.
    pub fn start_primary(&self) -> Result<(), Error> {
        if self.command(Command::StartPrimary)? { self.wait_synchronous() } else { Ok(()) }
    }

    /// Afterwards commits on the primary wait, unless `synchronous_commit` is local or off.
    pub fn stop_standby(&self) -> Result<(), Error> {
        self.command(Command::StopStandby).map(drop)
    }

    /// Returns when the standby is synchronous again.
    pub fn start_standby(&self) -> Result<(), Error> {
        self.command(Command::StartStandby)?;
        self.wait_synchronous()
    }

    /// Like dropping it, but returns an error if something was left behind.
    pub fn stop(self) -> Result<(), Error> {
        let mut supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner);
        supervisor.finish()
    }

    /// Returns whether the standby should be running.
    fn command(&self, command: Command) -> Result<bool, Error> {
        let mut supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner);
        supervisor.send(command)?;
        supervisor.answer()?;
        match command {
            Command::StopStandby => supervisor.standby_stopped = true,
            Command::StartStandby => supervisor.standby_stopped = false,
            Command::RestartPrimary | Command::StopPrimary | Command::StartPrimary => {}
        }
        Ok(!supervisor.standby_stopped)
    }

    fn connect(&self, database: &str) -> Result<postgres::Client, Error> {
        Ok(postgres::Client::connect(&self.primary_conninfo_to(database), NoTls)?)
    }

    fn wait_synchronous(&self) -> Result<(), Error> {
        if !self.has_standby {
            return Ok(());
        }
        let mut client = self.connect("postgres")?;
        let query = "SELECT coalesce(max(sync_state), 'not connected') \
                     FROM pg_stat_replication WHERE application_name = $1";
        let deadline = Instant::now() + SYNCHRONOUS_TIMEOUT;
        loop {
            let state: String = client.query_one(query, &[&Role::Standby.name()])?.get(0);
            match state.as_str() {
                "sync" | "quorum" => return Ok(()),
                _ if Instant::now() > deadline => {
                    return Err(Error::NotSynchronous {
                        seconds: SYNCHRONOUS_TIMEOUT.as_secs(),
                        state,
                    });
                }
                _ => thread::sleep(Duration::from_millis(10)),
            }
        }
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
            stderr: Stdio::inherit(),
            own_group: true,
            // The supervisor must outlive the owner to clean up.
            parent_death_signal: None,
        };
        let command = CommandLine::new(program).arg("supervise").args(task.to_args());
        let mut process = spawn(&command, ties)?;
        let commands = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("its stdout is a pipe"));
        Ok(Self { process, commands, answers, standby_stopped: false })
    }

    fn send(&mut self, command: Command) -> Result<(), Error> {
        let pipe = self.commands.as_mut().ok_or(Error::SupervisorGone)?;
        writeln!(pipe, "{command}").map_err(|_| Error::SupervisorGone)
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
