//! The driver's side: dials the coordinator at the first of its addresses that answers.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use rustls::Connection;

use super::deadline::{DeadlineStream, HANDSHAKE_TIMEOUT};
use super::error::LinkError;
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

/// Dials `addresses` (`host:port`, separated by commas) in turn until one answers or the patience ends. A refusal is final.
pub fn dial(
    addresses: &str,
    patience: &Patience<'_>,
    token: &Token,
    hello: &Hello,
    clock: Clock,
    sink: Box<dyn FnMut(Event) + Send>,
) -> Result<(Welcome, Link), LinkError> {
    let begun = Instant::now();
    loop {
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address is given");
        for address in addresses.split(',').map(str::trim).filter(|a| !a.is_empty()) {
            match connect(address) {
                Ok(stream) => {
                    let peer = Peer { stream, address, stopped: patience.stopped };
                    return shake_hands(peer, token, hello, clock, sink);
                }
                Err(error) => last = error,
            }
        }
        if begun.elapsed() >= patience.within || (patience.stopped)() {
            return Err(LinkError::Unreachable { addresses: addresses.to_owned(), source: last });
        }
        thread::sleep(RETRY_DELAY);
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for found in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&found, CONNECT_TIMEOUT) {
            Ok(stream) if is_own_end(&stream, &found) => {
                // The kernel connects a socket to itself if the port is free and was drawn.
                last = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn is_own_end(stream: &TcpStream, peer: &SocketAddr) -> bool {
    stream.local_addr().is_ok_and(|local| local == *peer)
}

/// What accepted the connection at one of the addresses.
struct Peer<'a> {
    stream: TcpStream,
    address: &'a str,
    /// Ends the handshake early.
    stopped: &'a dyn Fn() -> bool,
}

fn shake_hands(
    peer: Peer<'_>,
    token: &Token,
    hello: &Hello,
    clock: Clock,
    sink: Box<dyn FnMut(Event) + Send>,
) -> Result<(Welcome, Link), LinkError> {
    let Peer { stream, address, stopped } = peer;
    let failed = |why: String| LinkError::Handshake { address: address.to_owned(), why };
    stream.set_nodelay(true)?;
    let mut connection = tls::connect()?;
    let mut socket = DeadlineStream::new(&stream, HANDSHAKE_TIMEOUT, stopped);
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).map_err(|e| failed(e.to_string()))?;
    }
    let exported = connection.export_keying_material([0; 32], tls::LABEL, None);
    let exported = exported.map_err(|e| failed(e.to_string()))?;
    let mut stream_of_tls = rustls::Stream::new(&mut connection, &mut socket);
    let mut messages = MessageStream::new(&mut stream_of_tls);
    let welcome = request_admission(&mut messages, &exported, token, hello, address)?;
    let inbox = messages.inbox;
    let connection = Connection::Client(connection);
    let link = Link::start(connection, stream, inbox, Role::Driver, clock, sink)?;
    Ok((welcome, link))
}
