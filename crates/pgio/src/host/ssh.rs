//! A connection to another host by the system's OpenSSH, shared by all that is run there.
//!
//! The first session is the master of the others and is itself a [`Shell`]: it ends at
//! end-of-file, so no master outlives this program however it ends. The user's ~/.ssh/config is
//! respected, apart from what would ask a question, forward something or leave something behind. Commands
//! go through a second session that lives on ([`super::runner`]); one beside it gets a session of its own.
//! Next: [`super::machine`], the only user.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::error::{HostError, refused};
use super::exec::{CommandLine, Exec, ExecError, Local, Output, run_to_end};
use super::machine::Identity;
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
    // Banners and notices would pass for the reason of a failure.
    "LogLevel=ERROR",
];

/// The longest path of a socket, less what ssh adds while it makes one.
const LONGEST_SOCKET: usize = 107 - 17;

/// After a shell that could not be had, commands go alone for so long.
const NO_RUNNER: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Running {
    runner: Option<Runner>,
    failed: Option<Instant>,
}

/// To find out whether a connection still stands: beyond ServerAliveInterval × CountMax.
const CHECK_LIMIT: Duration = Duration::from_secs(20);

pub(super) struct Link {
    host: String,
    destination: String,
    ssh: CommandLine,
    master: Mutex<Shell>,
    /// Made for the first command.
    runner: Mutex<Running>,
    /// Ours alone (0700): who can write to the socket is let in without a key.
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
        let directory = directory_for_a_socket()
            .map_err(|source| ExecError::Start { command: by_hand.to_string(), source })?;
        let path = format!("ControlPath={}", directory.path().join("s").display());
        let options = OPTIONS.iter().copied().chain([path.as_str()]);
        let ssh = options.fold(by_hand.clone(), |line, option| line.args(["-o", option]));

        let keep_open = CommandLine::new("sh").arg("-c").arg(shell::script(Identity::SCRIPT, ":"));
        let line = addressed(&ssh.clone().args(["-o", "ControlMaster=yes"]), destination)
            .arg(keep_open.for_a_shell()?);
        let by_hand = addressed(&by_hand, destination).to_string();
        let master = Shell::over(host, &line, &|stderr| refused(host, stderr, &by_hand))?;
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
        if command.is_apart() {
            return run_to_end(&self.wrap(command)?, true);
        }
        let Ok(mut running) = self.runner.try_lock() else { return self.output_alone(command) };
        let lately = |failed: Instant| failed.elapsed() < NO_RUNNER;
        if !running.runner.as_mut().is_some_and(Runner::is_alive) {
            running.runner = None;
            if !running.failed.is_some_and(lately) {
                running.runner = self.open_runner().ok();
                running.failed = running.runner.is_none().then(Instant::now);
            }
        }
        let Some(open) = &mut running.runner else { return self.output_alone(command) };
        let output = open.output(command);
        if output.is_err() {
            running.runner = None;
        }
        output
    }

    /// In the runner's locale.
    fn output_alone(&self, command: &CommandLine) -> Result<Output, ExecError> {
        run_to_end(&self.wrap(&command.clone().env("LC_ALL", "C"))?, true)
    }

    fn open_runner(&self) -> Result<Runner, ExecError> {
        let line = self.wrap(&CommandLine::new("sh").arg("-c").arg(runner::script()))?;
        let lost = |stderr: &str| shell::lost(&self.host, stderr);
        Shell::over(&self.host, &line, &lost).map(Runner::over)
    }

    /// Where the master is gone, ssh connects anew for this one command.
    pub(super) fn wrap(&self, command: &CommandLine) -> Result<CommandLine, ExecError> {
        let line = addressed(&self.ssh, &self.destination).arg(command.for_a_shell()?);
        Ok(match command.limit() {
            Some(limit) => line.timeout(limit),
            None => line,
        })
    }

    /// Whether the connection stands; `said` is what ssh said when that came in doubt.
    pub(super) fn check(&self, said: &str) -> Result<(), HostError> {
        let mut master = self.master.lock().unwrap_or_else(PoisonError::into_inner);
        match master.ask("", CHECK_LIMIT) {
            Ok(_) => Ok(()),
            Err(_) => Err(shell::lost(&self.host, said)),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.runner.get_mut().unwrap_or_else(PoisonError::into_inner).runner = None;
        // Sessions that still run would keep the master; where it is gone already, so be it.
        let exit = addressed(&self.ssh.clone().args(["-O", "exit"]), &self.destination);
        let _ = Local.output(&exit.timeout(Duration::from_secs(5)));
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.destination)
    }
}

/// Behind `--`, so that no destination can be an option.
fn addressed(ssh: &CommandLine, destination: &str) -> CommandLine {
    ssh.clone().args(["--", destination])
}

fn directory_for_a_socket() -> std::io::Result<TempDir> {
    let named = || tempfile::Builder::new().prefix("pgio-").to_owned();
    let directory = named().tempdir()?;
    if directory.path().join("s").as_os_str().len() <= LONGEST_SOCKET {
        return Ok(directory);
    }
    named().tempdir_in("/tmp")
}
