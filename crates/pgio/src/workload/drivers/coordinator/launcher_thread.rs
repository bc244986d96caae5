//! The thread on which the user's engine starts drivers. It lasts as long as the run, since local drivers end
//! with the thread that started them, and those of several servers are started from different ones.

use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::launch::Launcher;
use crate::workload::drivers::error::DriverError;
use pgio_link::{LinkError, Listener};

type Call = Box<dyn FnOnce(&mut dyn Launcher) + Send>;

/// What starts the drivers of a run and lets them in. Ends with the last of them.
pub(super) struct LauncherThread {
    calls: Option<Sender<Call>>,
    thread: Option<JoinHandle<()>>,
    // Drops last: drivers that receive the order to end need no new connection.
    _listener: Listener,
}

impl LauncherThread {
    pub(super) fn new(
        mut launcher: Box<dyn Launcher>,
        listener: Listener,
    ) -> Result<LauncherThread, DriverError> {
        let (calls, received) = mpsc::channel::<Call>();
        let work = move || {
            for call in received {
                call(&mut *launcher);
            }
            launcher.end();
        };
        let thread = thread::Builder::new().name("engine".to_owned()).spawn(work);
        let thread = thread.map_err(LinkError::from)?;
        Ok(LauncherThread { calls: Some(calls), thread: Some(thread), _listener: listener })
    }

    fn call<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut dyn Launcher) -> T + Send + 'static,
    ) -> Result<T, DriverError> {
        let (answer, answers) = mpsc::channel();
        let call: Call = Box::new(move |launcher| drop(answer.send(ask(launcher))));
        // A thread that has ended drops the call, and with it the answer's sender.
        let _ = self.calls.as_ref().map(|calls| calls.send(call));
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

impl Drop for LauncherThread {
    fn drop(&mut self) {
        self.calls = None;
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
