//! A private server for a case, and the one-table data set that the cases read.

use std::path::Path;

use crate::server;
use pgio::cli::connection;
use pgio::cli::exit::{Failure, Outcome, USAGE};
use pgio::cli::setup::{self, Lines};
use pgio::config::ConnectString;
use pgio::experiment::admin::open_admin;
use pgio::experiment::state;
use pgio::host::stop::Stop;
use pgio::pg::private::{PrivateCluster, VersionRequest};
use pgio_results::units::Scale;

/// Reads of a small table in shared buffers, by one session.
pub(super) const CACHED_READS: &str = r#"
[workload]
kind = "slob"
scale = "32M"
work_unit = 8
update_pct = 0
num_schemas = 1
num_threads = 1
create_base_table = false
"#;

/// Starts a private server for the case.
pub(super) fn private(
    pg: Option<VersionRequest>,
    base_dir: Option<&Path>,
    settings: &[(&str, &str)],
) -> Result<PrivateCluster, Failure> {
    server::private(pg, base_dir, settings, false)
}

/// Starts a private server with a synchronous standby.
pub(super) fn private_pair(
    pg: Option<VersionRequest>,
    base_dir: Option<&Path>,
) -> Result<PrivateCluster, Failure> {
    server::private(pg, base_dir, &[], true)
}

/// Loads the one-table data set on a case's private server.
pub(super) fn load(cluster: &PrivateCluster, scale: &str) -> Outcome {
    load_at(cluster.primary_conninfo(), scale)
}

pub(super) fn load_at(dsn: String, scale: &str) -> Outcome {
    let run_id = state::new_run_id();
    let params = connection::params(&ConnectString::new(dsn), &run_id)?;
    let (mut admin, _) = open_admin(&params, &run_id)?;
    let scale: Scale = scale.parse().map_err(|e| Failure::new(USAGE, e))?;
    let spec = server::data_set(&scale, 1, false);
    setup::load(&mut admin, &params, &spec, &Stop::new(), Lines::None)?;
    Ok(())
}
