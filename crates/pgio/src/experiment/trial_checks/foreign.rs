//! Foreign load: processor time that others used on a measured host, or that the hypervisor took.
//!
//! The share of all cores is not enough: on a host of 64 cores, three busy programs use less than 5 %, and
//! still take the core that a session needs. So a whole core counts at any size of host, and so does the
//! time in which the servers' processes were ready to run and waited for a core (`/proc/PID/schedstat`).
//! They wait for each other as well; the part that others cause is taken to be their share of the processor
//! time in use.

use crate::host::called;
use pgio_results::checks::remedy;
use pgio_results::model::{Check, CheckVerdict, Trial};
use pgio_results::telemetry::{DatabaseUse, HostUse, Telemetry};
use pgio_results::thresholds::{
    FOREIGN_CORES, FOREIGN_INVALID, FOREIGN_WARNING, UNSEEN_BLOCKS, UNSEEN_TRANSACTIONS,
};

/// A session that is seen fewer times in a short window may be one short query.
const INVALID_SIGHTINGS: f64 = 2.5;
const WARNING_SIGHTINGS: f64 = 1.5;
/// Number of other databases that are named.
const DATABASES: usize = 3;

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Returns the host with the largest share.
pub(super) fn worst(
    telemetry: &Telemetry,
    share: impl Fn(&HostUse) -> Option<f64>,
) -> Option<(&str, &HostUse, f64)> {
    let shares =
        telemetry.hosts.iter().filter_map(|(name, host)| Some((name.as_str(), host, share(host)?)));
    shares.max_by(|a, b| a.2.total_cmp(&b.2))
}

pub(super) fn load(trial: &Trial, telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "foreign-load";
    // The mail server is not distinguished from other programs.
    let mail = trial.workload.kind == "mail";
    let invalid_above = if mail { f64::INFINITY } else { FOREIGN_INVALID.0 };
    let judged = telemetry.hosts.iter().filter_map(|(name, host)| {
        let (cores, foreign) = (host.cores.filter(|n| *n > 0)?, host.foreign_cores?);
        let share = foreign / f64::from(cores);
        let delay = delay(host, foreign);
        let worse = share.max(delay.unwrap_or_default());
        let by_cores =
            if foreign >= FOREIGN_CORES { CheckVerdict::Warning } else { CheckVerdict::Ok };
        let verdict = verdict_of(worse, invalid_above).max(by_cores);
        let waited = delay.filter(|d| *d > FOREIGN_WARNING.0).map_or_else(String::new, |d| {
            let all = percent(host.run_delay.unwrap_or_default());
            format!(
                "; the servers' processes waited for a core {all} of the time, {} because of others",
                percent(d)
            )
        });
        let message = format!(
            "other processes{} used {foreign:.2} of {cores} cores ({}) on {}{waited}",
            if mail { ", including the mail server," } else { "" },
            percent(share),
            called(name)
        );
        Some((verdict, worse, message))
    });
    let (verdict, _, message) = judged.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
    Some(check(ID, verdict, message, remedy(ID)))
}

/// The share of the window by which others delayed the servers' processes.
fn delay(host: &HostUse, foreign: f64) -> Option<f64> {
    let used = |state: &str| host.cpu.get(state).copied().unwrap_or_default();
    let busy = (used("user") + used("system")) * f64::from(host.cores?);
    let busy = busy.max(foreign);
    (busy > 0.0).then_some(host.run_delay? * foreign / busy)
}

/// Judges what others did on the server itself: their processes are the server's, and no foreign load of the host.
pub(super) fn sessions(trial: &Trial, telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "foreign-sessions";
    let found = telemetry.foreign_sessions.as_ref()?;
    let cores = telemetry.hosts.values().filter_map(|host| {
        let (cores, used) = (host.cores.filter(|n| *n > 0)?, host.foreign_session_cores?);
        Some((used, cores))
    });
    let cores = cores.max_by(|a, b| a.0.total_cmp(&b.0));
    let mut parts = Vec::new();
    let mut verdict = CheckVerdict::Ok;
    match (&found.active, &telemetry.waits) {
        (Some(active), Some(waits)) => {
            // A program may give its sessions any name.
            let own = Some(&trial.server.database).filter(|_| trial.workload.kind == "command");
            let active = || active.iter().filter(|(database, _)| Some(*database) != own);
            let sessions: f64 = active().map(|(_, sessions)| sessions).sum();
            let seen = sessions * waits.rounds as f64;
            let share = sessions / f64::from(waits.sessions.max(1));
            verdict = match verdict_of(share, FOREIGN_INVALID.0) {
                CheckVerdict::Invalid if seen < INVALID_SIGHTINGS => CheckVerdict::Warning,
                CheckVerdict::Warning if seen < WARNING_SIGHTINGS => CheckVerdict::Ok,
                verdict => verdict,
            };
            parts.extend(active().map(|(database, sessions)| {
                format!("{sessions:.2} sessions of others were active on average in {database}")
            }));
        }
        _ => {
            let busy = |work: &DatabaseUse| {
                work.transactions > UNSEEN_TRANSACTIONS || work.blocks > UNSEEN_BLOCKS
            };
            if found.databases.values().any(busy) {
                verdict = CheckVerdict::Warning;
            }
            parts.push("whether sessions of others were active is unknown".to_owned());
        }
    }
    if let Some((used, cores)) = cores {
        verdict = verdict.max(verdict_of(used / f64::from(cores), FOREIGN_INVALID.0));
        parts.push(format!("they used {used:.2} of {cores} cores"));
    }
    if parts.is_empty() {
        return Some(Check::ok(ID, "no session of others was active on the server"));
    }
    let mut databases: Vec<(&String, &DatabaseUse)> = found.databases.iter().collect();
    databases.sort_by(|a, b| b.1.blocks.total_cmp(&a.1.blocks));
    parts.extend(databases.into_iter().take(DATABASES).map(|(name, work)| {
        let DatabaseUse { transactions, tuples, blocks } = work;
        format!(
            "{name} had {transactions:.0} transactions, {tuples:.0} changed tuples and {blocks:.0} block visits a second"
        )
    }));
    Some(check(ID, verdict, parts.join("; "), remedy(ID)))
}

pub(super) fn steal(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "steal";
    let (name, _, share) = worst(telemetry, |h| h.cpu.get("steal").copied())?;
    let message = format!("the hypervisor took {} of the time of {}", percent(share), called(name));
    Some(check(ID, verdict_of(share, FOREIGN_INVALID.0), message, remedy(ID)))
}

/// Judges processor time that the work did not get; above `invalid_above` the trial does not count.
fn verdict_of(share: f64, invalid_above: f64) -> CheckVerdict {
    match share {
        s if s > invalid_above => CheckVerdict::Invalid,
        s if s > FOREIGN_WARNING.0 => CheckVerdict::Warning,
        _ => CheckVerdict::Ok,
    }
}

fn check(id: &str, verdict: CheckVerdict, message: String, remedy: &str) -> Check {
    match verdict {
        CheckVerdict::Ok => Check::ok(id, message),
        CheckVerdict::Warning => Check::warning(id, message, remedy),
        CheckVerdict::Invalid => Check::invalid(id, message, remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::telemetry::{ForeignSessions, Waits};
    use pgio_results::test_support::full_trial;
    use std::collections::BTreeMap;

    /// A host on which all processes together used `busy` cores.
    fn judged(cores: u32, busy: f64, foreign: f64, run_delay: Option<f64>) -> Check {
        let host = HostUse {
            cores: Some(cores),
            cpu: BTreeMap::from([("user".to_owned(), busy / f64::from(cores))]),
            foreign_cores: Some(foreign),
            run_delay,
            ..HostUse::default()
        };
        let hosts = BTreeMap::from([("db".to_owned(), host)]);
        load(&full_trial(), &Telemetry { hosts, ..Telemetry::default() }).unwrap()
    }

    #[test]
    fn three_busy_programs_are_not_hidden_by_64_cores() {
        let check = judged(64, 7.0, 3.0, Some(0.01));
        assert_eq!(check.verdict, CheckVerdict::Warning, "{}", check.message);
        assert!(check.message.starts_with("other processes used 3.00 of 64 cores (4.7 %)"));
        assert_eq!(judged(64, 5.0, 0.4, Some(0.01)).verdict, CheckVerdict::Ok);
        assert_eq!(judged(64, 5.0, 0.4, None).verdict, CheckVerdict::Ok);
    }

    #[test]
    fn foreign_load_on_a_shared_core_invalidates_the_trial() {
        // One core that a session and a foreign program share, of 64.
        let check = judged(64, 1.0, 0.5, Some(0.5));
        assert_eq!(check.verdict, CheckVerdict::Invalid, "{}", check.message);
        assert!(
            check
                .message
                .ends_with("waited for a core 50.0 % of the time, 25.0 % because of others"),
            "{}",
            check.message
        );
    }

    #[test]
    fn sessions_of_others_on_the_server_are_judged_against_those_of_the_workload() {
        let judged = |active: Option<&[(&str, f64)]>, cores: Option<f64>, edit: fn(&mut Trial)| {
            let mut trial = full_trial();
            trial.workload.kind = "commit".to_owned();
            edit(&mut trial);
            let named = |(name, n): &(&str, f64)| ((*name).to_owned(), *n);
            let busy = DatabaseUse { transactions: 540.0, tuples: 2160.0, blocks: 9800.0 };
            let host =
                HostUse { cores: Some(4), foreign_session_cores: cores, ..HostUse::default() };
            let telemetry = Telemetry {
                hosts: BTreeMap::from([("db".to_owned(), host)]),
                waits: Some(Waits { rounds: 40, sessions: 4, ..Waits::default() }),
                foreign_sessions: Some(ForeignSessions {
                    active: active.map(|all| all.iter().map(named).collect()),
                    databases: BTreeMap::from([("shop".to_owned(), busy)]),
                }),
                ..Telemetry::default()
            };
            sessions(&trial, &telemetry).unwrap()
        };
        let verdict = |active: &[_], cores| judged(Some(active), cores, |_| {}).verdict;
        assert_eq!(verdict(&[], None), CheckVerdict::Ok);
        assert_eq!(verdict(&[("shop", 0.1)], None), CheckVerdict::Ok);
        assert_eq!(verdict(&[("shop", 0.4)], None), CheckVerdict::Warning);
        assert_eq!(verdict(&[("shop", 0.5), ("mine", 0.5)], None), CheckVerdict::Invalid);
        assert_eq!(verdict(&[("shop", 0.1)], Some(1.0)), CheckVerdict::Invalid, "a core of four");
        let check = judged(Some(&[("shop", 1.9)]), Some(0.3), |_| {});
        assert_eq!(
            check.message,
            "1.90 sessions of others were active on average in shop; they used 0.30 of 4 cores; \
             shop had 540 transactions, 2160 changed tuples and 9800 block visits a second"
        );
        assert_eq!(judged(None, None, |_| {}).verdict, CheckVerdict::Warning, "work is seen");
        // The sessions of a program may have any name.
        let program = |trial: &mut Trial| {
            trial.workload.kind = "command".to_owned();
            trial.server.database = "shop".to_owned();
        };
        assert_eq!(judged(Some(&[("shop", 3.0)]), None, program).verdict, CheckVerdict::Ok);
    }

    #[test]
    fn servers_that_wait_for_each_other_are_not_accused() {
        // Sixteen sessions on two cores; a monitoring agent uses 2 % of the time.
        let check = judged(2, 2.0, 0.04, Some(0.8));
        assert_eq!(check.verdict, CheckVerdict::Ok, "{}", check.message);
    }
}
