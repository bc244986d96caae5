//! `pgio store`: puts stored results into the results database.
//!
//! Each experiment is one transaction. Storing again changes nothing; an experiment that was continued
//! meanwhile is replaced, and a copy with fewer trials than the stored one is not stored.

use std::path::PathBuf;

use super::exit::Outcome;
use super::{flags, output};
use crate::archive::{self, Record, StoreOutcome, schema};
use crate::config::ConnectString;
use pgio_results::Warning;
use pgio_results::store;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Creates the schema pgio_results in that database the first time, for which the role needs \
                  CREATE on the database; later USAGE on the schema, SELECT on schema_version, \
                  SELECT, INSERT and DELETE on experiments, SELECT and INSERT on trials, and INSERT on the others. \
                  docs/FORMAT.md documents the views."
)]
pub(super) struct Args {
    /// Results of compare or demo, or directories that contain such results
    #[arg(required = true, num_args = 1.., value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// The database that takes the results, as a connection string, a URI or the name of a database
    #[arg(long, value_name = "DSN", allow_hyphen_values = true)]
    to: ConnectString,
}

pub(super) fn run(args: &Args) -> Outcome {
    let dirs = store::collection(&args.dirs)?;
    let mut client = flags::results_database(&args.to)?;
    schema::prepare_to_write(&mut client)?;
    let (mut new, mut replaced, mut unchanged, mut kept, mut trials) = (0, 0, 0, 0, 0);
    for dir in &dirs {
        let stored = store::read(dir)?;
        if archive::is_stored(&mut client, &stored)? {
            unchanged += 1;
            continue;
        }
        let Some(record) = Record::from_stored(&stored) else {
            output::warn(&Warning::new(
                format!("{} is not stored", dir.display()),
                "it has no trial",
                "run the experiment, or continue it with --resume",
            ));
            continue;
        };
        let outcome = archive::store(&mut client, &record)?;
        match outcome {
            StoreOutcome::New => new += 1,
            StoreOutcome::Replaced => replaced += 1,
            StoreOutcome::Unchanged => unchanged += 1,
            StoreOutcome::Kept => {
                kept += 1;
                output::note(&format!("{}: kept: the stored one has more trials", dir.display()));
            }
        }
        if matches!(outcome, StoreOutcome::New | StoreOutcome::Replaced) {
            trials += record.trials;
        }
    }
    let also = |n: usize, what: &str| match n {
        0 => String::new(),
        n => format!(", {n} {what}"),
    };
    let counts = also(replaced, "replaced") + &also(unchanged, "unchanged") + &also(kept, "kept");
    let experiments = if new == 1 { "experiment" } else { "experiments" };
    output::line(&format!("stored {new} new {experiments}{counts}; {trials} trials"));
    Ok(())
}
