//! A connection to a mail server, by TCP or a socket, on which nothing is waited for without end.
//!
//! Reads and writes return every so often, to look whether time is up or someone wants to stop. What
//! is said is [`super::dialogue`]'s business.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::config::value::mail::MailServer;
use crate::host::stop::Stop;

/// How often a wait looks up.
const BEAT: Duration = Duration::from_millis(100);
/// For one address; a host that is not there would take minutes.
const CONNECT: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error("the connection was closed")]
    Closed,
    #[error("no answer within {} s", .0.as_secs_f64())]
    Silent(Duration),
    #[error("the server said what is no answer: {0}")]
    Garbage(String),
    #[error("the server takes no more: {0}")]
    Leaving(String),
    #[error("{0}")]
    Broken(#[source] io::Error),
    #[error("stopped")]
    Stopped,
}

/// Either of them stops whoever waits: the user, or another session that failed.
#[derive(Debug, Clone, Default)]
pub(super) struct Halt {
    pub(super) user: Stop,
    pub(super) failed: Stop,
}

impl Halt {
    pub(super) fn requested(&self) -> bool {
        self.user.requested() || self.failed.requested()
    }

    /// Sleeps; false where it was woken to stop.
    pub(super) fn sleep_until(&self, moment: Instant) -> bool {
        loop {
            if self.requested() {
                return false;
            }
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(BEAT));
        }
    }
}

#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Socket(UnixStream),
}

impl Stream {
    pub(super) fn connect(server: &MailServer) -> io::Result<Stream> {
        match server {
            MailServer::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(BEAT))?;
                stream.set_write_timeout(Some(BEAT))?;
                Ok(Stream::Socket(stream))
            }
            MailServer::Tcp(address) => {
                let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
                for address in address.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, CONNECT) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            stream.set_read_timeout(Some(BEAT))?;
                            stream.set_write_timeout(Some(BEAT))?;
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

/// Lines in, bytes out, each within a limit of time.
#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    read: Vec<u8>,
    limit: Duration,
    halt: Halt,
}

/// RFC 5321 allows 512 bytes; a server that sends this much in one line speaks something else.
const LONGEST_LINE: usize = 4096;

impl<S: Read + Write> Wire<S> {
    pub(super) fn new(stream: S, limit: Duration, halt: Halt) -> Wire<S> {
        Wire { stream, read: Vec::new(), limit, halt }
    }

    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<(), Lost> {
        let since = Instant::now();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(Lost::Closed),
                Ok(written) => bytes = &bytes[written..],
                Err(error) => self.wait_on(error, since)?,
            }
        }
        Ok(())
    }

    /// The next line without its end. `since` is when waiting began.
    pub(super) fn line(&mut self, since: Instant) -> Result<String, Lost> {
        loop {
            if let Some(end) = self.read.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.read.len() > LONGEST_LINE {
                return Err(Lost::Garbage("a line without end".to_owned()));
            }
            let mut some = [0; 1024];
            match self.stream.read(&mut some) {
                Ok(0) => return Err(Lost::Closed),
                Ok(n) => self.read.extend(&some[..n]),
                Err(error) => self.wait_on(error, since)?,
            }
        }
    }

    /// Whether the server has said more than it was asked.
    pub(super) fn has_more(&self) -> bool {
        !self.read.is_empty()
    }

    #[cfg(test)]
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    fn wait_on(&self, error: io::Error, since: Instant) -> Result<(), Lost> {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                return Err(Lost::Closed);
            }
            _ => return Err(Lost::Broken(error)),
        }
        if self.halt.requested() {
            Err(Lost::Stopped)
        } else if since.elapsed() >= self.limit {
            Err(Lost::Silent(self.limit))
        } else {
            Ok(())
        }
    }
}
