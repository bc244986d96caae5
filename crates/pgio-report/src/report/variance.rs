//! Words for the noise of the primary metric: where it arises, and where to spend repeats.

use crate::analysis::{Analysis, Renewal, Variance};

/// From this share on, the variance between trials decides alone, and below one minus this that inside
/// the windows.
const DOMINANT_SHARE: f64 = 0.75;

/// One note; `None` if the noise could not be divided.
pub(super) fn note(analysis: &Analysis) -> Option<String> {
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

/// With fewer blocks, the interval narrows faster than with the root of their number.
const FEW_BLOCKS: usize = 10;

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
    use crate::analysis::analyze;
    use crate::analysis::test_support::demo;

    fn words(blocks: usize, share: f64, best: Option<(f64, f64)>, renewal: Renewal) -> String {
        let variance = Variance {
            between_blocks: 0.03,
            between_trials: 0.02 * share.sqrt(),
            inside_windows: 0.02 * (1.0 - share).sqrt(),
            share_between_trials: share,
            freedom: 15,
            renewal,
            best_window_seconds: best.map(|b| b.0),
            best_window_time: best.map(|b| b.1),
        };
        note(&Analysis { variance: Some(variance), blocks, ..analyze(&demo()) }).unwrap()
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
        assert_eq!(note(&analyze(&demo())), None);
    }
}
