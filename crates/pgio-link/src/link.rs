//! An open connection: one thread that sends, receives, answers pings and notices silence.
//!
//! The thread reads its clock right before a ping leaves and right after a pong arrives, so that nothing
//! but the network is in a round trip. A peer is lost when its connection ends, or when nothing arrives
//! for longer than its role allows and it takes nothing of what waits for it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustls::Connection;
use serde::Serialize;

use super::error::LinkError;
use super::frame::{Frame, Inbox};
use super::offset::{Clock, Offset, RoundTrip};

/// Interval of the coordinator's pings while it is silent otherwise.
const HEARTBEAT: Duration = Duration::from_millis(300);
/// Silence after which a driver ends its sessions; with the time to end them, less than 2 s.
const COORDINATOR_TIMEOUT: Duration = Duration::from_millis(1500);
/// Silence after which the coordinator counts a driver as lost.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for the last message to leave when the connection is closed.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes that the kernel takes at a time. A peer answers a ping only after what was sent before it; of a long
/// message over a slow network, no more than this is on its way unseen.
const SEND_BUFFER: usize = 128 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Coordinator,
    Driver,
}

/// What comes from the peer.
#[derive(Debug)]
pub enum Event {
    /// A JSON document.
    Message(Vec<u8>),
    /// The connection has ended, with the reason; nothing follows.
    Lost(String),
}

enum Out {
    Bytes(Vec<u8>),
    Ping,
}

struct Shared {
    queue: Mutex<VecDeque<Out>>,
    wake: OwnedFd,
    closing: AtomicBool,
    /// The thread has ended.
    ended: AtomicBool,
    /// Receives round trips while [`Link::offset`] waits for them.
    trips: Mutex<Option<Sender<RoundTrip>>>,
}

/// Sends to the peer; dropping it closes the connection.
#[derive(Clone)]
pub struct Link(Arc<Handle>);

struct Handle(Arc<Shared>);

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Shared {
    fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // Fails only if the counter is full, and then the thread is being woken.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn queue(&self, out: Out) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(out);
        self.wake();
    }
}

impl Link {
    /// Takes over a connection after its handshake. `sink` is called on the thread and must not block.
    pub(super) fn start(
        connection: Connection,
        stream: TcpStream,
        mut inbox: Inbox,
        role: Role,
        clock: Clock,
        sink: Box<dyn FnMut(Event) + Send>,
    ) -> Result<Link, LinkError> {
        stream.set_nonblocking(true)?;
        set_socket_send_buffer_size(&stream, SEND_BUFFER).map_err(io::Error::from)?;
        inbox.trust();
        let wake =
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake,
            closing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            trips: Mutex::default(),
        });
        let of_thread = Arc::clone(&shared);
        let now = Instant::now();
        let thread = Thread {
            connection,
            stream,
            inbox,
            shared: of_thread,
            role,
            clock,
            sink,
            last_heard: now,
            last_ping: now,
            is_behind: false,
        };
        thread::Builder::new().name("link".to_owned()).spawn(move || thread.run())?;
        Ok(Link(Arc::new(Handle(shared))))
    }

    /// Queues a message. It is lost if the connection is.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<(), LinkError> {
        let json = serde_json::to_vec(message).map_err(io::Error::from)?;
        self.0.0.queue(Out::Bytes(Frame::Message(json).encode()?));
        Ok(())
    }

    /// Closes the connection, also for other clones of the link, and waits until the last message is sent. A
    /// process that ends without this call may lose that message.
    pub fn close(self) {
        let shared = &self.0.0;
        shared.close();
        let begun = Instant::now();
        while !shared.ended.load(Ordering::SeqCst) && begun.elapsed() < 2 * LINGER {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Measures the offset of the peer's clock by round trips, one after the other.
    pub fn offset(&self, trips: usize, within: Duration, peer: &str) -> Result<Offset, LinkError> {
        let (sender, receiver) = mpsc::channel();
        let shared = &self.0.0;
        *shared.trips.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        let found = measure(shared, &receiver, trips, within);
        *shared.trips.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let unmeasured = || LinkError::Clock {
            peer: peer.to_owned(),
            answered: found.len(),
            asked: trips,
            seconds: within.as_secs(),
        };
        Offset::estimate(&found).filter(|_| found.len() == trips).ok_or_else(unmeasured)
    }
}

fn measure(
    shared: &Shared,
    receiver: &Receiver<RoundTrip>,
    trips: usize,
    within: Duration,
) -> Vec<RoundTrip> {
    let begun = Instant::now();
    let mut found = Vec::new();
    while found.len() < trips {
        shared.queue(Out::Ping);
        let left = within.saturating_sub(begun.elapsed());
        // A pong to a heartbeat may come between; it is a round trip as well.
        let Ok(trip) = receiver.recv_timeout(left) else { break };
        found.push(trip);
    }
    found
}

/// Why the connection ends.
enum End {
    /// This side closed it.
    Closed,
    Lost(String),
}

struct Thread {
    connection: Connection,
    stream: TcpStream,
    inbox: Inbox,
    shared: Arc<Shared>,
    role: Role,
    clock: Clock,
    sink: Box<dyn FnMut(Event) + Send>,
    /// When the peer last sent something, or took something that had to wait for it.
    last_heard: Instant,
    last_ping: Instant,
    /// The socket is full: the peer has not taken what it holds.
    is_behind: bool,
}

impl Thread {
    fn run(mut self) {
        let end = self.work();
        if let Err(End::Closed) = &end {
            self.linger();
        }
        let _ = self.stream.shutdown(Shutdown::Both);
        self.shared.ended.store(true, Ordering::SeqCst);
        let why = match end {
            Err(End::Lost(why)) => why,
            _ => "closed".to_owned(),
        };
        (self.sink)(Event::Lost(why));
    }

    fn work(&mut self) -> Result<(), End> {
        // The handshake may have read the first frames.
        self.handle_frames()?;
        loop {
            // Read before the queue: what was queued before the order to close is sent.
            let is_closing = self.shared.closing.load(Ordering::SeqCst);
            self.send_queued()?;
            if is_closing {
                return Err(End::Closed);
            }
            let readable = self.wait()?;
            if readable {
                self.receive()?;
            }
            let limit = match self.role {
                Role::Coordinator => DRIVER_TIMEOUT,
                Role::Driver => COORDINATOR_TIMEOUT,
            };
            // After reading: this thread may have been late itself.
            if self.last_heard.elapsed() > limit {
                let seconds = limit.as_secs_f64();
                return Err(End::Lost(format!("nothing was received from it for {seconds} s")));
            }
        }
    }

    fn lost(error: impl std::fmt::Display) -> End {
        End::Lost(error.to_string())
    }

    /// Moves the queue to the socket as far as it takes it.
    fn send_queued(&mut self) -> Result<(), End> {
        if self.role == Role::Coordinator && self.last_ping.elapsed() >= HEARTBEAT {
            self.ping()?;
        }
        loop {
            let next = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match next {
                Some(Out::Bytes(bytes)) => {
                    self.connection.writer().write_all(&bytes).map_err(Self::lost)?;
                }
                // First send what was queued before the ping: its time must not be part of the round trip.
                Some(Out::Ping) => {
                    self.flush()?;
                    self.ping()?;
                }
                None => break,
            }
        }
        self.flush()
    }

    fn ping(&mut self) -> Result<(), End> {
        self.last_ping = Instant::now();
        let ping = Frame::Ping(self.clock.now()).encode().map_err(Self::lost)?;
        self.connection.writer().write_all(&ping).map_err(Self::lost)?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), End> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.stream) {
                Ok(_) => {
                    // There is room again, so the peer lives, even if it can answer nothing before the end.
                    if std::mem::take(&mut self.is_behind) {
                        self.last_heard = Instant::now();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.is_behind = true;
                    break;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Self::lost(e)),
            }
        }
        Ok(())
    }

    /// Waits for the peer, for the queue, or for the next heartbeat; returns whether the peer sent.
    fn wait(&mut self) -> Result<bool, End> {
        let mut flags = PollFlags::IN;
        if self.connection.wants_write() {
            flags |= PollFlags::OUT;
        }
        let longest =
            HEARTBEAT.saturating_sub(self.last_ping.elapsed()).max(Duration::from_millis(1));
        let longest = if self.role == Role::Driver { HEARTBEAT } else { longest };
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
        let mut fds = [
            PollFd::from_borrowed_fd(self.stream.as_fd(), flags),
            PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Self::lost(e)),
        }
        let sent = fds[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        // Empty already if the timeout woke this thread.
        let _ = rustix::io::read(&self.shared.wake, &mut [0u8; 8]);
        Ok(sent)
    }

    fn receive(&mut self) -> Result<(), End> {
        loop {
            match self.connection.read_tls(&mut self.stream) {
                Ok(0) => return Err(End::Lost("it closed the connection".to_owned())),
                Ok(_) => {
                    self.last_heard = Instant::now();
                    let state = self.connection.process_new_packets().map_err(Self::lost)?;
                    let mut plain = vec![0; state.plaintext_bytes_to_read()];
                    self.connection.reader().read_exact(&mut plain).map_err(Self::lost)?;
                    self.inbox.push(&plain);
                    self.handle_frames()?;
                    if state.peer_has_closed() {
                        return Err(End::Lost("it closed the connection".to_owned()));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Self::lost(e)),
            }
        }
    }

    fn handle_frames(&mut self) -> Result<(), End> {
        while let Some(frame) = self.inbox.take().map_err(End::Lost)? {
            match frame {
                Frame::Message(json) => (self.sink)(Event::Message(json)),
                Frame::Ping(sent) => {
                    let pong = Frame::Pong(sent, self.clock.now()).encode().map_err(Self::lost)?;
                    self.connection.writer().write_all(&pong).map_err(Self::lost)?;
                    self.flush()?;
                }
                Frame::Pong(sent, peer) => {
                    let trip = RoundTrip { sent, peer, received: self.clock.now() };
                    let trips = self.shared.trips.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(waiting) = trips.as_ref() {
                        // Whoever asked may have given up.
                        let _ = waiting.send(trip);
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets the last message leave.
    fn linger(&mut self) {
        let begun = Instant::now();
        self.connection.send_close_notify();
        while self.flush().is_ok() && self.connection.wants_write() && begun.elapsed() < LINGER {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
