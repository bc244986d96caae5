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
mod page;
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

use super::comparison::remarks;
use crate::analysis::{Analysis, standings};
use look::Looks;
use page::{Page, Section};
use pgio_results::series::Series;
use pgio_results::store::StoredExperiment;

pub use plain::{index, of_document};
pub use series::is_drawn;

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
