//! Woven windows: the plan of short slices in which several conditions take turns, and its outcome.
//!
//! The conditions of a block run in slices of random length, in an order drawn anew for each round, until
//! each has its duration. Slow drift of a machine then meets all conditions alike, and so does what
//! follows a fixed period, such as the WAL writer's: a fixed order or a fixed length would stay in step with
//! it. The first part of each slice is a guard: the work runs under the new condition and is not counted.
//!
//! Plain data and arithmetic; `woven` runs the plan.

use std::time::{Duration, Instant};

use benchmath::carry_over::SliceSample;

use super::error::EngineError;
use super::participants::WindowOutcome;
use crate::config::Engine;
use crate::config::resolve::Extent;
use crate::rng::{SplitMix64, derive};

/// The length of a round's slices is drawn uniformly from the mean length ± this share of it.
const SPREAD: f64 = 0.5;
/// The guard's share of the mean length of a slice.
const GUARD_SHARE: f64 = 0.25;
/// The shortest and the longest guard, in seconds.
const GUARD_RANGE: (f64, f64) = (0.002, 0.050);

/// The conditions of one woven window, and how they take turns.
#[derive(Debug, Clone, PartialEq)]
pub struct WeavePlan {
    /// The session settings of each condition; a setting that a condition does not name has its value
    /// from before.
    pub conditions: Vec<Vec<(String, String)>>,
    /// Counted time of each condition.
    pub duration: Duration,
    /// Mean counted length of a slice.
    pub slice: Duration,
    pub seed: u64,
}

/// Returns what prevents sessions of an engine from switching conditions inside a window.
pub(super) fn obstacle(engine: &Engine, extent: Extent) -> Option<&'static str> {
    match (engine, extent) {
        (Engine::Client(_), _) => {
            Some("engine = \"client\" does not support switching settings inside a window")
        }
        (Engine::Server, Extent::Time(_)) => None,
        (Engine::Server, _) => {
            Some("the window has a number of transactions instead of a duration")
        }
    }
}

/// A slice of the plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlannedSlice {
    /// Index into the plan's conditions.
    pub condition: usize,
    /// Counted seconds.
    pub seconds: f64,
}

impl WeavePlan {
    /// Returns the time at the start of each slice that is not counted, in seconds.
    pub fn guard(&self) -> f64 {
        (self.slice.as_secs_f64() * GUARD_SHARE).clamp(GUARD_RANGE.0, GUARD_RANGE.1)
    }

    /// Returns the number of slices that each condition needs, if none is cut short.
    pub fn rounds(&self) -> usize {
        let rounds = self.duration.as_secs_f64() / self.slice.as_secs_f64();
        (rounds.round() as usize).max(1)
    }

    /// Returns the time of the whole window without what switching costs, in seconds.
    pub fn seconds(&self) -> f64 {
        let guards = self.guard() * self.rounds() as f64;
        (self.duration.as_secs_f64() + guards) * self.conditions.len() as f64
    }

    /// Returns the names of all settings that some condition sets.
    pub fn settings(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.conditions.iter().flatten().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the source of rounds.
    pub(super) fn schedule(&self) -> Schedule {
        let random = SplitMix64::new(derive(self.seed, "weave", 0));
        let (conditions, slice) = (self.conditions.len(), self.slice.as_secs_f64());
        Schedule { random, conditions, slice }
    }
}

/// Draws order and lengths, round by round.
pub(super) struct Schedule {
    random: SplitMix64,
    conditions: usize,
    slice: f64,
}

impl Schedule {
    /// Returns the next round: one slice of every condition, all of one length. A slow round then takes as
    /// much counted time from each of them, and cancels out of their ratios.
    pub(super) fn next_round(&mut self) -> Vec<PlannedSlice> {
        let mut order: Vec<usize> = (0..self.conditions).collect();
        self.random.shuffle(&mut order);
        let length = 1.0 - SPREAD + 2.0 * SPREAD * self.random.next_f64();
        let seconds = self.slice * length;
        order.into_iter().map(|condition| PlannedSlice { condition, seconds }).collect()
    }
}

/// One condition of a woven window.
#[derive(Debug)]
pub struct WovenCondition {
    /// Its `seconds` are the counted ones; its times begin with the whole window.
    pub outcome: WindowOutcome,
    /// Start and end of the counted part of each of its slices, on this machine's clock.
    pub spans: Vec<(Instant, Instant)>,
    /// Work and time of each of its slices. Work is block visits, or commits where nothing visits blocks.
    pub slices: Vec<SliceSample>,
    /// The mean time of a call of the slowest session; `None` if a session ended no call in its slices.
    pub slowest: Option<Duration>,
    /// Slices in which a session began its work after half of the guard.
    pub late_slices: usize,
}

impl WovenCondition {
    /// Returns the mean time of a call of one session; `None` if no call ended.
    pub fn call_time(&self) -> Option<Duration> {
        let seconds: f64 = self.slices.iter().flat_map(|slice| slice.seconds).sum();
        mean_call(seconds, self.outcome.totals.ended_calls())
    }
}

fn mean_call(seconds: f64, calls: u64) -> Option<Duration> {
    (calls > 0).then(|| Duration::from_secs_f64(seconds / calls as f64))
}

/// Returns the mean time of a call of the slowest session, from the counted seconds and the calls of each.
pub(super) fn slowest_call(sessions: impl IntoIterator<Item = (f64, u64)>) -> Option<Duration> {
    let means = sessions.into_iter().map(|(seconds, calls)| mean_call(seconds, calls));
    means.collect::<Option<Vec<Duration>>>()?.into_iter().max()
}

/// The outcome of a woven window.
#[derive(Debug)]
pub struct WovenOutcome {
    /// In the order of the plan.
    pub conditions: Vec<WovenCondition>,
    /// Seconds from the first slice to the end of the last one.
    pub seconds: f64,
    /// Slices that began although a standby had not caught up within the limit.
    pub not_caught_up: u32,
    pub failure: Option<WovenFailure>,
}

/// What ended a woven window early.
#[derive(Debug)]
pub struct WovenFailure {
    pub error: Box<EngineError>,
    /// The condition whose slice it ended, as an index into the plan; `None` if it happened in no slice.
    pub condition: Option<usize>,
}

impl From<EngineError> for WovenFailure {
    fn from(error: EngineError) -> WovenFailure {
        WovenFailure { error: Box::new(error), condition: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_methodology_names_the_guard_and_the_spread() {
        let (least, most) = (GUARD_RANGE.0 * 1e3, GUARD_RANGE.1 * 1e3);
        assert_eq!((GUARD_SHARE, SPREAD), (0.25, 0.5), "a quarter; half and one and a half");
        for sentence in [
            format!("of a quarter of the mean length ({least} to {most} ms)"),
            "drawn evenly between half and one and a half times the mean".to_owned(),
        ] {
            pgio_results::test_support::assert_documented("METHODOLOGY.md", &sentence);
        }
    }

    fn plan(conditions: usize, duration: u64, slice: u64) -> WeavePlan {
        WeavePlan {
            conditions: vec![Vec::new(); conditions],
            duration: Duration::from_millis(duration),
            slice: Duration::from_millis(slice),
            seed: 7,
        }
    }

    #[test]
    fn lengths_are_spread_evenly_around_their_mean() {
        let mut schedule = plan(3, 1000, 20).schedule();
        let slices: Vec<PlannedSlice> = (0..200).flat_map(|_| schedule.next_round()).collect();
        let lengths: Vec<f64> = slices.iter().map(|s| s.seconds).collect();
        assert!(lengths.iter().all(|s| (0.010..0.030).contains(s)), "{lengths:?}");
        let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
        assert!((mean - 0.020).abs() < 0.001, "{mean}");
        let short = lengths.iter().filter(|s| **s < 0.015).count();
        assert!((110..190).contains(&short), "{short} of 600 are short");
    }

    #[test]
    fn every_round_has_every_condition_and_orders_differ() {
        let mut schedule = plan(4, 2000, 20).schedule();
        let order = |round: Vec<PlannedSlice>| round.iter().map(|s| s.condition).collect();
        let orders: Vec<Vec<usize>> = (0..100).map(|_| order(schedule.next_round())).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        let round = schedule.next_round();
        assert!(round.iter().all(|slice| slice.seconds == round[0].seconds), "{round:?}");
        let mut distinct = orders;
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 20, "{} of 24 orders", distinct.len());
    }

    #[test]
    fn a_slow_session_is_not_hidden_by_fast_ones() {
        let ms = Duration::from_millis;
        assert_eq!(slowest_call([(1.0, 1000), (1.0, 20), (1.0, 500)]), Some(ms(50)));
        // A call that took longer than each of its slices leaves nothing to count.
        assert_eq!(slowest_call([(1.0, 1000), (0.0, 0)]), None);
    }

    #[test]
    fn the_guard_is_a_quarter_of_a_slice_within_limits() {
        let guard = |slice| plan(2, 10_000, slice).guard();
        assert_eq!([guard(4), guard(20), guard(1000)], [0.002, 0.005, 0.050]);
        assert_eq!(plan(2, 30, 20).rounds(), 2);
        assert_eq!(plan(2, 10, 20).rounds(), 1);
        assert_eq!(plan(2, 1000, 20).seconds(), 2.5);
    }
}
