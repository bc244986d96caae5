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
mod compare;
pub mod cross;
mod degraded;
pub mod device;
mod families;
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
pub mod waits;
pub mod width;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::reconcile::Reconciliation;
use self::replica::Replica;
use self::shares::{Share, State};
use self::sweep::Swept;
use self::waits::{Decomposition, DecompositionDifference};
use pgio_results::metrics::{self, DeclaredMetric, MetricDef};
use pgio_results::store::StoredExperiment;
use pgio_results::{CheckVerdict, Metric, Warning};

pub use cross::judge;
pub use interval::Interval;
pub use standing::{Standing, standings};
pub use totals::Totals;

/// The level of every test and interval: 0.05, so intervals hold 95 %. A constant, since a level
/// chosen after seeing the data decides nothing.
pub const ALPHA: f64 = 0.05;

/// The finding that a condition stalled.
pub const STALLS: &str = "stalls";

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

/// One condition's trials, described; stored as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ConditionV1"))]
pub struct Condition {
    pub name: String,
    pub treatments: Vec<String>,
    /// What differs from the baseline's treatments.
    #[serde(default)]
    pub factors: Vec<String>,
    /// All trials on record, repeated ones included.
    pub trials: usize,
    /// Of these, complete ones that a check forbids to count.
    pub invalid: usize,
    /// Of these, failed or interrupted ones.
    pub failed: usize,
    /// Trials that count.
    pub valid: usize,
    /// Their lines in trials.jsonl, counted from 1.
    #[serde(default)]
    pub counted: Vec<usize>,
    /// Whether it could be measured; `measured` in what earlier versions wrote.
    #[serde(default)]
    pub state: State,
    /// Failed, invalid and badly behaved trials against the baseline's.
    #[serde(default)]
    pub shares: Vec<Share>,
    #[serde(default)]
    pub steady: Steady,
    pub checks_passed: usize,
    pub checks_total: usize,
    pub metrics: BTreeMap<String, Metric>,
}

/// How many of the trials that count stayed level inside their window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steady {
    pub steady: usize,
    pub unsteady: usize,
    /// Windows of too few slices to judge.
    pub too_short: usize,
}

/// One metric of one condition against the baseline's. Ratios are condition / baseline.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    pub condition: String,
    pub metric: String,
    /// Of the primary metric.
    pub primary: bool,
    /// In the family that answers the experiment's question; all others are indicative.
    pub judged: bool,
    /// The typical trial of the baseline in these blocks, and that times the ratio: what may stand
    /// side by side. Where there is no ratio, the means.
    pub baseline_value: Option<f64>,
    pub value: Option<f64>,
    pub ratio: Option<f64>,
    /// The interval of the ratio that the verdict came from: 95 % for the whole family.
    pub interval: Interval,
    /// Condition - baseline, in the metric's unit.
    pub difference: Option<f64>,
    pub difference_interval: Interval,
    /// All work over all time, of the primary metric where that is a rate.
    pub totals: Option<Totals>,
    /// The signed-rank test of this comparison alone.
    pub p: Option<f64>,
    /// Adjusted for its family; the verdict is decided where it is at most [`ALPHA`].
    pub p_adjusted: Option<f64>,
    pub verdict: Verdict,
    /// Blocks in which both sides have a valid trial with this metric.
    pub blocks: usize,
    /// Blocks that detect the effect that the user named, with 80 % power; only where one was named
    /// and these blocks did not decide.
    pub blocks_needed: Option<u32>,
    /// Sample standard deviation of the per-block log-ratios.
    pub sd_log: Option<f64>,
    /// The ratio and the one bound of its interval that is left are no more than this: trials of
    /// one side have lower bounds in place of values. `None`: both sides are known.
    pub bound: Option<Bound>,
    /// What to doubt.
    pub warnings: Vec<String>,
}

/// What is known of an effect where the window's end cut off operations of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtLeast,
    AtMost,
}

/// What a comparison says, in the direction of its metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Slower,
    Faster,
    /// More of a quantity of which neither more nor less is better.
    Higher,
    Lower,
    /// No difference shown, which is not "no difference".
    NoDifference,
    #[default]
    TooFewBlocks,
    /// A value of 0 or below has no ratio, and a percentile of too few operations is not compared.
    NotApplicable,
    /// Too few runs to judge what changed between two dates.
    NotJudged,
}

impl Verdict {
    /// Whether a difference was shown.
    pub fn is_decided(self) -> bool {
        matches!(self, Verdict::Slower | Verdict::Faster | Verdict::Higher | Verdict::Lower)
    }
}

/// What the baseline measured twice shows: the effect of nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoiseFloor {
    pub ratio: Option<f64>,
    #[serde(flatten)]
    pub interval: Interval,
    /// The smallest change that as many blocks detect with 80 % power, from the spread of all
    /// conditions' trials: 0.04 is 4 %.
    pub minimum_detectable_effect: Option<f64>,
    /// The same from the upper bound (90 %) of that spread, which is itself an estimate.
    #[serde(default)]
    pub minimum_detectable_effect_at_most: Option<f64>,
}

/// Something not in order, and what to do about it; stored as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "CheckV1"))]
pub struct Finding {
    pub id: String,
    pub verdict: CheckVerdict,
    pub condition: Option<String>,
    /// The line of trials.jsonl, counted from 1; null for the experiment as a whole.
    pub trial: Option<usize>,
    pub message: String,
    pub remedy: String,
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
