//! Locks that keep two runs from changing the same server or resource of a host at the same time.
//!
//! One file lock per resource; the file names the holder. A run takes the locks of all resources that it
//! may change before its first change, and keeps them to its end; a run that changes nothing only checks.
//! A run never waits for a lock, so there is no deadlock. Two users have
//! two state directories, and do not see each other's locks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::journal::{JournalError, LOCK_TIMEOUT};
use crate::host::lock::{self, LockError, LockFile};
use crate::host::own_dir::{DirMode, OwnDir};
use crate::treatment::resource::Resource;

/// The run that holds a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub run: String,
    pub experiment: String,
    pub pid: u32,
}

/// The locks that a run holds, until it is dropped.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<Resource, LockFile>);

impl Claims {
    /// Takes the locks that it lacks, all or none of them.
    pub fn take(
        &mut self,
        dir: &Path,
        holder: &Holder,
        resources: &BTreeSet<Resource>,
    ) -> Result<(), JournalError> {
        let missing: Vec<&Resource> = self.missing(resources).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let own = Arc::new(OwnDir::create(dir, DirMode::Private)?);
        let mut taken = BTreeMap::new();
        for resource in missing {
            let mut lock = LockFile::take(own.clone(), &name_of(resource), LOCK_TIMEOUT)
                .map_err(|error| refused(&own, resource, error))?;
            let text = serde_json::to_string(holder).expect("plain data always serializes");
            // Only people read it: a full disk must not stop an experiment.
            let _ = lock.file().set_len(0).and_then(|()| lock.file().write_all(text.as_bytes()));
            taken.insert(resource.clone(), lock);
        }
        self.0.append(&mut taken);
        Ok(())
    }

    /// Refuses while another run holds one of them.
    pub fn check_free(
        &self,
        dir: &Path,
        resources: &BTreeSet<Resource>,
    ) -> Result<(), JournalError> {
        let Some(own) = OwnDir::open(dir, DirMode::Private)? else { return Ok(()) };
        for resource in self.missing(resources) {
            let Some(file) = own.open_file(name_of(resource))? else { continue };
            if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
                return Err(busy(&file, resource));
            }
        }
        Ok(())
    }

    fn missing<'a>(
        &'a self,
        resources: &'a BTreeSet<Resource>,
    ) -> impl Iterator<Item = &'a Resource> {
        resources.iter().filter(|resource| !self.0.contains_key(resource))
    }
}

/// A hash, since the text of a resource may hold any character.
fn name_of(resource: &Resource) -> String {
    let hash = Sha256::digest(resource.to_string());
    let hex: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}.lock")
}

fn refused(own: &OwnDir, resource: &Resource, error: LockError) -> JournalError {
    let path = own.path_of(name_of(resource));
    match error {
        LockError::Held { holder, .. } => match own.open_file(name_of(resource)) {
            Ok(Some(file)) => busy(&file, resource),
            _ => JournalError::Busy { who: holder, what: resource.to_string() },
        },
        source => JournalError::Lock { path, source },
    }
}

fn busy(mut file: &File, resource: &Resource) -> JournalError {
    let mut text = String::new();
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let written = serde_json::from_str::<Holder>(&text).ok();
    // Right after the lock changed hands the file still names the former holder.
    let pid = lock::holder_pid(file);
    let who = match written.filter(|holder| pid.is_none_or(|pid| pid == holder.pid)) {
        Some(Holder { run, experiment, pid }) => {
            format!("run {run} of experiment `{experiment}`, {},", lock::describe_process(pid))
        }
        None => lock::holder(file),
    };
    JournalError::Busy { who, what: resource.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(run: &str) -> Holder {
        let (run, experiment) = (run.to_owned(), "wal-disk".to_owned());
        Holder { run, experiment, pid: std::process::id() }
    }

    fn set(names: &[&str]) -> BTreeSet<Resource> {
        names.iter().map(|name| Resource::server(name)).collect()
    }

    #[test]
    fn the_holder_is_named_and_other_resources_stay_free() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("locks");
        let mut first = Claims::default();
        first.check_free(&dir, &set(&["a"])).unwrap();
        assert!(!dir.exists(), "reading creates nothing");
        first.take(&dir, &holder("r1"), &set(&["a", "b"])).unwrap();
        first.take(&dir, &holder("r1"), &set(&["b", "c"])).unwrap();
        first.check_free(&dir, &set(&["a", "b", "c"])).unwrap();

        let mut second = Claims::default();
        let refusals = [
            second.check_free(&dir, &set(&["x", "c"])).unwrap_err(),
            second.take(&dir, &holder("r2"), &set(&["A", "b"])).unwrap_err(),
        ];
        for (refusal, what) in refusals.into_iter().zip(["server c", "server b"]) {
            let text = refusal.to_string();
            let who = format!("run r1 of experiment `wal-disk`, process {} (", std::process::id());
            assert!(text.starts_with(&who), "{text}");
            assert!(text.contains(&format!("is changing {what}: wait until")), "{text}");
        }
        assert!(second.0.is_empty());
        second.take(&dir, &holder("r2"), &set(&["A", "x"])).unwrap();
        drop(first);
        second.take(&dir, &holder("r2"), &set(&["a", "b"])).unwrap();
        drop(second);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    }

    #[test]
    fn the_former_holder_is_not_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut claims = Claims::default();
        let gone = Holder { pid: 1, ..holder("r0") };
        claims.take(dir.path(), &gone, &set(&["a"])).unwrap();
        let text = Claims::default().check_free(dir.path(), &set(&["a"])).unwrap_err().to_string();
        let me = format!("process {} (", std::process::id());
        assert!(text.starts_with(&me), "{text}");
    }
}
