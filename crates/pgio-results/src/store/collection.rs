//! Finds the experiments below directories that collect many, such as `pgio-results`.
//!
//! A directory with a manifest.json is an experiment; any other is searched, at most [`DEPTH`] levels down.
//! Links below the given directories are not followed. Nothing is read but names; see [`super::read`].

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{StoreError, io};

const MANIFEST: &str = "manifest.json";

/// A collection holds runs, and a run holds the experiments of its workloads; one level more allows for
/// collections by host.
const DEPTH: usize = 3;

/// The experiments in these directories, by name, each once. Fails if any directory holds none.
pub fn collection(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, StoreError> {
    let mut all = BTreeSet::new();
    for dir in dirs {
        let mut found = Vec::new();
        search(dir, DEPTH, &mut found)?;
        if found.is_empty() {
            return Err(StoreError::NotResults { dir: dir.clone(), missing: MANIFEST });
        }
        all.extend(found);
    }
    Ok(all.into_iter().collect())
}

fn search(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), StoreError> {
    if dir.join(MANIFEST).symlink_metadata().is_ok() {
        found.push(dir.to_owned());
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => {
            return Ok(());
        }
        // Whoever reads it learns why.
        Err(_) if depth < DEPTH => {
            found.push(dir.to_owned());
            return Ok(());
        }
        Err(source) => return Err(io("read", dir, source)),
    };
    for entry in entries {
        let entry = entry.map_err(|source| io("read", dir, source))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            search(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use crate::test_support::manifest;

    #[test]
    fn experiments_are_found_by_name_and_links_are_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        for name in ["all/b", "all/a/commit", "all/a/slob", "elsewhere"] {
            Store::create(&at(name), "", &manifest()).unwrap();
        }
        std::os::unix::fs::symlink(at("elsewhere"), at("all/link")).unwrap();
        let expected = ["all/a/commit", "all/a/slob", "all/b"].map(at);
        assert_eq!(collection(&[at("all"), at("all/b")]).unwrap(), expected);
        assert_eq!(collection(&[at("elsewhere")]).unwrap(), [at("elsewhere")]);
        fs::create_dir(at("empty")).unwrap();
        for none in ["empty", "missing"] {
            let error = collection(&[at("all"), at(none)]).unwrap_err().to_string();
            assert!(error.contains(none) && error.ends_with("manifest.json is missing"), "{error}");
        }
    }
}
