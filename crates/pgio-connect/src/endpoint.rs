//! One address of a server: a Unix-domain socket, or host and port; and the route of an open session,
//! by which further sessions and cancel requests go.
//!
//! Next: `resolve` makes the list of them, `open` tries them in turn.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Socket {
        dir: PathBuf,
        port: u16,
    },
    /// A certificate must name `host`; `addr` avoids a DNS lookup and has the port and, for a
    /// link-local address, the zone.
    Tcp {
        host: String,
        addr: Option<SocketAddr>,
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

/// Parses an address, which may have a zone: `fe80::1%eth0`. Asks no name server.
pub(super) fn parse_address(text: &str, port: u16) -> Option<SocketAddr> {
    match text.parse() {
        Ok(ip) => Some(SocketAddr::new(ip, port)),
        Err(_) if text.contains(':') => (text, port).to_socket_addrs().ok()?.next(),
        Err(_) => None,
    }
}

/// The address and TLS of a session, to open further sessions directly.
#[derive(Debug, Clone)]
pub struct Route {
    pub(super) endpoint: Endpoint,
    /// `None` means the Unix-domain socket of the endpoint.
    pub(super) address: Option<SocketAddr>,
    pub(super) encryption: Encryption,
}

/// Whether a session asks the server for TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    Off,
    IfOffered,
    Required,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoint)?;
        match (&self.endpoint, self.address) {
            (Endpoint::Tcp { host, .. }, Some(address))
                if host.split('%').next() != Some(&*address.ip().to_string()) =>
            {
                write!(f, " ({})", address.ip())
            }
            _ => Ok(()),
        }
    }
}
