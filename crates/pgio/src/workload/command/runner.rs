//! A command's lines on a host, one after the other, through a shell that lives as long as this.
//!
//! The shell ends what it runs, and takes away its directory, when its stdin ends: when this is
//! dropped, when pgio is killed, when the connection breaks. Each line is a process group, polled, so
//! that it can be stopped at any moment. Variables go the shell's way in and so into no argument that
//! others can read; a secret among them is blotted out of all that is read back.

use std::ffi::OsStr;
use std::thread;
use std::time::{Duration, Instant};

use super::error::CommandError;
use super::output::{Output, cause_of_failure};
use super::programs::PATHS;
use crate::host::command::quoted;
use crate::host::error::HostError;
use crate::host::exec::ExecError;
use crate::host::stop::Stop;
use crate::host::{Host, Shell};
use crate::pg::connect;

const PRELUDE: &str = include_str!("runner.sh");
const BODY: &str = include_str!("question.sh");

/// The shell itself answers at once, whatever its program does; a long output takes a while.
const LIMIT: Duration = Duration::from_secs(30);
/// From TERM to KILL, and from there to giving up.
const GRACE: Duration = Duration::from_secs(5);
/// How often what it says is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// In the place of a password.
const HIDDEN: &str = "***";

#[derive(Debug)]
pub(super) struct Runner {
    shell: Shell,
    host: String,
    /// A directory on the host, gone with this.
    pub(super) dir: String,
    secret: Option<connect::Secret>,
}

/// A line to be run.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// The key that it stands under, such as `setup`.
    pub(super) key: &'static str,
    pub(super) argv: Vec<String>,
    pub(super) limit: Duration,
    /// The key that sets the limit.
    pub(super) limit_key: &'static str,
}

/// What a program left, and how long it took or why it failed.
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
    /// By a signal that was not its own doing.
    Gone,
}

impl Runner {
    pub(super) fn open(host: &Host) -> Result<Runner, CommandError> {
        // What the user's own variables say would lead a program elsewhere than the target.
        let ours: Vec<&str> = connect::variables().collect();
        let head = format!("unset {}\n", ours.join(" "));
        let shell = Shell::start(host, &(head + PATHS + PRELUDE), BODY)?;
        let said = shell.greeting().trim_end_matches('\n').to_owned();
        let (host, secret) = (host.name().to_owned(), None);
        match said.split_once(' ') {
            Some(("ready", dir)) => Ok(Runner { shell, host, dir: dir.to_owned(), secret }),
            Some(("missing", program)) => {
                Err(CommandError::Missing { program: program.to_owned(), host })
            }
            _ => {
                let why = said.trim_start_matches("failed ");
                Err(CommandError::Refused(format!(
                    "no directory can be made on host {host}: {why}"
                )))
            }
        }
    }

    /// A variable of every line.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), CommandError> {
        self.shell.ask(&format!("set {name}={}", word(value)), LIMIT)?;
        Ok(())
    }

    pub(super) fn set_secret(
        &mut self,
        name: &str,
        value: connect::Secret,
    ) -> Result<(), CommandError> {
        self.set(name, value.expose())?;
        self.secret = Some(value).filter(|value| !value.expose().is_empty());
        Ok(())
    }

    /// A file that the last line wrote; the inner error says why there is none.
    pub(super) fn file(&mut self, path: &str) -> Result<Result<String, String>, CommandError> {
        let text = self.shell.ask(&format!("file {}", word(path)), LIMIT)?.text;
        let (word, text) = text.split_once('\n').unwrap_or((text.as_str(), ""));
        Ok(match word {
            "here" => Ok(self.hide(text)),
            "old" => Err(format!(
                "the file {path} is older than this run; see why it was not written, or correct file"
            )),
            _ => Err(format!(
                "there is no file {path} on host {}; see why it was not written, or correct file",
                self.host
            )),
        })
    }

    /// Runs a line to its end. `tick` hears often when it began and what it said last.
    pub(super) fn run(
        &mut self,
        job: &Job,
        stop: &Stop,
        tick: &mut dyn FnMut(Instant, &str),
    ) -> Result<Done, CommandError> {
        let words: Vec<String> = job.argv.iter().map(|a| word(a)).collect();
        let answer = self.shell.ask(&format!("run {}", words.join(" ")), LIMIT)?;
        let began = answer.middle();
        let mut state = State::parse(&answer.text);
        let (mut said, mut looked) = (String::new(), began);
        let ended = loop {
            match state {
                State::Running(more) if !more.is_empty() => said = self.hide(&more),
                State::Running(_) => {}
                State::Ended { status: 0, seconds } => break Ok(seconds),
                State::Ended { status, .. } => break Err(Some(status)),
                State::Gone => break Err(None),
            }
            if stop.requested() {
                self.end(stop)?;
                return self.left(Err(CommandError::Stopped));
            }
            if began.elapsed() > job.limit {
                self.end(stop)?;
                let done = self.left(Ok(0.0))?;
                let seconds = Err(job.timed_out(&done));
                return Ok(Done { seconds, ..done });
            }
            tick(began, &said);
            // Often while it may be short, and seldom enough not to disturb one that is long.
            let pause = began.elapsed() / 8;
            thread::sleep(pause.clamp(Duration::from_millis(10), Duration::from_millis(100)));
            let question = match looked.elapsed() >= LOOK {
                true => "line",
                false => "",
            };
            if !question.is_empty() {
                looked = Instant::now();
            }
            state = State::parse(&self.shell.ask(question, LIMIT)?.text);
        };
        let done = self.left(Ok(0.0))?;
        let seconds = match ended {
            Ok(seconds) => Ok(seconds),
            // A Ctrl-C that came just before the end is no failure of the program's.
            Err(_) if stop.requested() => Err(CommandError::Stopped),
            Err(status) => Err(job.failed(status, &done)),
        };
        Ok(Done { seconds, ..done })
    }

    /// TERM, and KILL for what does not hear it.
    fn end(&mut self, stop: &Stop) -> Result<(), CommandError> {
        for signal in ["TERM", "KILL"] {
            let asked = Instant::now();
            let mut question = format!("stop {signal}");
            loop {
                let answer = self.shell.ask(&question, LIMIT)?.text;
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

    fn left(&mut self, seconds: Result<f64, CommandError>) -> Result<Done, CommandError> {
        let mut read = |which: &str| -> Result<String, CommandError> {
            let text = self.shell.ask(which, LIMIT)?.text;
            Ok(self.hide(&text))
        };
        Ok(Done { stdout: read("out")?, stderr: read("err")?, seconds })
    }

    /// For a long secret only, since a short one stands in every text.
    pub(super) fn hide(&self, text: &str) -> String {
        hide(text, self.secret.as_ref())
    }
}

pub(super) fn hide(text: &str, secret: Option<&connect::Secret>) -> String {
    secret.map_or_else(|| text.to_owned(), |secret| secret.hidden_in(text, HIDDEN))
}

impl State {
    /// `running`, perhaps with what it said; `ended STATUS BEGUN ENDED`; `gone`.
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
                        // The kernel counts hundredths.
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
        let program = self.argv.first().map_or("", String::as_str);
        format!("`{program}` ({})", self.key)
    }

    /// As a shell has it: 128 and the signal's number for one that was killed.
    fn failed(&self, status: Option<i32>, done: &Done) -> CommandError {
        let how = match status {
            Some(127) => "ended with exit status 127, as where a program is not found".to_owned(),
            Some(status) if status > 128 => {
                format!("ended with exit status {status}, as by signal {}", status - 128)
            }
            Some(status) => format!("ended with exit status {status}"),
            None => "was killed".to_owned(),
        };
        CommandError::Failed { name: self.name(), how, said: done.said(), output: done.output() }
    }

    fn timed_out(&self, done: &Done) -> CommandError {
        CommandError::TimedOut {
            name: self.name(),
            limit: self.limit,
            key: self.limit_key,
            said: done.said(),
            output: done.output(),
        }
    }
}

impl Done {
    fn output(&self) -> Box<Output> {
        Box::new(Output { stdout: self.stdout.clone(), stderr: self.stderr.clone() })
    }

    /// The first error and the end of stderr, or of stdout where stderr is empty.
    fn said(&self) -> String {
        let both = [&self.stderr, &self.stdout];
        let text = both.into_iter().find(|text| !text.trim().is_empty());
        text.map_or_else(|| "it said nothing".to_owned(), |text| cause_of_failure(text))
    }
}

/// One word of one line for the shell, which has a line break in `nl`.
fn word(text: &str) -> String {
    quoted(OsStr::new(text)).replace('\n', "'\"$nl\"'")
}

#[cfg(test)]
mod tests;
