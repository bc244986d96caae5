//! Says on stderr how far an experiment is, what is repeated, and why it goes on.

use std::collections::BTreeSet;

use crate::cli::output::{self, Status};
use crate::experiment::live::Happening;
use crate::experiment::plan::Planned;
use crate::experiment::run::News;
use crate::results::model::{Outcome, Trial};
use crate::warning::Warning;

#[derive(Debug)]
pub(super) struct Teller {
    status: Status,
    /// Grows with what is repeated and with further blocks.
    trials: usize,
    done: usize,
    blocks: u32,
    block: u32,
    /// A load of the data set before each trial warns of the same each time.
    warned: BTreeSet<Warning>,
}

impl Teller {
    pub(super) fn new(trials: usize, blocks: u32) -> Teller {
        Teller { status: Status::new(), trials, done: 0, blocks, block: 0, warned: BTreeSet::new() }
    }

    pub(super) fn tell(&mut self, happening: &Happening<'_>) {
        match happening {
            Happening::Begins { planned, condition } => self.begins(planned, condition),
            Happening::Resets { condition } => {
                let next = self.done + 1;
                self.status.show(&format!(
                    "trial {next} of {}: {condition}, loading the data set again",
                    self.trials
                ));
            }
            Happening::Warns(warning) => {
                if self.warned.insert((*warning).clone()) {
                    self.status.clear();
                    output::warn(warning);
                }
            }
            Happening::Progress { condition, progress } => {
                let a_second = |n: u64| n as f64 / progress.elapsed.max(1e-3);
                // Work that only reads has neither.
                let rate = match (progress.commits, progress.messages) {
                    (0, 0) => String::new(),
                    (0, n) => format!(", {:.0} messages/min", 60.0 * a_second(n)),
                    (n, _) => format!(", {:.0} commits/s", a_second(n)),
                };
                let said = match progress.said.text() {
                    "" => String::new(),
                    said => format!(": {said}"),
                };
                self.status.show(&format!(
                    "trial {} of {}: {condition}, {:.0} s{rate}{said}",
                    self.done + 1,
                    self.trials,
                    progress.elapsed,
                ));
            }
            Happening::Ended { planned, trial } => self.ended(planned, trial),
            Happening::Decided { news, condition } => self.decided(*news, condition),
            Happening::Looked { width, precision } => self.lasting(&width.told(*precision)),
        }
    }

    fn begins(&mut self, planned: &Planned, condition: &str) {
        // Without a terminal one line a block is enough.
        if !self.status.is_live() && planned.block != self.block && self.done > 0 {
            eprintln!("pgio: {} of {} trials", self.done, self.trials);
        }
        self.block = planned.block;
        self.status.show(&format!(
            "trial {} of {}: block {} of {}, {condition}",
            self.done + 1,
            self.trials,
            planned.block,
            self.blocks
        ));
    }

    fn ended(&mut self, planned: &Planned, trial: &Trial) {
        self.done += 1;
        if let Outcome::Failed { error } = &trial.outcome {
            let place = trial.place.as_ref().map_or("", |p| p.condition.as_str());
            self.lasting(&format!("block {}, {place}: failed: {error}", planned.block));
        }
        if !self.status.is_live() && self.done == self.trials {
            eprintln!("pgio: {} of {} trials", self.done, self.trials);
        }
    }

    fn decided(&mut self, news: News<'_>, condition: &str) {
        match news {
            News::Repeats { planned, why } => {
                self.trials += 1;
                let (block, attempt) = (planned.block, planned.attempt);
                self.lasting(&format!(
                    "block {block}, {condition}: invalid ({why}); repeated, for the {} time",
                    ordinal(attempt)
                ));
            }
            News::Beside { .. } => self.trials += 1,
            News::GivesUp { planned, why } => self.lasting(&format!(
                "block {}, {condition}: invalid ({why}) and left out, after {} attempts",
                planned.block,
                planned.attempt + 1
            )),
            News::FurtherBlock { block, trials } => {
                self.trials += trials;
                self.blocks = block;
            }
        }
    }

    fn lasting(&mut self, text: &str) {
        self.status.clear();
        eprintln!("pgio: {text}");
    }
}

fn ordinal(n: u32) -> String {
    match n {
        1 => "first".to_owned(),
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        n => format!("{n}th"),
    }
}
