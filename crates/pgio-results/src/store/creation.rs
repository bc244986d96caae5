//! What a kill leaves of an experiment that was being created: no manifest, and a trials.jsonl without trials.
//!
//! Nobody can continue or read it, so the next attempt replaces it. Whoever creates an experiment holds a lock
//! on trials.jsonl meanwhile, which tells a kill from another pgio.

use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::error::{StoreError, io};
use super::reading::{EXPERIMENT, TRIALS};
use crate::files::Directory;

/// The files that an experiment is created with.
pub(super) const FILES: &[&str] = &[TRIALS, EXPERIMENT, "manifest.json"];

/// Whether a kill ended the creation of an experiment before its manifest was written.
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
    use crate::store::{Store, read};
    use crate::test_support::{full_trial, manifest};

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
