//! What the noise lets a run see: whether the A/A twin speaks for or against it, what could be detected, where the noise
//! arises, and where to spend repeats. Next: `lead` has these sentences before the first table.

use super::{format, lead, margin};
use pgio_verdict::{Analysis, Interval, NoiseFloor, Renewal, Variance, Verdict};

/// An experiment whose twin may differ by this factor shows large effects only, which the reader must know first.
const MAX_REACH: f64 = 1.5;
/// From this share on, the variance between trials decides alone, and below one minus this that inside
/// the windows.
const DOMINANT_SHARE: f64 = 0.75;
/// With fewer blocks, the interval narrows faster than with the root of their number.
const FEW_BLOCKS: usize = 10;

/// `This run cannot see less than × 2.3 ...`, if the A/A twin differs from the baseline or may differ by much.
pub(super) fn blindness(analysis: &Analysis, rerun: &str) -> Option<String> {
    let twin = analysis.primary(analysis.aa.as_ref()?)?;
    if twin.verdict.is_decided() {
        return Some(trust(analysis));
    }
    let factor = |(low, high): (f64, f64)| high.max(1.0 / low);
    let reach = twin.interval.sides().map(factor);
    if twin.estimated_ratio().is_none() || reach.is_some_and(|reach| reach < MAX_REACH) {
        return None;
    }
    let measured = format::interval(twin.interval)?;
    // What was decided was seen, and what blocks like these detect can be.
    let floor = analysis.noise_floor.get(&analysis.primary_metric);
    let detected =
        floor.and_then(|floor| floor.minimum_detectable_effect).map(|effect| 1.0 + effect);
    let decided = analysis.comparisons.iter().filter(|c| c.primary && c.verdict.is_decided());
    let seen = decided.filter_map(|c| c.ratio).map(|ratio| factor((ratio, ratio)));
    let least = seen.chain(detected).chain(reach).min_by(f64::total_cmp);
    let least = least.map_or_else(|| "> ×100".to_owned(), |least| format!("× {least:.1}"));
    let quiet =
        if lead::busy_trials(analysis) > 0 { "stop other work on the machine, and " } else { "" };
    Some(format!(
        "This run cannot see less than {least}: `{}` measured twice differs by {measured} %. To see more, {quiet}run \
         four times the blocks: `{rerun} --blocks {}`.",
        analysis.baseline,
        4 * twin.blocks
    ))
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

/// How large a carry-over between woven conditions could have been seen: that none was found is no evidence of less.
pub(super) fn woven(analysis: &Analysis) -> Option<String> {
    let woven = analysis.woven?;
    let excluded = match woven.excluded {
        Some(share) => {
            format!("exclude only a carry-over above {} between conditions", format::size(share))
        }
        None => "are too few to exclude any carry-over between conditions".to_owned(),
    };
    Some(format!("Woven slices of {} {excluded}.", format::seconds(woven.slice_seconds)))
}

/// Where the noise of the primary metric arises; `None` if it could not be divided.
pub(super) fn variance(analysis: &Analysis) -> Option<String> {
    let v = analysis.variance.as_ref()?;
    let percent = |sd: f64| format!("{:.1} %", sd * 100.0);
    let trial = v.between_trials.hypot(v.inside_windows);
    Some(format!(
        "Noise of a trial (standard deviation): {}, of its variance {:.0} % between trials{} and {:.0} % inside \
         their windows; between blocks {}, which cancels. {}",
        percent(trial),
        v.share_between_trials * 100.0,
        renewal(v.renewal),
        (1.0 - v.share_between_trials) * 100.0,
        percent(v.between_blocks),
        advice(v, analysis.blocks)
    ))
}

fn renewal(renewal: Renewal) -> &'static str {
    match renewal {
        Renewal::SameData => "",
        Renewal::ColdCache => " (some on emptied caches)",
        Renewal::NewData => " (each on newly loaded data)",
    }
}

fn advice(v: &Variance, blocks: usize) -> String {
    if blocks < FEW_BLOCKS && v.share_between_trials < DOMINANT_SHARE {
        return "More blocks narrow the intervals more than longer windows do.".to_owned();
    }
    let general = if v.share_between_trials >= DOMINANT_SHARE {
        "More blocks narrow the intervals, longer windows hardly do"
    } else if v.share_between_trials <= 1.0 - DOMINANT_SHARE {
        "Longer windows narrow the intervals about as well as more blocks"
    } else {
        "More blocks narrow the intervals, longer windows only in part"
    };
    match v.best_window_seconds.zip(v.best_window_time) {
        Some((seconds, time)) => format!(
            "{general}: windows of {:.0} s reach the same intervals in {:.0} % of the time.",
            seconds,
            time * 100.0
        ),
        None => format!("{general}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::statement::Statement;
    use pgio_results::Trial;
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::{COMMIT_MEAN, demo};

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
        let both = |factor: f64| {
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
            [trust(&analysis), Statement::new(&analysis, "local-aa").short()]
        };
        let [trusted, answered] = both(2.0);
        assert!(trusted.starts_with("Distrust this experiment"), "{trusted}");
        assert!(trusted.contains("yet differs from it by ≥ +"), "{trusted}");
        assert!(answered.contains("distrust this experiment"), "{answered}");
        let [trusted, answered] = both(1.0);
        assert!(
            trusted.contains("only a bound is known, so the noise floor is unknown"),
            "{trusted}"
        );
        assert!(answered.contains("only a bound is known"), "{answered}");
    }

    fn words(blocks: usize, share: f64, best: Option<(f64, f64)>, renewal: Renewal) -> String {
        let found = Variance {
            between_blocks: 0.03,
            between_trials: 0.02 * share.sqrt(),
            inside_windows: 0.02 * (1.0 - share).sqrt(),
            share_between_trials: share,
            freedom: 15,
            renewal,
            best_window_seconds: best.map(|b| b.0),
            best_window_time: best.map(|b| b.1),
        };
        variance(&Analysis { variance: Some(found), blocks, ..analyze(&demo()) }).unwrap()
    }

    #[test]
    fn the_shares_are_shown_and_where_to_spend_repeats() {
        assert_eq!(
            words(6, 0.9, Some((12.0, 0.4)), Renewal::NewData),
            "Noise of a trial (standard deviation): 2.0 %, of its variance 90 % between trials (each on newly \
             loaded data) and 10 % inside their windows; between blocks 3.0 %, which cancels. More blocks \
             narrow the intervals, longer windows hardly do: windows of 12 s reach the same intervals in \
             40 % of the time."
        );
        let inside = words(10, 0.1, None, Renewal::ColdCache);
        assert!(inside.contains("(some on emptied caches) and 90 % inside"), "{inside}");
        assert!(inside.ends_with("narrow the intervals about as well as more blocks."), "{inside}");
        assert!(words(10, 0.5, None, Renewal::SameData).ends_with("longer windows only in part."));
        let few = words(6, 0.1, Some((12.0, 0.4)), Renewal::SameData);
        assert!(few.ends_with("narrow the intervals more than longer windows do."), "{few}");
    }

    #[test]
    fn there_is_no_note_on_variance_without_slices() {
        assert_eq!(variance(&analyze(&demo())), None);
    }
}
