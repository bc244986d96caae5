//! Background work beside the trials, from before their warm-up to after their window.
//!
//! Each runs on a thread and an admin session of its own. Sessions of the server work until they are stopped, and their
//! counts over the judged window are interpolated. A program reports at its end, so the run that contains the window is
//! awaited; one without a metric reports nothing and is stopped. Failures never end the judged trial; they make it
//! invalid. Next: [`super::prepare`] prepares the work, [`super::work`] is the thread.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::NAME;
use super::spec::BackgroundSpec;
use super::work::{Log, Report, Work};
use crate::config::resolve::Extent;
use crate::experiment::admin::open_admin_anywhere;
use crate::experiment::companion::{Accompaniment, Companion, Reservation, WindowStart};
use crate::experiment::live::{self, LiveError};
use crate::experiment::trial::{OutputFiles, full_output, output_files};
use crate::host::stop::Stop;
use crate::pg::words;
use crate::rng::derive;
use crate::treatment::Resource;
use crate::treatment::journal::Journal;
use crate::workload::{Counted, Progress, Workload};
use pgio_connect::ConnectParams;
use pgio_results::checks::{CheckDef, def};
use pgio_results::model::{Check, CompanionUse, Trial};
use pgio_results::thresholds::Share;

/// Sessions end when they are stopped; no trial is longer.
const UNTIL_STOPPED: Duration = Duration::from_secs(24 * 3600);
/// How long a program may run beyond its own time.
const GRACE: Duration = Duration::from_secs(10);
/// A program without a metric, whose runs follow each other, ran throughout if they cover this share of the window.
const COVERED: Share = Share(0.9);
const POLL: Duration = Duration::from_millis(50);
/// What is shown of such a program.
const SHARE: &str = "share_of_window";

/// Background work, ready to run.
pub(super) struct Background {
    pub spec: BackgroundSpec,
    pub run_id: String,
    pub params: ConnectParams,
    pub workload: Arc<dyn Workload>,
    /// The server's host by its name in the experiment, if known.
    pub host: Option<String>,
    pub identity: Resource,
    /// Whether the server is removed at the end, with everything in it.
    pub private: bool,
    /// The journal of the table that it makes on a server of the user's.
    pub table_journal: Option<Journal>,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Background({})", self.spec.work.name)
    }
}

/// Returns what work takes from its server: its sessions, and the admin session beside them.
pub(super) fn reservation(
    spec: &BackgroundSpec,
    server: Resource,
    workload: &dyn Workload,
) -> Reservation {
    Reservation {
        what: "background work",
        conditions: spec.conditions().to_vec(),
        server,
        connections: workload.connections().saturating_add(1),
    }
}

/// All of a workload.
#[derive(Debug, Default)]
pub(super) struct AllBackground(pub(super) Vec<Background>);

impl Companion for AllBackground {
    fn reservations(&self) -> Vec<Reservation> {
        self.0.iter().map(Background::reservation).collect()
    }

    fn journal(&mut self, dir: &Path, experiment: &str) -> Result<(), LiveError> {
        for (at, background) in self.0.iter_mut().enumerate() {
            let makes = background.workload.created_table().filter(|_| !background.private);
            let Some(table) = makes else { continue };
            let id = format!("{}-background-{at}", background.run_id);
            let (params, identity) = (&background.params, &background.identity);
            let journal = live::table_journal(dir, &id, params, identity, experiment, &table)?;
            background.table_journal = Some(journal);
        }
        Ok(())
    }

    fn begin(&self, condition: &str, seed: u64, stop: &Stop) -> Box<dyn Accompaniment + '_> {
        Box::new(RunningBackground::start(&self.0, condition, seed, stop))
    }

    fn clean_up(&mut self) {
        for background in &mut self.0 {
            // The journal keeps what a server that does not answer still has.
            let _ = background.clean_up();
        }
    }
}

impl Background {
    pub(super) fn reservation(&self) -> Reservation {
        reservation(&self.spec, self.identity.clone(), &*self.workload)
    }

    /// A program reports at its end only.
    fn is_program(&self) -> bool {
        let kind = self.spec.work.kind.def();
        kind.program || kind.tests_device
    }

    /// Whether its result, which comes at its end, is worth waiting for.
    fn reports(&self) -> bool {
        self.is_program() && !self.workload.info().primary_metric.is_empty()
    }

    /// Removes the table that it made. If the server does not answer, the journal stays for `undo`.
    pub(super) fn clean_up(&mut self) -> Result<(), LiveError> {
        let Some(journal) = self.table_journal.take() else { return Ok(()) };
        let (mut admin, _) = open_admin_anywhere(&self.params, &self.run_id)?;
        if self.workload.clean_up(&mut admin).is_ok() {
            live::end_table_journal(journal);
        }
        Ok(())
    }

    fn extent(&self) -> Extent {
        if self.is_program() { self.workload.extent() } else { Extent::Time(UNTIL_STOPPED) }
    }
}

/// One of them while it runs.
struct Running<'a> {
    background: &'a Background,
    stop: Stop,
    log: Arc<Mutex<Log>>,
    reports: Receiver<Report>,
    thread: Option<JoinHandle<()>>,
}

/// The judged window, from its opening to its end.
type Window = (Instant, Instant);

/// How background work ran in the judged window.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ran {
    /// All the time, at this rate.
    Throughout(Option<f64>),
    /// A program ended in it, or began in it: the mean of such runs, if they had a result.
    Partly(Option<f64>),
    /// A program did not end in the time that it had after the window.
    Endless,
}

/// The background work of one trial. Dropping it stops all of it.
pub(super) struct RunningBackground<'a> {
    running: Vec<Running<'a>>,
    /// Hosts and backends of their servers.
    backends: Vec<(String, i32)>,
}

impl<'a> RunningBackground<'a> {
    /// Starts the work of a condition; returns when each has begun or failed.
    fn start(
        all: &'a [Background],
        condition: &str,
        seed: u64,
        stop: &Stop,
    ) -> RunningBackground<'a> {
        let mut started = RunningBackground { running: Vec::new(), backends: Vec::new() };
        let wanted = all.iter().filter(|b| b.spec.runs_beside(condition));
        started.running = wanted.map(|b| Running::start(b, seed)).collect();
        for running in &started.running {
            while let Some(report) = running.next_report(stop) {
                match (report, &running.background.host) {
                    (Report::Backend(pid), Some(host)) => {
                        started.backends.push((host.clone(), pid));
                    }
                    (Report::Backend(_), None) => {}
                    (Report::Opened, _) => break,
                }
            }
        }
        started
    }
}

impl Accompaniment for RunningBackground<'_> {
    fn backends(&self) -> &[(String, i32)] {
        &self.backends
    }

    fn end(
        mut self: Box<Self>,
        window: WindowStart,
        stop: &Stop,
        number: usize,
        trial: &mut Trial,
    ) -> OutputFiles {
        let mut all_output = OutputFiles::new();
        let seconds = Duration::from_secs_f64(trial.window.seconds);
        let window: Option<Window> = window.0.map(|opened| (opened, opened + seconds));
        for running in &mut self.running {
            running.end(window, stop);
            let log = running.log.lock().unwrap_or_else(PoisonError::into_inner);
            let info = running.background.workload.info();
            let in_window = |judge: fn(&Log, Window) -> Ran| {
                window.map_or(Ran::Throughout(None), |window| judge(&log, window))
            };
            let (metric, ran) = if running.background.reports() {
                (info.primary_metric, in_window(run_in_window))
            } else if running.background.is_program() {
                (SHARE.to_owned(), in_window(share_of_window))
            } else {
                let (metric, rate) = count_in_window(&log.counts, info.primary_metric, window);
                (metric, Ran::Throughout(rate))
            };
            let spec = &running.background.spec;
            let prefix = format!("{}.", spec.work.name);
            let output = output_files(&prefix, &log.output.stdout, &log.output.stderr);
            if window.is_some() && !stop.requested() {
                let error =
                    log.error.as_ref().map(|error| error.clone() + &full_output(&output, number));
                trial.checks.push(check(spec, ran, error.as_deref()));
            }
            all_output.extend(output);
            let value = match ran {
                Ran::Throughout(value) | Ran::Partly(value) => value,
                Ran::Endless => None,
            };
            let (target, standby) = (spec.target.clone(), spec.standby.clone());
            let used = CompanionUse { target, standby, kind: info.kind, metric, value };
            trial.companions.insert(spec.work.name.clone(), used);
        }
        all_output
    }
}

impl std::fmt::Debug for RunningBackground<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Neighbors").field("backends", &self.backends).finish_non_exhaustive()
    }
}

pub(super) fn checks() -> Vec<CheckDef> {
    vec![def(
        NAME,
        "background work of the condition failed, did nothing in the window, or did not end after it",
        format!(
            "no single run of a background program contains the window, or the runs of one without a metric cover less than {COVERED} of it"
        ),
        "run its workload alone with `pgio compare`, give a program a longer `run_time`, or remove the condition from its `conditions`",
    )]
}

fn check(spec: &BackgroundSpec, ran: Ran, error: Option<&str>) -> Check {
    let work = format!("background work `{}` on {}", spec.work.name, spec.place());
    let alone =
        "run its workload alone with `pgio compare`, or remove the condition from its conditions";
    let longer = "give it a longer run_time, or let its command run longer: it begins before pgio prepares the trial's own work";
    let invalid = |what: &str, remedy: &str| Check::invalid(NAME, format!("{work} {what}"), remedy);
    match (error, ran) {
        (Some(error), _) => invalid(&format!("failed: {error}"), alone),
        (None, Ran::Throughout(Some(value))) if value > 0.0 => {
            Check::ok(NAME, format!("{work} ran throughout the window"))
        }
        (None, Ran::Throughout(_)) => invalid("did nothing in the window", alone),
        (None, Ran::Partly(_)) => {
            let message = format!("{work} did not run throughout the window");
            Check::warning(NAME, message, longer)
        }
        (None, Ran::Endless) => invalid("did not end after the window", alone),
    }
}

/// Returns how a program ran in the window.
fn run_in_window(log: &Log, window: Window) -> Ran {
    if let Some(run) = log.complete.iter().find(|run| run.contains(window)) {
        return Ran::Throughout(run.value);
    }
    let current = log.current.as_ref();
    if current.is_some_and(|run| run.contains(window)) {
        return Ran::Endless;
    }
    let mut parts =
        log.complete.iter().chain(current).filter(|run| run.overlaps(window)).peekable();
    if parts.peek().is_none() {
        return Ran::Throughout(None);
    }
    let values: Vec<f64> = parts.filter_map(|run| run.value).collect();
    Ran::Partly(benchmath::summary::mean(&values))
}

/// Returns how much of the window the runs of a program cover.
fn share_of_window(log: &Log, (from, to): Window) -> Ran {
    let covered = log.complete.iter().chain(&log.current).map(|run| {
        let end = run.closed.map_or(to, |closed| closed.min(to));
        end.saturating_duration_since(run.opened.max(from)).as_secs_f64()
    });
    match covered.sum::<f64>() / (to - from).as_secs_f64() {
        share if share > COVERED.0 => Ran::Throughout(Some(share)),
        share if share > 0.0 => Ran::Partly(Some(share)),
        _ => Ran::Throughout(None),
    }
}

/// Whether the result of a program's run is still to come and worth waiting for: it is if the run contains the window.
/// `limit` is the longest time from its opening on.
fn is_awaited(log: &Log, window: Option<Window>, limit: Option<Duration>) -> bool {
    let (Some(run), Some(window), None) = (&log.current, window, &log.error) else { return false };
    run.contains(window) && limit.is_none_or(|limit| run.opened.elapsed() < limit)
}

/// Returns the metric by which sessions are counted, and its value between two moments.
fn count_in_window(
    counts: &[(Instant, Progress)],
    primary: String,
    window: Option<Window>,
) -> (String, Option<f64>) {
    let Some(Counted { metric, unit, .. }) =
        counts.last().and_then(|(_, last)| last.primary_count(&primary))
    else {
        return (primary, None);
    };
    let count = |progress: &Progress| {
        let counted = progress.primary_count(metric).filter(|c| c.metric == metric);
        counted.map_or(0, |c| c.count)
    };
    let counts: Vec<(Instant, u64)> = counts.iter().map(|(at, p)| (*at, count(p))).collect();
    let per_second = window.and_then(|(from, to)| rate(&counts, from, to));
    (metric.to_owned(), per_second.map(|value| value * f64::from(unit)))
}

/// Rate between two moments, interpolated between counts, which arrive about once a second.
fn rate(counts: &[(Instant, u64)], from: Instant, to: Instant) -> Option<f64> {
    let at = |moment: Instant| -> Option<f64> {
        let after = counts.iter().position(|(at, _)| *at >= moment);
        let (after, count) = match after {
            Some(0) => return Some(counts[0].1 as f64),
            Some(after) => (after, counts[after]),
            // The last count lags behind the window's end by less than a slice.
            None => return counts.last().map(|(_, count)| *count as f64),
        };
        let before = counts[after - 1];
        let span = (count.0 - before.0).as_secs_f64();
        let share = if span > 0.0 { (moment - before.0).as_secs_f64() / span } else { 1.0 };
        Some(before.1 as f64 + share * (count.1 as f64 - before.1 as f64))
    };
    let (first, last) = (counts.first()?.0, counts.last()?.0);
    let (from, to) = (from.max(first), to.min(last));
    let seconds = to.checked_duration_since(from)?.as_secs_f64();
    (seconds > 0.0).then(|| Some((at(to)? - at(from)?) / seconds))?
}

impl<'a> Running<'a> {
    fn start(background: &'a Background, seed: u64) -> Running<'a> {
        let (stop, log) = (Stop::new(), Arc::new(Mutex::new(Log::default())));
        let (sender, reports) = mpsc::channel();
        let work = Work {
            run_id: background.run_id.clone(),
            params: background.params.clone(),
            workload: Arc::clone(&background.workload),
            extent: background.extent(),
            is_program: background.is_program(),
            metric: background.workload.info().primary_metric,
            seed: derive(seed, &background.spec.work.name, 0),
            stop: stop.clone(),
            log: Arc::clone(&log),
            reports: sender,
        };
        let thread = thread::Builder::new().name(NAME.to_owned());
        let thread = thread.spawn(move || work.run_and_log_error());
        if let Err(error) = &thread {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.error = Some(words::sentence(error));
        }
        Running { background, stop, log, reports, thread: thread.ok() }
    }

    /// `None` if the thread has ended, or the user stops the run.
    fn next_report(&self, stop: &Stop) -> Option<Report> {
        loop {
            match self.reports.recv_timeout(POLL) {
                Ok(report) => return Some(report),
                Err(RecvTimeoutError::Timeout) if !stop.requested() => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Waits for the report of a program that ran throughout the window, then stops the work.
    fn end(&mut self, window: Option<Window>, stop: &Stop) {
        // A program that determines its own length has a time limit of its own.
        let limit = self.background.workload.extent().time().map(|time| time + GRACE);
        let is_waiting = || {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            is_awaited(&log, window, limit)
        };
        let is_running = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while self.background.reports() && !stop.requested() && is_running() && is_waiting() {
            thread::sleep(POLL);
        }
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread and leaves a log without work, which is judged.
            let _ = thread.join();
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec;
    use super::super::work::Run;
    use super::*;
    use crate::config::experiment::part::read_again;
    use crate::config::experiment::tests::read;
    use pgio_results::CheckVerdict;

    #[test]
    fn a_rate_is_that_of_the_judged_window() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let counts = [(at(0.0), 0), (at(1.0), 100), (at(3.0), 500), (at(4.0), 500)];
        let rate = |from: f64, to: f64| rate(&counts, at(from), at(to));
        assert_eq!(rate(1.0, 3.0), Some(200.0));
        assert_eq!(rate(0.5, 2.0), Some((300.0 - 50.0) / 1.5));
        assert_eq!(rate(3.0, 4.0), Some(0.0), "a standstill");
        assert_eq!(rate(2.0, 9.0), Some((500.0 - 300.0) / 2.0), "the counts end before the window");
        assert_eq!(super::rate(&counts[..1], at(0.0), at(1.0)), None);
        assert_eq!(rate(5.0, 6.0), None);
    }

    #[test]
    fn a_background_rate_counts_the_work_of_its_primary_metric() {
        let start = Instant::now();
        let later = start + Duration::from_secs(2);
        let counted = |primary: &str, progress| {
            let counts = [(start, Progress::default()), (later, progress)];
            let (metric, value) =
                count_in_window(&counts, primary.to_owned(), Some((start, later)));
            (metric, value.unwrap_or(f64::NAN))
        };
        let commits = Progress { commits: 1000, block_visits: 10_000, ..Progress::default() };
        let found = |metric: &str, value: f64| (metric.to_owned(), value);
        assert_eq!(counted("commit_p99", commits), found("commits_per_second", 500.0));
        let visits = found("block_visits_per_second", 5000.0);
        assert_eq!(counted("block_visits_per_second", commits), visits);
        let mail = Progress { messages: 20, ..Progress::default() };
        assert_eq!(counted("delivery_latency_p99", mail), found("messages_per_minute", 600.0));
        let scans = Progress { blocks_scanned: 300, ..Progress::default() };
        let scanned = found("blocks_scanned_per_second", 150.0);
        assert_eq!(counted("blocks_scanned_per_second", scans), scanned);
        let (metric, value) = counted("commit_p99", Progress::default());
        assert!(metric == "commit_p99" && value.is_nan());
    }

    fn spec() -> BackgroundSpec {
        let text = "[targets.a]\nprivate = true\n[workload]\nkind = 'commit'\n[[condition]]\nname = 'c'\n\
                    target = 'a'\n[[background]]\nname = 'n'\ntarget = 'a'\nconditions = ['c']\nkind = 'slob'\n";
        let experiment = read(text);
        read_again(text, |root| spec::parse(root, &experiment)).unwrap().remove(0)
    }

    #[test]
    fn work_that_did_nothing_or_failed_invalidates_the_trial() {
        let verdict = |value, error| check(&spec(), Ran::Throughout(value), error).verdict;
        assert_eq!(verdict(Some(5.0), None), CheckVerdict::Ok);
        assert_eq!(verdict(Some(0.0), None), CheckVerdict::Invalid);
        assert_eq!(verdict(None, None), CheckVerdict::Invalid);
        let failed = check(&spec(), Ran::Throughout(Some(5.0)), Some("no such table"));
        assert_eq!(failed.verdict, CheckVerdict::Invalid);
        assert_eq!(failed.message, "background work `n` on `a` failed: no such table");
    }

    #[test]
    fn runs_of_a_program_without_a_metric_cover_a_share_of_the_window() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let run = |from, to: Option<u64>| Run { opened: at(from), closed: to.map(at), value: None };
        let share = |complete: &[Run], current| {
            let log = Log { complete: complete.to_vec(), current, ..Log::default() };
            share_of_window(&log, (at(100), at(200)))
        };
        assert_eq!(share(&[], Some(run(0, None))), Ran::Throughout(Some(1.0)), "it was stopped");
        let short = [run(90, Some(130)), run(132, Some(160))];
        assert_eq!(share(&short, Some(run(165, None))), Ran::Throughout(Some(0.93)));
        assert_eq!(share(&short, None), Ran::Partly(Some(0.58)));
        assert_eq!(share(&[run(0, Some(100))], Some(run(200, None))), Ran::Throughout(None));
    }

    #[test]
    fn one_run_of_a_program_must_contain_the_window() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let run = |from, to| Run { opened: at(from), closed: Some(at(to)), value: Some(7.0) };
        let window = (at(10), at(20));
        let ran = |complete: &[Run], current: Option<Run>| {
            let log = Log { complete: complete.to_vec(), current, ..Log::default() };
            run_in_window(&log, window)
        };
        let whole = Run { value: Some(5.0), ..run(9, 22) };
        assert_eq!(ran(&[run(0, 8), whole, run(23, 30)], None), Ran::Throughout(Some(5.0)));
        let halves = ran(&[run(0, 14)], Some(Run { closed: None, value: None, ..run(15, 0) }));
        assert_eq!(halves, Ran::Partly(Some(7.0)), "it was prepared again in the window");
        let short = Run { value: Some(9.0), ..run(15, 19) };
        assert_eq!(ran(&[run(9, 14), short], None), Ran::Partly(Some(8.0)));
        assert_eq!(ran(&[run(0, 8)], None), Ran::Throughout(None));
        assert_eq!(ran(&[], Some(Run { closed: None, ..run(9, 0) })), Ran::Endless);
        let found = check(&spec(), halves, None);
        assert_eq!(found.verdict, CheckVerdict::Warning);
        assert_eq!(found.message, "background work `n` on `a` did not run throughout the window");
        assert_eq!(check(&spec(), Ran::Endless, None).verdict, CheckVerdict::Invalid);
    }

    #[test]
    fn a_program_is_awaited_from_its_opening_on() {
        let now = Instant::now();
        let opened = now.checked_sub(Duration::from_secs(15)).unwrap();
        let run = Run { opened, closed: None, value: None };
        let log = |current| Log { current, ..Log::default() };
        let window = Some((now, now));
        let limit = |seconds| Some(Duration::from_secs(seconds));
        assert!(is_awaited(&log(Some(run)), window, limit(20)));
        assert!(!is_awaited(&log(Some(run)), window, limit(10)));
        assert!(is_awaited(&log(Some(run)), window, None), "it determines its own length");
        assert!(!is_awaited(&log(None), window, None), "it is between two runs");
        assert!(!is_awaited(&log(Some(run)), None, None), "there was no window");
        let late = Run { opened: now, ..run };
        assert!(!is_awaited(&log(Some(late)), Some((opened, now)), None), "it is of no use");
    }
}
