//! The planned trials of a workload, and which of them an interrupted run has still to run.
//!
//! Decides from files and records alone; queries no server.

use super::cells::baseline_cell;
use super::job::Job;
use crate::config::experiment::{self, Target, WorkloadSpec};
use crate::experiment::judging::{self, Judge};
use crate::experiment::live::LiveCell;
use crate::experiment::plan::{Planned, burn_in, plan};
use crate::experiment::run::{self, Rules, StoredAttempts};
use pgio_results::points::Cell;
use pgio_results::store::StoredExperiment;

#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) plan: Vec<Planned>,
    /// See [`run::run`].
    pub(super) baselines: Vec<usize>,
    pub(super) rules: Rules,
    pub(super) done: StoredAttempts,
    /// Planned trials that must run in any case.
    pub(super) remaining: Vec<Planned>,
    /// Whether invalid trials of the interrupted block may still be repeated.
    unrepaired: bool,
}

impl Schedule {
    /// `earlier` holds the results of an interrupted run.
    pub(super) fn new(
        job: &Job,
        spec: &WorkloadSpec,
        rules: &experiment::Rules,
        cells: &[LiveCell],
        earlier: Option<&StoredExperiment>,
    ) -> Schedule {
        let e = &job.experiment;
        let mut plan = plan(cells.len(), rules.max_blocks, job.seed);
        if e.burns_in(spec) {
            plan.insert(0, burn_in(baseline_cell(e, cells)));
        }
        let ids: Vec<Cell> = cells.iter().map(|c| c.cell.clone()).collect();
        let stored = earlier.map(|stored| judging::stored_attempts(&stored.trials, &ids));
        let mut done = stored.unwrap_or_default();
        // Each run of pgio makes private servers anew.
        let is_private = |name: &String| matches!(e.targets.get(name), Some(Target::Private(_)));
        if cells[baseline_cell(e, cells)].targets().any(is_private) {
            done.expire_burn_in();
        }
        let baselines = judging::baselines(&ids, &e.baseline);
        let remaining = run::remaining(&done, &plan, &baselines, e.blocks);
        let unrepaired = earlier.is_some_and(|stored| {
            let invalid = Judge::new(stored).invalid(stored, done.last_block(), &ids);
            run::is_unrepaired(&done, &plan, &baselines, rules.repeats, &invalid)
        });
        let rules = Rules {
            blocks: e.blocks,
            repeats: rules.repeats,
            until_precise: rules.precision.is_some(),
            seed: job.seed,
        };
        Schedule { plan, baselines, rules, done, remaining, unrepaired }
    }

    /// With a precision, only the intervals decide whether more blocks follow.
    pub(super) fn is_complete(&self) -> bool {
        self.remaining.is_empty() && !self.unrepaired && !self.rules.until_precise
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::scripted::{COMMITS, first, job};
    use pgio_results::BURN_IN_BLOCK;
    use pgio_results::model::{Check, Outcome, Trial};
    use pgio_verdict::test_support::{experiment, trial};

    fn schedule(text: &str, earlier: Option<&StoredExperiment>) -> Schedule {
        let job = job(text);
        let (spec, cells) = first(&job);
        Schedule::new(&job, spec, &job.experiment.rules, &cells, earlier)
    }

    /// Every trial of these blocks, as an earlier run stores it.
    fn blocks(numbers: std::ops::RangeInclusive<u32>) -> Vec<Trial> {
        let whole_block =
            |block| ["local", "local (A/A)", "on"].map(|name| trial(name, block, &[]));
        numbers.flat_map(whole_block).collect()
    }

    fn remaining(text: &str, trials: Vec<Trial>) -> Vec<(u32, usize)> {
        let stored = experiment(&["local", "local (A/A)", "on"], trials);
        schedule(text, Some(&stored)).remaining.iter().map(|p| (p.block, p.cell)).collect()
    }

    #[test]
    fn a_new_run_burns_in_and_then_runs_every_block() {
        let new = schedule(&COMMITS.replace("seed = 7", "burn_in = true"), None);
        assert_eq!((new.plan[0].block, new.plan[0].cell), (BURN_IN_BLOCK, 0));
        assert_eq!(new.remaining.len(), 1 + 6 * 3);
        assert_eq!(new.baselines, [0, 0, 0]);
        let without = schedule(COMMITS, None);
        assert_eq!(without.remaining.len(), 6 * 3);
        assert!(!without.is_complete());
    }

    #[test]
    fn a_resumed_run_runs_the_remaining_trials() {
        assert_eq!(remaining(COMMITS, blocks(1..=6)), []);
        assert_eq!(remaining(COMMITS, blocks(1..=5)).len(), 3);
        let mut cut = blocks(1..=6);
        // A trial that was interrupted is run again, and its baseline beside it.
        cut[17].outcome = Outcome::Interrupted;
        assert_eq!(cut[17].place.as_ref().unwrap().condition, "on");
        let mut again = remaining(COMMITS, cut);
        again.sort_unstable();
        assert_eq!(again, [(6, 0), (6, 2)]);
        // And so is one that never ran.
        let mut again = remaining(COMMITS, blocks(1..=6)[..17].to_vec());
        again.sort_unstable();
        assert_eq!(again, [(6, 0), (6, 2)]);
    }

    #[test]
    fn a_new_private_server_has_its_burn_in_if_trials_are_left() {
        let private = COMMITS.replace("seed = 7", "burn_in = true");
        let users = private.replace("private = true", "dsn = 'host=db1 dbname=test'");
        let burnt_in = |trials: Vec<Trial>| [vec![trial("local", 0, &[])], trials].concat();
        assert_eq!(remaining(&private, burnt_in(blocks(1..=6))), []);
        assert_eq!(remaining(&users, burnt_in(blocks(1..=5))).len(), 3);
        let stored = experiment(&["local", "local (A/A)", "on"], burnt_in(blocks(1..=5)));
        let again = schedule(&private, Some(&stored)).remaining;
        assert_eq!((again.len(), again[0]), (4, burn_in(0).with_attempt(1)));
    }

    /// Killed after the last trial of the plan, before the repeat of an invalid one.
    #[test]
    fn a_schedule_with_a_repeat_left_is_not_complete() {
        let complete = |change: fn(&mut Vec<Trial>)| {
            let mut trials = blocks(1..=6);
            change(&mut trials);
            let stored = experiment(&["local", "local (A/A)", "on"], trials);
            let schedule = schedule(COMMITS, Some(&stored));
            assert!(schedule.remaining.is_empty());
            schedule.is_complete()
        };
        fn steal() -> Check {
            Check::invalid("steal", "40 %", "use another machine")
        }
        assert!(!complete(|trials| trials[17].checks.push(steal())));
        // Blocks before the last have had their repeats, and so has a trial that was repeated twice.
        assert!(complete(|trials| trials[14].checks.push(steal())));
        assert!(complete(|trials| {
            trials[17].checks.push(steal());
            for attempt in [1, 2] {
                let again = ["local", "on"].map(|name| trial(name, 6, &[]));
                trials.extend(again.into_iter().map(|mut trial| {
                    trial.place.as_mut().unwrap().attempt = attempt;
                    trial.checks.push(steal());
                    trial
                }));
            }
        }));
    }

    #[test]
    fn an_empty_schedule_is_complete_only_without_a_precision() {
        let all = experiment(&["local", "local (A/A)", "on"], blocks(1..=6));
        assert!(schedule(COMMITS, Some(&all)).is_complete());
        let precise = COMMITS.replace("seed = 7", "precision = '5%'\nmax_blocks = 20");
        let schedule = schedule(&precise, Some(&all));
        assert!(schedule.remaining.is_empty() && !schedule.is_complete());
        assert_eq!(schedule.plan.iter().map(|p| p.block).max(), Some(20));
    }
}
