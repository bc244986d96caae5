//! What a kill leaves of an experiment: a torn last line, which resuming removes, or no manifest, which the next attempt
//! to create it replaces.
//!
//! A record appended after a torn line would be unreadable; the line is saved in a separate file.

use std::io::{ErrorKind, Seek};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::manifest::Resumed;
use super::reading::{EXPERIMENT, Records, StoredExperiment, TRIALS, open, read_manifest, records};
use super::{Store, StoreError, io};
use crate::files::Directory;

impl Store {
    /// Opens a results directory for appending and reads its records. The caller must prevent
    /// concurrent writers.
    pub fn resume(dir: &Path) -> Result<(Store, StoredExperiment), StoreError> {
        let path = dir.join(TRIALS);
        let directory = open(dir, TRIALS)?;
        let mut trials = match directory.append_to(TRIALS) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(StoreError::NotResults { dir: dir.to_owned(), missing: TRIALS });
            }
            Err(e) => return Err(io("open", &path, e)),
        };
        let manifest = read_manifest(dir)?;
        trials.rewind().map_err(|e| io("read", &path, e))?;
        let Records { trials: read, whole, torn } = records(&trials, &path)?;
        let (records, is_torn) = (read.len(), !torn.is_empty());
        let store = Store { dir: dir.to_owned(), directory, trials, records };
        if is_torn {
            store.save_torn(&String::from_utf8_lossy(&torn))?;
            let cut = store.trials.set_len(whole).and_then(|()| store.trials.sync_all());
            cut.map_err(|e| io("remove the torn record from", &path, e))?;
        }
        Ok((store, StoredExperiment { manifest, trials: read, torn: is_torn, judged: false }))
    }

    /// Records the continuation in the manifest.
    pub fn note_resumed(
        &mut self,
        stored: &mut StoredExperiment,
        note: Resumed,
    ) -> Result<(), StoreError> {
        stored.manifest.resumed.push(note);
        self.write_manifest(&stored.manifest)
    }

    /// Saves a torn record under the first unused name.
    fn save_torn(&self, torn: &str) -> Result<(), StoreError> {
        let free = (1..).map(|n| format!("torn-{n}.txt")).find(|name| !self.directory.has(name));
        let name = free.expect("a directory cannot contain that many files");
        self.write(&name, torn)
    }
}

/// The files that an experiment is created with.
pub(super) const FILES: &[&str] = &[TRIALS, EXPERIMENT, "manifest.json"];

/// Whether a kill ended the creation of an experiment before its manifest was written. Nobody can continue or read
/// what it left. Whoever creates an experiment holds a lock on trials.jsonl meanwhile, which tells a kill from another
/// pgio.
pub(super) fn is_unfinished(dir: &Path) -> bool {
    let found = |name: &str| dir.join(name).symlink_metadata();
    let is_missing = |name| found(name).is_err_and(|e| e.kind() == ErrorKind::NotFound);
    is_missing("manifest.json") && found(TRIALS).is_ok_and(|f| f.is_file() && f.len() == 0)
}

/// Removes the files of such an experiment, unless another pgio is creating it now.
pub(super) fn remove_unfinished(dir: &Path, directory: &Directory) -> Result<(), StoreError> {
    let occupied = || StoreError::Occupied(dir.to_owned());
    let trials = directory.append_to(TRIALS).map_err(|_| occupied())?;
    flock(&trials, FlockOperation::NonBlockingLockExclusive).map_err(|_| occupied())?;
    // It may have been completed meanwhile.
    if !is_unfinished(dir) {
        return Err(occupied());
    }
    for name in FILES {
        directory.remove(name).map_err(|source| io("remove", &dir.join(name), source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::read;
    use crate::test_support::{full_trial, manifest};
    use crate::wire;

    fn interrupted(tail: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::create(dir.path(), "[experiment]\n", &manifest()).unwrap();
        store.append(&full_trial()).unwrap();
        drop(store);
        let path = dir.path().join("trials.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + tail).unwrap();
        dir
    }

    #[test]
    fn new_records_follow_the_existing_ones() {
        let dir = interrupted("");
        let (mut store, stored) = Store::resume(dir.path()).unwrap();
        assert_eq!((stored.trials.len(), stored.torn), (1, false));
        store.append(&full_trial()).unwrap();
        assert_eq!(read(dir.path()).unwrap().trials.len(), 2);
        assert!(!dir.path().join("torn-1.txt").exists());
    }

    #[test]
    fn a_torn_record_is_removed_and_saved() {
        let line = wire::to_json(&full_trial());
        for cut in [1, line.len() / 2, line.len()] {
            let dir = interrupted(&line[..cut]);
            fs::write(dir.path().join("torn-1.txt"), "an earlier one").unwrap();
            let (mut store, stored) = Store::resume(dir.path()).unwrap();
            assert!(stored.torn);
            store.append(&full_trial()).unwrap();
            let again = read(dir.path()).unwrap();
            assert_eq!((again.trials.len(), again.torn), (2, false));
            let saved = fs::read_to_string(dir.path().join("torn-2.txt")).unwrap();
            assert_eq!(saved, line[..cut]);
        }
    }

    #[test]
    fn the_manifest_records_the_continuation() {
        let dir = interrupted("");
        let (mut store, mut stored) = Store::resume(dir.path()).unwrap();
        let note = Resumed {
            at: "2026-11-21T12:00:00Z".to_owned(),
            pgio: "2.0.0".to_owned(),
            from_trial: 2,
            remarks: vec!["a new private cluster".to_owned()],
        };
        store.note_resumed(&mut stored, note.clone()).unwrap();
        assert_eq!(read(dir.path()).unwrap().manifest.resumed, [note]);
    }

    const TEXT: &str = "[experiment]\nname = \"test\"\n";

    #[test]
    fn create_replaces_leftovers_of_a_killed_run_without_a_manifest() {
        for has_text in [false, true] {
            let parent = tempfile::tempdir().unwrap();
            let dir = parent.path();
            fs::write(dir.join("trials.jsonl"), "").unwrap();
            if has_text {
                fs::write(dir.join("experiment.toml"), "[experi").unwrap();
            }
            Store::check_free(dir).unwrap();
            let mut store = Store::create(dir, TEXT, &manifest()).unwrap();
            store.append(&full_trial()).unwrap();
            assert_eq!(read(dir).unwrap().trials.len(), 1);
            assert_eq!(fs::read_to_string(dir.join("experiment.toml")).unwrap(), TEXT);
        }
    }

    #[test]
    fn create_refuses_a_directory_with_trials_or_held_by_another_run() {
        let parent = tempfile::tempdir().unwrap();
        let mut store = Store::create(parent.path(), TEXT, &manifest()).unwrap();
        store.append(&full_trial()).unwrap();
        drop(store);
        fs::remove_file(parent.path().join("manifest.json")).unwrap();
        let error = Store::create(parent.path(), TEXT, &manifest()).unwrap_err();
        assert!(matches!(error, StoreError::Occupied(_)), "{error}");
        let parent = tempfile::tempdir().unwrap();
        let held = Store::create(parent.path(), TEXT, &manifest()).unwrap();
        // As it is between two steps of the other's `create`.
        fs::remove_file(parent.path().join("manifest.json")).unwrap();
        let error = Store::create(parent.path(), TEXT, &manifest()).unwrap_err();
        assert!(matches!(error, StoreError::Occupied(_)), "{error}");
        drop(held);
        Store::create(parent.path(), TEXT, &manifest()).unwrap();
    }
}
