//! Foreign load: processor time that others used on a measured host, or that the hypervisor took.
//!
//! The share of all cores is not enough: on a host of 64 cores, three busy programs use less than 5 %, and
//! still take the core that a session needs. So a whole core counts at any size of host, and so does the
//! time in which the servers' processes were ready to run and waited for a core (`/proc/PID/schedstat`).
//! They wait for each other as well; the part that others cause is taken to be their share of the processor
//! time in use.

use pgio_results::checks::remedy;
use pgio_results::model::{Check, CheckVerdict, Trial};
use pgio_results::telemetry::{HostUse, Telemetry};

/// Share of a host's cores, or of the window by which others delayed the servers.
const INVALID_SHARE: f64 = 0.20;
/// The same share for a warning; `experiment::doctor` takes it as well.
pub(in crate::experiment) const FOREIGN_WARNING_SHARE: f64 = 0.05;
/// Cores that are a warning at any size of the host.
const WARNING_CORES: f64 = 1.0;

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
    let invalid_above = if mail { f64::INFINITY } else { INVALID_SHARE };
    let judged = telemetry.hosts.iter().filter_map(|(name, host)| {
        let (cores, foreign) = (host.cores.filter(|n| *n > 0)?, host.foreign_cores?);
        let share = foreign / f64::from(cores);
        let delay = delay(host, foreign);
        let worse = share.max(delay.unwrap_or_default());
        let by_cores =
            if foreign >= WARNING_CORES { CheckVerdict::Warning } else { CheckVerdict::Ok };
        let verdict = verdict(worse, invalid_above).max(by_cores);
        let waited = delay.filter(|d| *d > FOREIGN_WARNING_SHARE).map_or_else(String::new, |d| {
            let all = percent(host.run_delay.unwrap_or_default());
            format!(
                "; the servers' processes waited for a core {all} of the time, {} because of others",
                percent(d)
            )
        });
        let message = format!(
            "other processes{} used {foreign:.2} of {cores} cores ({}) on `{name}`{waited}",
            if mail { ", including the mail server," } else { "" },
            percent(share)
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

pub(super) fn steal(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "steal";
    let (name, _, share) = worst(telemetry, |h| h.cpu.get("steal").copied())?;
    let message = format!("the hypervisor took {} of the time of `{name}`", percent(share));
    Some(check(ID, verdict(share, INVALID_SHARE), message, remedy(ID)))
}

/// Judges processor time that the work did not get; above `invalid_above` the trial does not count.
fn verdict(share: f64, invalid_above: f64) -> CheckVerdict {
    match share {
        s if s > invalid_above => CheckVerdict::Invalid,
        s if s > FOREIGN_WARNING_SHARE => CheckVerdict::Warning,
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
    fn servers_that_wait_for_each_other_are_not_accused() {
        // Sixteen sessions on two cores; a monitoring agent uses 2 % of the time.
        let check = judged(2, 2.0, 0.04, Some(0.8));
        assert_eq!(check.verdict, CheckVerdict::Ok, "{}", check.message);
    }
}
