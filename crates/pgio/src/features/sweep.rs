//! A sweep: lists of values in the experiment file, and what they show: all cells, and along each axis a curve for each
//! condition, with its knee.
//!
//! [`axes`] reads the file. [`curves`] finds them in stored trials, [`tables`] words them, [`charts`] draws them. Next:
//! `pgio_verdict` for what is said of the middle point.

mod axes;
mod charts;
mod curves;
mod tables;
#[cfg(test)]
mod tests;

use pgio_report::report::{Section, csv};
use pgio_results::store::StoredExperiment;
use pgio_verdict::Analysis;

use self::curves::{Estimate, SweptCell};
use crate::feature::Feature;

pub(super) static FEATURE: Feature = Feature {
    name: NAME,
    file: Some(&axes::PART),
    findings: &[section],
    #[cfg(feature = "schema")]
    schema: || Some(schemars::schema_for!(Field)),
    ..Feature::NONE
};

/// Also its field in the JSON of an analysis.
const NAME: &str = "sweep";

/// Its field in the schema of an analysis.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
struct Field {
    /// All cells of a sweep and the curves along its axes; everything else is for the middle point.
    sweep: Option<curves::SweepResult>,
}

fn section(stored: &StoredExperiment, analysis: &Analysis) -> Option<Section> {
    let swept = &curves::all(&stored.manifest, &stored.trials, &analysis.comparisons)?;
    let away = swept.cells.iter().filter(|cell| !swept.is_middle(cell));
    Some(Section {
        lead: tables::knees(swept),
        note: Some(tables::where_judged(swept)),
        tables: tables::tables(analysis, swept),
        rows: away.flat_map(|cell| rows(analysis, cell)).collect(),
        terms: vec![("knee", "The load from which more load adds more waiting than work.")],
        body: charts::body(&stored.manifest, analysis, swept),
        ..Section::new(NAME, "Along the axes", swept)
    })
}

/// The rows of a cell away from the middle point in the flat table. Its treatments are left out: they are the middle
/// point's with what the axes change.
fn rows(analysis: &Analysis, cell: &SweptCell) -> Vec<Vec<String>> {
    let one = |(name, estimate): (&String, &Estimate)| {
        let primary = *name == analysis.primary_metric;
        let effect = cell.effect.as_ref().filter(|_| primary);
        let number = |of: fn(&curves::CellEffect) -> Option<f64>| csv::number(effect.and_then(of));
        csv::row(&[
            ("experiment", analysis.experiment.clone()),
            ("condition", cell.condition.clone()),
            ("baseline", (cell.condition == analysis.baseline).to_string()),
            ("trials", cell.trials.to_string()),
            ("valid", cell.valid.to_string()),
            ("metric", name.clone()),
            ("unit", estimate.unit.clone()),
            ("value", csv::number(Some(estimate.value))),
            ("primary", primary.to_string()),
            ("verdict", effect.map_or_else(String::new, |e| csv::word(e.verdict))),
            ("blocks", effect.map_or_else(String::new, |e| e.blocks.to_string())),
            ("ratio", number(|e| e.ratio)),
            ("ratio_low", number(|e| e.interval.low)),
            ("ratio_high", number(|e| e.interval.high)),
            ("p", number(|e| e.p)),
            ("p_adjusted", number(|e| e.p_adjusted)),
            ("point", csv::point(&cell.point)),
            ("value_low", csv::number(estimate.interval.low)),
            ("value_high", csv::number(estimate.interval.high)),
            ("value_bound", csv::at_least(estimate.at_least)),
            ("ratio_bound", csv::bound(effect.and_then(|e| e.bound))),
        ])
    };
    cell.metrics.iter().map(one).collect()
}
