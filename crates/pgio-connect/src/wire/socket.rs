//! Connects the socket of a route: TCP options, TLS, and one deadline for all of the login.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres::config::SslMode as DriverSsl;
use postgres_protocol::message::frontend;
use rustix::net::sockopt;
use rustls::ClientConnection;

use super::pipe::{Pipe, Socket};
use crate::endpoint::{Endpoint, Route};
use crate::error::ConnectError;
use crate::limits::Excess;
use crate::open::classify::{self, Attempt, NO_TLS};
use crate::params::{ConnectParams, Keepalives};
use crate::tls;

pub(super) fn attempt<'a>(params: &'a ConnectParams, route: &'a Route) -> Attempt<'a> {
    Attempt { params, endpoint: &route.endpoint, address: route.address }
}

/// The latest end of the login.
pub(super) fn deadline(params: &ConnectParams) -> Option<Instant> {
    params.connect_timeout.map(|limit| Instant::now() + limit)
}

/// Sets the timeout of the next read to the remaining time, so that a server that sends a byte now
/// and then cannot extend the login.
pub(super) fn wait_until(deadline: Option<Instant>, pipe: &Pipe) -> io::Result<()> {
    let Some(deadline) = deadline else { return Ok(()) };
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => pipe.set_read_timeout(Some(left)),
    }
}

pub(super) fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

pub(super) fn broken(error: io::Error, attempt: &Attempt<'_>) -> ConnectError {
    if let Some(excess) = error.get_ref().and_then(|inner| inner.downcast_ref::<Excess>()) {
        return ConnectError::Excess { at: attempt.at(), source: excess.clone() };
    }
    match attempt.params.connect_timeout {
        Some(limit) if is_time_out(&error) => {
            ConnectError::TimedOut { at: attempt.at(), seconds: limit.as_secs() }
        }
        _ => ConnectError::Protocol { at: attempt.at(), source: Box::new(error) },
    }
}

/// Connects the socket, with TLS if the route has it.
pub(super) fn connect(
    attempt: &Attempt<'_>,
    route: &Route,
    deadline: Option<Instant>,
) -> Result<Pipe, ConnectError> {
    let socket = socket(attempt).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => broken(e, attempt),
        kind => classify::unreachable(Some(kind), e.to_string(), attempt),
    })?;
    let mut pipe = Pipe::plain(socket);
    wait_until(deadline, &pipe).map_err(|e| broken(e, attempt))?;
    if route.ssl == DriverSsl::Disable {
        return Ok(pipe);
    }
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    let mut answer = [0];
    pipe.send(&mut request.to_vec()).map_err(|e| broken(e, attempt))?;
    let read = pipe.read(&mut answer).map_err(|e| broken(e, attempt))?;
    let at = attempt.at();
    match (read, answer) {
        (1, [b'S']) => encrypt(pipe, attempt, deadline),
        (1, _) if route.ssl == DriverSsl::Prefer => Ok(pipe),
        (1, _) => Err(ConnectError::Tls { at, problem: NO_TLS.to_owned() }),
        _ => Err(broken(io::ErrorKind::UnexpectedEof.into(), attempt)),
    }
}

fn socket(attempt: &Attempt<'_>) -> io::Result<Socket> {
    if let Endpoint::Socket { dir, port } = attempt.endpoint {
        return UnixStream::connect(dir.join(format!(".s.PGSQL.{port}"))).map(Socket::Unix);
    }
    let address = attempt.address.ok_or(io::ErrorKind::AddrNotAvailable)?;
    dial(&address, attempt.params).map(Socket::Tcp)
}

/// Connects to the server's address if it is in a zone; others are the driver's affair.
pub(crate) fn dial_zone(params: &ConnectParams) -> io::Result<Option<TcpStream>> {
    let zone = *params.zone.lock().unwrap_or_else(PoisonError::into_inner);
    zone.map(|address| dial(&address, params)).transpose()
}

/// Connects a TCP socket, with the options of the parameters.
fn dial(address: &SocketAddr, params: &ConnectParams) -> io::Result<TcpStream> {
    let socket = match params.connect_timeout {
        Some(limit) => TcpStream::connect_timeout(address, limit)?,
        None => TcpStream::connect(address)?,
    };
    socket.set_nodelay(true)?;
    keep_alive(&socket, &params.keepalives)?;
    Ok(socket)
}

fn keep_alive(socket: &TcpStream, keep: &Keepalives) -> io::Result<()> {
    if let Some(limit) = keep.user_timeout {
        let ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(socket, ms)?;
    }
    if keep.disabled {
        return Ok(());
    }
    sockopt::set_socket_keepalive(socket, true)?;
    if let Some(idle) = keep.idle {
        sockopt::set_tcp_keepidle(socket, idle)?;
    }
    if let Some(interval) = keep.interval {
        sockopt::set_tcp_keepintvl(socket, interval)?;
    }
    if let Some(count) = keep.count {
        sockopt::set_tcp_keepcnt(socket, count)?;
    }
    Ok(())
}

fn encrypt(
    mut pipe: Pipe,
    attempt: &Attempt<'_>,
    deadline: Option<Instant>,
) -> Result<Pipe, ConnectError> {
    let failed = |problem: String| ConnectError::Tls { at: attempt.at(), problem };
    let name = match (attempt.endpoint, attempt.address) {
        (Endpoint::Tcp { host, .. }, _) if !host.is_empty() => host.clone(),
        (_, Some(address)) => address.ip().to_string(),
        _ => String::new(),
    };
    let (config, name) = tls::client_config(attempt.params)?.for_host(name);
    let mut tls = ClientConnection::new(config, name).map_err(|e| failed(e.to_string()))?;
    while tls.is_handshaking() {
        let step = wait_until(deadline, &pipe).and_then(|()| handshake(&mut tls, &mut pipe));
        step.map_err(|e| {
            let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match inner {
                Some(inner) => tls::failure(attempt.at(), inner, &attempt.params.ssl),
                None if is_time_out(&e) => broken(e, attempt),
                None => failed(e.to_string()),
            }
        })?;
    }
    pipe.tls = Some(Box::new(tls));
    Ok(pipe)
}

/// Reads once during the handshake and sends the answer.
fn handshake(tls: &mut ClientConnection, pipe: &mut Pipe) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut pipe.socket)?;
    }
    if !tls.is_handshaking() {
        return Ok(());
    }
    if tls.read_tls(&mut pipe.socket)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let read = tls.process_new_packets();
    // If the handshake failed, this sends the alert.
    while tls.wants_write() {
        tls.write_tls(&mut pipe.socket)?;
    }
    read.map(drop).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}
