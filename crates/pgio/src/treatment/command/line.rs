//! A command of the user's: a list of words, or a text for `sh`; and its output in few words.
//!
//! One that changes something carries a mark among the arguments of a shell around it, which lives as
//! long as the command and no longer: what the command leaves running is none of it. So an undo finds
//! the command of a run that was killed, here and on other hosts.

use std::process::ExitStatus;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host::exec::{CommandLine, Exec, ExecError, Output};
use crate::host::{Host, HostError};
use crate::treatment::TreatmentError;
use crate::treatment::body::Body;

/// `$0` is the mark. Two commands, so that no shell puts the last one in its own place; and a program
/// that is not there is told without its line.
const MARKED: &str = "command -v \"$1\" >/dev/null || exit 127; \"$@\"; exit \"$?\"";
const NOT_THERE: i32 = 127;
const MARK: &str = "pgio-command-";

const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// Of output, as much is shown.
const SHOWN: usize = 200;

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

    /// The inner error is that it did not run to its end, without the line itself.
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
            Some(mark) => CommandLine::new("sh").args(["-c", MARKED, mark, program]),
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
            Err(ExecError::TimedOut { limit, .. }) => {
                Ok(Err(format!("did not end within {} s", limit.as_secs_f64())))
            }
            Err(ExecError::Start { source, .. }) => Ok(Err(format!("cannot be started: {source}"))),
            Err(other) => Err(other.into()),
        }
    }
}

/// Nobody else's, on any host.
pub(super) fn new_mark(host: &Host) -> Result<String, TreatmentError> {
    let draw = CommandLine::new("cat").arg("/proc/sys/kernel/random/uuid").timeout(LOOK_LIMIT);
    Ok(format!("{MARK}{}", host.run(&draw)?.trim()))
}

/// The processes that carry it, or whose command is not over.
pub(super) fn running(host: &Host, mark: &str) -> Result<Vec<String>, TreatmentError> {
    // A pattern that does not match itself, in the arguments of this very search.
    let pattern = mark.replacen('-', "[-]", 1);
    let search = "grep -ls -e \"$1\" /proc/[0-9]*/cmdline";
    let search = CommandLine::new("sh").args(["-c", search, "sh", &pattern]).timeout(LOOK_LIMIT);
    let said = host.output(&search)?.stdout;
    let pid = |path: &str| Some(path.strip_prefix("/proc/")?.strip_suffix("/cmdline")?.to_owned());
    Ok(said.lines().filter_map(pid).collect())
}

fn is_missing(output: &Output) -> bool {
    output.status.code() == Some(NOT_THERE) && output.stderr.is_empty()
}

/// Why it failed: its exit status, and what it said.
pub(super) fn said(output: &Output) -> String {
    let ended = ended(output.status);
    match [output.stderr.trim(), output.stdout.trim()].into_iter().find(|text| !text.is_empty()) {
        Some(text) => format!("{ended}: {}", short(text)),
        None => ended,
    }
}

fn ended(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("ends with exit status {code}"),
        None => format!("ends by {status}"),
    }
}

/// On one line, with its end, where programs give the reason.
pub(super) fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let length = line.chars().count();
    if length <= SHOWN {
        return line;
    }
    format!("… {}", line.chars().skip(length - SHOWN).collect::<String>())
}
