//! What a stored experiment shows: every condition against the baseline, with its uncertainty.
//!
//! Pure: it sees stored results and benchmath, never a server, a clock or a file, so the same
//! record always gives the same verdicts. The trial is the unit. Trials that stand out from the
//! others are left out (`cross`), the rest paired by block (`pairing`), each condition described
//! (`summary`) and compared (`compare`), trials that failed or behaved badly counted (`shares`), and what
//! speaks against trusting the result is collected (`findings`, `steady`); what a percentile of few or
//! cut-off operations is worth is `tail`'s. Beside the verdicts: where the time went (`waits`) and which reads
//! reached the device (`reconcile`). Of a sweep all this is said of its middle point; [`sweep`] has
//! the other cells and the curves.
//!
//! Comparisons are judged in two families (`families`): those of the primary metric, which answer
//! the experiment's question, and all others. A verdict and the interval beside it always come
//! from the same test. Beside the typical block's ratio stand the ratio of totals (`totals`) and the
//! time in which hardly anything was done (`degraded`).
//!
//! Next: `report` turns an [`Analysis`] into text and JSON; [`across`] holds two experiments against
//! each other.

pub mod across;
mod candidate;
mod compare;
mod comparison;
mod condition;
pub mod cross;
mod degraded;
pub mod device;
mod factors;
mod families;
mod finding;
mod findings;
mod images;
mod interval;
mod pairing;
pub mod reconcile;
pub mod replica;
mod resolution;
pub mod shares;
mod standing;
mod steady;
mod summary;
pub mod sweep;
mod tail;
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub mod test_support;
#[cfg(test)]
mod tests;
mod totals;
mod verdict;
pub mod waits;
pub mod width;

use std::collections::BTreeMap;

use self::reconcile::Reconciliation;
use self::replica::Replica;
use self::sweep::Swept;
use self::waits::{Decomposition, DecompositionDifference};
use pgio_results::Warning;
use pgio_results::metrics::{self, DeclaredMetric, MetricDef};
use pgio_results::store::StoredExperiment;

pub use comparison::Comparison;
pub use condition::{Condition, Share, State, Steady};
pub use cross::judge;
pub use finding::{Finding, STALLS};
pub use interval::Interval;
pub use resolution::NoiseFloor;
pub use standing::{Standing, standings};
pub use totals::Totals;
pub use verdict::{ALPHA, Bound, Verdict};

/// A stored experiment, judged.
#[derive(Debug, Clone)]
pub struct Analysis {
    pub experiment: String,
    pub baseline: String,
    /// The experiment's own, where it is told against another.
    pub own_baseline: Option<String>,
    pub aa: Option<String>,
    pub primary_metric: String,
    /// What the metrics of its command mean, where it runs one.
    pub metrics: Vec<DeclaredMetric>,
    /// Blocks that were planned, or ran beyond the plan.
    pub blocks: usize,
    /// In the manifest's order.
    pub conditions: Vec<Condition>,
    /// Each condition but the baseline, in the manifest's order; its metrics in the metric
    /// table's order.
    pub comparisons: Vec<Comparison>,
    /// What the baseline's twin shows, by metric; empty without a twin.
    pub noise_floor: BTreeMap<String, NoiseFloor>,
    /// Where the time went, by condition and class; empty where nothing was sampled.
    pub decompositions: Vec<Decomposition>,
    /// What each condition adds to the baseline's, by class.
    pub decomposition_differences: Vec<DecompositionDifference>,
    /// Reads asked of the system and read from the device, by condition.
    pub reconciliation: Vec<Reconciliation>,
    /// The primary's disk against the secondary's, where the device is replicated.
    pub replicas: Vec<Replica>,
    /// Every cell and the curves along the axes; all else here is said of the middle point.
    pub sweep: Option<Swept>,
    /// What is not in order, by trial and for the experiment as a whole.
    pub checks: Vec<Finding>,
    /// The trials' warnings, each once, with the number of trials that raised it.
    pub warnings: Vec<(Warning, usize)>,
    /// How the numbers must be read.
    pub notes: Vec<String>,
}

impl Analysis {
    pub fn condition(&self, name: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.name == name)
    }

    pub fn comparison(&self, condition: &str, metric: &str) -> Option<&Comparison> {
        self.comparisons.iter().find(|c| c.condition == condition && c.metric == metric)
    }

    pub fn primary(&self, condition: &str) -> Option<&Comparison> {
        self.comparison(condition, &self.primary_metric)
    }

    /// Of a metric of this experiment's, or one of ours.
    pub fn definition(&self, metric: &str) -> Option<MetricDef<'_>> {
        metrics::find(&self.metrics, metric)
    }

    /// Empty for a metric that nobody knows.
    pub fn unit(&self, metric: &str) -> &str {
        self.definition(metric).map_or("", |def| def.unit)
    }

    pub fn is_aa(&self, condition: &str) -> bool {
        self.aa.as_deref() == Some(condition)
    }
}

/// The comparisons of the primary metric alone, as [`analyse`] has them.
pub fn primary_comparisons(stored: &StoredExperiment) -> Vec<Comparison> {
    let stored = cross::judged(stored);
    let arms = pairing::arms(&stored.manifest, &stored.trials);
    compare::of_primary(&stored.manifest, &arms)
}

/// Judges a stored experiment, complete or cut short.
pub fn analyse(stored: &StoredExperiment) -> Analysis {
    let judged = cross::judged(stored);
    let stored = judged.as_ref();
    let manifest = &stored.manifest;
    let arms = pairing::arms(manifest, &stored.trials);
    let mut conditions: Vec<Condition> = manifest
        .conditions
        .iter()
        .map(|c| summary::describe(c, manifest, &arms[c.name.as_str()]))
        .collect();
    let mut comparisons = compare::with_baseline(manifest, &arms);
    let spreads = resolution::spreads(manifest, &arms, &comparisons);
    resolution::plan(manifest, &spreads, &mut comparisons);
    let everywhere = pairing::arms_everywhere(manifest, &stored.trials);
    for condition in &mut conditions {
        let of_it = |c: &&Comparison| c.primary && c.condition == condition.name;
        let primary = comparisons.iter().find(of_it);
        condition.state = shares::state(condition, &arms[condition.name.as_str()], primary);
        condition.shares = shares::shares(manifest, &everywhere, &condition.name);
    }
    let ran = stored.trials.iter().filter_map(|t| t.place.as_ref()).map(|p| p.block).max();
    let noise_floor =
        manifest.aa.as_ref().map(|aa| resolution::noise_floor(aa, &spreads, &comparisons));
    Analysis {
        experiment: manifest.name.clone(),
        baseline: manifest.baseline.clone(),
        own_baseline: stored.own_baseline.clone(),
        aa: manifest.aa.clone(),
        primary_metric: manifest.primary_metric.clone(),
        metrics: manifest.metrics.clone(),
        decompositions: waits::decompositions(manifest, &arms),
        decomposition_differences: waits::differences(manifest, &arms),
        reconciliation: reconcile::all(manifest, &arms),
        replicas: replica::all(manifest, &arms),
        sweep: sweep::all(manifest, &stored.trials, &comparisons),
        checks: findings::all(stored, &everywhere, &comparisons),
        warnings: findings::warnings(stored),
        notes: [
            tail::notes(manifest, &arms),
            images::note(manifest, arms.get(manifest.baseline.as_str())).into_iter().collect(),
        ]
        .concat(),
        blocks: manifest.blocks.max(ran.unwrap_or(0)) as usize,
        conditions,
        comparisons,
        noise_floor: noise_floor.unwrap_or_default(),
    }
}
