//! Opens a session with the `postgres` crate: tries the hosts in turn, with or without TLS.
//!
//! This module loops over hosts, addresses and TLS modes itself, because the driver does not
//! implement libpq's rules (when to try the next host, when to retry without TLS, `verify-ca`, a
//! timeout for the whole handshake). It gives the driver one address and one TLS mode at a time
//! and, with TCP, a stream that limits what the server may send.
//!
//! The driver accepts no such stream for a Unix-domain socket. There a login over [`Wire`], which
//! has the limits, comes first, once per socket file; it detects a listener that floods its clients
//! before the driver connects.
//!
//! Next: `classify` converts the driver's errors; `cancel` cancels a session's statement.

pub(super) mod classify;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use postgres::config::{SslMode as DriverSsl, SslNegotiation};
use postgres::error::SqlState;
use postgres::{Client, Config, NoTls};

use super::endpoint::{Endpoint, Route, is_in_zone};
use super::error::{ConnectError, ConnectWarning};
use super::guarded::{Connector, Encryption, Progress, detour};
use super::params::{ChannelBinding, ConnectParams, SessionAttrs, SslMode};
use super::tls;
use super::wire::{Wire, dial_zone};
use crate::interrupt;
use classify::Attempt;

/// Opens a session on the first suitable host.
///
/// # Errors
///
/// As in libpq, the next host is tried if a host is unreachable, is starting up or does not satisfy
/// `target_session_attrs`; any other error ends the search.
pub fn connect(params: &ConnectParams) -> Result<Client, ConnectError> {
    reach(params).map(|(client, _)| client)
}

/// Like [`connect`], but also returns the route.
///
/// # Errors
///
/// Same as [`connect`].
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
            Err(error) if tries_next_host(&error) => failed.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn tries_next_host(error: &ConnectError) -> bool {
    use ConnectError::{NotReady, TimedOut, Unreachable, WrongSession};
    matches!(error, Unreachable { .. } | TimedOut { .. } | NotReady { .. } | WrongSession { .. })
}

/// `None` means the socket.
fn addresses(endpoint: &Endpoint) -> Result<Vec<Option<SocketAddr>>, ConnectError> {
    let (host, port) = match endpoint {
        Endpoint::Socket { .. } => return Ok(vec![None]),
        Endpoint::Tcp { addr: Some(addr), .. } => return Ok(vec![Some(*addr)]),
        Endpoint::Tcp { host, port, .. } => (host.as_str(), *port),
    };
    let found = (host, port).to_socket_addrs().map_err(|e| ConnectError::Unreachable {
        at: endpoint.to_string(),
        problem: e.to_string(),
        check: "the spelling of the host name and name resolution on this machine",
        kind: None,
    })?;
    Ok(found.map(Some).collect())
}

/// Tries one address with TLS, without TLS, or both in turn.
fn attempt_all_modes(attempt: &Attempt<'_>) -> Result<(Client, DriverSsl), ConnectError> {
    let mode = match attempt.endpoint {
        // PostgreSQL has no TLS on Unix-domain sockets, and libpq ignores sslmode there.
        Endpoint::Socket { .. } => SslMode::Disable,
        Endpoint::Tcp { .. } => attempt.params.ssl.mode,
    };
    let opened = match mode {
        SslMode::Disable => open(attempt, DriverSsl::Disable),
        SslMode::Allow => match open(attempt, DriverSsl::Disable) {
            Err(plain) if plain.refused => open(attempt, DriverSsl::Require)
                .map_err(|tls| Failed::from(more_helpful(tls.error, plain.error))),
            other => other,
        },
        SslMode::Prefer => match open(attempt, DriverSsl::Prefer) {
            Err(tls) if tls.allows_plain() => match open(attempt, DriverSsl::Disable) {
                Ok(opened) => {
                    warn(attempt.at(), tls.error.to_string());
                    Ok(opened)
                }
                Err(plain) => Err(Failed::from(more_helpful(tls.error, plain.error))),
            },
            other => other,
        },
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
            open(attempt, DriverSsl::Require)
        }
    };
    opened.map_err(|failed| failed.error)
}

fn unreachable(error: &io::Error, attempt: &Attempt<'_>) -> ConnectError {
    classify::unreachable(Some(error.kind()), error.to_string(), attempt)
}

static ON_WARNING: OnceLock<fn(&ConnectWarning)> = OnceLock::new();

/// Calls `handler` for what is found only while connecting, once for each server. Global, because a
/// program connects in many places and tells its user in one.
pub fn on_warning(handler: fn(&ConnectWarning)) {
    // The first one stays.
    let _ = ON_WARNING.set(handler);
}

/// Says that a session has no TLS although the server offers it.
fn warn(at: String, why: String) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(at.clone());
    if let Some(handler) = ON_WARNING.get().filter(|_| is_new) {
        handler(&ConnectWarning::NoTls { at, why });
    }
}

/// A failed login, and what decides in libpq whether it is tried again with or without TLS.
#[derive(Debug)]
struct Failed {
    error: ConnectError,
    /// The session had TLS.
    encrypted: bool,
    /// The server refused the login before the authentication was complete.
    refused: bool,
}

impl Failed {
    /// Whether libpq goes on without TLS if TLS is only preferred. Not for what pgio does not support:
    /// libpq would have TLS.
    fn allows_plain(&self) -> bool {
        let tls_failed =
            matches!(self.error, ConnectError::Tls { .. } | ConnectError::TlsFile { .. });
        if self.encrypted { self.refused } else { tls_failed }
    }
}

impl From<ConnectError> for Failed {
    fn from(error: ConnectError) -> Failed {
        Failed { error, encrypted: false, refused: false }
    }
}

/// Returns the more helpful of two errors: the server's error over TLS, or else both combined.
fn more_helpful(tls: ConnectError, mut plain: ConnectError) -> ConnectError {
    if !matches!(tls, ConnectError::Tls { .. }) {
        return tls;
    }
    if let ConnectError::Authentication { hint: text, .. }
    | ConnectError::Server { message: text, .. } = &mut plain
    {
        text.push_str(&format!("; and {tls}"));
    }
    plain
}

fn open(attempt: &Attempt<'_>, ssl: DriverSsl) -> Result<(Client, DriverSsl), Failed> {
    let config = driver_config(attempt, ssl)?;
    let tls = encryption(attempt.params, ssl)?;
    if let Some(address) = attempt.address {
        interrupt::note(address);
    }
    let zone = attempt.address.filter(is_in_zone);
    *attempt.params.zone.lock().unwrap_or_else(PoisonError::into_inner) = zone;
    let limit = attempt.params.connect_timeout;
    let progress = Arc::<Progress>::default();
    let opened = match attempt.endpoint {
        Endpoint::Tcp { .. } => {
            let deadline = limit.map(|limit| Instant::now() + limit);
            let connector = Connector::new(tls, ssl, deadline, Arc::clone(&progress));
            let own = dial_zone(attempt.params).map_err(|e| unreachable(&e, attempt))?;
            let connector = connector.over(own);
            connect_within(limit, move || Ok(config.connect(connector)), attempt)?
        }
        Endpoint::Socket { dir, port } => {
            let file = dir.join(format!(".s.PGSQL.{port}"));
            let (params, endpoint) = (attempt.params.clone(), attempt.endpoint.clone());
            let route = Route { endpoint, address: None, ssl };
            let connect = move || {
                login_first(&file, || Wire::open(&params, &route).map(drop))?;
                Ok(config.connect(NoTls))
            };
            connect_within(limit, connect, attempt)?
        }
    };
    let client = opened.map_err(|error| Failed {
        encrypted: progress.is_encrypted(),
        refused: is_refusal(&error) && !progress.is_authenticated(),
        error: classify::classify(error, attempt),
    })?;
    Ok((client, ssl))
}

/// Whether the server sent an error for which libpq would change the mode: one that starts up refuses both.
fn is_refusal(error: &postgres::Error) -> bool {
    error.as_db_error().is_some_and(|sent| *sent.code() != SqlState::CANNOT_CONNECT_NOW)
}

/// What pgio does not support is no error yet for a server that may do without TLS.
fn encryption(params: &ConnectParams, ssl: DriverSsl) -> Result<Option<Encryption>, ConnectError> {
    if ssl == DriverSsl::Disable {
        return Ok(None);
    }
    match tls::client_config(params) {
        Ok(config) => Ok(Some(Ok(config))),
        Err(ConnectError::TlsUnsupported(what)) if ssl == DriverSsl::Prefer => Ok(Some(Err(what))),
        Err(error) => Err(error),
    }
}

/// Logs in over [`Wire`], unless the listener at this socket file has passed before.
fn login_first(
    file: &Path,
    login: impl FnOnce() -> Result<(), ConnectError>,
) -> Result<(), ConnectError> {
    static PASSED: Mutex<BTreeSet<(u64, u64, i64, i64)>> = Mutex::new(BTreeSet::new());
    // A new socket at the same path is another file.
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

/// Applies the timeout to the whole login. The driver's own timeout covers only the TCP handshake,
/// but a stalled server accepts the connection and then sends nothing. After the timeout, or when
/// pgio is asked to stop, the thread is abandoned; it ends when the server answers or goes away.
fn connect_within(
    limit: Option<Duration>,
    connect: impl FnOnce() -> Opened + Send + 'static,
    attempt: &Attempt<'_>,
) -> Opened {
    let (done, opened) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("connect".to_owned())
        // After a timeout the receiver is gone, and dropping the session closes it.
        .spawn(move || drop(done.send(connect())))
        .map_err(|source| ConnectError::Thread { source })?;
    let started = Instant::now();
    loop {
        let left = limit.map_or(interrupt::REPEAT, |limit| limit.saturating_sub(started.elapsed()));
        match opened.recv_timeout(left.min(interrupt::REPEAT)) {
            Ok(opened) => return opened,
            Err(_) if interrupt::must_end_wait() => {
                return Err(ConnectError::Stopped { at: attempt.at() });
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                // The thread has printed its panic, for example without a free file descriptor.
                let source = io::Error::other("the thread that connects ended early");
                return Err(ConnectError::Thread { source });
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if let Some(limit) = limit.filter(|limit| started.elapsed() >= *limit) {
            return Err(ConnectError::TimedOut { at: attempt.at(), seconds: limit.as_secs() });
        }
    }
}

fn driver_config(attempt: &Attempt<'_>, ssl: DriverSsl) -> Result<Config, ConnectError> {
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
        // The driver's TLS is our `Connector`, which applies the real mode.
        Endpoint::Tcp { host, .. } => {
            config.host(host).ssl_mode(DriverSsl::Require).ssl_negotiation(SslNegotiation::Direct)
        }
    };
    if let Some(mut address) = attempt.address {
        if is_in_zone(&address) {
            let detour = detour().and_then(TcpListener::local_addr);
            address = detour.map_err(|e| unreachable(&e, attempt))?;
        }
        config.hostaddr(address.ip()).port(address.port());
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
    if let Some(handler) = params.on_notice.0.clone() {
        config.notice_callback(move |notice| handler(notice.routine().unwrap_or_default()));
    }
    let keep = &params.keepalives;
    keep.idle.map(|idle| config.keepalives_idle(idle));
    keep.interval.map(|interval| config.keepalives_interval(interval));
    keep.count.map(|count| config.keepalives_retries(count));
    keep.user_timeout.map(|limit| config.tcp_user_timeout(limit));
    Ok(config)
}

/// Checks that the session satisfies target_session_attrs.
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
        .and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let (standby, read_only): (bool, bool) =
        row.map_err(|error| classify::classify(error, attempt))?;
    let (satisfied, wanted) = match wanted {
        SessionAttrs::Any | SessionAttrs::PreferStandby => (true, "any server"),
        SessionAttrs::ReadWrite => (!read_only, "open for writing"),
        SessionAttrs::ReadOnly => (read_only, "read-only"),
        SessionAttrs::Primary => (!standby, "a primary"),
        SessionAttrs::Standby => (standby, "a standby"),
    };
    if satisfied {
        Ok(client)
    } else {
        Err(ConnectError::WrongSession { at: attempt.at(), wanted })
    }
}

#[cfg(test)]
mod tests;
