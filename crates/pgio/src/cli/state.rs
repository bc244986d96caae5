//! Names and places that a command draws from its surroundings: the run's id, a seed, directories.
//!
//! The state directory holds what pgio acts on later, so it is never a place that is the same for all
//! users and that anyone can make first. Whoever opens something there checks whose it is (`host::own_dir`).

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Zoned;
use rustix::fs::Access;

use super::exit::{FILES, Failure, REFUSED};
use crate::config::name;
use crate::host::lock::{LockError, LockFile};
use crate::host::own_dir::{DirMode, OwnDir};
use crate::rng::SplitMix64;

/// Where journals of runs are kept.
pub(super) fn journal_dir() -> Result<PathBuf, Failure> {
    Ok(base_dir()?.join("journal"))
}

/// Where the journal of what is held on purpose is kept, beside which runs go on.
pub(super) fn held_dir() -> Result<PathBuf, Failure> {
    Ok(base_dir()?.join("held"))
}

/// Where the journals of what workloads make for themselves are kept; they keep nobody from starting.
pub(super) fn made_dir() -> Result<PathBuf, Failure> {
    Ok(base_dir()?.join("made"))
}

/// Where the directories of private clusters are noted.
pub(super) fn clusters_dir() -> Result<PathBuf, Failure> {
    Ok(base_dir()?.join("clusters"))
}

/// Where locks are kept: nobody else may open a file there, and so nobody else can lock it.
pub(super) fn locks_dir() -> Result<PathBuf, Failure> {
    Ok(base_dir()?.join("locks"))
}

/// Keeps other runs from writing to a results directory, which everybody may read, until it is dropped.
pub(super) fn lock_results(dir: &Path) -> Result<LockFile, Failure> {
    let cannot = |e| Failure::new(FILES, e).context(format!("cannot lock {}", dir.display()));
    let found = fs::metadata(dir).map_err(cannot)?;
    let own = OwnDir::create(&locks_dir()?, DirMode::Private)?;
    let name = format!("results-{}-{}.lock", found.dev(), found.ino());
    LockFile::take(Arc::new(own), &name, Duration::from_secs(1)).map_err(|error| match error {
        LockError::Held { holder, .. } => Failure::message(
            FILES,
            format!("{holder} is writing to {} at this moment: wait for it to end", dir.display()),
        ),
        other => Failure::new(FILES, other).context(format!("cannot lock {}", dir.display())),
    })
}

/// /var/lib/pgio for root, else below the user's state directory.
fn base_dir() -> Result<PathBuf, Failure> {
    let from = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(named) = from("PGIO_STATE_DIR") {
        return Ok(named);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/pgio"));
    }
    // From the passwd database where HOME is not set.
    let home = || env::home_dir().map(|home| home.join(".local/state"));
    let absolute = |path: &PathBuf| path.is_absolute();
    let state = from("XDG_STATE_HOME").filter(absolute).or_else(|| home().filter(absolute));
    state.map(|state| state.join("pgio")).ok_or_else(|| {
        Failure::message(
            REFUSED,
            "no place for the journal of changes: this user has no home directory; set PGIO_STATE_DIR to a directory that only this user may write",
        )
    })
}

/// What to do where it is not [`writable`].
pub(super) const LET_WRITE: &str = "make or mount it, and let this user write there";

/// Whether this user can make something in the directory.
pub(super) fn writable(dir: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Unique among the runs of a server: time and process.
pub(super) fn new_run_id() -> String {
    format!("{}-{}", Zoned::now().strftime("%Y%m%d%H%M%S"), std::process::id())
}

/// A seed where none was given. Any will do, as long as it is recorded.
pub(super) fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    // 53 bits survive a reader that takes JSON numbers for doubles.
    SplitMix64::new(now ^ u64::from(std::process::id()).rotate_left(32)).next_u64() >> 11
}

pub(super) fn new_results_dir(experiment: &str) -> PathBuf {
    let name = name::from_text(experiment);
    PathBuf::from("pgio-results").join(format!("{name}-{}", Zoned::now().strftime("%Y%m%dT%H%M%S")))
}
