//! `pgio plan`: plans from a pilot how many blocks decide about a margin.
//!
//! Reads the experiment file and stored results, and changes nothing. `pgio_report::analysis::pilot`
//! computes the plan; `experiment::application::pilot` refuses results of another experiment.

use std::path::{Path, PathBuf};

use super::exit::{Failure, Outcome, USAGE};
use super::gate::{self, MarginArg};
use super::{jobs, output};
use crate::experiment::application::{Job, pilot};
use pgio_report::analysis::pilot::{Plan, TrialTime, plan};
use pgio_report::report::{pilot as plans, text};
use pgio_results::Warning;
use pgio_results::store;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The pilot is the same experiment with four blocks or more: set blocks = 4 in a copy of \
                  the file and run it with `pgio compare`. Its effects are not used."
)]
pub(super) struct Args {
    /// The experiment file
    experiment: PathBuf,
    /// Results of compare for the same experiment with four blocks or more, or of one of its workloads
    #[arg(long, value_name = "DIR")]
    pilot: Option<PathBuf>,
    /// The margin: an effect smaller than this share does not matter; replaces `matters` of the file
    #[arg(long, value_name = "SHARE")]
    matters: Option<MarginArg>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let job = jobs::read(&args.experiment)?;
    let file = args.experiment.display();
    if job.screening.as_ref().is_some_and(|screening| screening.design.is_factorial()) {
        let why = "plan compares conditions with a baseline, which this design does not; its report \
                   shows how many blocks decide about a margin";
        return Err(Failure::message(USAGE, format!("{file}: design: {why}")));
    }
    let margin = args.matters.as_ref().map(|margin| margin.share);
    let margin = margin.or(job.experiment.rules.question.matters);
    let margin = gate::required_margin(&file.to_string(), margin)?;
    let pilot = args.pilot.as_ref().ok_or_else(|| {
        let how = format!(
            "set blocks = 4 in a copy of {file}, run `pgio compare COPY --out pilot`, then `pgio plan \
             {file} --pilot pilot`"
        );
        Failure::message(USAGE, format!("--pilot: the results of a pilot are needed; {how}"))
    })?;
    let dirs = store::experiments(pilot)?;
    let plans =
        dirs.iter().map(|dir| plan_from(&job, dir, margin)).collect::<Result<Vec<_>, _>>()?;
    output::document(&text::render(&plans::document(&plans)));
    Ok(())
}

/// Plans one workload from its results.
fn plan_from(job: &Job, dir: &Path, margin: f64) -> Result<Plan, Failure> {
    let refused = |why: String| Failure::message(USAGE, format!("{}: {why}", dir.display()));
    let mut stored = store::read(dir)?;
    let text = store::read_experiment(dir)?;
    let spec = pilot::workload_of(job, &stored.manifest).ok_or_else(|| {
        refused(format!("the experiment has no workload of `{}`", stored.manifest.name))
    })?;
    let mismatches = pilot::mismatches(job, spec, &stored, text.as_deref())?;
    if !mismatches.is_empty() {
        return Err(refused(format!("not a pilot of this experiment: {}", mismatches.join("; "))));
    }
    let remarks = pilot::remarks(job, text.as_deref());
    if !remarks.is_empty() {
        output::warn(&Warning::new(
            format!("the pilot in {} differs ({})", dir.display(), remarks.join("; ")),
            "noise and time are those of the pilot",
            "run a pilot of the file as it is",
        ));
    }
    // The comparisons that the file asks for are those that will be judged. Results are read with their names
    // on one line.
    let question = &job.experiment.rules.question;
    let judge = question.judge.iter().map(|name| printable::line(name).into_owned());
    stored.manifest.rules.judge = judge.collect();
    stored.manifest.rules.also_judge.clone_from(&question.also_judge);
    let found = plan(&stored, margin, job.experiment.blocks);
    let mut found = found.map_err(|why| refused(why.to_string()))?;
    // The pilot's own name may be that of the copy.
    found.experiment = job.name_of(spec);
    if found.trial_time.is_none() {
        let estimate = pilot::estimated_trial(job, spec)?;
        found.trial_time = estimate.map(|time| TrialTime::Estimated(time.as_secs_f64()));
    }
    Ok(found)
}
