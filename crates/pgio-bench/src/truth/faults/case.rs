//! A fault, and the experiment in which it is injected. Short, because all files of faults share it.

use super::accusations::Expected;
use crate::truth::rounds::Round;
use pgio::cli::exit::{Failure, Outcome, TRIAL};
use pgio::experiment::event::Event;
use pgio_report::analysis::Analysis;
use pgio_report::directories;

/// What breaking a rule needs besides a private server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// Root, for a loop device of its own.
    LoopDevice,
    /// Root, for a mount namespace of its own.
    Namespace,
    Lab,
}

/// A rule, and how it is broken.
pub(super) struct Fault {
    /// The number of the rule, from 1.
    pub(super) rule: u32,
    pub(super) needs: Needs,
    pub(super) what: &'static str,
    pub(super) expected: Expected,
    pub(super) run: fn(&Case<'_>) -> Result<Analysis, Failure>,
}

/// One experiment of the bench.
pub(super) struct Case<'a> {
    pub(super) round: Round<'a>,
    pub(super) tolerate: &'a [String],
}

impl Case<'_> {
    /// Returns `[experiment]` with these keys. Invalid trials are not repeated.
    pub(super) fn head(&self, name: &str, keys: &str) -> String {
        format!(
            "[experiment]\nname = \"{name}\"\naa = false\nrepeats = 0\ntolerate = {:?}\n{keys}\n",
            self.tolerate
        )
    }

    /// As [`Case::analysis`], with nothing to do while it runs.
    pub(super) fn undisturbed(&self, text: &str) -> Result<Analysis, Failure> {
        self.analysis(text, &mut |_| {})
    }

    /// As [`Case::analysis`]; `change` runs before each trial and gets whether the trial is one of `b`.
    pub(super) fn with_b_changed(
        &self,
        text: &str,
        mut change: impl FnMut(bool) -> Outcome,
    ) -> Result<Analysis, Failure> {
        let mut changed = Ok(());
        let analysis = self.analysis(text, &mut |event| {
            if let (Event::Begins { condition, .. }, Ok(())) = (event, &changed) {
                changed = change(*condition == "b");
            }
        });
        changed.and(analysis)
    }

    /// Runs the experiment and analyzes what it stored, also if no trial counts.
    pub(super) fn analysis(
        &self,
        text: &str,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Analysis, Failure> {
        let dir = match self.round.results(text, on_event) {
            Err(failure) if failure.code() == TRIAL => self.round.out.clone(),
            results => results?,
        };
        Ok(directories::analyze(&dir)?)
    }
}
