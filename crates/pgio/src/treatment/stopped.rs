//! The step of treatments that need PostgreSQL down for a while; no kind of its own in a condition, and short,
//! since several treatments share it.
//!
//! Journaled before the server is stopped and undone last, after all steps that came later: then
//! the server runs again, whatever stopped it. So a treatment calls [`stop`] before its other
//! steps, starts the server when they are done, and may stop it again in their undo.

use serde::{Deserialize, Serialize};

use super::context::Context;
use super::error::TreatmentError;
use super::journal::Journal;
use super::record::{Label, Record};
use super::step::{OnConflict, Step, Undone, carry_out};

pub(super) const STEP: &str = "stopped";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Running,
    Stopped,
}

#[derive(Debug)]
struct StopStep {
    label: Label,
}

/// Refuses if nothing configures how to stop the server. `what`, such as `mkfs`, needs it.
pub(super) fn stop(
    context: &mut Context<'_>,
    journal: &mut Journal,
    what: &str,
) -> Result<(), TreatmentError> {
    context.control(what)?;
    context.refuse_pending(true)?;
    // The server of a private cluster ends with pgio and needs no start then.
    let host = context.server_host.filter(|_| !context.private).map(str::to_owned);
    let step = StopStep { label: Label { what: "PostgreSQL".to_owned(), host } };
    carry_out(journal, &step, || context.stop_server("this treatment"))
}

pub(super) fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    Ok(Box::new(StopStep { label: record.label() }))
}

impl Step for StopStep {
    fn record(&self) -> Record {
        Record::new(STEP, &self.label, State::Running, State::Stopped)
    }

    fn undo(&self, context: &mut Context<'_>, _: OnConflict) -> Result<Undone, TreatmentError> {
        // A removed private cluster needs no start.
        if !context.private || context.control.is_some() {
            context.ensure_running()?;
        }
        Ok(Undone::Restored)
    }
}
