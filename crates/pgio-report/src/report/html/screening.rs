//! The effects of factors: all of them as a forest plot, ranked, then the tables of the text report.

use maud::html;

use super::super::format::metric_name;
use super::super::screening;
use super::page::{Page, Section};
use super::{forest, table};
use crate::analysis::screening::Screened;

/// The section that takes the place of the comparisons with a baseline.
pub(super) fn section(page: &Page<'_>, screened: &Screened) -> Section {
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
