//! Every validity check: its name, what it says of a trial, what to do about it.
//!
//! The one table behind `tolerate =`, the documentation and the tests. A check judges where the
//! facts are (`experiment::trial_checks` one trial, `analysis` several); nothing here judges. The
//! remedy here is the general one: a check that knows more says more.
//!
//! A check is of one of two kinds. Where the *measurement* is broken the trial says nothing about its
//! condition: it is invalid and repeated. Where the condition *behaves* badly that is the result: the trial
//! counts. To throw such trials away would leave the good ones of a bad condition.

use super::model::{Check, CheckVerdict, Outcome, Trial};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whether the trial measured its condition; can make the trial invalid.
    Measurement,
    /// How the condition behaved; never more than a warning, and its share of the trials is compared.
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

#[derive(Debug, Clone, Copy)]
pub struct CheckDef {
    /// Stable, as stored.
    pub id: &'static str,
    pub kind: Kind,
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
    CheckDef { id, kind: Kind::Measurement, invalid, warning, remedy }
}

const fn behavior(id: &'static str, warning: &'static str, remedy: &'static str) -> CheckDef {
    CheckDef { id, kind: Kind::Behavior, invalid: "", warning, remedy }
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
    behavior(
        "data-size",
        "the data set grew or shrank by more than 2 % in the window",
        "use commit_every = 1, or reset = \"vacuum\" or \"reload\"; what it changes for later trials is judged by data-drift",
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
        "mail-unverified",
        "nobody could look whether the messages that were accepted are in their mail directories",
        "",
        "let pgio read and write there, or leave out maildir",
    ),
    behavior(
        "mail-lost",
        "a message that was accepted is not in its mail directory, or altered, or there twice",
        "see the mail server's log; maildir must be where it delivers to, and nothing else may take mail away",
    ),
    def(
        "mail-earlier",
        "more than 1 % of the messages that arrived were of an earlier trial",
        "some were",
        "see the mail server's log for what kept them; offer less by messages_rate, or deliver with protocol = \"lmtp\"",
    ),
    behavior(
        "mail-refused",
        "recipients were refused, put off, left without an answer or given up, or a connection was dropped",
        "see the mail server's log: every recipient must exist, and it must take as many sessions as threads says",
    ),
    behavior(
        "mail-rate",
        "fewer than 99 % of the messages due by messages_rate were begun inside the window: the server, or threads, is at its limit",
        "offer less, or use more threads; latency from the intended start grows for as long as the window lasts",
    ),
    def(
        "drbd-connection",
        "DRBD was configured otherwise than the condition says (another protocol, StandAlone, connected though it was to be apart), or was not watched inside the window",
        "",
        "find out who changes it; leave telemetry on",
    ),
    behavior(
        "drbd-connection-lost",
        "DRBD lost its peer by itself inside the window: not connected, not up to date, suspended, connected anew, or blocks out of sync",
        "see the kernel's log on both hosts and the network between",
    ),
    behavior(
        "drbd-congested",
        "DRBD left its peer behind (Ahead, Behind), or its send buffer was full in one of the samples (module 8.4: of the readings), or with protocol A nothing told whether it was",
        "offer less than the link can carry, or use a larger sndbuf-size",
    ),
    def(
        "drbd-resync",
        "a resync or an online verification ran on a watched host",
        "it followed from a connection that was lost by itself inside the window",
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
    behavior(
        "rate-not-reached",
        "fewer than 99 % of the calls due in an open loop were begun inside the window",
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
    behavior("deadlocks", "there were any", "use commit_every = 1 or one session per table"),
    behavior(
        "not-steady",
        "the rate, or in an open loop the latency, had a trend or a step inside the window",
        "use a longer warm-up, or longer windows",
    ),
    def(
        "environment-differs",
        "the environment differs from the baseline's, or changed, in something undeclared",
        "",
        "make the conditions alike, or declare the difference as a treatment",
    ),
    behavior(
        "checkpoint-in-one-condition",
        "a checkpoint fell inside this window and in hardly any other, or the condition or one it is compared with sets max_wal_size, checkpoint_timeout or the like: then it is part of what is measured",
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

/// Ids of the checks that can make a trial invalid, and so can be tolerated. Those of behavior are
/// accepted as well, without effect: files written when they made a trial invalid go on working.
pub fn tolerable() -> Vec<&'static str> {
    let accepted = |c: &&CheckDef| !c.invalid.is_empty() || c.kind == Kind::Behavior;
    CHECKS.iter().filter(accepted).map(|c| c.id).collect()
}

pub fn is_behavior(id: &str) -> bool {
    definition(id).is_some_and(|c| c.kind == Kind::Behavior)
}

/// Lets a trial count that an earlier version made invalid for how its condition behaved. Returns
/// whether it counts now and did not before.
pub fn rejudge(trial: &mut Trial) -> bool {
    if trial.outcome != Outcome::Complete || trial.is_valid() {
        return false;
    }
    for check in trial.checks.iter_mut().filter(|c| is_behavior(&c.id)) {
        check.verdict = check.verdict.min(CheckVerdict::Warning);
    }
    trial.is_valid()
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
    use crate::test_support::full_trial;

    #[test]
    fn ids_are_unique_and_say_something() {
        for (i, c) in CHECKS.iter().enumerate() {
            assert!(CHECKS[i + 1..].iter().all(|other| other.id != c.id), "{}", c.id);
            assert!(!c.invalid.is_empty() || !c.warning.is_empty(), "{}", c.id);
            assert!(!c.remedy.is_empty(), "{}", c.id);
            assert!(c.kind == Kind::Measurement || c.invalid.is_empty(), "{}", c.id);
        }
    }

    #[test]
    fn a_check_of_behavior_is_accepted_by_tolerate() {
        for id in ["rate-not-reached", "drbd-congested", "data-size", "foreign-load"] {
            assert!(tolerable().contains(&id), "{id}");
        }
        assert!(!tolerable().contains(&"clock-skew"), "it only warns");
    }

    #[test]
    fn a_trial_thrown_away_for_its_behavior_counts_again() {
        let mut trial = full_trial();
        trial.checks = vec![Check::invalid("rate-not-reached", "40 %", "ask for less")];
        assert!(rejudge(&mut trial) && trial.is_valid());
        assert_eq!(trial.checks[0].verdict, CheckVerdict::Warning);
        assert!(!rejudge(&mut trial), "it counted before");
        trial.checks.push(Check::invalid("steal", "30 %", "measure elsewhere"));
        assert!(!rejudge(&mut trial) && !trial.is_valid());
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
