//! Run ids, seeds, and the directories of pgio's state.
//!
//! pgio later acts on files of the state directory, so it is never a directory shared by all
//! users that anyone could create first. Code that opens a file there checks its owner (`host::own_dir`).
//! Nothing here knows what the files in these directories mean.

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use jiff::{Timestamp, Zoned};
use rustix::fs::Access;

use crate::config::value;
use crate::exit_code::{FILES, HasExitCode, REFUSED};
use crate::host::lock::{LockError, LockFile};
use crate::host::own_dir::{DirMode, OwnDir, OwnDirError};
use crate::rng::SplitMix64;

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(
        "no directory for the journal: this user has no home directory; set PGIO_STATE_DIR to a directory that only this user may write to"
    )]
    NoHome,
    #[error(transparent)]
    Directory(#[from] OwnDirError),
    #[error("{holder} is writing to {}: wait until it ends", dir.display())]
    InUse { holder: String, dir: PathBuf },
    #[error("cannot lock {}", dir.display())]
    Find { dir: PathBuf, source: io::Error },
    #[error("cannot lock {}", dir.display())]
    Lock { dir: PathBuf, source: LockError },
}

impl HasExitCode for StateError {
    fn code(&self) -> u8 {
        match self {
            StateError::NoHome => REFUSED,
            StateError::Directory(source) => source.code(),
            StateError::InUse { .. } | StateError::Find { .. } | StateError::Lock { .. } => FILES,
        }
    }
}

const ROOT_STATE_DIR: &str = "/var/lib/pgio";

/// Journals of runs.
pub fn journal_dir() -> Result<PathBuf, StateError> {
    Ok(base_dir()?.join("journal"))
}

/// Journals of what a command holds beyond its end; runs may start meanwhile.
pub fn held_journal_dir() -> Result<PathBuf, StateError> {
    Ok(base_dir()?.join("held"))
}

/// Journals of tables that workloads create; they keep no run from starting.
pub fn table_journal_dir() -> Result<PathBuf, StateError> {
    Ok(base_dir()?.join("made"))
}

/// Notes of the directories of private clusters.
pub fn clusters_dir() -> Result<PathBuf, StateError> {
    Ok(base_dir()?.join("clusters"))
}

/// Locks: no other user may open a file there, so none can lock it.
pub fn locks_dir() -> Result<PathBuf, StateError> {
    Ok(base_dir()?.join("locks"))
}

/// Keeps other runs from writing to a results directory until dropped. The lock file is elsewhere, as
/// everybody may read the results.
pub fn lock_results(dir: &Path) -> Result<LockFile, StateError> {
    lock_results_in(&locks_dir()?, dir)
}

fn lock_results_in(locks: &Path, dir: &Path) -> Result<LockFile, StateError> {
    let found =
        fs::metadata(dir).map_err(|source| StateError::Find { dir: dir.to_owned(), source })?;
    let own = OwnDir::create(locks, DirMode::Private)?;
    let name = format!("results-{}-{}.lock", found.dev(), found.ino());
    let taken = LockFile::take(Arc::new(own), &name, Duration::from_secs(1));
    taken.map_err(|error| match error {
        LockError::Held { holder, .. } => StateError::InUse { holder, dir: dir.to_owned() },
        source => StateError::Lock { dir: dir.to_owned(), source },
    })
}

/// Where root's journals are, as far as this user has others and cannot see them.
pub fn root_journals_hint() -> Option<String> {
    let is_visible = rustix::process::geteuid().is_root()
        || base_dir().is_ok_and(|dir| dir == Path::new(ROOT_STATE_DIR));
    (!is_visible && Path::new(ROOT_STATE_DIR).exists()).then(|| {
        format!(
            "runs of root have their journals in {ROOT_STATE_DIR}: `sudo pgio undo` looks there"
        )
    })
}

/// The state directory of this user.
pub fn base_dir() -> Result<PathBuf, StateError> {
    let is_root = rustix::process::geteuid().is_root();
    // Use the passwd database if HOME is not set.
    base_dir_of(&|name| env::var_os(name), is_root, env::home_dir())
}

/// /var/lib/pgio for root, else below the user's state directory; PGIO_STATE_DIR overrides both.
fn base_dir_of(
    variable: &dyn Fn(&str) -> Option<OsString>,
    is_root: bool,
    home: Option<PathBuf>,
) -> Result<PathBuf, StateError> {
    let from = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(named) = from("PGIO_STATE_DIR") {
        return Ok(named);
    }
    if is_root {
        return Ok(PathBuf::from(ROOT_STATE_DIR));
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let below_home = || home.map(|home| home.join(".local/state")).filter(absolute);
    let state = from("XDG_STATE_HOME").filter(absolute).or_else(below_home);
    state.map(|state| state.join("pgio")).ok_or(StateError::NoHome)
}

/// The hint for a directory that is not writable (see [`check_writable`]).
pub const WRITABLE_HINT: &str = "create or mount it, and let this user write to it";

/// Checks that this user can create files in the directory.
pub fn check_writable(dir: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Unique among all machines: time (UTC), process, and 32 random bits. Containers start at the same second with
/// the same process id.
pub fn new_run_id() -> String {
    let now = Timestamp::now().strftime("%Y%m%d%H%M%S");
    let process = std::process::id();
    // RandomState takes its keys from the system's random numbers.
    let random = RandomState::new().hash_one(process) as u32;
    format!("{now}-{process}-{random:08x}")
}

/// Returns a seed if none was given. Any seed works as long as it is recorded.
pub fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    // 53 bits survive a reader that takes JSON numbers for doubles.
    SplitMix64::new(now ^ u64::from(std::process::id()).rotate_left(32)).next_u64() >> 11
}

pub fn new_results_dir(experiment: &str) -> PathBuf {
    let name = value::name_from_text(experiment);
    PathBuf::from("pgio-results").join(format!("{name}-{}", Zoned::now().strftime("%Y%m%dT%H%M%S")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(variables: &[(&str, &str)], is_root: bool, home: Option<&str>) -> Option<PathBuf> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| OsString::from(value))
        };
        base_dir_of(&variable, is_root, home.map(PathBuf::from)).ok()
    }

    #[test]
    fn the_state_directory_follows_the_environment_and_the_user() {
        let named = [("PGIO_STATE_DIR", "/s"), ("XDG_STATE_HOME", "/x")];
        assert_eq!(base(&named, true, None), Some("/s".into()));
        assert_eq!(base(&named[1..], false, Some("/home/u")), Some("/x/pgio".into()));
        assert_eq!(base(&named[1..], true, Some("/root")), Some("/var/lib/pgio".into()));
        let home = Some("/home/u/.local/state/pgio".into());
        assert_eq!(base(&[], false, Some("/home/u")), home);
        // Empty and relative paths are ignored.
        let unusable = [("PGIO_STATE_DIR", ""), ("XDG_STATE_HOME", "state")];
        assert_eq!(base(&unusable, false, Some("/home/u")), home);
        assert_eq!(base(&unusable, false, Some("home")), None);
        assert_eq!(base(&[], false, None), None);
    }

    #[test]
    fn results_have_one_writer_at_a_time() {
        let scratch = tempfile::tempdir().unwrap();
        let (locks, results) = (scratch.path().join("locks"), scratch.path().join("results"));
        let missing = lock_results_in(&locks, &results).unwrap_err();
        assert!(matches!(missing, StateError::Find { .. }), "{missing}");
        fs::create_dir(&results).unwrap();
        let first = lock_results_in(&locks, &results).unwrap();
        let second = lock_results_in(&locks, &results).unwrap_err();
        assert!(matches!(second, StateError::InUse { .. }), "{second}");
        drop(first);
        lock_results_in(&locks, &results).unwrap();
    }

    #[test]
    fn runs_of_one_second_and_process_have_different_ids() {
        let ids: std::collections::BTreeSet<String> = (0..100).map(|_| new_run_id()).collect();
        assert_eq!(ids.len(), 100);
        let longest = format!("pgio:{} driver 1000", ids.first().unwrap());
        assert!(longest.len() < 64, "PostgreSQL cuts application_name: {longest}");
    }

    #[test]
    fn new_seeds_fit_into_53_bits() {
        assert!((0..100).all(|_| new_seed() < 1 << 53));
    }
}
