//! Says on stderr how far an experiment is.

use crate::cli::output::Status;
use crate::experiment::live::Happening;
use crate::experiment::plan::Planned;
use crate::results::model::Outcome as TrialOutcome;

#[derive(Debug)]
pub(super) struct Teller {
    status: Status,
    trials: usize,
    done: usize,
    blocks: u32,
}

impl Teller {
    pub(super) fn new(trials: usize, blocks: u32) -> Teller {
        Teller { status: Status::new(), trials, done: 0, blocks }
    }

    pub(super) fn tell(&mut self, happening: &Happening<'_>) {
        match happening {
            Happening::Begins { planned, condition } => self.show(planned, condition, ""),
            Happening::Progress { condition, progress } => {
                let rate = |n: u64| n as f64 / progress.elapsed.max(1e-3);
                let text = format!(
                    "trial {} of {}: {condition}, {:.0} s, {:.0} commits/s",
                    self.done + 1,
                    self.trials,
                    progress.elapsed,
                    rate(progress.commits),
                );
                self.status.show(&text);
            }
            Happening::Ended { planned, trial } => {
                self.done += 1;
                if let TrialOutcome::Failed { error } = &trial.outcome {
                    self.status.clear();
                    let place = trial.place.as_ref().map_or("", |p| p.condition.as_str());
                    eprintln!("pgio: block {}, {place}: failed: {error}", planned.block);
                }
                let block_done = (self.done * self.blocks as usize).is_multiple_of(self.trials);
                if !self.status.is_live() && block_done {
                    eprintln!("pgio: {} of {} trials", self.done, self.trials);
                }
            }
        }
    }

    fn show(&mut self, planned: &Planned, condition: &str, more: &str) {
        let text = format!(
            "trial {} of {}: block {} of {}, {condition}{more}",
            self.done + 1,
            self.trials,
            planned.block,
            self.blocks
        );
        self.status.show(&text);
    }
}
