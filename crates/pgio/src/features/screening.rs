//! Screening: which of many factors matter, and which of them act together.
//!
//! [`factor`] reads the factors, [`design`] makes the conditions from them, [`plan`] shows them. [`tables`] words the
//! effects, [`cells`] shows the conditions. The core judges the effects, as contrasts of all conditions:
//! `pgio_verdict::effects`.

mod cells;
mod design;
mod factor;
mod plan;
mod tables;
#[cfg(test)]
mod tests;

use maud::{Markup, html};
use pgio_report::report::html::svg::LineStyles;
use pgio_report::report::html::{intervals, table};
use pgio_report::report::{Section, csv, format};
use pgio_results::store::{Manifest, StoredExperiment};
use pgio_verdict::Analysis;
use pgio_verdict::effects::{Effect, FactorEffects, title};

use crate::feature::Feature;

pub(super) static FEATURE: Feature = Feature {
    name: NAME,
    examples: &[example!("screening")],
    file: Some(&design::PART),
    plan: plan::lines,
    findings: &[section],
    #[cfg(feature = "schema")]
    schema: || Some(schemars::schema_for!(Field)),
    ..Feature::NONE
};

/// Also its field in the JSON of an analysis.
const NAME: &str = "screening";

/// Its field in the schema of an analysis.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
struct Field {
    /// The effects of factors; a factorial design has these in place of comparisons with the baseline.
    screening: Option<FactorEffects>,
}

fn section(stored: &StoredExperiment, analysis: &Analysis) -> Option<Section> {
    let screened = analysis.factor_effects.as_ref()?;
    let own = Section {
        effects: tables::tables(analysis, screened),
        effect_notes: tables::notes_without_effects(screened),
        ..Section::new(NAME, "What matters here", screened)
    };
    if !screened.design.is_factorial() {
        return Some(own);
    }
    let what = format!("effects of {}", format::counted(screened.factors.len(), "factor"));
    let cells = std::iter::once(tables::cells(analysis, screened));
    Some(Section {
        lead: tables::lead(analysis, screened),
        instead: Some((what, cells.chain(cells::line_by_line(analysis)).collect())),
        rows: screened.effects.iter().map(|effect| row(analysis, effect)).collect(),
        body: body(&stored.manifest, analysis, screened),
        ..own
    })
}

/// The row of a factor or of an interaction in the flat table.
fn row(analysis: &Analysis, effect: &Effect) -> Vec<String> {
    let aliases: Vec<String> = effect.aliases.iter().map(|pair| title(pair)).collect();
    csv::contrast(analysis, &effect.comparison, effect.factors.join("; "), aliases.join("; "))
}

/// The section of the page, in place of the comparisons with a baseline.
fn body(manifest: &Manifest, analysis: &Analysis, screened: &FactorEffects) -> Markup {
    let metric = format::metric_name(&analysis.primary_metric);
    let shown = screened.effects.iter().filter(|e| tables::is_shown(e));
    let primary = shown.map(|e| &e.comparison).filter(|c| c.primary);
    let plot = format!("Change of {metric}, high against low");
    let folded = cells::folded(analysis, screened);
    html! {
        p { "Primary metric: " strong { (metric) } ". Each effect is high against low, over all cells of "
            (tables::design(screened)) "; all effects are one family." }
        (intervals::contrasts(analysis, &LineStyles::new(manifest), &plot, primary))
        @for t in &tables::tables(analysis, screened) { (table::render_cards(t, "What matters here")) }
        (table::render(&tables::cells(analysis, screened), "Cells"))
        @if !folded.is_empty() {
            h3 { "Latency and waits by cell" }
            @for cell in &folded {
                details { summary { (table::prose(&cell.summary)) } (table::render(&cell.table, &cell.summary)) }
            }
        }
    }
}
