//! Those who do the work, ready for their window: sessions of the server, or fio.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use postgres::Client;

use super::engine::{EngineError, Gang, Ran, Setup, WindowEvent};
use super::{Device, Sessions, Workload, device};
use crate::config::resolve::Extent;

/// Who does the work.
pub enum Crew {
    Sessions(Arc<dyn Sessions>),
    /// fio, on the device itself.
    Device(Arc<Device>),
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Crew::Sessions(sessions) => write!(f, "Sessions({})", sessions.count()),
            Crew::Device(device) => f.debug_tuple("Device").field(device).finish(),
        }
    }
}

#[derive(Debug)]
pub enum Ready {
    Sessions(Box<Gang>),
    Device(Box<device::Ready>),
}

impl Ready {
    /// All of them, or none.
    pub fn make(
        workload: Arc<dyn Workload>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Ready, EngineError> {
        match workload.crew() {
            Crew::Sessions(sessions) => {
                let gang = Gang::assemble(&sessions, setup, admin)?;
                Ok(Ready::Sessions(Box::new(gang)))
            }
            Crew::Device(device) => {
                let ready = device.prepare(setup.warmup, setup.seed, &setup.stop)?;
                Ok(Ready::Device(Box::new(ready)))
            }
        }
    }

    /// Of the server's processes that do the work.
    pub fn pids(&self) -> Vec<i32> {
        match self {
            Ready::Sessions(gang) => gang.pids(),
            Ready::Device(_) => Vec::new(),
        }
    }

    /// Every setting pinned in the sessions, as read back there.
    pub fn pinned(&self) -> BTreeMap<String, String> {
        match self {
            Ready::Sessions(gang) => gang.pinned.clone(),
            Ready::Device(_) => BTreeMap::new(),
        }
    }

    /// Opens the window and returns when the work has ended; `hear` is told of both, and some
    /// twenty times a second between, with a connection that is free for reading evidence.
    pub fn run(
        self,
        admin: &mut Client,
        extent: Extent,
        hear: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<Ran, EngineError> {
        match self {
            Ready::Sessions(gang) => gang.run(admin, extent, hear),
            Ready::Device(ready) => ready.run(admin, hear),
        }
    }
}
