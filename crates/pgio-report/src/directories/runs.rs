//! Reads and summarizes the many runs of a history, on all processors.
//!
//! A run is summarized as soon as it is read, so that memory does not grow with the number of runs.
//! Next: `analysis::history`.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::analysis::history::Run;
use pgio_results::store::{self, StoreError};

/// Reads and summarizes the experiments in these directories, one at a time on each processor, so that
/// memory does not grow with their number. Experiments without any trial are left out.
pub fn read_runs(dirs: &[PathBuf]) -> Result<Vec<Run>, StoreError> {
    let dirs = store::collection(dirs)?;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(dirs.len());
    let next = AtomicUsize::new(0);
    let first_failure = Mutex::new(None);
    let work = || {
        let mut runs = Vec::new();
        while let Some(dir) = dirs.get(next.fetch_add(1, Ordering::Relaxed)) {
            match store::read(dir) {
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
        // Where no more threads may start, this one reads alone.
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let workers: Vec<_> = (1..threads).map_while(start).collect();
        let own = work();
        let joined = workers.into_iter().map(|w| w.join().expect("reading does not panic"));
        joined.flatten().chain(own).collect()
    });
    match first_failure.into_inner().expect("no thread panics with the lock") {
        Some(error) => Err(error),
        None => Ok(runs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::test_support::{stored_runs, write_runs};
    use pgio_results::store::Store;
    use pgio_results::test_support::manifest;

    #[test]
    fn all_runs_below_a_directory_are_summarized_and_a_damaged_one_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let written = write_runs(parent.path(), &stored_runs(5, |_| 1.0)).unwrap();
        Store::create(&parent.path().join("without-trials"), "", &manifest()).unwrap();
        let all = [parent.path().to_owned()];
        let mut starts: Vec<String> =
            read_runs(&all).unwrap().into_iter().map(|run| run.created_at).collect();
        starts.sort();
        let nights = (1..=5).map(|day| format!("2026-10-0{day}T02:00:00Z"));
        assert_eq!(starts, nights.collect::<Vec<_>>());
        std::fs::remove_file(written[2].join("trials.jsonl")).unwrap();
        let error = read_runs(&all).unwrap_err().to_string();
        assert!(error.contains("run-0003"), "{error}");
    }
}
