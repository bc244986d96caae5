//! The effects on the primary metric as a forest plot; then that as the table of the text report, and the
//! other tables of that report. In a factorial design, the effects of factors take their place.

use maud::html;

use super::super::format::metric_name;
use super::super::{cells, comparison, explain, screening, servers};
use super::page::{Page, Section};
use super::{intervals, table};
use crate::analysis::screening::ScreeningResult;

pub(super) fn section(page: &Page<'_>) -> Section {
    let metric = metric_name(&page.analysis.primary_metric);
    let body = html! {
        p { "Primary metric: " strong { (metric) } ", each condition against "
            strong { (page.analysis.baseline) } ". Everything else is indicative." }
        (intervals::conditions(page))
    };
    Section { id: "effects", title: "Effects", body }
}

/// The effects as tables.
pub(super) fn numbers(page: &Page<'_>) -> Section {
    // One factor at a time: the same comparisons, ranked.
    let ranked = screening::tables(page.analysis);
    let body = html! {
        @for t in &ranked { (table::render_cards(t, "What matters here")) }
        (table::render_cards(&comparison::primary(page.analysis), "Conditions and effects"))
        @if let Some(t) = servers::table(page.analysis) { (table::render_cards(&t, "Each server")) }
    };
    Section { id: "numbers", title: "Effects in numbers", body }
}

/// The section that takes the place of the comparisons with a baseline.
pub(super) fn factors(page: &Page<'_>, screened: &ScreeningResult) -> Section {
    let metric = metric_name(&page.analysis.primary_metric);
    let tables = screening::tables(page.analysis);
    let folded = cells::folded(page.analysis, screened);
    let body = html! {
        p { "Primary metric: " strong { (metric) } ". Each effect is high against low, over all cells of "
            (screening::design(screened)) "; all effects are one family." }
        (intervals::factors(page, screened))
        @for t in &tables { (table::render_cards(t, "What matters here")) }
        (table::render(&screening::cells(page.analysis, screened), "Cells"))
        @if !folded.is_empty() {
            h3 { "Latency and waits by cell" }
            @for cell in &folded {
                details { summary { (table::prose(&cell.summary)) } (table::render(&cell.table, &cell.summary)) }
            }
        }
    };
    Section { id: "effects", title: "What matters here", body }
}

pub(super) fn values(page: &Page<'_>) -> Option<Section> {
    let tables = comparison::secondary(page.analysis);
    let body = html! { @for t in &tables { (table::render(t, "Secondary metrics")) } };
    (!tables.is_empty()).then_some(Section { id: "values", title: "Everything measured", body })
}

/// Whether reads reached the device: the comparison of iostat with RIOPS.
pub(super) fn reads(page: &Page<'_>) -> Option<Section> {
    let reads = explain::reads(page.analysis)?;
    let body = table::render(&reads, "Reads");
    Some(Section { id: "reads", title: "Reads", body })
}

/// What ran beside the conditions.
pub(super) fn background(page: &Page<'_>) -> Option<Section> {
    let background = explain::background(page.analysis)?;
    let body = table::render(&background, "Background work");
    Some(Section { id: "background", title: "Background work", body })
}

/// The standbys and their disks.
pub(super) fn standbys(page: &Page<'_>) -> Option<Section> {
    let standbys = explain::standbys(page.analysis)?;
    let body = table::render(&standbys, "Standbys");
    Some(Section { id: "standbys", title: "Standbys", body })
}

/// The writes of a replicated device on both sides.
pub(super) fn replicas(page: &Page<'_>) -> Option<Section> {
    let replicas = explain::replicas(page.analysis)?;
    let body = table::render(&replicas, explain::REPLICAS_TITLE);
    Some(Section { id: "replicas", title: explain::REPLICAS_TITLE, body })
}
