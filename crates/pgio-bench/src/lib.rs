//! Parts that are shared by `main.rs`, which measures pgio, and pgio's integration tests: a loop disk and a busy loop.

pub mod loop_disk;

use std::io;
use std::process::{Child, Command, Stdio};

use pgio::cli::exit::{FAILED, Failure};

/// A process that is no part of pgio and does nothing but use a core. It ends when this is dropped.
#[derive(Debug)]
pub struct BusyLoop(Child);

impl BusyLoop {
    /// Fails if there is no `sh`.
    pub fn start() -> io::Result<BusyLoop> {
        let mut shell = Command::new("sh");
        shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        shell.spawn().map(BusyLoop)
    }

    pub fn several(count: u32) -> Result<Vec<BusyLoop>, Failure> {
        let all: io::Result<_> = (0..count).map(|_| BusyLoop::start()).collect();
        all.map_err(|e| Failure::new(FAILED, e).context("cannot start a busy loop"))
    }
}

impl Drop for BusyLoop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
