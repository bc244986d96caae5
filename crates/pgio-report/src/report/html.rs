//! report.html: everything a stored experiment says, in one file that needs no network.
//!
//! The verdict in words comes first, then charts and tables, then what speaks against trusting
//! them, then how to repeat them. Charts are SVG written here, complete without JavaScript; with it
//! (`page.js`, uPlot) the line charts zoom. Tables are the ones of the text report. Numbers and
//! verdicts come from the analysis; a section that has nothing to say is left out. maud escapes all
//! text. Next: one file below `html/` for each section; [`svg`] has what the charts share.

mod checks;
mod effects;
mod forest;
mod head;
mod latency;
mod look;
mod manifest;
mod plain;
mod series;
mod shell;
mod svg;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod trials;
mod waits;
mod zoom;

use maud::Markup;

use super::comparison::remarks;
use super::table::Remark;
use crate::analysis::{Analysis, Standing, standings};
use look::Looks;
use pgio_results::series::Series;
use pgio_results::store::StoredExperiment;
use pgio_results::{Trial, TrialPosition};

pub use plain::{index, of_document};

/// What a page is made from.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub stored: &'a StoredExperiment,
    pub analysis: &'a Analysis,
    /// One for each trial, where its samples are there.
    pub series: &'a [Option<Series>],
    /// experiment.toml as run.
    pub experiment: &'a str,
}

/// Trials whose course over time is drawn; of more those of every second, third ... block.
const DRAWN: usize = 400;

/// Whether a trial's course over time is drawn, so that its samples are worth reading.
pub fn is_drawn(stored: &StoredExperiment, trial: &Trial) -> bool {
    let every = every(stored);
    every == 1 || trial.place.as_ref().is_some_and(|p| (p.block as usize).is_multiple_of(every))
}

fn every(stored: &StoredExperiment) -> usize {
    stored.trials.len().div_ceil(DRAWN).max(1)
}

/// The source with what every section asks for.
struct Page<'a> {
    stored: &'a StoredExperiment,
    analysis: &'a Analysis,
    series: &'a [Option<Series>],
    experiment: &'a str,
    remarks: Vec<Remark>,
    standings: Vec<Standing>,
    looks: Looks,
}

impl<'a> Page<'a> {
    /// Trials of a condition that count.
    fn counted(&self, condition: &str) -> impl Iterator<Item = (usize, &'a Trial)> {
        self.trials(condition).filter(|(line, _)| self.standings[line - 1] == Standing::Counts)
    }

    /// All trials of a condition at the middle point with their lines in trials.jsonl, counted from
    /// 1.
    fn trials(&self, condition: &str) -> impl Iterator<Item = (usize, &'a Trial)> {
        let middle = self.stored.manifest.middle();
        let here = move |p: &TrialPosition| {
            p.condition == condition && p.point == *middle && !p.is_burn_in()
        };
        let of = move |t: &&Trial| t.place.as_ref().is_some_and(here);
        let stored: &'a StoredExperiment = self.stored;
        (1..).zip(&stored.trials).filter(move |(_, t)| of(t))
    }

    /// At whatever point. Here and above without the burn-in trial.
    fn trials_anywhere(&self, condition: &str) -> impl Iterator<Item = &'a Trial> {
        let here = move |p: &TrialPosition| p.condition == condition && !p.is_burn_in();
        let of = move |t: &&Trial| t.place.as_ref().is_some_and(here);
        let stored: &'a StoredExperiment = self.stored;
        stored.trials.iter().filter(of)
    }

    /// How many trials are no burn-in.
    fn count(&self) -> usize {
        self.standings.iter().filter(|s| **s != Standing::BurnIn).count()
    }

    /// Whether charts show trials that do not count.
    fn has_left_out(&self) -> bool {
        self.standings.iter().any(|s| !matches!(s, Standing::Counts | Standing::BurnIn))
    }

    fn conditions(&self) -> impl Iterator<Item = &'a str> {
        self.stored.manifest.conditions.iter().map(|c| c.name.as_str())
    }
}

/// A part of the page under a heading of its own.
struct Section {
    id: &'static str,
    title: &'static str,
    body: Markup,
}

pub fn render(source: &Source<'_>) -> String {
    let page = Page {
        stored: source.stored,
        analysis: source.analysis,
        series: source.series,
        experiment: source.experiment,
        remarks: remarks(source.analysis),
        standings: standings(source.stored),
        looks: Looks::of(&source.stored.manifest),
    };
    let sections: Vec<Section> = [
        Some(effects::section(&page)),
        sweep::section(&page),
        trials::section(&page),
        waits::section(&page),
        latency::section(&page),
        series::section(&page),
        effects::reads(&page),
        effects::replicas(&page),
        effects::values(&page),
        Some(checks::section(&page)),
        Some(manifest::environment(&page)),
        Some(manifest::reproduce(&page)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let whole = shell::Shell {
        title: &page.analysis.experiment,
        header: head::header(&page),
        sections: &sections,
        footer: head::footer(&page),
        zooms: true,
    };
    shell::page(&whole)
}
