//! A program with its arguments and surroundings: plain data, for this machine or for a shell's line.
//!
//! Starts nothing. Next: [`super::exec`], which does.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::exec::ExecError;

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
    apart: bool,
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
            apart: false,
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

    /// How long `Exec::output` waits before it ends the program; absent: as long as it takes.
    /// Over ssh only the waiting ends: the program there runs on.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Of the user's: on another host in a session of its own, in the locale of that, and with whatever
    /// it leaves running there waited for as long as that holds its output open.
    #[must_use]
    pub fn apart(mut self) -> Self {
        self.apart = true;
        self
    }

    pub(super) fn is_apart(&self) -> bool {
        self.apart
    }

    pub fn program(&self) -> &OsStr {
        &self.program
    }

    pub(super) fn limit(&self) -> Option<Duration> {
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

    pub(super) fn to_command(&self) -> Command {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::exec::{Exec, Local};

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
    fn words_are_quoted_for_a_shell() {
        let line = CommandLine::new("a").args(["b c", "", "it's", "x=/y"]).to_string();
        assert_eq!(line, r"a 'b c' '' 'it'\''s' x=/y");
    }
}
