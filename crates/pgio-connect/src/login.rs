//! Logs in on a route: socket, TLS, startup messages and authentication, before one deadline. Also sends
//! cancel requests, which begin in the same way.
//!
//! Every session of pgio begins here, whoever speaks on it later: the client engine (`wire`) or the
//! driver (`client`). The server is not trusted until it has authenticated the session; `limits` counts
//! what it sends.

use std::io;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ScramSha256};
use postgres_protocol::message::frontend;
use rustls::ClientConnection;
use tokio_postgres::error::SqlState;

use super::attempt::{Attempt, is_timeout};
use super::error::{ConnectError, TlsUnsupported};
use super::interrupt;
use super::limits::Guard;
use super::message::{Message, Refusal, routine};
use super::params::{ChannelBinding, ConnectParams};
use super::secret::Secret;
use super::socket::{Encryption, Endpoint, Pipe, Route, Socket};
use super::tls::{self, Tls};

const NO_TLS: &str = "the server does not support TLS; set ssl=on on the server, or sslmode=prefer in the connection";

/// An authenticated session.
pub(super) struct Login {
    pub(super) pipe: Pipe,
    pub(super) guard: Guard,
    /// What the server sent from AuthenticationOk on.
    pub(super) answer: BytesMut,
    /// The end of `answer` that came after ReadyForQuery.
    pub(super) rest: BytesMut,
    /// Backend process id and cancel key.
    pub(super) process: (i32, i32),
}

/// A failed login, and what decides in libpq whether it is tried again with or without TLS.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: ConnectError,
    /// The session had TLS.
    pub(super) encrypted: bool,
    /// The server refused the login before the authentication was complete.
    pub(super) refused: bool,
}

impl From<ConnectError> for Failed {
    fn from(error: ConnectError) -> Failed {
        Failed { error, encrypted: false, refused: false }
    }
}

/// Opens a session on the route.
pub(super) fn open(params: &ConnectParams, route: &Route) -> Result<Login, Failed> {
    log_in(Attempt { params, route }).map_err(|failed| {
        let at = route.to_string();
        if interrupt::must_end_wait() { ConnectError::Stopped { at }.into() } else { failed }
    })
}

fn log_in(attempt: Attempt<'_>) -> Result<Login, Failed> {
    let deadline = deadline(attempt.params);
    let mut start = Startup {
        attempt,
        pipe: connect(attempt, deadline)?,
        inbox: BytesMut::new(),
        out: BytesMut::new(),
        guard: Guard::new(),
        deadline,
        refused: false,
    };
    let done = start.send_startup().and_then(|()| start.authenticate());
    match done.and_then(|()| start.read_until_ready()) {
        Ok((process, mut answer)) => {
            answer.extend_from_slice(&start.inbox);
            Ok(Login { pipe: start.pipe, guard: start.guard, answer, rest: start.inbox, process })
        }
        Err(error) => {
            let (encrypted, refused) = (start.pipe.tls.is_some(), start.refused);
            Err(Failed { error, encrypted, refused })
        }
    }
}

/// The latest end of the login.
fn deadline(params: &ConnectParams) -> Option<Instant> {
    params.connect_timeout.map(|limit| Instant::now() + limit)
}

/// Sets the timeout of the next read to the remaining time, so that a server that sends a byte now
/// and then cannot extend the login.
fn wait_until(deadline: Option<Instant>, pipe: &Pipe) -> io::Result<()> {
    let Some(deadline) = deadline else { return Ok(()) };
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => pipe.set_read_timeout(Some(left)),
    }
}

/// Connects the socket, with TLS if the route has it and the server too.
fn connect(attempt: Attempt<'_>, deadline: Option<Instant>) -> Result<Pipe, ConnectError> {
    let tls = encryption(attempt)?;
    let socket = match (&attempt.route.endpoint, attempt.route.address) {
        (Endpoint::Socket { dir, port }, _) => {
            Socket::to_file(&dir.join(format!(".s.PGSQL.{port}")), deadline)
        }
        (Endpoint::Tcp { .. }, Some(address)) => {
            Socket::to_address(&address, &attempt.params.keepalives, deadline)
        }
        (Endpoint::Tcp { .. }, None) => Err(io::ErrorKind::AddrNotAvailable.into()),
    };
    let mut pipe = Pipe::plain(socket.map_err(|error| attempt.unreachable(&error))?);
    let Some(tls) = tls else { return Ok(pipe) };
    match request_tls(&mut pipe, deadline).map_err(|error| tls_failure(error, attempt))? {
        b'S' => encrypt(pipe, tls.map_err(ConnectError::TlsUnsupported)?, attempt, deadline),
        _ if attempt.route.encryption == Encryption::IfOffered => Ok(pipe),
        _ => Err(ConnectError::Tls { at: attempt.at(), problem: NO_TLS.to_owned() }),
    }
}

/// How to encrypt, or why that is impossible, which matters only if the server offers TLS.
fn encryption(attempt: Attempt<'_>) -> Result<Option<Result<Tls, TlsUnsupported>>, ConnectError> {
    let encryption = attempt.route.encryption;
    if encryption == Encryption::Off {
        return Ok(None);
    }
    match tls::client_config(attempt.params) {
        Ok(config) => Ok(Some(Ok(config))),
        Err(ConnectError::TlsUnsupported(what)) if encryption == Encryption::IfOffered => {
            Ok(Some(Err(what)))
        }
        Err(error) => Err(error),
    }
}

/// Asks for TLS; returns the server's answer.
fn request_tls(pipe: &mut Pipe, deadline: Option<Instant>) -> io::Result<u8> {
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    pipe.send(&mut request.to_vec())?;
    wait_until(deadline, pipe)?;
    // Read exactly one byte: data after a refusal belongs to the plain session, and unencrypted
    // data after an `S` must not be trusted (CVE-2021-23222).
    let mut answer = [0];
    match pipe.read(&mut answer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(answer[0]),
    }
}

fn encrypt(
    mut pipe: Pipe,
    tls: Tls,
    attempt: Attempt<'_>,
    deadline: Option<Instant>,
) -> Result<Pipe, ConnectError> {
    let name = match (&attempt.route.endpoint, attempt.route.address) {
        (Endpoint::Tcp { host, .. }, _) if !host.is_empty() => host.clone(),
        (_, Some(address)) => address.ip().to_string(),
        _ => String::new(),
    };
    let (config, name) = tls.for_host(name);
    let begun = ClientConnection::new(config, name).map_err(io::Error::other);
    let mut tls = begun.map_err(|error| tls_failure(error, attempt))?;
    while tls.is_handshaking() {
        let step = wait_until(deadline, &pipe).and_then(|()| handshake(&mut tls, &mut pipe));
        step.map_err(|error| tls_failure(error, attempt))?;
    }
    pipe.tls = Some(Box::new(tls));
    Ok(pipe)
}

fn tls_failure(error: io::Error, attempt: Attempt<'_>) -> ConnectError {
    match (error.get_ref(), error.kind()) {
        (None, io::ErrorKind::UnexpectedEof) => {
            let problem = "the server closed the connection".to_owned();
            ConnectError::Tls { at: attempt.at(), problem }
        }
        (None, _) if !is_timeout(&error) => {
            ConnectError::Tls { at: attempt.at(), problem: error.to_string() }
        }
        _ => attempt.broken(error),
    }
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
    read.map(drop).map_err(io::Error::other)
}

/// Timeout for each step of a cancel request: a server that does not answer cancels nothing, so
/// waiting longer is useless.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Cancels the running statement of one session from any thread, by a request on a separate connection.
#[derive(Clone)]
pub struct Canceller {
    params: Box<ConnectParams>,
    route: Route,
    process: (i32, i32),
}

impl Canceller {
    pub(super) fn new(params: &ConnectParams, route: &Route, process: (i32, i32)) -> Canceller {
        Canceller { params: Box::new(params.clone()), route: route.clone(), process }
    }

    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// Asks the server to cancel. The request may come too late; the server does not answer.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    pub fn cancel(&self) -> Result<(), ConnectError> {
        let limit = self.params.connect_timeout.map_or(CANCEL_TIMEOUT, |l| l.min(CANCEL_TIMEOUT));
        let params = ConnectParams { connect_timeout: Some(limit), ..(*self.params).clone() };
        let attempt = Attempt { params: &params, route: &self.route };
        let mut pipe = connect(attempt, deadline(&params))?;
        let mut request = BytesMut::new();
        frontend::cancel_request(self.process.0, self.process.1, &mut request);
        let lost = |e: io::Error| ConnectError::Cancel { source: Box::new(e) };
        pipe.send(&mut request.to_vec()).map_err(lost)?;
        wait_until(deadline(&params), &pipe).map_err(lost)?;
        // The server closes the connection after processing the request and sends nothing.
        match pipe.read(&mut [0]) {
            Err(error) if is_timeout(&error) => Err(attempt.broken(error)),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Canceller")
    }
}

struct Startup<'a> {
    attempt: Attempt<'a>,
    pipe: Pipe,
    inbox: BytesMut,
    out: BytesMut,
    guard: Guard,
    deadline: Option<Instant>,
    /// The server sent an error for which libpq would change the mode.
    refused: bool,
}

impl Startup<'_> {
    fn send_startup(&mut self) -> Result<(), ConnectError> {
        let params = self.attempt.params;
        let mut parameters = vec![
            ("client_encoding", "UTF8"),
            ("user", params.user.as_str()),
            ("database", params.dbname.as_str()),
            ("application_name", params.application_name.as_str()),
        ];
        parameters.extend(params.options.as_deref().map(|options| ("options", options)));
        let written = frontend::startup_message(parameters, &mut self.out);
        self.send(written)
    }

    /// Sends the message written to `out`.
    fn send(&mut self, written: io::Result<()>) -> Result<(), ConnectError> {
        let sent = written.and_then(|()| self.pipe.send(&mut self.out.split().to_vec()));
        sent.map(drop).map_err(|error| self.attempt.broken(error))
    }

    /// The next message, whole; an ErrorResponse is an error.
    fn next(&mut self) -> Result<BytesMut, ConnectError> {
        loop {
            let first = Message::first(&self.inbox);
            let first = first.map_err(|e| self.attempt.broken(io::Error::other(e)))?;
            if let Some((message, rest)) = first {
                if message.tag == b'E' {
                    let sent = Refusal::read(message.body);
                    let code = SqlState::from_code(&sent.code);
                    let routine = routine(message.body);
                    // One that starts up refuses both with and without TLS.
                    self.refused =
                        code != SqlState::CANNOT_CONNECT_NOW && !self.guard.is_authenticated();
                    return Err(self.attempt.refused(&code, &sent.message, routine));
                }
                let length = self.inbox.len() - rest.len();
                return Ok(self.inbox.split_to(length));
            }
            match self.fill() {
                Ok(0) => return Err(self.attempt.broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(self.attempt.broken(error)),
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        wait_until(self.deadline, &self.pipe)?;
        let received = self.pipe.fill(&mut self.inbox)?;
        self.guard.watch(&self.inbox[self.inbox.len() - received..])?;
        Ok(received)
    }

    /// The next authentication message: its kind and data.
    fn authentication_request(&mut self) -> Result<(u32, Vec<u8>), ConnectError> {
        match &*self.next()? {
            [b'R', _, _, _, _, a, b, c, d, data @ ..] => {
                Ok((u32::from_be_bytes([*a, *b, *c, *d]), data.to_vec()))
            }
            _ => Err(self.attempt.broken(io::ErrorKind::InvalidData.into())),
        }
    }

    fn rejected(&self, message: impl Into<String>) -> ConnectError {
        let (at, user) = (self.attempt.at(), self.attempt.params.user.clone());
        ConnectError::Authentication { at, user, message: message.into(), hint: String::new() }
    }

    fn password(&self) -> Result<Secret, ConnectError> {
        let found = self.attempt.params.password_for(&self.attempt.route.endpoint);
        found.ok_or_else(|| self.attempt.no_password())
    }

    /// Fails if channel binding is required; called before any method without it.
    fn allow_unbound(&self) -> Result<(), ConnectError> {
        match self.attempt.params.channel_binding {
            ChannelBinding::Require => Err(self.rejected("server did not use channel binding")),
            ChannelBinding::Disable | ChannelBinding::Prefer => Ok(()),
        }
    }

    fn authenticate(&mut self) -> Result<(), ConnectError> {
        let (kind, data) = self.authentication_request()?;
        match (kind, data.as_slice()) {
            (OK, _) => return self.allow_unbound(),
            (CLEARTEXT, _) => {
                self.allow_unbound()?;
                let password = self.password()?;
                let written = frontend::password_message(password.expose(), &mut self.out);
                self.send(written)?;
            }
            (MD5, [a, b, c, d]) => {
                self.allow_unbound()?;
                let password = self.password()?;
                let user = self.attempt.params.user.as_bytes();
                let hash = md5_hash(user, password.expose(), [*a, *b, *c, *d]);
                let written = frontend::password_message(hash.as_bytes(), &mut self.out);
                self.send(written)?;
            }
            (SASL, mechanisms) => self.scram(mechanisms)?,
            _ => return Err(self.rejected("unsupported authentication method")),
        }
        match self.authentication_request()? {
            (OK, _) => Ok(()),
            _ => Err(self.rejected("unsupported authentication request after the password")),
        }
    }

    fn scram(&mut self, mechanisms: &[u8]) -> Result<(), ConnectError> {
        let password = self.password()?;
        let offered = |name: &str| mechanisms.split(|b| *b == 0).any(|m| m == name.as_bytes());
        let certificate = self.pipe.tls.as_ref().and_then(|tls| tls.peer_certificates()?.first());
        let end_point = certificate
            .and_then(|certificate| tls::end_point(certificate))
            .filter(|_| self.attempt.params.channel_binding != ChannelBinding::Disable);
        let (binding, mechanism) = match end_point {
            Some(hash) if offered(sasl::SCRAM_SHA_256_PLUS) => {
                (sasl::ChannelBinding::tls_server_end_point(hash), sasl::SCRAM_SHA_256_PLUS)
            }
            _ if !offered(sasl::SCRAM_SHA_256) => {
                return Err(self.rejected("unsupported SASL mechanism"));
            }
            Some(_) => (sasl::ChannelBinding::unrequested(), sasl::SCRAM_SHA_256),
            None => (sasl::ChannelBinding::unsupported(), sasl::SCRAM_SHA_256),
        };
        if mechanism != sasl::SCRAM_SHA_256_PLUS {
            self.allow_unbound()?;
        }
        let mut scram = ScramSha256::new(password.expose(), binding);
        let written = frontend::sasl_initial_response(mechanism, scram.message(), &mut self.out);
        self.send(written)?;
        let data = self.sasl(SASL_CONTINUE)?;
        scram.update(&data).map_err(|e| self.rejected(e.to_string()))?;
        let written = frontend::sasl_response(scram.message(), &mut self.out);
        self.send(written)?;
        let data = self.sasl(SASL_FINAL)?;
        scram.finish(&data).map_err(|e| self.rejected(e.to_string()))
    }

    fn sasl(&mut self, expected: u32) -> Result<Vec<u8>, ConnectError> {
        match self.authentication_request()? {
            (kind, data) if kind == expected => Ok(data),
            _ => Err(self.rejected("unexpected message during SCRAM authentication")),
        }
    }

    /// Reads until ReadyForQuery; returns the backend's process id and cancel key, and all messages from
    /// AuthenticationOk on.
    fn read_until_ready(&mut self) -> Result<((i32, i32), BytesMut), ConnectError> {
        let mut process = (0, 0);
        let mut answer = BytesMut::from(AUTHENTICATION_OK);
        loop {
            let message = self.next()?;
            answer.extend_from_slice(&message);
            match &*message {
                [b'K', _, _, _, _, a, b, c, d, e, f, g, h] => {
                    let word = |bytes: [&u8; 4]| i32::from_be_bytes(bytes.map(|b| *b));
                    process = (word([a, b, c, d]), word([e, f, g, h]));
                }
                [b'Z', ..] => {
                    let waiting = self.pipe.set_read_timeout(None);
                    waiting.map_err(|error| self.attempt.broken(error))?;
                    return Ok((process, answer));
                }
                // ParameterStatus and notices.
                _ => {}
            }
        }
    }
}

pub(super) const AUTHENTICATION_OK: &[u8] = b"R\0\0\0\x08\0\0\0\0";

const OK: u32 = 0;
const CLEARTEXT: u32 = 3;
const MD5: u32 = 5;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::PoisonError;

    use super::*;
    use crate::interrupt::tests::CUTS;
    use crate::{Env, resolve};

    /// Like a stopped postmaster: the kernel accepts the connection, but no process answers.
    #[test]
    fn a_cancel_request_to_a_silent_server_times_out() {
        let _alone = CUTS.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let port = address.port();
        let text = format!("host=localhost hostaddr=127.0.0.1 port={port} user=u dbname=d");
        let params = resolve(&text, &Env::default()).unwrap();
        for encryption in [Encryption::Off, Encryption::Required] {
            let endpoint = params.hosts[0].clone();
            let route = Route { endpoint, address: Some(address), encryption };
            let started = Instant::now();
            let error = Canceller::new(&params, &route, (1, 2)).cancel().unwrap_err();
            assert!(matches!(error, ConnectError::TimedOut { seconds: 2, .. }), "{error:?}");
            assert!(started.elapsed() < 3 * CANCEL_TIMEOUT, "{:?}", started.elapsed());
        }
    }
}
