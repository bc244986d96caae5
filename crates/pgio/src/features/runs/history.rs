//! `pgio history`: follows an experiment over its runs, from directories or from where a feature keeps them.
//!
//! Changes nothing. `pgio_verdict::history` finds changes and trends.

use std::path::PathBuf;

use clap::{Args as _, FromArgMatches, ValueEnum};

use crate::cli::exit::Outcome;
use crate::cli::output;
use crate::feature::{self, KeptRuns, Subcommand};
use crate::pg::words;
use pgio_report::directories;
use pgio_report::report::{self, html};
use pgio_results::store;
use pgio_verdict::history::{self, History, Question};

pub(super) const COMMAND: Subcommand = Subcommand {
    name: "history",
    define: |command| {
        let about = "Show an experiment over many runs: level changes, trends, environment changes";
        let command = Dirs::augment_args(command);
        let command = feature::run_sources().fold(command, |all, source| (source.define)(all));
        Args::augment_args(command).about(about).display_order(51)
    },
    run: |matches| {
        let (dirs, args) = (Dirs::from_arg_matches(matches)?, Args::from_arg_matches(matches)?);
        Ok(run(matches, &dirs.dirs, &args))
    },
};

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
struct Dirs {
    /// Results of compare, or directories that contain such results
    #[arg(num_args = 1.., value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A run has one value for each condition, that of its typical trial, and the run is the unit: \
                  changes hold for three runs or more. Exits with 2 if the results are of different \
                  experiments or workloads."
)]
struct Args {
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

fn run(matches: &clap::ArgMatches, dirs: &[PathBuf], args: &Args) -> Outcome {
    // Results are read with their names on one line.
    let experiment = args.experiment.as_deref().map(printable::line);
    let experiment = experiment.as_deref();
    let runs = match kept(matches, experiment)? {
        Some(runs) => runs,
        None => {
            let (runs, failures) = directories::read_runs(dirs)?;
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

/// Reads the runs of one experiment where a feature keeps them, if a flag of it says so.
fn kept(matches: &clap::ArgMatches, experiment: Option<&str>) -> KeptRuns {
    feature::run_sources()
        .find_map(|source| (source.read)(matches, experiment).transpose())
        .transpose()
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
