//! Every validity check: its name, what it says of a trial, what to do about it.
//!
//! The one table behind `tolerate =`, the documentation and the tests. A check judges where the
//! facts are (`experiment::trial_checks` one trial, `analysis` several); nothing here judges. The
//! remedy here is the general one: a check that knows more says more.

use super::model::{Check, CheckVerdict};

#[derive(Debug, Clone, Copy)]
pub struct CheckDef {
    /// Stable, as stored.
    pub id: &'static str,
    /// When it makes a trial invalid; empty where it only warns.
    pub invalid: &'static str,
    /// When it warns; empty where it never only warns.
    pub warning: &'static str,
    pub remedy: &'static str,
}

const fn def(
    id: &'static str,
    invalid: &'static str,
    warning: &'static str,
    remedy: &'static str,
) -> CheckDef {
    CheckDef { id, invalid, warning, remedy }
}

/// Of one trial, then of a trial among the others.
pub const CHECKS: &[CheckDef] = &[
    def(
        "treatment-in-force",
        "a reading before, during or after the window is not what the condition says",
        "",
        "find out who changes it, and run again",
    ),
    def(
        "throttle",
        "a throttled device did more than its limit allows, or was not observed",
        "it did less than 80 % of it, so only bursts can have met the limit",
        "see that whoever uses it is in the limited group, and that there is work enough",
    ),
    def(
        "link",
        "",
        "less than a packet a second passed a slowed interface, or nothing proves that replication takes it",
        "add ping = \"ADDRESS\", the other machine's as replication uses it; see by `ip route get ADDRESS` which interface that is",
    ),
    def(
        "durability",
        "fsync or full_page_writes is off and the condition does not say so",
        "",
        "turn it on, or declare it in every condition",
    ),
    def(
        "data-size",
        "the data set grew or shrank by more than 2 % in the window",
        "",
        "use commit_every = 1, or reset = \"vacuum\" or \"reload\"",
    ),
    def(
        "unlogged",
        "",
        "the tables are unlogged: changing them writes no WAL, so nothing of it is flushed or replicated",
        "load with unlogged = false where durability or replication is measured",
    ),
    def(
        "synchronous-wait-cancelled",
        "a commit was acknowledged without its standby, because the wait was cancelled",
        "",
        "see whether the standby was lost",
    ),
    def(
        "environment-changed",
        "a setting of the server or the machine changed inside the window",
        "",
        "find out who changes it, and run again",
    ),
    def(
        "storage",
        "data, WAL or a tablespace does not lie on the device that the target names",
        "",
        "move it there, or correct device = in [target]",
    ),
    def(
        "mail-lost",
        "a message that was accepted is not in its mail directory, or altered, or there twice; or nobody could look",
        "",
        "see the mail server's log; maildir must be where it delivers to, and nothing else may take mail away",
    ),
    def(
        "mail-earlier",
        "more than 1 % of the messages that arrived were of an earlier trial",
        "some were",
        "see the mail server's log for what kept them; offer less by messages_rate, or deliver with protocol = \"lmtp\"",
    ),
    def(
        "mail-refused",
        "more than 1 % of the recipients were refused, left without an answer or given up",
        "some were, or were put off, or a connection was dropped",
        "see the mail server's log: every recipient must exist, and it must take as many sessions as threads says",
    ),
    def(
        "mail-rate",
        "fewer than 95 % of the messages due by messages_rate were begun inside the window: the server, or threads, is at its limit",
        "fewer than 99 % of them were",
        "offer less, or use more threads; latency from the intended start grows for as long as the window lasts",
    ),
    def(
        "drbd-connection",
        "DRBD was seen in another state than the condition says, its connection was made anew, blocks went out of sync, or DRBD was not watched inside the window",
        "",
        "see the kernel's log on both hosts and the network between; leave telemetry on",
    ),
    def(
        "drbd-congested",
        "DRBD left its peer behind (Ahead, Behind), or its send buffer was full in more than 10 % of the samples (module 8.4: of the readings)",
        "the send buffer was full in one of them, or with protocol A nothing told whether it was",
        "offer less than the link can carry, or use a larger sndbuf-size",
    ),
    def(
        "drbd-resync",
        "a resync or an online verification ran on a watched host",
        "",
        "wait for its end, or pause it",
    ),
    def(
        "foreign-load",
        "others used more than 20 % of the host's cores",
        "others used more than 5 %; with the workload `mail` never more than a warning, since the mail server is among them",
        "stop what else runs there, or measure when it is quiet",
    ),
    def(
        "generator-bound",
        "pgio itself used more than 80 % of a core (of each of its client_threads, or of a mail workload's threads, at most of each core) while it drove the work",
        "",
        "use fewer sessions or longer slices, or run pgio on another machine",
    ),
    def(
        "telemetry-cost",
        "",
        "watching a host took more than 1 % of a core there, or its threads in pgio did",
        "look less often: telemetry = \"5s\"",
    ),
    def(
        "rate-not-reached",
        "fewer than 95 % of the calls due in an open loop were begun inside the window",
        "fewer than 99 % of them were",
        "ask for a lower rate, or for more sessions",
    ),
    def(
        "steal",
        "the hypervisor gave more than 20 % of the host's time to others",
        "it gave more than 5 %",
        "measure on a machine that is not shared, or at another time",
    ),
    def(
        "pressure",
        "",
        "tasks on the host waited for memory during more than 1 % of the window",
        "leave more memory free",
    ),
    def(
        "telemetry-missed",
        "",
        "more than 10 % of the samples came too late",
        "use a longer telemetry interval",
    ),
    def(
        "clock-skew",
        "",
        "the clocks of two hosts differ by more than 50 ms",
        "run a time service on both",
    ),
    def(
        "lying-cache",
        "",
        "commits came faster than the WAL device can flush: some cache answers without keeping",
        "see queue/write_cache, the controller and the hypervisor's cache mode",
    ),
    def(
        "autovacuum",
        "",
        "an autovacuum worker ran inside the window",
        "wait for it before the experiment, or set autovacuum = off in every condition",
    ),
    def(
        "cache",
        "",
        "never: it states the sizes of data set, shared_buffers and memory",
        "make the data set larger than memory, or leave less memory free",
    ),
    def(
        "checkpoints",
        "",
        "one fell inside the window, or they could not be counted",
        "raise max_wal_size and checkpoint_timeout, or make windows long enough to hold several",
    ),
    def(
        "common-start",
        "",
        "a session began later than 2 % of the window",
        "use fewer sessions or longer windows",
    ),
    def("deadlocks", "", "there were any", "use commit_every = 1 or one session per table"),
    def(
        "not-steady",
        "",
        "the rate, or in an open loop the latency, had a trend or a step inside the window",
        "use a longer warm-up, or longer windows",
    ),
    def(
        "environment-differs",
        "the environment differs from the baseline's, or changed, in something undeclared",
        "",
        "make the conditions alike, or declare the difference as a treatment",
    ),
    def(
        "checkpoint-in-one-condition",
        "a checkpoint fell inside this window and in hardly any other",
        "it did, and the condition or one it is compared with sets max_wal_size, checkpoint_timeout or the like, or checkpoint is not \"before\": then it is part of what is measured",
        "raise max_wal_size and checkpoint_timeout",
    ),
    def(
        "cache-carry-over",
        "",
        "the first trial of most blocks, the experiment's first, or those of its first half, missed shared buffers or read from the device at least a quarter more per visit than others of the same condition (or less, over the experiment)",
        "leave burn_in on, use a longer warm-up, a data set that is several times the cache or all in it, or cache = \"cold\" in every condition",
    ),
    def(
        "data-drift",
        "the data set is more than 5 % larger than at the first trial",
        "",
        "use reset = \"vacuum\" or \"reload\"",
    ),
];

/// Settings that decide when a checkpoint begins and how long it takes: by themselves, or by how much WAL
/// there is until max_wal_size.
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

/// Ids of the checks that can make a trial invalid, and so can be tolerated.
pub fn tolerable() -> Vec<&'static str> {
    CHECKS.iter().filter(|c| !c.invalid.is_empty()).map(|c| c.id).collect()
}

/// Turns the verdict invalid of the tolerated checks into a warning that says so.
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
    fn ids_are_unique_and_say_something() {
        for (i, c) in CHECKS.iter().enumerate() {
            assert!(CHECKS[i + 1..].iter().all(|other| other.id != c.id), "{}", c.id);
            assert!(!c.invalid.is_empty() || !c.warning.is_empty(), "{}", c.id);
            assert!(!c.remedy.is_empty(), "{}", c.id);
        }
    }

    #[test]
    fn only_what_is_named_is_tolerated() {
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
