//! Drivers that deliver mail: what they sent is compared here with what arrived.

use std::collections::BTreeMap;

use postgres::Client;

use pgio_mail::session::Ledger;

use crate::config::resolve::Extent;
use crate::workload::error::EngineError;
use crate::workload::outcome::{WindowEvent, WindowOutcome};
use crate::workload::participants::Participants;

#[derive(Debug)]
pub(super) struct Collecting {
    pub(super) prepared: Box<dyn Participants>,
    pub(super) ledger: Ledger,
}

impl Participants for Collecting {
    fn pids(&self) -> Vec<i32> {
        self.prepared.pids()
    }

    fn pinned(&self) -> BTreeMap<String, String> {
        self.prepared.pinned()
    }

    fn run(
        self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        let mut outcome = self.prepared.run(admin, extent, listener)?;
        self.ledger.add(std::mem::take(&mut outcome.sent));
        Ok(outcome)
    }
}
