//! Logs in on a route: startup messages and authentication. Also sends cancel requests, which begin in
//! the same way. Next: `socket` for the connection and TLS.

use std::io;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres::error::SqlState;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ScramSha256};
use postgres_protocol::message::frontend;

use super::message::{Message, Refusal};
use super::pipe::Pipe;
use super::socket::{attempt, broken, connect, deadline, is_time_out, wait_until};
use crate::endpoint::Route;
use crate::error::ConnectError;
use crate::limits::Guard;
use crate::open::classify::{self, Attempt};
use crate::params::{ChannelBinding, ConnectParams};
use crate::secret::Secret;
use crate::tls;

/// Returns the pipe, bytes received after the startup, the backend's process id and its cancel key.
pub(super) fn open(
    params: &ConnectParams,
    route: &Route,
) -> Result<(Pipe, BytesMut, i32, i32), ConnectError> {
    let attempt = attempt(params, route);
    let deadline = deadline(params);
    let pipe = connect(&attempt, route, deadline)?;
    let (inbox, out, guard) = (BytesMut::new(), BytesMut::new(), Guard::new());
    let mut start = Startup { attempt, pipe, inbox, out, guard, deadline };
    start.send_startup()?;
    start.authenticate()?;
    let (pid, key) = start.until_ready()?;
    start.pipe.set_read_timeout(None).map_err(|e| broken(e, &start.attempt))?;
    Ok((start.pipe, start.inbox, pid, key))
}

/// Timeout for each step of a cancel request: a server that does not answer cancels nothing, so
/// waiting longer is useless.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks the server to cancel the session's statement.
pub(crate) fn cancel(
    params: &ConnectParams,
    route: &Route,
    pid: i32,
    key: i32,
) -> Result<(), ConnectError> {
    let limit = params.connect_timeout.map_or(CANCEL_TIMEOUT, |limit| limit.min(CANCEL_TIMEOUT));
    let params = ConnectParams { connect_timeout: Some(limit), ..params.clone() };
    let attempt = attempt(&params, route);
    let mut pipe = connect(&attempt, route, deadline(&params))?;
    let mut request = BytesMut::new();
    frontend::cancel_request(pid, key, &mut request);
    let lost = |e: io::Error| ConnectError::Cancel { source: Box::new(e) };
    pipe.send(&mut request.to_vec()).map_err(lost)?;
    // The server closes the connection after processing the request and sends nothing.
    match pipe.read(&mut [0]) {
        Err(error) if is_time_out(&error) => Err(broken(error, &attempt)),
        _ => Ok(()),
    }
}

struct Startup<'a> {
    attempt: Attempt<'a>,
    pipe: Pipe,
    inbox: BytesMut,
    out: BytesMut,
    guard: Guard,
    deadline: Option<Instant>,
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
        sent.map(drop).map_err(|e| broken(e, &self.attempt))
    }

    /// The next message; an ErrorResponse is an error.
    fn next(&mut self) -> Result<(u8, Vec<u8>), ConnectError> {
        loop {
            let first = Message::first(&self.inbox)
                .map_err(|e| broken(io::Error::other(e), &self.attempt))?;
            if let Some((message, rest)) = first {
                let (tag, body, read) =
                    (message.tag, message.body.to_vec(), self.inbox.len() - rest.len());
                let _ = self.inbox.split_to(read);
                if tag == b'E' {
                    let refusal = Refusal::read(&body);
                    let code = SqlState::from_code(&refusal.code);
                    let routine = super::routine(&body);
                    return Err(classify::refused(&code, &refusal.message, routine, &self.attempt));
                }
                return Ok((tag, body));
            }
            match self.fill() {
                Ok(0) => return Err(broken(io::ErrorKind::UnexpectedEof.into(), &self.attempt)),
                Ok(_) => {}
                Err(e) => return Err(broken(e, &self.attempt)),
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
        let (tag, body) = self.next()?;
        match (tag, body.split_first_chunk::<4>()) {
            (b'R', Some((kind, data))) => Ok((u32::from_be_bytes(*kind), data.to_vec())),
            _ => Err(broken(io::ErrorKind::InvalidData.into(), &self.attempt)),
        }
    }

    fn rejected(&self, message: impl Into<String>) -> ConnectError {
        let (at, user) = (self.attempt.at(), self.attempt.params.user.clone());
        ConnectError::Authentication { at, user, message: message.into(), hint: String::new() }
    }

    fn password(&self) -> Result<Secret, ConnectError> {
        let found = self.attempt.params.password_for(self.attempt.endpoint);
        found.ok_or_else(|| classify::no_password(&self.attempt))
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

    /// Reads until ReadyForQuery; returns the backend's process id and cancel key.
    fn until_ready(&mut self) -> Result<(i32, i32), ConnectError> {
        let mut process = (0, 0);
        loop {
            let (tag, body) = self.next()?;
            match (tag, body.as_slice()) {
                (b'K', [a, b, c, d, e, f, g, h]) => {
                    let word = |bytes: [&u8; 4]| i32::from_be_bytes(bytes.map(|b| *b));
                    process = (word([a, b, c, d]), word([e, f, g, h]));
                }
                (b'Z', _) => return Ok(process),
                // ParameterStatus and notices.
                _ => {}
            }
        }
    }
}

const OK: u32 = 0;
const CLEARTEXT: u32 = 3;
const MD5: u32 = 5;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use postgres::config::SslMode as DriverSsl;

    use super::*;
    use crate::{Env, resolve};

    /// Like a stopped postmaster: the kernel accepts the connection, but no process answers.
    #[test]
    fn a_cancel_request_to_a_silent_server_times_out() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let port = address.port();
        let text = format!("host=localhost hostaddr=127.0.0.1 port={port} user=u dbname=d");
        let params = resolve(&text, &Env::default()).unwrap();
        for ssl in [DriverSsl::Disable, DriverSsl::Require] {
            let route = Route { endpoint: params.hosts[0].clone(), address: Some(address), ssl };
            let started = Instant::now();
            let error = cancel(&params, &route, 1, 2).unwrap_err();
            assert!(matches!(error, ConnectError::TimedOut { seconds: 2, .. }), "{error:?}");
            assert!(started.elapsed() < 3 * CANCEL_TIMEOUT, "{:?}", started.elapsed());
        }
    }
}
