//! `pgio demo`: measures what synchronous replication costs, on a private primary and standby.
//!
//! It runs examples/demo.toml as `compare` does, and says what to do next.

use std::path::PathBuf;

use super::example::EXAMPLES;
use super::exit::{FILES, Failure, Outcome, TRIAL, USAGE};
use super::{jobs, output, report, signals};
use crate::experiment::application::{self, Run, Start};
use crate::feature;
use crate::pg::private::VersionRequest;
use pgio_report::directories;
use pgio_report::report::failures;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write the results to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Major version of PostgreSQL; default: the newest installed, else the newest downloaded
    #[arg(long, value_name = "VERSION")]
    pg: Option<String>,
    /// Number of blocks; fewer take less time but might leave effects undecided
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    blocks: Option<u32>,
}

const NEXT_STEPS: &str = "\
What next, on your own server:
  pgio example sync-commit-quick > sync.toml    an experiment to edit: dsn, durations, conditions; delete scale
  pgio setup --scale 4G --connect-string MYDB   load a data set of your size
  pgio compare sync.toml                        measure there
";

fn experiment(blocks: Option<u32>) -> String {
    let (_, text) = EXAMPLES.iter().find(|(name, _)| *name == "demo").expect("demo is shipped");
    match blocks {
        Some(blocks) => {
            application::with_number(text, "blocks", blocks).expect("demo has a section to edit")
        }
        None => (*text).to_owned(),
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let pg = args
        .pg
        .as_deref()
        .map(|text| {
            text.parse::<VersionRequest>().map_err(|e| Failure::message(USAGE, format!("--pg {e}")))
        })
        .transpose()?;
    let job = jobs::parse(&experiment(args.blocks), "demo.toml", "demo")?;
    let stop = signals::stop_on_signals()?;
    // Without --out the results are removed when the demo ends.
    let scratch;
    let out = match &args.out {
        Some(dir) => dir.clone(),
        None => {
            scratch = tempfile::tempdir().map_err(|e| {
                Failure::new(FILES, e).context("cannot create a temporary directory")
            })?;
            scratch.path().join("demo")
        }
    };
    let run = Run { out: &out, start: Start::New, stop: &stop, pg };
    let dirs = jobs::perform(&job, &run, &mut |_| {}).inspect_err(|why| {
        if args.out.is_some() {
            jobs::note_kept_trials(why, &out);
        }
    })?;
    let mut analyses = Vec::new();
    for dir in &dirs {
        let loaded = directories::load(dir, &feature::findings())?;
        output::print(&report::short_text(&loaded, "pgio demo"));
        output::line("");
        analyses.push(loaded.analysis);
    }
    output::print(NEXT_STEPS);
    if args.out.is_some() {
        output::line(&format!("Results: {}", out.display()));
        output::line(&format!("Page: {}", directories::page_path(&out).display()));
    }
    match failures(&analyses.iter().collect::<Vec<_>>()) {
        Some(failed) => Err(Failure::message(TRIAL, failed)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_changes_only_the_number_of_blocks_of_the_example() {
        let (_, shipped) = EXAMPLES.iter().find(|(name, _)| *name == "demo").unwrap();
        assert_eq!(experiment(None), *shipped);
        assert_eq!(experiment(Some(2)).replace("blocks = 2\n", "blocks = 14\n"), *shipped);
        assert_ne!(experiment(Some(2)), *shipped);
    }
}
