//! The thread of one background workload: prepares it, runs it again and again until it is stopped, and
//! logs what it did.
//!
//! It never ends the trial: an error goes to the log, which the caller judges.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::resolve::Extent;
use crate::experiment::admin::open_admin_anywhere;
use crate::experiment::trial::metrics_of;
use crate::host::stop::Stop;
use crate::pg::words;
use crate::rng::derive;
use crate::workload::{
    EngineError, Generator, Output, Progress, Setup, WindowEvent, WindowOutcome, Workload,
};
use pgio_connect::ConnectParams;

/// Returns the seed of a run: one that repeated the last one's would find everything in the cache.
fn seed_of_run(seed: u64, run: u64) -> u64 {
    match run {
        0 => seed,
        _ => derive(seed, "run", run),
    }
}

pub(super) enum Report {
    /// The backend of the admin session, by which telemetry knows the server's processes.
    Backend(i32),
    Opened,
}

/// One run of the work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) opened: Instant,
    /// `None` while it works.
    pub(super) closed: Option<Instant>,
    /// The primary metric that a program reported.
    pub(super) value: Option<f64>,
}

impl Run {
    /// Whether it worked, or works, from the beginning of this window to its end.
    pub(super) fn contains(&self, (from, to): (Instant, Instant)) -> bool {
        self.opened <= from && self.closed.is_none_or(|closed| closed >= to)
    }

    /// Whether it worked, or works, at some time in this window.
    pub(super) fn overlaps(&self, (from, to): (Instant, Instant)) -> bool {
        self.opened < to && self.closed.is_none_or(|closed| closed > from)
    }
}

/// Progress so far.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The run under way, from its opening until its result is there.
    pub(super) current: Option<Run>,
    /// Runs with a result.
    pub(super) complete: Vec<Run>,
    /// Moments that the counts cover, with the counts.
    pub(super) counts: Vec<(Instant, Progress)>,
    /// What a program wrote in the last run that was not stopped.
    pub(super) output: Output,
    pub(super) error: Option<String>,
}

/// What the thread owns.
pub(super) struct Work {
    pub(super) run_id: String,
    pub(super) params: ConnectParams,
    pub(super) workload: Arc<dyn Workload>,
    pub(super) extent: Extent,
    pub(super) is_program: bool,
    pub(super) metric: String,
    pub(super) seed: u64,
    pub(super) stop: Stop,
    pub(super) log: Arc<Mutex<Log>>,
    pub(super) reports: Sender<Report>,
}

impl Work {
    pub(super) fn run_and_log_error(self) {
        let result = self.run();
        self.workload.after_trial(&self.stop);
        if let Err(error) = result
            && !self.stop.requested()
        {
            self.lock().error = Some(error);
        }
    }

    fn run(&self) -> Result<(), String> {
        let (mut admin, _) =
            open_admin_anywhere(&self.params, &self.run_id).map_err(|e| words::sentence(&e))?;
        let pid =
            admin.query_one("SELECT pg_backend_pid()", &[]).map_err(|e| words::sentence(&e))?;
        // The receiver may have stopped waiting.
        let _ = self.reports.send(Report::Backend(pid.get(0)));
        self.workload.before_trial(&mut admin).map_err(|e| words::sentence(&e))?;
        for run in 0.. {
            if self.stop.requested() {
                break;
            }
            let setup = Setup {
                params: self.params.clone(),
                settings: Vec::new(),
                reads_settings: false,
                warmup: Duration::ZERO,
                seed: seed_of_run(self.seed, run),
                stop: self.stop.clone(),
                opener: None,
                generator: Generator::Alone,
            };
            let ready = Arc::clone(&self.workload).prepare(setup, &mut admin);
            let ready = ready.map_err(|e| self.log_output_of(&e))?;
            let ran = ready.run(&mut admin, self.extent, &mut |_, event| self.log_event(event));
            self.log_result(ran).map_err(|e| words::sentence(&e))?;
        }
        Ok(())
    }

    /// Returns the message of an error, and logs what its program wrote.
    fn log_output_of(&self, error: &EngineError) -> String {
        if let Some(output) = error.output() {
            self.lock().output = output.clone();
        }
        words::sentence(error)
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_event(&self, event: WindowEvent) {
        let mut log = self.lock();
        match event {
            WindowEvent::Opened(at) => {
                log.current = Some(Run { opened: at, closed: None, value: None });
                if !self.is_program {
                    log.counts.push((at, Progress::default()));
                }
                let _ = self.reports.send(Report::Opened);
            }
            WindowEvent::Progress(progress) => {
                let Some(run) = log.current.filter(|_| !self.is_program) else { return };
                let at = run.opened + Duration::from_secs_f64(progress.seconds());
                // Counts arrive once per slice, progress more often.
                let is_new = log.counts.last().is_none_or(|(last, _)| *last < at);
                if is_new {
                    log.counts.push((at, progress));
                }
            }
            WindowEvent::Output(output) => {
                let metric = output.metrics.get(&self.metric);
                if let Some(run) = &mut log.current {
                    run.value = metric.and_then(|metric| metric.value);
                }
                let (stdout, stderr) = (output.stdout, output.stderr);
                let earlier = &log.output;
                // One that was stopped after the window says less than the complete one before it.
                if !self.stop.requested() || earlier.stdout.is_empty() && earlier.stderr.is_empty()
                {
                    log.output = Output { stdout, stderr };
                }
            }
            WindowEvent::Closed(at) => {
                if let Some(run) = &mut log.current {
                    run.closed = Some(at);
                }
            }
            WindowEvent::Serving(_) => {}
        }
    }

    fn log_result(&self, ran: Result<WindowOutcome, EngineError>) -> Result<(), EngineError> {
        let outcome = ran?;
        if let Some(error) = outcome.error {
            return Err(error);
        }
        let metrics = metrics_of(&*self.workload, &outcome.totals, outcome.seconds);
        let value = metrics.get(&self.metric).and_then(|metric| metric.value);
        let mut log = self.lock();
        if let Some(run) = log.current.take() {
            log.complete.push(Run { value: run.value.or(value), ..run });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_contains_what_lies_between_its_opening_and_its_closing() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let run = Run { opened: at(1), closed: Some(at(5)), value: None };
        assert!(run.contains((at(1), at(5))) && run.contains((at(2), at(3))));
        assert!(!run.contains((at(0), at(3))) && !run.contains((at(2), at(6))));
        assert!(Run { closed: None, ..run }.contains((at(2), at(6))), "it still works");
    }

    #[test]
    fn each_run_has_a_seed_of_its_own() {
        let mut seeds: Vec<u64> = (0..100).map(|run| seed_of_run(7, run)).collect();
        assert_eq!(seeds[0], 7, "as the experiment's seed says");
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 100);
    }
}
