//! A persistent `sh` on any host: it answers one request per line until it is dropped.
//!
//! The script is the argument of `sh` and stdin carries the questions, so the script ends at
//! end-of-file, even if this program is killed, and also over ssh. It leaves nothing on the host.
//! Each answer stands between two marks with its number, so that a late answer is not mistaken for the next one, and
//! what a login shell prints is none.
//!
//! This module does not interpret questions. `machine` starts shells on a host ([`Shell::start`]).
//! Next: `telemetry::host` and `telemetry::probes`.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::exec::{CommandLine, ExecError, SpawnOptions, in_thread, spawn, wait_until};
use super::machine::{HostError, last_line};

/// Longer than ssh's ConnectTimeout, because ssh's message is more specific.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for a dropped shell to see the end-of-file and exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Shell {
    pub(super) host: String,
    pub(super) marks: Marks,
    child: Child,
    /// Dropped to end the shell.
    questions: Option<ChildStdin>,
    answers: Receiver<Numbered>,
    stderr: File,
    asked: u64,
    greeting: String,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub text: String,
    /// Times when the question was sent and when the answer was complete, by this machine's clock.
    pub asked: Instant,
    pub answered: Instant,
}

impl Answer {
    /// Returns the estimated time at which the host answered, accurate to [`Answer::error`].
    pub fn middle(&self) -> Instant {
        self.asked + self.error()
    }

    pub fn error(&self) -> Duration {
        self.answered.duration_since(self.asked) / 2
    }
}

#[derive(Debug)]
struct Numbered {
    number: u64,
    text: String,
    at: Instant,
}

impl Shell {
    /// Starts a shell with a local command: `sh` or ssh. `reason` classifies stderr if the shell ends
    /// before it is ready.
    pub(super) fn start_with(
        host: &str,
        (line, marks): (&CommandLine, Marks),
        reason: &dyn Fn(&str) -> HostError,
    ) -> Result<Shell, ExecError> {
        let failed = |source| ExecError::Start { command: line.to_string(), source };
        // Use a file instead of a pipe: it never blocks and is read only after a failure.
        let stderr = tempfile::tempfile().map_err(failed)?;
        let options = SpawnOptions {
            stdin: Stdio::piped(),
            stdout: Stdio::piped(),
            stderr: stderr.try_clone().map_err(failed)?.into(),
            parent_death_signal: None,
        };
        let mut child = spawn(line, options)?;
        let questions = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout was piped just above");
        let (sender, answers) = mpsc::channel();
        let printed = marks.clone();
        let forwards = in_thread("answers", move || forward(stdout, &printed, &sender));
        let mut shell = Shell {
            host: host.to_owned(),
            marks,
            child,
            questions,
            answers,
            stderr,
            asked: 0,
            greeting: String::new(),
        };
        forwards.map_err(failed)?;
        match shell.answer(Instant::now(), START_TIMEOUT) {
            Ok(answer) => shell.greeting = answer.text,
            Err(ExecError::Host(HostError::Lost { .. })) => {
                return Err(reason(&shell.read_stderr()).into());
            }
            Err(other) => return Err(other),
        }
        Ok(shell)
    }

    /// Returns the output of the prelude.
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    /// Returns whether the shell still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends one line and returns the output of the body. After a timeout the shell is still usable;
    /// after any other error it is not.
    pub fn ask(&mut self, question: &str, limit: Duration) -> Result<Answer, ExecError> {
        debug_assert!(!question.contains('\n'), "a question is one line");
        self.asked += 1;
        let asked = Instant::now();
        let line = format!("{} {question}\n", self.asked);
        // If the write fails, the shell has ended, and `answer` reports that.
        if let Some(questions) = &mut self.questions {
            let _ = questions.write_all(line.as_bytes());
        }
        self.answer(asked, limit)
    }

    fn answer(&mut self, asked: Instant, limit: Duration) -> Result<Answer, ExecError> {
        loop {
            let left = limit.saturating_sub(asked.elapsed());
            match self.answers.recv_timeout(left) {
                Ok(answer) if answer.number == self.asked => {
                    return Ok(Answer { text: answer.text, asked, answered: answer.at });
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(HostError::Silent { host: self.host.clone(), limit }.into());
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.exit_reason().into()),
            }
        }
    }

    fn exit_reason(&mut self) -> HostError {
        // Stdout is closed, but ssh may still be writing its message.
        let _ = wait_until(&mut self.child, Instant::now() + EXIT_TIMEOUT);
        let stderr = self.read_stderr();
        lost(&self.host, &stderr)
    }

    fn read_stderr(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = self.stderr.rewind().and_then(|()| self.stderr.read_to_end(&mut bytes));
        read.map_or_else(|e| e.to_string(), |_| String::from_utf8_lossy(&bytes).into_owned())
    }
}

pub(super) fn lost(host: &str, stderr: &str) -> HostError {
    HostError::Lost { host: host.to_owned(), message: last_line(stderr) }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.questions.take());
        if !matches!(wait_until(&mut self.child, Instant::now() + EXIT_TIMEOUT), Ok(Some(_))) {
            // A failure here cannot be handled.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Returns the complete script. It repeats the number of each question; the prelude's answer is number 0.
pub(super) fn script(marks: &Marks, prelude: &str, body: &str) -> String {
    let define = marks.define();
    let print = |kind, number| Marks::print(kind, number);
    format!(
        "LC_ALL=C; export LC_ALL; {define}\nprintf {begin}\n{prelude}\nprintf {end}\n\
         while read -r number ask; do\nprintf {begins}\n{body}\nprintf {ends}\ndone",
        begin = print(BEGIN, "0"),
        end = print(END, "0"),
        begins = print(BEGIN, "\"$number\""),
        ends = print(END, "\"$number\""),
    )
}

/// Forwards answers until the shell ends or the receiver is dropped.
fn forward(stdout: ChildStdout, marks: &Marks, answers: &Sender<Numbered>) {
    let (begin, end) = (marks.printed(BEGIN), marks.printed(END));
    let mut lines = BufReader::new(stdout);
    // The answer that has begun.
    let mut text: Option<String> = None;
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(n) if n > 0) {
        let line_text = String::from_utf8_lossy(&line);
        if line_text.contains(&begin) {
            text = Some(String::new());
        } else if let Some((rest, number)) = line_text.split_once(&end) {
            // If an answer lacks the final newline, the mark is not at the start of the line.
            let answer = text.take().map(|text| text + rest);
            if let (Some(text), Ok(number)) = (answer, number.trim_end().parse())
                && answers.send(Numbered { number, text, at: Instant::now() }).is_err()
            {
                return;
            }
        } else if let Some(text) = &mut text {
            text.push_str(&line_text);
        }
        line.clear();
    }
}

/// The kinds of marks around an answer.
pub(super) const BEGIN: &str = "begin";
pub(super) const END: &str = "end";

/// The marks of one session.
#[derive(Debug, Clone)]
pub(super) struct Marks(String);

impl Marks {
    /// Returns marks that no output contains by chance.
    pub(super) fn new() -> Marks {
        // RandomState takes its keys from the system's random numbers.
        Marks(format!("{:016x}", RandomState::new().hash_one(0)))
    }

    /// Returns shell code that has to come before [`Marks::print`]. The marks never stand in the code as they are
    /// printed: a login shell may print the command that it is to run.
    pub(super) fn define(&self) -> String {
        format!("pgio_mark={}", self.0)
    }

    /// Returns the arguments of a `printf` that prints a mark of this kind, `text`, and a line break.
    pub(super) fn print(kind: &str, text: &str) -> String {
        format!("'pgio-{kind}-%s %s\\n' \"$pgio_mark\" {text}")
    }

    /// Returns what a stream has between its marks. A start-up file can lead both streams of a session into one, which
    /// then has the marks of both around it.
    pub(super) fn between<'a>(&self, stream: &'a str) -> Option<&'a str> {
        let (_, rest) = stream.rsplit_once(&format!("{}\n", self.printed(BEGIN)))?;
        Some(rest.split_once(&self.printed(END))?.0)
    }

    /// Returns the mark as it is printed.
    pub(super) fn printed(&self, kind: &str) -> String {
        format!("pgio-{kind}-{} ", self.0)
    }
}

/// Waits until the process whose number is written to this file has ended, as a zombie or without a trace.
#[cfg(test)]
pub(crate) fn await_end(pid_file: &std::path::Path) {
    let has_ended = || {
        let pid = std::fs::read_to_string(pid_file).unwrap_or_default();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        pid.ends_with('\n') && stat.map_or(true, |stat| stat.contains(") Z "))
    };
    while !has_ended() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn questions_are_answered_in_order() {
        let here = Host::local();
        let mut shell =
            Shell::start(&here, "n=0; echo ready", "n=$((n+1)); echo $n \"$ask\"").unwrap();
        assert_eq!(shell.greeting(), "ready\n");
        for (n, question) in ["a b", "", r"back\slash 'quoted' $HOME"].into_iter().enumerate() {
            let answer = shell.ask(question, ANSWER_TIMEOUT).unwrap();
            assert_eq!(answer.text, format!("{} {question}\n", n + 1));
            assert!(answer.asked <= answer.middle() && answer.middle() <= answer.answered);
        }
    }

    #[test]
    fn answers_without_a_final_newline_are_complete() {
        let mut shell = Shell::start(&Host::local(), ":", "printf %s \"$ask\"").unwrap();
        assert_eq!(shell.ask("x", ANSWER_TIMEOUT).unwrap().text, "x");
    }

    #[test]
    fn what_is_printed_around_answers_is_no_part_of_them() {
        let marks = Marks::new();
        // A login shell that prints its command, with a line that has no end, and something after each answer.
        let script = script(&marks, "echo ready", "echo \"$ask\"");
        let noisy = "printf %s \"Welcome: $1\"; (eval \"$1\"); echo bye";
        let line = CommandLine::new("sh").args(["-c", noisy, "sh", &script]);
        let lost = |stderr: &str| lost("local", stderr);
        let mut shell = Shell::start_with("local", (&line, marks), &lost).unwrap();
        assert_eq!(shell.greeting(), "ready\n");
        assert_eq!(shell.ask("x", ANSWER_TIMEOUT).unwrap().text, "x\n");
    }

    #[test]
    fn late_answers_are_discarded() {
        let body = "case $ask in slow) sleep 0.3;; esac; echo $ask";
        let mut shell = Shell::start(&Host::local(), ":", body).unwrap();
        let error = shell.ask("slow", Duration::from_millis(10)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "host local did not answer within 0.01 s; check the host and the network"
        );
        assert_eq!(shell.ask("quick", ANSWER_TIMEOUT).unwrap().text, "quick\n");
    }

    #[test]
    fn errors_contain_the_last_line_of_stderr() {
        let mut shell =
            Shell::start(&Host::local(), ":", "echo first >&2; echo why >&2; exit 1").unwrap();
        let error = shell.ask("", ANSWER_TIMEOUT).unwrap_err().to_string();
        assert_eq!(error, "lost connection to host local: why; check the host and the network");
        assert!(shell.ask("", ANSWER_TIMEOUT).is_err(), "it does not hang when used again");
        let error = Shell::start(&Host::local(), "echo no >&2; exit 1", ":").unwrap_err();
        assert_eq!(
            error.to_string(),
            "lost connection to host local: no; check the host and the network"
        );
    }

    #[test]
    fn dropping_the_shell_ends_the_process() {
        let shell = Shell::start(&Host::local(), "echo $$", ":").unwrap();
        let process = format!("/proc/{}", shell.greeting().trim());
        assert!(std::path::Path::new(&process).exists());
        drop(shell);
        assert!(!std::path::Path::new(&process).exists());
    }
}
