//! Runs fio on a host, one job after the other, through one shell.
//!
//! The shell removes its files when its stdin closes: when the bench is dropped, when pgio is killed,
//! or when the connection breaks. A job is polled so that it can be stopped at any moment.

use std::ffi::OsStr;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use pgio_results::model::{DevicePlace, DeviceRecord, DeviceRun, DeviceTest};

use super::fio::{self, FioResult, Job};
use super::place::{Kind, Place};
use super::{DeviceError, Extent, Test};
use crate::host::command::quoted;
use crate::host::exec::ExecError;
use crate::host::machine::HostError;
use crate::host::stop::Stop;
use crate::host::{Host, Shell};
use crate::rng::{SplitMix64, derive};

const PRELUDE: &str = include_str!("bench.sh");
const BODY: &str = include_str!("question.sh");

/// The shell answers at once, even while fio waits.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Time for fio to stop; after that, it is killed when the shell ends.
const STOP_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Bench {
    shell: Shell,
    place: String,
    /// The file that fio opens.
    file: String,
    /// The version, such as `fio-3.33`.
    pub version: String,
}

impl Bench {
    /// Creates the scratch file of this size if the place is a directory.
    pub(super) fn open(host: &Host, place: &Place, bytes: u64) -> Result<Bench, DeviceError> {
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
    pub(super) fn run(
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
pub(super) fn check_installed(host: &Host) -> Result<(), DeviceError> {
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

// Measures one or two places by all tests, round by round. Each round runs every test on each place, in an order
// drawn for each test, so that drift affects all places alike.

/// The rounds of one measurement. All places have a bench.
#[derive(Debug)]
pub(super) struct Rounds {
    pub places: Vec<Place>,
    pub benches: Vec<Bench>,
    pub tests: Vec<(Test, Extent)>,
    /// Whether the region of each place is written once before measuring: reads of blocks that were never written do
    /// not reach the medium.
    pub fill: Vec<bool>,
    pub region: u64,
    pub rounds: u32,
    pub seed: u64,
}

/// What is being done.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub place: &'a str,
    /// The test, and the number of its round; `None` while the region is written once.
    pub test: Option<(u32, String)>,
    /// Time that is left, if runs so far tell.
    pub left: Option<Duration>,
}

impl Rounds {
    /// Runs all rounds. `progress` receives what is being done.
    pub(super) fn record(
        mut self,
        stop: &Stop,
        progress: &mut dyn FnMut(&Step<'_>),
    ) -> Result<DeviceRecord, DeviceError> {
        let mut record = DeviceRecord {
            fio: self.benches.first().map(|b| b.version.clone()).unwrap_or_default(),
            started_at: Timestamp::now().to_string(),
            seed: self.seed,
            rounds: self.rounds,
            region_bytes: self.region,
            places: self.places.iter().map(stored_place).collect(),
            tests: self.tests.iter().map(|(test, _)| stored_test(test)).collect(),
            runs: Vec::new(),
        };
        for place in 0..self.places.len() {
            if self.fill[place] {
                progress(&Step { place: &self.places[place].name, test: None, left: None });
                let extent = Extent::Bytes(self.region);
                self.job(place, Test::FILL, extent, 0, stop)?;
            }
        }
        let mut order = SplitMix64::new(derive(self.seed, "order", 0));
        let began = Instant::now();
        let runs = self.rounds as usize * self.tests.len() * self.places.len();
        for round in 1..=self.rounds {
            for (test, extent) in self.tests.clone() {
                let mut places: Vec<usize> = (0..self.places.len()).collect();
                order.shuffle(&mut places);
                for place in places {
                    let done = record.runs.len();
                    let left = (runs - done) as f64 / done as f64;
                    let left = (done > 0).then(|| began.elapsed().mul_f64(left));
                    let (name, test_of_round) = (&self.places[place].name, (round, test.name()));
                    progress(&Step { place: name, test: Some(test_of_round), left });
                    let ran = self.job(place, test, extent, round, stop)?;
                    record.runs.push(stored_run(round, place, &test, &ran));
                }
            }
        }
        Ok(record)
    }

    /// Both targets use the same offsets; each round uses others.
    fn job(
        &mut self,
        place: usize,
        test: Test,
        extent: Extent,
        round: u32,
        stop: &Stop,
    ) -> Result<FioResult, DeviceError> {
        let seed = derive(self.seed, &test.name(), u64::from(round)) >> 11;
        let job = Job { test, region: self.region, extent, seed };
        self.benches[place].run(&job, stop, &mut |_| {})
    }
}

fn stored_place(place: &Place) -> DevicePlace {
    DevicePlace {
        name: place.name.clone(),
        kind: place.kind.name().to_owned(),
        path: place.path.display().to_string(),
        sector_bytes: place.sector,
    }
}

fn stored_test(test: &Test) -> DeviceTest {
    DeviceTest {
        name: test.name(),
        kind: test.kind.name().to_owned(),
        block_bytes: test.block,
        depth: test.depth,
        metric: test.metric().to_owned(),
    }
}

fn stored_run(round: u32, place: usize, test: &Test, ran: &FioResult) -> DeviceRun {
    DeviceRun {
        round,
        test: test.name(),
        place,
        seconds: ran.seconds,
        operations: ran.operations,
        bytes: ran.bytes,
        metrics: ran.metrics().into_iter().collect(),
    }
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
