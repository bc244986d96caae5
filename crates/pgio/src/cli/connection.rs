//! From flags, pgio.conf and environment to a server: the resolving step of the commands.

use std::io::ErrorKind;
use std::path::Path;

use super::exit::{FILES, Failure};
use super::flags::{Source, TakesKeys};
use super::{files, output};
use crate::config::experiment::limits::FILE_BYTES;
use crate::config::{ConnectString, Layer, pgio_conf, resolve};
use crate::pg::connect::{self, ConnectParams, Env};
use crate::pg::leftovers;
use crate::results::Warning;

const DEFAULT_CONF: &str = "pgio.conf";

/// The keys as given, flags over pgio.conf.
#[derive(Debug, Clone, Default)]
pub(super) struct Given {
    pub(super) layer: Layer,
    /// A pgio.conf was read, so its defaults for connecting hold.
    from_conf: bool,
}

/// Reads pgio.conf if it is there (or must be, when named) and lays the flags over it.
pub(super) fn given<C: TakesKeys>(source: &Source<C>) -> Result<Given, Failure> {
    let conf = read_conf(source.config.as_deref())?;
    let from_conf = conf.is_some();
    let layer = source.keys.0.clone().over(conf.unwrap_or_default());
    Ok(Given { layer, from_conf })
}

/// `./pgio.conf` alone, for an experiment.
pub(super) fn conf_only() -> Result<Given, Failure> {
    let conf = read_conf(None)?;
    Ok(Given { from_conf: conf.is_some(), layer: conf.unwrap_or_default() })
}

fn read_conf(named: Option<&Path>) -> Result<Option<Layer>, Failure> {
    let path = named.unwrap_or(Path::new(DEFAULT_CONF));
    let shown = path.display().to_string();
    let text = match files::read_text(path, FILE_BYTES) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound && named.is_none() => return Ok(None),
        Err(e) => {
            return Err(Failure::new(FILES, e).context(format!("cannot read {shown}")));
        }
    };
    let conf = pgio_conf::parse(&text, &shown)?;
    output::warn_all(&conf.warnings);
    Ok(Some(conf.layer))
}

impl Given {
    /// CONNECT_STRING as it is said or defaulted; empty means the PG* variables decide.
    pub(super) fn connect_string(&self) -> ConnectString {
        let said = self.layer.connect_string.is_some() || self.layer.dbname.is_some();
        if self.from_conf || said {
            resolve::connect_string(&self.layer)
        } else {
            ConnectString::new("")
        }
    }

    pub(super) fn params(&self, run_id: &str) -> Result<ConnectParams, Failure> {
        params(&self.connect_string(), run_id)
    }
}

pub(super) fn params(text: &ConnectString, run_id: &str) -> Result<ConnectParams, Failure> {
    let params = connect::resolve(text.expose(), &Env::from_process())?;
    for warning in params.warnings() {
        output::warn(&Warning::new(
            warning.to_string(),
            "libpq passes over it in the same way",
            "mend it, or leave it out",
        ));
    }
    Ok(params.with_application_name(leftovers::application_name(run_id)))
}
