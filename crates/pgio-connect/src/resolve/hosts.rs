//! Combines the comma-separated lists of host, hostaddr and port as libpq does.
//!
//! Does not resolve host names. Next: `open` tries the endpoints in turn.

use std::path::PathBuf;

use super::settings::Settings;
use crate::endpoint::parse_address;
use crate::{ConnectError, Endpoint, Env};

const DEFAULT_PORT: u16 = 5432;

pub(super) fn resolve(settings: &Settings, env: &Env) -> Result<Vec<Endpoint>, ConnectError> {
    let split = |keyword| {
        let text: Option<String> = settings.text(keyword);
        let parts = text.map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
        parts.unwrap_or_default()
    };
    let (names, addresses, ports) = (split("host"), split("hostaddr"), split("port"));

    let count = if addresses.is_empty() { names.len() } else { addresses.len() }.max(1);
    if !names.is_empty() && names.len() != count {
        let problem = format!("{count} addresses for {} hosts", names.len());
        return Err(settings.bad("hostaddr", problem));
    }
    if ports.len() > 1 && ports.len() != count {
        let problem =
            format!("{} ports for {count} hosts; specify one port, or one per host", ports.len());
        return Err(settings.bad("port", problem));
    }
    let at = |parts: &[String], i: usize| parts.get(i).filter(|part| !part.is_empty()).cloned();
    (0..count)
        .map(|i| {
            let port = at(&ports, if ports.len() == 1 { 0 } else { i });
            let port = port.map_or(Ok(DEFAULT_PORT), |port| parse_port(settings, &port))?;
            endpoint(settings, env, at(&names, i), at(&addresses, i), port)
        })
        .collect()
}

fn endpoint(
    settings: &Settings,
    env: &Env,
    name: Option<String>,
    address: Option<String>,
    port: u16,
) -> Result<Endpoint, ConnectError> {
    if let Some(address) = address {
        let problem = "not an IP address; use host for names";
        let addr =
            parse_address(&address, port).ok_or_else(|| settings.bad("hostaddr", problem))?;
        let host = name.unwrap_or(address);
        return Ok(Endpoint::Tcp { host, addr: Some(addr), port });
    }
    match name {
        None => Ok(Endpoint::Socket { dir: env.socket_dir.clone(), port }),
        Some(name) if name.starts_with('/') => {
            Ok(Endpoint::Socket { dir: PathBuf::from(name), port })
        }
        Some(name) if name.starts_with('@') => {
            Err(settings.bad("host", "sockets in the abstract namespace are not supported"))
        }
        Some(host) => {
            let addr = parse_address(&host, port);
            Ok(Endpoint::Tcp { host, addr, port })
        }
    }
}

fn parse_port(settings: &Settings, text: &str) -> Result<u16, ConnectError> {
    let port = text.trim().parse::<u16>().ok().filter(|port| *port != 0);
    port.ok_or_else(|| settings.bad("port", "not a number from 1 to 65535"))
}
