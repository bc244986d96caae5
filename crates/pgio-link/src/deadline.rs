//! A socket with one deadline for a whole handshake.
//!
//! A timeout of the socket covers one read only: a peer that sends a byte now and then would hold a
//! handshake open for hours. Here each read and write gets the time that is left. After the handshake
//! [`super::link`] notices silence.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Time for a handshake from its first byte to its last.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval at which a wait looks for the order to stop.
const TICK: Duration = Duration::from_millis(100);

pub(super) struct DeadlineStream<'a> {
    stream: &'a TcpStream,
    begun: Instant,
    limit: Duration,
    stopped: &'a dyn Fn() -> bool,
}

impl<'a> DeadlineStream<'a> {
    /// The time runs from now. `stopped` ends it early.
    pub(super) fn new(
        stream: &'a TcpStream,
        limit: Duration,
        stopped: &'a dyn Fn() -> bool,
    ) -> DeadlineStream<'a> {
        DeadlineStream { stream, begun: Instant::now(), limit, stopped }
    }

    /// Sets the socket's timeouts to the time that is left, or to that until the next look at `stopped`.
    fn set_timeouts(&self) -> io::Result<()> {
        if (self.stopped)() {
            return Err(io::Error::other("stopped"));
        }
        let left = self.limit.saturating_sub(self.begun.elapsed());
        if left.is_zero() {
            let seconds = self.limit.as_secs_f64();
            let why = format!("the handshake took longer than {seconds} s");
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
        let timeout = Some(left.min(TICK));
        self.stream.set_read_timeout(timeout)?;
        self.stream.set_write_timeout(timeout)
    }

    /// Repeats a call of the socket until it ends otherwise than by its timeout.
    fn repeat(&self, mut call: impl FnMut(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            self.set_timeouts()?;
            match call(self.stream) {
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                ended => return ended,
            }
        }
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.repeat(|mut stream| stream.read(buffer))
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.repeat(|mut stream| stream.write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        // A TCP socket holds nothing back.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_peer_that_sends_byte_after_byte_gets_no_more_time() {
        let (near, mut far) = connected();
        let begun = Instant::now();
        let dripping = thread::spawn(move || {
            while begun.elapsed() < Duration::from_secs(60) && far.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let never = || false;
        let mut stream = DeadlineStream::new(&near, Duration::from_millis(300), &never);
        let mut byte = [0u8; 1];
        let error = loop {
            match stream.read(&mut byte) {
                Ok(read) => assert_eq!(read, 1, "the peer is still sending"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), "the handshake took longer than 0.3 s");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(near);
        dripping.join().unwrap();
    }

    #[test]
    fn an_order_to_stop_ends_the_wait_for_a_silent_peer() {
        let (near, _far) = connected();
        let begun = Instant::now();
        let stopped = || begun.elapsed() > Duration::from_millis(50);
        let mut stream = DeadlineStream::new(&near, Duration::from_secs(600), &stopped);
        let mut byte = [0u8; 1];
        let error = stream.read(&mut byte).unwrap_err();
        assert_eq!(error.to_string(), "stopped");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }
}
