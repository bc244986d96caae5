//! Words for the decision about the margin, and the gate: whether any condition that answers the question is worse than
//! the baseline by more than the margin, or failed in more trials.
//!
//! What decides is `decision` and `gate` of each comparison, from `pgio_verdict::margin`; this file groups and words it. The
//! result of the gate and JUnit's cases (`junit`) are both made of [`rulings`], so they never contradict each other.

use super::{format, lead};
use pgio_results::metrics::Direction;
use pgio_verdict::shares::failed_more;
use pgio_verdict::{
    ALPHA, Analysis, Comparison, Condition, Decision, Gate, Interval, Verdict, totals_in_words,
};

/// `5 %`
pub fn share(margin: f64) -> String {
    // Rounded, because 0.07 * 100 is 7.000000000000001.
    format!("{} %", (margin * 1e6).round() / 1e4)
}

/// `matters`, `does not matter`, `undecided`; empty without a decision.
pub fn cell(c: &Comparison) -> String {
    match c.decision {
        Some(Decision::Matters) => "matters".to_owned(),
        Some(Decision::DoesNotMatter) => {
            let within = decides(c).map_or_else(String::new, |interval| format!("\n{interval}"));
            format!("does not matter{within}")
        }
        Some(Decision::Undecided) => "undecided".to_owned(),
        None => String::new(),
    }
}

/// `all work over all time may be up to 21 % worse`, if only that leaves the decision or the gate open.
pub(super) fn open_totals(analysis: &Analysis, c: &Comparison) -> Option<String> {
    let (totals, margin) = c.totals.filter(|_| c.open_by_totals).zip(c.margin)?;
    let (low, high) = totals.bounds();
    let (less, more) = (1.0 - low, high - 1.0);
    let direction = analysis.definition(&c.metric)?.direction;
    let (worse, better) =
        if direction == Direction::LowerIsFaster { (more, less) } else { (less, more) };
    let (size, how) = if worse >= margin { (worse, "worse") } else { (better, "better") };
    let all = totals_in_words(direction);
    Some(if size.is_finite() {
        // Rounded up, because it is a bound.
        format!("{all} may be up to {} % {how}", (size * 100.0).ceil())
    } else {
        format!("{all} may be any amount {how}")
    })
}

/// Warns that the typical block alone decided, because the primary metric has no totals.
pub(super) fn without_totals(analysis: &Analysis) -> Option<String> {
    let decided =
        |c: &Comparison| c.decision == Some(Decision::DoesNotMatter) || c.gate == Some(Gate::Pass);
    let is_alone = |c: &&Comparison| c.primary && c.totals.is_none() && decided(c);
    analysis.comparisons.iter().find(is_alone)?;
    Some(format!(
        "{} has no total, so this says nothing about stalls",
        format::metric_name(&analysis.primary_metric)
    ))
}

/// The same to be appended to a decision; empty if the totals were looked at.
pub(super) fn blind(analysis: &Analysis) -> String {
    without_totals(analysis).map_or_else(String::new, |why| format!("; {why}"))
}

/// How many blocks decide, and how long they take, once for all conditions that need as many.
pub fn blocks_to_decide<'a>(
    analysis: &Analysis,
    comparisons: impl Iterator<Item = &'a Comparison>,
) -> Option<String> {
    let mut needed: Vec<(u32, Vec<&str>)> = Vec::new();
    for c in comparisons.filter(|c| c.primary) {
        let Some(blocks) = c.decision_blocks else { continue };
        match needed.iter_mut().find(|(n, _)| *n == blocks) {
            Some((_, names)) => names.push(&c.condition),
            None => needed.push((blocks, vec![&c.condition])),
        }
    }
    needed.sort_by_key(|(n, _)| *n);
    let one = |(n, names): &(u32, Vec<&str>)| {
        format!("{} for {}", blocks_and_time(analysis, *n), names.join(", "))
    };
    let share = share(analysis.margin?);
    let all: Vec<String> = needed.iter().map(one).collect();
    (!all.is_empty()).then(|| {
        format!(
            "To decide with 80 % power, unless an effect is close to {share}: {}.",
            all.join("; ")
        )
    })
}

/// `539 blocks (67.0 min)`, without the time if it is unknown.
pub fn blocks_and_time(analysis: &Analysis, blocks: u32) -> String {
    let time = analysis.block_seconds.map(|one| format::long_time(f64::from(blocks) * one));
    let time = time.map_or_else(String::new, |time| format!(" ({time})"));
    format!("{}{time}", format::counted(blocks as usize, "block"))
}

/// The interval by which an effect does not matter: `[−1.9, +2.1]`.
pub(super) fn decides(c: &Comparison) -> Option<String> {
    format::interval(Interval { low: c.within_low, high: c.within_high })
}

/// By what the decision about one comparison was taken, or why it is open; `None` without a margin.
pub(super) fn decided_by(analysis: &Analysis, c: &Comparison) -> Option<String> {
    let share = share(c.margin?);
    match c.decision? {
        Decision::Matters => Some(format!("the effect exceeds {share}")),
        Decision::DoesNotMatter => {
            let risk = self::share(ALPHA);
            let within = decides(c).map(|interval| format!(", within {interval} at {risk} risk"));
            let within = within.unwrap_or_default();
            Some(format!("the effect is smaller than {share}{within}{}", blind(analysis)))
        }
        Decision::Undecided => {
            let why = open_totals(analysis, c).map_or_else(String::new, |why| format!(": {why}"));
            Some(format!("whether the effect exceeds {share} is undecided{why}"))
        }
    }
}

/// The result of the gate for one experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct GateResult {
    pub gate: Gate,
    /// One sentence without its period.
    pub why: String,
}

impl GateResult {
    pub fn sentence(&self) -> String {
        format!("{}.", self.why)
    }
}

/// What the gate finds about one condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConditionRuling {
    /// The baseline, its twin, or a condition that `judge` does not name.
    NotJudged,
    Pass,
    /// With reasons in words, at least one.
    Fail(Vec<String>),
    Undecided(Vec<String>),
    /// No trial counts; the sentence says why.
    NotMeasured(String),
}

/// One ruling for each condition, in their order. Without a margin, nothing fails or is undecided.
pub(super) fn rulings(analysis: &Analysis) -> Vec<(&Condition, ConditionRuling)> {
    let obstacle = obstacle(analysis);
    let ruling = |condition| match (ruling(analysis, condition), &obstacle) {
        (
            ConditionRuling::NotJudged
            | ConditionRuling::Pass
            | ConditionRuling::Fail(_)
            | ConditionRuling::Undecided(_),
            Some(why),
        ) => ConditionRuling::Undecided(vec![format!("{why}.")]),
        (ruling, _) => ruling,
    };
    analysis.conditions.iter().map(|condition| (condition, ruling(condition))).collect()
}

/// Folds the rulings; `None` if no margin was named. A condition that could not be compared leaves the gate
/// undecided, and so does an A/A twin that differs from the baseline by more than the margin.
pub fn gate(analysis: &Analysis) -> Option<GateResult> {
    let share = share(analysis.margin?);
    if let Some(why) = obstacle(analysis) {
        return Some(GateResult { gate: Gate::Undecided, why });
    }
    let (mut failed, mut open) = (Reasons::default(), Reasons::default());
    for (condition, ruling) in rulings(analysis) {
        match ruling {
            ConditionRuling::NotJudged | ConditionRuling::Pass => {}
            ConditionRuling::Fail(reasons) => failed.add(&condition.name, reasons),
            ConditionRuling::Undecided(reasons) => open.add(&condition.name, reasons),
            ConditionRuling::NotMeasured(_) => open.add(&condition.name, vec![undecided(analysis)]),
        }
    }
    let (gate, why) = if !failed.0.is_empty() {
        (Gate::Fail, failed.text())
    } else if !open.0.is_empty() {
        (Gate::Undecided, open.text() + &needed(analysis))
    } else {
        let baseline = &analysis.baseline;
        let blind = blind(analysis);
        (Gate::Pass, format!("no condition is worse than {baseline} by more than {share}{blind}"))
    };
    Some(GateResult { gate, why })
}

/// Reasons, each with the conditions that have it.
#[derive(Default)]
struct Reasons(Vec<(String, Vec<String>)>);

impl Reasons {
    fn add(&mut self, condition: &str, reasons: Vec<String>) {
        for reason in reasons {
            match self.0.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(condition.to_owned()),
                None => self.0.push((reason, vec![condition.to_owned()])),
            }
        }
    }

    /// `worse than local by more than 5 %: x, y; failed in 6 of 12 trials, local in 0 of 12 (p = 0.01): x`
    fn text(&self) -> String {
        let one =
            |(reason, names): &(String, Vec<String>)| format!("{reason}: {}", names.join(", "));
        self.0.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

/// Why the gate can say nothing about any condition, if a margin is named: one sentence without its period.
fn obstacle(analysis: &Analysis) -> Option<String> {
    let share = share(analysis.margin?);
    let baseline = &analysis.baseline;
    if analysis.has_contrasts() {
        let why = "this design compares no condition with a baseline; write the settings that matter as \
                   conditions of their own to gate on them";
        return Some(why.to_owned());
    }
    let twin = analysis.aa.as_ref().and_then(|aa| analysis.primary(aa));
    if let Some(twin) = twin.filter(|c| c.decision == Some(Decision::Matters)) {
        return Some(format!(
            "{}, a second copy of {baseline}, differs from it by more than {share}, so nothing can be \
             concluded",
            twin.condition
        ));
    }
    let is_any_judged = analysis.conditions.iter().any(|c| judged(analysis, c).is_some());
    (!is_any_judged).then(|| format!("nothing was compared with {baseline}"))
}

/// The comparison of a condition that answers the question.
fn judged<'a>(analysis: &'a Analysis, condition: &Condition) -> Option<&'a Comparison> {
    analysis.primary(&condition.name).filter(|c| c.judged && !analysis.is_aa(&c.condition))
}

fn ruling(analysis: &Analysis, condition: &Condition) -> ConditionRuling {
    let baseline = &analysis.baseline;
    let failure = lead::failure(analysis, condition);
    let Some(c) = judged(analysis, condition) else {
        return match failure.filter(|_| condition.name == *baseline) {
            Some(why) => ConditionRuling::NotMeasured(why),
            None => ConditionRuling::NotJudged,
        };
    };
    let gate = match analysis.margin {
        Some(_) => c.gate.unwrap_or(Gate::Undecided),
        None => Gate::Pass,
    };
    let by_margin = c.gate_by_margin.unwrap_or(gate);
    let failures = failed_more(condition).map(|share| lead::failed_beside(share, baseline));
    match (gate, failure) {
        (Gate::Fail, _) => {
            let worse = (by_margin == Gate::Fail).then(|| worse(analysis));
            ConditionRuling::Fail(worse.into_iter().chain(failures).collect())
        }
        (Gate::Pass | Gate::Undecided, Some(why)) => ConditionRuling::NotMeasured(why),
        (Gate::Undecided, None) => {
            let open = (by_margin == Gate::Undecided).then(|| match open_totals(analysis, c) {
                Some(why) => format!("{} ({why})", undecided(analysis)),
                None => undecided(analysis),
            });
            ConditionRuling::Undecided(open.into_iter().chain(failures).collect())
        }
        (Gate::Pass, None) => ConditionRuling::Pass,
    }
}

/// `worse than local by more than 5 %`
fn worse(analysis: &Analysis) -> String {
    let share = analysis.margin.map(share).unwrap_or_default();
    format!("worse than {} by more than {share}", analysis.baseline)
}

fn undecided(analysis: &Analysis) -> String {
    format!("possibly {}", worse(analysis))
}

/// The largest number of blocks that an open comparison needs.
fn needed(analysis: &Analysis) -> String {
    let asked = analysis.conditions.iter().filter_map(|condition| judged(analysis, condition));
    let open = asked.filter(|c| c.gate == Some(Gate::Undecided));
    let too_few = |c: &&Comparison| c.verdict == Verdict::TooFewBlocks;
    let blocks = open.clone().filter_map(|c| c.decision_blocks).max();
    let fewest = open.filter(too_few).filter_map(|c| c.blocks_needed).max();
    blocks
        .max(fewest)
        .map_or_else(String::new, |n| format!("; {} needed", blocks_and_time(analysis, n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::{demo, failing};

    #[test]
    fn a_share_is_shown_as_it_was_written() {
        let shares = [0.05, 0.07, 0.001, 0.5, 0.025, 0.333].map(share);
        assert_eq!(shares, ["5 %", "7 %", "0.1 %", "50 %", "2.5 %", "33.3 %"]);
    }

    fn gated(margin: f64, blocks: u32) -> (Gate, String) {
        let mut stored = demo();
        stored.trials.retain(|t| t.place.as_ref().is_some_and(|p| p.block <= blocks));
        stored.manifest.rules.matters = Some(margin);
        let gated = gate(&analyze(&stored)).unwrap();
        (gated.gate, gated.sentence())
    }

    #[test]
    fn the_gate_names_who_is_worse_or_undecided() {
        assert_eq!(gate(&analyze(&demo())), None, "no margin was named");
        let (gate, why) = gated(0.05, 6);
        assert_eq!(gate, Gate::Fail);
        assert_eq!(why, "worse than local by more than 5 %: on.");
        let (gate, why) = gated(0.05, 2);
        assert_eq!(gate, Gate::Undecided, "{why}");
        let open =
            "possibly worse than local by more than 5 %: remote_write, on; 25 blocks needed.";
        assert_eq!(why, open);
    }

    #[test]
    fn a_twin_that_differs_by_more_than_the_margin_decides_nothing() {
        let mut stored = demo();
        stored.manifest.rules.matters = Some(0.05);
        for trial in &mut stored.trials {
            let is_twin = trial.place.as_ref().is_some_and(|p| p.condition == "local-aa");
            let rate = trial.metrics.get_mut("commits_per_second");
            if let Some(rate) = rate.filter(|_| is_twin) {
                rate.value = rate.value.map(|value| value * 0.5);
            }
        }
        let gated = gate(&analyze(&stored)).unwrap();
        assert_eq!(gated.gate, Gate::Undecided);
        assert!(
            gated.why.starts_with("local-aa, a second copy of local, differs"),
            "{}",
            gated.why
        );
    }

    #[test]
    fn a_condition_that_fails_more_often_does_not_pass() {
        let half = |block: u32| block % 2 == 1;
        let found = gate(&analyze(&failing(1.0, half))).unwrap();
        let why = "failed in 6 of 12 trials, local in 0 of 12 (p = 0.01): x.";
        assert_eq!((found.gate, found.sentence().as_str()), (Gate::Fail, why));
        // Three of twelve are too few to tell.
        let mut stored = failing(1.0, |block| half(block) && block <= 6);
        let found = gate(&analyze(&stored)).unwrap();
        let why = "failed in 3 of 12 trials, local in 0 of 12 (p = 0.22): x.";
        assert_eq!((found.gate, found.sentence().as_str()), (Gate::Undecided, why));
        // A baseline that fails more often is no fault of the condition.
        stored.manifest.baseline = "x".to_owned();
        assert_eq!(gate(&analyze(&stored)).unwrap().gate, Gate::Pass);
    }
}
