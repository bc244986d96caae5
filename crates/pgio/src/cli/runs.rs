//! Opens the results database, and reads many stored experiments.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::exit::Failure;
use super::{connection, report};
use crate::config::ConnectString;
use crate::pg::server;
use pgio_report::analysis::history::Run;
use pgio_results::store;
use postgres::Client;

/// Connects to a results database, which is not a server under test.
pub(super) fn connect(dsn: &ConnectString) -> Result<Client, Failure> {
    // With the name of a run, another pgio would end the session as a leftover.
    let params = connection::params(dsn, "store")?.with_application_name("pgio store");
    let mut client = pgio_connect::connect(&params)?;
    server::lift_limits(&mut client).map_err(|source| {
        Failure::new(super::exit::CONNECT, source).context("the results database")
    })?;
    Ok(client)
}

/// Reads and summarizes the experiments in these directories, one at a time on each processor, so that
/// memory does not grow with their number. Experiments without any trial are left out.
pub(super) fn read(dirs: &[PathBuf]) -> Result<Vec<Run>, Failure> {
    let dirs = store::collection(dirs)?;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(dirs.len());
    let next = AtomicUsize::new(0);
    let first_failure = Mutex::new(None);
    let work = || {
        let mut runs = Vec::new();
        while let Some(dir) = dirs.get(next.fetch_add(1, Ordering::Relaxed)) {
            match report::read(dir) {
                Ok(stored) => runs.extend(Run::of(&stored)),
                Err(error) => {
                    next.store(dirs.len(), Ordering::Relaxed);
                    let mut slot = first_failure.lock().expect("no thread panics with the lock");
                    slot.get_or_insert(error);
                }
            }
        }
        runs
    };
    let runs = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|w| w.join().expect("reading does not panic"));
        joined.flatten().collect()
    });
    match first_failure.into_inner().expect("no thread panics with the lock") {
        Some(error) => Err(error.into()),
        None => Ok(runs),
    }
}
