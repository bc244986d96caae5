//! Whether one of several drivers was the bottleneck: judged for each, since one that is busy slows down
//! its sessions however idle the others are.

use super::foreign::percent;
use pgio_results::drivers::DriverPart;
use pgio_results::model::{Check, Trial};

/// Cores that one thread of a driver may use before it may be the bottleneck.
pub(super) const DRIVER_CORES: f64 = 0.8;
/// Share of the sessions' time spent waiting for the driver.
pub(super) const CLIENT_SHARE: f64 = 0.05;

const ID: &str = "generator-bound";

/// Returns the threads that issue the work in a process with this many `sessions`; absent: with all of them.
pub(super) fn issuing_threads(trial: &Trial, sessions: Option<u32>) -> f64 {
    let key = |name: &str| trial.workload.keys.get(name).and_then(|n| n.as_f64());
    // A mail workload has one session per thread; `threads` of other workloads belongs to the command.
    let threads = match &*trial.workload.kind {
        "mail" => sessions.map(f64::from).or_else(|| key("threads")),
        _ => key("client_threads"),
    };
    threads.unwrap_or(1.0)
}

/// Cores that a driver used, as a share of those that its threads could use.
fn share(part: &DriverPart, threads: f64) -> Option<(f64, f64)> {
    let cores = part.cpu_seconds / part.seconds;
    let usable = threads.min(f64::from(part.cores.max(1)));
    (part.seconds > 0.0).then_some((cores / usable, cores))
}

/// `waited` is the share of time that all sessions waited for their drivers, if it was sampled.
pub(super) fn generator(trial: &Trial, waited: Option<f64>) -> Option<Check> {
    let threads = |part: &DriverPart| issuing_threads(trial, Some(part.sessions));
    let shares = trial.drivers.iter().filter_map(|part| Some((part, share(part, threads(part))?)));
    let (part, (share, cores)) = shares.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let (rank, host) = (part.rank, &part.host);
    if share <= DRIVER_CORES || waited.is_some_and(|share| share <= CLIENT_SHARE) {
        let message = format!("the busiest driver, {rank} on {host}, used {cores:.3} cores");
        return Some(Check::ok(ID, message));
    }
    let shown = waited.map_or(String::new(), |share| {
        format!(", and sessions waited for their drivers {} of the time", percent(share))
    });
    let more = trial.drivers.len() + 1;
    Some(Check::invalid(
        ID,
        format!("driver {rank} on {host} used {cores:.2} cores{shown}"),
        format!("use one driver more ({more} instead of {}), on a host of its own", more - 1),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::model::CheckVerdict;
    use pgio_results::test_support::full_trial;

    fn judged(cpu: &[f64], waited: Option<f64>) -> Check {
        let part = |(rank, cpu_seconds): (usize, &f64)| DriverPart {
            rank: rank as u32,
            host: format!("h{rank}"),
            seconds: 10.0,
            cores: 4,
            cpu_seconds: *cpu_seconds,
            ..DriverPart::default()
        };
        let drivers = cpu.iter().enumerate().map(part).collect();
        generator(&Trial { drivers, ..full_trial() }, waited).unwrap()
    }

    #[test]
    fn one_busy_driver_is_named_and_one_more_is_asked_for() {
        let check = judged(&[1.0, 9.5, 2.0], Some(0.3));
        assert_eq!(check.verdict, CheckVerdict::Invalid);
        assert_eq!(
            check.message,
            "driver 1 on h1 used 0.95 cores, and sessions waited for their drivers 30.0 % of the time"
        );
        assert!(check.remedy.starts_with("use one driver more (4 instead of 3)"));
        assert_eq!(judged(&[1.0, 9.5], Some(0.01)).verdict, CheckVerdict::Ok);
        assert_eq!(judged(&[1.0, 7.0], None).verdict, CheckVerdict::Ok);
        assert_eq!(judged(&[1.0, 9.0], None).verdict, CheckVerdict::Invalid);
    }
}
