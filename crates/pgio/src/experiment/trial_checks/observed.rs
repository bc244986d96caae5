//! Checks of what was observed beside the work: other load, the tool itself, clocks, caches.
//!
//! Thresholds are shares that a careful reader would call small or large, not results of a test;
//! each message gives the figure, so that anyone may judge otherwise. What was not observed is not
//! judged.

use crate::host::LOCAL;
use crate::host::drbd::is_resync;
use crate::results::model::{Check, Trial};
use crate::results::series::Series;
use crate::results::telemetry::{DrbdState, HostUse, Storage, Telemetry};
use crate::results::waits::{WaitGroup, by_group};
use crate::units::human;

/// Of all cores of a host, used by neither PostgreSQL nor pgio, be it by others in it or beside it.
const FOREIGN_INVALID: f64 = 0.20;
const FOREIGN_WARNING: f64 = 0.05;
/// Cores that the driver may use before it may be what is measured.
const DRIVER_CORES: f64 = 0.8;
/// Of the sessions' time spent waiting for the driver.
const CLIENT_SHARE: f64 = 0.05;
/// Cores that observing may cost.
const SAMPLING_CORES: f64 = 0.01;
/// In shorter windows what sampling costs once counts as if it went on.
const SHORTEST_FOR_COST: f64 = 1.0;
const MISSED: f64 = 0.10;
const MEMORY_PRESSURE: f64 = 0.01;
const SKEW_SECONDS: f64 = 0.050;
/// A commit that joins another's flush waits for a part of one only, and a probe of a second on a busy
/// device is off by a factor itself.
const FLUSHES_AHEAD: f64 = 4.0;

pub(super) fn checks(trial: &Trial, series: Option<&Series>) -> Vec<Check> {
    let mut all = Vec::new();
    all.extend(series.and_then(autovacuum));
    let Some(telemetry) = &trial.telemetry else { return all };
    all.extend(resync(telemetry));
    all.extend(foreign_load(trial, telemetry));
    all.extend(generator(telemetry, trial));
    all.extend(observing(telemetry, trial.window.seconds));
    all.extend(steal(telemetry));
    all.extend(missed(telemetry));
    all.extend(skew(telemetry));
    all.extend(pressure(telemetry));
    all.extend(lying_cache(trial, telemetry));
    all.extend(cache(trial, telemetry));
    all
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The host with the largest share, as hosts of one trial share its fate.
fn worst(
    telemetry: &Telemetry,
    share: impl Fn(&HostUse) -> Option<f64>,
) -> Option<(&str, &HostUse, f64)> {
    let shares =
        telemetry.hosts.iter().filter_map(|(name, host)| Some((name.as_str(), host, share(host)?)));
    shares.max_by(|a, b| a.2.total_cmp(&b.2))
}

fn foreign_load(trial: &Trial, telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "foreign-load";
    let (name, host, share) =
        worst(telemetry, |h| Some(h.foreign_cores? / f64::from(h.cores.filter(|n| *n > 0)?)))?;
    // The user's mail server is not told apart from what else runs there.
    let mail = trial.workload.kind == "mail";
    let message = format!(
        "others{} used {:.2} of {} cores ({}) on `{name}`",
        if mail { ", the mail server among them," } else { "" },
        host.foreign_cores.unwrap_or_default(),
        host.cores.unwrap_or_default(),
        percent(share)
    );
    let remedy = "stop what else runs there (see top), or measure when it is quiet";
    let most = if mail { f64::INFINITY } else { FOREIGN_INVALID };
    Some(taken_by_others(ID, share, most, message, remedy))
}

/// Processor time that the work did not have; above `most` the trial is not worth counting.
fn taken_by_others(id: &str, share: f64, most: f64, message: String, remedy: &str) -> Check {
    match share {
        s if s > most => Check::invalid(id, message, remedy),
        s if s > FOREIGN_WARNING => Check::warning(id, message, remedy),
        _ => Check::ok(id, message),
    }
}

/// Whatever the condition says of DRBD: a resync takes disks and network that others measure on.
fn resync(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "drbd-resync";
    let mut watched = false;
    for (host, usage) in &telemetry.hosts {
        for (device, drbd) in &usage.drbd {
            watched = true;
            if let Some(state) = drbd.states.iter().find(|s| is_resync(&s.replication)) {
                let told =
                    format!("{device} on `{host}` was {} inside the window", state.replication);
                // Then it belongs to what the condition did: the peer was lost by itself and came back.
                let left = |s: &DrbdState| !["Connected", "StandAlone"].contains(&&*s.connection);
                if drbd.connected_anew > 0 || drbd.states.iter().any(left) {
                    let remedy = "see why the connection was lost";
                    return Some(Check::warning(ID, told, remedy));
                }
                let remedy = "wait for its end, or pause it, and run again";
                return Some(Check::invalid(ID, told, remedy));
            }
        }
    }
    watched.then(|| Check::ok(ID, "DRBD neither synchronised nor verified"))
}

/// Threads of pgio's that offer the work, of which no more than there are cores can be busy.
fn drivers(telemetry: &Telemetry, trial: &Trial) -> f64 {
    // A mail workload's have a message each; of others' threads, these are the command's own.
    let key = if trial.workload.kind == "mail" { "threads" } else { "client_threads" };
    let threads = trial.workload.keys.get(key).and_then(|n| n.as_f64()).unwrap_or(1.0);
    let cores = telemetry.hosts.get(LOCAL).and_then(|host| host.cores);
    cores.map_or(threads, |cores| threads.min(f64::from(cores.max(1))))
}

fn generator(telemetry: &Telemetry, trial: &Trial) -> Option<Check> {
    const ID: &str = "generator-bound";
    let window = trial.window.seconds;
    let threads = drivers(telemetry, trial);
    let cores = telemetry.driver_cpu_seconds? / window;
    let client = telemetry.waits.as_ref().and_then(|waits| {
        let groups = by_group(waits);
        let all: u64 = groups.values().sum();
        (all > 0).then(|| *groups.get(&WaitGroup::Client).unwrap_or(&0) as f64 / all as f64)
    });
    if cores > DRIVER_CORES * threads && client.is_none_or(|share| share > CLIENT_SHARE) {
        let waited = client.map_or(String::new(), |share| {
            format!(", and sessions waited for it {} of their time", percent(share))
        });
        return Some(Check::invalid(
            ID,
            format!("pgio used {cores:.2} cores{waited}"),
            "use fewer sessions, or run pgio on another machine",
        ));
    }
    Some(Check::ok(ID, format!("pgio used {cores:.3} cores")))
}

/// What watching took from the work, at the dearest place: a fault of the interval, not of whoever
/// offers the work.
fn observing(telemetry: &Telemetry, window: f64) -> Option<Check> {
    const ID: &str = "telemetry-cost";
    if window < SHORTEST_FOR_COST {
        return None;
    }
    let hosts = telemetry.hosts.iter().filter_map(|(name, host)| {
        let what = format!("telemetry on host `{name}`");
        Some((what, host.cadence_seconds, host.sampling_cpu_seconds? / window))
    });
    // Its threads here ask hosts and server at the same pace.
    let shortest = telemetry.hosts.values().map(|host| host.cadence_seconds).reduce(f64::min);
    let own = telemetry.sampling_cpu_seconds.map(|seconds| {
        ("telemetry's threads in pgio".to_owned(), shortest.unwrap_or(0.0), seconds / window)
    });
    let (what, interval, cost) = hosts.chain(own).max_by(|a, b| a.2.total_cmp(&b.2))?;
    let every = match interval {
        0.0 => String::new(),
        seconds => format!(", every {seconds} s,"),
    };
    let message = format!("{what}{every} took {} of a core", percent(cost));
    Some(if cost > SAMPLING_CORES {
        let longer = (interval * 5.0).max(5.0).round();
        // With fewer ticks than a few in a window it would look oftener than it is told.
        let window = longer * 5.0;
        let remedy = format!(
            "look less often: telemetry = \"{longer}s\" in [experiment], with windows of {window} s and more"
        );
        Check::warning(ID, message, remedy)
    } else {
        Check::ok(ID, message)
    })
}

fn steal(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "steal";
    let (name, _, share) = worst(telemetry, |h| h.cpu.get("steal").copied())?;
    let message = format!("the hypervisor took {} of the time of `{name}`", percent(share));
    let remedy = "measure on a machine that is not shared, or at another time";
    Some(taken_by_others(ID, share, FOREIGN_INVALID, message, remedy))
}

fn missed(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "telemetry-missed";
    let share = |missed: u64, taken: u64| {
        (missed + taken > 0).then(|| missed as f64 / (missed + taken) as f64)
    };
    let hosts = telemetry
        .hosts
        .iter()
        .filter_map(|(name, h)| Some((format!("samples of `{name}`"), share(h.missed, h.ticks)?)));
    let waits = telemetry
        .waits
        .as_ref()
        .and_then(|w| Some(("samples of the waits".to_owned(), share(w.missed_rounds, w.rounds)?)));
    let (what, worst) = hosts.chain(waits).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let message = format!("{} of the {what} came too late", percent(worst));
    Some(if worst > MISSED {
        Check::warning(ID, message, "use a longer telemetry interval, or a less busy machine")
    } else {
        Check::ok(ID, message)
    })
}

/// Every two hosts; their offsets are to this machine's clock, whose own is 0.
fn skew(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "clock-skew";
    let clocks: Vec<(&str, f64, f64)> = telemetry
        .hosts
        .iter()
        .filter_map(|(name, h)| {
            let error = h.clock_error_seconds.unwrap_or_default();
            Some((name.as_str(), h.clock_offset_seconds?, error))
        })
        .collect();
    let mut pairs = Vec::new();
    for (i, a) in clocks.iter().enumerate() {
        for b in &clocks[i + 1..] {
            pairs.push((a.0, b.0, (a.1 - b.1).abs(), a.2 + b.2));
        }
    }
    // Against what is known for sure: the difference less the error of measuring it.
    let (a, b, apart, error) =
        pairs.into_iter().max_by(|x, y| (x.2 - x.3).total_cmp(&(y.2 - y.3)))?;
    let message = format!(
        "the clocks of `{a}` and `{b}` differ by {:.0} ± {:.0} ms",
        apart * 1e3,
        error * 1e3
    );
    Some(if apart - error > SKEW_SECONDS {
        let remedy = "run a time service on both: times of one cannot be read against the other";
        Check::warning(ID, message, remedy)
    } else {
        Check::ok(ID, message)
    })
}

fn pressure(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "pressure";
    let (name, _, share) = worst(telemetry, |h| h.pressure.get("memory").copied())?;
    let message = format!("tasks waited for memory {} of the time on `{name}`", percent(share));
    Some(if share > MEMORY_PRESSURE {
        Check::warning(ID, message, "leave more memory free: what swaps is not what is measured")
    } else {
        Check::ok(ID, message)
    })
}

fn lying_cache(trial: &Trial, telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "lying-cache";
    let no_wait = |level: &String| ["off", "false", "no", "0"].contains(&level.as_str());
    if trial.server.fsync == "off" || trial.settings.get("synchronous_commit").is_some_and(no_wait)
    {
        return None;
    }
    let wal = telemetry.storage.iter().find(|s| s.role == "wal");
    let options = wal.map(|s| s.mount_options.as_str()).unwrap_or_default();
    if options.split(',').any(|o| ["nobarrier", "barrier=0"].contains(&o)) {
        return Some(Check::warning(
            ID,
            format!(
                "the WAL's file system is mounted with {options}: flushes may not reach the device"
            ),
            "mount it with barriers, unless the cache below survives a power failure",
        ));
    }
    let flush = telemetry.probes.as_ref()?.flush_seconds.filter(|s| *s > 0.0)?;
    let commits = trial.metrics.get("commits_per_second")?.value?;
    let each = commits / trial.sessions.len().max(1) as f64;
    let message = format!(
        "{each:.0} commits/s a session where one flush of the WAL device takes {}{}",
        human::latency(flush * 1e9),
        wal.map_or(String::new(), write_cache)
    );
    Some(if each * flush > FLUSHES_AHEAD {
        Check::warning(
            ID,
            message,
            "see wal_sync_method, queue/write_cache, and the controller's and hypervisor's caches",
        )
    } else {
        Check::ok(ID, message)
    })
}

fn write_cache(storage: &Storage) -> String {
    let cache = storage.devices.iter().find_map(|d| d.queue.get("write_cache"));
    cache.map_or(String::new(), |cache| format!(" ({cache})"))
}

fn autovacuum(series: &Series) -> Option<Check> {
    let inside = |at: f64| (0.0..=series.window_seconds).contains(&at);
    let seen = series.moments.iter().filter(|m| m.what == "autovacuum" && inside(m.at)).count();
    (seen > 0).then(|| {
        Check::warning(
            "autovacuum",
            format!("an autovacuum worker began {seen} times inside the window"),
            "VACUUM before the experiment, or set autovacuum = off in every condition",
        )
    })
}

/// A remark: how the sizes compare decides what a read costs.
fn cache(trial: &Trial, telemetry: &Telemetry) -> Option<Check> {
    let data = trial.dataset.as_ref()?.bytes_before;
    let buffers = setting_bytes(&trial.server.shared_buffers)?;
    let name = telemetry.storage.iter().find(|s| s.role == "data").map(|s| s.host.as_str());
    let host = telemetry.hosts.get(name.unwrap_or("local"))?;
    let memory = *host.memory.get("total")?;
    let held = match data {
        d if d <= buffers => "shared_buffers can hold all of it",
        d if d <= memory => "what misses shared_buffers may be in the system's cache",
        _ => "it is larger than memory",
    };
    let of = human::bytes;
    let message = format!(
        "data {} : shared_buffers {} : memory {}; {held}",
        of(data),
        of(buffers),
        of(memory)
    );
    Some(Check::ok("cache", message))
}

/// As PostgreSQL shows a setting of memory, such as `128MB`.
fn setting_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "B" => 0,
        "kB" => 10,
        "MB" => 20,
        "GB" => 30,
        "TB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Whether what the target names is what the server writes to: data, WAL and tablespaces each
/// have the device among those below their file system.
pub(in crate::experiment) fn storage(trial: &Trial, device: &str) -> Check {
    lies_on(trial.telemetry.as_ref().map(|t| t.storage.as_slice()).unwrap_or_default(), device)
}

/// The same, of what was found without a trial.
pub fn lies_on(found: &[Storage], device: &str) -> Check {
    const ID: &str = "storage";
    let device = device.trim_start_matches("/dev/");
    let remedy = "move it there, or correct device = in [target]";
    if found.is_empty() {
        let why = "what the server writes to could not be found out";
        return Check::invalid(
            ID,
            format!("{why}, and `{device}` is to be measured"),
            "set host = in [target]",
        );
    }
    let elsewhere: Vec<String> = found
        .iter()
        .filter(|s| s.devices.iter().all(|d| d.name != device))
        .map(|s| {
            let names: Vec<&str> = s.devices.iter().map(|d| d.name.as_str()).collect();
            let on =
                if names.is_empty() { "no known device".to_owned() } else { names.join(" over ") };
            format!("{} ({}) lies on {on}", s.role, s.directory)
        })
        .collect();
    if elsewhere.is_empty() {
        Check::ok(ID, format!("data, WAL and tablespaces lie on {device}"))
    } else {
        Check::invalid(ID, format!("{}, not on {device}", elsewhere.join("; ")), remedy)
    }
}

#[cfg(test)]
mod tests;
