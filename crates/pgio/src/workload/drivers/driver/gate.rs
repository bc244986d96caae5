//! The orders that the thread of a trial receives, and the moment at which its windows open, which the
//! coordinator chooses.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postgres::Client;

use crate::config::resolve::Extent;
use crate::host::stop::Stop;
use crate::workload::clock::{Opener, Start};
use crate::workload::drivers::error::DriverError;
use crate::workload::drivers::messages::{FromDriver, PartProgress};
use crate::workload::error::EngineError;
use pgio_link::{Clock, Link};

const TICK: Duration = Duration::from_millis(50);

/// An order of the coordinator to the thread of a trial.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    Run(Extent),
    Open { at: i64, epoch: f64 },
    Release,
}

/// Waits for the next order.
pub(super) fn next_order(
    orders: &Mutex<Receiver<Order>>,
    stop: &Stop,
) -> Result<Order, EngineError> {
    let orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        match orders.recv_timeout(TICK) {
            Ok(order) => return Ok(order),
            Err(RecvTimeoutError::Timeout) if !stop.requested() => {}
            Err(_) => return Err(EngineError::Stopped),
        }
    }
}

/// The coordinator chooses when a window opens.
#[derive(Debug)]
pub(super) struct RemoteGate {
    pub(super) number: u64,
    pub(super) link: Link,
    pub(super) clock: Clock,
    pub(super) stop: Stop,
    pub(super) orders: Arc<Mutex<Receiver<Order>>>,
}

impl Opener for RemoteGate {
    fn start(&self, _: &mut Client, _: Duration) -> Result<Start, EngineError> {
        let sent = self.link.send(&FromDriver::AtGate { number: self.number });
        sent.map_err(DriverError::from)?;
        match next_order(&self.orders, &self.stop)? {
            Order::Open { at, epoch } => Ok(Start { at: self.clock.moment(at), epoch }),
            Order::Run(_) | Order::Release => Err(DriverError::UnexpectedOrder.into()),
        }
    }

    fn warm_up(&self, admin: &mut Client, lead: Duration) -> Result<Start, EngineError> {
        self.start(admin, lead)
    }

    fn keep_alive(&self) {
        let progress = PartProgress::default();
        // A lost connection ends the trial by itself.
        let _ = self.link.send(&FromDriver::Progress { number: self.number, progress });
    }
}
