//! A connection to a mail server, by TCP or a Unix socket, with a timeout for every wait.
//!
//! Reads and writes wake up regularly to check the timeout and the order to stop. The protocol itself
//! is in [`super::dialogue`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::halt::{Halt, POLL_INTERVAL};
use super::settings::MailServer;

/// Timeout for one address; connecting to an absent host would take minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplyError {
    #[error("the connection was closed")]
    Closed,
    #[error("no reply within {} s", .0.as_secs_f64())]
    Silent(Duration),
    #[error("malformed reply from the server: {0}")]
    Garbage(String),
    #[error("the server ends the session: {0}")]
    Leaving(String),
    #[error("{0}")]
    Broken(#[source] io::Error),
    #[error("stopped")]
    Stopped,
}

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Socket(UnixStream),
}

impl Stream {
    pub(crate) fn connect(server: &MailServer) -> io::Result<Stream> {
        match server {
            MailServer::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(POLL_INTERVAL))?;
                stream.set_write_timeout(Some(POLL_INTERVAL))?;
                Ok(Stream::Socket(stream))
            }
            MailServer::Tcp(address) => {
                let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
                for address in address.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            stream.set_read_timeout(Some(POLL_INTERVAL))?;
                            stream.set_write_timeout(Some(POLL_INTERVAL))?;
                            return Ok(Stream::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Socket(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Socket(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Receives lines and sends bytes, each within a timeout.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    read: Vec<u8>,
    timeout: Duration,
    halt: Halt,
}

/// RFC 5321 allows 512 bytes; a longer line belongs to another protocol.
const MAX_LINE: usize = 4096;

impl<S: Read + Write> Wire<S> {
    pub(crate) fn new(stream: S, timeout: Duration, halt: Halt) -> Wire<S> {
        Wire { stream, read: Vec::new(), timeout, halt }
    }

    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> Result<(), ReplyError> {
        let since = Instant::now();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(ReplyError::Closed),
                Ok(written) => bytes = &bytes[written..],
                Err(error) => self.wait_on(error, since)?,
            }
        }
        Ok(())
    }

    /// Returns the next line without its end. The timeout counts from `since`.
    pub(crate) fn line(&mut self, since: Instant) -> Result<String, ReplyError> {
        loop {
            if let Some(end) = self.read.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.read.len() > MAX_LINE {
                return Err(ReplyError::Garbage(format!("a line of more than {MAX_LINE} bytes")));
            }
            let mut some = [0; 1024];
            match self.stream.read(&mut some) {
                Ok(0) => return Err(ReplyError::Closed),
                Ok(n) => self.read.extend(&some[..n]),
                Err(error) => self.wait_on(error, since)?,
            }
        }
    }

    /// Returns whether the server sent more than it was asked for.
    pub(crate) fn has_more(&self) -> bool {
        !self.read.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    fn wait_on(&self, error: io::Error, since: Instant) -> Result<(), ReplyError> {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                return Err(ReplyError::Closed);
            }
            _ => return Err(ReplyError::Broken(error)),
        }
        if self.halt.requested() {
            Err(ReplyError::Stopped)
        } else if since.elapsed() >= self.timeout {
            Err(ReplyError::Silent(self.timeout))
        } else {
            Ok(())
        }
    }
}
