//! A `sh` that lives on, on any host: asked line by line, it answers until it is dropped.
//!
//! The script is `sh`'s argument and stdin carries the questions, so the script ends by itself at
//! end-of-file: also when this program is killed, also over ssh. Nothing is left on the host.
//! Answers are numbered, so that one that comes after its time is not taken for the next.
//!
//! Knows nothing of what is asked. Next: `telemetry::host` and `telemetry::probes`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::error::{HostError, last_line};
use super::exec::{CommandLine, ExecError, Ties, spawn, wait_until};
use super::machine::Host;

/// Ends an answer; followed by its number.
const END: &str = "--pgio-end-of-answer-- ";

/// Longer than ssh's own ConnectTimeout, whose words are better than ours.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long a dropped shell may take to see its end-of-file.
const END_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Shell {
    host: String,
    child: Child,
    /// Taken when it is time to end.
    questions: Option<ChildStdin>,
    answers: Receiver<Numbered>,
    complaints: File,
    asked: u64,
    greeting: String,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub text: String,
    /// When the question was sent and when the answer was complete, by this machine's clock.
    pub asked: Instant,
    pub answered: Instant,
}

impl Answer {
    /// When the host looked, within [`Answer::error`].
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
    /// Runs `prelude` once and `body` for each question, which it finds in `$ask`. Neither may
    /// read stdin. Returns when the prelude has ended.
    pub fn start(host: &Host, prelude: &str, body: &str) -> Result<Shell, ExecError> {
        let line = host.here(&CommandLine::new("sh").arg("-c").arg(script(prelude, body)))?;
        Shell::over(host.name(), &line, &|stderr| lost(host.name(), stderr))
    }

    /// `line` is what runs here and now: `sh` itself, or ssh. `reason` reads stderr where the
    /// shell ends before it is ready.
    pub(super) fn over(
        host: &str,
        line: &CommandLine,
        reason: &dyn Fn(&str) -> HostError,
    ) -> Result<Shell, ExecError> {
        let failed = |source| ExecError::Start { command: line.to_string(), source };
        // A file, not a pipe: read only if something goes wrong, and never full.
        let complaints = tempfile::tempfile().map_err(failed)?;
        let ties = Ties {
            stdin: Stdio::piped(),
            stdout: Stdio::piped(),
            stderr: complaints.try_clone().map_err(failed)?.into(),
            // Ctrl-C on the terminal is for us to handle; the shell ends with us in any case.
            own_group: true,
            when_parent_dies: None,
        };
        let mut child = spawn(line, ties)?;
        let questions = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout was piped just above");
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || forward(stdout, &sender));
        let mut shell = Shell {
            host: host.to_owned(),
            child,
            questions,
            answers,
            complaints,
            asked: 0,
            greeting: String::new(),
        };
        match shell.answer(Instant::now(), START_LIMIT) {
            Ok(answer) => shell.greeting = answer.text,
            Err(ExecError::Host(HostError::Lost { .. })) => {
                return Err(reason(&shell.complaints()).into());
            }
            Err(other) => return Err(other),
        }
        Ok(shell)
    }

    /// What the prelude wrote.
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Whether it has not been seen to end.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// One line there, what the body writes back. After an error by time the shell can be asked
    /// again; after any other it is gone.
    pub fn ask(&mut self, question: &str, limit: Duration) -> Result<Answer, ExecError> {
        debug_assert!(!question.contains('\n'), "a question is one line");
        self.asked += 1;
        let asked = Instant::now();
        let line = format!("{} {question}\n", self.asked);
        // A write that fails means that the shell has ended, which the answer will tell.
        if let Some(questions) = &mut self.questions {
            let _ = questions.write_all(line.as_bytes());
        }
        self.answer(asked, limit)
    }

    fn answer(&mut self, asked: Instant, limit: Duration) -> Result<Answer, ExecError> {
        loop {
            let left = limit.saturating_sub(asked.elapsed());
            match self.answers.recv_timeout(left) {
                Ok(got) if got.number == self.asked => {
                    return Ok(Answer { text: got.text, asked, answered: got.at });
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(HostError::Silent { host: self.host.clone(), limit }.into());
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.why_it_ended().into()),
            }
        }
    }

    fn why_it_ended(&mut self) -> HostError {
        // Stdout is closed, so the end is near; ssh may still be writing its reason.
        let _ = wait_until(&mut self.child, Instant::now() + END_LIMIT);
        let stderr = self.complaints();
        lost(&self.host, &stderr)
    }

    fn complaints(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = self.complaints.rewind().and_then(|()| self.complaints.read_to_end(&mut bytes));
        read.map_or_else(|e| e.to_string(), |_| String::from_utf8_lossy(&bytes).into_owned())
    }
}

pub(super) fn lost(host: &str, stderr: &str) -> HostError {
    HostError::Lost { host: host.to_owned(), said: last_line(stderr) }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.questions.take());
        if !matches!(wait_until(&mut self.child, Instant::now() + END_LIMIT), Ok(Some(_))) {
            // Nothing more can be done about a failure here.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The whole of it. Numbers as they come are told back; the prelude's answer is number 0.
pub(super) fn script(prelude: &str, body: &str) -> String {
    format!(
        "LC_ALL=C; export LC_ALL\n{prelude}\necho '{END}0'\n\
         while read -r number ask; do\n{body}\necho \"{END}$number\"\ndone"
    )
}

/// Until the end of the shell or of the one who asks.
fn forward(stdout: ChildStdout, answers: &Sender<Numbered>) {
    let mut lines = BufReader::new(stdout);
    let mut text = String::new();
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(n) if n > 0) {
        let said = String::from_utf8_lossy(&line);
        // An answer that lacks its last line break has the mark at the end of a line.
        let end = said.find(END).and_then(|at| {
            let number = said[at + END.len()..].trim_end().parse().ok()?;
            Some((&said[..at], number))
        });
        match end {
            Some((rest, number)) => {
                text.push_str(rest);
                let whole =
                    Numbered { number, text: std::mem::take(&mut text), at: Instant::now() };
                if answers.send(whole).is_err() {
                    return;
                }
            }
            None => text.push_str(&said),
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn questions_are_answered_in_turn() {
        let here = Host::local();
        let mut shell =
            Shell::start(&here, "n=0; echo ready", "n=$((n+1)); echo $n \"$ask\"").unwrap();
        assert_eq!(shell.greeting(), "ready\n");
        for (n, question) in ["a b", "", r"back\slash 'quoted' $HOME"].into_iter().enumerate() {
            let answer = shell.ask(question, SOON).unwrap();
            assert_eq!(answer.text, format!("{} {question}\n", n + 1));
            assert!(answer.asked <= answer.middle() && answer.middle() <= answer.answered);
        }
    }

    #[test]
    fn an_answer_without_a_line_break_at_its_end_is_whole() {
        let mut shell = Shell::start(&Host::local(), ":", "printf %s \"$ask\"").unwrap();
        assert_eq!(shell.ask("x", SOON).unwrap().text, "x");
    }

    #[test]
    fn a_late_answer_is_not_taken_for_the_next() {
        let body = "case $ask in slow) sleep 0.3;; esac; echo $ask";
        let mut shell = Shell::start(&Host::local(), ":", body).unwrap();
        let error = shell.ask("slow", Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.to_string(), "host local did not answer within 0.01 s");
        assert_eq!(shell.ask("quick", SOON).unwrap().text, "quick\n");
    }

    #[test]
    fn a_shell_that_ends_tells_its_last_words() {
        let mut shell =
            Shell::start(&Host::local(), ":", "echo first >&2; echo why >&2; exit 1").unwrap();
        let error = shell.ask("", SOON).unwrap_err().to_string();
        assert_eq!(error, "the connection to host local broke off: why");
        assert!(shell.ask("", SOON).is_err(), "nor does it hang when asked again");
        let error = Shell::start(&Host::local(), "echo no >&2; exit 1", ":").unwrap_err();
        assert_eq!(error.to_string(), "the connection to host local broke off: no");
    }

    #[test]
    fn the_process_ends_with_its_owner() {
        let shell = Shell::start(&Host::local(), "echo $$", ":").unwrap();
        let process = format!("/proc/{}", shell.greeting().trim());
        assert!(std::path::Path::new(&process).exists());
        drop(shell);
        assert!(!std::path::Path::new(&process).exists());
    }
}
