//! The driver's side: dials the coordinator at all of its addresses until one leads to it.
//!
//! What answers may be another program, or the coordinator of another run: some addresses, such as the address of
//! Docker's bridge, exist on every host. The proof of the token tells, so nothing before it ends the search.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, Connection};

use super::deadline::{DeadlineStream, HANDSHAKE_TIMEOUT};
use super::error::LinkError;
use super::frame::Inbox;
use super::handshake::{Hello, MessageStream, Welcome, request_admission};
use super::link::{Event, Link, Role};
use super::offset::Clock;
use super::tls;
use super::token::Token;

/// Time for one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// How long to dial.
pub struct Patience<'a> {
    pub within: Duration,
    /// Ends it early.
    pub stopped: &'a dyn Fn() -> bool,
}

impl fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience").field("within", &self.within).finish_non_exhaustive()
    }
}

/// Dials `addresses` (`host:port`, separated by commas) in turn until one leads to the coordinator that knows the
/// token, or the patience ends. That coordinator's refusal is final.
pub fn dial(
    addresses: &str,
    patience: &Patience<'_>,
    token: &Token,
    hello: &Hello,
    clock: Clock,
    sink: Box<dyn FnMut(Event) + Send>,
) -> Result<(Welcome, Link), LinkError> {
    let begun = Instant::now();
    let caller = Caller { token, hello, stopped: patience.stopped };
    loop {
        let mut failures = Vec::new();
        if let Some(admitted) = caller.try_all(addresses, &mut failures)? {
            let Admitted { welcome, connection, stream, inbox } = admitted;
            let connection = Connection::Client(connection);
            let link = Link::start(connection, stream, inbox, Role::Driver, clock, sink)?;
            return Ok((welcome, link));
        }
        let is_over = begun.elapsed() >= patience.within || (patience.stopped)();
        if is_over || !failures.iter().any(Failure::may_pass) {
            return Err(combine(addresses, failures));
        }
        thread::sleep(RETRY_DELAY);
    }
}

/// Why an address did not lead to the coordinator.
enum Failure {
    Connect { address: String, source: io::Error },
    Handshake(LinkError),
}

impl Failure {
    /// Whether the address may lead to the coordinator later.
    fn may_pass(&self) -> bool {
        match self {
            Failure::Connect { .. } => true,
            Failure::Handshake(error) => matches!(error, LinkError::Handshake { .. }),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect { address, source } => {
                write!(f, "cannot connect to {address}: {source}")
            }
            Failure::Handshake(error) => write!(f, "{error}"),
        }
    }
}

fn combine(addresses: &str, mut failures: Vec<Failure>) -> LinkError {
    let addresses = addresses.to_owned();
    let none_answered = failures.iter().all(|f| matches!(f, Failure::Connect { .. }));
    match failures.pop() {
        None => {
            let source = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address is given");
            LinkError::Unreachable { addresses, source }
        }
        Some(Failure::Connect { source, .. }) if none_answered => {
            LinkError::Unreachable { addresses, source }
        }
        Some(Failure::Handshake(only)) if failures.is_empty() => only,
        Some(last) => {
            failures.push(last);
            let each: Vec<String> = failures.iter().map(Failure::to_string).collect();
            LinkError::NoCoordinator { failures: each.join("; ") }
        }
    }
}

/// A connection on which the coordinator has let this driver in.
struct Admitted {
    welcome: Welcome,
    connection: ClientConnection,
    stream: TcpStream,
    inbox: Inbox,
}

struct Caller<'a> {
    token: &'a Token,
    hello: &'a Hello,
    stopped: &'a dyn Fn() -> bool,
}

impl Caller<'_> {
    /// Tries every address once; adds why those failed that did not lead to the coordinator.
    fn try_all(
        &self,
        addresses: &str,
        failures: &mut Vec<Failure>,
    ) -> Result<Option<Admitted>, LinkError> {
        let mut tried = Vec::new();
        for address in addresses.split(',').map(str::trim).filter(|a| !a.is_empty()) {
            let found = match address.to_socket_addrs() {
                Ok(found) => found,
                Err(source) => {
                    failures.push(Failure::Connect { address: address.to_owned(), source });
                    continue;
                }
            };
            for peer in found {
                if (self.stopped)() {
                    return Ok(None);
                }
                // A name often has one of the addresses that are listed beside it.
                if tried.contains(&peer) {
                    continue;
                }
                tried.push(peer);
                let address = shown(address, peer);
                match connect(&peer) {
                    Err(source) => failures.push(Failure::Connect { address, source }),
                    Ok(stream) => match self.shake_hands(stream, &address) {
                        Ok(admitted) => return Ok(Some(admitted)),
                        Err(error) if is_of_address(&error) => {
                            failures.push(Failure::Handshake(error));
                        }
                        Err(error) => return Err(error),
                    },
                }
            }
        }
        Ok(None)
    }

    fn shake_hands(&self, stream: TcpStream, address: &str) -> Result<Admitted, LinkError> {
        let failed = |why: String| LinkError::Handshake { address: address.to_owned(), why };
        let mut connection = tls::connect()?;
        let mut socket = DeadlineStream::new(&stream, HANDSHAKE_TIMEOUT, self.stopped);
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).map_err(|e| failed(e.to_string()))?;
        }
        let exported = connection.export_keying_material([0; 32], tls::LABEL, None);
        let exported = exported.map_err(|e| failed(e.to_string()))?;
        let mut stream_of_tls = rustls::Stream::new(&mut connection, &mut socket);
        let mut messages = MessageStream::new(&mut stream_of_tls);
        let (token, hello) = (self.token, self.hello);
        let welcome = request_admission(&mut messages, &exported, token, hello, address)?;
        let inbox = messages.inbox;
        Ok(Admitted { welcome, connection, stream, inbox })
    }
}

/// Whether another address may still lead to the coordinator.
fn is_of_address(error: &LinkError) -> bool {
    matches!(
        error,
        LinkError::Handshake { .. }
            | LinkError::WrongToken { .. }
            | LinkError::RefusedWithoutProof { .. }
    )
}

/// Returns the address as it is given, and for a name the one that was found.
fn shown(address: &str, found: SocketAddr) -> String {
    if found.to_string() == address {
        address.to_owned()
    } else {
        format!("{address} ({})", found.ip())
    }
}

fn connect(peer: &SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(peer, CONNECT_TIMEOUT)?;
    // The kernel connects a socket to itself if the port is free and was drawn.
    if stream.local_addr().is_ok_and(|local| local == *peer) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}
