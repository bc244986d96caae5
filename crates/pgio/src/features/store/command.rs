//! `pgio store` puts stored results into the results database; `pgio history --store` reads them there.
//!
//! Each experiment is one transaction. Storing again changes nothing; an experiment that was continued
//! meanwhile is replaced, and a copy with fewer trials than the stored one is not stored.

use std::path::PathBuf;

use clap::{Args as _, FromArgMatches};

use super::record::Record;
use super::schema;
use super::write::{self, StoreOutcome};
use crate::cli::exit::{Failure, Outcome};
use crate::cli::{flags, output};
use crate::config::ConnectString;
use crate::feature::{RunSource, Subcommand};
use crate::pg::session;
use pgio_connect::Client;
use pgio_results::Warning;
use pgio_results::store;
use pgio_verdict::history::{HistoryError, Run};

pub(super) const COMMAND: Subcommand = Subcommand {
    name: "store",
    define: |command| {
        let about = "Store results in a PostgreSQL database";
        Args::augment_args(command).about(about).display_order(52)
    },
    run: |matches| Ok(run(&Args::from_arg_matches(matches)?)),
};

pub(super) const RUNS: RunSource = RunSource {
    define: |command| {
        let flag = clap::Arg::new(FLAG)
            .long(FLAG)
            .value_name("DSN")
            .help("Read the results database that `pgio store` filled")
            .value_parser(clap::value_parser!(ConnectString))
            .conflicts_with("dirs")
            .allow_hyphen_values(true);
        command.arg(flag).mut_arg("dirs", |dirs| dirs.required_unless_present(FLAG))
    },
    read: |matches, experiment| {
        let dsn = matches.get_one::<ConnectString>(FLAG);
        dsn.map(|dsn| read(dsn, experiment)).transpose()
    },
};

const FLAG: &str = "store";

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Creates the schema pgio_results in that database the first time, for which the role needs \
                  CREATE on the database; later USAGE on the schema, SELECT on schema_version, \
                  SELECT, INSERT and DELETE on experiments, SELECT and INSERT on trials, and INSERT on the others. \
                  docs/FORMAT.md documents the views."
)]
struct Args {
    /// Results of compare or demo, or directories that contain such results
    #[arg(required = true, num_args = 1.., value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// The database that takes the results, as a connection string, a URI or the name of a database
    #[arg(long, value_name = "DSN", allow_hyphen_values = true)]
    to: ConnectString,
}

fn run(args: &Args) -> Outcome {
    let dirs = store::collection(&args.dirs)?;
    let mut client = connect(&args.to)?;
    schema::prepare_to_write(&mut client)?;
    let (mut new, mut replaced, mut unchanged, mut kept, mut trials) = (0, 0, 0, 0, 0);
    for dir in &dirs {
        let stored = store::read(dir)?;
        if write::is_stored(&mut client, &stored)? {
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
        let outcome = write::store(&mut client, &record)?;
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

fn connect(dsn: &ConnectString) -> Result<Client, Failure> {
    // It is not a server under test: with the name of a run, another pgio would end the session as a leftover.
    let params = flags::params(dsn, "store")?.with_application_name("pgio store");
    Ok(session::open(&params)?)
}

/// Reads the runs of one experiment. Several without a choice are refused before any is read.
fn read(dsn: &ConnectString, wanted: Option<&str>) -> Result<Vec<Run>, Failure> {
    let mut client = connect(dsn)?;
    let known = super::experiments(&mut client)?;
    let name = match (wanted, known.as_slice()) {
        (Some(wanted), all) if !all.iter().any(|(name, _)| name == wanted) => {
            return Err(HistoryError::NoExperiment { name: wanted.to_owned(), known }.into());
        }
        (Some(wanted), _) => wanted,
        (None, [(only, _)]) => only,
        (None, []) => return Err(HistoryError::NoRuns.into()),
        (None, _) => return Err(HistoryError::Experiments(known).into()),
    };
    Ok(super::runs(&mut client, name)?)
}
