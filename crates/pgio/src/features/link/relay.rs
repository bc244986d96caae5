//! A relay between the two ends of a connection, which delays the bytes and limits their rate.
//!
//! Each direction has a reader, a queue of chunks stamped with the time at which they are due, and a
//! writer that waits for it: any amount can be under way, and a delay does not reduce the
//! bandwidth. A full queue stops the reader, and with it the sender, as a full link would.
//!
//! Does not parse the stream, loses nothing and keeps the order. A writer wakes up to 0.1 ms
//! late, as sleeping threads do.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::host::exec::in_thread;
use crate::rng::SplitMix64;

const CHUNK: usize = 64 << 10;

/// Bytes that may be under way without a rate: 64 GiB/s at 1 ms.
const UNLIMITED_CAPACITY: usize = 64 << 20;

/// The buffer before a slow link, in addition to the bytes under way at its rate.
const BUFFER: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Impairment {
    pub(super) delay: Duration,
    /// At most so much more or less than the delay; at most the delay.
    pub(super) jitter: Duration,
    /// Bits per second; 0: no limit.
    pub(super) rate: u64,
}

impl Impairment {
    fn capacity(self) -> usize {
        if self.rate == 0 {
            return UNLIMITED_CAPACITY;
        }
        let under_way = self.rate as f64 / 8.0 * (self.delay + self.jitter).as_secs_f64();
        (under_way as usize).saturating_add(BUFFER)
    }

    /// The delay of one chunk. A chunk that overtakes another waits for it, as with TCP.
    fn delay(self, rng: &mut SplitMix64) -> Duration {
        self.delay - self.jitter + self.jitter.mul_f64(2.0 * rng.next_f64())
    }

    /// How long the link is busy with this many bytes.
    fn transmission_time(self, bytes: usize) -> Duration {
        match self.rate {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64),
        }
    }
}

/// Dropping it ends all connections.
#[derive(Debug)]
pub(super) struct Relay {
    socket: PathBuf,
    listener: UnixListener,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    ended: AtomicBool,
    bytes: AtomicU64,
    streams: Mutex<Vec<UnixStream>>,
}

impl Relay {
    /// Listens at `socket` for anyone who may enter its directory, and connects each to `to`.
    pub(super) fn start(socket: &Path, to: &Path, impairment: Impairment) -> io::Result<Relay> {
        let listener = UnixListener::bind(socket)?;
        let ours = listener.try_clone()?;
        let shared = Arc::new(Shared::default());
        let (to, of_thread) = (to.to_owned(), Arc::clone(&shared));
        in_thread("relay", move || {
            for client in listener.incoming() {
                if of_thread.ended.load(Ordering::SeqCst) {
                    return;
                }
                // If the server does not answer now, the client reconnects.
                if let (Ok(client), Ok(server)) = (client, UnixStream::connect(&to)) {
                    let _ = connect_streams(&client, &server, impairment, &of_thread);
                }
            }
        })?;
        Ok(Relay { socket: socket.to_owned(), listener: ours, shared })
    }

    /// Bytes relayed so far, in both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the listener, which then ends. A connection would not do: someone may have
        // put another socket there.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Read);
        let _ = fs::remove_file(&self.socket);
        for stream in lock(&self.shared.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn connect_streams(
    a: &UnixStream,
    b: &UnixStream,
    impairment: Impairment,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    let mut streams = lock(&shared.streams);
    // Under the lock, so that a connection that comes while the relay ends is closed, too.
    if shared.ended.load(Ordering::SeqCst) {
        return Ok(());
    }
    streams.extend([a.try_clone()?, b.try_clone()?]);
    drop(streams);
    let forwards = || {
        forward(a.try_clone()?, b.try_clone()?, impairment, SplitMix64::new(1), shared)?;
        forward(b.try_clone()?, a.try_clone()?, impairment, SplitMix64::new(2), shared)
    };
    // A client of half a connection would wait forever.
    forwards().inspect_err(|_| {
        let _ = (a.shutdown(Shutdown::Both), b.shutdown(Shutdown::Both));
    })
}

fn forward(
    mut from: UnixStream,
    mut to: UnixStream,
    impairment: Impairment,
    mut rng: SplitMix64,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    let queue = Arc::new(Queue::new(impairment.capacity()));
    let (of_reader, shared) = (Arc::clone(&queue), Arc::clone(shared));
    in_thread("relay", move || {
        let mut chunk = vec![0; CHUNK];
        let mut free_at = Instant::now();
        while let Ok(n @ 1..) = from.read(&mut chunk) {
            shared.bytes.fetch_add(n as u64, Ordering::Relaxed);
            free_at = free_at.max(Instant::now()) + impairment.transmission_time(n);
            if !of_reader.push(free_at + impairment.delay(&mut rng), &chunk[..n]) {
                break;
            }
        }
        of_reader.close();
    })?;
    in_thread("relay", move || {
        while let Some((due, bytes)) = queue.pop() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        queue.close();
        let _ = to.shutdown(Shutdown::Write);
    })
}

/// The chunks that are under way.
struct Queue {
    inner: Mutex<Inner>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Default)]
struct Inner {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    fn new(capacity: usize) -> Queue {
        Queue { inner: Mutex::default(), changed: Condvar::new(), capacity }
    }

    /// Waits for room; false after the queue was closed.
    fn push(&self, due: Instant, bytes: &[u8]) -> bool {
        let mut inner = lock(&self.inner);
        while inner.bytes >= self.capacity && !inner.closed {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        if inner.closed {
            return false;
        }
        inner.bytes += bytes.len();
        inner.chunks.push_back((due, bytes.to_vec()));
        self.changed.notify_all();
        true
    }

    /// None at the end.
    fn pop(&self) -> Option<(Instant, Vec<u8>)> {
        let mut inner = lock(&self.inner);
        while inner.chunks.is_empty() && !inner.closed {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        let chunk = inner.chunks.pop_front()?;
        inner.bytes -= chunk.1.len();
        self.changed.notify_all();
        Some(chunk)
    }

    /// Chunks that are under way still arrive.
    fn close(&self) {
        lock(&self.inner).closed = true;
        self.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A relay, the client's end, and the server's.
    fn relayed(impairment: Impairment) -> (TempDir, Relay, UnixStream, UnixStream) {
        let dir = tempfile::tempdir().unwrap();
        let server = UnixListener::bind(dir.path().join("server")).unwrap();
        let socket = dir.path().join("relay");
        let relay = Relay::start(&socket, &dir.path().join("server"), impairment).unwrap();
        let client = UnixStream::connect(&socket).unwrap();
        let accepted = server.accept().unwrap().0;
        (dir, relay, client, accepted)
    }

    fn way(milliseconds: u64, rate: u64) -> Impairment {
        Impairment { delay: Duration::from_millis(milliseconds), jitter: Duration::ZERO, rate }
    }

    #[test]
    fn bytes_arrive_in_order_both_ways_even_after_the_end() {
        let (_dir, relay, mut client, mut server) = relayed(way(2, 0));
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7 % 251) as u8).collect();
        let back: Vec<u8> = sent.iter().rev().copied().collect();
        let (to_send, to_answer) = (sent.clone(), back.clone());
        let sender = thread::spawn(move || {
            client.write_all(&to_send).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut got = Vec::new();
            client.read_to_end(&mut got).unwrap();
            got
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == sent);
        server.write_all(&to_answer).unwrap();
        drop(server);
        assert!(sender.join().unwrap() == back);
        assert_eq!(relay.bytes(), 6_000_000);
    }

    /// The quickest of the round trips: the others wake up late as well.
    fn ping_pong(impairment: Impairment, times: u32) -> Duration {
        let (_dir, _relay, mut client, mut server) = relayed(impairment);
        thread::spawn(move || {
            let mut byte = [0];
            while server.read_exact(&mut byte).is_ok() {
                server.write_all(&byte).unwrap();
            }
        });
        let round_trip = |_| {
            let begun = Instant::now();
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            begun.elapsed()
        };
        (0..times).map(round_trip).min().unwrap()
    }

    #[test]
    fn a_round_trip_takes_the_delay_twice() {
        let (short, long) = (ping_pong(way(2, 0), 20), ping_pong(way(10, 0), 20));
        assert!(short >= Duration::from_millis(4), "never early: {short:?}");
        assert!(long >= Duration::from_millis(20), "never early: {long:?}");
        // Five times, less what waking up late adds to both.
        assert!(long > short * 2, "{short:?} {long:?}");
    }

    #[test]
    fn jitter_lies_around_the_delay() {
        let milliseconds = Duration::from_millis;
        let way = Impairment { delay: milliseconds(10), jitter: milliseconds(4), rate: 0 };
        let mut rng = SplitMix64::new(3);
        let drawn: Vec<Duration> = (0..10_000).map(|_| way.delay(&mut rng)).collect();
        assert!(drawn.iter().all(|d| (milliseconds(6)..=milliseconds(14)).contains(d)));
        assert!(*drawn.iter().min().unwrap() < Duration::from_micros(6_100));
        assert!(*drawn.iter().max().unwrap() > Duration::from_micros(13_900));
        let mean = drawn.iter().sum::<Duration>() / 10_000;
        assert!((Duration::from_micros(9_900)..Duration::from_micros(10_100)).contains(&mean));
        assert!(ping_pong(way, 20) >= milliseconds(12));
    }

    #[test]
    fn a_delay_does_not_reduce_the_bandwidth() {
        let delay = Duration::from_millis(20);
        let (_dir, _relay, mut client, mut server) =
            relayed(Impairment { delay, jitter: Duration::ZERO, rate: 0 });
        let chunks: u32 = 200;
        let begun = Instant::now();
        thread::spawn(move || {
            for _ in 0..chunks {
                client.write_all(&[1; CHUNK]).unwrap();
            }
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), chunks as usize * CHUNK);
        // One after the other they would take 200 delays; on the way together about one.
        assert!(begun.elapsed() < delay * chunks / 4, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_relay_limits_the_rate() {
        let (_dir, _relay, mut client, mut server) = relayed(way(0, 80_000_000));
        let begun = Instant::now();
        thread::spawn(move || client.write_all(&vec![1; 2_000_000]).unwrap());
        server.read_to_end(&mut Vec::new()).unwrap();
        // 10 MB/s; the last chunk is under way for its own time too.
        assert!(begun.elapsed() >= Duration::from_millis(190), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_slow_reader_stops_the_sender() {
        let way = way(1, 8_000_000);
        let (_dir, _relay, mut client, mut server) = relayed(way);
        client.set_nonblocking(true).unwrap();
        let (mut accepted, mut refused) = (0, 0);
        while refused < 20 {
            match client.write(&[1; CHUNK]) {
                Ok(n) => (accepted, refused) = (accepted + n, 0),
                Err(_) => {
                    refused += 1;
                    thread::sleep(Duration::from_millis(5));
                }
            }
            assert!(accepted < 8 << 20, "nothing ever stops it");
        }
        drop(client);
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), accepted, "and nothing was lost");
    }

    #[test]
    fn dropping_a_relay_closes_its_connections_and_removes_its_socket() {
        let (dir, relay, mut client, mut server) = relayed(way(1, 0));
        drop(relay);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        assert!(!dir.path().join("relay").exists());
    }
}
