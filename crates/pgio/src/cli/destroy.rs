//! `pgio destroy`: drops what setup and workloads created, and nothing else.

use std::io::{self, IsTerminal};

use super::exit::{Failure, Outcome, REFUSED};
use super::flags::{self, ForDestroy, Source};
use super::output;
use crate::dataset::{self, lines, mark};
use crate::experiment::admin::open_admin;
use crate::experiment::state;
use crate::pg::server;
use pgio_results::units::human;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    source: Source<ForDestroy>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let keys = flags::read_keys(&args.source)?;
    let run_id = state::new_run_id();
    let params = flags::params_of(&keys, &run_id)?;
    flags::refuse_unfinished(&params)?;
    let (mut admin, found) = open_admin(&params, &run_id)?;
    server::check_database(&found, keys.layer.dbname.as_deref())?;
    flags::refuse_other_runs(&mut admin, &found.info.database, &run_id)?;
    let bytes = dataset::size(&mut admin).unwrap_or(0);
    let tables = mark::find(&mut admin)
        .map_or(0, |all| all.into_iter().filter(|named| named.mark.is_some()).count());
    let helpers = dataset::helper_names(&mut admin)?;
    if !args.yes && io::stdin().is_terminal() && (tables > 0 || !helpers.is_empty()) {
        let others = match helpers.as_slice() {
            [] => String::new(),
            names => format!(" and {}", names.join(", ")),
        };
        let question = format!(
            "Drop {tables} pgio tables ({}){others} in {}?",
            human::bytes(bytes),
            params.describe()
        );
        if !output::confirmed(&question) {
            return Err(Failure::message(REFUSED, "nothing was dropped"));
        }
    }
    // The answer may have taken a while.
    flags::refuse_other_runs(&mut admin, &found.info.database, &run_id)?;
    let destroyed = dataset::destroy(&mut admin)?;
    if destroyed.dropped.is_empty() {
        output::line("No pgio tables found.");
    } else {
        let dropped = lines::listed(&destroyed.dropped).join(", ");
        output::line(&format!("Dropped {dropped}."));
    }
    if !destroyed.kept.is_empty() {
        let kept = lines::listed(&destroyed.kept).join(", ");
        output::line(&format!("Kept, not created by pgio: {kept}."));
    }
    Ok(())
}
