//! What is observed beside the workload: hosts, the server's counters, what the sessions wait for.
//!
//! A [`Scene`] is what there is to observe for one target, found out once an experiment. A
//! [`Recorder`] runs its samplers through one trial, each a thread of its own, and sums them up for
//! the window. Whatever cannot be observed is absent, with a warning that says what to do; nothing
//! here fails a trial, and nothing here prints.
//!
//! Next: `server` for counters, `waits` for wait events, [`host`] for machines, [`probes`] for what
//! a commit should cost.

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

/// Sessions of the server that a recorder takes.
pub const SESSIONS: u32 = 2;

/// Threads that only sample have names that begin so, and no others.
const THREAD_PREFIX: &str = "pgio-";

/// How long a sampler may take to bring back what it has.
const PATIENCE: Duration = Duration::from_secs(6);

/// A window shorter than some ticks would show next to nothing.
const TICKS_IN_A_WINDOW: u32 = 5;

/// A reading asked for at the window's end comes this much later at most.
const LATE: Duration = Duration::from_millis(100);

/// How long a host may take over its processes before the sessions leave all the same.
const MARKING: Duration = Duration::from_millis(500);

/// The server under observation.
#[derive(Debug, Clone)]
struct Watched {
    params: ConnectParams,
    version_num: u32,
    /// The workload's.
    database: String,
}

/// The window on this machine's clock.
#[derive(Debug, Clone, Copy)]
struct Span {
    opened: Instant,
    closed: Instant,
}

impl Span {
    /// From the window's start; negative before it.
    fn seconds_at(&self, at: Instant) -> f64 {
        match at.checked_duration_since(self.opened) {
            Some(after) => after.as_secs_f64(),
            None => -(self.opened - at).as_secs_f64(),
        }
    }

    fn holds(&self, at: Instant) -> bool {
        at >= self.opened && at <= self.closed + LATE
    }
}

/// What a trial says of itself before it begins.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    /// Absent where a number of transactions is asked for.
    pub window: Option<Duration>,
    /// Whether the server has [`SESSIONS`] to spare.
    pub room: bool,
    /// A session of the server that lives through the trial.
    pub backend_pid: Option<i32>,
    pub seed: u64,
}

/// All samplers through one trial. Dropped, they end.
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
    /// When the sessions are ready and wait for their window.
    pub fn start(scene: &Scene, course: Course) -> Recorder<'_> {
        let most = course.window.map_or(Duration::MAX, |w| w / TICKS_IN_A_WINDOW);
        let cadence = scene.cadence.min(most);
        let mut warnings = scene.warnings.clone();
        let hosts = start_hosts(scene, cadence, course.backend_pid, &mut warnings);
        let (mut server, mut waits) = (None, None);
        if course.room {
            server = Some(server::Sampler::start(scene.watched.clone(), cadence));
            waits = Some(waits::Sampler::start(scene.watched.clone(), course.seed));
        } else {
            warnings.push(Warning::new(
                "the server was not observed",
                format!("it has no {SESSIONS} connections to spare"),
                "raise max_connections, or use fewer sessions",
            ));
        }
        Recorder { scene, hosts, server, waits, opened: None, closed: None, warnings }
    }

    /// The sessions whose waits are to be seen.
    pub fn watch(&self, pids: Vec<i32>) {
        if let Some(waits) = &self.waits {
            waits.watch(pids);
        }
    }

    /// The window has opened.
    pub fn opened(&mut self, at: Instant) {
        self.mark();
        self.opened = Some(Mark::new(at));
    }

    /// The last operation ended at this moment, which was just now. Returns when the hosts have told
    /// of their processes: whoever leaves before would be missing there, with all that it did.
    pub fn closed(&mut self, at: Instant) {
        self.mark();
        self.closed = Some(Mark::new(at));
        let asked = Instant::now();
        while asked.elapsed() < MARKING && self.hosts.iter().any(|(_, host)| host.is_marking()) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn mark(&self) {
        self.hosts.iter().for_each(|(_, host)| host.mark());
        if let Some(server) = &self.server {
            server.mark();
        }
    }

    /// Sums up. None where no window opened; one that was left early ends now.
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
                // A sampler that ended took its share with it.
                .and_then(|(from, to)| Some(to.checked_sub(from)?.as_secs_f64())),
            ..Telemetry::default()
        };
        for (name, host) in self.hosts {
            let (found, tracks, more) = host.finish(span.opened, span.closed);
            telemetry.hosts.insert(name.to_owned(), found);
            series.tracks.extend(tracks);
            warnings.extend(more);
        }
        if let Some(server) = self.server {
            let found = server.finish(span);
            telemetry.standbys = found.standbys;
            series.tracks.extend(found.tracks);
            series.moments.extend(found.moments);
            warnings.extend(found.warnings);
        }
        if let Some(waits) = self.waits {
            let found = waits.finish(span);
            telemetry.waits = found.waits;
            warnings.extend(found.warnings);
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
        let serves = scene.server_host.as_ref() == Some(name);
        let backend_pids = backend_pid.filter(|_| serves).into_iter().collect();
        match host::Sampler::start(Arc::clone(host), cadence, host::Watch { backend_pids }) {
            Ok(sampler) => started.push((name.as_str(), sampler)),
            Err(error) => warnings.push(Warning::new(
                format!("host {name} was not observed"),
                words::sentence(&error),
                "see whether it can be reached, and run again",
            )),
        }
    }
    started
}

fn lost(what: &str, why: &str) -> Warning {
    Warning::new(format!("{what} were not observed"), why, "see the server's log, and run again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_counted_from_the_opening_and_lie_below_it_before() {
        let opened = Instant::now();
        let span = Span { opened, closed: opened + Duration::from_secs(2) };
        assert_eq!(span.seconds_at(opened + Duration::from_millis(500)), 0.5);
        assert_eq!(span.seconds_at(opened - Duration::from_millis(250)), -0.25);
        assert!(span.holds(opened) && !span.holds(opened - Duration::from_nanos(1)));
        assert!(!span.holds(opened + Duration::from_secs(3)));
    }
}
