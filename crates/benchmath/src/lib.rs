//! Statistics for interleaved benchmark trials. Pure: no clock, no file, no PostgreSQL.
//!
//! The trial is the unit of replication, and trials come in blocks: one pass over all conditions
//! in random order. So the data of a comparison are pairs, one value of the condition and one of
//! the baseline for each block, and everything is said about the logs of their ratios. Seconds
//! within a trial are not independent: only [`steady`] looks at them, and it compares nothing.
//!
//! | Module | What for |
//! |---|---|
//! | [`effect`] | start here: one comparison, its verdict |
//! | [`warning`] | what to doubt about it, and what to try |
//! | [`signed_rank`] | the test that decides, its estimate and interval |
//! | [`family`] | several comparisons judged together, with their intervals |
//! | [`totals`] | all work over all time, beside the typical block |
//! | [`spread`] | the noise of equal trials, pooled over all conditions |
//! | [`student`] | the mean of a sample with Student's interval |
//! | [`steady`] | does a series stay level: trend and change point |
//! | [`welch`] | two samples that are not paired |
//! | [`fisher`] | two shares of a count, such as failed trials |
//! | [`holm`] | p values of tests that share no blocks |
//! | [`knee`] | where more load stops paying |
//! | [`power`] | how many blocks, how small an effect |
//! | [`summary`], [`interval`] | describing a sample; an estimate with its interval |
//! | [`distribution`] | what a distribution that is drawn from leads one to expect |
//! | [`rng`] | seeded random numbers, the same everywhere |
//!
//! Each file names its source and its assumption. docs/METHODOLOGY.md argues for the choices.

pub mod distribution;
pub mod effect;
pub mod family;
pub mod fisher;
pub mod holm;
pub mod interval;
pub mod knee;
pub mod power;
pub mod rng;
pub mod signed_rank;
pub mod spread;
pub mod steady;
pub mod student;
pub mod summary;
#[cfg(test)]
mod test_noise;
pub mod totals;
pub mod warning;
pub mod welch;
