//! How an open session was reached, so that further sessions and cancel requests go the same way.
//!
//! Next: `open` finds a route; `wire` and `cancel` follow it.

use std::net::IpAddr;

use postgres::config::SslMode;

use super::endpoint::Endpoint;

/// The address and TLS mode of an open session, to open further sessions directly.
#[derive(Debug, Clone)]
pub struct Route {
    pub(super) endpoint: Endpoint,
    pub(super) address: Option<IpAddr>,
    pub(super) ssl: SslMode,
}
