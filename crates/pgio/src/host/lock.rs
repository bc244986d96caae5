//! Locks of the kernel's on files of ours: who holds one, and waiting for it within a limit.
//!
//! Such a lock goes with the process, however that ends. Whoever may open a file may lock it, so the
//! files are in an [`OwnDir`](super::own_dir::OwnDir). The kernel knows the holder; nothing has to be written down.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::own_dir::{OwnDir, OwnDirError};

const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("waited {} s for the lock held by {holder}", waited.as_secs())]
    Held { holder: String, waited: Duration },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Untrusted(#[from] OwnDirError),
}

/// A locked file that exists for its lock alone, and is removed with it.
#[derive(Debug)]
pub struct LockFile {
    directory: Arc<OwnDir>,
    name: String,
    file: File,
}

impl LockFile {
    /// Waits within the limit.
    pub fn take(directory: Arc<OwnDir>, name: &str, limit: Duration) -> Result<Self, LockError> {
        loop {
            let file = directory.open_or_create_file(name)?;
            lock_within(&file, limit)?;
            // Else its last holder removed it while we waited, and the next one makes another.
            if file.metadata()?.nlink() > 0 {
                return Ok(LockFile { directory, name: name.to_owned(), file });
            }
        }
    }

    /// What is written in it, for whoever finds it locked.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Left behind it would only be in the way of the eye.
        let _ = self.directory.remove_file(&self.name);
    }
}

/// Held until the file is closed.
pub fn lock_within(file: &File, limit: Duration) -> Result<(), LockError> {
    let deadline = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(POLL),
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { holder: holder(file), waited: limit });
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// Such as `process 123 (pgio compare x.toml)`.
pub fn holder(file: &File) -> String {
    match holder_pid(file) {
        Some(pid) => process(pid),
        None => "another process".to_owned(),
    }
}

/// The process that has the lock, as far as the kernel tells.
pub fn holder_pid(file: &File) -> Option<u32> {
    let found = file.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let whole = format!("{major:02x}:{minor:02x}:{}", found.ino());
    // Some file systems show another device here than to stat(2).
    let inode = format!(":{}", found.ino());
    let held =
        |matches: &dyn Fn(&str) -> bool| locks.lines().find_map(|line| pid_of(line, matches));
    held(&|id| id == whole).or_else(|| held(&|id| id.ends_with(&inode)))
}

/// From `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`; who waits has an arrow there.
fn pid_of(line: &str, matches: &dyn Fn(&str) -> bool) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    let (kind, pid, id) = (fields.next()?, fields.nth(2)?, fields.next()?);
    // A process in another container has no number here.
    (kind == "FLOCK" && matches(id)).then(|| pid.parse().ok())?.filter(|pid| *pid > 0)
}

/// A process by its number and command line.
pub fn process(pid: u32) -> String {
    const SHOWN: usize = 120;
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command);
    let words: Vec<&str> = command.split('\0').filter(|word| !word.is_empty()).collect();
    let Some((program, arguments)) = words.split_first() else { return format!("process {pid}") };
    let program = program.rsplit('/').next().unwrap_or(program);
    let text = [&[program], arguments].concat().join(" ");
    let safe = |c: char| if c.is_control() { '?' } else { c };
    let shown: String = text.chars().map(safe).take(SHOWN).collect();
    format!("process {pid} ({shown})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_holders_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        lock_within(file.as_file(), Duration::ZERO).unwrap();
        let second = File::open(file.path()).unwrap();
        let error = lock_within(&second, Duration::ZERO).unwrap_err().to_string();
        let me = format!("held by process {} (", std::process::id());
        assert!(error.starts_with("waited 0 s for the lock ") && error.contains(&me), "{error}");
        let waiting = thread::spawn(move || lock_within(&second, Duration::from_secs(20)));
        drop(file);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn a_lock_file_goes_with_its_lock() {
        use super::super::own_dir::Readers;
        let dir = tempfile::tempdir().unwrap();
        let own = Arc::new(OwnDir::open(dir.path(), Readers::Nobody).unwrap().unwrap());
        let take = |limit| LockFile::take(own.clone(), "a.lock", limit);
        let first = take(Duration::ZERO).unwrap();
        assert!(matches!(take(Duration::ZERO), Err(LockError::Held { .. })));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| take(Duration::from_secs(20)));
            drop(first);
            let second = waiting.join().unwrap().unwrap();
            assert!(dir.path().join("a.lock").exists() && take(Duration::ZERO).is_err());
            drop(second);
        });
        assert!(!dir.path().join("a.lock").exists());
    }

    #[test]
    fn only_holders_of_this_kind_of_lock_count() {
        let pid = |line| pid_of(line, &|id| id == "08:01:5678");
        assert_eq!(pid("1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"), Some(1234));
        assert_eq!(pid("1: FLOCK  ADVISORY  WRITE 1234 08:01:567 0 EOF"), None);
        assert_eq!(pid("1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 EOF"), None);
        assert_eq!(pid("1: -> FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"), None);
        assert_eq!(pid("1: FLOCK  ADVISORY  WRITE 0 08:01:5678 0 EOF"), None);
        assert_eq!(pid(""), None);
    }
}
