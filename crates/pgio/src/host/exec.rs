//! Starting processes: the only module in the crate that does.
//!
//! A [`CommandLine`] is plain data. [`Exec`] runs one to its end, on this machine
//! ([`Local`]) or on any host (`host::Host`); tests put a fake behind it. [`spawn`] starts a
//! process that lives on, which only makes sense locally.
//!
//! Arguments reach the program as they are, here and over ssh.
//! Next: [`super::machine`], and `pg::private`, which runs its servers through here.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::error::HostError;

/// Whom a command runs as; supplementary groups are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    pub uid: u32,
    pub gid: u32,
}

/// A program with its arguments and surroundings.
#[derive(Debug, Clone)]
pub struct CommandLine {
    program: OsString,
    args: Vec<OsString>,
    ids: Option<Ids>,
    directory: Option<PathBuf>,
    set: Vec<(OsString, OsString)>,
    hidden_prefix: Option<&'static str>,
    timeout: Option<Duration>,
}

impl CommandLine {
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            ids: None,
            directory: None,
            set: Vec::new(),
            hidden_prefix: None,
            timeout: None,
        }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// `None` keeps the present user.
    #[must_use]
    pub fn run_as(mut self, ids: Option<Ids>) -> Self {
        self.ids = ids;
        self
    }

    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.set.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Keeps variables whose names begin so from the program.
    #[must_use]
    pub fn hide_env(mut self, prefix: &'static str) -> Self {
        self.hidden_prefix = Some(prefix);
        self
    }

    /// How long [`Exec::output`] waits before it ends the program; absent: as long as it takes.
    /// Over ssh only the waiting ends: the program there runs on.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    pub fn program(&self) -> &OsStr {
        &self.program
    }

    pub(super) fn timeout_is(&self) -> Option<Duration> {
        self.timeout
    }

    /// One line for the login shell of another host, which must be of POSIX's kind.
    pub(super) fn for_a_shell(&self) -> Result<String, ExecError> {
        if self.ids.is_some() {
            let message = "another user is possible on this machine only";
            let source = io::Error::new(io::ErrorKind::Unsupported, message);
            return Err(ExecError::Start { command: self.to_string(), source });
        }
        let cd = self.directory.as_ref().map_or_else(String::new, |directory| {
            format!("cd {} && ", quoted(directory.as_os_str()))
        });
        let set: String = self
            .set
            .iter()
            .map(|(name, value)| format!("{}={} ", name.to_string_lossy(), quoted(value)))
            .collect();
        let env = if set.is_empty() { "" } else { "env " };
        Ok(format!("{cd}exec {env}{set}{self}"))
    }

    fn to_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        if let Some(prefix) = self.hidden_prefix {
            for (name, _) in env::vars_os() {
                if name.as_encoded_bytes().starts_with(prefix.as_bytes()) {
                    command.env_remove(name);
                }
            }
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        if let Some(ids) = self.ids {
            command.uid(ids.uid).gid(ids.gid);
        }
        command
    }
}

/// As one would type it, near enough to try it again by hand.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

pub(crate) fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

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
    let ended = match command.timeout {
        None => child.wait_with_output().map(Some),
        Some(limit) => wait_within(child, limit),
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

/// `None` when time is up; the process is killed then, and what it started is not waited for.
fn wait_within(mut child: Child, limit: Duration) -> io::Result<Option<process::Output>> {
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
    fn a_line_for_another_shell_keeps_words_directory_and_variables() {
        let line = CommandLine::new("printf")
            .args(["%s|", "it's", "$HOME", "two\nlines", ""])
            .env("X", "a b")
            .directory(Path::new("/"));
        let text = line.for_a_shell().unwrap();
        let said = Local.run(&CommandLine::new("sh").args(["-c", text.as_str()])).unwrap();
        assert_eq!(said, "it's|$HOME|two\nlines||");
        let shown = CommandLine::new("sh").args(["-c", "echo $X; pwd"]).env("X", "a b");
        let text = shown.directory(Path::new("/")).for_a_shell().unwrap();
        let said = Local.run(&CommandLine::new("sh").args(["-c", text.as_str()])).unwrap();
        assert_eq!(said, "a b\n/\n");
        let other = line.run_as(Some(Ids { uid: 1, gid: 1 }));
        assert!(other.for_a_shell().is_err(), "never silently as someone else");
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

    #[test]
    fn words_are_quoted_for_a_shell() {
        let line = CommandLine::new("a").args(["b c", "", "it's", "x=/y"]).to_string();
        assert_eq!(line, r"a 'b c' '' 'it'\''s' x=/y");
    }
}
