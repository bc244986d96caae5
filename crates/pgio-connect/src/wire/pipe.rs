//! A socket with or without TLS, for blocking and nonblocking reads and writes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::BytesMut;
use rustls::ClientConnection;

#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

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
        match &self.socket {
            Socket::Unix(socket) => socket.set_nonblocking(yes),
            Socket::Tcp(socket) => socket.set_nonblocking(yes),
        }
    }

    pub(super) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(socket) => socket.set_read_timeout(limit),
            Socket::Tcp(socket) => socket.set_read_timeout(limit),
        }
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

/// Retries a call that a signal interrupted: with a timeout, SA_RESTART has no effect.
#[inline]
fn retry_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Read for Socket {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        retry_interrupted(|| match self {
            Socket::Unix(socket) => socket.read(into),
            Socket::Tcp(socket) => socket.read(into),
        })
    }
}

impl Write for Socket {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        retry_interrupted(|| match self {
            Socket::Unix(socket) => socket.write(bytes),
            Socket::Tcp(socket) => socket.write(bytes),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tcp(socket) => socket.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_call_is_retried() {
        let mut calls = 0;
        let result = retry_interrupted(|| {
            calls += 1;
            match calls {
                1 => Err(io::ErrorKind::Interrupted.into()),
                _ => Ok(calls),
            }
        });
        assert_eq!(result.unwrap(), 2);
        let failed = retry_interrupted(|| Err::<(), _>(io::ErrorKind::BrokenPipe.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
