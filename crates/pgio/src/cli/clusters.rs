//! Directories of private clusters, noted so that `undo` finds those of which pgio and the
//! supervisor were killed together.
//!
//! A note says where; whether anything there may be removed is for `pg::private`, which looks for its
//! mark and for a lock that nobody holds.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::exit::Failure;
use super::{output, state};
use crate::host::own_dir::{DirMode, OwnDir, OwnDirError};
use crate::pg::private::{self, PrivateCluster};

const EXTENSION: &str = "cluster";

/// Notes go with the next one that finds their directory gone.
pub(super) fn note(cluster: &PrivateCluster) -> Result<(), Failure> {
    let own = OwnDir::create(&state::clusters_dir()?, DirMode::Private)?;
    for (name, directory) in noted(&own)? {
        if !exists(&directory) {
            own.remove_file(&name)?;
        }
    }
    let directory = cluster.directory();
    let name = Path::new(directory.file_name().unwrap_or_default()).with_extension(EXTENSION);
    let write = |source| OwnDirError::Io { doing: "write", path: own.path_of(&name), source };
    let mut file = own.open_or_create_file(&name)?;
    let text = directory.as_os_str().as_encoded_bytes();
    file.set_len(0).and_then(|()| file.write_all(text)).map_err(write)?;
    Ok(())
}

/// Stops and removes what has no living owner. Returns whether there was anything.
pub(super) fn remove_abandoned() -> Result<bool, Failure> {
    let Some(own) = OwnDir::open(&state::clusters_dir()?, DirMode::Private)? else {
        return Ok(false);
    };
    let mut any = false;
    for (name, directory) in noted(&own)? {
        if exists(&directory) {
            match private::sweep_one(&directory) {
                Some(true) => {
                    any = true;
                    let shown = directory.display();
                    output::line(&format!("Removed the private PostgreSQL left in {shown}."));
                }
                Some(false) => {
                    any = true;
                    let shown = directory.display();
                    output::line(&format!("Still in place: {shown}: it cannot be removed now."));
                    continue;
                }
                // It lives, or it is not ours.
                None => continue,
            }
        }
        own.remove_file(&name)?;
    }
    Ok(any)
}

fn exists(directory: &Path) -> bool {
    fs::symlink_metadata(directory).is_ok()
}

fn noted(own: &OwnDir) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    let mut all = Vec::new();
    for name in own.names(EXTENSION)? {
        let Some(mut file) = own.open_file(&name)? else { continue };
        let mut text = String::new();
        // A note that was cut short names nothing that exists.
        if file.read_to_string(&mut text).is_ok() {
            all.push((name, PathBuf::from(text)));
        }
    }
    Ok(all)
}
