//! One command line of the user's: a list of words, or text for `sh`; and its output, shortened.
//!
//! A command that changes something runs below a shell with a mark among its arguments, which lives as
//! long as the command itself, but not as background processes that it starts. By the mark an undo finds
//! the command of a run that was killed, here and on other hosts.
//!
//! Words and prior value may be secret. No process shows them but the command's own, on its host:
//! the prior value is a variable, and ssh reads both from its stdin.

use std::process::ExitStatus;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host::exec::{CommandLine, Exec, ExecError, Output};
use crate::host::{Host, HostError};
use crate::treatment::body::Body;
use crate::treatment::error::TreatmentError;

/// `$0` is the mark. The exit comes after the command, or a shell would replace itself by the command;
/// a missing program is reported without the command line.
const MARKED_SCRIPT: &str = "command -v \"$1\" >/dev/null || exit 127; \"$@\"; exit \"$?\"";
const STATUS_NOT_FOUND: i32 = 127;
const MARK: &str = "pgio-command-";

const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// Characters of output that are shown.
const MAX_SHOWN: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line(Vec<String>);

impl Line {
    pub(super) fn read(body: &Body<'_>, key: &str) -> Result<Option<Line>, TreatmentError> {
        if body.is_text(key) {
            let words = |text: &str| ["sh", "-c", text].map(str::to_owned).to_vec();
            return Ok(body.text(key)?.map(|text| Line(words(text))));
        }
        Ok(body.texts(key)?.map(Line))
    }

    /// The inner error is the reason why it did not finish, without the command line.
    pub(super) fn output(
        &self,
        host: &Host,
        limit: Duration,
        prior: Option<&str>,
        mark: Option<&str>,
    ) -> Result<Result<Output, String>, TreatmentError> {
        let (program, args) =
            self.0.split_first().map_or(("true", [].as_slice()), |(p, a)| (p.as_str(), a));
        let command = match mark {
            None => CommandLine::new(program),
            Some(mark) => CommandLine::new("sh").args(["-c", MARKED_SCRIPT, mark, program]),
        };
        let command = command.args(args).timeout(limit).own_session();
        let command = match prior {
            Some(prior) => command.env("PGIO_PRIOR", prior),
            None => command,
        };
        match host.output(&command) {
            Ok(output) if is_missing(&output) && mark.is_some() => {
                let (host, program) = (host.name().to_owned(), program.to_owned());
                Err(ExecError::from(HostError::Missing { host, program }).into())
            }
            Ok(output) => Ok(Ok(output)),
            Err(error) => error.without_words().map(Err).ok_or_else(|| error.into()),
        }
    }
}

/// Returns a mark that is unique on all hosts.
pub(super) fn new_mark(host: &Host) -> Result<String, TreatmentError> {
    let draw = CommandLine::new("cat").arg("/proc/sys/kernel/random/uuid").timeout(LOOK_LIMIT);
    Ok(format!("{MARK}{}", host.run(&draw)?.trim()))
}

fn is_missing(output: &Output) -> bool {
    output.status.code() == Some(STATUS_NOT_FOUND) && output.stderr.is_empty()
}

/// Describes why a command failed: exit status and output.
pub(super) fn describe_failure(output: &Output) -> String {
    let ended = describe_status(output.status);
    match [output.stderr.trim(), output.stdout.trim()].into_iter().find(|text| !text.is_empty()) {
        Some(text) => format!("{ended}: {}", shorten(text)),
        None => ended,
    }
}

fn describe_status(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exited with status {code}"),
        None => format!("terminated by {status}"),
    }
}

/// Shortens output to one line; keeps the end, where programs give the reason.
pub(super) fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let length = line.chars().count();
    if length <= MAX_SHOWN {
        return line;
    }
    format!("… {}", line.chars().skip(length - MAX_SHOWN).collect::<String>())
}
