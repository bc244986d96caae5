//! The original, from the checkout that the user names: its files are run, none are kept.

use std::fs;
use std::path::{Path, PathBuf};

use postgres::Client;

use super::versus::missing;
use pgio::cli::exit::{CONNECT, Failure};

/// Where its scripts are: the checkout itself, or the archive in it unpacked to pgio/.
pub(super) fn scripts(dir: &Path) -> Result<PathBuf, Failure> {
    let candidates = [dir.join("pgio"), dir.to_owned()];
    candidates
        .into_iter()
        .find(|d| d.join("setup.sh").is_file() && sql(d).join("pgio.sql").is_file())
        .ok_or_else(|| missing(&format!("{} has no setup.sh and pgio.sql", dir.display())))
}

/// Its SQL lies in sql/ in the archive and beside the scripts in the repository.
fn sql(scripts: &Path) -> PathBuf {
    let below = scripts.join("sql");
    if below.is_dir() { below } else { scripts.to_owned() }
}

/// Makes mypgio() in the session's database.
pub(super) fn create_functions(scripts: &Path, client: &mut Client) -> Result<(), Failure> {
    // Its files begin by dropping what they make, which must be there to be dropped.
    let failed = |e: postgres::Error| {
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
