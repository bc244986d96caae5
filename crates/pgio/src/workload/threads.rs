//! The threads of a session pool, each with a channel for its orders.
//!
//! A thread lives as long as its session or sessions. Its orders end when its channel closes; it sends
//! its events on a channel of the pool.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use super::error::EngineError;

pub(super) struct Threads<Order> {
    orders: Vec<Sender<Order>>,
    handles: Vec<Option<JoinHandle<()>>>,
}

impl<Order: Send + 'static> Threads<Order> {
    pub(super) fn new() -> Threads<Order> {
        Threads { orders: Vec::new(), handles: Vec::new() }
    }

    /// Starts one more thread, with a stack of this many bytes.
    pub(super) fn spawn(
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

    pub(super) fn count(&self) -> usize {
        self.handles.len()
    }

    pub(super) fn send_order(&self, index: usize, order: Order) {
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
