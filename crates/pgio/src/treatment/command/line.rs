//! A command of the user's: a list of words, or a text for `sh`; and its output in few words.

use std::process::ExitStatus;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::host::exec::{CommandLine, Exec, ExecError, Output};
use crate::treatment::TreatmentError;
use crate::treatment::body::Body;

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
    ) -> Result<Result<Output, String>, TreatmentError> {
        let (program, args) =
            self.0.split_first().map_or(("true", [].as_slice()), |(p, a)| (p.as_str(), a));
        let command = CommandLine::new(program).args(args).timeout(limit);
        let command = match prior {
            Some(prior) => command.env("PGIO_PRIOR", prior),
            None => command,
        };
        match host.output(&command) {
            Ok(output) => Ok(Ok(output)),
            Err(ExecError::TimedOut { limit, .. }) => {
                Ok(Err(format!("did not end within {} s", limit.as_secs_f64())))
            }
            Err(ExecError::Start { source, .. }) => Ok(Err(format!("cannot be started: {source}"))),
            Err(other) => Err(other.into()),
        }
    }
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
