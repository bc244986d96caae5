//! Checks of one trial's record: whether its condition held, whether the data stayed
//! the same, and in [`observed`] what else happened. The ids are in [`pgio_results::checks`].

pub(super) mod apart;
mod foreign;
mod observed;
mod standby;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::feature;
use crate::treatment::InForce;
use pgio_results::change::{Change, Subject};
use pgio_results::checks::{self, CLOCK_STEP, Kind, WEAVE_ENDED, WEAVE_GUARD};
use pgio_results::model::{Check, CheckVerdict, Evidence, Outcome, Trial, When};
use pgio_results::telemetry::Series;
use pgio_results::telemetry::{HostUse, Telemetry};
use pgio_results::thresholds::{
    CLOCK_MOVED, DATA_CHANGED, LATE_SLICES, LATE_START, RATE_REACHED, SHORT_STALL,
    SHORT_STALL_SECONDS, STALL, STALL_SECONDS,
};

pub(super) use self::observed::{lies_on, storage};

/// Evidence of sessions that may be a program's and did not take its options.
pub(super) const UNPROVEN: &str = "sessions without the command's options";

/// Adds verdicts to the record. `waits_for_flush`: whether each commit of the workload does by itself.
pub(crate) fn judge(
    trial: &mut Trial,
    series: Option<&Series>,
    declared: &[Change],
    waits_for_flush: bool,
    treatments: &[Box<dyn InForce>],
) {
    let mut found = vec![in_force(&trial.evidence), durability(trial, declared)];
    // A window that lost a part has no end, and no counts to judge.
    if trial.outcome == Outcome::Complete && !lost_a_part(trial) {
        // Windows of whole cycles are judged already.
        if !trial.checks.iter().any(|c| c.id == "checkpoints") {
            found.push(checkpoints(trial));
        }
        found.extend(data_size(trial));
        found.extend(unlogged(trial));
        found.extend(deadlocks(trial));
        found.extend(standby::durability(trial));
        found.extend(standby::changed(trial));
        found.extend(feature::judge(trial, declared));
        found.extend(open_loop_rate(trial));
        found.extend(observed::checks(trial, series, waits_for_flush));
        found.extend(treatments.iter().flat_map(|t| t.judge(trial)));
    }
    found.iter_mut().for_each(|check| attribute_to_condition(check, declared));
    trial.checks.extend(found);
    mark_behavior(&mut trial.checks);
    // A check that is not in the table can neither be tolerated nor looked up: a bug.
    debug_assert!(trial.checks.iter().all(|c| feature::definition(&c.id).is_some()));
    let counts = |c: &Check| c.verdict != CheckVerdict::Invalid || !c.behavior;
    debug_assert!(trial.checks.iter().all(counts), "behavior never makes a trial invalid");
}

/// Whether a process that did a part of the work was lost inside the window.
pub(super) fn lost_a_part(trial: &Trial) -> bool {
    let is_loss = |check: &Check| feature::generators().any(|kind| kind.lost == check.id);
    trial.checks.iter().any(is_loss)
}

/// The treatments in force on one server of a joint window.
pub(super) struct ServerTreatments<'a> {
    /// That of its own trial, with the names that the treatments gave.
    pub(super) evidence: &'a [Evidence],
    pub(super) treatments: &'a [Box<dyn InForce>],
}

/// Adds to the checks of several servers' trials the verdicts on what they share: hosts, and the treatments of all.
pub(super) fn judge_shared(
    trial: &mut Trial,
    declared: &[Change],
    servers: &[ServerTreatments<'_>],
) {
    if trial.outcome != Outcome::Complete {
        return;
    }
    // The servers' own observations, such as their flushes ([`flushes`]), are judged already.
    let mut found = observed::checks(trial, None, false);
    found.extend(feature::judge(trial, declared));
    found.retain(|check| trial.checks.iter().all(|known| known.id != check.id));
    found.extend(treatment_checks(trial, servers));
    found.iter_mut().for_each(|check| attribute_to_condition(check, declared));
    trial.checks.extend(found);
    mark_behavior(&mut trial.checks);
}

/// A reader of the record may lack the feature that defines a check.
fn mark_behavior(checks: &mut [Check]) {
    for check in checks {
        check.behavior = feature::definition(&check.id).is_some_and(|c| c.kind == Kind::Behavior);
    }
}

/// Judges the flushes of one server in a joint window, whose `hosts` were observed for all servers.
pub(super) fn flushes(trial: &Trial, hosts: &BTreeMap<String, HostUse>) -> Option<Check> {
    if trial.outcome != Outcome::Complete || lost_a_part(trial) {
        return None;
    }
    let own = trial.telemetry.clone()?;
    observed::lying_cache(trial, &Telemetry { hosts: hosts.clone(), ..own })
}

/// A treatment finds its evidence by the names that it gave, which the common record prefixes with the server. Two
/// servers may use the same names for different hosts, so each is judged by its own evidence alone.
fn treatment_checks(trial: &mut Trial, servers: &[ServerTreatments<'_>]) -> Vec<Check> {
    let evidence = std::mem::take(&mut trial.evidence);
    let mut found = Vec::new();
    for server in servers {
        trial.evidence = server.evidence.to_vec();
        found.extend(server.treatments.iter().flat_map(|t| t.judge(trial)));
    }
    trial.evidence = evidence;
    found
}

/// A consequence of a declared setting is an effect of the condition, not a fault of the trial.
fn attribute_to_condition(check: &mut Check, declared: &[Change]) {
    let causes: fn(&str) -> bool = match check.id.as_str() {
        "checkpoints" => checks::decides_checkpoints,
        "autovacuum" => |name| name.starts_with("autovacuum"),
        _ => return,
    };
    let settings = declared.iter().filter(|c| c.subject == Subject::Server).map(|c| &c.setting);
    if let (CheckVerdict::Warning, Some(name)) =
        (check.verdict, settings.into_iter().find(|name| causes(name)))
    {
        check.message = format!("{}; the condition sets {name}", check.message);
        check.remedy = format!("ignore this if you compare {name}; otherwise {}", check.remedy);
    }
}

fn in_force(evidence: &[Evidence]) -> Check {
    const ID: &str = checks::IN_FORCE;
    // A value expected before the window but not afterwards was removed, such as
    // synchronous_standby_names.
    let expected_before = |what: &str| {
        let before = evidence.iter().find(|e| e.when == When::Before && e.what == what);
        before.and_then(|e| e.expected.as_deref())
    };
    let broken: Vec<String> = evidence
        .iter()
        .filter(|e| !e.holds() || e.expected.is_none() && expected_before(&e.what).is_some())
        .map(|e| {
            let expected = e.expected.as_deref().or_else(|| expected_before(&e.what));
            let expected = expected.unwrap_or_default();
            format!("{} was {} instead of {expected}", e.what, e.found)
        })
        .collect();
    if !broken.is_empty() {
        return Check::invalid(ID, broken.join("; "), "find out what changes it, then run again");
    }
    if let Some(unproven) = evidence.iter().find(|e| e.what == UNPROVEN) {
        return Check::warning(
            ID,
            format!(
                "not proven for {} sessions that began in the window as the command's role, without its PGOPTIONS",
                unproven.found
            ),
            "if they are the program's, have it take PGOPTIONS as libpq does, or set what the condition needs for all sessions (ALTER ROLE … SET)",
        );
    }
    Check::ok(ID, format!("{} readings before, during and after the window agree", evidence.len()))
}

fn durability(trial: &Trial, declared: &[Change]) -> Check {
    let undeclared: Vec<&str> =
        [("fsync", &trial.server.fsync), ("full_page_writes", &trial.server.full_page_writes)]
            .into_iter()
            .filter(|(name, value)| *value == "off" && !declared.iter().any(|c| c.sets(name)))
            .map(|(name, _)| name)
            .collect();
    durability_without(&undeclared)
}

/// Judges a server with these of fsync and full_page_writes off, although not every condition sets them.
pub(super) fn durability_without(off: &[&str]) -> Check {
    const ID: &str = "durability";
    if off.is_empty() {
        Check::ok(ID, "fsync and full_page_writes are on or set by the condition")
    } else {
        Check::invalid(
            ID,
            format!("{} is off, and not every condition sets it", off.join(" and ")),
            "turn it on, or set it in every condition, such as postgres = { fsync = \"off\" }",
        )
    }
}

fn checkpoints(trial: &Trial) -> Check {
    const ID: &str = "checkpoints";
    match trial.metrics.get("checkpoints").and_then(|m| m.value) {
        Some(0.0) => Check::ok(ID, "no checkpoint inside the window"),
        Some(n) => Check::warning(
            ID,
            format!("checkpoints inside the window: {n}"),
            "raise max_wal_size and checkpoint_timeout, or use windows long enough to hold several",
        ),
        None => Check::warning(ID, "checkpoints could not be counted", "GRANT pg_monitor TO ROLE"),
    }
}

fn data_size(trial: &Trial) -> Option<Check> {
    const ID: &str = "data-size";
    let data = trial.dataset.as_ref()?;
    let change = data.bytes_after as f64 / data.bytes_before.max(1) as f64 - 1.0;
    Some(if change.abs() <= DATA_CHANGED.0 {
        Check::ok(ID, format!("the data set's size changed by {:.2} %", change * 100.0))
    } else {
        // Data grows with the work done: discarding the trial would keep only the
        // slow trials of a fast condition.
        Check::warning(
            ID,
            format!("the data set's size changed by {:.1} % inside the window", change * 100.0),
            checks::remedy(ID),
        )
    })
}

fn unlogged(trial: &Trial) -> Option<Check> {
    trial.dataset.as_ref()?.layout.unlogged.then(|| {
        Check::warning(
            "unlogged",
            "the tables are unlogged: commits wait neither for the disk nor for a standby",
            "load with unlogged = false to measure durability or replication",
        )
    })
}

fn deadlocks(trial: &Trial) -> Option<Check> {
    let deadlocks: u64 = trial.sessions.iter().map(|s| s.deadlocks).sum();
    (deadlocks > 0).then(|| {
        Check::warning(
            "deadlocks",
            format!("deadlocks and lock timeouts, rolled back and counted: {deadlocks}"),
            "use commit_every = 1 or one session per table",
        )
    })
}

/// Checks the common start: the original launched sessions one after the other, which inflated its rates.
pub(super) fn common_start(late: f64, window: f64) -> Check {
    const ID: &str = "common-start";
    let message = format!("a session started {:.0} ms late", late * 1e3);
    if late <= window * LATE_START.0 {
        Check::ok(ID, format!("all sessions started within {:.1} ms", late * 1e3))
    } else if late < window {
        Check::warning(ID, message, checks::remedy(ID))
    } else {
        Check::invalid(ID, message, checks::remedy(ID))
    }
}

/// Checks a window that is timed by the server's clock.
pub(super) fn clock_step(moved: f64, window: f64) -> Option<Check> {
    (moved.abs() > window * CLOCK_MOVED.0).then(|| {
        Check::invalid(
            CLOCK_STEP,
            format!(
                "the server's clock moved by {:+.0} ms against this machine's in a window of {window:.2} s",
                moved * 1e3
            ),
            checks::remedy(CLOCK_STEP),
        )
    })
}

/// Checks that what generated the load worked throughout the window: what sessions wait for it is no stall of the
/// condition's.
pub(super) fn generator_stall(stood_still: f64, window: f64) -> Option<Check> {
    const ID: &str = "generator-stalled";
    let message = format!("pgio, or a driver, stood still for {stood_still:.2} s of {window:.2} s");
    let is = |seconds: f64, share: f64, least: f64| {
        stood_still >= seconds || stood_still >= (share * window).max(least)
    };
    if is(STALL_SECONDS, STALL.0, SHORT_STALL_SECONDS) {
        Some(Check::invalid(ID, message, checks::remedy(ID)))
    } else if is(SHORT_STALL_SECONDS, SHORT_STALL.0, SHORT_STALL_SECONDS / 2.0) {
        Some(Check::warning(ID, message, checks::remedy(ID)))
    } else {
        None
    }
}

/// Checks a condition of a woven window: the guard of its slices is not spent before the sessions begin.
pub(super) fn late_slices(late: usize, slices: usize) -> Option<Check> {
    (late as f64 > slices as f64 * LATE_SLICES.0).then(|| {
        Check::warning(
            WEAVE_GUARD,
            format!("in {late} of {slices} slices a session began after half of the guard"),
            checks::remedy(WEAVE_GUARD),
        )
    })
}

/// Checks a woven window that another condition ended.
pub(super) fn ended_by(condition: &str, error: &str) -> Check {
    let message = format!("the window ended in a slice of `{condition}`: {error}");
    Check::invalid(WEAVE_ENDED, message, checks::remedy(WEAVE_ENDED))
}

/// Checks a woven window: each slice begins when the standby has applied what the last one left.
pub(super) fn standby_lag(slices: u32) -> Option<Check> {
    (slices > 0).then(|| {
        Check::warning(
            "weave-standby",
            format!(
                "slices that began before the standby had applied the previous commits: {slices}"
            ),
            "use weave = false, or find out what delays the standby",
        )
    })
}

/// Checks a woven window: calls end within a slice. A length is compared with them before block 1 only.
pub(super) fn slow_calls(slice: Duration, slowest: Option<Duration>) -> Option<Check> {
    let took = match slowest {
        Some(call) if call <= slice => return None,
        Some(call) => format!("a call of one session took {:.1} ms on average", ms(call)),
        None => "a session ended no call in its slices".to_owned(),
    };
    Some(Check::warning(
        "weave-slow-calls",
        format!("{took}, and slices have a mean length of {:.0} ms", ms(slice)),
        "name longer slices, or use weave = false",
    ))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Reports canceled waits. Ending the sessions of a trial that failed cancels them as well, so there they are
/// no fault of the measurement.
pub(super) fn canceled_waits(times: usize, failed: bool) -> Option<Check> {
    (times > 0 && !failed).then(|| {
        Check::invalid(
            "synchronous-wait-cancelled",
            format!(
                "commits acknowledged without the standby because their wait was canceled: {times}"
            ),
            "check whether the standby was lost, and run again",
        )
    })
}

/// An open loop that falls behind measures another load than requested.
fn open_loop_rate(trial: &Trial) -> Option<Check> {
    const ID: &str = "rate-not-reached";
    let reached = trial.metrics.get("rate_reached")?.value?;
    let asked = trial.workload.keys.get("rate")?.as_u64()?;
    let per_second = trial.metrics.get("calls_per_second")?.value?;
    let message = format!(
        "{reached:.1} % of {asked} calls/s could be started; {per_second:.0}/s were answered"
    );
    let remedy = "use a lower rate, or more sessions if they are the bottleneck";
    Some(check_reached(ID, reached, message, remedy))
}

/// `reached` is the percentage of due calls that were started.
pub(crate) fn check_reached(id: &str, reached: f64, message: String, remedy: &str) -> Check {
    match reached {
        r if r < RATE_REACHED.0 * 100.0 => Check::warning(id, message, remedy),
        _ => Check::ok(id, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::treatment::{Context, failed_reading};
    use pgio_results::model::Metric;
    use pgio_results::telemetry::{Device, DeviceUse, Probes, Storage};

    #[test]
    fn canceled_synchronous_waits_are_reported_unless_the_trial_failed() {
        let id = |times, failed| canceled_waits(times, failed).map(|check| check.id);
        assert_eq!(id(2, false).as_deref(), Some("synchronous-wait-cancelled"));
        assert_eq!((id(0, false), id(2, true)), (None, None));
    }

    #[test]
    fn a_generator_that_stood_still_is_no_stall_of_the_condition() {
        let verdict = |stood_still, window| generator_stall(stood_still, window).map(|c| c.verdict);
        assert_eq!(verdict(0.1, 0.35), None, "a busy machine");
        assert_eq!(verdict(0.13, 0.35), Some(CheckVerdict::Warning));
        assert_eq!(verdict(0.3, 0.35), Some(CheckVerdict::Invalid));
        assert_eq!(verdict(0.3, 60.0), Some(CheckVerdict::Warning));
        assert_eq!(verdict(1.0, 3600.0), Some(CheckVerdict::Invalid));
    }

    #[test]
    fn a_clock_that_moves_by_more_than_a_hundredth_of_the_window_invalidates_the_trial() {
        for (moved, window, is_found) in
            [(0.04, 5.0, false), (0.06, 5.0, true), (-0.06, 5.0, true), (0.06, 60.0, false)]
        {
            let found = clock_step(moved, window);
            assert_eq!(found.is_some(), is_found, "{moved} {window}");
            assert!(found.is_none_or(|check| check.verdict == CheckVerdict::Invalid));
        }
        let text = clock_step(-0.5, 5.0).unwrap().message;
        assert!(text.contains("moved by -500 ms"), "{text}");
    }

    /// Judges as a link does: by one reading of a name that is the same on every server.
    #[derive(Debug)]
    struct Counted;

    impl InForce for Counted {
        fn verify(&mut self, _context: &mut Context<'_>, _when: When) -> Vec<Evidence> {
            Vec::new()
        }

        fn judge(&self, trial: &Trial) -> Vec<Check> {
            let found = trial.evidence.iter().filter(|e| e.what == "packets through eth1");
            let found: Vec<&str> = found.map(|e| e.found.as_str()).collect();
            vec![Check::ok("link", found.join(" and "))]
        }
    }

    #[test]
    fn a_treatment_in_a_joint_window_is_judged_by_its_own_servers_evidence() {
        let counted = |what: &str, found: &str| Evidence {
            when: When::After,
            what: what.to_owned(),
            found: found.to_owned(),
            expected: None,
        };
        let joint = [("a: packets through eth1", "7"), ("b: packets through eth1", "9")];
        let mut trial = Trial {
            evidence: joint.map(|(what, found)| counted(what, found)).to_vec(),
            checks: Vec::new(),
            ..pgio_results::test_support::full_trial()
        };
        let own = ["7", "9"].map(|found| [counted("packets through eth1", found)]);
        let treatments: [Box<dyn InForce>; 1] = [Box::new(Counted)];
        let servers =
            own.each_ref().map(|evidence| ServerTreatments { evidence, treatments: &treatments });
        judge_shared(&mut trial, &[], &servers);
        let links = trial.checks.iter().filter(|check| check.id == "link");
        assert_eq!(links.map(|check| check.message.as_str()).collect::<Vec<_>>(), ["7", "9"]);
        assert_eq!(trial.evidence[1].what, "b: packets through eth1", "the record keeps its names");
    }

    /// One session commits 5200 times a second where the probe found a flush of 1 ms.
    #[test]
    fn a_server_of_a_joint_window_is_judged_by_its_own_probes_and_the_common_hosts() {
        let wal = Storage {
            role: "wal".to_owned(),
            host: "db".to_owned(),
            devices: vec![Device { name: "vdb".to_owned(), ..Device::default() }],
            ..Storage::default()
        };
        let mut trial = Trial {
            telemetry: Some(Telemetry {
                storage: vec![wal],
                probes: Some(Probes { flush_seconds: Some(0.001), ..Probes::default() }),
                ..Telemetry::default()
            }),
            ..pgio_results::test_support::full_trial()
        };
        let commits = Metric::new(Some(5200.0), "commits/s");
        trial.metrics.insert("commits_per_second".to_owned(), commits);
        let flushed = |rate: f64| {
            let device = DeviceUse { flushes_per_second: Some(rate), ..DeviceUse::default() };
            let devices = BTreeMap::from([("vdb".to_owned(), device)]);
            BTreeMap::from([("db".to_owned(), HostUse { devices, ..HostUse::default() })])
        };
        let verdict = |trial: &Trial, hosts: &BTreeMap<String, HostUse>| {
            flushes(trial, hosts).map(|check| (check.id, check.verdict))
        };
        let lying = |verdict| Some(("lying-cache".to_owned(), verdict));
        assert_eq!(verdict(&trial, &flushed(3.0)), lying(CheckVerdict::Warning));
        assert_eq!(verdict(&trial, &BTreeMap::new()), lying(CheckVerdict::Warning));
        assert_eq!(verdict(&trial, &flushed(1500.0)), lying(CheckVerdict::Ok));
        trial.outcome = Outcome::Interrupted;
        assert_eq!(verdict(&trial, &flushed(3.0)), None);
    }

    #[test]
    fn a_session_that_starts_after_the_end_invalidates_the_trial() {
        let verdict = |late| common_start(late, 2.0).verdict;
        assert_eq!(verdict(0.04), CheckVerdict::Ok);
        assert_eq!((verdict(0.05), verdict(1.9)), (CheckVerdict::Warning, CheckVerdict::Warning));
        assert_eq!(verdict(2.0), CheckVerdict::Invalid);
    }

    #[test]
    fn some_slices_may_begin_late() {
        assert_eq!((late_slices(0, 0), late_slices(2, 40)), (None, None));
        assert!(late_slices(3, 40).is_some_and(|check| check.message.contains("3 of 40")));
    }

    fn reading(when: When, found: &str, expected: Option<&str>) -> Evidence {
        Evidence {
            when,
            what: "synchronous standby".to_owned(),
            found: found.to_owned(),
            expected: expected.map(str::to_owned),
        }
    }

    #[test]
    fn calls_that_outgrow_their_slices_are_reported() {
        let found = |call| slow_calls(Duration::from_millis(20), call).map(|c| c.message);
        assert_eq!(found(Some(Duration::from_millis(20))), None);
        assert_eq!(
            found(Some(Duration::from_micros(31_250))).as_deref(),
            Some(
                "a call of one session took 31.2 ms on average, and slices have a mean length of 20 ms"
            )
        );
        assert!(found(None).is_some_and(|text| text.starts_with("a session ended no call")));
    }

    #[test]
    fn a_reading_that_fails_inside_the_window_is_not_judged() {
        let what = "synchronous standby";
        let good = reading(When::Before, "s1: sync", Some("s1: sync"));
        let after = reading(When::After, "s1: sync", Some("s1: sync"));
        let failed = |when| failed_reading(when, what);
        let check = in_force(&[good.clone(), failed(When::During), after]);
        assert_eq!(check.verdict, CheckVerdict::Ok, "{}", check.message);
        let check = in_force(&[good, failed(When::During), failed(When::After)]);
        assert_eq!(check.verdict, CheckVerdict::Invalid);
        let expected = "synchronous standby was unreadable instead of readable";
        assert_eq!(check.message, expected);
    }

    #[test]
    fn a_value_that_is_no_longer_expected_is_not_in_force() {
        let good = reading(When::Before, "s1: sync", Some("s1: sync"));
        let demoted = reading(When::During, "s1: async", None);
        let check = in_force(&[good.clone(), demoted.clone()]);
        assert_eq!(check.verdict, CheckVerdict::Invalid);
        assert!(check.message.contains("s1: async instead of s1: sync"), "{}", check.message);
        assert_eq!(in_force(&[good]).verdict, CheckVerdict::Ok);
        // No value was expected from the beginning.
        let free = reading(When::Before, "s1: async", None);
        assert_eq!(in_force(&[free, demoted]).verdict, CheckVerdict::Ok);
    }
}
