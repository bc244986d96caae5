//! Judges comparisons together, as families.
//!
//! One family answers the experiment's question: the primary metric (and those that `also_judge` names)
//! under each condition (or those that `judge` names). The mean time of the operation that explains the answer
//! is the second, under the same conditions. The degraded time is the third, the primary metric of conditions that `judge`
//! leaves out the fourth, and all other comparisons are the fifth.
//! In each, the chance of even one false verdict is at most [`ALPHA`]; the method is in `benchmath::family`, for
//! the degraded time Holm's. A comparison's interval and verdict come from the same test.

use benchmath::family::{self, Series};
use benchmath::{effect, holm, power, signed_rank, student, summary};

use super::compare::Candidate;
use super::comparison::{ALPHA, FamilyKind, Interval, Verdict, directed_decision};
use super::tail;

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
        if by_difference {
            let finite = |bound: f64| Some(bound).filter(|b| b.is_finite());
            (c.difference_low, c.difference_high) = (finite(low), finite(high));
        } else {
            c.interval = Interval::from_ratio(low.exp(), high.exp());
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
        match family {
            FamilyKind::DegradedTime => judge_means(&mut members),
            _ => judge_together(&mut members),
        }
        if family == FamilyKind::Secondary {
            drop_unresolved(&mut members);
        }
    }
}

/// Judges differences by their means, adjusted by Holm's method. Few blocks have any degraded time, and a test by
/// ranks cannot tell what is 0 in most blocks.
fn judge_means(members: &mut [&mut Candidate]) {
    // Equal differences in all blocks have no Student's interval.
    let test = |differences: &[f64], alpha: f64| match student::test(differences, alpha) {
        Some(found) => Some((found.p, Some((found.interval.low, found.interval.high)))),
        None => signed_rank::test(differences, alpha).map(|found| (found.p, found.bounds)),
    };
    let mut tested: Vec<(f64, &mut Candidate)> = members
        .iter_mut()
        .filter(|m| m.logs.len() >= signed_rank::min_values(ALPHA))
        .filter_map(|m| Some((test(&m.logs, ALPHA)?.0, &mut **m)))
        .collect();
    let p: Vec<f64> = tested.iter().map(|(p, _)| *p).collect();
    for ((p, member), (adjusted, share)) in
        tested.iter_mut().zip(holm::adjust(&p).into_iter().zip(holm::shares(&p)))
    {
        let bounds = test(&member.logs, ALPHA * share).and_then(|(_, bounds)| bounds);
        member.comparison.difference = summary::mean(&member.logs);
        member.comparison.p = Some(*p);
        member.adopt(family::MemberResult { p: adjusted, bounds });
    }
}

/// Drops the intervals of comparisons whose blocks are too few for so many. Where even blocks that all agree leave a
/// p above a member's share of the level, sizes break the ties; a verdict is sound, but a bound depends on the
/// noisiest other metric.
fn drop_unresolved(members: &mut [&mut Candidate]) {
    let share = ALPHA / members.len() as f64;
    for member in members.iter_mut().filter(|m| signed_rank::smallest_p(m.logs.len()) > share) {
        member.comparison.interval = Interval::UNKNOWN;
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
    let judged = family::judge(&series, ALPHA);
    let ties: Vec<Option<String>> =
        (0..members.len()).map(|i| in_the_way(members, &series, i, judged[i].p)).collect();
    for ((member, judged), tie) in members.iter_mut().zip(judged).zip(ties) {
        member.adopt(judged);
        member.comparison.warnings.extend(tie);
        let comparison = std::mem::take(&mut member.comparison);
        member.comparison = tail::bounded(comparison, member.cut_off);
    }
}

/// Says which condition keeps an effect from being shown, if p values tie. Only of what answers the question.
fn in_the_way(
    members: &[&mut Candidate],
    series: &[Series],
    member: usize,
    p_adjusted: f64,
) -> Option<String> {
    let c = &members[member].comparison;
    let enough = power::blocks_without_ties(ALPHA, members.len());
    let is_tied = c.judged && c.p.is_some_and(|p| p <= ALPHA) && p_adjusted > ALPHA;
    if !is_tied || c.blocks >= enough {
        return None;
    }
    let other = &members[family::in_the_way(series, member, ALPHA)?].comparison;
    let metric =
        if other.metric == c.metric { String::new() } else { format!(" ({})", other.metric) };
    Some(format!(
        "`{}`{metric} varies so much that {} blocks cannot separate this effect from it; {enough} blocks can",
        other.condition, c.blocks
    ))
}

#[cfg(test)]
mod tests {
    use benchmath::rng::SplitMix64;
    use pgio_results::Trial;

    use crate::test_support::{COMMIT_MEAN, experiment, set, trial};
    use crate::{Analysis, Interval, analyze};

    /// Conditions of a demo and their rates.
    const LEVELS: [(&str, f64); 4] =
        [("local", 1.0), ("local-aa", 1.0), ("remote_write", 0.8), ("on", 0.5)];

    /// Metrics that do not depend on the condition, with their noise.
    const OTHERS: [(&str, f64); 6] = [
        ("commit_latency_p50", 0.02),
        ("commit_latency_p95", 0.1),
        ("commit_latency_p99", 0.3),
        ("wal_bytes_per_commit", 0.002),
        ("wal_bytes_per_second", 0.05),
        ("device_reads_per_second", 0.5),
    ];

    /// Roughly normal, with a standard deviation of 1.
    fn noise(rng: &mut SplitMix64) -> f64 {
        (0..4).map(|_| rng.next_f64() - 0.5).sum::<f64>() * 3f64.sqrt()
    }

    /// Six blocks of sessions that do nothing but commit, so that the mean time of a commit is the inverse of the rate.
    fn simulated(rng: &mut SplitMix64, levels: [(&str, f64); 4], judge: &[&str]) -> Analysis {
        let one = |rng: &mut SplitMix64, condition: &str, level: f64, block: u32| -> Trial {
            let rate = 2000.0 * level * (0.03 * noise(rng)).exp();
            let mean = (0.003 * noise(rng)).exp() / rate;
            let mut t =
                trial(condition, block, &[("commits_per_second", rate), (COMMIT_MEAN, mean)]);
            for (metric, sd) in OTHERS {
                set(&mut t, metric, (sd * noise(rng)).exp());
            }
            t
        };
        let mut trials = Vec::new();
        for block in 1..=6 {
            trials.extend(levels.map(|(condition, level)| one(rng, condition, level, block)));
        }
        let mut stored = experiment(&levels.map(|(name, _)| name), trials);
        stored.manifest.rules.judge = judge.iter().map(|name| (*name).to_owned()).collect();
        analyze(&stored)
    }

    /// With six blocks, the smallest p is 0.031 and the next one 0.0625: among all secondary metrics, chance would
    /// decide whether a commit takes measurably longer under a condition that halves the rate.
    #[test]
    fn the_time_of_a_commit_agrees_with_the_rate_that_it_explains() {
        let mut rng = SplitMix64::new(3);
        let (mut decided, mut contradicted) = (0, 0);
        for _ in 0..200 {
            let analysis = simulated(&mut rng, LEVELS, &[]);
            for condition in ["remote_write", "on"] {
                let rate = analysis.primary(condition).unwrap().verdict;
                let time = analysis.comparison(condition, COMMIT_MEAN).unwrap().verdict;
                decided += usize::from(rate.is_decided());
                contradicted += usize::from(rate.is_decided() && time != rate);
            }
        }
        assert!(decided > 380 && contradicted == 0, "{contradicted} of {decided}");
    }

    /// The family of mean times has a false verdict in at most 5 % of experiments: 20 of 400, and 31 with a chance of 1 %.
    #[test]
    fn the_times_of_equal_conditions_are_rarely_found_different() {
        let mut rng = SplitMix64::new(5);
        let is_false = |_: &u32| {
            let analysis = simulated(&mut rng, LEVELS.map(|(condition, _)| (condition, 1.0)), &[]);
            let mut times = analysis.comparisons.iter().filter(|c| c.metric == COMMIT_MEAN);
            times.any(|c| c.verdict.is_decided())
        };
        let wrong = (0..400).filter(is_false).count();
        assert!(wrong <= 31, "{wrong} of 400");
    }

    /// A dozen secondary comparisons cannot each be decided by six blocks: their ties were broken by sizes, and the bounds
    /// were numbers of up to 249 digits.
    #[test]
    fn too_few_blocks_for_a_family_give_no_intervals() {
        // What `judge` leaves out keeps its interval, and the twin shows the noise.
        for judge in [&[] as &[&str], &["on"]] {
            let analysis = simulated(&mut SplitMix64::new(7), LEVELS, judge);
            let (question, others): (Vec<_>, Vec<_>) =
                analysis.comparisons.iter().partition(|c| c.primary || c.explains);
            assert!(question.iter().all(|c| c.interval.sides().is_some()), "{question:?}");
            assert!(others.iter().all(|c| c.interval == Interval::UNKNOWN), "{others:?}");
        }
    }
}
