//! Checks, awaits and reads back the synchronous standby that a condition relies on.
//!
//! For synchronous_commit the setting alone proves nothing: without a synchronous standby
//! remote_write, on and remote_apply silently mean local.

use std::time::{Duration, Instant};

use postgres::Client;

use super::setting::{RELOAD_SECONDS, RequestedSettings, STANDBY_NAMES};
use crate::pg::server::{self, Replication};
use crate::pg::standby_names::StandbyNames;
use crate::treatment::context::Context;
use crate::treatment::contract::failed_reading;
use crate::treatment::error::TreatmentError;
use pgio_results::model::{Evidence, When};

pub(crate) const SYNCHRONOUS: &str = "synchronous standby";

/// Refuses a condition whose commits would wait forever, or would not wait as requested.
pub(super) fn check(
    requested: &RequestedSettings,
    admin: &mut Client,
) -> Result<(), TreatmentError> {
    let declared = requested.value_of(STANDBY_NAMES);
    if let Some(names) = declared {
        check_named(admin, names)?;
    }
    if requested.may_wait_for_standby(admin)? {
        check_standby(admin, requested.needs_standby(), declared)?;
    }
    Ok(())
}

/// The state of the standby, where commits may wait for one.
pub(super) fn evidence(
    requested: &RequestedSettings,
    admin: &mut Client,
    when: When,
) -> Option<Evidence> {
    match requested.may_wait_for_standby(admin) {
        Ok(false) => None,
        Ok(true) => Some(standby_evidence(admin, when, requested.needs_standby())),
        Err(_) => Some(failed_reading(when, SYNCHRONOUS)),
    }
}

fn standby_evidence(admin: &mut Client, when: When, needed: bool) -> Evidence {
    let Ok(replication) = server::replication(admin) else {
        return failed_reading(when, SYNCHRONOUS);
    };
    let waits = needed || replication.is_required();
    let found = replication.describe();
    // Several states are sufficient, so a sufficient state is its own expectation.
    let expected = match (waits, replication.has_synchronous() || replication.is_hidden()) {
        (false, _) => None,
        (true, true) => Some(found.clone()),
        (true, false) => Some("a standby in state sync or quorum".to_owned()),
    };
    Evidence { when, what: SYNCHRONOUS.to_owned(), found, expected }
}

fn replication(admin: &mut Client) -> Result<Replication, TreatmentError> {
    server::replication(admin).map_err(|e| TreatmentError::Refused(e.to_string()))
}

/// Refuses names set by the condition with which commits would wait forever.
fn check_named(admin: &mut Client, names: &str) -> Result<(), TreatmentError> {
    if names.trim().is_empty() {
        return Ok(());
    }
    let refused = |why: String| Err(TreatmentError::Refused(why));
    let Some(requested) = StandbyNames::parse(names) else {
        return refused(format!(
            "{STANDBY_NAMES} cannot be `{names}`: write a list of standbys, such as `ANY 1 (a, b)`"
        ));
    };
    let replication = replication(admin)?;
    let found = requested.connected(&replication).len();
    if found >= requested.wanted || replication.is_hidden() {
        return Ok(());
    }
    let all: Vec<&str> = replication.standbys.iter().map(|s| s.name.as_str()).collect();
    let connected = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    refused(match found {
        0 => format!(
            "`{names}` names no connected standby (connected: {connected}); start one, or correct the name"
        ),
        _ => format!(
            "`{names}` requires {} connected standbys, but names only {found} (connected: {connected}); start the others, or lower the number",
            requested.wanted
        ),
    })
}

/// Waits until a standby of the new names is synchronous.
pub(super) fn wait_for_standby(context: &mut Context<'_>) -> Result<(), TreatmentError> {
    let deadline = Instant::now() + Duration::from_secs(RELOAD_SECONDS);
    loop {
        let found = replication(context.admin()?)?;
        if found.has_synchronous() || found.is_hidden() || context.stop.requested() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(TreatmentError::NotInForce {
                what: STANDBY_NAMES.to_owned(),
                seconds: RELOAD_SECONDS,
                why: format!("no standby became synchronous ({})", found.describe()),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `declared` is the condition's synchronous_standby_names, which is checked already.
fn check_standby(
    admin: &mut Client,
    needed: bool,
    declared: Option<&str>,
) -> Result<(), TreatmentError> {
    if let Some(names) = declared {
        return if names.trim().is_empty() && needed {
            Err(TreatmentError::Refused(format!(
                "remote_write and remote_apply silently mean local if {STANDBY_NAMES} is empty, as in this condition: name a connected standby there"
            )))
        } else {
            Ok(())
        };
    }
    let replication = replication(admin)?;
    let configured = !replication.synchronous_standby_names.trim().is_empty();
    match (configured, replication.has_synchronous() || replication.is_hidden()) {
        (true, true) => Ok(()),
        (true, false) => {
            let why = replication.missing().unwrap_or_else(|| replication.describe());
            Err(TreatmentError::Refused(format!(
                "{why}: commits would wait forever; start the standby, or correct the name in synchronous_standby_names or the standby's application_name"
            )))
        }
        (false, _) if needed => Err(TreatmentError::Refused(
            "remote_write and remote_apply silently mean local because synchronous_standby_names is empty: name a connected standby there first".to_owned(),
        )),
        (false, _) => Ok(()),
    }
}
