//! The loop, apart from what it acts on, so that its order of events is tested with a fake.
//!
//! For each trial: put the condition in force, measure, store, take back. A trial is on disk
//! before the next begins; what was put in force is taken back whatever happened in between.

use super::plan::Planned;
use crate::results::model::{Outcome, Trial};

/// After so many failures in a row the next one would tell nothing new.
const FAILURES_IN_A_ROW: usize = 3;

/// What the loop acts on.
pub trait Stage {
    type Error;
    fn put_in_force(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    /// A failed trial is a record too.
    fn trial(&mut self, planned: &Planned) -> Trial;
    fn store(&mut self, trial: &Trial) -> Result<(), Self::Error>;
    fn take_back(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    fn stop_requested(&self) -> bool;
}

/// How the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Complete,
    Interrupted,
    /// Trials kept failing; the last one's error.
    Failing(String),
}

pub fn run<S: Stage>(plan: &[Planned], stage: &mut S) -> Result<Ended, S::Error> {
    let mut failures = 0;
    for planned in plan {
        if stage.stop_requested() {
            return Ok(Ended::Interrupted);
        }
        let measured = match stage.put_in_force(planned) {
            Ok(()) => {
                let trial = stage.trial(planned);
                stage.store(&trial).map(|()| trial)
            }
            Err(error) => Err(error),
        };
        let taken_back = stage.take_back(planned);
        let trial = measured?;
        taken_back?;
        match trial.outcome {
            Outcome::Complete => failures = 0,
            Outcome::Interrupted => return Ok(Ended::Interrupted),
            Outcome::Failed { error } => {
                failures += 1;
                if failures == FAILURES_IN_A_ROW {
                    return Ok(Ended::Failing(error));
                }
            }
        }
    }
    Ok(Ended::Complete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::plan;
    use crate::experiment::trial::blank;

    /// Logs what is asked of it.
    #[derive(Default)]
    struct Fake {
        log: Vec<String>,
        outcomes: Vec<Outcome>,
        refuse: bool,
        full: bool,
        stop_after: Option<usize>,
    }

    impl Stage for Fake {
        type Error = String;

        fn put_in_force(&mut self, p: &Planned) -> Result<(), String> {
            self.log.push(format!("apply {}", p.condition));
            if self.refuse { Err("refused".to_owned()) } else { Ok(()) }
        }

        fn trial(&mut self, p: &Planned) -> Trial {
            self.log.push(format!("trial {}", p.condition));
            let outcome = if self.outcomes.is_empty() {
                Outcome::Complete
            } else {
                self.outcomes.remove(0)
            };
            Trial { outcome, ..blank() }
        }

        fn store(&mut self, _: &Trial) -> Result<(), String> {
            self.log.push("store".to_owned());
            if self.full { Err("disk full".to_owned()) } else { Ok(()) }
        }

        fn take_back(&mut self, p: &Planned) -> Result<(), String> {
            self.log.push(format!("undo {}", p.condition));
            Ok(())
        }

        fn stop_requested(&self) -> bool {
            self.stop_after.is_some_and(|n| self.log.len() >= n)
        }
    }

    fn one_condition(blocks: u32) -> Vec<Planned> {
        plan(1, blocks, 1)
    }

    #[test]
    fn each_trial_is_stored_and_taken_back_before_the_next() {
        let mut fake = Fake::default();
        assert_eq!(run(&one_condition(2), &mut fake), Ok(Ended::Complete));
        let once = ["apply 0", "trial 0", "store", "undo 0"];
        assert_eq!(fake.log, [once, once].concat());
    }

    #[test]
    fn what_could_not_be_applied_is_still_taken_back() {
        let mut fake = Fake { refuse: true, ..Fake::default() };
        assert_eq!(run(&one_condition(2), &mut fake), Err("refused".to_owned()));
        assert_eq!(fake.log, ["apply 0", "undo 0"]);
    }

    #[test]
    fn a_full_disk_ends_the_run_after_taking_back() {
        let mut fake = Fake { full: true, ..Fake::default() };
        assert_eq!(run(&one_condition(2), &mut fake), Err("disk full".to_owned()));
        assert_eq!(fake.log.last().map(String::as_str), Some("undo 0"));
    }

    #[test]
    fn a_stop_between_trials_begins_no_more() {
        let mut fake = Fake { stop_after: Some(4), ..Fake::default() };
        assert_eq!(run(&one_condition(5), &mut fake), Ok(Ended::Interrupted));
        assert_eq!(fake.log.len(), 4);
    }

    #[test]
    fn an_interrupted_trial_is_kept_and_is_the_last() {
        let mut fake = Fake { outcomes: vec![Outcome::Interrupted], ..Fake::default() };
        assert_eq!(run(&one_condition(5), &mut fake), Ok(Ended::Interrupted));
        assert_eq!(fake.log, ["apply 0", "trial 0", "store", "undo 0"]);
    }

    #[test]
    fn three_failures_in_a_row_are_enough() {
        let failed = || Outcome::Failed { error: "gone".to_owned() };
        let outcomes = vec![failed(), failed(), Outcome::Complete, failed(), failed(), failed()];
        let mut fake = Fake { outcomes, ..Fake::default() };
        assert_eq!(run(&one_condition(9), &mut fake), Ok(Ended::Failing("gone".to_owned())));
        assert_eq!(fake.log.iter().filter(|l| l.starts_with("trial")).count(), 6);
    }
}
