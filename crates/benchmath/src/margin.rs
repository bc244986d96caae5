//! Decides whether an effect exceeds a margin that the user named: it matters, it does not, or the
//! blocks cannot tell.
//!
//! "Does not matter" is an equivalence test: two one-sided tests (TOST; Schuirmann, Journal of
//! Pharmacokinetics and Biopharmaceutics 15(6), 1987), each a signed-rank test at the given level,
//! which counts Walsh averages beyond the border of the margin (Wellek, Testing Statistical
//! Hypotheses of Equivalence and Noninferiority, 2nd ed., section 5.4). Both must reject, so their
//! levels need no adjustment. The same holds for a question about several conditions that is
//! answered "none is worse" only if each test rejects (Berger, Technometrics 24(4), 1982).
//!
//! The typical block says nothing about stalls, and more blocks would only make it surer. So
//! [`Margin::require_totals`] also asks all work over all time: another test that must reject, and
//! therefore at the same level.
//!
//! "Matters" needs an interval that lies beyond the margin. The caller takes it from the family
//! that gives the verdict, so that an effect that matters is always one that was detected.
//! Assumption: as for [`signed_rank`].

use crate::power;
use crate::signed_rank::{Null, Walsh};
use crate::summary::assert_probability;

/// Effects smaller than this, on the log scale of ratios, do not matter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Margin {
    low: f64,
    high: f64,
}

/// The largest share that a margin may be.
pub const LARGEST_SHARE: f64 = 0.5;

/// A side of the margin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Below,
    Above,
}

/// What a series shows about both sides of a margin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The side on which the whole interval lies beyond the margin.
    pub exceeded: Option<Side>,
    /// Whether the center is shown not to lie on that side.
    pub not_below: bool,
    pub not_above: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Exceeds,
    Within,
    Undecided,
}

impl Evidence {
    pub fn answer(self) -> Answer {
        match self {
            Evidence { exceeded: Some(_), .. } => Answer::Exceeds,
            Evidence { not_below: true, not_above: true, .. } => Answer::Within,
            _ => Answer::Undecided,
        }
    }
}

impl Margin {
    /// From a share of the baseline's value: 0.05 is the ratios from 0.95 to 1.05. `None` unless
    /// the share is above 0 and at most [`LARGEST_SHARE`].
    pub fn from_share(share: f64) -> Option<Margin> {
        let usable = share > 0.0 && share <= LARGEST_SHARE;
        usable.then(|| Margin { low: (-share).ln_1p(), high: share.ln_1p() })
    }

    /// Judges a series by its interval, which the caller computes, and by one-sided tests at level
    /// `alpha`. A missing end of the interval is unknown.
    ///
    /// # Panics
    ///
    /// Unless alpha is between 0 and 1.
    pub fn judge(self, interval: [Option<f64>; 2], values: &[f64], alpha: f64) -> Evidence {
        assert_probability("alpha", alpha);
        Evidence {
            exceeded: self.exceeded_by(interval),
            not_below: self.p_against(Side::Below, values) <= alpha,
            not_above: self.p_against(Side::Above, values) <= alpha,
        }
    }

    /// Withdraws what the one-sided bounds of the ratio of totals ([`crate::totals::bounds`]) leave open: a
    /// side is only excluded if all work over all time is shown not to lie there either.
    pub fn require_totals(self, evidence: Evidence, (low, high): (f64, f64)) -> Evidence {
        Evidence {
            not_below: evidence.not_below && low.ln() > self.low,
            not_above: evidence.not_above && high.ln() < self.high,
            ..evidence
        }
    }

    /// The p value of the one-sided test whose null hypothesis is that the center of `values` lies
    /// on this side of the margin, its border included. 1 without values.
    fn p_against(self, side: Side, values: &[f64]) -> f64 {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return 1.0;
        }
        let (walsh, null) = (Walsh::new(values), Null::new(values.len()));
        null.at_most(match side {
            Side::Below => walsh.count_up_to(self.low),
            Side::Above => walsh.count_from(self.high),
        })
    }

    /// The side on which an interval lies beyond the margin, border excluded; `None` if some of it
    /// lies within.
    fn exceeded_by(self, interval: [Option<f64>; 2]) -> Option<Side> {
        match interval {
            [Some(low), _] if low > self.high => Some(Side::Above),
            [_, Some(high)] if high < self.low => Some(Side::Below),
            _ => None,
        }
    }

    /// Blocks that give an answer with this power if the true effect is at least as far from the
    /// margin as no effect is: none at all, or twice the margin. `level` is the level of the test for an
    /// effect that matters, `alpha` the level of each one-sided test. `None` if the number is too large
    /// to be of use, or without a usable sd.
    ///
    /// # Panics
    ///
    /// Unless level, alpha and power are between 0 and 1.
    pub fn blocks_needed(self, sd_log: f64, level: f64, alpha: f64, power: f64) -> Option<u32> {
        // Without an effect both tests must reject, so each may miss with half of the risk. The
        // upper border is the nearer one.
        let both = f64::midpoint(power, 1.0);
        let absent = power::blocks_needed(self.high, sd_log, 2.0 * alpha, both)?;
        // Twice the margin above is nearer to its border than twice the margin below.
        let beyond = (2.0 * self.high.exp_m1()).ln_1p() - self.high;
        let present = power::blocks_needed(beyond, sd_log, level, power)?;
        Some(absent.max(present))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::rng::normal;
    use crate::signed_rank;
    use crate::totals::{self, Block, Part};
    use proptest::prelude::*;

    const ALPHA: f64 = 0.05;

    fn margin(share: f64) -> Margin {
        Margin::from_share(share).unwrap()
    }

    #[test]
    fn a_margin_is_a_share_of_the_baseline() {
        let five = margin(0.05);
        assert!((five.low.exp() - 0.95).abs() < 1e-12 && (five.high.exp() - 1.05).abs() < 1e-12);
        assert!(Margin::from_share(0.5).is_some());
        for wrong in [0.0, -0.1, 0.501, 1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Margin::from_share(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_interval_exceeds_the_margin_on_one_side_or_not_at_all() {
        let five = margin(0.05);
        let exceeded =
            |low: f64, high: f64| five.exceeded_by([low, high].map(|end| Some(end.ln())));
        assert_eq!(exceeded(0.90, 0.94), Some(Side::Below));
        assert_eq!(exceeded(0.90, 0.96), None);
        assert_eq!(exceeded(1.06, 1.20), Some(Side::Above));
        assert_eq!(exceeded(0.5, 2.0), None);
        assert_eq!(five.exceeded_by([Some(0.1), None]), Some(Side::Above));
        assert_eq!(five.exceeded_by([None, Some(0.1)]), None);
        assert_eq!(five.exceeded_by([None, None]), None);
    }

    /// All sign patterns of seven distances from the border: the p value is the share of patterns with
    /// a rank sum at most as large as the observed one.
    #[test]
    fn the_p_value_is_that_of_all_sign_patterns() {
        let five = margin(0.05);
        let distances = [0.3, 0.1, 0.5, 0.2, 0.7, 0.6, 0.4];
        let with_signs = |pattern: u32| -> Vec<f64> {
            let sign = |i: usize| if pattern >> i & 1 == 1 { -1.0 } else { 1.0 };
            distances.iter().enumerate().map(|(i, d)| five.low + sign(i) * d).collect()
        };
        let rank_sum = |values: &[f64]| -> usize {
            let below = values.iter().filter(|v| **v < five.low).map(|v| five.low - v);
            below.map(|d| (d * 10.0).round() as usize).sum()
        };
        for pattern in 0..128u32 {
            let values = with_signs(pattern);
            let observed = rank_sum(&values);
            let as_small = (0..128u32).filter(|p| rank_sum(&with_signs(*p)) <= observed).count();
            let p = five.p_against(Side::Below, &values);
            assert!((p - as_small as f64 / 128.0).abs() < 1e-12, "{values:?}: {p}");
        }
    }

    #[test]
    fn without_usable_values_nothing_is_excluded() {
        let five = margin(0.05);
        for values in [&[][..], &[0.0, f64::NAN], &[0.0; 4]] {
            assert_eq!(five.judge([None, None], values, ALPHA), Evidence::default(), "{values:?}");
        }
        assert!(five.judge([None, None], &[0.0; 5], ALPHA).not_below, "1 of 32 patterns");
    }

    proptest! {
        /// What matters was detected, and what does not matter has an estimate within the margin.
        #[test]
        fn decisions_agree_with_the_test_and_the_estimate(
            center in -0.3..0.3f64,
            noise in prop::collection::vec(-1.0..1.0f64, 5..16),
        ) {
            let values: Vec<f64> = noise.iter().map(|n| center + 0.1 * n).collect();
            let five = margin(0.05);
            let result = signed_rank::test(&values, ALPHA).unwrap();
            let evidence = judge(five, &values);
            if let Some(side) = evidence.exceeded {
                prop_assert!(result.p <= ALPHA);
                let excluded = match side {
                    Side::Below => evidence.not_below,
                    Side::Above => evidence.not_above,
                };
                prop_assert!(!excluded);
            }
            if evidence.not_below && evidence.not_above {
                prop_assert!(five.low < result.estimate && result.estimate < five.high);
            }
        }
    }

    /// Trials whose noise has standard deviation `sd`; a tenth of them stall by 30 %.
    fn block(rng: &mut SplitMix64, effect: f64, sd: f64, stalls: bool) -> f64 {
        let mut side = |center: f64| {
            let stalled = stalls && rng.next_f64() < 0.1;
            center + sd * normal(rng) - if stalled { 0.36 } else { 0.0 }
        };
        side(effect) - side(0.0)
    }

    /// At the border, each one-sided test errs in at most 5 % of experiments, with any number of
    /// blocks, with and without stalls.
    #[test]
    fn the_size_of_both_one_sided_tests_is_at_most_five_per_cent() {
        let mut rng = SplitMix64::new(11);
        let five = margin(0.05);
        let experiments = 4_000;
        for (n, stalls) in [(6, false), (6, true), (10, false), (10, true), (25, true)] {
            for (side, border) in [(Side::Below, five.low), (Side::Above, five.high)] {
                let errors = (0..experiments)
                    .filter(|_| {
                        let values: Vec<f64> =
                            (0..n).map(|_| block(&mut rng, border, 0.03, stalls)).collect();
                        five.p_against(side, &values) <= ALPHA
                    })
                    .count();
                let size = errors as f64 / f64::from(experiments);
                // Three standard errors are 0.010.
                assert!(size <= 0.05 + 0.010, "{n} blocks, stalls {stalls}, {side:?}: {size}");
            }
        }
    }

    /// With the interval of a family of one.
    fn judge(margin: Margin, values: &[f64]) -> Evidence {
        let (low, high) = signed_rank::test(values, ALPHA).unwrap().bounds.unzip();
        margin.judge([low, high], values, ALPHA)
    }

    /// On each side of the margin at most 5 in 100 decisions are wrong, also just beside it.
    #[test]
    fn at_most_five_in_a_hundred_decisions_are_wrong() {
        let mut rng = SplitMix64::new(12);
        let five = margin(0.05);
        let experiments = 2_000;
        for (ratio, matters) in [
            (0.80, true),
            (0.93, true),
            (0.9499, true),
            (0.9501, false),
            (0.97, false),
            (1.0, false),
        ] {
            let wrong = (0..experiments)
                .filter(|_| {
                    let values: Vec<f64> =
                        (0..8).map(|_| block(&mut rng, f64::ln(ratio), 0.02, false)).collect();
                    match judge(five, &values).answer() {
                        Answer::Exceeds => !matters,
                        Answer::Within => matters,
                        Answer::Undecided => false,
                    }
                })
                .count();
            let share = wrong as f64 / f64::from(experiments);
            // Three standard errors are 0.015.
            assert!(share <= 0.05 + 0.015, "ratio {ratio}: {share}");
        }
    }

    /// The planned number of blocks decides in at least 80 % of experiments, without an effect and with
    /// one of twice the margin on either side.
    #[test]
    fn blocks_needed_decide_with_80_percent_power() {
        let mut rng = SplitMix64::new(13);
        for share in [0.05, 0.2, 0.5] {
            let margin = margin(share);
            for sd in [0.4, 0.8, 1.6].map(|sd| sd * share) {
                let n = margin.blocks_needed(sd, ALPHA, ALPHA, 0.8).unwrap();
                // A ratio of 0 has no log.
                let ratios =
                    [1.0, 1.0 - 2.0 * share, 1.0 + 2.0 * share].into_iter().filter(|r| *r > 0.0);
                for ratio in ratios {
                    let experiments = 4_000;
                    let decided = (0..experiments)
                        .filter(|_| {
                            let center = f64::ln(ratio);
                            let values: Vec<f64> =
                                (0..n).map(|_| center + sd * normal(&mut rng)).collect();
                            judge(margin, &values).answer() != Answer::Undecided
                        })
                        .count();
                    let power = decided as f64 / f64::from(experiments);
                    // Three standard errors are 0.019.
                    assert!(
                        power >= 0.8 - 0.02,
                        "margin {share}, sd {sd}, {n} blocks, ratio {ratio}: {power}"
                    );
                }
            }
        }
        let five = margin(0.05);
        assert_eq!(five.blocks_needed(f64::NAN, ALPHA, ALPHA, 0.8), None);
        assert_eq!(five.blocks_needed(50.0, ALPHA, ALPHA, 0.8), None);
    }

    /// The condition runs at 0.4 of its rate in 15 % of the trials: all its work over all time loses 9 %, and the
    /// typical block nothing. Shares of experiments in which the typical block passes, and in which both pass.
    fn passes(rng: &mut SplitMix64, n: usize, noise: f64, stalls: f64) -> [f64; 2] {
        let experiments = 1_000;
        let five = margin(0.05);
        let mut passed = [0u32; 2];
        for _ in 0..experiments {
            let blocks: Vec<Block> = (0..n)
                .map(|_| {
                    let mut part = |rate: f64| {
                        let work = 1000.0 * rate * (noise * normal(rng)).exp();
                        Part { work, seconds: 1.0 }
                    };
                    let baseline = part(1.0);
                    let condition = part(1.0);
                    let stalled = if rng.next_f64() < stalls { 0.4 } else { 1.0 };
                    let condition = Part { work: stalled * condition.work, ..condition };
                    Block { condition, baseline }
                })
                .collect();
            let logs: Vec<f64> =
                blocks.iter().map(|b| (b.condition.work / b.baseline.work).ln()).collect();
            let typical = five.judge([None, None], &logs, ALPHA);
            let both = five.require_totals(typical, totals::bounds(&blocks, ALPHA).unwrap());
            for (passed, evidence) in passed.iter_mut().zip([typical, both]) {
                *passed += u32::from(evidence.answer() == Answer::Within);
            }
        }
        passed.map(|n| f64::from(n) / f64::from(experiments))
    }

    #[test]
    fn what_stalls_does_not_pass_by_its_typical_block() {
        let mut rng = SplitMix64::new(21);
        let [typical, both] = passes(&mut rng, 20, 0.02, 0.15);
        assert!(typical > 0.5 && both <= 0.05, "20 blocks: {typical} {both}");
        let [typical, both] = passes(&mut rng, 40, 0.02, 0.15);
        assert!(typical > 0.7 && both <= 0.02, "40 blocks: {typical} {both}");
        // Without stalls, the second test costs almost nothing.
        for noise in [0.02, 0.03] {
            let [typical, both] = passes(&mut rng, 12, noise, 0.0);
            println!("{noise}: {typical} {both}");
            assert!(typical > 0.9 && both > typical - 0.02, "{noise}: {typical} {both}");
        }
    }
}
