//! Notes the directories of private clusters, so that `undo` finds clusters of which pgio and the supervisor were
//! killed together.
//!
//! A note names the directory; `pg::private` decides by its mark and a lock whether the cluster may be removed,
//! which requires that no process holds the lock. Several pgio write and remove notes at the same time: a note
//! appears with its whole text, and another pgio may remove it first.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::state::{self, StateError};
use crate::host::own_dir::{DirMode, OwnDir, OwnDirError};
use crate::pg::private::{self, PrivateCluster};
use pgio_results::files::Directory;

const EXTENSION: &str = "cluster";

/// An abandoned cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandoned {
    pub directory: PathBuf,
    /// Whether it was removed; otherwise it cannot be removed now.
    pub removed: bool,
}

pub fn note(cluster: &PrivateCluster) -> Result<(), StateError> {
    let own = OwnDir::create(&state::clusters_dir()?, DirMode::Private)?;
    cluster.directories().try_for_each(|directory| note_in(&own, directory))?;
    Ok(())
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
    for (name, directory) in noted(own)? {
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
fn note_in(own: &OwnDir, directory: &Path) -> Result<(), OwnDirError> {
    forget_missing(own)?;
    let name = Path::new(directory.file_name().unwrap_or_default()).with_extension(EXTENSION);
    let write = |source| OwnDirError::Io { doing: "write", path: own.path_of(&name), source };
    let text = directory.as_os_str().as_encoded_bytes();
    Directory::open(own.path()).and_then(|notes| notes.write(&name, text)).map_err(write)
}

/// Stops and removes clusters that have no living owner, and reports each.
pub fn remove_abandoned(report: &mut dyn FnMut(Abandoned)) -> Result<(), StateError> {
    match OwnDir::open(&state::clusters_dir()?, DirMode::Private)? {
        Some(own) => Ok(remove_noted(&own, &private::reap_one, report)?),
        None => Ok(()),
    }
}

/// `reap` returns whether it removed a cluster; none if the cluster is alive or not pgio's.
fn remove_noted(
    own: &OwnDir,
    reap: &dyn Fn(&Path) -> Option<bool>,
    report: &mut dyn FnMut(Abandoned),
) -> Result<(), OwnDirError> {
    for (name, directory) in noted(own)? {
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

fn noted(own: &OwnDir) -> Result<Vec<(PathBuf, PathBuf)>, OwnDirError> {
    let mut all = Vec::new();
    for name in own.names(EXTENSION)? {
        let Some(mut file) = own.open_file(&name)? else { continue };
        let mut text = String::new();
        // Earlier versions create a note before they write it.
        if file.read_to_string(&mut text).is_ok() && !text.is_empty() {
            all.push((name, PathBuf::from(text)));
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
        let mut left: Vec<PathBuf> = noted(&own).unwrap().into_iter().map(|(_, d)| d).collect();
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
        assert_eq!(noted(&own).unwrap().len(), 1);
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
    fn a_note_appears_whole_and_an_empty_one_stays() {
        let (scratch, own) = notes();
        let here = scratch.path().join("here");
        fs::create_dir(&here).unwrap();
        // An earlier version created it and is about to write it. While it is open, no other file has its inode.
        let empty = own.open_or_create_file("here.cluster").unwrap();
        forget_missing(&own).unwrap();
        remove_noted(&own, &|_| None, &mut |_| ()).unwrap();
        note_in(&own, &here).unwrap();
        assert_eq!(empty.metadata().unwrap().len(), 0, "it is not written in place");
        let note = own.open_file("here.cluster").unwrap().unwrap();
        assert_ne!(note.metadata().unwrap().ino(), empty.metadata().unwrap().ino());
        assert_eq!(noted(&own).unwrap(), [(PathBuf::from("here.cluster"), here)]);
        assert_eq!(fs::read_dir(own.path()).unwrap().count(), 1, "no temporary file");
    }
}
