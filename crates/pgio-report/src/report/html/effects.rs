//! The effects on the primary metric, as a forest plot and as the table of the text report; then the
//! other tables of that report. In a factorial design, the effects of factors take their place.

use maud::html;

use super::super::format::metric_name;
use super::super::{comparison, explain, screening, servers};
use super::page::{Page, Section};
use super::{forest, table};
use crate::analysis::screening::Screened;

pub(super) fn section(page: &Page<'_>) -> Section {
    let metric = metric_name(&page.analysis.primary_metric);
    // One factor at a time: the same comparisons, ranked.
    let ranked = screening::tables(page.analysis);
    let body = html! {
        p { "Primary metric: " strong { (metric) } ", each condition against "
            strong { (page.analysis.baseline) } ". Everything else is indicative." }
        (forest::figure(page))
        @for t in &ranked { (table::render_cards(t, "What matters here")) }
        (table::render_cards(&comparison::primary(page.analysis), "Conditions and effects"))
        @if let Some(t) = servers::table(page.analysis) { (table::render_cards(&t, "Each server")) }
    };
    Section { id: "effects", title: "Effects", body }
}

/// The section that takes the place of the comparisons with a baseline.
pub(super) fn factors(page: &Page<'_>, screened: &Screened) -> Section {
    let metric = metric_name(&page.analysis.primary_metric);
    let tables = screening::tables(page.analysis);
    let body = html! {
        p { "Primary metric: " strong { (metric) } ". Each effect is high against low, over all cells of "
            (screening::design(screened)) "; all effects are one family." }
        (forest::effects(page, screened))
        @for t in &tables { (table::render_cards(t, "What matters here")) }
        (table::render(&screening::cells(page.analysis, screened), "Cells"))
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

/// The writes of a replicated device on both sides.
pub(super) fn replicas(page: &Page<'_>) -> Option<Section> {
    let replicas = explain::replicas(page.analysis)?;
    let body = table::render(&replicas, "Primary against secondary");
    Some(Section { id: "replicas", title: "Primary against secondary", body })
}
