//! Starting processes: the only module in the crate that does.
//!
//! A [`CommandLine`] is plain data. [`Exec`] runs one to its end, on this machine
//! ([`Local`]) or, by another implementation, on a remote one; tests put a fake behind
//! it. [`spawn`] starts a process that lives on, which only makes sense locally.
//!
//! No shell is involved: arguments reach the program as they are.
//! Next: `pg::private` runs its servers through here.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

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

fn quoted(word: &OsStr) -> String {
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
}

/// Runs commands to their end, somewhere.
pub trait Exec {
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
        let output = command
            .to_command()
            .stdin(Stdio::null())
            .output()
            .map_err(|source| ExecError::Start { command: command.to_string(), source })?;
        Ok(Output {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
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
