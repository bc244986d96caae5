//! Names and places that a command draws from its surroundings: the run's id, a seed, directories.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Zoned;
use rustix::fs::Access;

use crate::config::name;
use crate::rng::SplitMix64;

/// Where journals of runs are kept.
pub(super) fn journal_dir() -> PathBuf {
    base_dir().join("journal")
}

/// Where the journal of what is held on purpose is kept, beside which runs go on.
pub(super) fn held_dir() -> PathBuf {
    base_dir().join("held")
}

/// /var/lib/pgio for root, else below the user's state directory.
fn base_dir() -> PathBuf {
    let from = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("PGIO_STATE_DIR").unwrap_or_else(|| {
        if rustix::process::geteuid().is_root() {
            return PathBuf::from("/var/lib/pgio");
        }
        from("XDG_STATE_HOME")
            .or_else(|| from("HOME").map(|home| home.join(".local/state")))
            .unwrap_or_else(|| PathBuf::from("/var/tmp"))
            .join("pgio")
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
    let name = name::like(experiment);
    PathBuf::from("pgio-results").join(format!("{name}-{}", Zoned::now().strftime("%Y%m%dT%H%M%S")))
}
