//! `pgio history`: follows an experiment over its runs, from directories or from the results database.
//!
//! Changes nothing. `pgio_verdict::history` finds changes and trends.

use std::path::PathBuf;

use clap::ValueEnum;

use super::exit::{Failure, Outcome, USAGE};
use super::{flags, output};
use crate::archive;
use crate::config::ConnectString;
use crate::pg::words;
use pgio_report::directories;
use pgio_report::report::{self, html};
use pgio_results::store;
use pgio_verdict::history::{self, History, HistoryError, Question, Run};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    /// One self-contained page with a chart for each condition
    Html,
    Markdown,
    /// One row per run and condition
    Csv,
    Json,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A run has one value for each condition, that of its typical trial, and the run is the unit: \
                  changes hold for three runs or more. Exits with 2 if the results are of different \
                  experiments or workloads."
)]
pub(super) struct Args {
    /// Results of compare, or directories that contain such results
    #[arg(num_args = 1.., value_name = "DIR", required_unless_present = "store")]
    dirs: Vec<PathBuf>,
    /// Read the results database that `pgio store` filled
    #[arg(long, value_name = "DSN", conflicts_with = "dirs", allow_hyphen_values = true)]
    store: Option<ConnectString>,
    /// Show this experiment, if the results are of several
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,
    /// Show this metric [default: the primary metric]
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Write to this file instead of stdout
    #[arg(long, visible_alias = "output", value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    // Results are read with their names on one line.
    let experiment = args.experiment.as_deref().map(printable::line);
    let experiment = experiment.as_deref();
    let runs = match &args.store {
        Some(dsn) => stored(dsn, experiment)?,
        None => {
            let (runs, failures) = directories::read_runs(&args.dirs)?;
            for error in &failures {
                output::note(&format!("warning: left out: {}", words::sentence(error)));
            }
            runs
        }
    };
    let question = Question { experiment, metric: args.metric.as_deref() };
    let history = history::history(runs, question)?;
    let rendered = render(&history, args.format);
    match &args.out {
        Some(file) => store::write_named(file, &rendered)?,
        None => output::document(&rendered),
    }
    Ok(())
}

/// Reads the runs of one experiment. Several without a choice are refused before any is read.
fn stored(dsn: &ConnectString, wanted: Option<&str>) -> Result<Vec<Run>, Failure> {
    let mut client = flags::results_database(dsn)?;
    let known = archive::experiments(&mut client)?;
    let name = match (wanted, known.as_slice()) {
        (Some(wanted), all) if !all.iter().any(|(name, _)| name == wanted) => {
            return Err(HistoryError::NoExperiment { name: wanted.to_owned(), known }.into());
        }
        (Some(wanted), _) => wanted,
        (None, [(only, _)]) => only,
        (None, []) => return Err(HistoryError::NoRuns.into()),
        (None, _) => return Err(HistoryError::Experiments(known).into()),
    };
    Ok(archive::runs(&mut client, name)?)
}

fn render(history: &History, format: Format) -> String {
    match format {
        Format::Text => report::text::render(&report::history::document(history)),
        Format::Html => html::history_page(history),
        Format::Markdown => report::markdown::render(&report::history::document(history), &[]),
        Format::Csv => report::csv::render(&report::history::flat(history)),
        Format::Json => report::json::render(history),
    }
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Failure {
        Failure::new(USAGE, error)
    }
}
