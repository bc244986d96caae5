//! `pgio undo`: undoes the changes that an interrupted run left in place, and releases a ballast.

use std::sync::Arc;

use postgres::Client;

use super::exit::{Failure, Outcome, UNFINISHED};
use super::{connection, output};
use crate::config::ConnectString;
use crate::experiment::clusters::{self, Abandoned};
use crate::experiment::state;
use crate::host::stop::Stop;
use crate::host::{Host, Hosts, Machine};
use crate::pg::control::Controller;
use crate::pg::{leftovers, private, words};
use crate::treatment::journal::{self, Journal, Unfinished};
use crate::treatment::{
    self, AdminSession, ChangedServer, Context, Control, Layout, OnConflict, OutOfReach, REWRITTEN,
    Restored, TreatmentError, UndoReport, Undone, Unreachable,
};
use pgio_connect::{self, ConnectParams, Env};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Keep a value that someone changed after the run
    #[arg(long, conflicts_with = "restore")]
    keep: bool,
    /// Restore the prior value even if someone changed it after the run
    #[arg(long)]
    restore: bool,
    /// Use this connection string instead of the journal's, for example to add a password; also end sessions
    /// that an interrupted run left on that server
    #[arg(long, value_name = "CONNECT_STRING")]
    connect: Option<String>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let on_conflict = match (args.keep, args.restore) {
        (true, _) => OnConflict::Keep,
        (_, true) => OnConflict::Restore,
        _ => OnConflict::Ask,
    };
    let (mut found, mut failures) = (false, Vec::new());
    for dir in [state::journal_dir()?, state::held_dir()?, state::made_dir()?] {
        let Unfinished { dead, living, unreadable } = journal::unfinished(&dir)?;
        for run in living {
            output::line(&format!(
                "Skipped run {}: {} is still running, changes {} and undoes that itself.",
                run.run,
                run.owner.as_deref().unwrap_or("another process"),
                run.what()
            ));
        }
        failures.extend(unreadable.into_iter().map(Failure::from));
        for journal in dead {
            match undo_one(journal, args.connect.as_deref(), on_conflict) {
                Ok(any) => found |= any,
                // Other journals can still be undone.
                Err(failure) => failures.push(failure),
            }
        }
    }
    let mut left = Vec::new();
    let mut report = |Abandoned { directory, removed }: Abandoned| {
        found = true;
        let directory = directory.display();
        match removed {
            true => {
                output::line(&format!("Removed the abandoned private PostgreSQL in {directory}."));
            }
            false => left.push(Failure::message(
                UNFINISHED,
                format!(
                    "the abandoned private PostgreSQL in {directory} cannot be removed now; rerun `pgio undo`"
                ),
            )),
        }
    };
    let removed = clusters::remove_abandoned(&mut report);
    failures.extend(left);
    failures.extend(removed.err().map(Failure::from));
    if let Some(last) = failures.pop() {
        for failure in &failures {
            let _ = failure.print();
        }
        return Err(last);
    }
    // A run that changed no setting has no journal, but may have left sessions.
    if let Some(text) = &args.connect {
        found |= end_sessions(&mut pgio_connect::connect(&params_of(text)?)?);
    }
    if !found {
        output::line(&format!("Nothing to undo in {}.", state::base_dir()?.display()));
        if let Some(hint) = state::of_root() {
            output::note(&hint);
        }
    }
    Ok(())
}

/// Returns whether there was anything to undo.
pub(super) fn undo_one(
    mut journal: Journal,
    connect: Option<&str>,
    on_conflict: OnConflict,
) -> Result<bool, Failure> {
    if journal.open_steps().is_empty() {
        journal.finish()?;
        return Ok(false);
    }
    let target = journal.target().clone();
    let (hosts, unreachable) = reach(&journal);
    let (params, session) = match (connect, params_of(connect.unwrap_or(&target.connect))) {
        (_, Ok(params)) => (params, AdminSession::OnDemand(Box::default())),
        (Some(_), Err(failure)) => return Err(failure),
        // Steps on hosts need no server, such as a wrong PGPORT would make unreachable.
        (None, Err(failure)) => {
            let nowhere =
                pgio_connect::resolve("host=/nonexistent dbname=none user=none", &Env::default());
            let params = nowhere.map_err(|_| Failure::message(UNFINISHED, failure.sentence()))?;
            (params, AdminSession::Unresolved(failure.sentence()))
        }
    };
    let mut control = controller(&journal, &hosts, &unreachable);
    let mut context = Context {
        params: &params,
        session,
        changed: ChangedServer {
            touched: target.touches.clone(),
            node: target.node.clone(),
            standbys: target.standbys.clone(),
            insists: on_conflict == OnConflict::Restore,
        },
        hosts: &hosts,
        // The journal names the server's host if pgio may stop and start the server.
        server_host: target.control.as_ref().map(|plan| plan.host.as_str()),
        control: control.as_deref_mut().map(|c| c as &mut dyn Control),
        private: target.private,
        layout: Layout::default(),
        streaming: Vec::new(),
        // A signal may end the process here; remaining steps stay in the journal.
        stop: Stop::new(),
    };
    // A step below may start a server that is down; a server that no step needs may stay down.
    if !target.private
        && let Ok(admin) = context.admin()
    {
        end_sessions(admin);
    }
    let report = treatment::undo_all(&mut context, &mut journal, on_conflict, &unreachable);
    print_report(&report, &params.describe());
    check_complete(report)?;
    journal.finish()?;
    if target.private {
        // The directory of a private server could not be removed while something was mounted in it.
        private::sweep_default();
    }
    Ok(true)
}

/// `server` describes the server of the journal.
fn print_report(report: &UndoReport, server: &str) {
    for Restored { step, prior, undone } in &report.undone {
        let text = match undone {
            Undone::Restored if treatment::is_workload_table(step) => {
                format!("Removed {} in {server}.", step.what)
            }
            Undone::Restored | Undone::RestoredNotAwaited => format!("Restored {step}: {prior}."),
            Undone::Rewritten => format!("Restored {step}: {prior}; {REWRITTEN}."),
            Undone::Kept => format!("Kept {} as it is now.", step.what),
        };
        output::line(&printable::line(&text));
    }
    for left in &report.left {
        let text = format!("Still in place: {}: {}.", left.step, left.why);
        output::line(&printable::line(&text));
    }
}

/// Fails if any change is still in place, whatever the reason.
fn check_complete(report: UndoReport) -> Outcome {
    if !report.left.is_empty() {
        let which = if report.undone.is_empty() { "the" } else { "some" };
        return Err(Failure::message(
            UNFINISHED,
            format!(
                "{which} changes could not be undone (see above) and stay in the journal; fix the cause and rerun `pgio undo`"
            ),
        ));
    }
    report.unwritten.map(TreatmentError::from).map_or(Ok(()), |error| {
        Err(Failure::from(error).context(
            "everything was restored, but the journal could not be updated; make room on its file system and rerun `pgio undo`",
        ))
    })
}

/// Connects to the hosts of the journal; returns why others cannot be reached.
fn reach(journal: &Journal) -> (Hosts, Unreachable) {
    let (mut hosts, mut unreachable) = (Hosts::new(), Unreachable::new());
    for name in journal.open_steps().into_iter().filter_map(|(_, step)| step.host) {
        if hosts.contains_key(&name) || unreachable.contains_key(&name) {
            continue;
        }
        match connect(journal, &name) {
            Ok(host) => drop(hosts.insert(name, host)),
            Err(why) => drop(unreachable.insert(name, why)),
        }
    }
    (hosts, unreachable)
}

/// A host without ssh is the machine of the run, which is another one if they share a home directory.
fn connect(journal: &Journal, name: &str) -> Result<Arc<Host>, String> {
    let spec = journal.target().hosts.get(name).cloned().unwrap_or_default();
    let (of_run, here) = (journal.machine(), Machine::this());
    if spec.ssh.is_none() && of_run.is_another(&here) {
        return Err(format!(
            "the run was on machine {}, and this is {}: run `pgio undo` there",
            of_run.name, here.name
        ));
    }
    Host::connect(name, &spec).map(Arc::new).map_err(|error| words::sentence(&error))
}

/// Returns none if the target does not say how to stop and start its server.
fn controller(
    journal: &Journal,
    hosts: &Hosts,
    unreachable: &Unreachable,
) -> Option<Box<dyn Control>> {
    let plan = journal.target().control.clone()?;
    let host = match (hosts.get(&plan.host), unreachable.get(&plan.host)) {
        (Some(host), _) => Ok(host.clone()),
        (None, Some(why)) => Err(why.clone()),
        (None, None) => connect(journal, &plan.host),
    };
    Some(match host {
        Ok(host) => Box::new(Controller::new(plan, host)),
        Err(why) => Box::new(OutOfReach(why)),
    })
}

fn params_of(text: &str) -> Result<ConnectParams, Failure> {
    // Use no run id, so that `leftovers` does not take this session for a live run.
    let params = connection::params(&ConnectString::new(text), "undo")?;
    Ok(params.with_application_name("pgio undo"))
}

fn end_sessions(admin: &mut Client) -> bool {
    let ended = leftovers::terminate(admin).unwrap_or_default();
    for pid in &ended {
        output::line(&format!("Ended session {pid} of an interrupted run."));
    }
    !ended.is_empty()
}
