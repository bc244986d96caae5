//! The socket of a session, with or without TLS, for blocking and nonblocking reads and writes.
//!
//! Next: `login` opens it, `stream` gives it to the asynchronous client.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, retry_on_intr};
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use rustls::ClientConnection;

use super::interrupt;
use super::params::Keepalives;

/// A socket of any family; [`interrupt`] may shut down one that leads to a server.
#[derive(Debug, Clone)]
pub(super) struct Socket(Arc<OwnedFd>);

/// Interval between attempts to enter the full queue of a Unix-domain socket: the kernel does not tell when
/// there is room.
const QUEUE_INTERVAL: Duration = Duration::from_millis(10);

impl Socket {
    pub(super) fn to_file(file: &Path, deadline: Option<Instant>) -> io::Result<Socket> {
        Socket::connect(&SocketAddrUnix::new(file)?, AddressFamily::UNIX, deadline)
    }

    pub(super) fn to_address(
        address: &SocketAddr,
        keep: &Keepalives,
        deadline: Option<Instant>,
    ) -> io::Result<Socket> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = Socket::connect(address, family, deadline)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        keep_alive(&socket, keep)?;
        Ok(socket)
    }

    fn connect(
        address: &impl SocketAddrArg,
        family: AddressFamily,
        deadline: Option<Instant>,
    ) -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = Socket::from(socket_with(family, SocketType::STREAM, flags, None)?);
        interrupt::register(&socket.0);
        loop {
            match connect(&socket, address) {
                Ok(()) => break,
                Err(Errno::INPROGRESS | Errno::INTR) => {
                    socket.wait(PollFlags::OUT, deadline)?;
                    sockopt::socket_error(&socket)??;
                    break;
                }
                Err(Errno::AGAIN) if family == AddressFamily::UNIX => {
                    let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                    if is_late || interrupt::must_end_wait() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    thread::sleep(QUEUE_INTERVAL);
                }
                Err(error) => return Err(error.into()),
            }
        }
        socket.set_nonblocking(false)?;
        Ok(socket)
    }

    /// Waits for one of the events; returns those that came.
    pub(super) fn wait(
        &self,
        events: PollFlags,
        deadline: Option<Instant>,
    ) -> io::Result<PollFlags> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A time that no Timespec holds is forever.
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut sockets = [PollFd::new(self, events)];
            match poll(&mut sockets, timeout.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(sockets[0].revents()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn set_nonblocking(&self, yes: bool) -> io::Result<()> {
        Ok(ioctl_fionbio(self, yes)?)
    }
}

impl From<OwnedFd> for Socket {
    fn from(socket: OwnedFd) -> Socket {
        Socket(Arc::new(socket))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for Socket {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // With a timeout, SA_RESTART has no effect.
        Ok(retry_on_intr(|| rustix::io::read(&*self, &mut *into))?)
    }
}

impl Write for Socket {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| send(&*self, bytes, SendFlags::NOSIGNAL))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn keep_alive(socket: &Socket, keep: &Keepalives) -> io::Result<()> {
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

/// A socket with or without TLS.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) socket: Socket,
    pub(super) tls: Option<Box<ClientConnection>>,
}

impl Pipe {
    pub(super) fn plain(socket: Socket) -> Pipe {
        Pipe { socket, tls: None }
    }

    pub(super) fn set_nonblocking(&self, yes: bool) -> io::Result<()> {
        self.socket.set_nonblocking(yes)
    }

    /// Sets the timeout of blocking reads.
    pub(super) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.socket, Timeout::Recv, limit)?)
    }

    #[inline]
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(into),
            Some(tls) => read_tls(tls, &mut self.socket, into),
        }
    }

    /// Appends received bytes to `inbox`; 0 means the connection is closed.
    pub(super) fn fill(&mut self, inbox: &mut BytesMut) -> io::Result<usize> {
        let mut chunk = [0; 4096];
        let read = self.read(&mut chunk)?;
        inbox.extend_from_slice(&chunk[..read]);
        Ok(read)
    }

    /// Sends as much of `out` as the socket accepts and removes it from `out`; `false` means that
    /// some is left.
    #[inline]
    pub(super) fn send(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        match &mut self.tls {
            None => send_plain(&mut self.socket, out),
            Some(tls) => send_tls(tls, &mut self.socket, out),
        }
    }
}

fn send_plain(socket: &mut Socket, out: &mut Vec<u8>) -> io::Result<bool> {
    let mut sent = 0;
    let all = loop {
        if sent == out.len() {
            break true;
        }
        match socket.write(&out[sent..]) {
            Ok(n) => sent += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break false,
            Err(e) => return Err(e),
        }
    };
    out.drain(..sent);
    Ok(all)
}

fn read_tls(tls: &mut ClientConnection, socket: &mut Socket, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match tls.reader().read(into) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // A killed server process sends no TLS close_notify; treat this as the end of the
            // connection.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
            other => return other,
        }
        if tls.read_tls(socket)? == 0 {
            return Ok(0);
        }
        tls.process_new_packets().map_err(io::Error::other)?;
        // TLS itself may have to answer, for example to a key update.
        write_records(tls, socket)?;
    }
}

fn send_tls(
    tls: &mut ClientConnection,
    socket: &mut Socket,
    out: &mut Vec<u8>,
) -> io::Result<bool> {
    loop {
        if !write_records(tls, socket)? {
            return Ok(false);
        }
        if out.is_empty() {
            return Ok(true);
        }
        let taken = tls.writer().write(out)?;
        out.drain(..taken);
    }
}

fn write_records(tls: &mut ClientConnection, socket: &mut Socket) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Socket {
        dir: PathBuf,
        port: u16,
    },
    /// A certificate must name `host`; `addr` avoids a DNS lookup and has the port and, for a
    /// link-local address, the zone.
    Tcp {
        host: String,
        addr: Option<SocketAddr>,
        port: u16,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Socket { dir, port } => write!(f, "{}:{port}", dir.display()),
            Endpoint::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}

/// Parses an address, which may have a zone: `fe80::1%eth0`. Asks no name server.
pub(super) fn parse_address(text: &str, port: u16) -> Option<SocketAddr> {
    match text.parse() {
        Ok(ip) => Some(SocketAddr::new(ip, port)),
        Err(_) if text.contains(':') => (text, port).to_socket_addrs().ok()?.next(),
        Err(_) => None,
    }
}

/// The address and TLS of a session, to open further sessions directly.
#[derive(Debug, Clone)]
pub struct Route {
    pub(super) endpoint: Endpoint,
    /// `None` means the Unix-domain socket of the endpoint.
    pub(super) address: Option<SocketAddr>,
    pub(super) encryption: Encryption,
}

/// Whether a session asks the server for TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    Off,
    IfOffered,
    Required,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoint)?;
        match (&self.endpoint, self.address) {
            (Endpoint::Tcp { host, .. }, Some(address))
                if host.split('%').next() != Some(&*address.ip().to_string()) =>
            {
                write!(f, " ({})", address.ip())
            }
            _ => Ok(()),
        }
    }
}
