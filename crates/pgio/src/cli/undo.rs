//! `pgio undo`: puts back whatever an interrupted run left changed.

use postgres::Client;

use super::exit::Failure;
use super::{Outcome, connection, output, state};
use crate::config::ConnectString;
use crate::pg::connect::{self, ConnectParams};
use crate::pg::leftovers;
use crate::treatment::journal::{self, Journal};
use crate::treatment::{self, Stranger, Undone, World};

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
    for journal in journal::unfinished(&state::journal_dir())? {
        found |= undo_one(journal, args.connect.as_deref(), stranger)?;
    }
    // A run that changed no setting has no journal, and may have left sessions all the same.
    if let Some(text) = &args.connect {
        found |= end_sessions(&mut connect_to(text)?.1);
    }
    if !found {
        output::line("Nothing to undo.");
    }
    Ok(())
}

/// Returns whether there was anything.
fn undo_one(
    mut journal: Journal,
    connect: Option<&str>,
    stranger: Stranger,
) -> Result<bool, Failure> {
    if journal.open_steps().is_empty() {
        journal.finish()?;
        return Ok(false);
    }
    let (params, mut admin) = connect_to(connect.unwrap_or(journal.connect()))
        .map_err(|e| e.context("the changes are still in place"))?;
    end_sessions(&mut admin);
    let mut world = World { params: &params, admin: &mut admin, restarter: None };
    for (step, undone) in treatment::take_back(&mut world, &mut journal, stranger)? {
        let prior = match step.prior.as_str() {
            Some(value) => format!("`{value}`"),
            None => "absent".to_owned(),
        };
        output::line(&match undone {
            Undone::PutBack => {
                format!("Put back {}: {prior} in postgresql.auto.conf.", step.what)
            }
            Undone::Kept => format!("Left {} as it is now.", step.what),
        });
    }
    journal.finish()?;
    Ok(true)
}

fn connect_to(text: &str) -> Result<(ConnectParams, Client), Failure> {
    // No run: nothing that `leftovers` would take for one that lives.
    let params =
        connection::params(&ConnectString::new(text), "undo")?.with_application_name("pgio undo");
    let admin = connect::connect(&params)?;
    Ok((params, admin))
}

fn end_sessions(admin: &mut Client) -> bool {
    let ended = leftovers::terminate(admin).unwrap_or_default();
    for pid in &ended {
        output::line(&format!("Ended session {pid} of an interrupted run."));
    }
    !ended.is_empty()
}
