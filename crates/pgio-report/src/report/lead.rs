//! The lead of a report in sentences: what precedes every table ([`opening`]), and the knees of a sweep; in a factorial
//! design, which factors matter.

use super::{answer, format, margin, outcomes, screening, sentence, sweep};
use crate::analysis::{Analysis, Comparison, Decision, State};

/// The command that adds blocks, if the directory is not known.
pub(super) const RERUN: &str = "pgio compare --resume DIR";
/// An experiment whose twin may differ by this factor shows large effects only, which the reader must know first.
const MAX_REACH: f64 = 1.5;
/// Effects that the first sentence names.
const NAMED: usize = 3;

pub fn lead(analysis: &Analysis) -> Vec<String> {
    if let Some(screened) = screening::factorial(analysis) {
        return screening::lead(analysis, screened);
    }
    sweep::knees(analysis)
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

/// What precedes the first table: whether the run can see anything, the answer in a sentence, and the problems.
pub(super) fn opening(analysis: &Analysis, rerun: &str) -> Vec<String> {
    let first = blindness(analysis, rerun);
    first.into_iter().chain(in_one_sentence(analysis)).chain(outcomes::headline(analysis)).collect()
}

/// `This run cannot see less than × 2.3 ...`, if the A/A twin differs from the baseline or may differ by much.
pub(super) fn blindness(analysis: &Analysis, rerun: &str) -> Option<String> {
    let twin = analysis.primary(analysis.aa.as_ref()?)?;
    if twin.verdict.is_decided() {
        return Some(sentence::trust(analysis));
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
    let quiet = if outcomes::busy_trials(analysis) > 0 {
        "stop other work on the machine, and "
    } else {
        ""
    };
    Some(format!(
        "This run cannot see less than {least}: `{}` measured twice differs by {measured} %. To see more, {quiet}run \
         four times the blocks: `{rerun} --blocks {}`.",
        analysis.baseline,
        4 * twin.blocks
    ))
}

/// `on costs at least half of the commits; remote_write is not decided.`, and what endangers the data.
pub(super) fn in_one_sentence(analysis: &Analysis) -> Option<String> {
    if screening::factorial(analysis).is_some() {
        return lead(analysis).into_iter().next();
    }
    let mut others: Vec<&Comparison> = analysis
        .comparisons
        .iter()
        .filter(|c| c.primary && !analysis.is_aa(&c.condition))
        // The headline tells why a condition has no result.
        .filter(|c| {
            let of = analysis.condition(&c.condition);
            of.is_none_or(|of| !matches!(of.state, State::Failed | State::NoValidTrial))
        })
        .collect();
    let size = |c: &Comparison| c.ratio.map_or(0.0, |r| r.ln().abs());
    others.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let (decided, open): (Vec<&Comparison>, Vec<&Comparison>) =
        others.into_iter().partition(|c| c.verdict.is_decided() && c.ratio.is_some());
    let one = |c: &&Comparison| {
        let stalls = if answer::stalls(analysis, &c.condition) { ", and stalls" } else { "" };
        let danger = answer::danger(analysis, &c.condition).map_or("", |_| " (unsafe)");
        format!("`{}` {}{stalls}{danger}", c.condition, answer::change(analysis, c))
    };
    let mut parts: Vec<String> = decided.iter().take(NAMED).map(one).collect();
    if decided.len() > NAMED {
        parts.push(format!("{} more differ", decided.len() - NAMED));
    }
    let named = |of: Vec<&Comparison>, what: String| {
        let name = |c: &&Comparison| {
            let stalls = if answer::stalls(analysis, &c.condition) { " (stalls)" } else { "" };
            format!("`{}`{stalls}", c.condition)
        };
        let names: Vec<String> = of.iter().take(NAMED).map(name).collect();
        let more = of.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!of.is_empty()).then(|| format!("{}{more}: {what}", names.join(", ")))
    };
    let (within, open): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|c| c.decision == Some(Decision::DoesNotMatter));
    let share = analysis.margin.map_or_else(String::new, margin::share);
    parts.extend(named(within, format!("no difference above {share}")));
    parts.extend(named(open, "not decided".to_owned()));
    let price =
        answer::unsafe_conditions(analysis).map_or_else(String::new, |text| format!(" {text}"));
    (!parts.is_empty()).then(|| format!("{}.{price}", parts.join("; ")))
}
