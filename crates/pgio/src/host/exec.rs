//! Starting processes: the only module in the crate that does.
//!
//! [`Exec`] runs a [`CommandLine`] to its end, on this machine ([`Local`]) or on any host
//! (`host::Host`); tests put a fake behind it. [`spawn`] starts a process that lives on, which only
//! makes sense locally.
//!
//! Arguments reach the program as they are, here and over ssh.
//! Next: [`super::machine`], and `pg::private`, which runs its servers through here.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal,
};

pub use super::command::{CommandLine, Ids};
use super::error::HostError;

/// For a look at a name; a file system that does not answer has no end of its own.
const LOOK: Duration = Duration::from_secs(30);

/// What a command left behind.
#[derive(Debug, Clone)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("cannot start `{command}`")]
    Start { command: String, source: io::Error },
    #[error("`{command}` ended with {status}: {stderr}")]
    Failed { command: String, status: ExitStatus, stderr: String },
    #[error("`{command}` did not end within {} s", limit.as_secs_f64())]
    TimedOut { command: String, limit: Duration },
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Runs commands to their end, somewhere.
pub trait Exec: Send + Sync {
    /// Waits for the command and returns what it wrote, whatever its exit status.
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError>;

    /// As [`Exec::output`], but an exit status other than 0 is an error. Returns stdout.
    fn run(&self, command: &CommandLine) -> Result<String, ExecError> {
        let output = self.output(command)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        // Some tools complain on stdout only.
        let said = [output.stderr.trim(), output.stdout.trim()];
        let stderr = said.into_iter().find(|s| !s.is_empty()).unwrap_or("it said nothing");
        Err(ExecError::Failed {
            command: command.to_string(),
            status: output.status,
            stderr: stderr.to_owned(),
        })
    }

    /// Whether anything has that name there.
    fn exists(&self, path: &Path) -> Result<bool, ExecError> {
        let test = CommandLine::new("test").arg("-e").arg(path).timeout(LOOK);
        Ok(self.output(&test)?.status.success())
    }
}

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

impl Exec for Local {
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
        run_to_end(command, false)
    }
}

pub(super) fn run_to_end(command: &CommandLine, own_group: bool) -> Result<Output, ExecError> {
    let ties = Ties {
        stdin: Stdio::null(),
        stdout: Stdio::piped(),
        stderr: Stdio::piped(),
        own_group,
        when_parent_dies: None,
    };
    let child = spawn(command, ties)?;
    let ended = match command.limit() {
        None => child.wait_with_output().map(Some),
        Some(limit) => wait_within(child, limit, own_group),
    };
    let failed = |source| ExecError::Start { command: command.to_string(), source };
    let Some(output) = ended.map_err(failed)? else {
        let limit = command.limit().unwrap_or_default();
        return Err(ExecError::TimedOut { command: command.to_string(), limit });
    };
    Ok(Output {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// `None` when time is up; the process is killed then, with what it started where that is a group of
/// its own, and nothing is waited for but itself.
fn wait_within(
    mut child: Child,
    limit: Duration,
    own_group: bool,
) -> io::Result<Option<process::Output>> {
    let deadline = Instant::now() + limit;
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let read = |from: Option<Receiver<Vec<u8>>>| {
        let left = deadline.saturating_duration_since(Instant::now());
        from.and_then(|receiver| receiver.recv_timeout(left).ok())
    };
    if let (Some(stdout), Some(stderr)) = (read(stdout), read(stderr))
        && let Some(status) = wait_until(&mut child, deadline)?
    {
        return Ok(Some(process::Output { status, stdout, stderr }));
    }
    if own_group {
        // What it left behind would go on with what it was told to do.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// `None` when it still runs at the deadline.
pub(super) fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn collect(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is worth as much as before the end.
        let _ = from.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// How a process that lives on is tied to its parent and its terminal.
#[derive(Debug)]
pub struct Ties {
    pub stdin: Stdio,
    pub stdout: Stdio,
    pub stderr: Stdio,
    /// A process group of its own, which a terminal's Ctrl-C does not reach.
    pub own_group: bool,
    /// Signal sent by the kernel when the THREAD that called [`spawn`] ends:
    /// call it from the main thread, or from one that outlives the child.
    pub when_parent_dies: Option<Signal>,
}

/// Starts a local process and returns at once; the caller waits for it.
pub fn spawn(command: &CommandLine, ties: Ties) -> Result<Child, ExecError> {
    let mut process = command.to_command();
    process.stdin(ties.stdin).stdout(ties.stdout).stderr(ties.stderr);
    if ties.own_group {
        process.process_group(0);
    }
    if let Some(signal) = ties.when_parent_dies {
        arm_parent_death_signal(&mut process, signal);
    }
    process.spawn().map_err(|source| ExecError::Start { command: command.to_string(), source })
}

/// Becomes the program, with the same process id and streams; returns only if that cannot be.
pub fn replace_self(command: &CommandLine) -> ExecError {
    let source = command.to_command().exec();
    ExecError::Start { command: command.to_string(), source }
}

/// The kernel forgets the setting at setuid, so it is made between that and exec.
#[allow(unsafe_code)]
fn arm_parent_death_signal(process: &mut Command, signal: Signal) {
    let parent = getpid();
    let arm = move || {
        set_parent_process_death_signal(Some(signal))?;
        // It may have died before the line above; then no signal will ever come.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: the closure runs in the child of a fork, where only async-signal-safe
    // calls are allowed: it makes two plain system calls and allocates nothing.
    unsafe {
        process.pre_exec(arm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_exit_status_are_told_apart() {
        let both = CommandLine::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]);
        let output = Local.output(&both).unwrap();
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(output.status.code(), Some(3));

        let error = Local.run(&both).unwrap_err().to_string();
        assert_eq!(
            error,
            "`sh -c 'echo out; echo err >&2; exit 3'` ended with exit status: 3: err"
        );
    }

    #[test]
    fn time_limits_end_a_command_and_leave_a_quick_one_alone() {
        let quick = CommandLine::new("sh").args(["-c", "echo out; exit 3"]);
        let output = Local.output(&quick.timeout(Duration::from_secs(60))).unwrap();
        assert_eq!((output.stdout.as_str(), output.status.code()), ("out\n", Some(3)));

        let slow = CommandLine::new("sleep").arg("600").timeout(Duration::from_millis(20));
        let error = Local.output(&slow).unwrap_err().to_string();
        assert_eq!(error, "`sleep 600` did not end within 0.02 s");
        // The pipe is held open by a grandchild that outlives the killed shell.
        let held = CommandLine::new("sh").args(["-c", "sleep 2 & wait"]);
        assert!(Local.output(&held.timeout(Duration::from_millis(20))).is_err());
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Local.run(&CommandLine::new("/nonexistent/x")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `/nonexistent/x`");
    }

    #[test]
    fn environment_is_hidden_by_prefix_and_set_by_name() {
        // CARGO_MANIFEST_DIR is set by cargo for tests.
        let show = CommandLine::new("sh")
            .args(["-c", "echo ${CARGO_MANIFEST_DIR-none} $MINE"])
            .hide_env("CARGO")
            .env("MINE", "yes");
        assert_eq!(Local.run(&show).unwrap(), "none yes\n");
    }
}
