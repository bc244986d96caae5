//! All validity checks: name, meaning, and what to do.
//!
//! `tolerate =`, the documentation and the tests use this table. Its numbers come from `thresholds`. Checks are
//! evaluated where the facts are (`experiment::trial_checks` for one trial, `pgio_verdict` for several), not here. The
//! remedies are general; a check may give a more specific one.
//!
//! There are two kinds of checks. If the *measurement* is broken, the trial proves nothing about its
//! condition: it is invalid and repeated. If the condition *behaves* badly, that is a result and
//! the trial counts: discarding such trials would keep only the good trials of a bad condition.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::model::{Check, CheckVerdict};
use super::thresholds::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whether the trial measured its condition; may invalidate the trial.
    Measurement,
    /// How the condition behaved; only warns. The share of trials with the warning is compared
    /// between conditions.
    Behavior,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Measurement => "measurement",
            Kind::Behavior => "behavior",
        }
    }
}

#[derive(Debug, Clone)]
pub struct CheckDef {
    /// Stable identifier, as stored.
    pub id: &'static str,
    pub kind: Kind,
    /// When it invalidates a trial; empty if it only warns.
    pub invalid: Cow<'static, str>,
    /// When it warns; empty if it never only warns.
    pub warning: Cow<'static, str>,
    pub remedy: &'static str,
}

/// Defines a check of the measurement.
pub fn def(
    id: &'static str,
    invalid: impl Into<Cow<'static, str>>,
    warning: impl Into<Cow<'static, str>>,
    remedy: &'static str,
) -> CheckDef {
    let (invalid, warning) = (invalid.into(), warning.into());
    CheckDef { id, kind: Kind::Measurement, invalid, warning, remedy }
}

/// Defines a check of how the condition behaved.
pub fn behavior(
    id: &'static str,
    warning: impl Into<Cow<'static, str>>,
    remedy: &'static str,
) -> CheckDef {
    CheckDef { kind: Kind::Behavior, ..def(id, "", warning, remedy) }
}

/// Whether the condition was in force. A trial that breaks it shows nothing about its condition, even if it failed.
pub const IN_FORCE: &str = "treatment-in-force";
pub const CLOCK_STEP: &str = "clock-step";
pub const DATA_DRIFT: &str = "data-drift";
pub const WEAVE_ENDED: &str = "weave-ended";
pub const WEAVE_GUARD: &str = "weave-guard";

/// Checks of a single trial, then checks that compare trials.
pub static CHECKS: LazyLock<Vec<CheckDef>> = LazyLock::new(|| {
    vec![
        def(
            IN_FORCE,
            "a value read before, during or after the window differs from what the condition requires",
            "sessions that may be a command's began in the window without its options, so that nothing proves its settings there",
            "find out what changes it, then run again",
        ),
        def(
            "durability",
            "fsync or full_page_writes is off, and the condition does not declare it",
            "",
            "turn it on, or declare it in every condition",
        ),
        def(
            "standby-durability",
            "",
            "a standby found on an observed host has fsync = off, so that commits wait for a flush that does not happen",
            "turn it on in the standby's configuration and reload it",
        ),
        behavior(
            "data-size",
            format!("the data set grew or shrank by more than {DATA_CHANGED} in the window"),
            "use commit_every = 1 and end long transactions in any database of the server, or use reset = \"vacuum\" or \"reload\"; the check data-drift judges the effect on later trials",
        ),
        def(
            "unlogged",
            "",
            "the tables are unlogged: changing them writes no WAL that could be flushed or replicated",
            "load with unlogged = false to measure durability or replication",
        ),
        def(
            "synchronous-wait-cancelled",
            "a commit was acknowledged without its standby, because the wait was canceled",
            "",
            "check whether the standby was lost",
        ),
        behavior(
            "standby-changed",
            "a standby connected, disconnected or changed its state around the window, so that commits may have waited for another one",
            "find the reason in the logs of the server and its standbys; unless the change belongs to the condition, measure it again",
        ),
        def(
            "weave-standby",
            "",
            format!(
                "a slice of a woven window began before the standby had applied the commits of the previous slice; pgio waits at most {CATCH_UP_SECONDS} s"
            ),
            "use weave = false, or find out what delays the standby",
        ),
        def(
            "weave-slow-calls",
            "",
            "calls of a session took longer on average than the slices of a woven window, or none ended in its slices",
            "name longer slices, or use weave = false",
        ),
        def(
            WEAVE_GUARD,
            "",
            format!(
                "in more than {LATE_SLICES} of the slices of a woven window a session began after half of the guard, so that less of what the previous condition left behind was excluded"
            ),
            "run pgio nearer to the server or on a host that is less busy, or name longer slices",
        ),
        def(
            WEAVE_ENDED,
            "another condition of a woven window failed, which ended the window",
            "",
            "see the failed trial of that condition",
        ),
        def(
            CLOCK_STEP,
            format!(
                "the server's clock moved by more than {CLOCK_MOVED} of the window against that of pgio's machine, so that sessions which are timed by it worked for longer or less long than recorded"
            ),
            "",
            "run a time service that slews the clock instead of setting it",
        ),
        def(
            "environment-changed",
            "a setting of the server or the machine changed inside the window",
            "",
            "find out what changes it, then run again",
        ),
        def(
            "storage",
            "data, WAL or a tablespace is not on the device that the target names, or pgio cannot find out where it is",
            "",
            "move it to the device, or correct device = in [target]; connect to the host as the server's OS user or as root",
        ),
        def(
            "foreign-load",
            format!(
                "foreign processes used more than {FOREIGN_INVALID} of the host's cores, or made the servers' processes wait for a core for more than {FOREIGN_INVALID} of the window"
            ),
            format!(
                "foreign processes used more than {FOREIGN_WARNING} of the cores, or a whole core, or made the servers wait for more than {FOREIGN_WARNING} of the window; with the workload `mail` always only a warning, because the mail server counts as foreign"
            ),
            "stop other programs on the host, or measure when it is idle",
        ),
        def(
            "foreign-sessions",
            format!(
                "sessions of others on the measured server, in any database, were active for more than {FOREIGN_INVALID} of the time of the workload's sessions, or used more than {FOREIGN_INVALID} of the host's cores"
            ),
            format!(
                "they were active for more than {FOREIGN_WARNING} of that time, or used more than {FOREIGN_WARNING} of the cores; or another database had more than {UNSEEN_TRANSACTIONS} transactions or {UNSEEN_BLOCKS} block visits a second and the role may not see who is active"
            ),
            "stop them, or measure when the server is not used",
        ),
        def(
            "foreign-io",
            "",
            format!(
                "other processes moved at least {FOREIGN_IO} of the bytes that the servers' devices moved, and at least {} MB/s; not judged if the server's processes cannot be read",
                FOREIGN_IO_BYTES / 1e6
            ),
            "stop them, or move them to another device",
        ),
        def(
            "generator-bound",
            format!(
                "pgio itself, or one of several drivers, used more than {GENERATOR_BUSY} of a core (with client_threads or mail threads: of one core per thread, up to the number of cores) while it generated the load, and sessions waited for it more than {GENERATOR_AWAITED} of their time, if that was sampled"
            ),
            "",
            "use fewer sessions, run pgio on another machine, or use one driver more",
        ),
        def(
            "generator-stalled",
            format!(
                "pgio, or one of several drivers, stood still for at least {STALL_SECONDS} s of the window, or for {STALL} of it ({SHORT_STALL_SECONDS} s or more): stopped by a signal, without a processor, or on a machine that was paused"
            ),
            format!(
                "it stood still for at least {SHORT_STALL_SECONDS} s, or for {SHORT_STALL} of the window ({} s or more)",
                SHORT_STALL_SECONDS / 2.0
            ),
            "do not stop or suspend pgio, and run it on a machine that is neither busy nor paused; the trial is repeated",
        ),
        def(
            "telemetry-cost",
            "",
            format!(
                "sampling used more than {SAMPLING_COST} of a core on a host, or in pgio's own threads"
            ),
            "sample less often: telemetry = \"5s\"",
        ),
        behavior(
            "rate-not-reached",
            format!(
                "fewer than {RATE_REACHED} of the calls due in an open loop were started inside the window"
            ),
            "use a lower rate or more sessions",
        ),
        def(
            "steal",
            format!(
                "the hypervisor gave more than {FOREIGN_INVALID} of the host's CPU time to other machines"
            ),
            format!("the hypervisor gave more than {FOREIGN_WARNING} to other machines"),
            "measure on a machine that is not shared, or at another time",
        ),
        def(
            "pressure",
            "",
            format!(
                "tasks on the host waited for memory during more than {MEMORY_PRESSURE} of the window"
            ),
            "leave more memory free",
        ),
        def(
            "telemetry-missed",
            "",
            format!("more than {SAMPLES_MISSED} of the samples were too late"),
            "use a longer telemetry interval",
        ),
        def(
            "clock-skew",
            "",
            format!("the clocks of two hosts differ by more than {} ms", CLOCK_SKEW_SECONDS * 1e3),
            "run a time service on both",
        ),
        def(
            "lying-cache",
            "",
            "commits were faster than the WAL device can flush: a volatile cache acknowledges writes",
            "check queue/write_cache, the controller and the hypervisor's cache mode",
        ),
        def(
            "autovacuum",
            "",
            "an autovacuum worker ran inside the window",
            "VACUUM before the experiment, or set autovacuum = off in every condition",
        ),
        def(
            "cache",
            "",
            "never: it reports the sizes of data set, shared_buffers and memory",
            "make the data set larger than memory, or leave less memory free",
        ),
        def(
            "checkpoints",
            "",
            "a checkpoint fell inside the window, or checkpoints could not be counted",
            "raise max_wal_size and checkpoint_timeout, or use windows long enough for several checkpoints",
        ),
        def(
            "common-start",
            "a session started after the window's end",
            format!("a session started later than {LATE_START} into the window"),
            "use fewer sessions or longer windows",
        ),
        def(
            "participants-apart",
            format!(
                "the servers of one window, or its drivers, began more than {PARTICIPANTS_APART} of it apart, half a round trip included, or a clock could not be read"
            ),
            "",
            "use longer windows, run pgio and its drivers nearer to the servers and on hosts that are less busy, and run a time service there",
        ),
        behavior(
            "deadlocks",
            "a deadlock or a lock timeout occurred",
            "use commit_every = 1 or one session per table",
        ),
        behavior(
            "not-steady",
            "the rate, or in an open loop the latency, had a trend, a step or an episode inside the window",
            "use a longer warm-up, or longer windows",
        ),
        def(
            "environment-differs",
            "the environment changed, or differs from the baseline's, without a declared treatment",
            "the condition runs on another server than the baseline, or the server's host did not answer before the window",
            "make the environments equal, or declare the difference as a treatment",
        ),
        behavior(
            "checkpoint-in-one-condition",
            "a checkpoint fell inside this window and almost no other one; or the condition or its baseline sets max_wal_size, checkpoint_timeout or a similar setting, so that checkpoints are part of the effect",
            "raise max_wal_size and checkpoint_timeout",
        ),
        def(
            "cache-carry-over",
            "",
            format!(
                "the first trial of most blocks, of the experiment, or the trials of its first half missed shared buffers or read from the device at least {CARRY_OVER} more per visit than other trials of the same condition (or less, over the experiment)"
            ),
            "keep burn_in on, use a longer warm-up, a data set several times larger than the cache or entirely cached, or cache = \"cold\" in every condition",
        ),
        def(
            "clock-cost",
            "",
            format!(
                "track_io_timing or track_wal_io_timing was on, and a reading of the server's clock takes {CLOCK_READING_NANOS} ns or more"
            ),
            "turn it off, or check the clock source of the server's machine",
        ),
        def(
            DATA_DRIFT,
            format!(
                "the data set is more than {DATA_GREW} larger than in the first trial; no repeat can mend that, so the run ends"
            ),
            "",
            "start a new run with reset = \"vacuum\" or \"reload\" in [experiment]",
        ),
        def(
            "trial-trend",
            "",
            format!(
                "the primary metric of all conditions, or its ratio to the baseline, rose or fell by at least {TREND} (or the margin, if that is smaller) from the first block to the last, with a p of Mann and Kendall's test over the blocks of at most {TREND_LEVEL}"
            ),
            "lengthen the warm-up, and look for what changes with time; ratios within blocks hold if all conditions changed alike",
        ),
    ]
});

/// Whether the setting affects when a checkpoint begins or how long it takes, either directly or
/// through the volume of WAL before max_wal_size is reached.
pub fn decides_checkpoints(setting: &str) -> bool {
    const SETTINGS: &[&str] = &[
        "max_wal_size",
        "min_wal_size",
        "checkpoint_timeout",
        "checkpoint_completion_target",
        "full_page_writes",
        "wal_compression",
        "wal_level",
        "wal_log_hints",
    ];
    SETTINGS.contains(&setting)
}

pub fn definition(id: &str) -> Option<&'static CheckDef> {
    CHECKS.iter().find(|c| c.id == id)
}

/// The general remedy of a check; empty for an unknown one.
pub fn remedy(id: &str) -> &'static str {
    definition(id).map_or("", |c| c.remedy)
}

/// Whether the check judges how the condition behaved. Checks of [`CHECKS`] need not say so themselves: earlier
/// versions did not store it.
pub fn is_behavior(check: &Check) -> bool {
    check.behavior || definition(&check.id).is_some_and(|c| c.kind == Kind::Behavior)
}

/// Changes the verdict of a tolerated check from invalid to warning and notes it in the message.
pub fn tolerate(check: &mut Check, tolerated: &[String]) {
    if check.verdict == CheckVerdict::Invalid && tolerated.contains(&check.id) {
        check.verdict = CheckVerdict::Warning;
        check.message = format!("{} (tolerated: it would be invalid)", check.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_checks_are_tolerated() {
        let tolerated = ["foreign-load".to_owned()];
        let judged = |mut check: Check| {
            tolerate(&mut check, &tolerated);
            (check.verdict, check.message)
        };
        let (verdict, message) = judged(Check::invalid("foreign-load", "3 cores", "stop it"));
        assert_eq!(verdict, CheckVerdict::Warning);
        assert_eq!(message, "3 cores (tolerated: it would be invalid)");
        let other = Check::invalid("durability", "fsync is off", "turn it on");
        assert_eq!(judged(other).0, CheckVerdict::Invalid);
        let fine = judged(Check::ok("foreign-load", "quiet"));
        assert_eq!(fine, (CheckVerdict::Ok, "quiet".to_owned()));
    }
}
