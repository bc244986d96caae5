//! All sessions of a trial: connected, warmed up, then released together for one window.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::MailError;
use super::postman::{Postman, Round, Shift};
use super::tally::Tally;
use crate::workload::engine::EngineError;

/// Resolving a name takes more than most of what a session does.
const STACK: usize = 512 * 1024;
/// How often the caller hears of progress.
const TICK: Duration = Duration::from_millis(50);
/// For sessions that were told to stop; longer than it takes to connect to nobody.
const STOPPING: Duration = Duration::from_secs(15);
/// What a session needs between two looks at whether it is to stop.
const SLACK: Duration = Duration::from_secs(1);

enum Event {
    Ready,
    Done(Box<Tally>),
    Failed(MailError),
}

pub(super) struct Crew {
    round: Arc<Round>,
    go: Vec<Sender<Shift>>,
    events: Receiver<Event>,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crew({})", self.go.len())
    }
}

/// What a span came to.
#[derive(Debug, Default)]
pub(super) struct Came {
    pub(super) tally: Tally,
    pub(super) error: Option<EngineError>,
}

impl Crew {
    /// All sessions connected, or none.
    pub(super) fn assemble(round: Arc<Round>) -> Result<Crew, EngineError> {
        let (events_in, events) = mpsc::channel();
        let mut go = Vec::new();
        for index in 0..round.settings.threads {
            let (sender, shifts) = mpsc::channel();
            let (round, events_in) = (Arc::clone(&round), events_in.clone());
            thread::Builder::new()
                .name(format!("mail-{index}"))
                .stack_size(STACK)
                .spawn(move || session(index, round, &shifts, &events_in))
                .map_err(|e| {
                    EngineError::Stuck(format!("cannot start a thread for a mail session: {e}"))
                })?;
            go.push(sender);
        }
        let mut crew = Crew { round, go, events };
        let came = crew.gather(None, &mut || {});
        match came.error {
            Some(error) => Err(error),
            None => Ok(crew),
        }
    }

    /// Delivers from `start` for so long; `tick` is called often meanwhile.
    pub(super) fn deliver(&mut self, shift: &Shift, tick: &mut dyn FnMut()) -> Came {
        self.round.done.store(0, Ordering::Relaxed);
        for go in &self.go {
            // A session that is gone has said why.
            let _ = go.send(shift.clone());
        }
        // Whoever waits for an answer at the end may wait for as long as any answer may take.
        let limit = shift.end + self.round.settings.timeout + SLACK;
        self.gather(Some(limit), tick)
    }

    /// Until every session has said something; what is late at `limit` is stopped.
    fn gather(&mut self, limit: Option<Instant>, tick: &mut dyn FnMut()) -> Came {
        let halt = self.round.halt.clone();
        let mut came = Came::default();
        let mut waiting = self.go.len();
        let mut stopping: Option<Instant> = None;
        while waiting > 0 {
            match self.events.recv_timeout(TICK) {
                Ok(Event::Ready) => waiting -= 1,
                Ok(Event::Done(tally)) => {
                    waiting -= 1;
                    came.tally.merge(&tally);
                }
                Ok(Event::Failed(error)) => {
                    waiting -= 1;
                    came.error.get_or_insert(error.into());
                    halt.failed.request();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if halt.user.requested() {
                came.error.get_or_insert(EngineError::Stopped);
            }
            if limit.is_some_and(|limit| Instant::now() > limit) {
                halt.failed.request();
            }
            if halt.requested() {
                let since = *stopping.get_or_insert_with(Instant::now);
                if since.elapsed() > STOPPING {
                    came.error.get_or_insert(EngineError::Stuck(format!(
                        "{waiting} mail sessions did not end when they were told to"
                    )));
                    break;
                }
            } else {
                tick();
            }
        }
        came
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Sessions that wait for work end with their channel, the others when they look up.
        self.round.halt.failed.request();
    }
}

/// The thread's whole life. Whoever listens may be gone already; then there is nobody to tell.
fn session(index: u32, round: Arc<Round>, shifts: &Receiver<Shift>, events: &Sender<Event>) {
    let mut postman = match Postman::ready(index, round) {
        Ok(postman) => postman,
        Err(error) => {
            let _ = events.send(Event::Failed(error));
            return;
        }
    };
    let _ = events.send(Event::Ready);
    while let Ok(shift) = shifts.recv() {
        let told = match postman.work(&shift) {
            Ok(tally) => events.send(Event::Done(Box::new(tally))),
            Err(error) => {
                let _ = events.send(Event::Failed(error));
                return;
            }
        };
        if told.is_err() {
            return;
        }
    }
}
