//! Verdicts in plain sentences, for people who will read one line.
//!
//! A sentence claims no more than the analysis decided. If no difference was detected, it gives the
//! number of blocks that would be needed.

use super::answer::danger;
use super::{format, margin, outcomes};
use crate::analysis::{Analysis, Comparison, Interval, NoiseFloor, Verdict};

/// The primary metric's verdict on one condition, with a warning if the effect has several possible
/// causes.
pub fn sentence(analysis: &Analysis, condition: &str) -> String {
    let factors = analysis.condition(condition).map_or(0, |c| c.factors.len());
    let mut text = verdict(analysis, condition);
    text +=
        &analysis.primary(condition).map_or_else(String::new, |c| margin::sentence(analysis, c));
    if factors > 1 {
        text += &format!(
            " {condition} differs from {} in {} treatments: the effect cannot be attributed to one \
             of them.",
            analysis.baseline,
            format::small(factors)
        );
    }
    if let Some(danger) = danger(analysis, condition) {
        text += &format!(" It is {danger}.");
    }
    text
}

fn verdict(analysis: &Analysis, condition: &str) -> String {
    let baseline = &analysis.baseline;
    if condition == baseline {
        return format!("{condition} is the baseline.");
    }
    let described = analysis.condition(condition);
    if let Some(failure) = described.and_then(|c| outcomes::failure(analysis, c)) {
        return failure;
    }
    let Some(c) = analysis.primary(condition) else {
        return format!("{condition} was not compared with {baseline}.");
    };
    let metric = format::metric_name(&c.metric);
    let blocks = format::counted(c.blocks, "block");
    let known = |ratio| format::change_as_known(ratio, c.interval, c.bound);
    let bounded = if c.bound.is_some() {
        "; the window's end cut off operations, so this is a bound"
    } else {
        ""
    };
    match (c.verdict, c.ratio) {
        (Verdict::NotApplicable, _) if c.ratio.is_none() && !c.warnings.is_empty() => {
            format!(
                "{condition} cannot be compared with {baseline} by {metric}: {}.",
                c.warnings[0]
            )
        }
        (Verdict::NotApplicable, _) => format!(
            "{condition} cannot be compared with {baseline}: {metric} is zero in some block."
        ),
        (Verdict::TooFewBlocks, _) | (_, None) => format!(
            "{condition} cannot be compared with {baseline} yet, {}{}.",
            described.map_or(blocks, |d| outcomes::undecided(analysis, d)),
            needed(analysis, c, "are needed")
        ),
        (Verdict::NoDifference, Some(ratio)) => format!(
            "Not decided whether {condition} differs from {baseline}: {metric} {}, {blocks}{bounded}{}.",
            known(ratio),
            // No difference from the twin is expected.
            if analysis.is_aa(condition) {
                String::new()
            } else {
                needed(analysis, c, "are needed to detect the planned effect")
            }
        ),
        (verdict, Some(ratio)) if c.bound.is_some() => format!(
            "{condition} is {} {baseline}: {metric} {}, {blocks}{bounded}.",
            comparative(verdict),
            known(ratio)
        ),
        (verdict, Some(ratio)) => {
            let (size, range) = format::size_with_interval(ratio, c.interval);
            format!(
                "{condition} is {} {baseline}: {metric} {} by {size} (95 % interval {range}), \
                 {blocks}.",
                comparative(verdict),
                verb(&c.metric, ratio)
            )
        }
    }
}

fn needed(analysis: &Analysis, c: &Comparison, verb: &str) -> String {
    let blocks = |n: u32| format!("; {} {verb}", margin::blocks_and_time(analysis, n));
    c.blocks_needed.map_or_else(String::new, blocks)
}

fn comparative(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Slower => "slower than",
        Verdict::Faster => "faster than",
        Verdict::Higher => "higher than",
        Verdict::Lower => "lower than",
        Verdict::NoDifference
        | Verdict::TooFewBlocks
        | Verdict::NotApplicable
        | Verdict::NotJudged => "like",
    }
}

/// Latencies and percentages are singular, counted things plural.
fn verb(metric: &str, ratio: f64) -> &'static str {
    let one = metric.contains("latency") || metric.contains("pct");
    match (one, ratio < 1.0) {
        (true, true) => "falls",
        (true, false) => "rises",
        (false, true) => "fall",
        (false, false) => "rise",
    }
}

/// Whether the A/A twin speaks for the experiment or against it.
pub(super) fn trust(analysis: &Analysis) -> String {
    let baseline = &analysis.baseline;
    let Some((aa, twin)) = analysis.aa.as_ref().and_then(|aa| Some((aa, analysis.primary(aa)?)))
    else {
        return format!("{baseline} was not measured twice, so the noise floor is unknown.");
    };
    let known = |ratio| format::change_as_known(ratio, twin.interval, twin.bound);
    let measured = twin.ratio.map(known);
    if let Some(measured) = measured.as_ref().filter(|_| twin.verdict.is_decided()) {
        return format!(
            "Distrust this experiment: {aa} is a second copy of {baseline}, yet differs from it by \
             {measured}."
        );
    }
    let Some(measured) =
        measured.filter(|_| twin.estimated_ratio().is_some() && twin.interval != Interval::UNKNOWN)
    else {
        let why = match twin.verdict {
            Verdict::TooFewBlocks => "has too few blocks to measure the noise floor",
            _ if twin.bound.is_some() => {
                "differs from it by an amount of which only a bound is known, so the noise floor is unknown"
            }
            _ => "cannot be compared with it, so the noise floor is unknown",
        };
        return format!("{aa}, a second copy of {baseline}, {why}.");
    };
    let floor = analysis.noise_floor.get(&analysis.primary_metric);
    let power = floor.and_then(detectable).map_or_else(String::new, |size| {
        let blocks = u32::try_from(twin.blocks).unwrap_or(u32::MAX);
        format!("; with {} {size}", margin::blocks_and_time(analysis, blocks))
    });
    format!("The noise: {baseline} against its second copy {aa}, {measured}{power}.")
}

/// `a loss of 12.8 % or a gain of 14.7 % is detected with 80 % power (90 % bound: 16.0 % or 19.0 %)`. The bound allows
/// for the error of the estimated spread.
fn detectable(floor: &NoiseFloor) -> Option<String> {
    let size = format::loss_or_gain(floor.minimum_detectable_effect?);
    let both = |most: f64| {
        format!(" (90 % bound: {} or {})", format::size(format::fall(most)), format::size(most))
    };
    let at_most = floor.minimum_detectable_effect_at_most.map_or_else(String::new, both);
    Some(format!("{size} is detected with 80 % power{at_most}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyze;
    use crate::analysis::sweep::COMMIT_MEAN;
    use crate::analysis::test_support::demo;
    use crate::report::answer::answer;
    use pgio_results::Trial;

    #[test]
    fn what_could_be_detected_names_blocks_and_minutes() {
        let mut analysis = analyze(&demo());
        analysis.block_seconds = Some(30.0);
        let text = trust(&analysis);
        assert!(
            text.contains("; with 6 blocks (3.0 min) a loss of 5.2 % or a gain of 5.5 % is"),
            "{text}"
        );
    }

    /// The window's end cut off operations of the twin in one trial, and none of the baseline.
    #[test]
    fn a_twin_of_which_a_bound_is_known_is_judged_alike_everywhere() {
        let of_twin = |factor: f64| {
            let mut stored = demo();
            stored.manifest.primary_metric = COMMIT_MEAN.to_owned();
            let twin = |t: &&mut Trial| t.place.as_ref().unwrap().condition == "local-aa";
            for (n, t) in stored.trials.iter_mut().filter(twin).enumerate() {
                let metric = t.metrics.get_mut(COMMIT_MEAN).unwrap();
                metric.value = metric.value.map(|v| v * factor);
                metric.at_least = n == 0;
            }
            let analysis = analyze(&stored);
            assert!(analysis.primary("local-aa").unwrap().bound.is_some());
            assert!(!analysis.noise_floor.contains_key(COMMIT_MEAN), "{factor}");
            [trust(&analysis), answer(&analysis, "local-aa")]
        };
        let [trusted, answered] = of_twin(2.0);
        assert!(trusted.starts_with("Distrust this experiment"), "{trusted}");
        assert!(trusted.contains("yet differs from it by ≥ +"), "{trusted}");
        assert!(answered.contains("distrust this experiment"), "{answered}");
        let [trusted, answered] = of_twin(1.0);
        assert!(
            trusted.contains("only a bound is known, so the noise floor is unknown"),
            "{trusted}"
        );
        assert!(answered.contains("only a bound is known"), "{answered}");
    }
}
