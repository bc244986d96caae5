//! Checks of telemetry: foreign load (`foreign`), pgio itself, clocks, caches.
//!
//! Thresholds are shares that a careful reader would call small or large, not results of a test;
//! each message gives the figure, so that a reader may judge otherwise. What was not observed is not
//! judged.

use super::foreign::{self, percent, worst};
use crate::config::kinds::{PLAIN, Threads, WorkloadKind};
use crate::host::{LOCAL, called};
use pgio_results::checks::remedy;
use pgio_results::joint::GeneratorPart;
use pgio_results::model::{Check, Trial};
use pgio_results::telemetry::Series;
use pgio_results::telemetry::{Storage, Telemetry};
use pgio_results::thresholds::{
    CLOCK_SKEW_SECONDS, GENERATOR_AWAITED, GENERATOR_BUSY, MEMORY_PRESSURE, SAMPLES_MISSED,
    SAMPLING_COST,
};
use pgio_results::units::human;
use pgio_results::waits::{WaitGroup, by_group};

/// A host counts the time of the sampling shell and of its commands in four sums of whole ticks of 10 ms. Their
/// difference over a window is too large by two ticks at most, in 98 of 100 windows.
const TICK_ERROR_SECONDS: f64 = 0.02;
/// Shortest window, in seconds; in shorter ones the one-time cost of sampling would count as continuous.
const MIN_WINDOW_FOR_COST: f64 = 1.0;
/// A commit that joins another's flush waits for only part of it, and a probe of a second on a busy
/// device is off by a factor itself.
const MAX_COMMITS_PER_FLUSH: f64 = 4.0;

pub(super) fn checks(trial: &Trial, series: Option<&Series>, waits_for_flush: bool) -> Vec<Check> {
    let mut all = Vec::new();
    all.extend(series.and_then(autovacuum));
    let Some(telemetry) = &trial.telemetry else { return all };
    all.extend(foreign::load(trial, telemetry));
    all.extend(foreign::sessions(trial, telemetry));
    all.extend(foreign::device_io(telemetry));
    all.extend(generator(telemetry, trial));
    all.extend(telemetry_cost(telemetry, trial.observed_seconds()));
    all.extend(foreign::steal(telemetry));
    all.extend(missed_rounds(telemetry));
    all.extend(skew(telemetry));
    all.extend(pressure(telemetry));
    all.extend(waits_for_flush.then(|| lying_cache(trial, telemetry)).flatten());
    all.extend(cache(trial, telemetry));
    all
}

/// Returns the threads of pgio that issue the work, at most as many as there are cores.
fn working_threads(telemetry: &Telemetry, trial: &Trial) -> f64 {
    let threads = issuing_threads(trial, None);
    // Each server of a joint window has its own threads.
    let threads = threads * trial.targets.len().max(1) as f64;
    let cores = telemetry.hosts.get(LOCAL).and_then(|host| host.cores);
    cores.map_or(threads, |cores| threads.min(f64::from(cores.max(1))))
}

fn generator(telemetry: &Telemetry, trial: &Trial) -> Option<Check> {
    const ID: &str = "generator-bound";
    let window = trial.observed_seconds();
    let threads = working_threads(telemetry, trial);
    let cores = telemetry.driver_cpu_seconds? / window;
    let client = telemetry.waits.as_ref().and_then(|waits| {
        let groups = by_group(waits);
        let all: u64 = groups.values().sum();
        (all > 0).then(|| *groups.get(&WaitGroup::Client).unwrap_or(&0) as f64 / all as f64)
    });
    if !trial.generators.is_empty() {
        return busy_driver(trial, client);
    }
    // In a woven window, sessions wait for pgio only between slices, which do not count.
    if cores > GENERATOR_BUSY.0 * threads
        && trial.woven.is_none()
        && client.is_none_or(|share| share > GENERATOR_AWAITED.0)
    {
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

/// Checks the largest cost of telemetry: a fault of the interval, not of the code that
/// issues the work.
fn telemetry_cost(telemetry: &Telemetry, window: f64) -> Option<Check> {
    const ID: &str = "telemetry-cost";
    if window < MIN_WINDOW_FOR_COST {
        return None;
    }
    let hosts = telemetry.hosts.iter().filter_map(|(name, host)| {
        let what = format!("telemetry on {}", called(name));
        let seconds = host.sampling_cpu_seconds?;
        Some((what, host.cadence_seconds, seconds, (seconds - TICK_ERROR_SECONDS).max(0.0)))
    });
    // Its threads in pgio query hosts and server at the same interval.
    let shortest = telemetry.hosts.values().map(|host| host.cadence_seconds).reduce(f64::min);
    let own = telemetry.sampling_cpu_seconds.map(|seconds| {
        ("telemetry's threads in pgio".to_owned(), shortest.unwrap_or(0.0), seconds, seconds)
    });
    let (what, interval, seconds, least) = hosts.chain(own).max_by(|a, b| a.3.total_cmp(&b.3))?;
    let every = match interval {
        0.0 => String::new(),
        seconds => format!(", every {seconds} s,"),
    };
    let message = format!("{what}{every} took {} of a core", percent(seconds / window));
    Some(if least / window > SAMPLING_COST.0 {
        let longer = (interval * 5.0).max(5.0).round();
        // With only a few ticks per window, telemetry samples more often than configured.
        let window = longer * 5.0;
        let remedy = format!(
            "use a longer interval: telemetry = \"{longer}s\" in [experiment], with windows of at least {window} s"
        );
        Check::warning(ID, message, remedy)
    } else {
        Check::ok(ID, message)
    })
}

fn missed_rounds(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "telemetry-missed";
    let share = |missed: u64, taken: u64| {
        (missed + taken > 0).then(|| missed as f64 / (missed + taken) as f64)
    };
    let hosts = telemetry.hosts.iter().filter_map(|(name, h)| {
        Some((format!("samples of {}", called(name)), share(h.missed, h.ticks)?))
    });
    let waits = telemetry.waits.as_ref().and_then(|w| {
        Some(("samples of wait events".to_owned(), share(w.missed_rounds, w.rounds)?))
    });
    let (what, worst) = hosts.chain(waits).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let message = format!("{} of the {what} were late", percent(worst));
    Some(if worst > SAMPLES_MISSED.0 {
        Check::warning(ID, message, "use a longer telemetry interval, or a less busy machine")
    } else {
        Check::ok(ID, message)
    })
}

/// Compares every two hosts; offsets are relative to this machine's clock, whose own is 0.
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
    // Judge the difference minus its measurement error.
    let (a, b, apart, error) =
        pairs.into_iter().max_by(|x, y| (x.2 - x.3).total_cmp(&(y.2 - y.3)))?;
    let message = format!(
        "the clocks of `{a}` and `{b}` differ by {:.0} ± {:.0} ms",
        apart * 1e3,
        error * 1e3
    );
    Some(if apart - error > CLOCK_SKEW_SECONDS {
        let remedy = "run a time service on both; their timestamps cannot be compared";
        Check::warning(ID, message, remedy)
    } else {
        Check::ok(ID, message)
    })
}

fn pressure(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "pressure";
    let (name, _, share) = worst(telemetry, |h| h.pressure.get("memory").copied())?;
    let message =
        format!("tasks stalled on memory {} of the time on {}", percent(share), called(name));
    Some(if share > MEMORY_PRESSURE.0 {
        Check::warning(ID, message, "leave more memory free")
    } else {
        Check::ok(ID, message)
    })
}

pub(super) fn lying_cache(trial: &Trial, telemetry: &Telemetry) -> Option<Check> {
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
        "{each:.0} commits/s a session but one flush of the WAL device takes {}{}",
        human::latency(flush * 1e9),
        wal.map_or(String::new(), write_cache)
    );
    // The probe may have met a busy device. That the device flushed in the window itself is the better proof.
    let flushes = wal.and_then(|s| {
        let host = telemetry.hosts.get(&s.host)?;
        let flushed = |name: &str| host.devices.get(name).and_then(|d| d.flushes_per_second);
        host.flushed_below(s)?.into_iter().map(flushed).sum::<Option<f64>>()
    });
    let has_flushed = flushes.is_some_and(|flushes| flushes * MAX_COMMITS_PER_FLUSH >= each);
    Some(if each * flush > MAX_COMMITS_PER_FLUSH && !has_flushed {
        Check::warning(
            ID,
            message,
            "check wal_sync_method, queue/write_cache, and the caches of controller and hypervisor",
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
    const ID: &str = "autovacuum";
    let inside = |at: f64| (0.0..=series.window_seconds).contains(&at);
    let seen = series.moments.iter().filter(|m| m.what == "autovacuum" && inside(m.at)).count();
    (seen > 0).then(|| {
        Check::warning(
            ID,
            match seen {
                1 => "an autovacuum worker started inside the window".to_owned(),
                _ => format!("an autovacuum worker started {seen} times inside the window"),
            },
            remedy(ID),
        )
    })
}

/// Compares data, shared_buffers and memory, which decides what a read costs.
fn cache(trial: &Trial, telemetry: &Telemetry) -> Option<Check> {
    // Each of several servers has buffers of its own.
    if !trial.targets.is_empty() || telemetry.hosts.is_empty() {
        return None;
    }
    let data = trial.dataset.as_ref().map(|d| d.bytes_used.unwrap_or(d.bytes_before))?;
    let buffers = setting_bytes(&trial.server.shared_buffers)?;
    // Without a known place of the data, the server may run on any machine.
    let host = telemetry.storage.iter().find(|s| s.role == "data").map(|s| s.host.as_str());
    let memory = host.and_then(|name| telemetry.hosts.get(name)?.memory.get("total").copied());
    let size = human::bytes;
    let sizes = format!("data {} : shared_buffers {}", size(data), size(buffers));
    let held = match memory {
        _ if data <= buffers => "; shared_buffers can hold all data",
        Some(memory) if data <= memory => {
            "; blocks that miss shared_buffers may be in the page cache"
        }
        Some(_) => "; the data is larger than memory",
        None => "",
    };
    let memory = memory.map_or(String::new(), |memory| format!(" : memory {}", size(memory)));
    let message = format!("{sizes}{memory}{held}");
    Some(Check::ok("cache", message))
}

/// Parses a memory setting as PostgreSQL shows it, such as `128MB`.
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

/// Checks that the server writes to the target's device: data, WAL and tablespaces each
/// must have it below their file system.
pub(in crate::experiment) fn storage(trial: &Trial, device: &str) -> Check {
    lies_on(trial.telemetry.as_ref().map(|t| t.storage.as_slice()).unwrap_or_default(), device)
}

/// The same check without a trial; `device` is a name of the kernel, be it with /dev/.
pub(in crate::experiment) fn lies_on(found: &[Storage], device: &str) -> Check {
    const ID: &str = "storage";
    let device = device.trim_start_matches("/dev/");
    if found.is_empty() {
        let why = "cannot find out which devices the server writes to";
        return Check::invalid(
            ID,
            format!("{why}, but `{device}` is the device under test"),
            "set host = in [target]",
        );
    }
    let (known, unknown): (Vec<&Storage>, Vec<&Storage>) =
        found.iter().partition(|s| s.is_located());
    let elsewhere: Vec<String> = known
        .iter()
        .filter(|s| s.devices.iter().all(|d| d.name != device))
        .map(|s| {
            let names: Vec<&str> = s.devices.iter().map(|d| d.name.as_str()).collect();
            let on =
                if names.is_empty() { "no known device".to_owned() } else { names.join(" over ") };
            format!("{} ({}) lies on {on}", s.role, s.directory)
        })
        .collect();
    if !elsewhere.is_empty() {
        let remedy = "move the files there, or correct device = in [target]";
        return Check::invalid(ID, format!("{}, not on {device}", elsewhere.join("; ")), remedy);
    }
    if !unknown.is_empty() {
        let unknown: Vec<String> =
            unknown.iter().map(|s| format!("{} ({})", s.role, s.directory)).collect();
        return Check::invalid(
            ID,
            format!("pgio cannot read {}, which may not be on {device}", unknown.join(" and ")),
            "connect to the server's host as the server's OS user or as root",
        );
    }
    let roles: Vec<&str> = known.iter().map(|s| s.role.as_str()).collect();
    match roles.as_slice() {
        [role] => Check::ok(ID, format!("{role} lies on {device}")),
        roles => Check::ok(ID, format!("{} lie on {device}", listed(roles))),
    }
}

fn listed(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        words => words.concat(),
    }
}

/// Returns the threads that issue the work in a process with this many `sessions`; absent: with all of them.
fn issuing_threads(trial: &Trial, sessions: Option<u32>) -> f64 {
    let key = |name: &str| trial.workload.keys.get(name).and_then(|n| n.as_f64());
    let kind = WorkloadKind::named(&trial.workload.kind);
    let threads = match kind.map_or(PLAIN.threads, |kind| kind.def().threads) {
        Threads::OfSessions(all) => sessions.map(f64::from).or_else(|| key(all)),
        Threads::Key(name) => key(name),
    };
    threads.unwrap_or(1.0)
}

/// Cores that a driver used, as a share of those that its threads could use.
fn share(part: &GeneratorPart, threads: f64) -> Option<(f64, f64)> {
    let cores = part.cpu_seconds / part.seconds;
    let usable = threads.min(f64::from(part.cores.max(1)));
    (part.seconds > 0.0).then_some((cores / usable, cores))
}

/// Judges each of several drivers, since one that is busy slows down its sessions however idle the others are.
/// `waited` is the share of time that all sessions waited for their drivers, if it was sampled.
fn busy_driver(trial: &Trial, waited: Option<f64>) -> Option<Check> {
    const ID: &str = "generator-bound";
    let threads = |part: &GeneratorPart| issuing_threads(trial, Some(part.sessions));
    let shares =
        trial.generators.iter().filter_map(|part| Some((part, share(part, threads(part))?)));
    let (part, (share, cores)) = shares.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let (rank, host) = (part.rank, &part.host);
    if share <= GENERATOR_BUSY.0 || waited.is_some_and(|share| share <= GENERATOR_AWAITED.0) {
        let message = format!("the busiest driver, {rank} on {host}, used {cores:.3} cores");
        return Some(Check::ok(ID, message));
    }
    let shown = waited.map_or(String::new(), |share| {
        format!(", and sessions waited for their drivers {} of the time", percent(share))
    });
    let more = trial.generators.len() + 1;
    Some(Check::invalid(
        ID,
        format!("driver {rank} on {host} used {cores:.2} cores{shown}"),
        format!("use one driver more ({more} instead of {}), on a host of its own", more - 1),
    ))
}

#[cfg(test)]
#[path = "observed_tests.rs"]
mod tests;
