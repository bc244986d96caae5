//! `pgio compare`: runs an experiment file and prints the comparison.
//!
//! `experiment::application` does the work; `compare_plan` is what `--plan` prints.

use std::path::{Path, PathBuf};

use super::exit::{Failure, Outcome, TRIAL};
use super::gate::{self, MarginArg};
use super::progress::Display;
use super::{compare_plan, flags, jobs, output, report, signals};
use crate::experiment::application::{self, BlockLimits, Job, Run, Start, resume};
use crate::experiment::event::Event;
use crate::experiment::state;
use crate::feature::{self, Asked, Watch};
use pgio_report::directories;
use pgio_report::report::failures;

/// clap's own usage line, `[EXPERIMENT]`, does not show when the file may be omitted.
const USAGE_LINES: &str = "pgio compare [OPTIONS] <EXPERIMENT>
       pgio compare --resume <DIR> [EXPERIMENT]";

#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE_LINES)]
pub(super) struct Args {
    /// The experiment file, required without --resume; `pgio example` prints examples
    #[arg(required_unless_present = "resume")]
    experiment: Option<PathBuf>,
    /// Write the results to this directory instead of pgio-results/NAME-TIME
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue an interrupted experiment; complete pairs of trials are not repeated
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "plan"])]
    resume: Option<PathBuf>,
    /// With --resume: increase the number of blocks to N
    #[arg(long, value_name = "N", requires = "resume", value_parser = clap::value_parser!(u32).range(1..))]
    blocks: Option<u32>,
    /// With --resume of an experiment with a precision: increase the maximum number of blocks to N
    #[arg(long, value_name = "N", requires = "resume", value_parser = clap::value_parser!(u32).range(1..))]
    max_blocks: Option<u32>,
    /// The margin: an effect smaller than this share does not matter; replaces `matters` of the file
    #[arg(long, value_name = "SHARE", conflicts_with = "resume")]
    matters: Option<MarginArg>,
    /// Interleave the conditions of a block in slices of this mean length (such as 20ms); auto finds the
    /// length, false gives each trial its own window; replaces `weave` in the file
    #[arg(long, value_name = "LENGTH", conflicts_with = "resume")]
    weave: Option<String>,
    /// Exit with 8 if a condition is worse by more than the margin, with 9 if that is undecided
    #[arg(long)]
    gate: bool,
    /// Print what each condition changes and the time it takes, run the checks of a real run, and change nothing
    #[arg(long)]
    plan: bool,
    /// With --plan: check the files only; show current values where a server answers
    #[arg(long, requires = "plan")]
    offline: bool,
    /// With --plan: list every trial in its order
    #[arg(long, requires = "plan")]
    order: bool,
}

impl Args {
    fn larger(&self) -> BlockLimits {
        BlockLimits { blocks: self.blocks, max_blocks: self.max_blocks }
    }
}

pub(super) fn run(args: &Args, matches: &clap::ArgMatches) -> Outcome {
    let mut job = match (&args.resume, &args.experiment) {
        (Some(dir), file) => {
            let base_keys = flags::read_conf_keys()?;
            resume::job(dir, file.as_deref(), args.larger(), base_keys)?
        }
        (None, Some(file)) => {
            let matters = args.matters.as_ref().map(|margin| ("matters", margin.text.as_str()));
            let weave = args.weave.as_ref().map(|weave| ("weave", weave.as_str()));
            let flags: Vec<_> = matters.into_iter().chain(weave).collect();
            jobs::read_with(file, &flags)?
        }
        (None, None) => return Ok(()), // clap rejects this
    };
    for kind in feature::generators() {
        match (kind.read)(matches, &job)? {
            Asked::Nothing => {}
            Asked::Answered => return Ok(()),
            Asked::Generators(generators) => job.generators = Some(generators),
        }
    }
    gate::check_margin(args.gate, job.experiment.rules.question.matters)?;
    let new_dir =
        || args.out.clone().unwrap_or_else(|| state::new_results_dir(&job.experiment.name));
    if args.plan {
        return print_plan(&job, &new_dir(), args);
    }
    let stop = signals::stop_on_signals()?;
    let open = |watch: &Watch| (watch.open)(matches, &job.experiment, &stop).transpose();
    let mut watchers = feature::watches().filter_map(open).collect::<Result<Vec<_>, _>>()?;
    let (out, start) = match &args.resume {
        Some(dir) => (dir.clone(), Start::Resume),
        None => (new_dir(), Start::New),
    };
    let run = Run { out: &out, start, stop: &stop, pg: None };
    let mut hear = |event: &Event<'_>| watchers.iter_mut().for_each(|watcher| watcher.hear(event));
    let dirs = jobs::perform(&job, &run, &mut hear);
    watchers.into_iter().for_each(|watcher| watcher.end(dirs.as_ref().map(drop)));
    let dirs = dirs.inspect_err(|why| jobs::note_kept_trials(why, &out))?;
    let mut all = Vec::new();
    for dir in &dirs {
        let loaded = directories::load(dir, &feature::findings())?;
        let rerun = format!("pgio compare --resume {}", out.display());
        output::print(&report::short_text(&loaded, &rerun));
        output::line(&format!("\nResults: {} (all of it: pgio report --all)", dir.display()));
        output::line(&format!("Page: {}", directories::page_path(dir).display()));
        all.push(loaded.analysis);
    }
    if dirs.len() > 1 {
        output::line(&format!("Index page: {}", directories::page_path(&out).display()));
    }
    let analyses: Vec<_> = all.iter().collect();
    match failures(&analyses) {
        Some(failed) => Err(Failure::message(TRIAL, failed)),
        None if args.gate => gate::outcome(&analyses),
        None => Ok(()),
    }
}

fn print_plan(job: &Job, out: &Path, args: &Args) -> Outcome {
    let mut display = Display::new(&job.experiment);
    let unchecked_lines = if args.offline {
        vec!["Not checked because of --offline: servers, data sets, programs and hosts.".to_owned()]
    } else {
        let open = application::validate(job, out, &mut |event| display.show(&event))?;
        open.iter().map(compare_plan::unchecked_text).collect()
    };
    let preview = application::preview(job)?;
    output::print(&compare_plan::text(job, &preview, out, args.order)?);
    unchecked_lines.iter().for_each(|line| output::line(line));
    Ok(())
}
