//! A connection to another host through the system's OpenSSH, shared by all commands on that host.
//!
//! The first session is the master connection and is itself a [`Shell`]: it ends at end-of-file, so
//! the master never outlives this program. The user's ~/.ssh/config applies, except for options that
//! would prompt, forward or leave something behind. Commands use a second, persistent session
//! ([`Runner`]); concurrent commands get separate sessions. So do commands of the user, which are
//! not among the arguments of ssh. Next: [`super::machine`], the only user of this module.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::command::encode;
use super::exec::{CommandLine, Exec, ExecError, Local, Output, run_to_end};
use super::machine::{HostError, Identity, classify};
use super::shell::{self, Marks, Shell};

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
        if command.own_session {
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
        let script = shell::script(&marks, ":", &body());
        let line = self.wrap(&CommandLine::new("sh").arg("-c").arg(script))?;
        let lost = |stderr: &str| shell::lost(&self.host, stderr);
        Shell::start_with(&self.host, (&line, marks), &lost).map(Runner::new)
    }

    /// Returns the ssh command that runs `command`. If the master is gone, ssh opens a new connection.
    pub(super) fn wrap(&self, command: &CommandLine) -> Result<CommandLine, ExecError> {
        let line = with_destination(&self.ssh, &self.destination).arg(command.to_shell_line()?);
        let line = match command.timeout {
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

/// The timeout for a command without a limit.
const NO_TIMEOUT: Duration = Duration::from_secs(366 * 24 * 3600);

/// The kind of mark that separates stdout and stderr; followed by the exit status.
const STATUS: &str = "status";

/// Returns the shell code that runs `$ask`, a command encoded for `printf %b`. It passes stdout through
/// and collects stderr, followed by a space and the exit status.
fn body() -> String {
    format!(
        r#"exec 3>&1
errors=$( (eval "$(printf %b "$ask")") 2>&1 1>&3 3>&- </dev/null; echo " $?")
exec 3>&-
printf {status}
printf %s "${{errors% *}}""#,
        status = Marks::print(STATUS, r#""${errors##* }""#)
    )
}

/// Runs commands on the host, one at a time, through one persistent `sh`.
///
/// An ssh session per command costs the measured host a login: on a small virtual machine 0.2 s of processor time,
/// three times as much as with this. Output and exit status are the same as with a separate session. Use it only for
/// pgio's own commands: none of them leaves a background process that would write into the reply to the next command.
#[derive(Debug)]
pub(super) struct Runner {
    shell: Shell,
}

impl Runner {
    pub(super) fn new(shell: Shell) -> Runner {
        Runner { shell }
    }

    /// Returns whether the shell still runs; otherwise the next command needs a new runner.
    pub(super) fn is_alive(&mut self) -> bool {
        self.shell.is_alive()
    }

    /// Runs a command. Discard the runner after an error, because the command may still run.
    pub(super) fn output(&mut self, command: &CommandLine) -> Result<Output, ExecError> {
        let limit = command.timeout.unwrap_or(NO_TIMEOUT);
        let answer = match self.shell.ask(&encode(&command.to_shell_line()?), limit) {
            Ok(answer) => answer.text,
            Err(ExecError::Host(HostError::Silent { .. })) => {
                return Err(ExecError::TimedOut { command: command.to_string(), limit });
            }
            Err(other) => return Err(other),
        };
        let status = self.shell.marks.printed(STATUS);
        parse_output(&answer, &status).ok_or_else(|| shell::lost(&self.shell.host, &answer).into())
    }
}

fn parse_output(answer: &str, mark: &str) -> Option<Output> {
    let (stdout, rest) = answer.rsplit_once(mark)?;
    let (status, stderr) = rest.split_once('\n')?;
    Some(Output {
        status: ExitStatus::from_raw(status.parse::<i32>().ok()? << 8),
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    fn runner() -> Runner {
        Runner::new(Shell::start(&Host::local(), ":", &body()).unwrap())
    }

    fn sh(script: &str) -> CommandLine {
        CommandLine::new("sh").args(["-c", script])
    }

    #[test]
    fn output_and_status_are_the_same_as_without_a_runner() {
        let mut runner = runner();
        for command in [
            sh("echo out; echo err >&2; exit 3"),
            sh("printf 'no end'; printf 'nor here' >&2"),
            sh("cat; echo $#; printf '\\n\\n a \\\\n b\\t \\n'"),
            sh("seq 30000; seq 30000 >&2; exit 127"),
            sh("kill -TERM $$"),
            CommandLine::new("printf").args([
                "%s|",
                "it's",
                "$HOME",
                "two\nlines",
                "",
                "\\n ",
                "\t",
            ]),
            CommandLine::new("true"),
            CommandLine::new("/no/such").arg("x"),
        ] {
            let (found, expected) = (runner.output(&command).unwrap(), Local.output(&command));
            let Ok(expected) = expected else {
                assert_eq!(found.status.code(), Some(127), "{found:?}");
                assert!(found.stderr.contains("not found"), "{found:?}");
                continue;
            };
            assert_eq!(found.stdout, expected.stdout, "{command}");
            assert_eq!(found.stderr.trim_end(), expected.stderr.trim_end(), "{command}");
            match expected.status.code() {
                Some(code) => assert_eq!(found.status.code(), Some(code), "{command}"),
                None => assert_eq!(found.status.code(), Some(128 + 15), "{command}"),
            }
        }
        assert!(runner.is_alive());
    }

    #[test]
    fn timeouts_and_a_killed_shell_are_errors() {
        let mut slow = runner();
        let command = sh("sleep 1; echo late").timeout(Duration::from_millis(50));
        let error = slow.output(&command).unwrap_err();
        assert!(matches!(error, ExecError::TimedOut { .. }), "{error}");
        let mut ended = Runner::new(Shell::start(&Host::local(), "echo $$", &body()).unwrap());
        let kill = format!("kill -KILL {}; sleep 5", ended.shell.greeting().trim());
        let error = ended.output(&sh(&kill)).unwrap_err().to_string();
        assert!(error.contains("lost connection"), "{error}");
        assert!(!ended.is_alive());
    }
}
