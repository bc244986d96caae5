//! Dials the coordinator, hands what it orders to the thread of each trial, and ends with the run.
//!
//! If the coordinator is gone or silent, all sessions end within two seconds, by the same steps as after
//! a second Ctrl-C; then the process ends, and with it every socket.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::messages::{Failure, Fault, FromDriver, Report, ToDriver};
use super::part::{Order, TrialWork};
use super::preflight::{fault, reach};
use crate::exit_code::{CONNECT, HasExitCode, INTERRUPTED, REFUSED};
use crate::host::stop::Stop;
use crate::pg::words;
use crate::workload::error::EngineError;
use crate::workload::shared::PartKinds;
use pgio_link::{
    Clock, Event, Hello, Link, LinkError, PROTOCOL, Patience, Token, build_hash, dial, host_name,
};

const TICK: Duration = Duration::from_millis(20);
/// Time for sessions to end once the coordinator is gone.
const END_TIMEOUT: Duration = Duration::from_millis(1200);
/// Time for sessions to end after a signal, while the coordinator still hears.
const SIGNAL_END_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("lost the connection to the coordinator: {0}")]
    Lost(String),
    #[error("the driver was stopped by a signal")]
    Stopped,
}

impl HasExitCode for ServeError {
    fn code(&self) -> u8 {
        match self {
            ServeError::Link(LinkError::Unreachable { .. }) | ServeError::Lost(_) => CONNECT,
            ServeError::Link(_) => REFUSED,
            ServeError::Stopped => INTERRUPTED,
        }
    }
}

/// The trial that a driver works on.
struct Current {
    number: u64,
    orders: Sender<Order>,
    stop: Stop,
    thread: JoinHandle<()>,
}

/// Serves until the coordinator says that the run is over.
pub(super) fn serve(
    coordinator: &str,
    token: &Token,
    rank: Option<u32>,
    within: Duration,
    kinds: PartKinds,
    stop: &Stop,
) -> Result<(), ServeError> {
    let hello = Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        build: build_hash()?,
        host: host_name(),
        pid: std::process::id(),
        rank,
    };
    let clock = Clock::start();
    let (sender, events) = mpsc::channel();
    let sink = Box::new(move |event| drop(sender.send(event)));
    let patience = Patience { within, stopped: &|| stop.requested() };
    let dialed = dial(coordinator, &patience, token, &hello, clock, sink);
    let (_, link) = dialed
        .map_err(|error| if stop.requested() { ServeError::Stopped } else { error.into() })?;
    let mut current = None;
    let ended = handle_messages(&link, clock, &events, &mut current, kinds, stop);
    if let Some(trial) = current {
        end_trial(&trial, &ended);
        if let Err(ServeError::Stopped) = &ended {
            let message = "stopped by a signal".to_owned();
            let report = Report::Failed(Failure { message, fault: Fault::Work, stopped: true });
            // The coordinator hears of the end in any case.
            let _ = link.send(&FromDriver { number: trial.number, report });
        }
    }
    link.close();
    ended
}

/// Ends a trial's sessions, and waits for them as long as it may.
fn end_trial(trial: &Current, ended: &Result<(), ServeError>) {
    trial.stop.request();
    let timeout = match ended {
        Err(ServeError::Stopped) => SIGNAL_END_TIMEOUT,
        _ => {
            // Terminate without waiting for what was canceled.
            trial.stop.request();
            END_TIMEOUT
        }
    };
    let begun = Instant::now();
    while !trial.thread.is_finished() && begun.elapsed() < timeout {
        thread::sleep(TICK);
    }
}

fn handle_messages(
    link: &Link,
    clock: Clock,
    events: &Receiver<Event>,
    current: &mut Option<Current>,
    kinds: PartKinds,
    stop: &Stop,
) -> Result<(), ServeError> {
    loop {
        let message = match events.recv_timeout(TICK) {
            Ok(Event::Message(json)) => serde_json::from_slice(&json)
                .map_err(|e| ServeError::Lost(format!("it sent an invalid message: {e}")))?,
            Ok(Event::Lost(why)) => return Err(ServeError::Lost(why)),
            Err(RecvTimeoutError::Timeout) if stop.requested() => return Err(ServeError::Stopped),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ServeError::Lost("it was closed".to_owned()));
            }
        };
        let current_trial = |number| current.as_ref().filter(|trial| trial.number == number);
        match message {
            ToDriver::Reach { number, dsn, application_name } => {
                answer_on_thread(link.clone(), number, move || {
                    Ok(Report::Reached(reach(&dsn, &application_name)?))
                });
            }
            ToDriver::Check { number, part } => {
                answer_on_thread(link.clone(), number, move || {
                    (part.find(kinds)?.check)(&part)?;
                    Ok(Report::Checked)
                });
            }
            ToDriver::Prepare { number, assignment } => {
                let (orders, receiver) = mpsc::channel();
                let stop = Stop::new();
                let work = Arc::new(TrialWork {
                    number,
                    link: link.clone(),
                    clock,
                    stop: stop.clone(),
                    orders: Mutex::new(receiver),
                    kinds,
                });
                let thread = thread::Builder::new()
                    .name("trial".to_owned())
                    .spawn(move || work.run(*assignment))
                    .map_err(LinkError::from)?;
                // The previous trial has ended, or was ordered to end.
                *current = Some(Current { number, orders, stop, thread });
            }
            ToDriver::Run { number, extent } => {
                send_order(current_trial(number), Order::Run(extent));
            }
            ToDriver::Open { number, at, epoch } => {
                send_order(current_trial(number), Order::Open { at, epoch });
            }
            ToDriver::Release { number } => send_order(current_trial(number), Order::Release),
            ToDriver::Abort { number, urgent } => {
                if let Some(trial) = current_trial(number) {
                    trial.stop.request();
                    if urgent {
                        trial.stop.request();
                    }
                }
            }
            ToDriver::End => return Ok(()),
        }
    }
}

fn send_order(trial: Option<&Current>, order: Order) {
    if let Some(trial) = trial {
        // A thread that has ended has reported why.
        let _ = trial.orders.send(order);
    }
}

/// Answers beside the listening thread, since that may take long.
fn answer_on_thread(
    link: Link,
    number: u64,
    find: impl FnOnce() -> Result<Report, EngineError> + Send + 'static,
) {
    let answer = move || {
        let report = find().unwrap_or_else(|error| {
            let (message, fault) = (words::sentence(&error), fault(&error));
            Report::Failed(Failure { message, fault, stopped: false })
        });
        let _ = link.send(&FromDriver { number, report });
    };
    // Without a thread the coordinator's own limit reports that this driver does not answer.
    let _ = thread::Builder::new().name("answer".to_owned()).spawn(answer);
}
