//! A connection to another host through the system's OpenSSH, shared by all commands on that host.
//!
//! The first session is the master connection and is itself a [`Shell`]: it ends at end-of-file, so
//! the master never outlives this program. The user's ~/.ssh/config applies, except for options that
//! would prompt, forward or leave something behind. Commands use a second, persistent session
//! ([`super::runner`]); concurrent commands get separate sessions. So do commands of the user, which are
//! not among the arguments of ssh. Next: [`super::machine`], the only user of this module.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::error::{HostError, classify};
use super::exec::{CommandLine, Exec, ExecError, Local, Output, run_to_end};
use super::identity::Identity;
use super::marks::Marks;
use super::runner::{self, Runner};
use super::shell::{self, Shell};

const OPTIONS: &[&str] = &[
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ControlPersist=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    "RequestTTY=no",
    // Banners and notices would be mistaken for the reason of a failure.
    "LogLevel=ERROR",
];

/// Maximum length of a socket path, minus the suffix that ssh adds while it creates the socket.
const MAX_SOCKET_PATH: usize = 107 - 17;

/// After the runner failed to start, time during which commands use separate sessions.
const RUNNER_RETRY: Duration = Duration::from_secs(60);

#[derive(Default)]
struct RunnerState {
    runner: Option<Runner>,
    failed: Option<Instant>,
}

/// Timeout of a connection check: longer than ServerAliveInterval × ServerAliveCountMax.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a session without any output may have ended.
const NO_MARKS: &str =
    "the command did not run: a start-up file of the login shell may have read its input";

pub(super) struct Link {
    host: String,
    destination: String,
    ssh: CommandLine,
    master: Mutex<Shell>,
    /// Started for the first command.
    runner: Mutex<RunnerState>,
    /// Private (0700), because access to the socket allows commands without a key.
    _directory: TempDir,
}

impl Link {
    pub(super) fn open(
        host: &str,
        destination: &str,
        config: Option<&Path>,
    ) -> Result<(Link, Identity), ExecError> {
        let mut by_hand = CommandLine::new("ssh");
        if let Some(config) = config {
            by_hand = by_hand.arg("-F").arg(config);
        }
        let directory = socket_directory()
            .map_err(|source| ExecError::Start { command: by_hand.to_string(), source })?;
        let path = format!("ControlPath={}", directory.path().join("s").display());
        let options = OPTIONS.iter().copied().chain([path.as_str()]);
        let ssh = options.fold(by_hand.clone(), |line, option| line.args(["-o", option]));

        let marks = Marks::new();
        let script = shell::script(&marks, Identity::SCRIPT, ":");
        let keep_open = CommandLine::new("sh").arg("-c").arg(script);
        let line = with_destination(&ssh.clone().args(["-o", "ControlMaster=yes"]), destination)
            .arg(keep_open.to_shell_line()?);
        let by_hand = with_destination(&by_hand, destination).to_string();
        let classify = |stderr: &str| classify(host, stderr, &by_hand);
        let master = Shell::start_with(host, (&line, marks), &classify)?;
        let identity = Identity::parse(master.greeting());
        let link = Link {
            host: host.to_owned(),
            destination: destination.to_owned(),
            ssh: ssh.args(["-o", "ControlMaster=no"]),
            master: Mutex::new(master),
            runner: Mutex::default(),
            _directory: directory,
        };
        Ok((link, identity))
    }

    pub(super) fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
        if command.has_own_session() {
            return self.output_separately(command);
        }
        // The runner's own stdin carries its commands.
        if command.input_text().is_some() {
            return self.output_separately(&in_our_locale(command));
        }
        let Ok(mut state) = self.runner.try_lock() else {
            return self.output_separately(&in_our_locale(command));
        };
        let recently = |failed: Instant| failed.elapsed() < RUNNER_RETRY;
        if !state.runner.as_mut().is_some_and(Runner::is_alive) {
            state.runner = None;
            if !state.failed.is_some_and(recently) {
                state.runner = self.open_runner().ok();
                state.failed = state.runner.is_none().then(Instant::now);
            }
        }
        let Some(runner) = &mut state.runner else {
            return self.output_separately(&in_our_locale(command));
        };
        let output = runner.output(command);
        if output.is_err() {
            state.runner = None;
        }
        output
    }

    /// Runs a command in a session of its own, between marks.
    fn output_separately(&self, command: &CommandLine) -> Result<Output, ExecError> {
        let marks = Marks::new();
        let found = run_to_end(&self.wrap(&command.between_marks(&marks)?)?, None)?;
        let stdout = marks.between(&found.stdout).map(str::to_owned);
        let Some(stdout) = stdout else {
            // The session ended before the command did.
            self.check(&found.stderr)?;
            let streams = [found.stderr.trim(), found.stdout.trim()];
            let why = streams.into_iter().find(|s| !s.is_empty()).unwrap_or(NO_MARKS);
            return Err(shell::lost(&self.host, why).into());
        };
        let stderr = marks.between(&found.stderr).map(str::to_owned).unwrap_or(found.stderr);
        Ok(Output { status: found.status, stdout, stderr })
    }

    fn open_runner(&self) -> Result<Runner, ExecError> {
        let marks = Marks::new();
        let line = self.wrap(&CommandLine::new("sh").arg("-c").arg(runner::script(&marks)))?;
        let lost = |stderr: &str| shell::lost(&self.host, stderr);
        Shell::start_with(&self.host, (&line, marks), &lost).map(Runner::new)
    }

    /// Returns the ssh command that runs `command`. If the master is gone, ssh opens a new connection.
    pub(super) fn wrap(&self, command: &CommandLine) -> Result<CommandLine, ExecError> {
        let line = with_destination(&self.ssh, &self.destination).arg(command.to_shell_line()?);
        let line = match command.limit() {
            Some(limit) => line.timeout(limit),
            None => line,
        };
        Ok(match command.input_text() {
            Some(text) => line.input(text),
            None => line,
        })
    }

    /// Checks the connection; `stderr` is the message of ssh that raised the doubt.
    pub(super) fn check(&self, stderr: &str) -> Result<(), HostError> {
        let mut master = self.master.lock().unwrap_or_else(PoisonError::into_inner);
        match master.ask("", CHECK_TIMEOUT) {
            Ok(_) => Ok(()),
            Err(_) => Err(shell::lost(&self.host, stderr)),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.runner.get_mut().unwrap_or_else(PoisonError::into_inner).runner = None;
        // Running sessions would keep the master alive; ignore the error if it is already gone.
        let exit = with_destination(&self.ssh.clone().args(["-O", "exit"]), &self.destination);
        let _ = Local.output(&exit.timeout(Duration::from_secs(5)));
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.destination)
    }
}

/// pgio parses the output of its own commands, which the runner's locale does not reach in a session of their own.
fn in_our_locale(command: &CommandLine) -> CommandLine {
    command.clone().env("LC_ALL", "C")
}

/// Appends the destination after `--`, so that it cannot be parsed as an option.
fn with_destination(ssh: &CommandLine, destination: &str) -> CommandLine {
    ssh.clone().args(["--", destination])
}

fn socket_directory() -> std::io::Result<TempDir> {
    let named = || tempfile::Builder::new().prefix("pgio-").to_owned();
    let directory = named().tempdir()?;
    if directory.path().join("s").as_os_str().len() <= MAX_SOCKET_PATH {
        return Ok(directory);
    }
    named().tempdir_in("/tmp")
}
