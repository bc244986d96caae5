//! One address of a server: a Unix-domain socket, or host and port; and the route of an open session,
//! by which further sessions and cancel requests go.
//!
//! Next: `resolve` makes the list of them, `open` tries them in turn.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use postgres::config::SslMode;

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

/// The address and TLS mode of an open session, to open further sessions directly.
#[derive(Debug, Clone)]
pub struct Route {
    pub(super) endpoint: Endpoint,
    pub(super) address: Option<IpAddr>,
    pub(super) ssl: SslMode,
}
