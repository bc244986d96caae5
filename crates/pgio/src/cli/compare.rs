//! `pgio compare`: runs an experiment file, and prints its table.
//!
//! [`job`] is the file on its way to being run, [`plan_text`] what `--plan` prints, [`targets`] finds
//! or starts the servers, [`telling`] says on stderr how far it is. The loop itself is in
//! `experiment`.

mod job;
mod plan_text;
mod targets;
mod telling;

use std::fs;
use std::path::PathBuf;

use super::exit::{FILES, Failure};
use super::{Outcome, output, report, signals, state};

pub(super) use self::job::Job;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The experiment file; `pgio example` prints some to start from
    experiment: PathBuf,
    /// Keep the results here instead of pgio-results/NAME-TIME
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print every trial and every change it would make, and touch nothing
    #[arg(long)]
    plan: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let text = fs::read_to_string(&args.experiment).map_err(|e| {
        Failure::new(FILES, e).context(format!("cannot read {}", args.experiment.display()))
    })?;
    let file = args.experiment.display().to_string();
    let stem = args.experiment.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into());
    let job = Job::parse(&text, &file, &stem)?;
    if args.plan {
        output::print(&job.plan_text());
        return Ok(());
    }
    let stop = signals::stop_on_signals()?;
    let out = args.out.clone().unwrap_or_else(|| state::new_results_dir(&job.experiment.name));
    let dirs = job.run(&out, &stop, None)?;
    for dir in &dirs {
        output::print(&report::text(&report::analyse(dir)?));
        output::line(&format!("Results: {}", dir.display()));
    }
    Ok(())
}
