//! Cancels the running statement of a session from any thread, by a request on a separate
//! connection.
//!
//! Works for sessions of the `postgres` crate and for [`Wire`](super::Wire); the server does not
//! report whether the request came in time.

use std::sync::Arc;

use postgres::config::SslMode as DriverSsl;
use postgres::{CancelToken, Client};

use super::endpoint::Route;
use super::error::ConnectError;
use super::guarded::Connector;
use super::params::{ConnectParams, SslMode};
use super::tls;
use super::tls::verifier::Tls;
use super::wire::{cancel as cancel_by_route, dial_zone};

/// Cancels the running statement of one session, from any thread.
#[derive(Clone)]
pub struct Canceller(Target);

#[derive(Clone)]
enum Target {
    Driver { token: Box<CancelToken>, tls: Option<Box<Tls>>, params: Box<ConnectParams> },
    Wire { params: Box<ConnectParams>, route: Route, pid: i32, key: i32 },
}

/// A handle to cancel what `client`, opened with `params`, is doing.
pub fn canceller(client: &Client, params: &ConnectParams) -> Canceller {
    // The token contains the address and knows that a socket has no TLS. A session over TLS has
    // cached its configuration in the parameters.
    let tls = match params.ssl.mode {
        SslMode::Disable | SslMode::Allow => None,
        _ if params.is_by_socket() => None,
        _ => tls::client_config(params).ok().map(Box::new),
    };
    let token = Box::new(client.cancel_token());
    Canceller(Target::Driver { token, tls, params: Box::new(params.clone()) })
}

impl Canceller {
    pub(super) fn for_wire(params: &ConnectParams, route: &Route, pid: i32, key: i32) -> Canceller {
        let (params, route) = (Box::new(params.clone()), route.clone());
        Canceller(Target::Wire { params, route, pid, key })
    }

    /// Asks the server to cancel. The request may come too late; the server does not answer.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    pub fn cancel(&self) -> Result<(), ConnectError> {
        let driver = |e: postgres::Error| ConnectError::Cancel { source: Box::new(e) };
        match &self.0 {
            Target::Driver { token, tls, params } => {
                let cancel_with = |ssl| {
                    let connector =
                        Connector::new(tls.as_deref().cloned().map(Ok), ssl, None, Arc::default());
                    let own = dial_zone(params);
                    let own = own.map_err(|e| ConnectError::Cancel { source: Box::new(e) })?;
                    token.cancel_query(connector.over(own)).map_err(driver)
                };
                match params.ssl.mode {
                    SslMode::Disable | SslMode::Allow => cancel_with(DriverSsl::Disable),
                    // The session may have continued without TLS after TLS failed.
                    SslMode::Prefer => {
                        cancel_with(DriverSsl::Prefer).or_else(|_| cancel_with(DriverSsl::Disable))
                    }
                    _ => cancel_with(DriverSsl::Require),
                }
            }
            Target::Wire { params, route, pid, key } => cancel_by_route(params, route, *pid, *key),
        }
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Canceller")
    }
}
