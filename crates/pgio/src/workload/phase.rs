//! The one loop that waits for the participants of a trial, and the threads on which they work.
//!
//! Connecting, the warm-up and the window are phases of the same kind: participants work on their own
//! threads and send events; the user may press Ctrl-C; participants may fail or hang, and then all
//! others must end as well. [`run`] handles this for every kind of participant; the differences
//! (sessions that run blocks, threads that drive many sessions, mail sessions) are in a [`Phase`]. The
//! loop knows no PostgreSQL, and a phase reads no clock: the loop passes the time, so that a test of hours takes none.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::error::EngineError;
use crate::host::clock::Clock;
use crate::host::stop::Stop;

/// The interval of checks while no event arrives.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// One phase of one kind of participants.
pub(crate) trait Phase {
    type Event;

    /// Handles an event. An error ends the phase for all participants.
    fn take(&mut self, event: Self::Event, now: Instant) -> Result<(), EngineError>;

    /// Returns whether some participants have not ended; `ending` is set after an error or a signal.
    fn is_unfinished(&self, ending: bool) -> bool;

    /// Returns the error of participants that take too long; checked every tick while there is no other
    /// error.
    fn overdue(&mut self, now: Instant) -> Option<EngineError>;

    /// Called every tick while there is no error.
    fn tick(&mut self, _now: Instant) {}

    /// Ends the participants step by step: called every tick after an error or a signal. `urgent` is
    /// set after a second signal.
    fn end(&mut self, urgent: bool, now: Instant);
}

/// Runs a phase to its end and returns the first error, if any.
pub(crate) fn run<P: Phase>(
    phase: &mut P,
    events: &Receiver<P::Event>,
    stop: &Stop,
) -> Option<EngineError> {
    run_by(&Clock::default(), phase, events, stop)
}

/// Like [`run`], by another clock.
pub(crate) fn run_by<P: Phase>(
    clock: &Clock,
    phase: &mut P,
    events: &Receiver<P::Event>,
    stop: &Stop,
) -> Option<EngineError> {
    let mut error = None;
    while phase.is_unfinished(error.is_some()) {
        let received = clock.recv_timeout(events, TICK);
        let now = clock.now();
        match received {
            Ok(event) => {
                if let Err(failure) = phase.take(event, now) {
                    error.get_or_insert(failure);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                // A thread that fails reports its error; only a panic, which has been printed, does
                // not.
                return error.or(Some(EngineError::Panicked));
            }
        }
        if stop.requested() {
            error.get_or_insert(EngineError::Stopped);
        }
        if error.is_none() {
            error = phase.overdue(now);
        }
        match error {
            Some(_) => phase.end(stop.urgent(), now),
            None => phase.tick(now),
        }
    }
    error
}

pub(crate) struct Threads<Order> {
    orders: Vec<Sender<Order>>,
    handles: Vec<Option<JoinHandle<()>>>,
}

impl<Order: Send + 'static> Threads<Order> {
    pub(crate) fn new() -> Threads<Order> {
        Threads { orders: Vec::new(), handles: Vec::new() }
    }

    /// Starts one more thread, with a stack of this many bytes.
    pub(crate) fn spawn(
        &mut self,
        name: String,
        stack: usize,
        body: impl FnOnce(&Receiver<Order>) + Send + 'static,
    ) -> Result<(), EngineError> {
        let (order, orders) = mpsc::channel();
        let thread = thread::Builder::new().name(name).stack_size(stack);
        let handle = thread
            .spawn(move || body(&orders))
            .map_err(|source| EngineError::Thread { purpose: "sessions", source })?;
        self.orders.push(order);
        self.handles.push(Some(handle));
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.handles.len()
    }

    pub(crate) fn send_order(&self, index: usize, order: Order) {
        if let Some(orders) = self.orders.get(index) {
            // A thread that has ended has already reported why.
            let _ = orders.send(order);
        }
    }

    /// Closes all channels; no further orders follow.
    pub(super) fn close(&mut self) {
        self.orders.clear();
    }

    /// Waits for the end of threads that have finished their work.
    pub(super) fn join(&mut self, has_ended: impl Fn(usize) -> bool) {
        for (index, handle) in self.handles.iter_mut().enumerate() {
            if let Some(handle) = handle.take_if(|_| has_ended(index)) {
                // The thread has printed its panic; its sessions count as lost.
                let _ = handle.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fake participants that consist of events; logs the calls of the loop.
    #[derive(Default)]
    struct Fake {
        working: usize,
        hang: bool,
        log: Vec<&'static str>,
    }

    impl Phase for Fake {
        type Event = Result<(), &'static str>;

        fn take(&mut self, event: Self::Event, _: Instant) -> Result<(), EngineError> {
            self.working -= 1;
            event.map_err(|why| EngineError::Overdue(why.to_owned()))
        }

        fn is_unfinished(&self, ending: bool) -> bool {
            self.working > 0 && !(ending && self.log.contains(&"end urgently"))
        }

        fn overdue(&mut self, _: Instant) -> Option<EngineError> {
            self.hang.then(|| EngineError::Overdue("overdue".to_owned()))
        }

        fn tick(&mut self, _: Instant) {
            self.log.push("tick");
        }

        fn end(&mut self, urgent: bool, _: Instant) {
            self.log.push(if urgent { "end urgently" } else { "end" });
        }
    }

    fn phase(
        working: usize,
        events: &[Result<(), &'static str>],
        stop: &Stop,
        hang: bool,
    ) -> (Option<String>, Vec<&'static str>, Sender<Result<(), &'static str>>) {
        let (sender, receiver) = mpsc::channel();
        events.iter().for_each(|event| sender.send(*event).unwrap());
        let mut fake = Fake { working, hang, log: Vec::new() };
        let error =
            run_by(&Clock::fake(), &mut fake, &receiver, stop).map(|error| error.to_string());
        (error, fake.log, sender)
    }

    #[test]
    fn a_phase_ends_with_its_last_participant() {
        let (error, log, _) = phase(2, &[Ok(()), Ok(())], &Stop::new(), false);
        assert_eq!((error, log), (None, vec!["tick", "tick"]));
    }

    #[test]
    fn the_first_failure_ends_all_others_and_is_the_one_returned() {
        let events = [Ok(()), Err("first"), Err("second")];
        let (error, log, _) = phase(3, &events, &Stop::new(), false);
        assert_eq!((error.as_deref(), log), (Some("first"), vec!["tick", "end", "end"]));
    }

    #[test]
    fn a_signal_stops_and_a_second_one_does_not_wait() {
        let stop = Stop::new();
        stop.request();
        let (error, log, _) = phase(1, &[Ok(())], &stop, false);
        assert_eq!((error.as_deref(), log), (Some("stopped"), vec!["end"]));
        stop.request();
        let (error, log, _sender) = phase(2, &[Ok(())], &stop, true);
        assert_eq!((error.as_deref(), log), (Some("stopped"), vec!["end urgently"]));
    }

    #[test]
    fn participants_that_hang_are_an_error_and_are_ended() {
        let (error, log, _) = phase(1, &[Ok(())], &Stop::new(), true);
        assert_eq!((error.as_deref(), log), (Some("overdue"), vec!["end"]));
    }

    #[test]
    fn a_thread_that_panics_is_an_error() {
        let (sender, receiver) = mpsc::channel();
        drop(sender);
        let mut fake = Fake { working: 1, ..Fake::default() };
        let error = run_by(&Clock::fake(), &mut fake, &receiver, &Stop::new()).unwrap().to_string();
        assert!(error.contains("panicked"), "{error}");
    }

    #[test]
    fn threads_take_orders_until_they_are_dismissed() {
        let (sender, events) = mpsc::channel();
        let mut threads = Threads::new();
        for number in 0..2 {
            let sender = sender.clone();
            let body = move |orders: &Receiver<u32>| {
                orders.iter().for_each(|order| sender.send((number, order)).unwrap());
            };
            threads.spawn(format!("test-{number}"), 64 * 1024, body).unwrap();
        }
        drop(sender);
        threads.send_order(1, 7);
        assert_eq!((events.recv().unwrap(), threads.count()), ((1, 7), 2));
        threads.close();
        threads.send_order(0, 8);
        threads.join(|_| true);
        assert!(events.recv().is_err());
    }
}
