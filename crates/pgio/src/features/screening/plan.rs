//! What `--plan` says of a design: its factors, its cells, and which effects it can tell apart.

use benchmath::factorial::Design;

use crate::cli::progress::seconds;
use crate::experiment::application::estimate::{self, Estimate};
use crate::experiment::application::{Job, Preview};
use pgio_results::change::Change;
use pgio_results::factors::{DesignKind, FactorDesign};

pub(super) fn lines(job: &Job, preview: &Preview<'_>) -> Vec<String> {
    let Some(design) = &job.experiment.design else { return Vec::new() };
    let mut lines = vec![design_line(job, preview, design)];
    lines.push(resolution_line(design));
    let level = |changes: &[Change]| match changes {
        [] => "as it is".to_owned(),
        some => some.iter().map(Change::to_string).collect::<Vec<_>>().join(", "),
    };
    for factor in &design.factors {
        let (low, high) = (level(&factor.low), level(&factor.high));
        lines.push(format!("  factor {}: low {low}; high {high}", factor.name));
    }
    for cell in &design.cells {
        let high = match cell.high.as_slice() {
            [] => "no factor".to_owned(),
            some => some.join(", "),
        };
        lines.push(format!("  {}: high {high}", cell.condition));
    }
    lines
}

/// `Design fractional: 10 factors in 32 cells, 6 blocks, 192 trials, about 9.2 min in all.`
fn design_line(job: &Job, preview: &Preview<'_>, design: &FactorDesign) -> String {
    let e = &job.experiment;
    let cells = design.cells.len() as u64 + u64::from(e.aa);
    let trials = cells * u64::from(e.blocks) * preview.workloads.len() as u64;
    let time = total_estimate(job, preview)
        .map_or_else(String::new, |total| format!(", about {} in all", seconds(total.total())));
    format!(
        "Design {}: {} factors in {} cells, {} blocks, {trials} trials{time}.",
        design.kind.name(),
        design.factors.len(),
        design.cells.len(),
        e.blocks
    )
}

fn total_estimate(job: &Job, preview: &Preview<'_>) -> Option<Estimate> {
    let blocks = job.experiment.blocks;
    let mut all = (preview.workloads.iter())
        .map(|w| estimate::estimate_workload(job, w.spec, &w.cells, blocks));
    all.try_fold(Estimate::default(), |total, one| Some(total.plus(one?)))
}

/// What the design can tell apart.
fn resolution_line(design: &FactorDesign) -> String {
    let matrix = Design::from_cells(design.levels());
    let (interactions, resolution) =
        matrix.map_or((Vec::new(), 0), |d| (d.interactions(), d.resolution()));
    let aliased = interactions.iter().filter(|contrast| !contrast.aliases.is_empty()).count();
    match design.kind {
        DesignKind::OneAtATime => {
            "  shows the effect of each factor alone, not whether factors act together".to_owned()
        }
        DesignKind::Full | DesignKind::Fractional if interactions.is_empty() => {
            "  shows the effect of each factor (resolution IV); interactions of two factors are mixed".to_owned()
        }
        DesignKind::Full | DesignKind::Fractional => format!(
            "  shows the effect of each factor and {} contrasts of two factors, of which {aliased} have aliases (resolution {})",
            interactions.len(),
            if resolution < 5 { "IV" } else { "V or higher" }
        ),
    }
}
