//! Runs a command's lines on a host one after the other, through one shell.
//!
//! The shell ends its processes and removes its directory when its stdin closes: when the runner is
//! dropped, when pgio is killed, or when the connection breaks. Each line is a process group, polled so
//! that it can be stopped at any moment. Variables are sent through the shell's stdin, not in an
//! argument that others can read; a secret is masked in all output.

use std::ffi::OsStr;
use std::thread;
use std::time::{Duration, Instant};

use super::CommandError;
use super::output::cause_of_failure;
use super::programs::{SEARCH_PATH, without_shell};
use crate::config::command::CommandSettings;
use crate::host::command::quoted;
use crate::host::exec::ExecError;
use crate::host::machine::HostError;
use crate::host::stop::Stop;
use crate::host::{Host, Shell};
use crate::workload::output::Output;

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

/// With this machine's shell and /proc.
#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::host::shell::await_end;

    fn job(argv: &[&str]) -> Job {
        let argv = argv.iter().map(|a| (*a).to_owned()).collect();
        Job { key: "run", argv, limit: Duration::from_secs(30), limit_key: "time_limit" }
    }

    fn runner() -> Runner {
        Runner::open(&Host::local()).unwrap()
    }

    fn run(runner: &mut Runner, argv: &[&str]) -> Done {
        runner.run(&job(argv), &Stop::new(), &mut |_, _| {}).unwrap()
    }

    /// Returns whether a process with this argument runs.
    fn runs(argument: &str) -> bool {
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        processes.into_iter().any(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line.split(|b| *b == 0).any(|word| word == argument.as_bytes())
        })
    }

    fn gone(argument: &str) -> bool {
        let asked = Instant::now();
        while runs(argument) && asked.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(10));
        }
        !runs(argument)
    }

    #[test]
    fn programs_receive_words_and_variables_unchanged() {
        let mut runner = runner();
        runner.set("A", "it's $HOME\n`two` lines ").unwrap();
        let done = run(
            &mut runner,
            &[
                "sh",
                "-c",
                "printf '%s|' \"$A\" \"$@\"; echo err >&2",
                "sh",
                "a b",
                "",
                "'",
                "x\ny ",
            ],
        );
        assert_eq!(done.stdout, "it's $HOME\n`two` lines |a b||'|x\ny |");
        assert_eq!(done.stderr, "err\n");
        assert!(done.seconds.unwrap() < 20.0);
        let again = run(&mut runner, &["sh", "-c", "sleep 0.3"]);
        assert_eq!(again.stdout, "", "nothing of the one before");
        let seconds = again.seconds.unwrap();
        assert!(seconds >= 0.28, "{seconds}");
    }

    #[test]
    fn a_failure_reports_its_status_and_last_lines() {
        let mut runner = runner();
        let error =
            |argv: &[&str], runner: &mut Runner| run(runner, argv).seconds.unwrap_err().to_string();
        let text =
            error(&["sh", "-c", "echo out; echo first >&2; echo why >&2; exit 3"], &mut runner);
        assert_eq!(text, "`sh` (run) ended with exit status 3: first / why");
        let text = error(&["sh", "-c", "echo only out; kill -9 $$"], &mut runner);
        assert_eq!(text, "`sh` (run) ended with exit status 137, killed by signal 9: only out");
        let text = error(&["/nonexistent/prog"], &mut runner);
        assert!(
            text.starts_with(
                "`/nonexistent/prog` (run) ended with exit status 127 (program not found)"
            ),
            "{text}"
        );
        let text = error(&["false"], &mut runner);
        assert_eq!(text, "`false` (run) ended with exit status 1: it printed nothing");
    }

    #[test]
    fn a_program_that_ends_during_a_query_has_ended() {
        // The process ends between the two checks of one query.
        let dies = "alive() { until [ -s \"$dir/ended\" ]; do sleep 0.01; done; return 1; }\n";
        let shell = Shell::start(&Host::local(), &format!("{PRELUDE}{dies}"), BODY).unwrap();
        let dir = shell.greeting().trim().trim_start_matches("ready ").to_owned();
        let mut runner = Runner { shell, host: "local".to_owned(), dir, secret: None };
        let done = run(&mut runner, &["sh", "-c", "sleep 0.2; echo done"]);
        assert_eq!((done.seconds.is_ok(), done.stdout.as_str()), (true, "done\n"));
    }

    #[test]
    fn a_program_that_never_ends_is_killed_with_its_children() {
        for deaf in ["", "trap '' TERM; "] {
            let mut runner = runner();
            let mark = format!("71{}", deaf.len());
            let script =
                format!("{deaf}echo working; sleep {mark} & while :; do sleep {mark}; done");
            let job = Job { limit: Duration::from_secs(2), ..job(&["sh", "-c", &script]) };
            let done = runner.run(&job, &Stop::new(), &mut |_, _| {}).unwrap();
            assert_eq!(
                done.seconds.unwrap_err().to_string(),
                "`sh` (run) did not end within 2 s and was killed; raise time_limit, or find the cause in its output: working"
            );
            assert!(gone(&mark));
            // The next line can run.
            assert_eq!(run(&mut runner, &["echo", "x"]).stdout, "x\n");
        }
    }

    #[test]
    fn a_stop_or_the_end_of_the_owner_ends_the_program() {
        let mut runner = runner();
        let (stop, asked) = (Stop::new(), Instant::now());
        let argv = ["sh", "-c", "sleep 7201 & sleep 7201"];
        let mut started = false;
        let done = runner.run(&job(&argv), &stop, &mut |_, _| {
            if runs("7201") {
                started = true;
                stop.request();
            }
        });
        assert!(started && matches!(done.unwrap().seconds, Err(CommandError::Stopped)));
        assert!(gone("7201") && asked.elapsed() < Duration::from_secs(20));

        // Processes that a program leaves behind are ended too.
        run(&mut runner, &["sh", "-c", "sleep 7202 & exit 0"]);
        assert!(gone("7202"));
        let dir = runner.dir.clone();
        assert!(Path::new(&dir).is_dir());
        drop(runner);
        assert!(!Path::new(&dir).exists());
    }

    /// Another process group may have its number.
    #[test]
    fn a_program_that_has_ended_is_never_killed() {
        let dir = tempfile::tempdir().unwrap();
        let (log, leader) = (dir.path().join("killed"), dir.path().join("leader"));
        let fake = format!("kill() {{ echo \"$@\" >>{}; command kill \"$@\"; }}\n", log.display());
        let mut shell = Shell::start(&Host::local(), &(fake + PRELUDE), BODY).unwrap();
        let run = format!("run sh -c {}", quote_word(&format!("echo $PPID >{}", leader.display())));
        let mut run_to_end = |question: &str| {
            let _ = fs::remove_file(&leader);
            shell.ask(&run, ANSWER_LIMIT).unwrap();
            await_end(&leader);
            shell.ask(question, ANSWER_LIMIT).unwrap().text
        };
        assert!(run_to_end("").starts_with("ended 0 "));
        assert!(run_to_end("stop TERM").starts_with("ended 0 "));
        let killed = fs::read_to_string(log).unwrap_or_default();
        assert!(!killed.contains("KILL") && !killed.contains("TERM"), "{killed}");
    }

    #[test]
    fn output_is_reported_while_the_program_runs() {
        let mut runner = runner();
        let mut lines = Vec::new();
        let argv = ["sh", "-c", "for i in 1 2 3; do echo line $i >&2; sleep 0.8; done"];
        runner.run(&job(&argv), &Stop::new(), &mut |_, text| lines.push(text.to_owned())).unwrap();
        lines.dedup();
        assert_eq!(lines.first().map(String::as_str), Some(""));
        assert!(
            lines.len() > 1 && lines[1..].iter().all(|line| line.starts_with("line ")),
            "{lines:?}"
        );
    }

    #[test]
    fn files_of_earlier_runs_are_refused() {
        let mut runner = runner();
        let file = format!("{}/a file", runner.dir);
        fs::write(&file, "of before").unwrap();
        thread::sleep(Duration::from_millis(30));
        run(&mut runner, &["true"]);
        assert!(
            runner
                .file(&file)
                .unwrap()
                .unwrap_err()
                .contains("is older than this run; find out why")
        );
        run(&mut runner, &["sh", "-c", "echo now >\"$1\"", "sh", &file]);
        assert_eq!(runner.file(&file).unwrap().unwrap(), "now\n");
        assert!(
            runner.file("/nonexistent").unwrap().unwrap_err().contains("does not exist on host")
        );
    }

    #[test]
    fn a_password_is_in_the_environment_and_nowhere_else() {
        let mut runner = runner();
        runner.set_secret("PGPASSWORD", pgio_connect::Secret::new("ge heim")).unwrap();
        let done = run(
            &mut runner,
            &["sh", "-c", "echo $PGPASSWORD; tr '\\0' ' ' </proc/$PPID/cmdline >&2"],
        );
        assert_eq!(done.stdout, "***\n");
        assert!(!done.stderr.contains("heim") && !done.stderr.contains("***"), "{}", done.stderr);
        assert_eq!(run(&mut runner, &["sh", "-c", "echo ${#PGPASSWORD}"]).stdout, "7\n");
    }
}
