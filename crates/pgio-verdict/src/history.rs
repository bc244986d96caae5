//! The history of an experiment: its runs in the order of time, trends, and where the level changed.
//!
//! The run is the unit: each has one value for each condition, from its typical trial, because all trials of
//! a run share whatever the day brought. Change points come from `benchmath::change_points`, at a level for all
//! conditions together. Size, direction and interval of a change come from the rank-sum test between the two
//! levels (`benchmath::rank_sum`), because ranks found it: one bad run turns none of them. They are not
//! corrected for the search, so they are descriptive. After the last change, a trend is tested
//! (`benchmath::drift`). The conditions' ratios to the baseline in the same run are searched as well: a machine that
//! changes moves all values and none of them. Where neighboring runs depend on each other ([`MAX_AUTOCORRELATION`]),
//! no verdict is given. Changes of the environment are marked where they coincide with a change of the level.
//!
//! Next: [`run`] for what is read of each run, [`environment`] for its changes.

mod environment;
mod run;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use benchmath::rank_sum::{self, Shift};
use benchmath::summary::mean;
use benchmath::{change_points, drift, rng, signed_rank};
use jiff::Timestamp;
use pgio_results::metrics::{Direction, MetricDef};
use serde::Serialize;

pub use self::environment::{ChangedSubject, EnvironmentChange};
pub use self::run::{Run, RunCondition};
use super::across::reasons;
use super::comparison::{ALPHA, Interval, Verdict, directed};

pub const HISTORY_SCHEMA: &str = "pgio.history/1";

/// A change of the environment at most this many runs from a change of the level coincides with it.
const MAX_RUNS_APART: usize = 1;

/// With a larger lag-1 autocorrelation of the runs around their levels, changes are shown and not judged: with 0.5,
/// a third and more of all histories of 30 runs without a change have one.
pub const MAX_AUTOCORRELATION: f64 = 0.3;

/// `pgio.history/1`; readers ignore unknown fields, and null means that a number does not exist.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct History {
    /// Always `pgio.history/1`.
    pub schema: String,
    pub experiment: String,
    pub baseline: String,
    pub metric: String,
    pub unit: String,
    pub better: Direction,
    /// The level of the search for changes, for all conditions together, and again for all their ratios to the
    /// baseline.
    pub alpha: f64,
    /// In the order of time.
    pub runs: Vec<HistoryRun>,
    /// In the order of the last run's manifest, the baseline first.
    pub conditions: Vec<Series>,
    /// Changes of the environment, in the order of the runs.
    pub environment: Vec<EnvironmentChange>,
    /// Facts of the environment that change in most runs, which are not listed.
    pub varying: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistoryRun {
    /// Its place in the order of time, numbered from 1.
    pub number: usize,
    pub run_id: String,
    pub created_at: String,
}

/// One condition over the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    pub condition: String,
    /// One for each run, in their order.
    pub points: Vec<Point>,
    pub changes: Vec<LevelChange>,
    /// Absent with fewer than five runs since the last change, or without any difference.
    pub trend: Option<Trend>,
    /// Lag-1 autocorrelation of the runs around their levels; null with fewer than ten runs. Above 0.3, verdicts are
    /// `not_judged`.
    pub autocorrelation: Option<f64>,
    /// The same of the ratio to the baseline in each run; absent for the baseline.
    pub relative: Option<RelativeSeries>,
}

/// A condition's ratio to the baseline over the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RelativeSeries {
    /// `before` and `after` are ratios.
    pub changes: Vec<LevelChange>,
    pub autocorrelation: Option<f64>,
}

/// A condition in one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// Number of the run.
    pub run: usize,
    /// The typical trial's; null if the run has no valid trial of the condition, or only a lower bound.
    pub value: Option<f64>,
    /// Only a lower bound is known, because the window's end cut off operations. The run is left out of the
    /// search for changes and of the trend.
    pub bounded: bool,
    /// Trials that count.
    pub trials: usize,
    /// The value divided by the baseline's in the same run.
    pub to_baseline: Option<f64>,
}

/// A change of a condition's level.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LevelChange {
    /// Number of the first run at the new level.
    pub run: usize,
    pub verdict: Verdict,
    /// The levels: the Hodges-Lehmann estimates of the runs between two changes, of their logs if all are
    /// positive.
    pub before: f64,
    pub after: f64,
    /// The shift from the runs before to those after, with the rank-sum test's 95 % interval, not corrected
    /// for the search; no interval with three runs on one side and fewer than five on the other.
    pub ratio: Option<f64>,
    #[serde(flatten)]
    pub interval: Interval,
    /// By permutation.
    pub p: f64,
    /// Changes of the environment at this run or one beside it, without changes by other conditions' treatments.
    pub coincides: Vec<EnvironmentChange>,
}

/// A tendency of the runs since the last change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trend {
    /// Number of the first of these runs.
    pub from_run: usize,
    /// Number of the last of them, which may not be the last of all.
    pub to_run: usize,
    pub runs: usize,
    /// Value of a run divided by the value of the run before, the median of all pairs; runs that lack the condition
    /// count as runs between the others.
    pub per_run: f64,
    /// Mann and Kendall's, two-sided.
    pub p: f64,
    pub verdict: Verdict,
}

/// Why runs have no common history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    #[error(
        "no run found; name results directories of `pgio compare`, or store some with `pgio store`"
    )]
    NoRuns,
    #[error("the results are of different experiments: {}; name one with --experiment", names(.0))]
    Experiments(Vec<(String, usize)>),
    #[error("no run of experiment `{name}` (experiments: {})", names(known))]
    NoExperiment { name: String, known: Vec<(String, usize)> },
    #[error(
        "the results are of different workloads: {what} is {before} in run {first} and {after} in run \
         {second}; name the runs of one workload"
    )]
    Workloads { what: String, first: String, before: String, second: String, after: String },
    #[error(
        "the runs define the metric differently: {what} is {before} in run {first} and {after} in run \
         {second}; name runs that define it alike"
    )]
    Definitions { what: String, first: String, before: String, second: String, after: String },
    #[error("no run has the metric `{name}` (metrics: {})", known.join(", "))]
    NoMetric { name: String, known: Vec<String> },
}

fn names(all: &[(String, usize)]) -> String {
    let one = |(name, runs): &(String, usize)| match runs {
        1 => format!("{name} (1 run)"),
        n => format!("{name} ({n} runs)"),
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What to follow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Question<'a> {
    /// Needed if the runs are of several experiments.
    pub experiment: Option<&'a str>,
    /// The primary metric if absent.
    pub metric: Option<&'a str>,
}

/// Follows one metric of an experiment over its runs, which may come in any order and twice.
pub fn history(runs: Vec<Run>, question: Question<'_>) -> Result<History, HistoryError> {
    let runs = sort_runs(select_experiment(runs, question.experiment)?);
    check_workload(&runs)?;
    let last = runs.last().ok_or(HistoryError::NoRuns)?;
    let metric = question.metric.unwrap_or(&last.primary_metric);
    let has = |run: &Run| {
        run.conditions.iter().any(|c| c.values.contains_key(metric) || c.bounded.contains(metric))
    };
    let with_metric: Vec<&Run> = runs.iter().filter(|run| has(run)).collect();
    let def = with_metric.last().and_then(|run| run.definition(metric));
    let def = def.ok_or_else(|| no_metric(metric, &runs))?;
    check_definition(&with_metric, &def)?;
    let (environment, varying) = environment::changes(&runs);
    let names = conditions(&runs, &last.baseline);
    let alpha = ALPHA / names.len() as f64;
    let series =
        names.iter().map(|name| series((name, &last.baseline), &runs, &def, alpha, &environment));
    Ok(History {
        schema: HISTORY_SCHEMA.to_owned(),
        experiment: last.experiment.clone(),
        baseline: last.baseline.clone(),
        metric: metric.to_owned(),
        unit: def.unit.to_owned(),
        better: def.direction,
        alpha: ALPHA,
        conditions: series.collect(),
        runs: (1..)
            .zip(&runs)
            .map(|(number, run)| HistoryRun {
                number,
                run_id: run.run_id.clone(),
                created_at: run.created_at.clone(),
            })
            .collect(),
        environment,
        varying,
    })
}

fn select_experiment(mut runs: Vec<Run>, wanted: Option<&str>) -> Result<Vec<Run>, HistoryError> {
    let mut known: Vec<(String, usize)> = Vec::new();
    for run in &runs {
        match known.iter_mut().find(|(name, _)| *name == run.experiment) {
            Some((_, runs)) => *runs += 1,
            None => known.push((run.experiment.clone(), 1)),
        }
    }
    // A directory lists its entries in any order.
    known.sort_by(|(a, some), (b, others)| others.cmp(some).then_with(|| a.cmp(b)));
    match wanted {
        Some(wanted) => {
            runs.retain(|run| run.experiment == wanted);
            if runs.is_empty() {
                return Err(HistoryError::NoExperiment { name: wanted.to_owned(), known });
            }
        }
        None if known.len() > 1 => return Err(HistoryError::Experiments(known)),
        None => {}
    }
    Ok(runs)
}

/// By their start; of the copies of a run, the one with the most trials counts.
fn sort_runs(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_by_cached_key(|run| {
        let at = run.created_at.parse::<Timestamp>().ok();
        (at, run.created_at.clone(), run.run_id.clone(), Reverse(run.trials))
    });
    runs.dedup_by(|later, earlier| later.run_id == earlier.run_id);
    runs
}

/// Compares each run with the last. A key that only one of them has came with a later version of pgio.
fn check_workload(runs: &[Run]) -> Result<(), HistoryError> {
    let Some((last, others)) = runs.split_last() else { return Ok(()) };
    for run in others {
        let primary = [("primary metric", &run.primary_metric, &last.primary_metric)];
        let keys = run
            .work
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value, last.work.get(name)?)));
        if let Some((what, before, after)) = keys.chain(primary).find(|(_, a, b)| a != b) {
            return Err(HistoryError::Workloads {
                what: what.to_owned(),
                first: run.run_id.clone(),
                before: before.clone(),
                second: last.run_id.clone(),
                after: after.clone(),
            });
        }
    }
    Ok(())
}

/// Compares the definition of the metric in each of these runs with that in the last.
fn check_definition(runs: &[&Run], def: &MetricDef<'_>) -> Result<(), HistoryError> {
    let Some((last, others)) = runs.split_last() else { return Ok(()) };
    let differing = |run: &&Run| {
        let own = run.definition(def.name)?;
        let reason = reasons::definition(&own, def).into_iter().next()?;
        Some(HistoryError::Definitions {
            what: reason.what,
            first: run.run_id.clone(),
            before: reason.a.unwrap_or_default(),
            second: last.run_id.clone(),
            after: reason.b.unwrap_or_default(),
        })
    };
    others.iter().find_map(differing).map_or(Ok(()), Err)
}

fn no_metric(name: &str, runs: &[Run]) -> HistoryError {
    let all = runs.iter().flat_map(|run| &run.conditions).flat_map(|c| c.values.keys());
    let mut known: Vec<String> = all.cloned().collect();
    known.sort();
    known.dedup();
    HistoryError::NoMetric { name: name.to_owned(), known }
}

/// All conditions: the baseline, the last run's, then conditions that only earlier runs have.
fn conditions(runs: &[Run], baseline: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for condition in runs.iter().rev().flat_map(|run| &run.conditions) {
        if !names.contains(&condition.name) {
            names.push(condition.name.clone());
        }
    }
    names.sort_by_key(|name| name != baseline);
    names
}

fn series(
    of: (&str, &str),
    runs: &[Run],
    def: &MetricDef<'_>,
    alpha: f64,
    environment: &[EnvironmentChange],
) -> Series {
    let (name, baseline) = of;
    let value = |run: &Run, name: &str| run.condition(name)?.values.get(def.name).copied();
    let point = |(number, run): (usize, &Run)| {
        let own = value(run, name);
        let baseline_value = value(run, baseline).filter(|v| *v != 0.0);
        Point {
            run: number,
            value: own,
            bounded: own.is_none()
                && run.condition(name).is_some_and(|c| c.bounded.contains(def.name)),
            trials: run.condition(name).map_or(0, |c| c.trials),
            to_baseline: own.zip(baseline_value).map(|(own, baseline_value)| own / baseline_value),
        }
    };
    let points: Vec<Point> = (1..).zip(runs).map(point).collect();
    let near = |e: &&EnvironmentChange| e.what.concerns(name);
    let environment: Vec<EnvironmentChange> = environment.iter().filter(near).cloned().collect();
    let search = |quantity: fn(&Point) -> Option<f64>| {
        let known: Vec<(usize, f64)> =
            points.iter().filter_map(|p| Some((p.run, quantity(p)?))).collect();
        search(&known, alpha, def.direction, &environment)
    };
    let (changes, trend, autocorrelation) = search(|p| p.value);
    let relative = (name != baseline).then(|| {
        let (changes, _, autocorrelation) = search(|p| p.to_baseline);
        RelativeSeries { changes, autocorrelation }
    });
    Series { condition: name.to_owned(), points, changes, trend, autocorrelation, relative }
}

/// The changes of the level of values by run, the trend since the last one, and the autocorrelation around both.
fn search(
    known: &[(usize, f64)],
    alpha: f64,
    direction: Direction,
    environment: &[EnvironmentChange],
) -> (Vec<LevelChange>, Option<Trend>, Option<f64>) {
    let values: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
    let found = change_points::find(&values, alpha, rng::derive(0, "history", 0));
    let starts: Vec<usize> = std::iter::once(0).chain(found.iter().map(|c| c.at)).collect();
    let ends: Vec<usize> = found.iter().map(|c| c.at).chain([values.len()]).collect();
    let mut changes: Vec<LevelChange> = Vec::new();
    for (n, change) in found.iter().enumerate() {
        let run = known[change.at].0;
        let (before, after) = (&values[starts[n]..change.at], &values[change.at..ends[n + 1]]);
        let near = |e: &&EnvironmentChange| e.run.abs_diff(run) <= MAX_RUNS_APART;
        let coincides = environment.iter().filter(near).cloned().collect();
        let level_change = level_change(before, after, change.p, direction);
        changes.push(LevelChange { run, coincides, ..level_change });
    }
    let last = &known[starts[starts.len() - 1]..];
    let mut trend = trend(last, alpha, direction);
    // A trend is no dependence between neighbors.
    let slope = trend.filter(|t| t.verdict.is_decided()).map_or(1.0, |t| t.per_run);
    let is_ratio = values.iter().all(|v| *v > 0.0);
    let scaled: Vec<f64> = known
        .iter()
        .map(|(run, value)| match last.first() {
            _ if !is_ratio => *value,
            Some((from, _)) if run >= from => value.ln() - slope.ln() * (run - from) as f64,
            _ => value.ln(),
        })
        .collect();
    let segments: Vec<&[f64]> = starts.iter().zip(&ends).map(|(a, b)| &scaled[*a..*b]).collect();
    let autocorrelation = change_points::autocorrelation(&segments);
    if autocorrelation.is_some_and(|r| r > MAX_AUTOCORRELATION) {
        changes.iter_mut().for_each(|change| change.verdict = Verdict::NotJudged);
        trend.iter_mut().for_each(|trend| trend.verdict = Verdict::NotJudged);
    }
    (changes, trend, autocorrelation)
}

fn level_change(before: &[f64], after: &[f64], p: f64, direction: Direction) -> LevelChange {
    // A ratio needs positive values.
    let is_ratio = before.iter().chain(after).all(|v| *v > 0.0);
    let scaled = |values: &[f64]| -> Vec<f64> {
        values.iter().map(|v| if is_ratio { v.ln() } else { *v }).collect()
    };
    let unscaled = |value: f64| if is_ratio { value.exp() } else { value };
    let (before, after) = (scaled(before), scaled(after));
    let level = |side: &[f64]| signed_rank::estimate(side).map_or(f64::NAN, unscaled);
    let shift = rank_sum::shift(&before, &after, ALPHA);
    // With many equal values the shift may be 0.
    let rises = |s: Shift| s.estimate > 0.0 || (s.estimate == 0.0 && mean(&after) > mean(&before));
    let ratio_shift = shift.filter(|_| is_ratio);
    LevelChange {
        run: 0,
        verdict: directed(shift.is_some_and(rises), direction),
        before: level(&before),
        after: level(&after),
        ratio: ratio_shift.map(|s| s.estimate.exp()),
        interval: ratio_shift
            .and_then(|s| s.bounds)
            .map_or(Interval::UNKNOWN, |(low, high)| Interval::from_ratio(low.exp(), high.exp())),
        p,
        coincides: Vec::new(),
    }
}

/// `runs` are the values by the number of the run. A run without the condition is a gap: the slope is that from
/// one run to the next, present or not.
fn trend(runs: &[(usize, f64)], alpha: f64, direction: Direction) -> Option<Trend> {
    let ((first, _), (last, _)) = (runs.first()?, runs.last()?);
    if runs.len() < drift::MIN_BLOCKS {
        return None;
    }
    let mut logs = vec![None; last - first + 1];
    for (run, value) in runs {
        // A ratio needs positive values.
        logs[run - first] = Some(Some(value.ln()).filter(|log| log.is_finite())?);
    }
    let found = drift::test(&[logs])?;
    let verdict = if found.p <= alpha {
        directed(found.slope > 0.0, direction)
    } else {
        Verdict::NoDifference
    };
    Some(Trend {
        from_run: *first,
        to_run: *last,
        runs: runs.len(),
        per_run: found.slope.exp(),
        p: found.p,
        verdict,
    })
}
