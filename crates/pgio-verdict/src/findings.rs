//! Collects all findings: failed checks of trials, and problems of the experiment as a whole.
//!
//! Each finding states the problem, where it is, and what to do. Checks of a trial are only passed on;
//! they were judged during the measurement or by `cross`. Nothing here changes which trials count.

use std::collections::{BTreeMap, BTreeSet};

use benchmath::signed_rank::min_values;

use super::comparison::{ALPHA, Comparison, Verdict};
use super::condition::{CountedWarning, Factor, Finding, STALLS, differing_factors};
use super::pairing::{ByCondition, ConditionTrials, value};
use super::resolution::width;
use super::totals::Totals;
use super::{degraded, effects, steady, woven};
use pgio_results::change::fact;
use pgio_results::metrics;
use pgio_results::store::{ConditionInfo, Manifest, StoredExperiment};
use pgio_results::thresholds::CLOCK_READING_NANOS;
use pgio_results::units::human;
use pgio_results::{CheckVerdict, Outcome, Trial, Warning};

/// Report degraded time that exceeds the baseline's by this share: one percentage point.
pub(super) const DEGRADED_MORE: f64 = 0.01;

/// `at_middle` contain the trials at the middle point, where effects are judged, `everywhere` those at all
/// points. `further` are findings of other modules about the experiment.
pub(super) fn all(
    stored: &StoredExperiment,
    at_middle: &ByCondition<'_>,
    everywhere: &ByCondition<'_>,
    comparisons: &[Comparison],
    further: Vec<Finding>,
) -> Vec<Finding> {
    let manifest = &stored.manifest;
    let mut found = Vec::new();
    found.extend(torn(stored));
    found.extend(aa_differs(manifest, comparisons));
    found.extend(factors(manifest));
    found.extend(clock_cost(stored));
    found.extend(not_precise(manifest, comparisons));
    found.extend(further);
    found.extend(baseline_stalls(manifest, at_middle, comparisons));
    for info in &manifest.conditions {
        let condition = &everywhere[info.name.as_str()];
        found.extend(stalls(info, manifest, at_middle, comparisons));
        found.extend(too_few_blocks(info, comparisons));
        found.extend(without_primary(info, manifest, condition));
        found.extend(failed_trials(info, condition));
        found.extend(invalid_trials(info, condition));
    }
    found.extend(woven::findings(manifest, at_middle));
    found.extend(steady::findings(manifest, everywhere));
    found.extend(unknown_conditions(stored, everywhere));
    let counting = (1..).zip(&stored.trials).filter(|(_, trial)| !trial.is_burn_in());
    found.extend(counting.flat_map(|(line, trial)| trial_checks(line, trial)));
    found
}

/// The trials' warnings, each once, with the number of trials that raised it.
pub(super) fn warnings(stored: &StoredExperiment) -> Vec<CountedWarning> {
    let mut counts: BTreeMap<&Warning, usize> = BTreeMap::new();
    for trial in stored.trials.iter().filter(|t| !t.is_burn_in()) {
        for warning in trial.warnings.iter().collect::<BTreeSet<_>>() {
            *counts.entry(warning).or_default() += 1;
        }
    }
    let counted =
        |(warning, trials): (&Warning, usize)| CountedWarning { warning: warning.clone(), trials };
    counts.into_iter().map(counted).collect()
}

fn warning(id: &str, condition: Option<&str>, message: String, remedy: &str) -> Finding {
    Finding {
        id: id.to_owned(),
        verdict: CheckVerdict::Warning,
        condition: condition.map(str::to_owned),
        trial: None,
        message,
        remedy: remedy.to_owned(),
    }
}

fn trial_checks(line: usize, trial: &Trial) -> impl Iterator<Item = Finding> {
    let failing = trial.checks.iter().filter(|c| c.verdict != CheckVerdict::Ok);
    failing.map(move |check| Finding {
        id: check.id.clone(),
        verdict: check.verdict,
        condition: trial.place.as_ref().map(|p| p.condition.clone()),
        trial: Some(line),
        message: check.message.clone(),
        remedy: check.remedy.clone(),
    })
}

fn torn(stored: &StoredExperiment) -> Option<Finding> {
    let message = "the last record of trials.jsonl is torn and was skipped: pgio or the machine stopped \
                   while writing it";
    stored
        .torn
        .then(|| warning("torn-record", None, message.to_owned(), "repeat the trial with --resume"))
}

fn aa_differs(manifest: &Manifest, comparisons: &[Comparison]) -> Option<Finding> {
    let aa = manifest.aa.as_deref()?;
    let twin = comparisons.iter().find(|c| c.primary && c.condition == aa)?;
    twin.verdict.is_decided().then(|| {
        warning(
            "aa-differs",
            Some(aa),
            format!(
                "`{aa}` is a second copy of `{}`, yet they differ; chance alone causes this in 1 \
                 experiment of 20, so something besides the conditions may have changed",
                manifest.baseline
            ),
            "look for other work on the machine, repeat the experiment, and distrust effects of this size",
        )
    })
}

/// Whose trials stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stalling {
    Condition,
    Baseline,
}

/// Whose trials stall, by one condition's comparison: the side whose degraded time is longer, as its interval
/// shows, and lasts for more than a slice; if neither is, the side for which all work over all time is worse than
/// the typical block.
fn stalling(
    manifest: &Manifest,
    by_condition: &ByCondition<'_>,
    condition: &str,
    all: &[Comparison],
) -> Option<Stalling> {
    let primary = all.iter().find(|c| c.condition == condition && c.primary)?;
    let degraded = all.iter().find(|c| c.condition == condition && c.metric == degraded::SHARE);
    let more = degraded.and_then(|c| c.difference.filter(|_| c.verdict.is_decided()));
    let longer = match more.unwrap_or(0.0) {
        more if more >= DEGRADED_MORE => Some((Stalling::Condition, condition)),
        more if more <= -DEGRADED_MORE => Some((Stalling::Baseline, manifest.baseline.as_str())),
        _ => None,
    };
    let lasts = |name: &str| {
        by_condition
            .get(name)
            .is_some_and(|condition| degraded::lasts(condition, &manifest.primary_metric))
    };
    if let Some((side, _)) = longer.filter(|(_, name)| lasts(name)) {
        return Some(side);
    }
    let totals = primary.totals.filter(Totals::disagrees)?;
    Some(if totals.is_worse() { Stalling::Condition } else { Stalling::Baseline })
}

/// The degraded time of a condition and of the baseline; `None` if neither has any.
fn degraded_shares(condition: &str, all: &[Comparison]) -> Option<[f64; 2]> {
    let share = all.iter().find(|c| c.condition == condition && c.metric == degraded::SHARE)?;
    Some([share.value.unwrap_or(0.0), share.baseline_value.unwrap_or(0.0)])
}

/// `−9.2 % [−12.0 %, −6.1 %] in all work over all time, −0.3 % in the typical block`
fn totals_and_typical(manifest: &Manifest, c: &Comparison) -> Option<String> {
    let direction = metrics::find(&manifest.metrics, &c.metric)?.direction;
    let percent = |ratio: f64| {
        let sign = if ratio < 1.0 { '−' } else { '+' };
        format!("{sign}{:.1} %", (ratio - 1.0).abs() * 100.0)
    };
    let (totals, ratio) = c.totals.zip(c.ratio)?;
    let interval = match totals.interval.sides() {
        Some((low, high)) => format!(" [{}, {}]", percent(low), percent(high)),
        None => String::new(),
    };
    Some(format!(
        "{}{interval} in {}, {} in the typical block",
        percent(totals.ratio),
        super::totals::in_words(direction),
        percent(ratio)
    ))
}

/// `, for at most 3.00 s at a time`; empty without degraded time.
fn longest(condition: &ConditionTrials<'_>, manifest: &Manifest) -> String {
    let own = degraded::metrics(condition, &manifest.primary_metric);
    let longest = own.get(degraded::LONGEST).and_then(|m| m.value).filter(|l| *l > 0.0);
    longest.map_or_else(String::new, |seconds| {
        format!(", for at most {} at a time", human::latency(seconds * 1e9))
    })
}

/// Reports stalls, which the typical block hides but long-term operation would show.
fn stalls(
    info: &ConditionInfo,
    manifest: &Manifest,
    by_condition: &ByCondition<'_>,
    comparisons: &[Comparison],
) -> Option<Finding> {
    let stalls = |name: &str| {
        stalling(manifest, by_condition, name, comparisons) == Some(Stalling::Condition)
    };
    // Where the twin stalls as well, it is not the condition's doing.
    let is_twins = manifest.aa.as_ref().is_some_and(|aa| *aa != info.name && stalls(aa));
    if is_twins || !stalls(&info.name) {
        return None;
    }
    let condition = by_condition.get(info.name.as_str())?;
    let primary = comparisons.iter().find(|c| c.condition == info.name && c.primary)?;
    let mut parts: Vec<String> = totals_and_typical(manifest, primary).into_iter().collect();
    // Unknown for work that is not counted over time.
    if let Some([ours, theirs]) = degraded_shares(&info.name, comparisons) {
        parts.push(format!(
            "below half of its median rate for {:.1} % of the time (baseline {:.1} %){}",
            ours * 100.0,
            theirs * 100.0,
            longest(condition, manifest)
        ));
    }
    let message = format!("`{}`: {}", info.name, parts.join("; "));
    let remedy = "judge it by all work over all time, and examine the trials that stalled";
    Some(warning(STALLS, Some(&info.name), message, remedy))
}

/// Reports a baseline that stalls, once: against it, a condition seems better or worse than in the typical
/// block. The comparison in which the two differ most is named.
fn baseline_stalls(
    manifest: &Manifest,
    by_condition: &ByCondition<'_>,
    comparisons: &[Comparison],
) -> Option<Finding> {
    let baseline = &manifest.baseline;
    let apart =
        |c: &Comparison| c.totals.zip(c.ratio).map_or(0.0, |(t, r)| (t.ratio / r).ln().abs());
    let against = comparisons
        .iter()
        .filter(|c| c.primary)
        .filter(|c| {
            stalling(manifest, by_condition, &c.condition, comparisons) == Some(Stalling::Baseline)
        })
        .max_by(|a, b| apart(a).total_cmp(&apart(b)))?;
    let mut parts =
        vec![format!("the baseline `{baseline}` is slower in some blocks than in the typical one")];
    parts.extend(
        totals_and_typical(manifest, against)
            .map(|both| format!("`{}` against it {both}", against.condition)),
    );
    if let Some([_, share]) = degraded_shares(&against.condition, comparisons) {
        parts.push(format!(
            "the baseline is below half of its median rate for {:.1} % of the time{}",
            share * 100.0,
            by_condition
                .get(baseline.as_str())
                .map_or_else(String::new, |condition| longest(condition, manifest))
        ));
    }
    let remedy = "judge by all work over all time, and examine the baseline's trials that stalled";
    Some(warning(STALLS, Some(baseline), parts.join("; "), remedy))
}

/// Reports valid trials that are in no comparison, because they have no value of the primary metric: which
/// trials lack it may depend on how they came out.
fn without_primary(
    info: &ConditionInfo,
    manifest: &Manifest,
    condition: &ConditionTrials<'_>,
) -> Option<Finding> {
    let metric = manifest.primary_metric.as_str();
    let lacks = |(_, trial): &(usize, &Trial)| value(trial, metric).is_none();
    let lines: Vec<String> =
        condition.counted().filter(lacks).map(|(line, _)| line.to_string()).collect();
    (!lines.is_empty()).then(|| {
        warning(
            "primary-missing",
            Some(&info.name),
            format!(
                "{} of {} valid trials of `{}` have no {metric} and are not compared (trials {})",
                lines.len(),
                condition.counted().count(),
                info.name,
                lines.join(", ")
            ),
            "find out why these trials measured nothing; the comparison is that of the others alone",
        )
    })
}

fn not_precise(manifest: &Manifest, comparisons: &[Comparison]) -> Option<Finding> {
    let precision = manifest.rules.precision?;
    let width = width(comparisons)?;
    (!width.is_within(precision)).then(|| {
        let limit = manifest.rules.max_blocks;
        let limit =
            limit.map_or_else(String::new, |n| format!("; at most {n} blocks were allowed"));
        warning(
            "precision",
            None,
            width.describe(precision) + &limit,
            "raise max_blocks and continue with --resume, or lengthen the window",
        )
    })
}

fn factors(manifest: &Manifest) -> Vec<Finding> {
    // A design attributes effects to its factors, whatever a factor changes.
    let design = manifest.design.as_ref();
    if design.is_some_and(|design| effects::attributes_effects(design, manifest)) {
        return Vec::new();
    }
    let remedy = match design {
        Some(_) => "compare with the condition in which all factors are low",
        None => "add a condition for each treatment alone",
    };
    let Some(baseline) = manifest.conditions.iter().find(|c| c.name == manifest.baseline) else {
        return Vec::new();
    };
    let others = manifest.conditions.iter().filter(|c| c.name != baseline.name);
    others
        .filter_map(|info| {
            let differing: Vec<String> =
                differing_factors(info, baseline).iter().map(Factor::to_string).collect();
            (differing.len() > 1).then(|| {
                warning(
                    "factors",
                    Some(&info.name),
                    format!(
                        "`{}` differs from `{}` in {} treatments ({}): the effect cannot be \
                         attributed to one of them",
                        info.name,
                        baseline.name,
                        differing.len(),
                        differing.join("; ")
                    ),
                    remedy,
                )
            })
        })
        .collect()
}

/// Reports timing of I/O by a clock whose readings slow the measured work.
fn clock_cost(stored: &StoredExperiment) -> Option<Finding> {
    let is_slow = |name: &String| name.ends_with(fact::SLOW_CLOCK);
    let slow = stored.manifest.environment.keys().any(is_slow);
    let names = ["track_io_timing", "track_wal_io_timing"];
    let is_on = |name: &&str| {
        let fact = fact::setting(name);
        stored.trials.iter().any(|t| t.environment.get(&fact).is_some_and(|value| value == "on"))
    };
    let on: Vec<&str> = names.into_iter().filter(is_on).collect();
    (slow && !on.is_empty()).then(|| {
        warning(
            "clock-cost",
            None,
            format!(
                "{} was on, and a reading of the server's clock takes {CLOCK_READING_NANOS} ns or more: timing slows the \
                 measured work",
                on.join(" and ")
            ),
            "turn it off, or check the clock source of the server's machine",
        )
    })
}

fn too_few_blocks(info: &ConditionInfo, comparisons: &[Comparison]) -> Option<Finding> {
    let primary = comparisons.iter().find(|c| c.primary && c.condition == info.name)?;
    (primary.verdict == Verdict::TooFewBlocks).then(|| {
        warning(
            "too-few-blocks",
            Some(&info.name),
            format!(
                "`{}` can be compared in {} only, and fewer than {} cannot decide",
                info.name,
                blocks(primary.blocks),
                min_values(ALPHA)
            ),
            "run more blocks",
        )
    })
}

pub(super) fn blocks(n: usize) -> String {
    if n == 1 { "1 block".to_owned() } else { format!("{n} blocks") }
}

fn failed_trials(info: &ConditionInfo, condition: &ConditionTrials<'_>) -> Option<Finding> {
    let lines = condition.failed();
    let whys = condition.all.iter().filter_map(|(line, trial)| match &trial.outcome {
        Outcome::Complete => None,
        Outcome::Failed { error } => Some(format!("trial {line}: {error}")),
        Outcome::Interrupted => Some(format!("trial {line}: interrupted")),
    });
    (!lines.is_empty()).then(|| {
        warning(
            "failed-trials",
            Some(&info.name),
            format!(
                "{} of {} trials of `{}` did not complete ({})",
                lines.len(),
                condition.all.len(),
                info.name,
                whys.collect::<Vec<_>>().join("; ")
            ),
            "fix the cause and repeat them with --resume",
        )
    })
}

fn invalid_trials(info: &ConditionInfo, condition: &ConditionTrials<'_>) -> Option<Finding> {
    let lines = condition.invalid();
    (!lines.is_empty()).then(|| {
        let block = |line: &usize| {
            let trial = condition.all.iter().find(|(of_it, _)| of_it == line);
            trial.and_then(|(_, t)| t.place.as_ref()).map(|place| place.block)
        };
        let blocks = lines.chunk_by(|a, b| block(a) == block(b)).map(|of_one| {
            let numbers: Vec<String> = of_one.iter().map(usize::to_string).collect();
            let trials = if of_one.len() == 1 { "trial" } else { "trials" };
            let block = block(&of_one[0]).map_or_else(String::new, |n| format!("block {n}: "));
            format!("{block}{trials} {}", numbers.join(", "))
        });
        warning(
            "invalid-trials",
            Some(&info.name),
            format!(
                "{} of {} trials of `{}` are invalid and excluded ({})",
                lines.len(),
                condition.all.len(),
                info.name,
                blocks.collect::<Vec<_>>().join("; ")
            ),
            "see the checks of these trials",
        )
    })
}

/// Reports records of conditions that the manifest does not have, perhaps of a second experiment in the
/// same directory.
fn unknown_conditions(
    stored: &StoredExperiment,
    by_condition: &ByCondition<'_>,
) -> Option<Finding> {
    let known: usize = by_condition.values().map(|condition| condition.all.len()).sum();
    let burn_in = stored.trials.iter().filter(|t| t.is_burn_in()).count();
    let unknown = stored.trials.len() - known - burn_in;
    (unknown > 0).then(|| {
        warning(
            "unknown-condition",
            None,
            format!("records of no condition of the manifest, excluded: {unknown}"),
            "keep each experiment in its own directory",
        )
    })
}
