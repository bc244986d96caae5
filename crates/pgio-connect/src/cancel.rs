//! Stopping what a session does, from any thread: a request on a connection of its own.
//!
//! For sessions of the `postgres` crate and for those whose socket is ours alike; the server tells
//! neither whether the request came in time.

use postgres::config::SslMode as DriverSsl;
use postgres::{CancelToken, Client};

use super::error::ConnectError;
use super::guarded::Connector;
use super::open::Route;
use super::params::{ConnectParams, SslMode};
use super::tls;
use super::wire;

/// Stops the running statement of one session, from any thread.
#[derive(Clone)]
pub struct Canceller(Means);

#[derive(Clone)]
enum Means {
    Driver { token: Box<CancelToken>, tls: Option<Box<rustls::ClientConfig>>, mode: SslMode },
    Wire { params: Box<ConnectParams>, route: Route, pid: i32, key: i32 },
}

/// A handle to cancel what `client`, opened with `params`, is doing.
pub fn canceller(client: &Client, params: &ConnectParams) -> Canceller {
    // The token knows the address, and that a socket has no TLS; here is only the means. A session
    // over TLS has left its configuration in the parameters.
    let tls = match params.ssl.mode {
        SslMode::Disable | SslMode::Allow => None,
        _ if params.is_by_socket() => None,
        _ => tls::client_config(params).ok().map(Box::new),
    };
    let token = Box::new(client.cancel_token());
    Canceller(Means::Driver { token, tls, mode: params.ssl.mode })
}

impl Canceller {
    pub(super) fn of_wire(params: &ConnectParams, route: &Route, pid: i32, key: i32) -> Canceller {
        let (params, route) = (Box::new(params.clone()), route.clone());
        Canceller(Means::Wire { params, route, pid, key })
    }

    /// Asks the server to cancel; it may come too late, and no answer tells.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    pub fn cancel(&self) -> Result<(), ConnectError> {
        let driver = |e: postgres::Error| ConnectError::Cancel { source: Box::new(e) };
        match &self.0 {
            Means::Driver { token, tls, mode } => {
                let by = |ssl| {
                    let tls = tls.as_deref().cloned();
                    token.cancel_query(Connector::new(tls, ssl, None)).map_err(driver)
                };
                match mode {
                    SslMode::Disable | SslMode::Allow => by(DriverSsl::Disable),
                    // The session may have gone on without TLS where TLS failed.
                    SslMode::Prefer => by(DriverSsl::Prefer).or_else(|_| by(DriverSsl::Disable)),
                    _ => by(DriverSsl::Require),
                }
            }
            Means::Wire { params, route, pid, key } => wire::cancel(params, route, *pid, *key),
        }
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Canceller")
    }
}
