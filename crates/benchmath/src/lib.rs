//! Statistics for interleaved benchmark trials. Pure: no clock, no file, no PostgreSQL.
//!
//! The trial is the unit of replication, and trials are grouped in blocks: one pass over all
//! conditions in random order, balanced by [`williams`]. The data of a comparison are therefore pairs, one value of the
//! condition and one of the baseline per block, and all methods use the logs of their ratios.
//! Seconds within a trial are not independent: only [`steady`] uses them, and it makes no
//! comparison.
//!
//! | Module | Purpose |
//! |---|---|
//! | [`effect`] | start here: one comparison and its decision |
//! | [`warning`] | doubts about a comparison, and what to try |
//! | [`signed_rank`] | the deciding test, its estimate and interval |
//! | [`family`] | several comparisons judged together, with their intervals |
//! | [`margin`] | whether an effect exceeds a margin: it matters, or it does not |
//! | [`totals`] | the ratio of total rates, in addition to the typical block |
//! | [`spread`] | the noise of equal trials, pooled over all conditions |
//! | [`components`] | what of the noise lies inside windows and between trials |
//! | [`carry_over`] | whether conditions in short slices reach into each other |
//! | [`drift`] | whether values rise or fall over the blocks |
//! | [`change_points`] | where the level of a sequence of runs changed |
//! | [`student`] | the mean of a sample with Student's interval |
//! | [`steady`] | whether a series is steady: trend and change point |
//! | [`student::welch`] | two unpaired samples, by their means |
//! | [`rank_sum`] | two unpaired samples, by their ranks |
//! | [`williams`] | orders of conditions balanced for carry-over |
//! | [`fisher`] | two shares, such as shares of failed trials |
//! | [`holm`] | adjusts p values of tests that share no blocks |
//! | [`factorial`] | two-level designs for several factors, and what is aliased in them |
//! | [`knee`] | the load beyond which more load is not worthwhile |
//! | [`outliers`] | values far from all others, such as one server of a fleet |
//! | [`power`] | number of blocks needed, smallest detectable effect |
//! | [`summary`] | descriptive statistics; an estimate with its interval |
//! | [`distribution`] | expected values of the distributions that pgio draws from |
//! | [`rng`] | seeded random numbers, identical on all machines |
//!
//! Each file cites its source and states its assumption. docs/METHODOLOGY.md gives the reasons for
//! these choices.

pub mod carry_over;
pub mod change_points;
pub mod components;
pub mod distribution;
pub mod drift;
pub mod effect;
pub mod factorial;
pub mod family;
pub mod fisher;
pub mod holm;
pub mod knee;
pub mod margin;
pub mod outliers;
pub mod power;
pub mod rank_sum;
pub mod rng;
pub mod signed_rank;
pub mod spread;
pub mod steady;
pub mod student;
pub mod summary;
pub mod totals;
pub mod warning;
pub mod williams;
