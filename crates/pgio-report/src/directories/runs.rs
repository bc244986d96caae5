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
/// memory does not grow with their number. Experiments without any trial are left out, and those that cannot be read
/// are returned as errors: one damaged directory among many does not end a history. Fails if none can be read.
pub fn read_runs(dirs: &[PathBuf]) -> Result<(Vec<Run>, Vec<StoreError>), StoreError> {
    let dirs = store::collection(dirs)?;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(dirs.len());
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let work = || {
        let mut runs = Vec::new();
        while let Some(dir) = dirs.get(next.fetch_add(1, Ordering::Relaxed)) {
            match store::read(dir) {
                Ok(stored) => runs.extend(Run::from_stored(&stored)),
                Err(error) => {
                    failures.lock().expect("no thread panics with the lock").push(error);
                }
            }
        }
        runs
    };
    let runs: Vec<Run> = thread::scope(|scope| {
        // Where no more threads may start, this one reads alone.
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let workers: Vec<_> = (1..threads).map_while(start).collect();
        let own = work();
        let joined = workers.into_iter().map(|w| w.join().expect("reading does not panic"));
        joined.flatten().chain(own).collect()
    });
    let mut failures = failures.into_inner().expect("no thread panics with the lock");
    match failures.pop() {
        Some(only) if runs.is_empty() => Err(only),
        last => {
            failures.extend(last);
            Ok((runs, failures))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::test_support::{stored_runs, write_runs};
    use pgio_results::store::Store;
    use pgio_results::test_support::manifest;

    #[test]
    fn all_runs_below_a_directory_are_summarized_and_a_damaged_one_is_left_out() {
        let parent = tempfile::tempdir().unwrap();
        let written = write_runs(parent.path(), &stored_runs(5, |_| 1.0)).unwrap();
        Store::create(&parent.path().join("without-trials"), "", &manifest()).unwrap();
        let all = [parent.path().to_owned()];
        let mut starts: Vec<String> =
            read_runs(&all).unwrap().0.into_iter().map(|run| run.created_at).collect();
        starts.sort();
        let nights = (1..=5).map(|day| format!("2026-10-0{day}T02:00:00Z"));
        assert_eq!(starts, nights.collect::<Vec<_>>());
        std::fs::remove_file(written[2].join("trials.jsonl")).unwrap();
        let long = std::fs::read_to_string(written[3].join("manifest.json")).unwrap();
        let long = long.replace("\"local\"", &format!("\"{}\"", "x".repeat(1 << 20)));
        std::fs::write(written[3].join("manifest.json"), long).unwrap();
        let (runs, failures) = read_runs(&all).unwrap();
        let mut texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
        texts.sort();
        assert_eq!((runs.len(), texts.len()), (3, 2), "{texts:?}");
        assert!(texts[0].contains("run-0003"), "{texts:?}");
        assert!(
            texts[1].contains("run-0004") && texts[1].contains("a name of 1048576 bytes"),
            "{texts:?}"
        );
        assert!(read_runs(&written[2..4]).is_err());
    }
}
