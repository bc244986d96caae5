//! The data that the sections of the page share, and the section itself.

use maud::Markup;
use pgio_results::series::Series;
use pgio_results::store::StoredExperiment;
use pgio_results::{Trial, TrialPosition};

use super::look::LineStyles;
use crate::analysis::{Analysis, TrialStatus};
use crate::report::table::Remark;

/// The source, with everything that more than one section needs.
pub(super) struct Page<'a> {
    pub(super) stored: &'a StoredExperiment,
    pub(super) analysis: &'a Analysis,
    pub(super) series: &'a [Option<Series>],
    pub(super) experiment: &'a str,
    pub(super) remarks: Vec<Remark>,
    pub(super) statuses: Vec<TrialStatus>,
    pub(super) looks: LineStyles,
}

impl<'a> Page<'a> {
    /// Trials of a condition that count.
    pub(super) fn counted(&self, condition: &str) -> impl Iterator<Item = (usize, &'a Trial)> {
        self.trials(condition).filter(|(line, _)| self.statuses[line - 1] == TrialStatus::Counts)
    }

    /// All trials of a condition at the middle point, with their lines in trials.jsonl, without burn-in
    /// trials.
    pub(super) fn trials(&self, condition: &str) -> impl Iterator<Item = (usize, &'a Trial)> {
        let middle = self.stored.manifest.middle();
        let here = move |p: &TrialPosition| {
            p.condition == condition && p.point == *middle && !p.is_burn_in()
        };
        let of = move |t: &&Trial| t.place.as_ref().is_some_and(here);
        let stored: &'a StoredExperiment = self.stored;
        (1..).zip(&stored.trials).filter(move |(_, t)| of(t))
    }

    /// The samples of the trial on this line, if there are any. Those of a woven window belong to no trial: they are
    /// of all its conditions, in seconds of the whole window, and stored with the first of its trials.
    pub(super) fn samples(&self, line: usize) -> Option<&'a Series> {
        let own = self.stored.trials.get(line - 1)?.woven.is_none();
        self.series.get(line - 1)?.as_ref().filter(|_| own)
    }

    /// All trials of a condition at any point, without burn-in trials.
    pub(super) fn trials_anywhere(&self, condition: &str) -> impl Iterator<Item = &'a Trial> {
        let here = move |p: &TrialPosition| p.condition == condition && !p.is_burn_in();
        let of = move |t: &&Trial| t.place.as_ref().is_some_and(here);
        let stored: &'a StoredExperiment = self.stored;
        stored.trials.iter().filter(of)
    }

    /// Number of trials, without burn-in trials.
    pub(super) fn count(&self) -> usize {
        self.statuses.iter().filter(|s| **s != TrialStatus::BurnIn).count()
    }

    /// Whether charts show trials that do not count.
    pub(super) fn has_left_out(&self) -> bool {
        self.statuses.iter().any(|s| !matches!(s, TrialStatus::Counts | TrialStatus::BurnIn))
    }

    pub(super) fn conditions(&self) -> impl Iterator<Item = &'a str> {
        self.stored.manifest.conditions.iter().map(|c| c.name.as_str())
    }
}

/// A part of the page with its own heading.
pub(super) struct Section {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) body: Markup,
}
