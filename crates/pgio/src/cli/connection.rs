//! Reads keys from flags and pgio.conf, and resolves connection parameters, printing their warnings. Refuses a server
//! that other runs changed and a database in which a run is at work, and connects to the results database.

use std::io::ErrorKind;
use std::path::Path;

use pgio_connect::Client;
use rustix::fs::Access;

use super::exit::{FILES, Failure, Outcome};
use super::flags::{KeyedCommand, Source};
use super::output;
use crate::config::experiment::limits::FILE_BYTES;
use crate::config::{ConnectString, Layer, pgio_conf};
use crate::experiment::admin::refuse_other_runs as refuse_other_runs_on;
use crate::experiment::conflicts;
use crate::experiment::connection::{self, ConnectionKeys};
use crate::experiment::error::LiveError;
use crate::pg::{server, session};
use crate::treatment::Resource;
use crate::treatment::journal::Claims;
use pgio_connect::ConnectParams;
use pgio_results::files;

const DEFAULT_CONF: &str = "pgio.conf";

/// Reads pgio.conf, which must exist if it is named, and overrides it by the flags.
pub(super) fn read_keys<C: KeyedCommand>(source: &Source<C>) -> Result<ConnectionKeys, Failure> {
    let conf = read_conf(source.config.as_deref())?;
    let from_conf = conf.is_some();
    let layer = source.keys.0.clone().over(conf.unwrap_or_default());
    Ok(ConnectionKeys { layer, from_conf })
}

/// Reads `./pgio.conf` alone, for an experiment.
pub fn read_conf_keys() -> Result<ConnectionKeys, Failure> {
    let conf = read_conf(None)?;
    Ok(ConnectionKeys { from_conf: conf.is_some(), layer: conf.unwrap_or_default() })
}

fn read_conf(named: Option<&Path>) -> Result<Option<Layer>, Failure> {
    let path = named.unwrap_or(Path::new(DEFAULT_CONF));
    let shown = path.display().to_string();
    // A shell sources comments in any encoding.
    let text = match files::read(path, FILE_BYTES) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == ErrorKind::NotFound && named.is_none() => return Ok(None),
        // Who may not search the directory cannot have meant a file there.
        Err(e)
            if e.kind() == ErrorKind::PermissionDenied
                && named.is_none()
                && rustix::fs::access(".", Access::EXEC_OK).is_err() =>
        {
            return Ok(None);
        }
        Err(e) => {
            return Err(Failure::new(FILES, e).context(format!("cannot read {shown}")));
        }
    };
    let conf = pgio_conf::parse(&text, &shown)?;
    output::warn_all(&conf.warnings);
    Ok(Some(conf.layer))
}

/// Resolves the connection parameters of the server that the keys name.
pub fn params_of(keys: &ConnectionKeys, run_id: &str) -> Result<ConnectParams, Failure> {
    params(&keys.connect_string(), run_id)
}

pub fn params(text: &ConnectString, run_id: &str) -> Result<ConnectParams, Failure> {
    Ok(connection::params_with_warnings(text, run_id, &mut output::warn)?)
}

/// Before connecting: refuses a server that an interrupted run changed. Its undo needs the tables as the run left
/// them, and until then tables may be loaded in the wrong place.
pub(super) fn refuse_unfinished(params: &ConnectParams) -> Outcome {
    for other in conflicts::refuse_unfinished([params])? {
        output::warn_unfinished(&other);
    }
    Ok(())
}

/// Refuses while another run is at work in the database, and a server that an interrupted run changed or another
/// run is changing.
pub(super) fn refuse_other_runs(admin: &mut Client, database: &str, run_id: &str) -> Outcome {
    let identity = server::identity(admin).map_err(LiveError::from)?;
    conflicts::refuse_changed(&[Resource::server(&identity)].into(), &Claims::default())?;
    // What a load or a removal does to runs in other databases, they report.
    refuse_other_runs_on(admin, database, run_id, false)?;
    Ok(())
}

/// Connects to a results database, which is not a server under test.
pub(super) fn results_database(dsn: &ConnectString) -> Result<Client, Failure> {
    // With the name of a run, another pgio would end the session as a leftover.
    let params = params(dsn, "store")?.with_application_name("pgio store");
    Ok(session::open(&params)?)
}
