//! `pgio undo`: puts back whatever an interrupted run left changed.

use super::exit::Failure;
use super::{Outcome, connection, output, state};
use crate::config::ConnectString;
use crate::pg::connect;
use crate::pg::leftovers;
use crate::treatment::journal::{self, Journal};
use crate::treatment::{self, Stranger, World};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Leave a setting that someone changed since as it is now
    #[arg(long, conflicts_with = "restore")]
    keep: bool,
    /// Put the prior value back even where someone changed the setting since
    #[arg(long)]
    restore: bool,
    /// Reach the server by this, when the journal's way needs a password that is not at hand
    #[arg(long, value_name = "CONNECT_STRING")]
    connect: Option<String>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let stranger = match (args.keep, args.restore) {
        (true, _) => Stranger::Keep,
        (_, true) => Stranger::Restore,
        _ => Stranger::Ask,
    };
    let journals = journal::unfinished(&state::journal_dir())?;
    if journals.is_empty() {
        output::line("Nothing to undo.");
    }
    for journal in journals {
        undo_one(journal, args.connect.as_deref(), stranger)?;
    }
    Ok(())
}

fn undo_one(mut journal: Journal, connect: Option<&str>, stranger: Stranger) -> Outcome {
    if journal.open_steps().is_empty() {
        return Ok(journal.finish()?);
    }
    let text = ConnectString::new(connect.unwrap_or(&journal.connect));
    // No run: nothing that `leftovers` would take for one that lives.
    let params = connection::params(&text, "undo")?.with_application_name("pgio undo");
    let mut admin = connect::connect(&params)
        .map_err(|e| Failure::from(e).context("the changes are still in place"))?;
    for pid in leftovers::terminate(&mut admin).unwrap_or_default() {
        output::line(&format!("Ended session {pid} of an interrupted run."));
    }
    let mut world = World { params: &params, admin: &mut admin, restarter: None };
    for step in treatment::take_back(&mut world, &mut journal, stranger)? {
        let prior = match step.prior.as_str() {
            Some(value) => format!("`{value}`"),
            None => "absent".to_owned(),
        };
        output::line(&format!("Put back {}: {prior} in postgresql.auto.conf.", step.what));
    }
    Ok(journal.finish()?)
}
