//! What pgio observes beside the workload: hosts, server counters, wait events of the sessions.
//!
//! A [`Scene`] holds what can be observed for one target; it is discovered once per experiment. A
//! [`Recorder`] runs the samplers during one trial, each on its own thread, and summarizes their
//! samples over the window. Anything that cannot be observed is absent and raises a warning with a
//! hint. This module never fails a trial and never prints.
//!
//! Next: `server` for counters, `waits` for wait events, [`host`] for machines, [`probes`] for the
//! expected cost of a commit.

mod beat;
mod cpu;
mod environment;
mod expected;
pub mod host;
pub mod probes;
mod scene;
mod server;
mod session;
pub mod storage;
pub mod sysstat;
mod waits;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::pg::connect::ConnectParams;
use crate::pg::words;
use crate::results::Warning;
use crate::results::series::{Series, Track};
use crate::results::telemetry::Telemetry;
pub use expected::Standby;
pub use scene::{Scene, Survey};

/// Server sessions that a recorder opens.
pub const SESSIONS: u32 = 2;

/// Prefix of the names of sampling threads; no other thread has it.
const THREAD_PREFIX: &str = "pgio-";

/// Timeout for a sampler to return its samples.
const SAMPLER_TIMEOUT: Duration = Duration::from_secs(6);

/// Minimum number of ticks in a window; with fewer, a series shows almost nothing.
const TICKS_IN_A_WINDOW: u32 = 5;

/// Latest arrival of a reading that was requested at the end of the window.
const LATE: Duration = Duration::from_millis(100);

/// How long the sessions wait for a host's list of processes before they disconnect anyway.
const MARK_TIMEOUT: Duration = Duration::from_millis(500);

/// The server under observation.
#[derive(Debug, Clone)]
struct Watched {
    params: ConnectParams,
    version_num: u32,
    /// The database of the workload.
    database: String,
}

/// The measuring window, on this machine's clock.
#[derive(Debug, Clone, Copy)]
struct Span {
    opened: Instant,
    closed: Instant,
}

impl Span {
    /// Seconds since the start of the window; negative before it.
    fn seconds_at(&self, at: Instant) -> f64 {
        match at.checked_duration_since(self.opened) {
            Some(after) => after.as_secs_f64(),
            None => -(self.opened - at).as_secs_f64(),
        }
    }

    fn contains(&self, at: Instant) -> bool {
        at >= self.opened && at <= self.closed + LATE
    }
}

/// What a recorder must know about a trial before it begins.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    /// Absent if the trial runs a fixed number of transactions.
    pub window: Option<Duration>,
    /// Whether the server has [`SESSIONS`] connections to spare.
    pub room: bool,
    /// A server session that stays open during the whole trial.
    pub backend_pid: Option<i32>,
    pub seed: u64,
}

/// All samplers of one trial. Dropping it ends them.
pub struct Recorder<'a> {
    scene: &'a Scene,
    hosts: Vec<(&'a str, host::Sampler)>,
    server: Option<server::Sampler>,
    waits: Option<waits::Sampler>,
    opened: Option<Mark>,
    closed: Option<Mark>,
    warnings: Vec<Warning>,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    driver_cpu: Duration,
    sampling_cpu: Option<Duration>,
}

impl Mark {
    fn new(at: Instant) -> Mark {
        Mark { at, driver_cpu: cpu::process(), sampling_cpu: cpu::threads_named(THREAD_PREFIX) }
    }
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("scene", &self.scene).finish_non_exhaustive()
    }
}

impl Recorder<'_> {
    /// Starts all samplers. Call it when the sessions are ready and wait for their window.
    pub fn start(scene: &Scene, course: Course) -> Recorder<'_> {
        let longest = course.window.map_or(Duration::MAX, |w| w / TICKS_IN_A_WINDOW);
        let cadence = scene.cadence.min(longest);
        let mut warnings = scene.warnings.clone();
        let hosts = start_hosts(scene, cadence, course.backend_pid, &mut warnings);
        let (mut server, mut waits) = (None, None);
        if course.room {
            server = Some(server::Sampler::start(scene.watched.clone(), cadence));
            waits = Some(waits::Sampler::start(scene.watched.clone(), course.seed));
        } else {
            warnings.push(Warning::new(
                "the server was not observed",
                format!("it does not have {SESSIONS} connections to spare"),
                "raise max_connections or use fewer sessions",
            ));
        }
        Recorder { scene, hosts, server, waits, opened: None, closed: None, warnings }
    }

    /// Sets the sessions whose wait events are sampled.
    pub fn watch(&self, pids: Vec<i32>) {
        if let Some(waits) = &self.waits {
            waits.watch(pids);
        }
    }

    /// Records the start of the window.
    pub fn opened(&mut self, at: Instant) {
        self.mark();
        self.opened = Some(Mark::new(at));
    }

    /// Records the end of the window: the last operation has just ended at `at`. Returns when the
    /// hosts have listed their processes, because a session that disconnects before is missing from
    /// the list together with its CPU time.
    pub fn closed(&mut self, at: Instant) {
        self.mark();
        self.closed = Some(Mark::new(at));
        let requested = Instant::now();
        while requested.elapsed() < MARK_TIMEOUT
            && self.hosts.iter().any(|(_, host)| host.is_marking())
        {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn mark(&self) {
        self.hosts.iter().for_each(|(_, host)| host.mark());
        if let Some(server) = &self.server {
            server.mark();
        }
    }

    /// Summarizes the samples. `None` if the window never opened; an unfinished window ends now.
    pub fn finish(mut self) -> Option<(Telemetry, Series, Vec<Warning>)> {
        let opened = self.opened?;
        if self.closed.is_none() {
            self.closed(Instant::now());
        }
        let closed = self.closed?;
        let span = Span { opened: opened.at, closed: closed.at };
        let mut warnings = self.warnings;
        let mut series = Series::new((closed.at - opened.at).as_secs_f64());
        let mut telemetry = Telemetry {
            storage: self.scene.storage.clone(),
            probes: self.scene.probes.clone(),
            driver_cpu_seconds: Some((closed.driver_cpu - opened.driver_cpu).as_secs_f64()),
            sampling_cpu_seconds: opened
                .sampling_cpu
                .zip(closed.sampling_cpu)
                // The CPU time of a thread that ended is no longer counted.
                .and_then(|(from, to)| Some(to.checked_sub(from)?.as_secs_f64())),
            ..Telemetry::default()
        };
        for (name, host) in self.hosts {
            let (usage, tracks, host_warnings) = host.finish(span.opened, span.closed);
            telemetry.hosts.insert(name.to_owned(), usage);
            series.tracks.extend(tracks);
            warnings.extend(host_warnings);
        }
        if let Some(server) = self.server {
            let usage = server.finish(span);
            telemetry.standbys = usage.standbys;
            series.tracks.extend(usage.tracks);
            series.moments.extend(usage.moments);
            warnings.extend(usage.warnings);
        }
        if let Some(waits) = self.waits {
            let summary = waits.finish(span);
            telemetry.waits = summary.waits;
            warnings.extend(summary.warnings);
        }
        series.tracks.retain(|track: &Track| !track.at.is_empty());
        series.moments.sort_by(|a, b| a.at.total_cmp(&b.at));
        Some((telemetry, series, warnings))
    }
}

fn start_hosts<'a>(
    scene: &'a Scene,
    cadence: Duration,
    backend_pid: Option<i32>,
    warnings: &mut Vec<Warning>,
) -> Vec<(&'a str, host::Sampler)> {
    let mut started = Vec::new();
    for (name, host) in &scene.hosts {
        let is_server_host = scene.server_host.as_ref() == Some(name);
        let backend_pids = backend_pid.filter(|_| is_server_host).into_iter().collect();
        match host::Sampler::start(Arc::clone(host), cadence, host::Watch { backend_pids }) {
            Ok(sampler) => started.push((name.as_str(), sampler)),
            Err(error) => warnings.push(Warning::new(
                format!("host {name} was not observed"),
                words::sentence(&error),
                "check that the host can be reached, then run again",
            )),
        }
    }
    started
}

fn not_observed(what: &str, why: &str) -> Warning {
    Warning::new(format!("{what} were not observed"), why, "check the server log, then run again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_relative_to_the_opening_and_negative_before_it() {
        let opened = Instant::now();
        let span = Span { opened, closed: opened + Duration::from_secs(2) };
        assert_eq!(span.seconds_at(opened + Duration::from_millis(500)), 0.5);
        assert_eq!(span.seconds_at(opened - Duration::from_millis(250)), -0.25);
        assert!(span.contains(opened) && !span.contains(opened - Duration::from_nanos(1)));
        assert!(!span.contains(opened + Duration::from_secs(3)));
    }
}
