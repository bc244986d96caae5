//! `pgio plan`: plans from a pilot how many blocks decide about a margin.
//!
//! Reads the experiment file and stored results, and changes nothing. `pgio_verdict::pilot`
//! computes the plan; `experiment::application::pilot` refuses results of another experiment.

use std::path::{Path, PathBuf};

use super::exit::{Failure, Outcome, USAGE};
use super::gate::{self, MarginArg};
use super::{jobs, output};
use crate::experiment::application::{Job, pilot};
use pgio_report::report::{pilot as plans, text};
use pgio_results::Warning;
use pgio_results::store;
use pgio_verdict::pilot::{Plan, TrialTime, plan};

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
    if job.experiment.design.as_ref().is_some_and(|design| design.kind.is_factorial()) {
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
    // The pilot's own name may be the copy's.
    found.experiment = job.name_of(spec);
    if found.trial_time.is_none() {
        let estimate = pilot::estimated_trial(job, spec)?;
        found.trial_time = estimate.map(|time| TrialTime::Estimated(time.as_secs_f64()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::FILES;
    use crate::experiment::application::scripted::{Measured, Scripted, experiment};
    use crate::experiment::target::ConnectionKeys;
    use benchmath::rng::SplitMix64;

    const CONDITIONS: [(&str, &str); 2] =
        [("local", "synchronous_commit = 'local'"), ("lazy", "synchronous_commit = 'off'")];

    fn file(head: &str, conditions: &[(&str, &str)]) -> String {
        let head = format!("{head}\naa = false\nburn_in = false\nduration = '200ms'\nseed = 4");
        experiment(&head, "sessions = 1", conditions)
    }

    /// A pilot with noise of 2 %.
    fn pilot(blocks: u32) -> Scripted {
        let mut random = SplitMix64::new(1);
        let mut run = Scripted::new();
        let text = file(&format!("blocks = {blocks}"), &CONDITIONS);
        run.compare(&text, &mut |_, _| {
            Measured::Value(1000.0 * (1.0 + 0.04 * (random.next_f64() - 0.5)))
        })
        .unwrap();
        run
    }

    fn planned(text: &str, pilot: &Scripted, margin: f64) -> Result<String, Failure> {
        let job = Job::parse(text, "x.toml", "x", ConnectionKeys::default())?;
        let plan = plan_from(&job, &pilot.out(), margin)?;
        Ok(text::render(&plans::document(&[plan])))
    }

    #[test]
    fn blocks_are_planned_from_a_pilot_of_the_same_experiment_alone() {
        let pilot = pilot(4);
        let full = file("blocks = 8", &CONDITIONS);
        let shown = planned(&full, &pilot, 0.2).unwrap();
        let row = shown.lines().find(|line| line.starts_with("x ")).unwrap();
        assert!(row.contains("commits/s") && row.matches(" blocks").count() == 3, "{shown}");
        for part in [
            "an effect exceeds 20 %",
            "80 % power",
            "95 % power",
            "decided by 8 blocks",
            "upper bound",
            "2 trials per block",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(planned(&full, &pilot, 0.2).unwrap(), shown, "pure");
        assert!(planned(&full, &pilot, 0.1).unwrap().contains("an effect exceeds 10 %"));
        // The window may differ, but the noise is the pilot's.
        assert!(planned(&full.replace("200ms", "1s"), &pilot, 0.2).is_ok());
        let renamed = [CONDITIONS[0], ("off", CONDITIONS[1].1)];
        for (other, why) in [
            (file("baseline = 'lazy'", &CONDITIONS), "the baseline was `local` and is `lazy`"),
            (
                file("primary = 'commit_latency_p50'", &CONDITIONS),
                "the primary metric was `commits_per_second`",
            ),
            (file("", &renamed), "the condition `off` is not in the pilot"),
        ] {
            let refused = planned(&other, &pilot, 0.05).unwrap_err();
            assert_eq!(refused.code(), USAGE);
            let found = refused.sentence();
            assert!(found.contains("not a pilot of this experiment: "), "{found}");
            assert!(found.contains(why), "{found}");
        }
        let refused = planned(&full, &self::pilot(1), 0.2).unwrap_err();
        assert_eq!(refused.code(), USAGE);
        let why = refused.sentence();
        assert!(why.contains("needs at least 4 blocks") && why.contains("it has 1"), "{why}");
    }

    #[test]
    #[cfg(feature = "screening")]
    fn a_plan_needs_a_margin_a_pilot_and_conditions() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let full = write("full.toml", &file("blocks = 8\nmatters = '20%'", &CONDITIONS));
        let none = write("none.toml", &file("blocks = 8", &CONDITIONS));
        let factors = "[[factor]]\nname = 'jit'\nsetting = ['on', 'off']\n\
                       [[factor]]\nname = 'geqo'\nsetting = ['on', 'off']\n";
        let screening =
            "[experiment]\nmatters = '5%'\n[target]\nprivate = true\n[workload]\nkind = 'commit'\n";
        let screening = write("screening.toml", &format!("{screening}{factors}"));
        let missing = dir.path().join("missing.toml");
        let here = Some(dir.path().to_owned());
        for (experiment, pilot, code, parts) in [
            (&full, None, USAGE, ["a pilot are needed", "set blocks = 4 in a copy of "]),
            (&none, here.clone(), USAGE, ["none.toml: no margin is named", "add matters"]),
            (&full, here.clone(), FILES, ["contains no pgio results", ""]),
            (&missing, here.clone(), FILES, ["cannot read ", "missing.toml"]),
            (
                &screening,
                here,
                USAGE,
                ["screening.toml: design: ", "plan compares conditions with a baseline"],
            ),
        ] {
            let args = Args { experiment: experiment.clone(), pilot, matters: None };
            let refused = run(&args).unwrap_err();
            assert_eq!(refused.code(), code, "{}", refused.sentence());
            for part in parts {
                assert!(refused.sentence().contains(part), "{}", refused.sentence());
            }
        }
    }
}
