//! A program with its arguments and environment: plain data, to run locally or in a remote shell.
//!
//! Starts no process. Next: [`super::exec`] starts processes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, fmt, io};

use rustix::process::geteuid;

use super::exec::ExecError;
use super::shell::{BEGIN, END, Marks};

/// User and group of a command; supplementary groups are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    pub uid: u32,
    pub gid: u32,
}

/// What a command reads from stdin, which other users of the host cannot see, unlike its arguments.
#[derive(Clone)]
struct Input(String);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Input(..)")
    }
}

/// A program with its arguments and environment.
#[derive(Debug, Clone)]
pub struct CommandLine {
    pub(super) program: OsString,
    args: Vec<OsString>,
    ids: Option<Ids>,
    directory: Option<PathBuf>,
    set: Vec<(OsString, OsString)>,
    hidden_prefix: Option<&'static str>,
    pub(super) timeout: Option<Duration>,
    pub(super) own_session: bool,
    input: Option<Input>,
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
            own_session: false,
            input: None,
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

    /// Sets the user; `None` keeps the current user.
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

    /// Removes variables with this prefix from the program's environment.
    #[must_use]
    pub fn hide_env(mut self, prefix: &'static str) -> Self {
        self.hidden_prefix = Some(prefix);
        self
    }

    /// Sets how long `Exec::output` waits before it kills the program; by default it waits forever.
    /// Over ssh only the wait ends: the remote program continues.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// For a command of the user, which may contain a secret. On another host it runs in a separate ssh
    /// session with that host's locale, and pgio waits for any background process that keeps its output
    /// open. Its words and variables go through the stdin of that session, so it takes no input.
    #[must_use]
    pub fn own_session(mut self) -> Self {
        self.own_session = true;
        self
    }

    /// Sets what the command reads from stdin, which is empty otherwise. For what may be secret.
    #[must_use]
    pub fn input(mut self, text: impl Into<String>) -> Self {
        self.input = Some(Input(text.into()));
        self
    }

    pub(crate) fn input_text(&self) -> Option<&str> {
        self.input.as_ref().map(|input| input.0.as_str())
    }

    /// Returns one line for the login shell of another host, which must be a POSIX shell.
    pub(super) fn to_shell_line(&self) -> Result<String, ExecError> {
        if self.ids.is_some() {
            let message = "changing the user is supported only on this machine";
            let source = io::Error::new(io::ErrorKind::Unsupported, message);
            return Err(ExecError::Start { command: self.to_string(), source });
        }
        let cd = self.directory.as_ref().map_or_else(String::new, |directory| {
            format!("cd {} && ", quoted(directory.as_os_str()))
        });
        // Not by env(1), whose arguments others can read.
        let set = self.set.iter().fold(String::new(), |set, (name, value)| {
            set + &format!("export {}={} && ", name.to_string_lossy(), quoted(value))
        });
        Ok(format!("{cd}{set}exec {self}"))
    }

    /// Returns a command that runs this one and prints marks before and after its output, on both streams. Unless the
    /// command has an input of its own, `sh` reads it from its stdin: the arguments of ssh are visible to every user of
    /// this machine.
    pub(super) fn between_marks(&self, marks: &Marks) -> Result<CommandLine, ExecError> {
        let input = if self.input.is_some() { "" } else { " </dev/null" };
        let text = format!(
            "{define}; printf {begin}; printf {begin} >&2\n({line}){input}\npgio_status=$?\n\
             printf {end}; printf {end} >&2; exit $pgio_status\n",
            define = marks.define(),
            begin = Marks::print(BEGIN, "''"),
            line = self.to_shell_line()?,
            end = Marks::print(END, "''"),
        );
        let sh = CommandLine::new("sh");
        let sh = match &self.input {
            // One line: nothing of it runs if the end of a connection cuts it off. A start-up file that reads a line
            // takes the empty one before it.
            None => {
                let word = quoted(OsStr::new(&encode(&text)));
                sh.input(format!("\neval \"$(printf %b {word})\"\n"))
            }
            Some(input) => sh.arg("-c").arg(text).input(input.0.as_str()),
        };
        Ok(match self.timeout {
            Some(limit) => sh.timeout(limit),
            None => sh,
        })
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
        if let Some(path) = secure_path() {
            command.env("PATH", path);
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

/// The command as a shell line, so that a user can run it by hand.
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

/// Encodes a command as one line for `printf %b`; encoded spaces survive `read` at both ends.
pub(super) fn encode(command: &str) -> String {
    command.replace('\\', r"\\").replace('\n', r"\n").replace('\t', r"\t").replace(' ', r"\0040")
}

const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// PATH for what this process starts; none if it runs as an ordinary user, who may trust any directory.
fn secure_path() -> Option<&'static OsStr> {
    static PATH: OnceLock<Option<OsString>> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let path = env::var_os("PATH").filter(|_| geteuid().is_root())?;
        env::join_paths(env::split_paths(&path).filter_map(|dir| vetted(&dir))).ok()
    });
    path.as_deref()
}

/// Where PATH has a program that root does not start: one that others can change, or in a directory that root does
/// not use if no other has it.
pub(super) fn refused(program: &OsStr) -> Option<PathBuf> {
    let path = secure_path()?;
    if program.is_empty() || program.as_encoded_bytes().contains(&b'/') {
        return None;
    }
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
    };
    let first = |path: &OsStr| env::split_paths(path).map(|dir| dir.join(program)).find(is_program);
    match first(path) {
        Some(found) => Some(found).filter(|found| !is_safe_program(found)),
        None => first(&env::var_os("PATH")?),
    }
}

/// Whether nobody but root can change the program, or put another in its place.
fn is_safe_program(path: &Path) -> bool {
    let Ok(real) = fs::canonicalize(path) else { return false };
    let is_safe = fs::metadata(&real).is_ok_and(|file| is_safe(&file));
    is_safe && real.parent().is_some_and(|directory| vetted(directory).is_some())
}

/// Whether only root can write to it.
fn is_safe(found: &Metadata) -> bool {
    let by_group = found.mode() & GROUP_WRITE != 0 && has_members(found.gid());
    found.uid() == 0 && found.mode() & OTHERS_WRITE == 0 && !by_group
}

/// The directory without links, which others could turn elsewhere; none if others can change what it holds.
fn vetted(directory: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(directory).ok().filter(|_| directory.is_absolute())?;
    let is_safe = |at: &Path| {
        let Ok(found) = fs::metadata(at) else { return false };
        // With the sticky bit, others cannot replace what root has there.
        let is_shared = at != real && found.mode() & STICKY != 0 && found.uid() == 0;
        found.is_dir() && (is_shared || is_safe(&found))
    };
    real.ancestors().all(is_safe).then_some(real)
}

/// Whether anyone but root is in a group. /usr/local/bin of some systems is writable by an empty one.
fn has_members(gid: u32) -> bool {
    let gid = gid.to_string();
    let any = |file: &str, matches: &dyn Fn(&[&str]) -> bool| {
        let text = fs::read(file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().any(|line| matches(&line.split(':').collect::<Vec<_>>()))
    };
    any("/etc/passwd", &|user| user.get(3) == Some(&gid.as_str()) && user.get(2) != Some(&"0"))
        || any("/etc/group", &|group| {
            group.get(2) == Some(&gid.as_str())
                && group.get(3).is_some_and(|names| !["", "root"].contains(&names.trim()))
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;
    use crate::host::exec::{Exec, Local};

    #[test]
    fn shell_lines_keep_words_directory_and_variables() {
        let line = CommandLine::new("printf")
            .args(["%s|", "it's", "$HOME", "two\nlines", ""])
            .env("X", "a b")
            .directory(Path::new("/"));
        let text = line.to_shell_line().unwrap();
        let output = Local.run(&CommandLine::new("sh").args(["-c", text.as_str()])).unwrap();
        assert_eq!(output, "it's|$HOME|two\nlines||");
        let echo = CommandLine::new("sh").args(["-c", "echo $X; pwd"]).env("X", "a b");
        let text = echo.directory(Path::new("/")).to_shell_line().unwrap();
        let output = Local.run(&CommandLine::new("sh").args(["-c", text.as_str()])).unwrap();
        assert_eq!(output, "a b\n/\n");
        let other = line.run_as(Some(Ids { uid: 1, gid: 1 }));
        assert!(other.to_shell_line().is_err(), "the user is never ignored silently");
    }

    #[test]
    fn a_command_between_marks_is_the_same_and_not_shown() {
        let line = CommandLine::new("sh")
            .args(["-c", "printf '%s|' \"$A\" \"$@\"; cat; exit 3", "sh", "it's", "two\nlines", ""])
            .env("A", "$HOME \"geheim\"");
        let marks = Marks::new();
        let through = line.between_marks(&marks).unwrap();
        assert!(!format!("{through} {through:?}").contains("geheim"));
        let (found, expected) = (Local.output(&through).unwrap(), Local.output(&line).unwrap());
        assert_eq!(marks.between(&found.stdout), Some(expected.stdout.as_str()));
        assert_eq!(marks.between(&found.stderr), Some(expected.stderr.as_str()));
        assert_eq!(found.status.code(), Some(3));
        let killed = CommandLine::new("sh").args(["-c", "kill -KILL $$"]);
        let killed = Local.output(&killed.between_marks(&marks).unwrap()).unwrap();
        assert_eq!(
            (killed.status.code(), marks.between(&killed.stdout)),
            (Some(128 + 9), Some(""))
        );
        for start_up in ["exec 2>&1; echo hi", "read line", "echo 'no end\\c'", "set -efuC"] {
            let text = format!("{start_up}; exec sh");
            let login = CommandLine::new("sh").arg("-c").arg(text);
            let prints =
                CommandLine::new("sh").args(["-c", "printf 'it'\\''s\\n\\t\\\\%s \n' 5 'a  b'"]);
            let through = prints.between_marks(&marks).unwrap();
            let found = Local.run(&login.input(through.input_text().unwrap())).unwrap();
            assert_eq!(marks.between(&found), Some(&*Local.run(&prints).unwrap()), "{start_up}");
        }
        let reads = CommandLine::new("cat").input("a\nb").between_marks(&marks).unwrap();
        assert_eq!(marks.between(&Local.run(&reads).unwrap()), Some("a\nb"));
    }

    #[test]
    fn a_command_that_is_cut_off_does_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("made");
        let line = CommandLine::new("touch").arg(&file).between_marks(&Marks::new()).unwrap();
        let text = line.input_text().unwrap();
        for length in 0..text.len() - 1 {
            let cut = CommandLine::new("sh").input(&text[..length]);
            Local.output(&cut).unwrap();
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{length}");
        }
        Local.run(&line).unwrap();
        assert!(file.exists());
    }

    #[test]
    fn input_is_read_from_stdin_and_never_shown() {
        let line = CommandLine::new("cat").input("geheim\n");
        assert_eq!(Local.run(&line).unwrap(), "geheim\n");
        assert!(!format!("{line} {line:?}").contains("geheim"));
        let long = "x".repeat(1 << 20);
        assert_eq!(Local.run(&CommandLine::new("cat").input(long.as_str())).unwrap(), long);
        assert!(Local.run(&CommandLine::new("true").input(long)).is_ok(), "it reads nothing");
    }

    #[test]
    fn display_quotes_words() {
        let line = CommandLine::new("a").args(["b c", "", "it's", "x=/y"]).to_string();
        assert_eq!(line, r"a 'b c' '' 'it'\''s' x=/y");
    }

    #[test]
    fn root_looks_only_where_nobody_else_can_put_a_program() {
        assert!(vetted(Path::new("/usr/bin")).is_some());
        assert_eq!((vetted(Path::new("")), vetted(Path::new("usr"))), (None, None));
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (outer, bin, link) =
            (dir.path().join("outer"), dir.path().join("outer/bin"), dir.path().join("l"));
        fs::create_dir_all(&bin).unwrap();
        symlink(&bin, &link).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for (mode, is_used) in [(0o755, true), (0o777, false), (0o1777, false)] {
            set(&bin, mode);
            assert_eq!(vetted(&bin).is_some(), is_used, "{mode:o}");
        }
        set(&bin, 0o755);
        assert_eq!(vetted(&link), vetted(&bin));
        set(&outer, 0o1777);
        assert!(vetted(&bin).is_some(), "as below /tmp");
        let (program, ours) = (bin.join("program"), outer.join("ours"));
        fs::write(&program, "").unwrap();
        symlink(&program, &ours).unwrap();
        let are_safe = || [&program, &ours].map(|path| is_safe_program(path));
        for (mode, safe) in [(0o755, true), (0o757, false), (0o755, true)] {
            set(&program, mode);
            assert_eq!(are_safe(), [safe; 2], "{mode:o}");
        }
        for owned in [&outer, &bin, &program] {
            chown(owned, Some(65534), None).unwrap();
            assert_eq!(are_safe(), [false; 2], "{}", owned.display());
            chown(owned, Some(0), None).unwrap();
        }
        for owned in [&outer, &bin] {
            chown(owned, Some(65534), None).unwrap();
            assert_eq!((vetted(&bin), vetted(&link)), (None, None), "{}", owned.display());
            chown(owned, Some(0), None).unwrap();
        }
    }
}
