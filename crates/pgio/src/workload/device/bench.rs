//! Runs fio on a host, one job after the other, through one shell.
//!
//! The shell removes its files when its stdin closes: when the bench is dropped, when pgio is killed,
//! or when the connection breaks. A job is polled so that it can be stopped at any moment.

use std::ffi::OsStr;
use std::thread;
use std::time::{Duration, Instant};

use super::DeviceError;
use super::fio::{self, FioResult, Job};
use super::place::{Kind, Place};
use crate::host::command::quoted;
use crate::host::exec::ExecError;
use crate::host::machine::HostError;
use crate::host::stop::Stop;
use crate::host::{Host, Shell};

const PRELUDE: &str = include_str!("bench.sh");
const BODY: &str = include_str!("question.sh");

/// The shell answers at once, even while fio waits.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Time for fio to stop; after that, it is killed when the shell ends.
const STOP_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Bench {
    shell: Shell,
    place: String,
    /// The file that fio opens.
    file: String,
    /// The version, such as `fio-3.33`.
    pub version: String,
}

impl Bench {
    /// Creates the scratch file of this size if the place is a directory.
    pub fn open(host: &Host, place: &Place, bytes: u64) -> Result<Bench, DeviceError> {
        let make = if place.kind == Kind::Scratch { "yes" } else { "no" };
        let path = quoted(place.path.as_os_str());
        let head = format!("where={path}\nmake={make}\nbytes={bytes}\n");
        let shell = Shell::start(host, &(head + PRELUDE), BODY)?;
        let greeting = shell.greeting().trim_end_matches('\n').to_owned();
        let (word, rest) = greeting.split_once(' ').unwrap_or((&greeting, ""));
        match (word, rest.split_once(' ')) {
            ("ready", Some((version, file))) => Ok(Bench {
                shell,
                place: place.name.clone(),
                file: file.to_owned(),
                version: version.to_owned(),
            }),
            ("missing", _) => Err(DeviceError::NoFio { host: host.name().to_owned() }),
            _ => {
                let reason = rest.trim_start_matches("mktemp: ").to_owned();
                Err(DeviceError::Failed { place: place.name.clone(), reason })
            }
        }
    }

    /// Runs one job to its end; `tick` is called often with the bytes read and written so far, as far
    /// as the kernel counts them.
    pub fn run(
        &mut self,
        job: &Job,
        stop: &Stop,
        tick: &mut dyn FnMut(u64),
    ) -> Result<FioResult, DeviceError> {
        let arguments = job.arguments(&self.file);
        let words: Vec<String> = arguments.iter().map(|a| quoted(OsStr::new(a))).collect();
        let started = Instant::now();
        let mut answer = self.shell.ask(&format!("run {}", words.join(" ")), ANSWER_LIMIT)?.text;
        while let Some(bytes) = parse_running(&answer) {
            if stop.requested() {
                self.end()?;
                return Err(DeviceError::Stopped);
            }
            tick(bytes);
            // Poll often while a job may be short, and rarely enough not to disturb a long one.
            let pause = started.elapsed() / 8;
            thread::sleep(pause.clamp(Duration::from_millis(10), Duration::from_millis(250)));
            answer = self.shell.ask("", ANSWER_LIMIT)?.text;
        }
        if stop.requested() {
            return Err(DeviceError::Stopped);
        }
        self.parse_result(&answer, job)
    }

    fn end(&mut self) -> Result<(), DeviceError> {
        let asked = Instant::now();
        while parse_running(&self.shell.ask("stop", ANSWER_LIMIT)?.text).is_some() {
            if asked.elapsed() > STOP_LIMIT {
                let error = HostError::Silent { host: "fio".to_owned(), limit: STOP_LIMIT };
                return Err(ExecError::from(error).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Parses `ended STATUS`, stderr, a mark, stdout.
    fn parse_result(&self, answer: &str, job: &Job) -> Result<FioResult, DeviceError> {
        let place = self.place.clone();
        let (head, out) = answer.split_once("--out--\n").unwrap_or((answer, ""));
        let (status, errors) = head.split_once('\n').unwrap_or((head, ""));
        if status != "ended 0" {
            return Err(DeviceError::Failed { place, reason: find_cause(errors, out, status) });
        }
        fio::parse(out, job.test.writes()).map_err(|why| DeviceError::Answer { place, why })
    }
}

/// Refuses a host without fio, which the shell would find as late as in a trial.
pub fn check_installed(host: &Host) -> Result<(), DeviceError> {
    match host.lacks(&["fio"])? {
        Some(_) => Err(DeviceError::NoFio { host: host.name().to_owned() }),
        None => Ok(()),
    }
}

/// Parses `running BYTES`.
fn parse_running(answer: &str) -> Option<u64> {
    answer.trim_end().strip_prefix("running ")?.parse().ok()
}

/// Returns fio's first error message; later ones are consequences.
fn find_cause(errors: &str, out: &str, status: &str) -> String {
    let lines = errors.lines().chain(out.lines()).map(str::trim);
    let mut messages = lines.filter(|l| l.starts_with("fio") || l.contains("error"));
    let first = messages.next().or_else(|| errors.lines().next()).unwrap_or(status);
    let direct = first.contains("does not support direct");
    let remedy = if direct { "; choose a place on a disk, not in memory" } else { "" };
    format!("{}{remedy}", first.trim_start_matches("fio: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::shell::await_end;

    /// Another process may have its number.
    #[test]
    fn a_job_that_has_ended_is_never_killed() {
        let dir = tempfile::tempdir().unwrap();
        let (log, pid) = (dir.path().join("killed"), dir.path().join("pid"));
        let head = format!(
            "kill() {{ echo \"$@\" >>{}; }}\nfio() {{ [ \"$1\" != --version ] || {{ echo fio-3; return; }}\n\
             sh -c 'echo $PPID' >{}; return 3; }}\nwhere=/x\nmake=no\nbytes=0\n",
            log.display(),
            pid.display()
        );
        for questions in [&[][..], &[""], &["stop", ""]] {
            let _ = std::fs::remove_file(&pid);
            let mut shell = Shell::start(&Host::local(), &(head.clone() + PRELUDE), BODY).unwrap();
            assert_eq!(shell.greeting(), "ready fio-3 /x\n");
            shell.ask("run job", ANSWER_LIMIT).unwrap();
            await_end(&pid);
            for question in questions {
                let answer = shell.ask(question, ANSWER_LIMIT).unwrap().text;
                assert_eq!(answer, "ended 3\n--out--\n", "the status is kept");
            }
            drop(shell);
            assert!(!log.exists(), "{questions:?}: {:?}", std::fs::read_to_string(&log));
        }
    }
}
