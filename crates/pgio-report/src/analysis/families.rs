//! Judges comparisons together, as families.
//!
//! One family answers the experiment's question: the primary metric (and those that `also_judge` names)
//! under each condition (or those that `judge` names). The mean time of the operation that explains the answer
//! is the second, under the same conditions. All other comparisons are the third. In each, the chance of even one false verdict is at most [`ALPHA`]; the method is that of
//! `benchmath::family`. A comparison's interval and verdict come from the same test.

use benchmath::effect;
use benchmath::family::{self, Series};

use super::candidate::Candidate;
use super::comparison::FamilyKind;
use super::interval::Interval;
use super::tail;
use super::verdict::{ALPHA, Verdict, directed_decision};

impl Candidate {
    /// Whether it is compared by difference, because its ratio may not exist.
    fn by_difference(&self) -> bool {
        self.comparison.ratio.is_none() && !self.logs.is_empty()
    }

    fn adopt(&mut self, judged: family::MemberResult) {
        let by_difference = self.by_difference();
        let c = &mut self.comparison;
        c.p_adjusted = Some(judged.p);
        // Without bounds there are too few blocks, and the verdict remains.
        let Some((low, high)) = judged.bounds else { return };
        c.verdict = directed_decision(effect::decide(judged.bounds), self.direction);
        let finite = |bound: f64| Some(bound).filter(|b| b.is_finite());
        if by_difference {
            (c.difference_low, c.difference_high) = (finite(low), finite(high));
        } else {
            c.interval = Interval { low: finite(low.exp()), high: finite(high.exp()) };
        }
    }
}

/// Judges each family.
pub(super) fn judge(candidates: &mut [Candidate]) {
    for family in FamilyKind::ALL {
        let mut members: Vec<&mut Candidate> = candidates
            .iter_mut()
            .filter(|c| c.comparison.family() == family && !c.logs.is_empty())
            .filter(|c| c.comparison.verdict != Verdict::NotApplicable)
            .collect();
        judge_together(&mut members);
    }
}

/// Judges these as one family. Comparisons of one metric form one kind.
pub(super) fn judge_together(members: &mut [&mut Candidate]) {
    let mut kinds: Vec<String> = Vec::new();
    let series: Vec<Series> = members
        .iter()
        .map(|m| {
            let metric = &m.comparison.metric;
            let kind = kinds.iter().position(|k| k == metric).unwrap_or_else(|| {
                kinds.push(metric.clone());
                kinds.len() - 1
            });
            Series { kind, blocks: m.blocks.clone(), logs: m.logs.clone() }
        })
        .collect();
    for (member, judged) in members.iter_mut().zip(family::judge(&series, ALPHA)) {
        member.adopt(judged);
        let comparison = std::mem::take(&mut member.comparison);
        member.comparison = tail::bounded(comparison, member.cut_off);
    }
}

#[cfg(test)]
mod tests;
