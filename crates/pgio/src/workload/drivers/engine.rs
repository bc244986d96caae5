//! The engine that starts the drivers, on a thread that lasts as long as the run: local drivers end with the thread
//! that started them, and those of several servers are started from different ones.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::error::DriverError;
use super::launch::Launcher;
use pgio_link::{Arrival, LinkError, Listener};

type Order = Box<dyn FnOnce(&mut dyn Launcher) + Send>;

/// What starts the drivers of a run and lets them in. Ends with the last of them.
pub(super) struct Engine {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    // Drops last: drivers that receive the order to end need no new connection.
    _listener: Listener,
}

impl Engine {
    pub(super) fn new(
        mut launcher: Box<dyn Launcher>,
        listener: Listener,
    ) -> Result<Engine, DriverError> {
        let (orders, received) = mpsc::channel::<Order>();
        let work = move || {
            for order in received {
                order(&mut *launcher);
            }
            launcher.end();
        };
        let thread = thread::Builder::new().name("engine".to_owned()).spawn(work);
        let thread = thread.map_err(LinkError::from)?;
        Ok(Engine { orders: Some(orders), thread: Some(thread), _listener: listener })
    }

    fn call<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut dyn Launcher) -> T + Send + 'static,
    ) -> Result<T, DriverError> {
        let (answer, answers) = mpsc::channel();
        let order: Order = Box::new(move |launcher| drop(answer.send(ask(launcher))));
        // A thread that has ended drops the order, and with it the answer's sender.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
        let ended = |_| DriverError::Ended("its thread panicked; see its message above".to_owned());
        answers.recv().map_err(ended)
    }

    pub(super) fn start(&self, ranks: &[u32]) -> Result<(), DriverError> {
        let ranks = ranks.to_vec();
        self.call(move |launcher| launcher.start(&ranks))?
    }

    /// Returns why drivers of these ranks will not come any more, if that is known.
    pub(super) fn why_missing(&self, missing: &[u32]) -> Result<Option<String>, DriverError> {
        let missing = missing.to_vec();
        self.call(move |launcher| launcher.why_missing(&missing))
    }

    /// Returns how long drivers may take to connect.
    pub(super) fn timeout(&self) -> Result<Duration, DriverError> {
        self.call(|launcher| launcher.timeout())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.orders = None;
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Gives every group what happens to its own drivers; all hear of drivers that were refused.
pub(super) fn split_by_group(
    arrivals: Receiver<Arrival>,
    groups: u32,
) -> Result<Vec<Receiver<Arrival>>, LinkError> {
    if groups == 1 {
        return Ok(vec![arrivals]);
    }
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..groups).map(|_| mpsc::channel()).unzip();
    let forward = move || {
        // A group that is gone has ended its drivers.
        for arrival in arrivals {
            match arrival {
                Arrival::Joined { rank, .. } | Arrival::FromDriver { rank, .. } => {
                    let _ = senders[(rank % groups) as usize].send(arrival);
                }
                Arrival::Refused { address, hello, why } => {
                    for sender in &senders {
                        let (hello, why) = (hello.clone(), why.clone());
                        let _ = sender.send(Arrival::Refused { address, hello, why });
                    }
                }
            }
        }
    };
    thread::Builder::new().name("groups".to_owned()).spawn(forward)?;
    Ok(receivers)
}
