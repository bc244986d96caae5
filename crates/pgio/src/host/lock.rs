//! File locks (flock): waiting with a timeout, and finding the holder.
//!
//! The kernel releases a lock when the process ends for any reason. Any user who may open a file may
//! lock it, so lock files must be in an [`OwnDir`](super::own_dir::OwnDir). The kernel reports the
//! holder, so the file does not have to contain it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::own_dir::{OwnDir, OwnDirError};
use super::stop::Stop;

const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("could not obtain the lock held by {holder} within {} s; wait until it ends", waited.as_secs())]
    Held { holder: String, waited: Duration },
    #[error("stopped while waiting for the lock held by {holder}")]
    Stopped { holder: String },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Untrusted(#[from] OwnDirError),
}

/// A locked file that serves only as a lock and is removed when the lock is released.
#[derive(Debug)]
pub struct LockFile {
    directory: Arc<OwnDir>,
    name: String,
    file: LockedFile,
}

impl LockFile {
    /// Takes the lock, waiting up to the limit.
    pub fn take(directory: Arc<OwnDir>, name: &str, limit: Duration) -> Result<Self, LockError> {
        Self::take_unless_stopped(directory, name, limit, &Stop::new())
    }

    /// As [`take`](Self::take), but a requested stop ends the wait.
    pub fn take_unless_stopped(
        directory: Arc<OwnDir>,
        name: &str,
        limit: Duration,
        stop: &Stop,
    ) -> Result<Self, LockError> {
        loop {
            let file = directory.open_or_create_file(name)?;
            let file = LockedFile::lock_unless_stopped(file, limit, stop)?;
            // If the last holder removed the file while we waited, create a new one.
            if file.metadata()?.nlink() > 0 {
                return Ok(LockFile { directory, name: name.to_owned(), file });
            }
        }
    }

    /// Returns the file, to write information for processes that find it locked.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // An unlocked file left behind is harmless.
        let _ = self.directory.remove_file(&self.name);
    }
}

/// An open file and its lock, which is released on drop.
///
/// Closing the file is not enough: a child process that another thread has just forked holds a copy of the
/// descriptor, and with it the lock, until it executes its program.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Takes the lock, waiting up to the limit.
    pub fn lock(file: File, limit: Duration) -> Result<LockedFile, LockError> {
        Self::lock_unless_stopped(file, limit, &Stop::new())
    }

    /// Creates a file with this text; returns when it is on disk. No process finds it unlocked or without the text.
    pub fn create(directory: &OwnDir, name: &str, text: &[u8]) -> Result<LockedFile, LockError> {
        let unnamed = format!("{name}.{}", std::process::id());
        let create = || {
            let mut file = LockedFile::lock(directory.create_file(&unnamed)?, Duration::ZERO)?;
            file.write_all(text)?;
            file.sync_data()?;
            directory.rename_file(&unnamed, name)?;
            directory.sync()?;
            Ok(file)
        };
        create().inspect_err(|_| drop(directory.remove_file(&unnamed)))
    }

    fn lock_unless_stopped(
        file: File,
        limit: Duration,
        stop: &Stop,
    ) -> Result<LockedFile, LockError> {
        let deadline = Instant::now() + limit;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(LockedFile(file)),
                Err(TryLockError::WouldBlock) if stop.requested() => {
                    return Err(LockError::Stopped { holder: holder(&file) });
                }
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(POLL),
                Err(TryLockError::WouldBlock) => {
                    return Err(LockError::Held { holder: holder(&file), waited: limit });
                }
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // The lock also ends when the last copy of the descriptor is closed.
        let _ = self.0.unlock();
    }
}

/// Describes the holder of a lock, such as `process 123 (pgio compare x.toml)`.
pub fn holder(file: &File) -> String {
    match holder_pid(file) {
        Some(pid) => describe_process(pid),
        None => "another process".to_owned(),
    }
}

/// Returns the process that holds the lock, if the kernel reports it.
pub fn holder_pid(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let full_id = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    // Some file systems report a different device here than in stat(2).
    let inode = format!(":{}", metadata.ino());
    let held =
        |matches: &dyn Fn(&str) -> bool| locks.lines().find_map(|line| pid_of(line, matches));
    held(&|id| id == full_id).or_else(|| held(&|id| id.ends_with(&inode)))
}

/// Parses a line such as `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`; waiting processes are
/// marked with an arrow.
fn pid_of(line: &str, matches: &dyn Fn(&str) -> bool) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    let (kind, pid, id) = (fields.next()?, fields.nth(2)?, fields.next()?);
    // A process in another container has no valid pid here.
    (kind == "FLOCK" && matches(id)).then(|| pid.parse().ok())?.filter(|pid| *pid > 0)
}

/// Describes a process by its pid and the beginning of its command line: up to the first word that may be a
/// connection string, which may hold a password.
pub fn describe_process(pid: u32) -> String {
    const MAX_COMMAND: usize = 120;
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command);
    let words: Vec<&str> = command.split('\0').filter(|word| !word.is_empty()).collect();
    let Some((program, arguments)) = words.split_first() else { return format!("process {pid}") };
    let program = program.rsplit('/').next().unwrap_or(program);
    let plain = arguments.iter().take_while(|word| !word.contains(['=', ':', '@']));
    let mut shown = vec![program];
    shown.extend(plain);
    if shown.len() < words.len() {
        shown.push("…");
    }
    let text = shown.join(" ");
    let safe = |c: char| if c.is_control() { '?' } else { c };
    let command: String = text.chars().map(safe).take(MAX_COMMAND).collect();
    format!("process {pid} ({command})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_name_the_holder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let first = LockedFile::lock(open(), Duration::ZERO).unwrap();
        let error = LockedFile::lock(open(), Duration::ZERO).unwrap_err().to_string();
        let me = format!("could not obtain the lock held by process {} (", std::process::id());
        assert!(
            error.starts_with(&me) && error.ends_with(" within 0 s; wait until it ends"),
            "{error}"
        );
        let second = open();
        let waiting =
            thread::spawn(move || LockedFile::lock(second, Duration::from_secs(20)).map(drop));
        drop(first);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = LockedFile::lock(file.reopen().unwrap(), Duration::ZERO).unwrap();
        // As in a child between fork and exec.
        let _copy = first.try_clone().unwrap();
        drop(first);
        LockedFile::lock(file.reopen().unwrap(), Duration::ZERO).unwrap();
    }

    #[test]
    fn a_process_is_described_without_what_may_be_a_password() {
        for secret in ["host=h password=geheim", "postgresql://u:geheim@h/db", "--connect=geheim"] {
            let script = ["-c", "read line", "pgio", "undo", "--connect", secret];
            let mut shell = std::process::Command::new("sh");
            let mut child = shell.args(script).stdin(std::process::Stdio::piped()).spawn().unwrap();
            let begun = Instant::now();
            let mut text = describe_process(child.id());
            // Between fork and exec it is this process.
            while !text.contains("undo") && begun.elapsed() < Duration::from_secs(20) {
                text = describe_process(child.id());
            }
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(text.contains("pgio undo --connect …)"), "{text}");
        }
    }

    #[test]
    fn lock_files_are_removed_on_release() {
        use super::super::own_dir::DirMode;
        let dir = tempfile::tempdir().unwrap();
        let own = Arc::new(OwnDir::open(dir.path(), DirMode::Private).unwrap().unwrap());
        let take = |limit| LockFile::take(own.clone(), "a.lock", limit);
        let first = take(Duration::ZERO).unwrap();
        assert!(matches!(take(Duration::ZERO), Err(LockError::Held { .. })));
        let stop = Stop::new();
        stop.request();
        let limit = Duration::from_secs(3600);
        let stopped = LockFile::take_unless_stopped(own.clone(), "a.lock", limit, &stop);
        assert!(matches!(stopped, Err(LockError::Stopped { .. })), "{stopped:?}");
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
    fn only_holders_of_flock_locks_are_reported() {
        let pid = |line| pid_of(line, &|id| id == "08:01:5678");
        assert_eq!(pid("1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"), Some(1234));
        assert_eq!(pid("1: FLOCK  ADVISORY  WRITE 1234 08:01:567 0 EOF"), None);
        assert_eq!(pid("1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 EOF"), None);
        assert_eq!(pid("1: -> FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"), None);
        assert_eq!(pid("1: FLOCK  ADVISORY  WRITE 0 08:01:5678 0 EOF"), None);
        assert_eq!(pid(""), None);
    }
}
