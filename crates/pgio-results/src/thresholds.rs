//! The thresholds of the checks, each with its reason. The texts in `checks` and in docs/KEYS.md are made from them, and
//! the code that judges uses them.
//!
//! Most are chosen, not derived: what a careful reader would call small or large (docs/decisions/008-thresholds.md).

use std::fmt;

/// A share, shown in per cent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(pub f64);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 0.07 × 100 is not 7.
        write!(f, "{} %", (self.0 * 1e8).round() / 1e6)
    }
}

/// `data-size`: change above which the data no longer counts as the same.
pub const DATA_CHANGED: Share = Share(0.02);
/// `weave-standby`: longest wait for a standby before a slice.
pub const CATCH_UP_SECONDS: u64 = 5;
/// `weave-guard`: a session that begins after this share of the guard is late.
pub const GUARD_SPENT: Share = Share(0.5);
/// `weave-guard`: share of a woven window's slices in which sessions may be late without a warning.
pub const LATE_SLICES: Share = Share(0.05);
/// `clock-step`: share of a window by which the server's clock may move against pgio's machine's.
pub const CLOCK_MOVED: Share = Share(0.01);
/// `rate-not-reached`, and the same of other kinds of work: share of the calls due that must be started.
pub const RATE_REACHED: Share = Share(0.99);
/// `foreign-load`, `foreign-sessions` and `steal`: share of a host's cores, of the window by which others delayed the
/// servers, or of the workload's sessions.
pub const FOREIGN_INVALID: Share = Share(0.20);
/// The same for a warning; the doctor takes it as well.
pub const FOREIGN_WARNING: Share = Share(0.05);
/// `foreign-load`: cores that are a warning at any size of the host. On 64 cores three busy programs use less than 5 %.
pub const FOREIGN_CORES: f64 = 1.0;
/// `foreign-sessions`: transactions per second in another database that are a warning where the role may not see who
/// is active.
pub const UNSEEN_TRANSACTIONS: f64 = 10.0;
/// The same in block visits per second.
pub const UNSEEN_BLOCKS: f64 = 1000.0;
/// `foreign-io`: share of the bytes that the servers' devices moved ...
pub const FOREIGN_IO: Share = Share(0.10);
/// ... and bytes per second that others must have moved there.
pub const FOREIGN_IO_BYTES: f64 = 1e6;
/// `generator-bound`: share of a core that one thread may use before it may be the bottleneck.
pub const GENERATOR_BUSY: Share = Share(0.8);
/// `generator-bound`: share of the sessions' time spent waiting for the generator of the load.
pub const GENERATOR_AWAITED: Share = Share(0.05);
/// `generator-stalled`: seconds, or share of the window, for which the generator of the load may stand still; more is
/// invalid. On a busy machine any process waits for a processor for some tenths of a second.
pub const STALL_SECONDS: f64 = 1.0;
pub const STALL: Share = Share(0.2);
/// The same for a warning. Of short windows, the share counts from this long on, for a warning from half of it on.
pub const SHORT_STALL_SECONDS: f64 = 0.25;
pub const SHORT_STALL: Share = Share(0.05);
/// `telemetry-cost`: share of a core that sampling may use.
pub const SAMPLING_COST: Share = Share(0.01);
/// `telemetry-missed`: share of the samples that may be late.
pub const SAMPLES_MISSED: Share = Share(0.10);
/// `pressure`: share of the window in which tasks may wait for memory.
pub const MEMORY_PRESSURE: Share = Share(0.01);
/// `clock-skew`: difference between the clocks of two hosts.
pub const CLOCK_SKEW_SECONDS: f64 = 0.050;
/// `common-start`: share of a window that a session may miss without a warning.
pub const LATE_START: Share = Share(0.02);
/// `participants-apart`: share of a common window by which its participants may be apart.
pub const PARTICIPANTS_APART: Share = Share(0.01);
/// `cache-carry-over`: by how much more of the reads per visit must miss.
pub const CARRY_OVER: Share = Share(0.25);
/// `clock-cost`: a reading of a server's clock that slows what is timed.
pub const CLOCK_READING_NANOS: u64 = 300;
/// `data-drift`: the data may be larger than before the first trial by this much.
pub const DATA_GREW: Share = Share(0.05);
/// `trial-trend`: smaller changes from the first block to the last are irrelevant, unless the experiment names a smaller
/// margin.
pub const TREND: Share = Share(0.05);
/// `trial-trend`: the level of each of its two questions. Lower than the level of a comparison, because this check is only
/// one of many that may accuse a healthy experiment. Six blocks in perfect order still fall below it, also after the
/// adjustment for three conditions.
pub const TREND_LEVEL: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shown_without_rounding_errors() {
        let shown = [0.07, 0.001, 0.29, 0.5, 1.0].map(|share| Share(share).to_string());
        assert_eq!(shown, ["7 %", "0.1 %", "29 %", "50 %", "100 %"]);
    }

    /// The texts say these numbers in words.
    #[test]
    fn numbers_in_words_are_the_thresholds() {
        assert_eq!(GUARD_SPENT, Share(0.5), "after half of the guard");
        assert_eq!(FOREIGN_CORES, 1.0, "or a whole core");
    }
}
