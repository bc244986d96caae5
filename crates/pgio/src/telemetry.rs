//! What pgio observes beside the workload: hosts, server counters, wait events of the sessions.
//!
//! A [`TelemetrySources`] holds what can be observed for one target; it is discovered once per experiment. A
//! [`Recorder`] runs the samplers during one trial, each on its own thread, and summarizes their
//! samples over the window. Anything that cannot be observed is absent and raises a warning with a
//! hint. This module never fails a trial and never prints.
//!
//! Next: `server` for counters, `waits` for wait events, `observed_hosts` for machines, [`probes`] for the
//! expected cost of a commit.

mod counters;
pub mod environment;
pub mod host;
mod observed_hosts;
pub mod observer;
pub mod probes;
mod sampling;
mod server;
mod sources;
pub mod sysstat;
mod waits;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

pub use self::observed_hosts::OwnStandby;
pub use environment::Standbys;
use observed_hosts::ObservedHost;
use pgio_results::Warning;
use pgio_results::telemetry::{ForeignSessions, Telemetry, Waits};
use pgio_results::telemetry::{Series, Track};
pub use probes::Standby;
use sampling::Span;
pub use sources::{Survey, TelemetrySources};

/// Server sessions that a recorder opens.
pub const SESSIONS: u32 = 2;

/// Prefix of the names of sampling threads; no other thread has it.
const THREAD_PREFIX: &str = "pgio-";

/// Minimum number of ticks in a window; with fewer, a series shows almost nothing.
const TICKS_IN_A_WINDOW: u32 = 5;

/// How long the sessions wait for a host's list of processes before they disconnect anyway.
const MARK_TIMEOUT: Duration = Duration::from_millis(500);

/// What a recorder must know about a trial before it begins.
#[derive(Debug, Clone, Copy)]
pub struct TrialPlan {
    /// Absent if the trial runs a fixed number of transactions.
    pub window: Option<Duration>,
    /// Whether the server has [`SESSIONS`] connections to spare.
    pub has_connections: bool,
    /// A server session that stays open during the whole trial.
    pub backend_pid: Option<i32>,
    /// Whether to observe the hosts; if not, [`Recorder::for_hosts`] does for several servers.
    pub hosts: bool,
    pub seed: u64,
}

/// All samplers of one trial. Dropping it ends them.
pub struct Recorder<'a> {
    sources: &'a TelemetrySources,
    hosts: Vec<ObservedHost<'a>>,
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
        Mark {
            at,
            driver_cpu: sampling::process_cpu_time(),
            sampling_cpu: sampling::cpu_time_of_threads(THREAD_PREFIX),
        }
    }
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("sources", &self.sources).finish_non_exhaustive()
    }
}

/// What was observed in a woven window, and the waits of each condition.
pub type WovenSummary = (Telemetry, Series, Vec<Warning>, Vec<Option<Waits>>);

impl Recorder<'_> {
    /// Starts all samplers. Call it when the sessions are ready and wait for their window.
    pub fn start(sources: &TelemetrySources, plan: TrialPlan) -> Recorder<'_> {
        let cadence = cadence(sources, plan.window);
        let mut warnings = sources.warnings.clone();
        let hosts = if plan.hosts {
            observed_hosts::start(&[(sources, plan.backend_pid)], cadence, &mut warnings)
        } else {
            Vec::new()
        };
        let (mut server, mut waits) = (None, None);
        if plan.has_connections {
            let upstreams = observed_hosts::upstreams(&sources.standbys);
            server = Some(server::Sampler::start(sources.watched.clone(), upstreams, cadence));
            waits = Some(waits::Sampler::start(sources.watched.clone(), plan.seed));
        } else {
            warnings.push(Warning::new(
                "the server was not observed",
                format!("it does not have {SESSIONS} connections to spare"),
                "raise max_connections or CONNECTION LIMIT of role or database, or use fewer sessions",
            ));
        }
        Recorder { sources, hosts, server, waits, opened: None, closed: None, warnings }
    }

    /// Starts samplers of hosts alone, each host once whatever number of servers it has. Each target comes with
    /// a session that stays open. `None` without a target.
    pub fn for_hosts<'a>(
        targets: &[(&'a TelemetrySources, Option<i32>)],
        window: Option<Duration>,
    ) -> Option<Recorder<'a>> {
        let (sources, _) = *targets.first()?;
        let mut warnings = Vec::new();
        let hosts = observed_hosts::start(targets, cadence(sources, window), &mut warnings);
        let (server, waits, opened, closed) = (None, None, None, None);
        Some(Recorder { sources, hosts, server, waits, opened, closed, warnings })
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
            && self.hosts.iter().any(|host| host.sampler.has_pending_mark())
        {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn mark(&self) {
        self.hosts.iter().for_each(|host| host.sampler.mark());
        if let Some(server) = &self.server {
            server.mark();
        }
    }

    /// Summarizes the samples. `None` if the window never opened; an unfinished window ends now.
    pub fn finish(self) -> Option<(Telemetry, Series, Vec<Warning>)> {
        let (telemetry, series, warnings, _) = self.finish_woven(&[])?;
        Some((telemetry, series, warnings))
    }

    /// Like [`Recorder::finish`]. Returns in addition the waits of each condition of a woven window, in
    /// whose slices, from start to end, it ran.
    pub fn finish_woven(mut self, slices: &[Vec<(Instant, Instant)>]) -> Option<WovenSummary> {
        let opened = self.opened?;
        if self.closed.is_none() {
            self.closed(Instant::now());
        }
        let closed = self.closed?;
        let span = Span { opened: opened.at, closed: closed.at };
        let mut warnings = self.warnings;
        let mut series = Series::new((closed.at - opened.at).as_secs_f64());
        let mut telemetry = Telemetry {
            storage: self.sources.storage.clone(),
            probes: self.sources.probes.clone(),
            driver_cpu_seconds: Some((closed.driver_cpu - opened.driver_cpu).as_secs_f64()),
            sampling_cpu_seconds: opened
                .sampling_cpu
                .zip(closed.sampling_cpu)
                // The CPU time of a thread that ended is no longer counted.
                .and_then(|(from, to)| Some(to.checked_sub(from)?.as_secs_f64())),
            ..Telemetry::default()
        };
        let (mut shares, mut foreign, mut foreign_pids) = (Vec::new(), None, BTreeSet::new());
        if let Some(waits) = self.waits {
            let spans = |slices: &Vec<(Instant, Instant)>| {
                slices
                    .iter()
                    .map(|(opened, closed)| Span { opened: *opened, closed: *closed })
                    .collect()
            };
            let sets: Vec<Vec<Span>> = slices.iter().map(spans).collect();
            let summary = waits.finish(span, &sets);
            (telemetry.waits, shares) = (summary.waits, summary.shares);
            (foreign, foreign_pids) = (summary.foreign, summary.foreign_pids);
            warnings.extend(summary.warnings);
        }
        for host in self.hosts {
            let name = host.name.to_owned();
            let (usage, tracks, host_warnings) = host.finish(span, &foreign_pids);
            telemetry.hosts.insert(name, usage);
            series.tracks.extend(tracks);
            warnings.extend(host_warnings);
        }
        if let Some(server) = self.server {
            let usage = server.finish(span);
            let databases = usage.databases;
            // Programs in the background may give their sessions any name.
            let known = self.sources.neighbors.is_empty();
            let found = ForeignSessions { active: foreign, databases };
            telemetry.foreign_sessions = known.then_some(found);
            telemetry.standbys = usage.standbys;
            observed_hosts::add_details(&self.sources.standbys, &mut telemetry.standbys);
            series.tracks.extend(usage.tracks);
            series.moments.extend(usage.moments);
            warnings.extend(usage.warnings);
        }
        series.tracks.retain(|track: &Track| !track.at.is_empty());
        series.moments.sort_by(|a, b| a.at.total_cmp(&b.at));
        // A sampler that did not answer has none.
        shares.resize(slices.len(), None);
        Some((telemetry, series, warnings, shares))
    }
}

/// Short windows need a shorter interval than the configured one.
fn cadence(sources: &TelemetrySources, window: Option<Duration>) -> Duration {
    let longest = window.map_or(Duration::MAX, |w| w / TICKS_IN_A_WINDOW);
    sources.cadence.min(longest)
}
