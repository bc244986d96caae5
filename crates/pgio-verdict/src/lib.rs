//! Analyzes a stored experiment: compares every condition with the baseline, with its uncertainty.
//!
//! The analysis is pure. It uses stored results and benchmath, never a server, a clock or a file, so the
//! same record always gives the same verdicts. The trial is the unit. `cross` invalidates trials that
//! differ from the others, `pairing` pairs the rest by block, `totals` describes each condition,
//! `compare` compares them, `shares` counts failed and badly behaved trials, and `findings` and `steady`
//! collect the warnings, `drift` those about trends over the blocks, `layout` those about what the design
//! cannot see. `variance` divides the noise. `tail` decides whether a percentile is reliable. `waits` shows
//! where the time went, `reconcile` which reads reached the device. All this applies to the middle point
//! of a workload; a feature may compare conditions at others ([`compare_apart`], [`pairing`]).
//!
//! Comparisons are judged in families (`families`): comparisons of the primary metric, which answer the experiment's
//! question, the mean times of the operation that explain the answer, and all others. A verdict and its interval come
//! from the same test. The ratio of the typical block is accompanied by the ratio of totals (`totals`) and the degraded
//! time (`degraded`). `margin` decides whether an effect exceeds the margin that the experiment names; [`pilot`] plans
//! how many blocks that takes.
//!
//! [`effects`] estimates the effects of factors, if a design made the conditions from them.
//!
//! Next: `report` renders an [`Analysis`] as text and JSON; [`across`] compares two experiments,
//! [`history`] follows one over many runs.

pub mod across;
mod compare;
mod comparison;
pub mod condition;
mod contrasts;
pub mod cross;
mod degraded;
pub mod device;
mod drift;
pub mod effects;
mod families;
mod findings;
pub mod history;
mod layout;
mod margin;
pub mod pairing;
pub mod pilot;
pub mod reconcile;
pub mod replica;
pub mod resolution;
mod servers;
pub mod shares;
pub mod standbys;
mod steady;
mod tail;
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub mod test_support;
#[cfg(test)]
mod tests;
mod totals;
mod variance;
pub mod waits;
mod woven;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use self::effects::FactorEffects;
use self::reconcile::Reconciliation;
use self::replica::Replica;
use self::standbys::StandbyUse;
use self::waits::{Decomposition, DecompositionDifference};
use pgio_results::metrics::{self, DeclaredMetric, MetricDef};
use pgio_results::points::Point;
use pgio_results::store::StoredExperiment;

pub use self::condition::{TrialStatus, trial_statuses};
pub use compare::{compare_apart, is_meaningful, is_rate_of_work};
pub use comparison::{ALPHA, Bound, Comparison, Decision, Gate, Interval, MAX_FACTOR, Verdict};
pub use condition::{
    Condition, CountedWarning, Finding, STALLS, Share, State, Steady, WEAVE_CARRY_OVER, WEAVE_SHORT,
};
pub use cross::judge;
pub use drift::Drift;
pub use resolution::NoiseFloor;
pub use servers::Server;
pub use totals::Totals;
pub use totals::in_words as totals_in_words;
pub use variance::{Renewal, Variance};
pub use woven::WovenSlices;
pub use woven::{describe as weaving, limit as weave_limit, settings as weave_settings};

pub const ANALYSIS_SCHEMA: &str = "pgio.analysis/1";

/// A stored experiment, judged. Its JSON form, `pgio.analysis/1`, is for other programs: readers
/// ignore fields they do not know, and a change that breaks them gets a new number. A number that
/// does not exist is null, never 0.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Analysis {
    /// Always `pgio.analysis/1`.
    pub schema: String,
    pub experiment: String,
    /// As the experiment asks it, or made from its conditions.
    #[serde(default)]
    pub question: String,
    pub baseline: String,
    /// The point that all this is for.
    #[serde(skip)]
    pub middle: Point,
    /// The experiment's original baseline, if another one is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_baseline: Option<String>,
    /// The A/A twin of the baseline, if there is one.
    pub aa: Option<String>,
    pub primary_metric: String,
    /// Effects smaller than this share of the baseline's value do not matter, if the experiment says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
    /// The metrics that the experiment's command prints, if it runs one.
    #[serde(skip)]
    pub metrics: Vec<DeclaredMetric>,
    /// Number of blocks: as planned, or more if more ran.
    #[serde(skip)]
    pub blocks: usize,
    /// Seconds from the start of one block to the start of the next, as measured; null if unknown.
    #[serde(default)]
    pub block_seconds: Option<f64>,
    /// The level of all tests; intervals hold 1 - alpha.
    pub alpha: f64,
    /// In the manifest's order.
    pub conditions: Vec<Condition>,
    /// Each condition but the baseline, in the manifest's order; its metrics in the metric
    /// table's order.
    pub comparisons: Vec<Comparison>,
    /// The noise floor from the A/A twin, by metric; empty without a twin.
    pub noise_floor: BTreeMap<String, NoiseFloor>,
    /// Tests of the primary metric for a trend over the blocks; empty with too few blocks.
    #[serde(default)]
    pub drifts: Vec<Drift>,
    /// Where the noise of the primary metric arises; absent if its windows were not recorded in slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variance: Option<Variance>,
    /// Where the time went, by condition and class of operation; empty without samples.
    #[serde(default)]
    pub decompositions: Vec<Decomposition>,
    /// The time that each condition adds to the baseline's, by class.
    #[serde(default)]
    pub decomposition_differences: Vec<DecompositionDifference>,
    /// Reads requested from the system and read from the device, by condition.
    #[serde(default)]
    pub reconciliation: Vec<Reconciliation>,
    /// The disks of primary and secondary, by condition, if the device is replicated.
    #[serde(default)]
    pub replicas: Vec<Replica>,
    /// The standbys by condition; empty if none was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standbys: Vec<StandbyUse>,
    /// What features found in addition, by name.
    #[serde(flatten, skip_deserializing)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub features: BTreeMap<&'static str, Box<RawValue>>,
    /// The effects of factors; a factorial design has these in place of comparisons with the baseline.
    #[serde(skip)]
    pub factor_effects: Option<FactorEffects>,
    /// The single servers of conditions that run on several in one window; empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
    /// Absent if each trial had a window of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woven: Option<WovenSlices>,
    /// Findings, by trial and for the experiment as a whole. Those that need several trials, such as `data-drift`,
    /// are computed for each report and not stored with the trial.
    pub checks: Vec<Finding>,
    /// The trials' warnings, each once.
    pub warnings: Vec<CountedWarning>,
    /// Remarks on how to read the numbers.
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

    /// Finds a metric of the experiment or of pgio.
    pub fn definition(&self, metric: &str) -> Option<MetricDef<'_>> {
        metrics::find(&self.metrics, metric)
    }

    /// Empty for an unknown metric.
    pub fn unit(&self, metric: &str) -> &str {
        self.definition(metric).map_or("", |def| def.unit)
    }

    /// Whether contrasts of all conditions take the place of comparisons with the baseline.
    pub fn has_contrasts(&self) -> bool {
        self.factor_effects.as_ref().is_some_and(|effects| effects.design.is_factorial())
    }

    pub fn is_aa(&self, condition: &str) -> bool {
        self.aa.as_deref() == Some(condition)
    }
}

/// The judged comparisons of the primary metric alone, as [`analyze`] has them; the effects of a factorial
/// design.
pub fn primary_comparisons(stored: &StoredExperiment) -> Vec<Comparison> {
    let stored = cross::judged(stored);
    let trials = pairing::by_condition(&stored.manifest, &stored.trials);
    if effects::factorial(&stored.manifest).is_some() {
        return effects::contrasts(&stored.manifest, &trials);
    }
    compare::judged_primary(&stored.manifest, &trials)
}

/// Judges a stored experiment, complete or cut short.
pub fn analyze(stored: &StoredExperiment) -> Analysis {
    let judged = cross::judged(stored);
    let stored = judged.as_ref();
    let manifest = &stored.manifest;
    let trials = pairing::by_condition(manifest, &stored.trials);
    let mut conditions: Vec<Condition> = manifest
        .conditions
        .iter()
        .map(|c| totals::describe(c, manifest, &trials[c.name.as_str()]))
        .collect();
    let mut comparisons = compare::with_baseline(manifest, &trials);
    let spreads = resolution::spreads(manifest, &trials, &comparisons);
    resolution::plan(manifest, &spreads, &mut comparisons);
    let everywhere = pairing::by_condition_everywhere(manifest, &stored.trials);
    for condition in &mut conditions {
        let is_its_primary = |c: &&Comparison| c.primary && c.condition == condition.name;
        let primary = comparisons.iter().find(is_its_primary);
        condition.state = shares::state(condition, &trials[condition.name.as_str()], primary);
        condition.shares = shares::shares(manifest, &everywhere, &condition.name);
    }
    margin::count_failures(&conditions, &mut comparisons);
    let drifts = drift::all(manifest, &trials);
    let mut further = drift::findings(manifest, &drifts);
    let spread = spreads.get(&manifest.primary_metric);
    further.extend(layout::findings(manifest, &trials, &comparisons, spread));
    let ran = stored.trials.iter().filter_map(|t| t.place.as_ref()).map(|p| p.block).max();
    let screened = effects::all(manifest, &trials, &comparisons);
    // In a factorial design the effects take the place of comparisons.
    let effects: Vec<Comparison> = match &screened {
        Some(s) if s.design.is_factorial() => {
            s.effects.iter().map(|e| e.comparison.clone()).collect()
        }
        _ => comparisons.clone(),
    };
    let noise_floor = manifest
        .aa
        .as_ref()
        .map(|aa| resolution::noise_floor(manifest, aa, &spreads, &comparisons));
    Analysis {
        schema: ANALYSIS_SCHEMA.to_owned(),
        alpha: ALPHA,
        experiment: manifest.name.clone(),
        question: condition::question(manifest),
        baseline: manifest.baseline.clone(),
        middle: manifest.middle().clone(),
        own_baseline: manifest.own_baseline.clone(),
        aa: manifest.aa.clone(),
        primary_metric: manifest.primary_metric.clone(),
        margin: margin::named(manifest),
        metrics: manifest.metrics.clone(),
        decompositions: waits::decompositions(manifest, &trials),
        decomposition_differences: waits::differences(manifest, &trials),
        reconciliation: reconcile::all(manifest, &trials),
        replicas: replica::all(manifest, &trials),
        standbys: standbys::all(manifest, &trials),
        features: BTreeMap::new(),
        variance: variance::estimate(stored, &trials),
        factor_effects: screened,
        servers: servers::all(manifest, &conditions, &comparisons),
        checks: findings::all(stored, &trials, &everywhere, &effects, further),
        woven: woven::slices(manifest, &trials),
        drifts,
        warnings: findings::warnings(stored),
        notes: [
            manifest.weave.iter().map(woven::describe).collect(),
            woven::note(&stored.trials).into_iter().collect(),
            cross::attributions(manifest, &stored.trials),
            tail::notes(manifest, &trials),
            layout::note(manifest, trials.get(manifest.baseline.as_str())).into_iter().collect(),
        ]
        .concat(),
        block_seconds: pilot::seconds_of_block(stored),
        blocks: manifest.blocks.max(ran.unwrap_or(0)) as usize,
        conditions,
        comparisons,
        noise_floor: noise_floor.unwrap_or_default(),
    }
}
