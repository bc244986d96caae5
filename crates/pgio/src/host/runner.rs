//! Commands of another host through one `sh` that lives on there, one after another.
//!
//! A session of ssh for each command costs the host a login, which is dear where commands are many and
//! the host is being measured: on a small virtual machine 0.2 s of its processor against a third of
//! that. What a command writes and how it ends arrive as they would over a session of its own. For pgio's own
//! commands, none of which leaves a process behind that would write into the answer to the next. Next:
//! [`super::ssh`], which opens one and does without where it is busy.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use super::error::HostError;
use super::exec::{CommandLine, ExecError, Output};
use super::shell::{self, Shell};

/// For a command without a limit.
const NO_LIMIT: Duration = Duration::from_secs(366 * 24 * 3600);

/// Stands between stdout and stderr; followed by the exit status.
const STATUS: &str = "--pgio-status-- ";

/// `$ask` is a command for `printf %b`. Its stdout goes through; its stderr is kept, and the status
/// with it, behind a space.
fn body() -> String {
    format!(
        r#"exec 3>&1
said=$( (eval "$(printf %b "$ask")") 2>&1 1>&3 3>&- </dev/null; echo " $?")
exec 3>&-
echo "{STATUS}${{said##* }}"
printf %s "${{said% *}}""#
    )
}

/// What `ssh` has to run there for it.
pub(super) fn script() -> String {
    shell::script(":", &body())
}

#[derive(Debug)]
pub(super) struct Runner {
    shell: Shell,
}

impl Runner {
    pub(super) fn over(shell: Shell) -> Runner {
        Runner { shell }
    }

    /// Where it is not, the next command needs another one.
    pub(super) fn is_alive(&mut self) -> bool {
        self.shell.is_alive()
    }

    /// After an error it is of no more use: what it was asked for may go on there.
    pub(super) fn output(&mut self, command: &CommandLine) -> Result<Output, ExecError> {
        let limit = command.limit().unwrap_or(NO_LIMIT);
        let answer = match self.shell.ask(&one_line(&command.for_a_shell()?), limit) {
            Ok(answer) => answer.text,
            Err(ExecError::Host(HostError::Silent { .. })) => {
                return Err(ExecError::TimedOut { command: command.to_string(), limit });
            }
            Err(other) => return Err(other),
        };
        parse(&answer).ok_or_else(|| shell::lost(self.shell.host(), &answer).into())
    }
}

/// As `printf %b` reads it; the ends are kept from `read`.
fn one_line(command: &str) -> String {
    command.replace('\\', r"\\").replace('\n', r"\n").replace('\t', r"\t").replace(' ', r"\0040")
}

fn parse(answer: &str) -> Option<Output> {
    let (stdout, rest) = answer.rsplit_once(STATUS)?;
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
    use crate::host::exec::{Exec, Local};

    fn runner() -> Runner {
        Runner::over(Shell::start(&Host::local(), ":", &body()).unwrap())
    }

    fn sh(script: &str) -> CommandLine {
        CommandLine::new("sh").args(["-c", script])
    }

    #[test]
    fn a_command_ends_and_says_what_it_would_by_itself() {
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
            let (found, alone) = (runner.output(&command).unwrap(), Local.output(&command));
            let Ok(alone) = alone else {
                assert_eq!(found.status.code(), Some(127), "{found:?}");
                assert!(found.stderr.contains("not found"), "{found:?}");
                continue;
            };
            assert_eq!(found.stdout, alone.stdout, "{command}");
            assert_eq!(found.stderr.trim_end(), alone.stderr.trim_end(), "{command}");
            match alone.status.code() {
                Some(code) => assert_eq!(found.status.code(), Some(code), "{command}"),
                None => assert_eq!(found.status.code(), Some(128 + 15), "{command}"),
            }
        }
        assert!(runner.is_alive());
    }

    #[test]
    fn what_takes_too_long_is_said_and_what_ends_it_as_well() {
        let mut slow = runner();
        let command = sh("sleep 1; echo late").timeout(Duration::from_millis(50));
        let said = slow.output(&command).unwrap_err();
        assert!(matches!(said, ExecError::TimedOut { .. }), "{said}");
        let mut ended = Runner::over(Shell::start(&Host::local(), "echo $$", &body()).unwrap());
        let kill = format!("kill -KILL {}; sleep 5", ended.shell.greeting().trim());
        let said = ended.output(&sh(&kill)).unwrap_err().to_string();
        assert!(said.contains("broke off"), "{said}");
        assert!(!ended.is_alive());
    }
}
