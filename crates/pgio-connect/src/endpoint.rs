//! One address of a server: a Unix-domain socket, or host and port.
//!
//! Next: `resolve` makes the list of them, `open` tries them in turn.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Socket {
        dir: PathBuf,
        port: u16,
    },
    /// A certificate must name `host`; `addr` avoids a DNS lookup.
    Tcp {
        host: String,
        addr: Option<IpAddr>,
        port: u16,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Socket { dir, port } => write!(f, "{}:{port}", dir.display()),
            Endpoint::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}
