//! The effects on the primary metric, as a forest plot and as the table of the text report; then
//! everything else that was measured.

use maud::{Markup, html};

use super::super::format::metric_name;
use super::{Page, Section, forest, table};

pub(super) fn section(page: &Page<'_>) -> Section {
    let metric = metric_name(&page.analysis.primary_metric);
    let primary = page.document.tables.first();
    let body = html! {
        p { "Primary metric: " strong { (metric) } ", each condition against "
            strong { (page.analysis.baseline) } ". Everything else is indicative." }
        (forest::figure(page))
        @if let Some(primary) = primary { (table::render(primary, "Conditions and effects")) }
    };
    Section { id: "effects", title: "Effects", body }
}

/// The tables that the text report has beyond the first.
pub(super) fn values(page: &Page<'_>) -> Option<Section> {
    let others = page.document.tables.get(1..).unwrap_or_default();
    let body: Markup = html! { @for t in others { (table::render(t, "Secondary metrics")) } };
    (!others.is_empty()).then_some(Section { id: "values", title: "Everything measured", body })
}
