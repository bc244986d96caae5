//! Continues an experiment in the directory of an interrupted run.
//!
//! A torn last line is removed from trials.jsonl, because a record appended after it would be
//! unreadable. It is saved in a separate file.

use std::io::{ErrorKind, Seek};
use std::path::Path;

use super::Store;
use super::error::{StoreError, io};
use super::manifest::Resumed;
use super::reading::{Records, StoredExperiment, TRIALS, open, read_manifest, records};

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
}
