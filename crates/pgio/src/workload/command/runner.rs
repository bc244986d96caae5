//! Runs a command's lines on a host one after the other, through one shell.
//!
//! The shell ends its processes and removes its directory when its stdin closes: when the runner is
//! dropped, when pgio is killed, or when the connection breaks. Each line is a process group, polled so
//! that it can be stopped at any moment. Variables are sent through the shell's stdin, not in an
//! argument that others can read; a secret is masked in all output.

use std::ffi::OsStr;
use std::thread;
use std::time::{Duration, Instant};

use super::error::CommandError;
use super::output::{Output, cause_of_failure};
use super::programs::{SEARCH_PATH, without_shell};
use crate::config::command::CommandSettings;
use crate::host::command::quoted;
use crate::host::error::HostError;
use crate::host::exec::ExecError;
use crate::host::stop::Stop;
use crate::host::{Host, Shell};

const PRELUDE: &str = include_str!("runner.sh");
const BODY: &str = include_str!("question.sh");

/// The shell answers at once, even while its program runs; a long output takes a while.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// From TERM to KILL, and from KILL to giving up.
const GRACE: Duration = Duration::from_secs(5);
/// Interval at which the last line of output is read.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Replaces a password.
const MASK: &str = "***";

#[derive(Debug)]
pub(super) struct Runner {
    shell: Shell,
    host: String,
    /// A directory on the host, removed with the runner.
    pub(super) dir: String,
    secret: Option<pgio_connect::Secret>,
}

/// Returns the longest time that a program may take, from its start until its output is there: its limit, two signals,
/// and as long for answers of the shell.
pub(in crate::workload) fn longest_run(settings: &CommandSettings) -> Duration {
    settings.time_limit.saturating_add(2 * (GRACE + ANSWER_LIMIT))
}

/// A line to be run.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// The key of the line, such as `setup`.
    pub(super) key: &'static str,
    pub(super) argv: Vec<String>,
    pub(super) limit: Duration,
    /// The key that sets the limit.
    pub(super) limit_key: &'static str,
}

/// A program's output, and its duration or the error.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) seconds: Result<f64, CommandError>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

enum State {
    Running(String),
    Ended {
        status: i32,
        seconds: f64,
    },
    /// A signal that the program did not send itself.
    Gone,
}

impl Runner {
    pub(super) fn open(host: &Host) -> Result<Runner, CommandError> {
        // The user's own variables could lead a program to another server.
        let ours: Vec<&str> = pgio_connect::variables().collect();
        let head = format!("unset {}\n", ours.join(" "));
        let shell = Shell::start(host, &(head + SEARCH_PATH + PRELUDE), BODY)?;
        let greeting = shell.greeting().trim_end_matches('\n').to_owned();
        let (host, secret) = (host.name().to_owned(), None);
        match greeting.split_once(' ') {
            Some(("ready", dir)) => Ok(Runner { shell, host, dir: dir.to_owned(), secret }),
            Some(("missing", program)) => {
                Err(CommandError::Missing { program: program.to_owned(), host })
            }
            _ => {
                let why = greeting.trim_start_matches("failed ");
                Err(CommandError::Refused(format!(
                    "cannot create a directory on host {host}: {why}"
                )))
            }
        }
    }

    /// Sets a variable for every line.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), CommandError> {
        self.set_word(name, &quote_word(value))
    }

    fn set_word(&mut self, name: &str, word: &str) -> Result<(), CommandError> {
        self.shell.ask(&format!("set {name}={word}"), ANSWER_LIMIT)?;
        Ok(())
    }

    pub(super) fn set_secret(
        &mut self,
        name: &str,
        value: pgio_connect::Secret,
    ) -> Result<(), CommandError> {
        let word = match str::from_utf8(value.expose()) {
            Ok(text) => quote_word(text),
            // A question is text, and the shell can make the bytes.
            Err(_) => {
                let octal = value.expose().iter().map(|byte| format!("\\{byte:03o}"));
                format!("\"$(printf '{}')\"", octal.collect::<String>())
            }
        };
        self.set_word(name, &word)?;
        self.secret = Some(value).filter(|value| !value.expose().is_empty());
        Ok(())
    }

    /// Returns a file that the last line wrote; the inner error gives the reason why it is missing.
    pub(super) fn file(&mut self, path: &str) -> Result<Result<String, String>, CommandError> {
        let text = self.shell.ask(&format!("file {}", quote_word(path)), ANSWER_LIMIT)?.text;
        let (word, text) = text.split_once('\n').unwrap_or((text.as_str(), ""));
        Ok(match word {
            "here" => Ok(self.mask_secret(text)),
            "old" => Err(format!(
                "the file {path} is older than this run; find out why it was not written, or correct file"
            )),
            _ => Err(format!(
                "the file {path} does not exist on host {}; find out why it was not written, or correct file",
                self.host
            )),
        })
    }

    /// Runs a line to its end. `tick` is called often with the time of the start and the last output.
    pub(super) fn run(
        &mut self,
        job: &Job,
        stop: &Stop,
        tick: &mut dyn FnMut(Instant, &str),
    ) -> Result<Done, CommandError> {
        let words: Vec<String> = job.argv.iter().map(|a| quote_word(a)).collect();
        let answer = self.shell.ask(&format!("run {}", words.join(" ")), ANSWER_LIMIT)?;
        let began = answer.middle();
        let mut state = State::parse(&answer.text);
        let (mut line, mut line_read_at) = (String::new(), began);
        let ended = loop {
            match state {
                State::Running(more) if !more.is_empty() => line = self.mask_secret(&more),
                State::Running(_) => {}
                State::Ended { status: 0, seconds } => break Ok(seconds),
                State::Ended { status, .. } => break Err(Some(status)),
                State::Gone => break Err(None),
            }
            if stop.requested() {
                self.end(stop)?;
                return self.collect_output(Err(CommandError::Stopped));
            }
            if began.elapsed() > job.limit {
                self.end(stop)?;
                let done = self.collect_output(Ok(0.0))?;
                let seconds = Err(job.timed_out(&done));
                return Ok(Done { seconds, ..done });
            }
            tick(began, &line);
            // Poll often while the line may be short, and rarely enough not to disturb a long one.
            let pause = began.elapsed() / 8;
            thread::sleep(pause.clamp(Duration::from_millis(10), Duration::from_millis(100)));
            let question = if line_read_at.elapsed() >= LINE_INTERVAL { "line" } else { "" };
            if !question.is_empty() {
                line_read_at = Instant::now();
            }
            state = State::parse(&self.shell.ask(question, ANSWER_LIMIT)?.text);
        };
        let done = self.collect_output(Ok(0.0))?;
        let seconds = match ended {
            Ok(seconds) => Ok(seconds),
            // A Ctrl-C that came just before the end is not the program's failure.
            Err(_) if stop.requested() => Err(CommandError::Stopped),
            Err(status) => Err(job.failed(status, &done)),
        };
        Ok(Done { seconds, ..done })
    }

    /// Sends TERM, then KILL to a program that ignores it.
    fn end(&mut self, stop: &Stop) -> Result<(), CommandError> {
        for signal in ["TERM", "KILL"] {
            let asked = Instant::now();
            let mut question = format!("stop {signal}");
            loop {
                let answer = self.shell.ask(&question, ANSWER_LIMIT)?.text;
                if !matches!(State::parse(&answer), State::Running(_)) {
                    return Ok(());
                }
                if asked.elapsed() > GRACE || stop.urgent() && signal == "TERM" {
                    break;
                }
                question.clear();
                thread::sleep(Duration::from_millis(20));
            }
        }
        let silent = HostError::Silent { host: "the command".to_owned(), limit: GRACE };
        Err(ExecError::from(silent).into())
    }

    fn collect_output(&mut self, seconds: Result<f64, CommandError>) -> Result<Done, CommandError> {
        let mut read = |which: &str| -> Result<String, CommandError> {
            let text = self.shell.ask(which, ANSWER_LIMIT)?.text;
            Ok(self.mask_secret(&text))
        };
        Ok(Done { stdout: read("out")?, stderr: read("err")?, seconds })
    }

    /// Masks only a long secret, because a short one occurs in every text.
    pub(super) fn mask_secret(&self, text: &str) -> String {
        mask_secret(text, self.secret.as_ref())
    }
}

pub(super) fn mask_secret(text: &str, secret: Option<&pgio_connect::Secret>) -> String {
    secret.map_or_else(|| text.to_owned(), |secret| secret.hidden_in(text, MASK))
}

impl State {
    /// Parses `running`, optionally with the last output; `ended STATUS BEGUN ENDED`; `gone`.
    fn parse(answer: &str) -> State {
        let (head, rest) = answer.split_once('\n').unwrap_or((answer, ""));
        let mut words = head.split_whitespace();
        match words.next() {
            Some("running") => {
                let line = rest.split(['\n', '\r']).map(str::trim).rfind(|line| !line.is_empty());
                State::Running(line.unwrap_or_default().to_owned())
            }
            Some("ended") => {
                let status = words.next().and_then(|n| n.parse().ok());
                let mut uptime = || words.next().and_then(|n| n.parse::<f64>().ok());
                let (begun, ended) = (uptime(), uptime());
                match (status, begun.zip(ended)) {
                    (Some(status), Some((begun, ended))) => {
                        // The kernel counts hundredths of a second.
                        State::Ended { status, seconds: (ended - begun).max(0.01) }
                    }
                    _ => State::Gone,
                }
            }
            _ => State::Gone,
        }
    }
}

impl Job {
    fn name(&self) -> String {
        let words = without_shell(&self.argv, |word| Some(word));
        let program = words.first().map_or("", String::as_str);
        format!("`{program}` ({})", self.key)
    }

    /// The status is a shell's: 128 plus the signal's number for a killed program.
    fn failed(&self, status: Option<i32>, done: &Done) -> CommandError {
        let how = match status {
            Some(127) => "ended with exit status 127 (program not found)".to_owned(),
            Some(status) if status > 128 => {
                format!("ended with exit status {status}, killed by signal {}", status - 128)
            }
            Some(status) => format!("ended with exit status {status}"),
            None => "was killed".to_owned(),
        };
        CommandError::Failed {
            name: self.name(),
            how,
            excerpt: done.excerpt(),
            output: done.output(),
        }
    }

    fn timed_out(&self, done: &Done) -> CommandError {
        CommandError::TimedOut {
            name: self.name(),
            limit: self.limit,
            key: self.limit_key,
            excerpt: done.excerpt(),
            output: done.output(),
        }
    }
}

impl Done {
    fn output(&self) -> Box<Output> {
        Box::new(Output { stdout: self.stdout.clone(), stderr: self.stderr.clone() })
    }

    /// Returns the first error and the end of stderr, or of stdout if stderr is empty.
    fn excerpt(&self) -> String {
        let both = [&self.stderr, &self.stdout];
        let text = both.into_iter().find(|text| !text.trim().is_empty());
        text.map_or_else(|| "it printed nothing".to_owned(), |text| cause_of_failure(text))
    }
}

/// Quotes one word of a line for the shell, where `nl` is a line break.
fn quote_word(text: &str) -> String {
    quoted(OsStr::new(text)).replace('\n', "'\"$nl\"'")
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
