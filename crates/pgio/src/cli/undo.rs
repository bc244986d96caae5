//! `pgio undo`: puts back whatever an interrupted run left changed, and a ballast that is held.

use std::sync::Arc;

use postgres::Client;
use serde_json::Value;

use super::exit::Failure;
use super::{Outcome, connection, output, state};
use crate::config::ConnectString;
use crate::host::stop::Stop;
use crate::host::{Host, Hosts};
use crate::pg::connect::{self, ConnectParams};
use crate::pg::control::Controller;
use crate::pg::{leftovers, private};
use crate::treatment::journal::{self, Ground, Journal};
use crate::treatment::{self, Control, Door, Step, Stranger, Undone, World};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Leave a setting that someone changed since as it is now
    #[arg(long, conflicts_with = "restore")]
    keep: bool,
    /// Put the prior value back even where someone changed the setting since
    #[arg(long)]
    restore: bool,
    /// Reach the server by this, when the journal's way needs a password that is not at hand; and
    /// end sessions that an interrupted run left there
    #[arg(long, value_name = "CONNECT_STRING")]
    connect: Option<String>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let stranger = match (args.keep, args.restore) {
        (true, _) => Stranger::Keep,
        (_, true) => Stranger::Restore,
        _ => Stranger::Ask,
    };
    let mut found = false;
    for dir in [state::journal_dir(), state::held_dir()] {
        for journal in journal::unfinished(&dir)? {
            found |= undo_one(journal, args.connect.as_deref(), stranger)?;
        }
    }
    // A run that changed no setting has no journal, and may have left sessions all the same.
    if let Some(text) = &args.connect {
        found |= end_sessions(&mut connect::connect(&params_of(text)?)?);
    }
    if !found {
        output::line("Nothing to undo.");
    }
    Ok(())
}

/// Returns whether there was anything.
pub(super) fn undo_one(
    mut journal: Journal,
    connect: Option<&str>,
    stranger: Stranger,
) -> Result<bool, Failure> {
    if journal.open_steps().is_empty() {
        journal.finish()?;
        return Ok(false);
    }
    let ground = journal.ground().clone();
    let hosts = hosts_of(&journal).map_err(|e| e.context("the changes are still in place"))?;
    let params = params_of(connect.unwrap_or(&ground.connect))?;
    let mut control = controller(&ground, &hosts);
    let mut world = World {
        params: &params,
        door: Door::OnDemand(Box::default()),
        hosts: &hosts,
        server_host: None,
        control: control.as_mut().map(|c| c as &mut dyn Control),
        private: ground.private,
        moved: Vec::new(),
        // A signal ends it as it is; what is left is in the journal.
        stop: Stop::new(),
    };
    // A server that is down now may be started by a step below; one that is not needed may stay so.
    if !ground.private
        && let Ok(admin) = world.admin()
    {
        end_sessions(admin);
    }
    let all = journal.open_steps().len();
    let undone = treatment::take_back(&mut world, &mut journal, stranger).map_err(|e| {
        let left = journal.open_steps().len();
        let which = if left == all { "the" } else { "some" };
        Failure::from(e).left_in_place().context(format!("{which} changes are still in place"))
    })?;
    for (step, undone) in undone {
        output::line(&match undone {
            Undone::PutBack | Undone::NotAwaited => format!("Put back {}.", told(&step)),
            Undone::Kept => format!("Left {} as it is now.", step.what),
        });
    }
    journal.finish()?;
    if ground.private {
        // Its end found a directory that could not be removed while something was mounted there.
        private::sweep_default();
    }
    Ok(true)
}

/// Those on which something is to be put back.
fn hosts_of(journal: &Journal) -> Result<Hosts, Failure> {
    let mut hosts = Hosts::new();
    for (_, step) in journal.open_steps() {
        if let Some(name) = step.host {
            let spec = journal.ground().hosts.get(&name).cloned().unwrap_or_default();
            hosts.insert(name.clone(), Arc::new(Host::connect(&name, &spec)?));
        }
    }
    Ok(hosts)
}

/// None also where its host cannot be reached: a step that needs it says so.
fn controller(ground: &Ground, hosts: &Hosts) -> Option<Controller> {
    let plan = ground.control.clone()?;
    let spec = || ground.hosts.get(&plan.host).cloned().unwrap_or_default();
    let reached = hosts.get(&plan.host).cloned();
    let host = reached.or_else(|| Host::connect(&plan.host, &spec()).ok().map(Arc::new))?;
    Some(Controller::new(plan, host))
}

fn told(step: &Step) -> String {
    let prior = match &step.prior {
        Value::Null => "absent".to_owned(),
        Value::String(text) => format!("`{text}`"),
        Value::Object(prior) if prior["options"].is_string() => {
            prior["options"].as_str().unwrap_or_default().to_owned()
        }
        other => other.to_string(),
    };
    match &step.host {
        None => format!("{}: {prior} in postgresql.auto.conf", step.what),
        Some(host) => format!("{} on host {host}: {prior}", step.what),
    }
}

fn params_of(text: &str) -> Result<ConnectParams, Failure> {
    // No run: nothing that `leftovers` would take for one that lives.
    Ok(connection::params(&ConnectString::new(text), "undo")?.with_application_name("pgio undo"))
}

fn end_sessions(admin: &mut Client) -> bool {
    let ended = leftovers::terminate(admin).unwrap_or_default();
    for pid in &ended {
        output::line(&format!("Ended session {pid} of an interrupted run."));
    }
    !ended.is_empty()
}
