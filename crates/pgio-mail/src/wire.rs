//! A connection to a mail server, by TCP or a Unix socket, with a timeout for every wait.
//!
//! Reads and writes wake up regularly to check the timeout and the order to stop. The protocol itself
//! is in [`super::dialogue`].

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

/// How often a wait checks for the order.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Stops all sessions: on the caller's request, or because one of them failed. Clones share the order.
#[derive(Clone)]
pub struct Halt {
    caller_stops: Arc<dyn Fn() -> bool + Send + Sync>,
    failed: Arc<AtomicBool>,
}

impl Halt {
    /// `caller_stops` returns whether the caller wants to stop.
    pub fn new(caller_stops: impl Fn() -> bool + Send + Sync + 'static) -> Halt {
        Halt { caller_stops: Arc::new(caller_stops), failed: Arc::default() }
    }

    pub fn requested(&self) -> bool {
        self.failed.load(Ordering::SeqCst) || (self.caller_stops)()
    }

    /// Stops the sessions, whatever the caller wants.
    pub fn request(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }

    /// Takes [`Halt::request`] back, once all sessions have stopped.
    pub fn withdraw(&self) {
        self.failed.store(false, Ordering::SeqCst);
    }

    /// Sleeps; returns false if it was stopped.
    pub(crate) fn sleep_until(&self, moment: Instant) -> bool {
        loop {
            if self.requested() {
                return false;
            }
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

impl Default for Halt {
    fn default() -> Halt {
        Halt::new(|| false)
    }
}

impl fmt::Debug for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Halt").field("requested", &self.requested()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_and_a_failed_session_stop_all_clones() {
        let asked = Arc::new(AtomicBool::new(false));
        let caller = Arc::clone(&asked);
        let halt = Halt::new(move || caller.load(Ordering::SeqCst));
        assert!(halt.sleep_until(Instant::now()));
        asked.store(true, Ordering::SeqCst);
        assert!(halt.requested() && !halt.sleep_until(Instant::now()));
        let [halt, other] = [(); 2].map(|()| halt.clone());
        asked.store(false, Ordering::SeqCst);
        other.request();
        assert!(halt.requested());
    }
}
