//! What `--plan` shows of a screening experiment, first of all: cells, blocks and time; then the factors,
//! and which of them are high in each cell.

use crate::cli::progress::seconds;
use crate::experiment::application::estimate::{self, Estimate};
use crate::experiment::application::{ConditionChange, Job, PlannedChange, Preview};
use benchmath::factorial::Design;
use pgio_results::change::Change;
use pgio_results::screening::{DesignKind, Screening};

pub(super) fn lines(job: &Job, preview: &Preview<'_>) -> Vec<String> {
    let Some(screening) = &job.screening else { return Vec::new() };
    let mut lines = vec![design_line(job, preview, screening)];
    lines.push(resolution_line(screening));
    let level = |changes: &[Change]| match changes {
        [] => "as it is".to_owned(),
        some => some.iter().map(Change::to_string).collect::<Vec<_>>().join(", "),
    };
    for factor in &screening.factors {
        let (low, high) = (level(&factor.low), level(&factor.high));
        lines.push(format!("  factor {}: low {low}; high {high}", factor.name));
    }
    for cell in &screening.cells {
        let high = match cell.high.as_slice() {
            [] => "no factor".to_owned(),
            some => some.join(", "),
        };
        lines.push(format!("  {}: high {high}", cell.condition));
    }
    lines
}

/// `Design fractional: 10 factors in 32 cells, 6 blocks, 192 trials, about 9.2 min in all.`
fn design_line(job: &Job, preview: &Preview<'_>, screening: &Screening) -> String {
    let e = &job.experiment;
    let cells = screening.cells.len() as u64 + u64::from(e.aa);
    let trials = cells * u64::from(e.blocks) * preview.workloads.len() as u64;
    let time = total_estimate(job, preview)
        .map_or_else(String::new, |total| format!(", about {} in all", seconds(total.total())));
    format!(
        "Design {}: {} factors in {} cells, {} blocks, {trials} trials{time}.",
        screening.design.name(),
        screening.factors.len(),
        screening.cells.len(),
        e.blocks
    )
}

fn total_estimate(job: &Job, preview: &Preview<'_>) -> Option<Estimate> {
    let blocks = job.experiment.blocks;
    let mut all = (preview.workloads.iter())
        .map(|w| estimate::estimate_workload(job, w.spec, &w.cells, blocks));
    all.try_fold(Estimate::default(), |total, of_one| Some(total.plus(of_one?)))
}

/// What the design can tell apart.
fn resolution_line(screening: &Screening) -> String {
    let design = Design::from_cells(screening.levels());
    let (interactions, resolution) =
        design.map_or((Vec::new(), 0), |d| (d.interactions(), d.resolution()));
    let aliased = interactions.iter().filter(|contrast| !contrast.aliases.is_empty()).count();
    match screening.design {
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

/// The distinct changes, without the cells that make them.
pub(super) fn distinct_changes(
    changes: &[ConditionChange],
    text: impl Fn(&PlannedChange) -> String,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for change in changes {
        let line = format!("changes {}", text(&change.change));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}
