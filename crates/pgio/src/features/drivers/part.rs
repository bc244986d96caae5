//! What a driver does for one trial: it connects, comes to each window's start, works, and reports.
//!
//! Runs on a thread of its own, which receives the coordinator's orders through a channel; [`super::serve`] reads
//! the coordinator's messages meanwhile. The coordinator chooses the moments at which windows open.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;
use rustix::time::{ClockId, clock_gettime};

use super::messages::{
    Assignment, DriverError, Failure, FromDriver, PartProgress, PartResult, Report,
};
use super::preflight::{fault, open_admin, resolve_params};
use crate::config::resolve::Extent;
use crate::host::stop::Stop;
use crate::pg::words;
use crate::workload::clock::{Opener, Start};
use crate::workload::error::EngineError;
use crate::workload::output::ProgramOutput;
use crate::workload::participants::{
    Generator, Progress, SessionShare, Setup, WindowEvent, WindowOutcome,
};
use crate::workload::shared::PartKinds;
use pgio_link::{Clock, Link};

/// Interval of progress reports: the coordinator should need next to nothing for them.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// One trial on a driver.
#[derive(Debug)]
pub(super) struct TrialWork {
    pub(super) number: u64,
    pub(super) link: Link,
    pub(super) clock: Clock,
    pub(super) stop: Stop,
    pub(super) orders: Mutex<Receiver<Order>>,
    pub(super) kinds: PartKinds,
}

impl TrialWork {
    pub(super) fn run(self: Arc<Self>, assignment: Assignment) {
        let (number, link) = (self.number, self.link.clone());
        let report = match self.run_trial(assignment) {
            Ok(result) => Report::Ended(Box::new(result)),
            Err(error) => Report::Failed(Failure {
                message: words::sentence(&error),
                fault: fault(&error),
                stopped: matches!(error, EngineError::Stopped),
            }),
        };
        // Fails only for an answer beyond all bounds; then the coordinator times out and reports it.
        let _ = link.send(&FromDriver { number, report });
    }

    fn send(&self, report: Report) -> Result<(), EngineError> {
        let sent = self.link.send(&FromDriver { number: self.number, report });
        Ok(sent.map_err(DriverError::from)?)
    }

    fn run_trial(self: Arc<Self>, assignment: Assignment) -> Result<PartResult, EngineError> {
        let params = resolve_params(&assignment.dsn, &assignment.application_name);
        let params = params.map_err(EngineError::Connect)?;
        let mut admin = open_admin(&params, &self.stop)?;
        let setup = Setup {
            params,
            settings: assignment.settings,
            reads_settings: assignment.reads_settings,
            warmup: Duration::try_from_secs_f64(assignment.warmup_seconds).unwrap_or_default(),
            seed: assignment.seed,
            stop: self.stop.clone(),
            generator: Generator::Part(SessionShare { first: assignment.first, of: assignment.of }),
            opener: Some(Arc::clone(&self) as Arc<dyn Opener>),
        };
        let kind = assignment.part.find(self.kinds)?;
        let ready = (kind.prepare)(&assignment.part, setup, &mut admin)?;
        self.send(Report::Ready { pids: ready.pids(), pinned: ready.pinned() })?;
        let Order::Run(extent) = self.order()? else {
            return Err(DriverError::UnexpectedOrder.into());
        };
        let mut watch = WindowReporter::new(&self);
        let mut outcome =
            ready.run(&mut admin, extent, &mut |_, event| watch.handle_event(&event))?;
        for kept in std::mem::take(&mut outcome.kept) {
            self.send(Report::Kept(kept))?;
        }
        Ok(watch.result(outcome))
    }

    /// Waits for the next order.
    fn order(&self) -> Result<Order, EngineError> {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match orders.recv_timeout(TICK) {
                Ok(order) => return Ok(order),
                Err(RecvTimeoutError::Timeout) if !self.stop.requested() => {}
                Err(_) => return Err(EngineError::Stopped),
            }
        }
    }
}

/// Reports what happens in a window and measures what it costs this process.
struct WindowReporter<'a> {
    work: &'a TrialWork,
    /// The CPU time at the start.
    opened: Option<f64>,
    cpu_seconds: f64,
    reported: Instant,
    output: Option<ProgramOutput>,
}

impl WindowReporter<'_> {
    fn new(work: &TrialWork) -> WindowReporter<'_> {
        WindowReporter {
            work,
            opened: None,
            cpu_seconds: 0.0,
            reported: Instant::now(),
            output: None,
        }
    }

    fn handle_event(&mut self, event: &WindowEvent) {
        let report = match event {
            WindowEvent::Opened(_) => {
                self.opened = Some(cpu_seconds());
                Report::Opened(self.work.clock.now())
            }
            WindowEvent::Progress(progress) if self.reported.elapsed() >= PROGRESS_INTERVAL => {
                self.reported = Instant::now();
                Report::Progress(part_progress(progress))
            }
            WindowEvent::Closed(at) => {
                self.cpu_seconds = cpu_seconds() - self.opened.unwrap_or(0.0);
                Report::Closed(self.work.clock.at(*at))
            }
            WindowEvent::Serving(pids) => Report::Serving(pids.clone()),
            WindowEvent::Output(output) => {
                self.output = Some((**output).clone());
                return;
            }
            WindowEvent::Progress(_) => return,
        };
        // A lost connection ends the trial by itself.
        let _ = self.work.send(report);
        if let WindowEvent::Closed(_) = event {
            // The sessions stay until their processes have been observed for the last time; an order
            // to stop ends this wait, too.
            let _ = self.work.order();
        }
    }

    fn result(self, outcome: WindowOutcome) -> PartResult {
        let cores = thread::available_parallelism().map_or(1, |n| n.get());
        PartResult {
            totals: outcome.totals,
            sessions: outcome.sessions,
            timeline: outcome.timeline,
            seconds: outcome.seconds,
            late: outcome.late,
            cancelled_sync_rep: outcome.cancelled_sync_rep,
            readings: outcome.readings,
            output: self.output,
            cpu_seconds: self.cpu_seconds,
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            stood_still: outcome.stood_still,
            stopped: matches!(outcome.error, Some(EngineError::Stopped)),
            error: outcome.error.map(|error| words::sentence(&error)),
        }
    }
}

fn part_progress(progress: &Progress) -> PartProgress {
    PartProgress {
        covered: progress.covered,
        block_visits: progress.block_visits,
        blocks_scanned: progress.blocks_scanned,
        commits: progress.commits,
        messages: progress.messages,
    }
}

/// Returns the CPU time of all threads of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

const TICK: Duration = Duration::from_millis(50);

/// An order of the coordinator to the thread of a trial.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    Run(Extent),
    Open { at: i64, epoch: f64 },
    Release,
}

/// The coordinator chooses when a window opens.
impl Opener for TrialWork {
    fn start(&self, _: &mut Client, _: Duration) -> Result<Start, EngineError> {
        self.send(Report::AtGate)?;
        match self.order()? {
            Order::Open { at, epoch } => Ok(Start { at: self.clock.moment(at), epoch }),
            Order::Run(_) | Order::Release => Err(DriverError::UnexpectedOrder.into()),
        }
    }

    fn warm_up(&self, admin: &mut Client, lead: Duration) -> Result<Start, EngineError> {
        self.start(admin, lead)
    }

    fn keep_alive(&self) {
        // A lost connection ends the trial by itself.
        let _ = self.send(Report::Progress(PartProgress::default()));
    }
}
