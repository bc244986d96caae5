//! `pgio undo`: undoes the changes that an interrupted run left in place, and releases a ballast.
//!
//! Prints what `experiment::undo` reports; [`show`] does so for `pgio ballast` as well. Every failure is printed;
//! the last one decides the exit code.

use super::exit::{Failure, Outcome};
use super::output;
use crate::experiment::state;
use crate::experiment::undo::{self, UndoEvent, UndoSummary};
use crate::treatment::{self, OnConflict, RESTART_LEFT, REWRITTEN, Restored, UndoReport, Undone};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Keep a value that someone changed after the run
    #[arg(long, conflicts_with = "restore")]
    keep: bool,
    /// Restore the prior value even if someone changed it after the run
    #[arg(long)]
    restore: bool,
    /// Use this connection string instead of the journal's, for example to reach the server at another address;
    /// also end sessions that an interrupted run left on that server
    #[arg(long, value_name = "CONNECT_STRING", allow_hyphen_values = true)]
    connect: Option<String>,
    /// Remove the journal of this run instead, whose server or host is gone; prints what stays in place
    #[arg(long, value_name = "RUN", conflicts_with_all = ["keep", "restore", "connect"])]
    forget: Option<String>,
}

pub(super) fn run(args: &Args) -> Outcome {
    if let Some(run) = &args.forget {
        return Ok(undo::forget(run, &mut |event| show(&event))?);
    }
    let on_conflict = match (args.keep, args.restore) {
        (true, _) => OnConflict::Keep,
        (_, true) => OnConflict::Restore,
        _ => OnConflict::Ask,
    };
    let connect = args.connect.as_deref();
    let UndoSummary { found, mut failures } =
        undo::undo_interrupted(connect, on_conflict, &mut |event| show(&event))?;
    if let Some(last) = failures.pop() {
        for failure in failures {
            let _ = Failure::from(failure).print();
        }
        return Err(last.into());
    }
    if !found {
        output::line(&format!("Nothing to undo in {}.", state::base_dir()?.display()));
        if let Some(hint) = state::root_journals_hint() {
            output::note(&hint);
        }
    }
    Ok(())
}

/// Prints an event.
pub(crate) fn show(event: &UndoEvent<'_>) {
    match event {
        UndoEvent::Skipped(run) => output::line(&format!(
            "Skipped run {}: {} is still running, changes {} and undoes that itself.",
            run.run,
            run.owner.as_deref().unwrap_or("another process"),
            run.describe_changes()
        )),
        UndoEvent::Warns(warning) => output::warn(warning),
        UndoEvent::SessionEnded(pid) => {
            output::line(&format!("Ended session {pid} of an interrupted run."));
        }
        UndoEvent::StepsUndone { report, server, journal: (run, path) } => {
            print_report(report, server);
            if !report.remaining.is_empty() {
                let path = path.display();
                output::line(&format!(
                    "The journal is {path}; if the server or host is gone for good, `pgio undo --forget {run}` removes it."
                ));
            }
        }
        UndoEvent::LeftInPlace { step, server, prior } => {
            // A step on a host names it.
            let at = if step.host.is_some() { String::new() } else { format!(" ({server})") };
            let text = format!("Left in place: {step}{at}; before: {prior}.");
            output::line(&printable::line(&text));
        }
        UndoEvent::Forgotten(path) => {
            output::line(&format!("Removed the journal {}.", path.display()));
        }
        UndoEvent::ClusterRemoved(directory) => {
            let directory = directory.display();
            output::line(&format!("Removed the abandoned private PostgreSQL in {directory}."));
        }
    }
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
            Undone::RestartLeft => format!("Restored {step}: {prior}; {RESTART_LEFT}."),
            Undone::Kept => format!("Kept {} as it is now.", step.what),
        };
        output::line(&printable::line(&text));
    }
    for left in &report.remaining {
        let text = format!("Still in place: {}: {}.", left.step, left.why);
        output::line(&printable::line(&text));
    }
}
