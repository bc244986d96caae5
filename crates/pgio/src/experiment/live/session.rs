//! The admin session of a target: whether it still answers, opening a new one, and the context that treatments get.

use std::time::Duration;

use crate::experiment::admin::open_admin;
use crate::experiment::controlled::Controlled;
use crate::experiment::error::LiveError;
use crate::experiment::target::Target;
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::treatment::{AdminSession, Context, Control, Layout};
use pgio_connect::interrupt;

pub(super) fn context<'a>(
    target: &'a mut Target,
    control: &'a mut Option<Controlled>,
    hosts: &'a Hosts,
    stop: &Stop,
) -> Context<'a> {
    Context {
        params: &target.params,
        session: AdminSession::Open(&mut target.admin),
        hosts,
        server_host: target.host.as_deref(),
        private: target.cluster.is_some(),
        control: control.as_mut().map(|c| c as &mut dyn Control),
        layout: Layout::default(),
        stop: stop.clone(),
    }
}

/// Returns whether the server answers, through a new session if the old one ended.
pub(super) fn answers(target: &mut Target, run_id: &str, limit: Duration) -> bool {
    if !target.admin.is_closed() && target.admin.is_valid(limit).is_ok() {
        return true;
    }
    // Otherwise dropping the session would wait for the missing answer.
    interrupt::cut_all();
    renew(target, run_id).is_ok()
}

/// Opens a new admin session, which announces again that the run lives.
pub(super) fn renew(target: &mut Target, run_id: &str) -> Result<(), LiveError> {
    let (admin, _) = open_admin(&target.params, run_id).map_err(|error| match error {
        LiveError::Connect(source) => LiveError::ConnectionLost(source),
        other => other,
    })?;
    target.admin = admin;
    refresh_storage(target);
    Ok(())
}

/// Finds the storage of the server again, for telemetry.
pub(super) fn refresh_storage(target: &mut Target) {
    if let Some(sources) = &mut target.sources {
        sources.refresh_storage(&mut target.admin);
    }
}
