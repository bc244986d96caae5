//! What all samplers share: the window, the server that they watch, their sessions there, pgio's own CPU time.
//!
//! A session has a statement timeout and, if possible, is in another database than the workload's: reads and
//! commits of a session count for its own database. In the database `postgres` they do not disturb the
//! workload's BEFORE and AFTER statistics, and the views show the whole server anyway.

use std::fs;
use std::time::{Duration, Instant};

use pgio_connect::Client;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::host::clock::seconds_between;
use crate::pg::server::ServerError;
use crate::pg::{session, words};
use pgio_connect::{ConnectError, ConnectParams};
use pgio_results::Warning;

const SEPARATE_DATABASE: &str = "postgres";
/// Connect and statement timeout, so that a sampler cannot hang.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Chooses the connection parameters for sampling sessions. Tests the separate database once,
/// because the password file or pg_hba.conf may allow the role only its own database.
pub(super) fn choose(params: &ConnectParams) -> ConnectParams {
    let mut own = params.clone();
    own.connect_timeout.get_or_insert(TIMEOUT);
    let separate = own.clone().with_dbname(SEPARATE_DATABASE);
    let usable = params.dbname != SEPARATE_DATABASE && session::open(&separate).is_ok();
    if usable { separate } else { own }
}

pub(super) fn open(params: &ConnectParams) -> Result<Client, SessionError> {
    let mut client = session::open(params)?;
    let limit = format!("SET statement_timeout = {}", TIMEOUT.as_millis());
    client.batch_execute(&limit)?;
    Ok(client)
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("{}", words::message(.0))]
    Postgres(#[from] pgio_connect::Error),
}

/// Timeout for a sampler to return its samples.
pub(super) const SAMPLER_TIMEOUT: Duration = Duration::from_secs(6);

/// The server under observation.
#[derive(Debug, Clone)]
pub(super) struct WatchedServer {
    pub(super) params: ConnectParams,
    pub(super) version_num: u32,
    /// The database of the workload.
    pub(super) database: String,
}

pub(super) fn not_observed(what: &str, why: &str) -> Warning {
    Warning::new(format!("{what} were not observed"), why, "check the server log, then run again")
}

/// Latest arrival of a reading that was requested at the end of the window.
const READING_DELAY: Duration = Duration::from_millis(100);

/// The measuring window, on this machine's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) opened: Instant,
    pub(super) closed: Instant,
}

impl Span {
    /// Seconds since the start of the window; negative before it.
    pub(super) fn seconds_at(&self, at: Instant) -> f64 {
        seconds_between(self.opened, at)
    }

    pub(super) fn contains(&self, at: Instant) -> bool {
        at >= self.opened && at <= self.closed + READING_DELAY
    }
}

/// User and system time of all threads so far, including threads that have ended.
pub(super) fn process_cpu_time() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time of the running threads whose names begin with `prefix`; `None` if the kernel does not
/// account for single threads.
pub(super) fn cpu_time_of_threads(prefix: &str) -> Option<Duration> {
    let mut used = Duration::ZERO;
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let read = |file| fs::read_to_string(task.path().join(file)).ok();
        // The thread may have ended meanwhile.
        let Some(name) = read("comm") else { continue };
        if name.starts_with(prefix) {
            let schedstat = read("schedstat")?;
            let ns = schedstat.split_whitespace().next()?.parse().ok()?;
            used += Duration::from_nanos(ns);
        }
    }
    Some(used)
}

fn duration(at: Timespec) -> Duration {
    Duration::new(at.tv_sec.unsigned_abs(), u32::try_from(at.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

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

    #[test]
    fn cpu_time_is_counted_for_threads_with_the_prefix() {
        let all = process_cpu_time();
        let (done, wait) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let worker = thread::Builder::new().name("cpu-test-busy".to_owned()).spawn(move || {
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            done.send(started.elapsed()).unwrap();
            let _ = ended.recv();
        });
        let took = wait.recv().unwrap();
        // Other processes may have used the CPU for some of that time.
        let used = cpu_time_of_threads("cpu-test-").unwrap();
        let most = took + Duration::from_millis(10);
        assert!(used > Duration::from_millis(1) && used < most, "{used:?} of {took:?}");
        assert!(process_cpu_time() - all >= used);
        assert_eq!(cpu_time_of_threads("no-such-thread-"), Some(Duration::ZERO));
        drop(end);
        worker.unwrap().join().unwrap();
    }
}
