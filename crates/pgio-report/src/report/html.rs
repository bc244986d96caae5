//! report.html: the complete report of a stored experiment, in one file that needs no network.
//!
//! The verdict comes first, then charts and tables, then checks and warnings, then how to reproduce the
//! result. Charts are SVG and complete without JavaScript; with it (`page.js`, uPlot) line charts zoom.
//! Tables are those of the text report. Numbers and verdicts come from the analysis; sections without
//! content are omitted. maud escapes all text. Next: `html/` has one file per section; [`svg`] has the
//! common parts of charts.

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

pub use plain::{document_page, index};
pub use series::is_drawn;

/// The input of a page.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub stored: &'a StoredExperiment,
    pub analysis: &'a Analysis,
    /// The samples of each trial, if available.
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
        looks: Looks::new(&source.stored.manifest),
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
