//! The benches against the original: their arguments, and its files, which run from the checkout that the user names.
//! None is copied into this project.

use std::fs;
use std::path::{Path, PathBuf};

use pgio_connect::Client;

use pgio::cli::exit::{CONNECT, Failure, USAGE};
use pgio::pg::private::VersionRequest;
use pgio_results::units::Scale;

#[derive(Debug, clap::Args)]
pub(super) struct UpstreamArgs {
    /// A checkout of the original pgio 1.0
    #[arg(long, value_name = "DIR")]
    pub(super) upstream: PathBuf,
    /// Pairs of runs
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: usize,
    /// Length of each run, if it has one
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pub(super) seconds: u64,
    /// Size of each table
    #[arg(long, value_name = "SIZE")]
    pub(super) scale: Option<Scale>,
    #[arg(long, value_name = "VERSION", default_value = "15")]
    pub(super) pg: VersionRequest,
}

/// Returns the error of a checkout that lacks something.
pub(super) fn missing(what: &str) -> Failure {
    Failure::message(USAGE, format!("--upstream: {what}"))
}

/// Returns the directory of its scripts: the checkout itself, or its archive unpacked to pgio/.
pub(super) fn scripts(dir: &Path) -> Result<PathBuf, Failure> {
    let candidates = [dir.join("pgio"), dir.to_owned()];
    candidates
        .into_iter()
        .find(|d| d.join("setup.sh").is_file() && sql(d).join("pgio.sql").is_file())
        .ok_or_else(|| missing(&format!("{} has no setup.sh and pgio.sql", dir.display())))
}

/// Returns the directory of its SQL files: sql/ in the archive, the scripts' directory in the
/// repository.
fn sql(scripts: &Path) -> PathBuf {
    let below = scripts.join("sql");
    if below.is_dir() { below } else { scripts.to_owned() }
}

/// Creates mypgio() in the session's database.
pub(super) fn create_functions(scripts: &Path, client: &mut Client) -> Result<(), Failure> {
    // Its files begin by dropping their objects, which must exist.
    let failed = |e: pgio_connect::Error| {
        Failure::new(CONNECT, e).context("cannot create the original's functions")
    };
    client
        .batch_execute(
            "DROP TYPE IF EXISTS pgio_return CASCADE; CREATE TYPE pgio_return AS (n int)",
        )
        .map_err(failed)?;
    for file in ["pgio_get_rand.sql", "pgio.sql"] {
        let path = sql(scripts).join(file);
        let text = fs::read_to_string(&path)
            .map_err(|e| missing(&format!("cannot read {}: {e}", path.display())))?;
        client.batch_execute(&text).map_err(failed)?;
    }
    Ok(())
}
