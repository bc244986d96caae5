//! The step of treatments that need PostgreSQL down for a while: no kind of its own in a condition.
//!
//! Journaled before the server is stopped and taken back last, when all that came after it is taken
//! back: then the server runs, whoever stopped it and whenever. So a treatment puts [`step`] before
//! its others, calls [`apply`] for it, starts the server in its `settle`, and may stop it again in
//! its `undo`.

use serde_json::json;

use super::{Step, Stranger, TreatmentError, Undone, World};

pub(super) const KIND: &str = "stopped";

/// Refused where nothing says how to stop the server. `what` needs it, such as `mkfs`.
pub(super) fn step(world: &mut World<'_>, what: &str) -> Result<Step, TreatmentError> {
    world.control(what)?;
    Ok(Step {
        kind: KIND.to_owned(),
        what: "PostgreSQL".to_owned(),
        // A private cluster's server is gone with pgio, and needs no start then.
        host: world.server_host.filter(|_| !world.private).map(str::to_owned),
        prior: json!("running"),
        ours: json!("stopped"),
    })
}

pub(super) fn is(step: &Step) -> bool {
    step.kind == KIND
}

pub(super) fn apply(world: &mut World<'_>) -> Result<(), TreatmentError> {
    world.stop("this treatment")
}

pub(super) fn undo(world: &mut World<'_>, _: &Step, _: Stranger) -> Result<Undone, TreatmentError> {
    // A private cluster that is gone needs no start.
    if !world.private || world.control.is_some() {
        world.start("to undo a stop")?;
    }
    Ok(Undone::PutBack)
}
