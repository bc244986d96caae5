//! The admin session of a target: whether it still answers, opening a new one, and the context that
//! treatments get, in which stopping the server is noted.

use std::time::Duration;

use crate::experiment::admin::open_admin;
use crate::experiment::error::LiveError;
use crate::experiment::target::Target;
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::pg::control::Line;
use crate::pg::server::{RECOVERY_TIMEOUT, Server, is_lost, open_after_recovery};
use crate::treatment::{AdminSession, Context, Control, Layout, Pair};
use pgio_connect::interrupt;

pub(super) fn context<'a>(
    target: &'a mut Target,
    control: &'a mut Option<Controlled>,
    hosts: &'a Hosts,
    stop: &Stop,
) -> Context<'a> {
    Context {
        params: &target.params,
        changed: target.changed(),
        session: AdminSession::Open(&mut target.admin),
        hosts,
        server_host: target.host.as_deref(),
        private: target.cluster.is_some(),
        control: control.as_mut().map(|c| c as &mut dyn Control),
        layout: Layout::default(),
        streaming: Vec::new(),
        is_renewed: false,
        stop: stop.clone(),
    }
}

/// Returns whether the server answers, through a new session if the old one ended.
pub(super) fn ensure_session(target: &mut Target, run_id: &str, limit: Duration) -> bool {
    if !target.admin.is_closed() && target.admin.is_valid(limit) {
        return true;
    }
    // Otherwise dropping the session would wait for the missing answer.
    interrupt::cut_all();
    open_session(target, run_id, limit).is_ok()
}

/// Opens a new admin session, which announces again that the run lives. Refuses another version of the server: an
/// upgrade of its package may have become effective by the restart.
pub(super) fn renew_session(target: &mut Target, run_id: &str) -> Result<(), LiveError> {
    let found = open_session(target, run_id, RECOVERY_TIMEOUT)?.info.version;
    check_version(&target.server.info.version, found)
}

fn check_version(before: &str, found: String) -> Result<(), LiveError> {
    if before == found {
        return Ok(());
    }
    Err(LiveError::OtherVersion { before: before.to_owned(), found })
}

/// `limit` is for a server that recovers.
fn open_session(target: &mut Target, run_id: &str, limit: Duration) -> Result<Server, LiveError> {
    let is_recovery = |error: &LiveError| match error {
        LiveError::Connect(source) => source.is_recovery(),
        LiveError::Postgres(source) => is_lost(source),
        _ => false,
    };
    let open = || open_admin(&target.params, run_id);
    let opened = open_after_recovery(|| limit, is_recovery, open);
    let (mut admin, server) = opened.map_err(|error| match error {
        LiveError::Connect(source) => LiveError::ConnectionLost(source),
        other => other,
    })?;
    let checked = target.changed().check(&mut admin, &target.params);
    checked.map_err(|source| LiveError::OtherServer(Box::new(source)))?;
    target.admin = admin;
    target.refuse_other_runs(run_id)?;
    refresh_storage(target);
    Ok(server)
}

/// Finds the storage of the server again, for telemetry.
pub(super) fn refresh_storage(target: &mut Target) {
    if let Some(sources) = &mut target.sources {
        sources.refresh_storage(&mut target.admin);
    }
}

/// Stops and starts a target's server, private or not, and notes that it did: this ends all sessions of
/// the server, including the admin session.
pub(super) struct Controlled {
    control: Box<dyn Control>,
    restarted: bool,
}

impl Controlled {
    /// Returns none if the server is never stopped.
    pub(super) fn new(target: &Target) -> Option<Controlled> {
        let control: Box<dyn Control> = match (&target.cluster, &target.control) {
            (Some(cluster), _) => Box::new(cluster.clone()),
            (None, Some(controller)) => Box::new(controller.clone()),
            (None, None) => return None,
        };
        Some(Controlled { control, restarted: false })
    }

    pub(super) fn was_restarted(this: Option<&Controlled>) -> bool {
        this.is_some_and(|controlled| controlled.restarted)
    }
}

impl Control for Controlled {
    fn stop(&mut self) -> Result<(), String> {
        self.control.stop()
    }

    fn start(&mut self) -> Result<(), String> {
        self.restarted = true;
        self.control.start()
    }

    fn line_while_down(&mut self, name: &str) -> Result<Line, String> {
        self.control.line_while_down(name)
    }

    fn set_line_while_down(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        self.control.set_line_while_down(name, value)
    }

    fn pair(&self) -> Option<Pair> {
        self.control.pair()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_after_a_restart_is_refused() {
        assert!(check_version("16.3", "16.3".to_owned()).is_ok());
        assert_eq!(
            check_version("16.3", "16.4".to_owned()).unwrap_err().to_string(),
            "the server came back as PostgreSQL 16.4 in place of 16.3: its program was replaced during the run, so start a new experiment"
        );
    }
}
