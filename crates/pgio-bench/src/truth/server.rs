//! A private server for a case, and the one-table data set that the cases read.

use std::path::{Path, PathBuf};

use pgio::cli::connection;
use pgio::cli::exit::{FAILED, Failure, Outcome, USAGE};
use pgio::cli::loading::{self, Lines};
use pgio::config::ConnectString;
use pgio::dataset::LoadSpec;
use pgio::experiment::admin::open_admin;
use pgio::experiment::state;
use pgio::host::stop::Stop;
use pgio::pg::private::{PrivateCluster, Spec, VersionRequest};
use pgio_results::units::{Layout, Scale};

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
    let exe = own_program()?;
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Ok(PrivateCluster::start(&Spec {
        pg,
        base_dir: base_dir.map(Path::to_owned),
        primary_settings: settings.iter().map(own).collect(),
        ..Spec::new(exe)
    })?)
}

/// Starts a private server with a synchronous standby.
pub(super) fn private_pair(pg: Option<VersionRequest>) -> Result<PrivateCluster, Failure> {
    Ok(PrivateCluster::start(&Spec { pg, standby: true, ..Spec::new(own_program()?) })?)
}

fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|e| Failure::new(FAILED, e).context("cannot find pgio's own program file"))
}

/// Loads the one-table data set on a case's private server.
pub(super) fn load(cluster: &PrivateCluster, scale: &str) -> Outcome {
    let run_id = state::new_run_id();
    let params = connection::params(&ConnectString::new(cluster.primary_conninfo()), &run_id)?;
    let (mut admin, _) = open_admin(&params, &run_id)?;
    let blocks = scale.parse::<Scale>().map_err(|e| Failure::new(USAGE, e))?.blocks();
    let spec = LoadSpec {
        tables: 1,
        streams: 1,
        blocks,
        scale: scale.to_owned(),
        seed: 42,
        base_table: false,
        tablespace: None,
        layout: Layout::default(),
        scan: None,
    };
    loading::load(&mut admin, &params, &spec, &Stop::new(), Lines::None)?;
    Ok(())
}
