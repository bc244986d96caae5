//! `pgio compare`: runs an experiment file, and prints its table.
//!
//! [`job`] is the file on its way to being run, [`cells`] what each block runs, [`plan_text`] what
//! `--plan` prints and [`validation`] what it refuses, [`rights`] refuses who may not, [`targets`] finds or starts the servers,
//! [`observing`] says what is watched there, [`stored`] is what is kept beside the trials, [`resume`]
//! decides whether an interrupted run may go on, [`extend`] lets it go on for more blocks, [`telling`] says on
//! stderr how far it is, [`pace`] how long it still takes, [`estimate`] how long it should. The loop itself is
//! in `experiment`.

#[path = "../experiment/application/cells.rs"]
mod cells;
#[path = "../experiment/application/estimate.rs"]
mod estimate;
#[path = "../experiment/application/extend.rs"]
mod extend;
#[path = "../experiment/application/perform.rs"]
mod job;
#[path = "../experiment/application/observing.rs"]
mod observing;
#[path = "../experiment/pace.rs"]
mod pace;
#[path = "compare/plan.rs"]
mod plan_text;
#[path = "../experiment/application/resume.rs"]
mod resume;
#[path = "../experiment/application/rights.rs"]
mod rights;
#[path = "../experiment/application/manifest.rs"]
mod stored;
#[path = "../experiment/application/servers.rs"]
mod targets;
#[path = "progress.rs"]
mod telling;
#[path = "../experiment/application/validation.rs"]
mod validation;

use std::path::{Path, PathBuf};

use super::exit::{FILES, Failure, INTERRUPTED, TRIAL};
use super::{Outcome, files, output, report, signals, state};
use crate::config::experiment::limits::FILE_BYTES;
use crate::results::store;

pub(super) use self::job::{Job, Start};

/// clap would write `[EXPERIMENT]` and leave open when it may be missing.
const USAGE: &str = "pgio compare [OPTIONS] <EXPERIMENT>
       pgio compare --resume <DIR> [EXPERIMENT]";

#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE)]
pub(super) struct Args {
    /// The experiment file, required without --resume; `pgio example` prints some to start from
    #[arg(required_unless_present = "resume")]
    experiment: Option<PathBuf>,
    /// Keep the results here instead of pgio-results/NAME-TIME
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with an interrupted experiment: what is complete there is not repeated
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "plan"])]
    resume: Option<PathBuf>,
    /// With --resume: so many blocks instead of fewer before
    #[arg(long, value_name = "N", requires = "resume", value_parser = clap::value_parser!(u32).range(1..))]
    blocks: Option<u32>,
    /// With --resume of an experiment with a precision: at most so many blocks instead of fewer before
    #[arg(long, value_name = "N", requires = "resume", value_parser = clap::value_parser!(u32).range(1..))]
    max_blocks: Option<u32>,
    /// Print every trial and every change it would make, refuse what it would refuse, and change nothing
    #[arg(long)]
    plan: bool,
    /// With --plan, refuse only what the files alone show to be wrong; present values are shown where a server answers
    #[arg(long, requires = "plan")]
    offline: bool,
}

impl Args {
    fn larger(&self) -> resume::Larger {
        resume::Larger { blocks: self.blocks, max_blocks: self.max_blocks }
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let job = match (&args.resume, &args.experiment) {
        (Some(dir), file) => resume::job(dir, file.as_deref(), args.larger())?,
        (None, Some(file)) => {
            let stem = file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into());
            Job::parse(&read_file(file)?, &file.display().to_string(), &stem)?
        }
        (None, None) => return Ok(()), // refused by the parser of the command line
    };
    let new_dir =
        || args.out.clone().unwrap_or_else(|| state::new_results_dir(&job.experiment.name));
    if args.plan {
        let out = new_dir();
        let open = match args.offline {
            true => {
                vec!["Not checked (--offline): servers, data sets, programs and hosts.".to_owned()]
            }
            false => job.validate(&out)?,
        };
        let text = job.plan_text(&out)?;
        output::print(&text);
        open.iter().for_each(|line| output::line(line));
        return Ok(());
    }
    let stop = signals::stop_on_signals()?;
    let (out, start) = match &args.resume {
        Some(dir) => (dir.clone(), Start::Resume),
        None => (new_dir(), Start::New),
    };
    let dirs = job.run(&out, start, &stop, None).inspect_err(|why| tell_kept(why, &out))?;
    let mut failures = Vec::new();
    for dir in &dirs {
        let analysis = report::analyse(dir)?;
        failures.extend(report::failures(&analysis));
        output::print(&report::text(&analysis));
        output::line(&format!("Results: {}", dir.display()));
        output::line(&format!("Page: {}", report::page_of(dir)));
    }
    if dirs.len() > 1 {
        output::line(&format!("Page that leads to all: {}", report::page_of(&out)));
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::message(TRIAL, failures.join("; "))),
    }
}

/// After a stop, or trials that failed: where the others are, and how to go on.
pub(super) fn tell_kept(why: &Failure, out: &Path) {
    if [INTERRUPTED, TRIAL].contains(&why.code()) && store::experiments(out).is_ok() {
        let out = out.display();
        output::note(&format!("what is complete is kept in {out}; --resume {out} goes on with it"));
    }
}

fn read_file(path: &Path) -> Result<String, Failure> {
    files::read_text(path, FILE_BYTES)
        .map_err(|e| Failure::new(FILES, e).context(format!("cannot read {}", path.display())))
}
