//! The right to change things, of one pgio at a time.
//!
//! A lock of the kernel's on a file beside the journals: it goes with the process, however that ends.
//! The file stays, and says who took it last. An experiment that may change something has it from
//! before its first change to its end, and `pgio undo` while it works; whoever changes nothing only
//! looks. Two users have two directories of journals, and do not see each other here.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{JournalError, failed};

const FILE: &str = "lock";

/// Whoever looks holds it for a moment, and so does a process between fork and exec.
const PATIENCE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// Held until it is dropped.
#[derive(Debug)]
pub struct Claim {
    _file: File,
}

impl Claim {
    /// `what` is told to those who come meanwhile, such as `an experiment`.
    pub fn take(dir: &Path, what: &str) -> Result<Claim, JournalError> {
        fs::create_dir_all(dir).map_err(|e| failed("make the directory of", dir, e))?;
        let path = dir.join(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| failed("open the lock beside", &path, e))?;
        lock(&file, dir, &path)?;
        // For people only: a full disk must not keep anyone from putting things back.
        let told = format!("{what} (process {})\n", std::process::id());
        let _ = file.set_len(0).and_then(|()| file.write_all(told.as_bytes()));
        Ok(Claim { _file: file })
    }
}

/// Of the file at `path`, a journal or the claim's.
pub(super) fn lock(file: &File, dir: &Path, path: &Path) -> Result<(), JournalError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(POLL),
            Err(TryLockError::WouldBlock) => return Err(busy(dir, path.to_owned())),
            Err(TryLockError::Error(e)) => return Err(failed("lock", path, e)),
        }
    }
}

/// Refuses while somebody has it.
pub(super) fn check_free(dir: &Path) -> Result<(), JournalError> {
    let path = dir.join(FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed("open the lock beside", &path, e)),
    };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Err(busy(dir, path)),
        _ => Ok(()),
    }
}

/// Of what is locked at `path`.
pub(super) fn busy(dir: &Path, path: PathBuf) -> JournalError {
    let who = fs::read_to_string(dir.join(FILE)).unwrap_or_default();
    let who = match who.trim() {
        "" => "another pgio".to_owned(),
        known => known.to_owned(),
    };
    JournalError::Busy { who, path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_and_others_hear_who() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_free(dir.path()).is_ok());
        assert!(!dir.path().join(FILE).exists(), "whoever looks leaves nothing");
        let claim = Claim::take(dir.path(), "an experiment").unwrap();
        let expected = format!("an experiment (process {})", std::process::id());
        for refused in [
            Claim::take(dir.path(), "an undo").map(drop).unwrap_err(),
            check_free(dir.path()).unwrap_err(),
        ] {
            let said = refused.to_string();
            assert!(said.starts_with(&expected) && said.contains("wait for it to end"), "{said}");
        }
        drop(claim);
        assert!(check_free(dir.path()).is_ok(), "who had it last does not count");
        assert!(Claim::take(dir.path(), "an undo").is_ok());
    }

    #[test]
    fn whoever_looks_keeps_nobody_from_it() {
        let dir = tempfile::tempdir().unwrap();
        drop(Claim::take(dir.path(), "an experiment").unwrap());
        let look = File::open(dir.path().join(FILE)).unwrap();
        look.lock_shared().unwrap();
        let looking = thread::spawn(move || {
            thread::sleep(PATIENCE / 5);
            drop(look);
        });
        assert!(Claim::take(dir.path(), "an experiment").is_ok());
        looking.join().unwrap();
    }
}
