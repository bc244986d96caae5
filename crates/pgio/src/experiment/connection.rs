//! Resolves keys into the connection parameters of a server, for every command.
//!
//! Connects to nothing and reads no file; reads the environment variables of libpq. The caller shows the warnings.

use crate::config::{ConnectString, Layer, resolve};
use crate::pg::leftovers;
use pgio_connect::{self, ConnectError, ConnectParams, ConnectWarning, Env};
use pgio_results::Warning;

/// The given keys: flags override pgio.conf.
#[derive(Debug, Clone, Default)]
pub struct ConnectionKeys {
    pub layer: Layer,
    /// Whether a pgio.conf was read, so that its connection defaults apply.
    pub from_conf: bool,
}

impl ConnectionKeys {
    /// Returns CONNECT_STRING as given or by default; if it is empty, the PG* variables decide.
    pub fn connect_string(&self) -> ConnectString {
        let given = self.layer.connect_string.is_some() || self.layer.dbname.is_some();
        if self.from_conf || given {
            resolve::connect_string(&self.layer)
        } else {
            ConnectString::new("")
        }
    }

    pub fn params(&self, run_id: &str) -> Result<ConnectParams, ConnectError> {
        params(&self.connect_string(), run_id)
    }
}

/// As [`params`]; `warn` receives each warning at once, so that none is lost if a later server is refused.
pub fn params_with_warnings(
    text: &ConnectString,
    run_id: &str,
    warn: &mut dyn FnMut(&Warning),
) -> Result<ConnectParams, ConnectError> {
    let params = params(text, run_id)?;
    warnings(&params).iter().for_each(warn);
    Ok(params)
}

pub fn params(text: &ConnectString, run_id: &str) -> Result<ConnectParams, ConnectError> {
    let params = pgio_connect::resolve(text.expose(), &Env::from_process())?;
    Ok(params.with_application_name(leftovers::application_name(run_id)))
}

/// Returns warnings about what was ignored.
pub fn warnings(params: &ConnectParams) -> Vec<Warning> {
    params.warnings().iter().map(warning).collect()
}

pub fn warning(found: &ConnectWarning) -> Warning {
    Warning::new(found.what(), found.why(), found.hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_conf_and_a_key_the_environment_decides() {
        let mut keys = ConnectionKeys::default();
        assert_eq!(keys.connect_string().expose(), "");
        keys.from_conf = true;
        let from_conf_text = keys.connect_string();
        assert!(!from_conf_text.expose().is_empty());
        keys = ConnectionKeys::default();
        keys.layer.dbname = Some("bench".to_owned());
        assert!(keys.connect_string().expose().contains("bench"));
    }

    #[test]
    fn sessions_carry_the_run_in_their_name() {
        let params = params(&ConnectString::new("host=h dbname=d user=u"), "7").unwrap();
        assert!(format!("{params:?}").contains(&leftovers::application_name("7")));
    }
}
