//! `pgio history`: follows an experiment over its runs, from directories or from where a feature keeps them.
//!
//! Changes nothing. `pgio_verdict::history` finds changes and trends.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::{Args as _, FromArgMatches, ValueEnum};

use crate::cli::exit::Outcome;
use crate::cli::output;
use crate::feature::{self, KeptRuns, Subcommand};
use crate::pg::words;
use pgio_report::report::{self, html};
use pgio_results::store::{self, StoreError};
use pgio_verdict::history::{self, History, Question, Run};

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
            let (runs, failures) = read(dirs)?;
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

/// Reads and summarizes the experiments in these directories, one at a time on each processor, so that
/// memory does not grow with their number. Experiments without any trial are left out, and those that cannot be read
/// are returned as errors: one damaged directory among many does not end a history. Fails if none can be read.
fn read(dirs: &[PathBuf]) -> Result<(Vec<Run>, Vec<StoreError>), StoreError> {
    let dirs = store::collection(dirs)?;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(dirs.len());
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let work = || {
        let mut runs = Vec::new();
        while let Some(dir) = dirs.get(next.fetch_add(1, Ordering::Relaxed)) {
            match store::read(dir) {
                Ok(stored) => runs.extend(Run::from_stored(&stored)),
                Err(error) => {
                    failures.lock().expect("no thread panics with the lock").push(error);
                }
            }
        }
        runs
    };
    let runs: Vec<Run> = thread::scope(|scope| {
        // Where no more threads may start, this one reads alone.
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let workers: Vec<_> = (1..threads).map_while(start).collect();
        let own = work();
        let joined = workers.into_iter().map(|w| w.join().expect("reading does not panic"));
        joined.flatten().chain(own).collect()
    });
    let mut failures = failures.into_inner().expect("no thread panics with the lock");
    match failures.pop() {
        Some(only) if runs.is_empty() => Err(only),
        last => {
            failures.extend(last);
            Ok((runs, failures))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use pgio_results::store::Store;
    use pgio_results::test_support::manifest;
    use pgio_verdict::test_support::{stored_runs, write_runs};

    #[test]
    fn all_runs_below_a_directory_are_summarized_and_a_damaged_one_is_left_out() {
        let parent = tempfile::tempdir().unwrap();
        let written = write_runs(parent.path(), &stored_runs(5, |_| 1.0)).unwrap();
        Store::create(&parent.path().join("without-trials"), "", &manifest()).unwrap();
        let all = [parent.path().to_owned()];
        let mut starts: Vec<String> =
            read(&all).unwrap().0.into_iter().map(|run| run.created_at).collect();
        starts.sort();
        let nights = (1..=5).map(|day| format!("2026-10-0{day}T02:00:00Z"));
        assert_eq!(starts, nights.collect::<Vec<_>>());
        fs::remove_file(written[2].join("trials.jsonl")).unwrap();
        let long = fs::read_to_string(written[3].join("manifest.json")).unwrap();
        let long = long.replace("\"local\"", &format!("\"{}\"", "x".repeat(1 << 20)));
        fs::write(written[3].join("manifest.json"), long).unwrap();
        let (runs, failures) = read(&all).unwrap();
        let mut texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
        texts.sort();
        assert_eq!((runs.len(), texts.len()), (3, 2), "{texts:?}");
        assert!(texts[0].contains("run-0003"), "{texts:?}");
        assert!(
            texts[1].contains("run-0004") && texts[1].contains("a name of 1048576 bytes"),
            "{texts:?}"
        );
        assert!(read(&written[2..4]).is_err());
    }
}
