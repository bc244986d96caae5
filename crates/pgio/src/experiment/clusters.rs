//! Notes the directories of private clusters, so that `undo` finds clusters of which pgio and the supervisor were
//! killed together.
//!
//! A note names the directory and is on disk before the directory is made; it is locked until that has its mark.
//! `pg::private` decides by the mark and a lock whether the cluster may be removed, which requires that no process
//! holds the lock. Several pgio write and remove notes at the same time: a note appears with its whole text, and
//! another pgio may remove it first.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::state::{self, StateError};
use crate::host::lock::{LockError, LockedFile};
use crate::host::own_dir::{DirMode, OwnDir, OwnDirError};
use crate::pg::private;

const EXTENSION: &str = "cluster";

/// An abandoned cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandoned {
    pub directory: PathBuf,
    /// Whether it was removed; otherwise it cannot be removed now.
    pub removed: bool,
}

/// Notes directories that are about to be made. The notes keep their place until the files are dropped, which is
/// when a cluster is complete or failed.
pub fn note(directories: &[PathBuf]) -> Result<Vec<LockedFile>, StateError> {
    let own = OwnDir::create(&state::clusters_dir()?, DirMode::Private)?;
    directories.iter().map(|directory| note_in(&own, directory)).collect()
}

/// Removes the notes of clusters that are gone, so that a run which ended by itself leaves none. A note that
/// stays is harmless: the next one removes it.
pub fn forget_removed() {
    let dir = state::clusters_dir().ok();
    if let Some(Ok(Some(own))) = dir.map(|dir| OwnDir::open(&dir, DirMode::Private)) {
        let _ = forget_missing(&own);
    }
}

fn forget_missing(own: &OwnDir) -> Result<(), OwnDirError> {
    for Note { name, directory, _lock } in noted(own, Duration::ZERO)? {
        if !exists(&directory) {
            remove_note(own, &name)?;
        }
    }
    Ok(())
}

/// Removes a note, unless another pgio has done so.
fn remove_note(own: &OwnDir, name: &Path) -> Result<(), OwnDirError> {
    match own.remove_file(name) {
        Err(OwnDirError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Also removes notes whose directory no longer exists.
fn note_in(own: &OwnDir, directory: &Path) -> Result<LockedFile, StateError> {
    forget_missing(own)?;
    let name = format!("{}.{EXTENSION}", directory.file_name().unwrap_or_default().display());
    let text = directory.as_os_str().as_encoded_bytes();
    LockedFile::create(own, &name, text).map_err(|error| match error {
        LockError::Untrusted(source) => StateError::Directory(source),
        source => StateError::Lock { dir: own.path_of(&name), source },
    })
}

/// Stops and removes clusters that have no living owner, and reports each.
pub fn remove_abandoned(report: &mut dyn FnMut(Abandoned)) -> Result<(), StateError> {
    match OwnDir::open(&state::clusters_dir()?, DirMode::Private)? {
        Some(own) => Ok(remove_noted(&own, &private::reap_noted, report)?),
        None => Ok(()),
    }
}

/// `reap` returns whether it removed a cluster; none if the cluster is alive or not pgio's.
fn remove_noted(
    own: &OwnDir,
    reap: &dyn Fn(&Path) -> Option<bool>,
    report: &mut dyn FnMut(Abandoned),
) -> Result<(), OwnDirError> {
    for Note { name, directory, _lock } in noted(own, private::KILLED_WAIT)? {
        if exists(&directory) {
            let Some(removed) = reap(&directory) else { continue };
            report(Abandoned { directory, removed });
            if !removed {
                continue;
            }
        }
        remove_note(own, &name)?;
    }
    Ok(())
}

fn exists(directory: &Path) -> bool {
    fs::symlink_metadata(directory).is_ok()
}

struct Note {
    name: PathBuf,
    directory: PathBuf,
    _lock: LockedFile,
}

/// The notes except for clusters that are being made.
fn noted(own: &OwnDir, wait: Duration) -> Result<Vec<Note>, OwnDirError> {
    let mut all = Vec::new();
    for name in own.names(EXTENSION)? {
        let Some(file) = own.open_file(&name)? else { continue };
        let Ok(mut lock) = LockedFile::lock(file, wait) else { continue };
        let mut text = String::new();
        if lock.read_to_string(&mut text).is_ok() && !text.is_empty() {
            all.push(Note { name, directory: PathBuf::from(text), _lock: lock });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use tempfile::TempDir;

    use super::*;

    /// A directory for notes in another one.
    fn notes() -> (TempDir, OwnDir) {
        let scratch = tempfile::tempdir().unwrap();
        let own = OwnDir::create(&scratch.path().join("notes"), DirMode::Private).unwrap();
        (scratch, own)
    }

    #[test]
    fn a_note_stays_until_its_cluster_is_removed() {
        let (scratch, own) = notes();
        let places = ["living", "removed", "busy", "vanished"].map(|n| scratch.path().join(n));
        for place in &places {
            fs::create_dir(place).unwrap();
            note_in(&own, place).unwrap();
        }
        fs::remove_dir(&places[3]).unwrap();
        let reap = |directory: &Path| match directory.file_name().unwrap().to_str().unwrap() {
            "removed" => Some(fs::remove_dir(directory).is_ok()),
            "busy" => Some(false),
            _ => None,
        };
        let mut found = Vec::new();
        remove_noted(&own, &reap, &mut |abandoned| found.push(abandoned)).unwrap();
        found.sort_by_key(|a| a.removed);
        let abandoned = |at: usize, removed| Abandoned { directory: places[at].clone(), removed };
        assert_eq!(found, [abandoned(2, false), abandoned(1, true)]);
        let mut left: Vec<PathBuf> =
            noted(&own, Duration::ZERO).unwrap().into_iter().map(|note| note.directory).collect();
        left.sort();
        assert_eq!(left, [places[2].clone(), places[0].clone()]);
    }

    #[test]
    fn a_new_note_removes_notes_of_missing_directories() {
        let (scratch, own) = notes();
        let (gone, here) = (scratch.path().join("gone"), scratch.path().join("here"));
        fs::create_dir(&here).unwrap();
        note_in(&own, &gone).unwrap();
        note_in(&own, &here).unwrap();
        assert_eq!(noted(&own, Duration::ZERO).unwrap().len(), 1);
    }

    /// The directory of a cluster that is being made may not be there yet.
    #[test]
    fn a_note_stays_while_its_cluster_is_being_made() {
        let (scratch, own) = notes();
        let directory = scratch.path().join("later");
        let note = note_in(&own, &directory).unwrap();
        let undo = || remove_noted(&own, &|_| panic!("it lives"), &mut |_| ()).unwrap();
        forget_missing(&own).unwrap();
        undo();
        fs::create_dir(&directory).unwrap();
        undo();
        assert_eq!(own.names(EXTENSION).unwrap().len(), 1);
        drop(note);
        let mut found = Vec::new();
        let reap = |directory: &Path| Some(fs::remove_dir(directory).is_ok());
        remove_noted(&own, &reap, &mut |abandoned| found.push(abandoned)).unwrap();
        assert_eq!(found, [Abandoned { directory, removed: true }]);
    }

    #[test]
    fn a_note_that_another_pgio_removes_first_is_no_error() {
        let (scratch, own) = notes();
        let place = scratch.path().join("place");
        fs::create_dir(&place).unwrap();
        note_in(&own, &place).unwrap();
        let reap = |directory: &Path| {
            own.remove_file("place.cluster").unwrap();
            Some(fs::remove_dir(directory).is_ok())
        };
        let mut found = Vec::new();
        remove_noted(&own, &reap, &mut |abandoned| found.push(abandoned)).unwrap();
        assert_eq!(found, [Abandoned { directory: place, removed: true }]);
        remove_note(&own, Path::new("place.cluster")).unwrap();
    }

    #[test]
    fn a_note_appears_whole() {
        let (scratch, own) = notes();
        let here = scratch.path().join("here");
        fs::create_dir(&here).unwrap();
        // While it is open, no other file has its inode.
        let before = own.open_or_create_file("here.cluster").unwrap();
        note_in(&own, &here).unwrap();
        assert_eq!(before.metadata().unwrap().len(), 0, "it is not written in place");
        let note = own.open_file("here.cluster").unwrap().unwrap();
        assert_ne!(note.metadata().unwrap().ino(), before.metadata().unwrap().ino());
        let notes = noted(&own, Duration::ZERO).unwrap();
        assert_eq!(notes.len(), 1);
        assert_eq!((notes[0].name.to_str(), &notes[0].directory), (Some("here.cluster"), &here));
        assert_eq!(fs::read_dir(own.path()).unwrap().count(), 1, "no temporary file");
    }
}
