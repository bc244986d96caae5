//! Opening a session with the `postgres` crate: hosts in turn, TLS or not.
//!
//! The loop over hosts, addresses and TLS modes is ours, because libpq's rules (what leads to the
//! next host, what to a second try without TLS, `verify-ca`, a timeout for the whole handshake)
//! are more than the driver knows. It is given one address and one TLS mode at a time, and by TCP
//! a stream that limits what the server may send.
//!
//! The driver takes no stream of ours for a Unix-domain socket. A login over our own wire, which has the
//! limits, goes ahead there, once for each socket file: so a listener that floods whoever comes
//! is found out before the driver sees it.
//!
//! Next: `classify` turns the driver's errors into ours; `cancel` stops what a session does.

pub(super) mod classify;

use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use std::{fs, thread};

use postgres::config::{SslMode as DriverSsl, SslNegotiation};
use postgres::{Client, Config, NoTls};

use super::error::ConnectError;
use super::guarded::Connector;
use super::params::{ChannelBinding, ConnectParams, Endpoint, SessionAttrs, SslMode};
use super::tls;
use super::wire::Wire;
use crate::interrupt;
use classify::Attempt;

/// Opens a session on the first host that will do.
///
/// # Errors
///
/// As libpq, a host that cannot be reached, is starting up or is not what `target_session_attrs`
/// asks for leads to the next one; any other refusal ends the search.
pub fn connect(params: &ConnectParams) -> Result<Client, ConnectError> {
    reach(params).map(|(client, _)| client)
}

/// Where and how a session was opened, so that others can be opened in the same way at once.
#[derive(Debug, Clone)]
pub struct Route {
    pub(super) endpoint: Endpoint,
    pub(super) address: Option<IpAddr>,
    pub(super) ssl: DriverSsl,
}

/// As [`connect`], and says how it went.
///
/// # Errors
///
/// As [`connect`].
pub fn reach(params: &ConnectParams) -> Result<(Client, Route), ConnectError> {
    let passes: &[SessionAttrs] = match params.session_attrs {
        SessionAttrs::PreferStandby => &[SessionAttrs::Standby, SessionAttrs::Any],
        _ => &[params.session_attrs],
    };
    let mut failed = Vec::new();
    for wanted in passes {
        failed.clear();
        for endpoint in &params.hosts {
            match try_host(params, endpoint, *wanted, &mut failed) {
                Ok(Some(reached)) => return Ok(reached),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
    }
    match failed.len() {
        1 => Err(failed.remove(0)),
        _ => Err(ConnectError::NoneOf(failed)),
    }
}

fn try_host(
    params: &ConnectParams,
    endpoint: &Endpoint,
    wanted: SessionAttrs,
    failed: &mut Vec<ConnectError>,
) -> Result<Option<(Client, Route)>, ConnectError> {
    let addresses = match addresses(endpoint) {
        Ok(addresses) => addresses,
        Err(error) => {
            failed.push(error);
            return Ok(None);
        }
    };
    for address in addresses {
        let attempt = Attempt { params, endpoint, address };
        let opened = attempt_all_modes(&attempt)
            .and_then(|(client, ssl)| Ok((check(client, &attempt, wanted)?, ssl)));
        match opened {
            Ok((client, ssl)) => {
                return Ok(Some((client, Route { endpoint: endpoint.clone(), address, ssl })));
            }
            Err(error) if leads_to_next_host(&error) => failed.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn leads_to_next_host(error: &ConnectError) -> bool {
    use ConnectError::{NotReady, TimedOut, Unreachable, WrongSession};
    matches!(error, Unreachable { .. } | TimedOut { .. } | NotReady { .. } | WrongSession { .. })
}

/// `None` stands for the socket.
fn addresses(endpoint: &Endpoint) -> Result<Vec<Option<IpAddr>>, ConnectError> {
    let (host, port) = match endpoint {
        Endpoint::Socket { .. } => return Ok(vec![None]),
        Endpoint::Tcp { addr: Some(addr), .. } => return Ok(vec![Some(*addr)]),
        Endpoint::Tcp { host, port, .. } => (host.as_str(), *port),
    };
    let found = (host, port).to_socket_addrs().map_err(|e| ConnectError::Unreachable {
        at: endpoint.to_string(),
        problem: e.to_string(),
        check: "the spelling of the host name and name resolution on this machine",
    })?;
    Ok(found.map(|socket| Some(socket.ip())).collect())
}

/// One address, with TLS, without, or one after the other.
fn attempt_all_modes(attempt: &Attempt<'_>) -> Result<(Client, DriverSsl), ConnectError> {
    let mode = match attempt.endpoint {
        // PostgreSQL has no TLS on sockets, and libpq passes over sslmode there.
        Endpoint::Socket { .. } => SslMode::Disable,
        Endpoint::Tcp { .. } => attempt.params.ssl.mode,
    };
    match mode {
        SslMode::Disable => open(attempt, DriverSsl::Disable),
        SslMode::Allow => match open(attempt, DriverSsl::Disable) {
            Err(plain @ ConnectError::Authentication { .. }) => {
                open(attempt, DriverSsl::Require).map_err(|tls| telling(tls, plain))
            }
            other => other,
        },
        SslMode::Prefer => match open(attempt, DriverSsl::Prefer) {
            // If the server refused TLS, this asks the same a second time, to no harm.
            Err(tls @ (ConnectError::Authentication { .. } | ConnectError::Tls { .. })) => {
                open(attempt, DriverSsl::Disable).map_err(|plain| telling(tls, plain))
            }
            other => other,
        },
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
            open(attempt, DriverSsl::Require)
        }
    }
}

/// Of two failures the one that helps: what the server said over TLS, or else both.
fn telling(tls: ConnectError, mut plain: ConnectError) -> ConnectError {
    if !matches!(tls, ConnectError::Tls { .. }) {
        return tls;
    }
    if let ConnectError::Authentication { hint, .. } = &mut plain {
        hint.push_str(&format!("; and {tls}"));
    }
    plain
}

fn open(attempt: &Attempt<'_>, ssl: DriverSsl) -> Result<(Client, DriverSsl), ConnectError> {
    let config = driver_config(attempt, ssl);
    let tls = match ssl {
        DriverSsl::Disable => None,
        _ => Some(tls::client_config(attempt.params)?),
    };
    if let (Some(address), Endpoint::Tcp { port, .. }) = (attempt.address, attempt.endpoint) {
        interrupt::note(address, *port);
    }
    let limit = attempt.params.connect_timeout;
    let opened = match attempt.endpoint {
        Endpoint::Tcp { .. } => {
            let deadline = limit.map(|limit| Instant::now() + limit);
            let connector = Connector::new(tls, ssl, deadline);
            within(limit, move || Ok(config.connect(connector)), attempt)?
        }
        Endpoint::Socket { dir, port } => {
            let file = dir.join(format!(".s.PGSQL.{port}"));
            let (params, endpoint) = (attempt.params.clone(), attempt.endpoint.clone());
            let route = Route { endpoint, address: None, ssl };
            let go = move || {
                login_ahead(&file, || Wire::open(&params, &route).map(drop))?;
                Ok(config.connect(NoTls))
            };
            within(limit, go, attempt)?
        }
    };
    let client = opened.map_err(|error| classify::classify(error, attempt))?;
    Ok((client, ssl))
}

/// Logs in over our own wire, unless whoever listens at this socket file has passed before.
fn login_ahead(
    file: &Path,
    login: impl FnOnce() -> Result<(), ConnectError>,
) -> Result<(), ConnectError> {
    static PASSED: Mutex<BTreeSet<(u64, u64, i64, i64)>> = Mutex::new(BTreeSet::new());
    // A socket bound anew at the same path is another file.
    let identity = fs::metadata(file).ok().map(|m| (m.dev(), m.ino(), m.ctime(), m.ctime_nsec()));
    let passed = || PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    if identity.is_some_and(|identity| passed().contains(&identity)) {
        return Ok(());
    }
    login()?;
    passed().extend(identity);
    Ok(())
}

type Opened = Result<Result<Client, postgres::Error>, ConnectError>;

/// The driver's own timeout ends with the TCP handshake, but a stalled server accepts and then
/// says nothing. Its thread is left behind; it ends when the server answers or goes away. So it
/// is where pgio was asked to stop, also without a timeout.
fn within(
    limit: Option<Duration>,
    go: impl FnOnce() -> Opened + Send + 'static,
    attempt: &Attempt<'_>,
) -> Opened {
    let (done, opened) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("connect".to_owned())
        // Too late, nobody waits: the session, if any, is closed by being dropped.
        .spawn(move || drop(done.send(go())))
        .map_err(|source| ConnectError::Thread { source })?;
    let begun = Instant::now();
    loop {
        let left = limit.map_or(interrupt::AGAIN, |limit| limit.saturating_sub(begun.elapsed()));
        match opened.recv_timeout(left.min(interrupt::AGAIN)) {
            Ok(opened) => return opened,
            Err(_) if interrupt::is_cutting() => {
                return Err(ConnectError::Stopped { at: attempt.at() });
            }
            Err(_) => {}
        }
        if let Some(limit) = limit.filter(|limit| begun.elapsed() >= *limit) {
            return Err(ConnectError::TimedOut { at: attempt.at(), seconds: limit.as_secs() });
        }
    }
}

fn driver_config(attempt: &Attempt<'_>, ssl: DriverSsl) -> Config {
    let params = attempt.params;
    let mut config = Config::new();
    config
        .user(&params.user)
        .dbname(&params.dbname)
        .application_name(&params.application_name)
        .ssl_mode(ssl)
        .channel_binding(match params.channel_binding {
            ChannelBinding::Disable => postgres::config::ChannelBinding::Disable,
            ChannelBinding::Prefer => postgres::config::ChannelBinding::Prefer,
            ChannelBinding::Require => postgres::config::ChannelBinding::Require,
        })
        .keepalives(!params.keepalives.disabled);
    match attempt.endpoint {
        Endpoint::Socket { dir, port } => config.host_path(dir).port(*port),
        // What the driver takes for TLS is our `Connector`, which knows the mode.
        Endpoint::Tcp { host, port, .. } => config
            .host(host)
            .port(*port)
            .ssl_mode(DriverSsl::Require)
            .ssl_negotiation(SslNegotiation::Direct),
    };
    if let Some(address) = attempt.address {
        config.hostaddr(address);
    }
    if let Some(password) = params.password_for(attempt.endpoint) {
        config.password(password.expose());
    }
    if let Some(options) = &params.options {
        config.options(options);
    }
    if let Some(limit) = params.connect_timeout {
        config.connect_timeout(limit);
    }
    if let Some(hear) = params.on_notice.0.clone() {
        config.notice_callback(move |notice| hear(notice.message()));
    }
    let keep = &params.keepalives;
    keep.idle.map(|idle| config.keepalives_idle(idle));
    keep.interval.map(|interval| config.keepalives_interval(interval));
    keep.count.map(|count| config.keepalives_retries(count));
    keep.user_timeout.map(|limit| config.tcp_user_timeout(limit));
    config
}

/// Whether the session is of the kind asked for.
fn check(
    mut client: Client,
    attempt: &Attempt<'_>,
    wanted: SessionAttrs,
) -> Result<Client, ConnectError> {
    if wanted == SessionAttrs::Any {
        return Ok(client);
    }
    let row = client
        .query_one(
            "SELECT pg_catalog.pg_is_in_recovery(), \
                    pg_catalog.current_setting('transaction_read_only')::pg_catalog.bool",
            &[],
        )
        .map_err(|error| classify::classify(error, attempt))?;
    let (standby, read_only): (bool, bool) = (row.get(0), row.get(1));
    let (is_so, wanted) = match wanted {
        SessionAttrs::Any | SessionAttrs::PreferStandby => (true, "any server"),
        SessionAttrs::ReadWrite => (!read_only, "open for writing"),
        SessionAttrs::ReadOnly => (read_only, "read-only"),
        SessionAttrs::Primary => (!standby, "a primary"),
        SessionAttrs::Standby => (standby, "a standby"),
    };
    if is_so { Ok(client) } else { Err(ConnectError::WrongSession { at: attempt.at(), wanted }) }
}
