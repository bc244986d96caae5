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
//! Assumption: that of [`signed_rank`].

use crate::interval::assert_probability;
use crate::power;
use crate::signed_rank::{Null, Walsh};

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
    pub fn of_share(share: f64) -> Option<Margin> {
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
    /// margin as no effect is: none at all, or twice the margin. `level` is that of the test for an
    /// effect that matters, `alpha` that of each one-sided test. `None` if the number is too large
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
mod tests;
