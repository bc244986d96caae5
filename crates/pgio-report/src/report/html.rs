//! report.html: the complete report of a stored experiment, in one file that needs no network.
//!
//! The answers come first, one line for each condition, then the effects and where the time went: this is the summary, two
//! printed pages. The appendix has all other charts and tables, checks and warnings, how to reproduce the result, and the
//! terms. Charts are SVG and complete without JavaScript; with it (`page.js`, uPlot) line charts zoom.
//! Tables are those of the text report. Numbers and verdicts come from the analysis; sections without
//! content are omitted. maud escapes all text. Next: `html/` has one file per section; [`svg`] has the
//! common parts of charts.

mod checks;
mod effects;
mod forest;
mod glossary;
mod head;
mod history;
mod latency;
mod look;
mod manifest;
mod page;
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

use maud::html;

use super::comparison::remarks;
use super::screening::factorial;
use super::table::Document;
use crate::analysis::{Analysis, trial_statuses};
pub use history::history_page;
use look::LineStyles;
use page::{Page, Section};
use pgio_results::series::Series;
use pgio_results::store::StoredExperiment;
pub use series::is_drawn;
pub use shell::{SCRIPTS, STYLES, empty, served};

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
        statuses: trial_statuses(source.stored),
        looks: LineStyles::new(&source.stored.manifest),
    };
    let (summary, details) = match factorial(page.analysis) {
        Some(screened) => {
            (vec![Some(effects::factors(&page, screened))], vec![trials::section(&page)])
        }
        None => (
            vec![Some(effects::section(&page)), waits::section(&page)],
            vec![
                Some(effects::numbers(&page)),
                sweep::section(&page),
                trials::section(&page),
                latency::section(&page),
                series::section(&page),
                waits::details(&page),
                effects::reads(&page),
                effects::replicas(&page),
                effects::standbys(&page),
                effects::background(&page),
                effects::values(&page),
            ],
        ),
    };
    let about = [
        Some(checks::section(&page)),
        Some(manifest::environment(&page)),
        Some(manifest::reproduce(&page)),
        Some(glossary::section(&page)),
    ];
    let mut sections: Vec<Section> = summary.into_iter().flatten().collect();
    let summary = sections.len();
    sections.extend(details.into_iter().chain(about).flatten());
    let whole = shell::Shell {
        title: &page.analysis.experiment,
        header: head::header(&page),
        sections: &sections,
        summary,
        footer: head::footer(&page),
        zooms: true,
    };
    shell::page(&whole)
}

/// Renders a document's tables and remarks, such as the comparison of two experiments.
pub fn document_page(document: &Document) -> String {
    let tables = html! { @for t in &document.tables { (table::render(t, "Comparison")) } };
    let mut sections = vec![Section { id: "numbers", title: "Numbers", body: tables }];
    if !document.remarks.is_empty() {
        let body = checks::list(&document.remarks);
        sections.push(Section { id: "checks", title: "Remarks", body });
    }
    let (title, subtitle) = (&document.title, &document.subtitle);
    let header = html! {
        p.kind { "pgio" } h1 { (title) } @if !subtitle.is_empty() { p { (subtitle) } }
    };
    shell::simple(title, header, &sections, false)
}

/// Renders the answers of each workload's page, with a link to that page.
pub fn index(title: &str, workloads: &[(String, &Analysis)]) -> String {
    let body = html! { @for (place, analysis) in workloads {
        h3 { a href=(place) { (analysis.experiment) } }
        (head::opening(analysis))
        (head::answered(analysis, None))
    } };
    let sections = [Section { id: "workloads", title: "Workloads", body }];
    shell::simple(title, html! { p.kind { "pgio experiment" } h1 { (title) } }, &sections, false)
}
