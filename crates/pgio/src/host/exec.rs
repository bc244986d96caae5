//! Starts processes; no other module in the crate does.
//!
//! [`Exec`] runs a [`CommandLine`] to completion, on this machine ([`Local`]) or on any host
//! (`host::Host`); tests use a fake. [`spawn`] starts a background process, which is supported only
//! locally.
//!
//! Programs receive their arguments unchanged, locally and over ssh.
//! Next: [`super::machine`]; `pg::private` starts its servers with this module.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;
use rustix::fs::OFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal, setsid,
};

use super::command::refused;
use super::machine::HostError;
use crate::exit_code::{CONNECT, HasExitCode};

pub use super::command::{CommandLine, Ids};

/// How long a program may stay open for writing, see [`start`]: a child holds it from its fork to its exec.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for `test -e`, which never returns on a hung file system.
const EXISTS_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a command.
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
    #[error("`{command}` failed with {status}: {stderr}")]
    Failed { command: String, status: ExitStatus, stderr: String },
    #[error("`{command}` did not finish within {} s", limit.as_secs_f64())]
    TimedOut { command: String, limit: Duration },
    #[error(transparent)]
    Host(#[from] HostError),
}

impl HasExitCode for ExecError {
    fn code(&self) -> u8 {
        CONNECT
    }
}

impl ExecError {
    /// Describes why a command did not run to its end, without its words, which may be secret; continues
    /// "the command". None: the error shows no words.
    pub fn without_words(&self) -> Option<String> {
        match self {
            ExecError::TimedOut { limit, .. } => {
                Some(format!("did not finish within {} s", limit.as_secs_f64()))
            }
            ExecError::Start { source, .. } => Some(format!("cannot start: {source}")),
            ExecError::Failed { status, .. } => Some(format!("failed with {status}")),
            ExecError::Host(_) => None,
        }
    }
}

/// Runs commands to completion on some host.
pub trait Exec: Send + Sync {
    /// Waits for the command and returns its output for any exit status.
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError>;

    /// Like [`Exec::output`], but an exit status other than 0 is an error. Returns stdout.
    fn run(&self, command: &CommandLine) -> Result<String, ExecError> {
        let output = self.output(command)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        // Some tools print errors only on stdout.
        let streams = [output.stderr.trim(), output.stdout.trim()];
        let stderr = streams.into_iter().find(|s| !s.is_empty()).unwrap_or("no output");
        Err(ExecError::Failed {
            command: command.to_string(),
            status: output.status,
            stderr: stderr.to_owned(),
        })
    }

    /// Returns whether the path exists on the host.
    fn exists(&self, path: &Path) -> Result<bool, ExecError> {
        let test = CommandLine::new("test").arg("-e").arg(path).timeout(EXISTS_TIMEOUT);
        Ok(self.output(&test)?.status.success())
    }
}

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

impl Exec for Local {
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
        run_to_end(command, None)
    }
}

/// This machine; a command gets the signal when the thread that runs it ends, even by kill -9.
#[derive(Debug, Clone, Copy)]
pub struct Tied(pub Signal);

impl Exec for Tied {
    fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
        run_to_end(command, Some(self.0))
    }
}

pub(super) fn run_to_end(
    command: &CommandLine,
    parent_death_signal: Option<Signal>,
) -> Result<Output, ExecError> {
    let options = SpawnOptions {
        stdin: if command.input_text().is_some() { Stdio::piped() } else { Stdio::null() },
        stdout: Stdio::piped(),
        stderr: Stdio::piped(),
        parent_death_signal,
    };
    let mut child = spawn(command, options)?;
    let written = command.input_text().map_or(Ok(()), |text| write_input(&mut child, text));
    let ended = match (written, command.timeout) {
        (Err(error), _) => end(child).and(Err(error)),
        (Ok(()), None) => child.wait_with_output().map(Some),
        (Ok(()), Some(limit)) => wait_within(child, limit),
    };
    let failed = |source| ExecError::Start { command: command.to_string(), source };
    let Some(output) = ended.map_err(failed)? else {
        let limit = command.timeout.unwrap_or_default();
        return Err(ExecError::TimedOut { command: command.to_string(), limit });
    };
    Ok(Output {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn write_input(child: &mut Child, text: &str) -> io::Result<()> {
    let Some(mut stdin) = child.stdin.take() else { return Ok(()) };
    let text = text.to_owned();
    // A command that does not read all of it reports its own error.
    in_thread("input", move || drop(stdin.write_all(text.as_bytes())))
}

/// Waits for the process until the limit; on timeout, kills its process group and returns `None`.
fn wait_within(mut child: Child, limit: Duration) -> io::Result<Option<process::Output>> {
    let deadline = Instant::now() + limit;
    let streams = (child.stdout.take().map(collect), child.stderr.take().map(collect));
    let (Some(Ok(stdout)), Some(Ok(stderr))) = streams else {
        end(child)?;
        return Err(io::Error::other("cannot start a thread to read its output"));
    };
    let read = |from: Receiver<Vec<u8>>| {
        from.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    };
    if let (Some(stdout), Some(stderr)) = (read(stdout), read(stderr))
        && let Some(status) = wait_until(&mut child, deadline)?
    {
        return Ok(Some(process::Output { status, stdout, stderr }));
    }
    end(child).map(|()| None)
}

/// Kills the process with its process group: child processes would continue otherwise.
fn end(mut child: Child) -> io::Result<()> {
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    child.kill()?;
    child.wait().map(drop)
}

/// Waits for the process; returns `None` if it still runs at the deadline.
pub(super) fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn collect(mut from: impl Read + Send + 'static) -> io::Result<Receiver<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    in_thread("output", move || {
        let mut bytes = Vec::new();
        // Output read before an error is still useful.
        let _ = from.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    })?;
    Ok(receiver)
}

/// Unlike `thread::spawn`, reports a limit of processes (RLIMIT_NPROC) as an error.
pub fn in_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Options of a background process.
#[derive(Debug)]
pub struct SpawnOptions {
    pub stdin: Stdio,
    pub stdout: Stdio,
    pub stderr: Stdio,
    /// Signal that the kernel sends when the THREAD that called [`spawn`] ends.
    /// Call `spawn` from the main thread, or from one that outlives the child.
    pub parent_death_signal: Option<Signal>,
}

/// Starts a local process and returns immediately; the caller waits for it.
///
/// It has a session of its own without a terminal. It may be a program of another user, who could push keystrokes
/// into a terminal that controls its session (TIOCSTI), and a Ctrl-C there must not interrupt a mount or the start
/// of a server.
pub fn spawn(command: &CommandLine, options: SpawnOptions) -> Result<Child, ExecError> {
    refuse_untrusted(command)?;
    let mut process = command.to_command();
    process.stdin(options.stdin).stdout(options.stdout).stderr(options.stderr);
    prepare(&mut process, options.parent_death_signal);
    start(&mut process).map_err(|source| ExecError::Start { command: command.to_string(), source })
}

/// Starts the process. Retries while the program is open for writing: if another thread forked while
/// this process wrote the file (a server just unpacked), that child keeps the descriptor until its exec.
fn start(process: &mut Command) -> io::Result<Child> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match process.spawn() {
            Err(e)
                if e.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// Replaces this process by the program (exec); returns only on failure.
pub fn replace_self(command: &CommandLine) -> ExecError {
    if let Err(error) = refuse_untrusted(command) {
        return error;
    }
    let source = command.to_command().exec();
    ExecError::Start { command: command.to_string(), source }
}

fn refuse_untrusted(command: &CommandLine) -> Result<(), ExecError> {
    match refused(&command.program) {
        Some(path) => Err(HostError::UntrustedProgram { path }.into()),
        None => Ok(()),
    }
}

/// Creates the session, and sets the parent death signal, between setuid, which would reset that, and exec.
#[allow(unsafe_code)]
fn prepare(process: &mut Command, parent_death_signal: Option<Signal>) {
    let parent = getpid();
    let prepare = move || {
        setsid()?;
        let Some(signal) = parent_death_signal else { return Ok(()) };
        set_parent_process_death_signal(Some(signal))?;
        // If the parent died before the line above, no signal will arrive.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: the closure runs in the child of a fork, where only async-signal-safe
    // calls are allowed: it makes plain system calls and allocates nothing.
    unsafe {
        process.pre_exec(prepare);
    }
}

/// Keeps descriptors that this process was started with from what it starts. Call it before the first thread.
#[allow(unsafe_code)]
pub fn close_inherited_on_exec() {
    let names = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let all = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for descriptor in all.filter(|fd| *fd > 2).collect::<Vec<i32>>() {
        // SAFETY: the descriptor is borrowed for one call. The one of the listing is closed by now, and that call fails.
        let _ = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(descriptor) }, FdFlags::CLOEXEC);
    }
}

/// The stderr of this process for a child. A terminal is opened again for writing only: from the inherited
/// descriptor, a program of another user could read what is typed there.
pub fn own_stderr() -> Stdio {
    if !io::stderr().is_terminal() {
        return Stdio::inherit();
    }
    let flags = OFlags::NOCTTY.bits().cast_signed();
    let terminal = File::options().write(true).custom_flags(flags).open("/proc/self/fd/2");
    terminal.map_or_else(|_| Stdio::inherit(), Stdio::from)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_program_that_is_still_open_for_writing_is_retried() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("true");
        fs::copy("/bin/true", &program).unwrap();
        let open = fs::OpenOptions::new().append(true).open(&program).unwrap();
        let closes = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(open);
        });
        Local.run(&CommandLine::new(&program)).unwrap();
        closes.join().unwrap();
    }

    #[test]
    fn output_returns_streams_and_exit_status() {
        let both = CommandLine::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]);
        let output = Local.output(&both).unwrap();
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(output.status.code(), Some(3));

        let error = Local.run(&both).unwrap_err().to_string();
        assert_eq!(
            error,
            "`sh -c 'echo out; echo err >&2; exit 3'` failed with exit status: 3: err"
        );
    }

    #[test]
    fn timeouts_kill_only_slow_commands() {
        let quick = CommandLine::new("sh").args(["-c", "echo out; exit 3"]);
        let output = Local.output(&quick.timeout(Duration::from_secs(60))).unwrap();
        assert_eq!((output.stdout.as_str(), output.status.code()), ("out\n", Some(3)));

        let slow = CommandLine::new("sleep").arg("600").timeout(Duration::from_millis(20));
        let error = Local.output(&slow).unwrap_err().to_string();
        assert_eq!(error, "`sleep 600` did not finish within 0.02 s");
        // A grandchild that outlives the killed shell keeps the pipe open.
        let held = CommandLine::new("sh").args(["-c", "sleep 2 & wait"]);
        assert!(Local.output(&held.timeout(Duration::from_millis(20))).is_err());
    }

    #[test]
    fn a_command_has_a_session_of_its_own_without_a_terminal() {
        let own = "read -r pid name state parent group session tty rest </proc/self/stat; echo $((pid == session)) $tty";
        assert_eq!(Local.run(&CommandLine::new("sh").args(["-c", own])).unwrap(), "1 0\n");
    }

    #[test]
    fn errors_name_a_missing_program() {
        let error = Local.run(&CommandLine::new("/nonexistent/x")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `/nonexistent/x`");
    }

    #[test]
    fn environment_variables_are_hidden_by_prefix_and_set_by_name() {
        // cargo sets CARGO_MANIFEST_DIR for tests.
        let show = CommandLine::new("sh")
            .args(["-c", "echo ${CARGO_MANIFEST_DIR-none} $MINE"])
            .hide_env("CARGO")
            .env("MINE", "yes");
        assert_eq!(Local.run(&show).unwrap(), "none yes\n");
    }
}
