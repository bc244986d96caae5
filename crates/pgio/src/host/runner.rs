//! Runs commands on another host, one at a time, through one persistent `sh`.
//!
//! An ssh session per command costs the measured host a login: on a small virtual machine 0.2 s of
//! processor time, three times as much as with this module. Output and exit status are the same as
//! with a separate session. Use it only for pgio's own commands: none of them leaves a background
//! process that would write into the reply to the next command. Next: [`super::ssh`] opens a runner,
//! and uses separate sessions while it is busy.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use super::command::encode;
use super::error::HostError;
use super::exec::{CommandLine, ExecError, Output};
use super::marks::Marks;
use super::shell::{self, Shell};

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

/// Returns the script that ssh must run on the host.
pub(super) fn script(marks: &Marks) -> String {
    shell::script(marks, ":", &body())
}

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
        let limit = command.limit().unwrap_or(NO_TIMEOUT);
        let answer = match self.shell.ask(&encode(&command.to_shell_line()?), limit) {
            Ok(answer) => answer.text,
            Err(ExecError::Host(HostError::Silent { .. })) => {
                return Err(ExecError::TimedOut { command: command.to_string(), limit });
            }
            Err(other) => return Err(other),
        };
        let status = self.shell.marks().printed(STATUS);
        parse(&answer, &status).ok_or_else(|| shell::lost(self.shell.host(), &answer).into())
    }
}

fn parse(answer: &str, mark: &str) -> Option<Output> {
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
    use crate::host::exec::{Exec, Local};

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
