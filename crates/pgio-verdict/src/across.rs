//! Compares stored runs of an experiment with others, such as last month's with today's.
//!
//! Conditions of the same name are compared, the baseline first. The two sides were not interleaved, so
//! every ratio includes whatever changed between the dates, and all trials of a run share it. Therefore
//! the unit is the run. With one or two runs per side, ratios are shown but not judged; with [`MIN_RUNS`]
//! or more, Welch's test on the logs of the runs' typical values (`benchmath::student`) judges them. (With
//! trials as the unit, half of the comparisons of equal runs of different dates were judged different.)
//! The primary metric and those that a rule names are judged each over all conditions, all other metrics together:
//! interval and verdict of a comparison have one level (Holm's method).
//! The second view, each condition's effect in its own run, excludes what all its conditions share. A run without
//! a value drops out of a ratio, and so do failed trials; both are named beside it. A metric that a run defines with
//! another unit or better direction than the first run of A is not compared.
//!
//! Next: [`gate`] for rules about the change, `failures` for failed trials, `reasons` for differences that may make
//! the two incomparable.

pub mod gate;
pub(super) mod reasons;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use benchmath::summary::{geometric_mean, mean};
use benchmath::{holm, student};
use serde::{Deserialize, Serialize};

pub use self::gate::{AcrossFailures, FailureCount};
pub use self::reasons::Reason;
use super::comparison::{ALPHA, Comparison, Interval, Verdict, directed};
use super::pairing::{self, ByCondition, ConditionTrials};
use super::{compare, cross, tail};
use pgio_results::metrics::{self, DeclaredMetric, Direction, MetricDef};
use pgio_results::store::{Manifest, StoredExperiment};

/// With fewer runs on a side, nothing is judged.
pub const MIN_RUNS: usize = 3;

pub const ACROSS_SCHEMA: &str = "pgio.across/1";

/// `pgio.across/1`; readers ignore unknown fields, and null means that a number does not exist.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Across {
    /// Always `pgio.across/1`.
    pub schema: String,
    pub a: Side,
    pub b: Side,
    /// The primary metric of A; judged over all conditions together.
    pub primary_metric: String,
    /// Further metrics that were named before: judged as the primary metric.
    #[serde(skip)]
    pub named: Vec<String>,
    /// The metrics that the command of A prints.
    #[serde(skip)]
    pub metrics: Vec<DeclaredMetric>,
    /// The level of all tests; intervals hold 1 - alpha.
    pub alpha: f64,
    /// Unintended differences, the most severe first.
    pub reasons: Vec<Reason>,
    /// By condition, the baseline first, and metric, the primary one first.
    pub comparisons: Vec<AcrossComparison>,
    /// By condition, of those that failed in some trial of either side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<AcrossFailures>,
    /// Effects on the primary metric, by condition, without the baseline.
    pub effects: Vec<AcrossEffect>,
    /// Conditions of only one side.
    pub only_in_a: Vec<String>,
    pub only_in_b: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Side {
    pub experiment: String,
    /// Start of the first run.
    pub created_at: String,
    pub baseline: String,
    /// Number of runs; each is a results directory.
    #[serde(default)]
    pub runs: usize,
    /// Number of trials that count, in all runs.
    pub valid: usize,
}

/// One metric of one condition, B against A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AcrossComparison {
    pub condition: String,
    pub metric: String,
    pub primary: bool,
    /// The mean of the runs' means, geometric if all values are positive.
    pub a: Option<f64>,
    pub b: Option<f64>,
    /// The value is a lower bound, and nothing is compared: the window's end cut off operations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub a_at_least: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub b_at_least: bool,
    pub trials_a: usize,
    pub trials_b: usize,
    /// Number of runs with such trials.
    #[serde(default)]
    pub runs_a: usize,
    #[serde(default)]
    pub runs_b: usize,
    /// The other runs, counted from 1 in the order in which they were named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_without_a: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_without_b: Vec<usize>,
    /// B / A, with Welch's 95 % interval over runs at its share of the level; no interval with too few runs.
    pub ratio: Option<f64>,
    #[serde(flatten)]
    pub interval: Interval,
    pub p: Option<f64>,
    /// Holm over the conditions, for a secondary metric over all secondary metrics of all conditions.
    pub p_adjusted: Option<f64>,
    /// Why the values cannot be compared; absent if they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// `not_judged` if a side has fewer than three runs, `not_applicable` with a ratio if neither side's runs
    /// vary.
    pub verdict: Verdict,
}

/// The change of a condition's effect against its own baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AcrossEffect {
    pub condition: String,
    pub a: Effect,
    pub b: Effect,
    /// Effect in B / effect in A, with Welch's 95 % interval over runs, adjusted over the conditions (Holm).
    pub ratio: Option<f64>,
    #[serde(flatten)]
    pub interval: Interval,
}

/// condition / baseline within one experiment; for several runs the mean, without an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Effect {
    pub ratio: Option<f64>,
    #[serde(flatten)]
    pub interval: Interval,
    pub blocks: usize,
}

impl Across {
    /// Empty for an unknown metric.
    pub fn unit(&self, metric: &str) -> &str {
        metrics::find(&self.metrics, metric).map_or("", |def| def.unit)
    }

    /// Neutral for an unknown metric.
    pub fn direction(&self, metric: &str) -> Direction {
        metrics::find(&self.metrics, metric).map_or(Direction::Neutral, |def| def.direction)
    }
}

/// Compares two sides, each with at least one run; the first run describes its side. `named` are metrics that
/// the user named before the comparison, as in a rule of the gate.
pub fn across(a: &[StoredExperiment], b: &[StoredExperiment], named: &[String]) -> Across {
    let judge = |runs: &[StoredExperiment]| -> Vec<StoredExperiment> {
        runs.iter().map(|run| cross::judged(run).into_owned()).collect()
    };
    let (a, b) = (judge(a), judge(b));
    let (first_a, first_b) = (&a[0].manifest, &b[0].manifest);
    let (trials_a, trials_b) = (by_condition(&a), by_condition(&b));
    let common = common_conditions(first_a, first_b);
    let primary = &first_a.primary_metric;
    let sides = [a.as_slice(), b.as_slice()];
    let mut members: Vec<Member> = common
        .iter()
        .flat_map(|name| {
            compare_condition(name, (primary.as_str(), named), sides, (&trials_a, &trials_b))
        })
        .collect();
    adjust_families(&mut members, named);
    Across {
        schema: ACROSS_SCHEMA.to_owned(),
        alpha: ALPHA,
        a: describe_side(&a, &trials_a),
        b: describe_side(&b, &trials_b),
        primary_metric: primary.clone(),
        named: named.to_vec(),
        metrics: first_a.metrics.clone(),
        reasons: reasons::all(&a, &b),
        comparisons: members.into_iter().map(|member| member.comparison).collect(),
        failures: gate::all_failures(&common, &a, &b),
        effects: effects(&common, (&a, &trials_a), (&b, &trials_b)),
        only_in_a: conditions_only_in(first_a, first_b),
        only_in_b: conditions_only_in(first_b, first_a),
    }
}

fn by_condition(runs: &[StoredExperiment]) -> Vec<ByCondition<'_>> {
    runs.iter().map(|run| pairing::by_condition(&run.manifest, &run.trials)).collect()
}

fn describe_side(runs: &[StoredExperiment], trials: &[ByCondition<'_>]) -> Side {
    let m = &runs[0].manifest;
    Side {
        experiment: m.name.clone(),
        created_at: m.created_at.clone(),
        baseline: m.baseline.clone(),
        runs: runs.len(),
        valid: trials
            .iter()
            .flat_map(|run| run.values())
            .map(|condition| condition.valid().count())
            .sum(),
    }
}

/// Names of common conditions: A's baseline, then the others in A's order.
fn common_conditions(a: &Manifest, b: &Manifest) -> Vec<String> {
    let names_in_b: BTreeSet<&String> = b.conditions.iter().map(|c| &c.name).collect();
    let mut names: Vec<String> =
        a.conditions.iter().map(|c| &c.name).filter(|n| names_in_b.contains(n)).cloned().collect();
    names.sort_by_key(|name| *name != a.baseline);
    names
}

fn conditions_only_in(a: &Manifest, b: &Manifest) -> Vec<String> {
    let has = |name: &String| b.conditions.iter().any(|c| c.name == *name);
    a.conditions.iter().map(|c| &c.name).filter(|n| !has(n)).cloned().collect()
}

/// A condition's values of one metric, by trial.
#[derive(Default)]
struct RunValues {
    /// For each run that has any.
    values: Vec<Vec<f64>>,
    /// The numbers of the other runs.
    without: Vec<usize>,
}

impl RunValues {
    fn new(trials: &[ByCondition<'_>], condition: &str, metric: &str) -> RunValues {
        let mut found = RunValues::default();
        for (number, run) in (1..).zip(trials) {
            let values = run.get(condition).map(|trials| trials.values(metric)).unwrap_or_default();
            if values.is_empty() {
                found.without.push(number);
            } else {
                found.values.push(values);
            }
        }
        found
    }
}

/// Whether any trial that counts, of any of these runs, has a lower bound instead of a value.
fn is_bounded(trials: &[ByCondition<'_>], condition: &str, metric: &str) -> bool {
    trials.iter().filter_map(|run| run.get(condition)).any(|trials| trials.is_bounded(metric))
}

/// How the runs define a metric, without those that do not define it.
fn definitions<'a>(runs: &'a [StoredExperiment], metric: &str) -> Vec<MetricDef<'a>> {
    runs.iter().filter_map(|run| metrics::find(&run.manifest.metrics, metric)).collect()
}

/// A comparison, with the logs of the runs of B and of A.
struct Member {
    comparison: AcrossComparison,
    logs: [Vec<f64>; 2],
}

fn compare_condition(
    name: &str,
    (primary, named): (&str, &[String]),
    sides: [&[StoredExperiment]; 2],
    (a, b): (&[ByCondition<'_>], &[ByCondition<'_>]),
) -> Vec<Member> {
    let declared = &sides[0][0].manifest.metrics;
    let one = |def: MetricDef<'_>| {
        let [of_a, of_b] = [a, b].map(|runs| RunValues::new(runs, name, def.name));
        let is_primary = def.name == primary;
        // A rule that names a metric is undecided where one side has no value of it.
        let shown = match [of_a.values.is_empty(), of_b.values.is_empty()] {
            [false, false] => true,
            [true, true] => is_primary,
            _ => is_primary || named.iter().any(|metric| *metric == def.name),
        };
        let mut member = shown.then(|| compare_metric(name, &def, is_primary, of_a, of_b))?;
        let all: Vec<&ConditionTrials<'_>> =
            a.iter().chain(b).filter_map(|run| run.get(name)).collect();
        let [a_at_least, b_at_least] = [a, b].map(|runs| is_bounded(runs, name, def.name));
        (member.comparison.a_at_least, member.comparison.b_at_least) = (a_at_least, b_at_least);
        let defined = sides.map(|runs| definitions(runs, def.name));
        let is_alike = |own: &MetricDef<'_>| reasons::definition(&def, own).is_empty();
        let unlike = || {
            let unlike = !defined.iter().flatten().all(is_alike);
            unlike.then(|| format!("the runs define {} differently", def.name))
        };
        if let Some(why) = incomparable(&all, &def).or_else(unlike) {
            let compared = &mut member.comparison;
            compared.obstacle = Some(why);
            compared.verdict = Verdict::NotApplicable;
            (compared.ratio, compared.interval) = (None, Interval::UNKNOWN);
            (compared.p, compared.p_adjusted) = (None, None);
        }
        let is_coarse = all.iter().any(|condition| tail::is_coarse(condition, &def));
        // Values are shown in the unit of the first run of A.
        let [is_shown_a, is_shown_b] =
            defined.map(|own| !is_coarse && own.iter().all(|own| own.unit == def.unit));
        member.comparison.a = member.comparison.a.filter(|_| is_shown_a);
        member.comparison.b = member.comparison.b.filter(|_| is_shown_b);
        Some(member)
    };
    let mut family: Vec<Member> = metrics::all(declared).filter_map(one).collect();
    family.sort_by_key(|member| !member.comparison.primary);
    family
}

fn compare_metric(
    condition: &str,
    def: &MetricDef,
    primary: bool,
    RunValues { values: a, without: runs_without_a }: RunValues,
    RunValues { values: b, without: runs_without_b }: RunValues,
) -> Member {
    let (of_a, of_b) = (run_values(&a), run_values(&b));
    let ratio = geometric_mean(&of_a).zip(geometric_mean(&of_b)).map(|(a, b)| b / a);
    let too_few = a.len() < MIN_RUNS || b.len() < MIN_RUNS;
    let logs = [logs(&of_b), logs(&of_a)];
    let found = ratio.filter(|_| !too_few).and_then(|_| student::welch(&logs[0], &logs[1], ALPHA));
    let interval = found.as_ref().map_or(Interval::UNKNOWN, |w| ratio_interval(w.interval));
    let verdict = match (ratio, found) {
        (None, _) if !(a.is_empty() || b.is_empty()) => Verdict::NotApplicable,
        (Some(ratio), Some(w)) if w.p <= ALPHA => directed(ratio > 1.0, def.direction),
        _ if too_few => Verdict::NotJudged,
        // Without any spread there is no test.
        (Some(ratio), None) if ratio != 1.0 => Verdict::NotApplicable,
        _ => Verdict::NoDifference,
    };
    let central = |values: &[f64]| geometric_mean(values).or_else(|| mean(values));
    let trials = |runs: &[Vec<f64>]| runs.iter().map(Vec::len).sum();
    let comparison = AcrossComparison {
        condition: condition.to_owned(),
        metric: def.name.to_owned(),
        primary,
        a: central(&of_a),
        b: central(&of_b),
        a_at_least: false,
        b_at_least: false,
        trials_a: trials(&a),
        trials_b: trials(&b),
        runs_a: a.len(),
        runs_b: b.len(),
        runs_without_a,
        runs_without_b,
        ratio,
        interval,
        p: found.map(|w| w.p),
        p_adjusted: found.map(|w| w.p),
        obstacle: (verdict == Verdict::NotApplicable && ratio.is_none())
            .then(|| "a value is 0 or below".to_owned()),
        verdict,
    };
    Member { comparison, logs }
}

/// One value for each run.
fn run_values(runs: &[Vec<f64>]) -> Vec<f64> {
    runs.iter().filter_map(|v| geometric_mean(v).or_else(|| mean(v))).collect()
}

fn logs(values: &[f64]) -> Vec<f64> {
    values.iter().map(|v| v.ln()).collect()
}

/// The primary metric is one family over all conditions, and so is each metric that a rule names; all others together
/// are one. Each member is judged at the share of the level that Holm's method leaves it, so its interval excludes 1
/// exactly if its verdict is decided.
fn adjust_families(members: &mut [Member], named: &[String]) {
    let mut families: BTreeMap<Option<String>, Vec<&mut Member>> = BTreeMap::new();
    for member in members {
        let c = &member.comparison;
        let own = c.primary || named.contains(&c.metric);
        families.entry(own.then(|| c.metric.clone())).or_default().push(member);
    }
    for family in families.values_mut() {
        let tested: Vec<_> =
            family.iter().map(|m| m.comparison.p.map(|_| m.logs.clone())).collect();
        for (member, found) in family.iter_mut().zip(welch_together(&tested)) {
            let Some((interval, adjusted)) = found else { continue };
            let c = &mut member.comparison;
            c.interval = interval;
            c.p_adjusted = Some(adjusted);
            if adjusted > ALPHA && c.verdict.is_decided() {
                c.verdict = Verdict::NoDifference;
            }
        }
    }
}

/// Welch's test of each two samples, adjusted by Holm's method for their number: the interval of the ratio and p.
fn welch_together(samples: &[Option<[Vec<f64>; 2]>]) -> Vec<Option<(Interval, f64)>> {
    let test = |[of_b, of_a]: &[Vec<f64>; 2], alpha: f64| student::welch(of_b, of_a, alpha);
    let p: Vec<Option<f64>> = samples.iter().map(|s| Some(test(s.as_ref()?, ALPHA)?.p)).collect();
    let known: Vec<f64> = p.iter().flatten().copied().collect();
    let mut levels = holm::adjust(&known).into_iter().zip(holm::shares(&known));
    let judged = samples.iter().zip(&p).map(|(sample, p)| {
        let (adjusted, share) = p.and_then(|_| levels.next())?;
        let at_its_level = test(sample.as_ref()?, ALPHA * share)?;
        Some((ratio_interval(at_its_level.interval), adjusted))
    });
    judged.collect()
}

fn ratio_interval(of_logs: benchmath::summary::Interval) -> Interval {
    let interval = of_logs.exp();
    Interval::from_ratio(interval.low, interval.high)
}

/// Why not all trials have comparable values of this metric.
fn incomparable(trials: &[&ConditionTrials<'_>], def: &MetricDef) -> Option<String> {
    let cut_off = || {
        let any = trials.iter().any(|condition| condition.is_bounded(def.name));
        any.then(|| "not compared: the window's end cut off operations".to_owned())
    };
    tail::unreliable(trials, def).or_else(cut_off)
}

/// Empty unless all runs have the same baseline and primary metric, and define the metric alike.
fn effects(
    common: &[String],
    (a, trials_a): (&[StoredExperiment], &[ByCondition<'_>]),
    (b, trials_b): (&[StoredExperiment], &[ByCondition<'_>]),
) -> Vec<AcrossEffect> {
    let first = &a[0].manifest;
    let alike = |run: &StoredExperiment| {
        (&run.manifest.baseline, &run.manifest.primary_metric)
            == (&first.baseline, &first.primary_metric)
    };
    let defined = [a, b].map(|runs| definitions(runs, &first.primary_metric)).concat();
    let is_alike = |own: &MetricDef<'_>| reasons::definition(&defined[0], own).is_empty();
    if !(a.iter().chain(b).all(alike) && defined.iter().all(is_alike)) {
        return Vec::new();
    }
    let compared =
        |runs: &[StoredExperiment], trials: &[ByCondition<'_>]| -> Vec<Vec<Comparison>> {
            runs.iter()
                .zip(trials)
                .map(|(run, by_condition)| compare::with_baseline(&run.manifest, by_condition))
                .collect()
        };
    let (of_a, of_b) = (compared(a, trials_a), compared(b, trials_b));
    let others = common.iter().filter(|name| **name != first.baseline);
    let mut samples = Vec::new();
    let one = |name: &String| {
        let run_effects = |runs: &[Vec<Comparison>]| -> Vec<Effect> {
            let effects_in = |all: &Vec<Comparison>| {
                // A bound is not an effect.
                let wanted =
                    |c: &&Comparison| c.primary && c.condition == *name && c.bound.is_none();
                let c = all.iter().find(wanted)?;
                Some(Effect { ratio: c.ratio, interval: c.interval, blocks: c.blocks })
            };
            runs.iter().filter_map(effects_in).collect()
        };
        let (effects_a, effects_b) = (run_effects(&of_a), run_effects(&of_b));
        let logs = |effects: &[Effect]| -> Vec<f64> {
            effects.iter().filter_map(|e| e.ratio).map(f64::ln).collect()
        };
        let (logs_a, logs_b) = (logs(&effects_a), logs(&effects_b));
        let change = mean(&logs_b).zip(mean(&logs_a)).map(|(b, a)| (b - a).exp());
        let enough = logs_a.len() >= MIN_RUNS && logs_b.len() >= MIN_RUNS;
        let effect = AcrossEffect {
            condition: name.clone(),
            a: combine_effects(&effects_a)?,
            b: combine_effects(&effects_b)?,
            ratio: change,
            interval: Interval::UNKNOWN,
        };
        samples.push(enough.then_some([logs_b, logs_a]));
        Some(effect)
    };
    let mut effects: Vec<AcrossEffect> = others.filter_map(one).collect();
    for (effect, found) in effects.iter_mut().zip(welch_together(&samples)) {
        effect.interval = found.map_or(Interval::UNKNOWN, |(interval, _)| interval);
    }
    effects
}

/// The effect of a single run with its own interval, or the geometric mean of several.
fn combine_effects(effects: &[Effect]) -> Option<Effect> {
    match effects {
        [] => None,
        [one] => Some(*one),
        several => {
            let ratios: Vec<f64> = several.iter().filter_map(|e| e.ratio).collect();
            let blocks = several.iter().map(|e| e.blocks).sum();
            Some(Effect { ratio: geometric_mean(&ratios), interval: Interval::UNKNOWN, blocks })
        }
    }
}
