//! `local:N`: processes on this machine, for tests and for one machine with many cores.

use std::collections::BTreeMap;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::contract::{Invitation, Launcher, background_options, with_invitation};
use crate::host::command::CommandLine;
use crate::host::exec::{SpawnOptions, spawn};
use crate::workload::drivers::error::DriverError;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a driver to end after it was ordered to.
const END_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct Local {
    invitation: Option<Invitation>,
    children: BTreeMap<u32, Child>,
}

impl Launcher for Local {
    fn check(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn is_on_this_machine(&self) -> bool {
        true
    }

    fn invite(&mut self, invitation: Invitation) {
        self.invitation = Some(invitation);
    }

    fn start(&mut self, ranks: &[u32]) -> Result<(), DriverError> {
        let Some(invitation) = &self.invitation else { return Ok(()) };
        for rank in ranks {
            if let Some(mut lost) = self.children.remove(rank) {
                // A stopped process would come back when it is continued.
                let _ = lost.kill();
                let _ = lost.wait();
            }
            // The link leads to the running program even after an upgrade.
            let drive = CommandLine::new("/proc/self/exe").arg("drive");
            // A driver that is still dialing would not notice the coordinator's end. The run's own thread,
            // which lasts as long as the run, starts all of them.
            let options =
                SpawnOptions { parent_death_signal: Some(Signal::TERM), ..background_options() };
            let child = spawn(&with_invitation(drive, invitation, &[*rank]), options)?;
            self.children.insert(*rank, child);
        }
        Ok(())
    }

    fn why_missing(&mut self, missing: &[u32]) -> Option<String> {
        let ended = |(rank, child): (&u32, &mut Child)| {
            let status = child.try_wait().ok().flatten().filter(|_| missing.contains(rank))?;
            Some(format!("driver {rank} ended with {status}"))
        };
        self.children.iter_mut().find_map(ended)
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn end(&mut self) {
        let begun = Instant::now();
        for child in self.children.values_mut() {
            while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < END_TIMEOUT {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        self.children.clear();
    }
}
