//! The coordinator's side: accepts drivers and gives each a seat.
//!
//! Everything that happens arrives on one channel: who joined, who was refused and why, and what each
//! driver says afterwards.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use rustls::{Connection, ServerConfig};

use super::error::LinkError;
use super::handshake::{Hello, House, Talk, admit};
use super::identity::build_hash;
use super::link::{Event, Link, Role};
use super::offset::Clock;
use super::seats::Seats;
use super::tls;
use super::token::Token;

/// Time for each step of a handshake.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at a time; more wait in the kernel's queue.
const AT_ONCE: usize = 64;

/// What happens at the listener and on its connections.
#[derive(Debug)]
pub enum Arrival {
    Joined {
        rank: u32,
        id: u64,
        hello: Hello,
        address: SocketAddr,
        link: Link,
    },
    Refused {
        address: SocketAddr,
        hello: Option<Hello>,
        why: String,
    },
    /// From the connection with this id; a driver that comes back has a new one.
    Heard {
        rank: u32,
        id: u64,
        event: Event,
    },
}

/// Listens until it is dropped; connections outlive it.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
}

struct Shared {
    token: Token,
    run_id: String,
    version: String,
    build: String,
    seats: Arc<Seats>,
    config: Arc<ServerConfig>,
    clock: Clock,
    arrivals: Sender<Arrival>,
    next: AtomicU64,
    at_once: AtomicUsize,
    closing: Arc<AtomicBool>,
}

impl Listener {
    /// `version` is compared with each driver's, as is the hash of the program file.
    pub fn open(
        address: SocketAddr,
        token: Token,
        (run_id, version): (&str, &str),
        seats: Arc<Seats>,
        clock: Clock,
        arrivals: Sender<Arrival>,
    ) -> Result<Listener, LinkError> {
        let failed = |source| LinkError::Listen { address: address.to_string(), source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let closing = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            token,
            run_id: run_id.to_owned(),
            version: version.to_owned(),
            build: build_hash()?,
            seats,
            config: tls::server()?,
            clock,
            arrivals,
            next: AtomicU64::new(1),
            at_once: AtomicUsize::new(0),
            closing: Arc::clone(&closing),
        });
        let accepting = thread::Builder::new().name("drivers".to_owned());
        accepting.spawn(move || accept_all(&listener, &shared))?;
        Ok(Listener { address: bound, closing })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        // The accepting thread sees the flag with its next connection, which this is.
        let ip = match self.address.ip() {
            ip if ip.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
            ip => ip,
        };
        let woken = SocketAddr::new(ip, self.address.port());
        let _ = TcpStream::connect_timeout(&woken, Duration::from_millis(200));
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.closing.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, address)) = accepted else {
            // Out of descriptors, most likely: try again when some may be free.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        while shared.at_once.load(Ordering::SeqCst) >= AT_ONCE {
            thread::sleep(Duration::from_millis(10));
        }
        shared.at_once.fetch_add(1, Ordering::SeqCst);
        let of_thread = Arc::clone(shared);
        let spawned = thread::Builder::new().name("handshake".to_owned()).spawn(move || {
            receive(stream, address, &of_thread);
            of_thread.at_once.fetch_sub(1, Ordering::SeqCst);
        });
        if spawned.is_err() {
            shared.at_once.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn receive(mut stream: TcpStream, address: SocketAddr, shared: &Arc<Shared>) {
    if let Err((hello, why)) = try_receive(&mut stream, address, shared) {
        // The receiver may be gone: the run ends.
        let _ = shared.arrivals.send(Arrival::Refused { address, hello, why });
    }
}

fn try_receive(
    stream: &mut TcpStream,
    address: SocketAddr,
    shared: &Arc<Shared>,
) -> Result<(), (Option<Hello>, String)> {
    let nobody = |why: String| (None, why);
    let prepared = stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| stream.set_write_timeout(Some(TIMEOUT)))
        .and_then(|()| stream.set_nodelay(true));
    prepared.map_err(|e| nobody(e.to_string()))?;
    let mut connection = tls::accept(&shared.config).map_err(|e| nobody(e.to_string()))?;
    while connection.is_handshaking() {
        connection.complete_io(stream).map_err(|e| nobody(e.to_string()))?;
    }
    let exported = connection.export_keying_material([0; 32], tls::LABEL, None);
    let exported = exported.map_err(|e| nobody(e.to_string()))?;
    let house = House {
        token: &shared.token,
        run_id: &shared.run_id,
        version: &shared.version,
        build: &shared.build,
        seats: &shared.seats,
    };
    let mut tls = rustls::Stream::new(&mut connection, stream);
    let mut talk = Talk::new(&mut tls);
    let (hello, rank) = admit(&mut talk, &exported, &house)?;
    let inbox = talk.inbox;
    let id = shared.next.fetch_add(1, Ordering::SeqCst);
    let of_link = Arc::clone(shared);
    let sink = move |event: Event| {
        let lost = matches!(event, Event::Lost(_));
        let _ = of_link.arrivals.send(Arrival::Heard { rank, id, event });
        // Only now: a replacement must not be heard of before the loss.
        if lost {
            of_link.seats.free(rank);
        }
    };
    let link = stream.try_clone().map_err(LinkError::from).and_then(|stream| {
        let connection = Connection::Server(connection);
        Link::start(connection, stream, inbox, (Role::Coordinator, shared.clock), Box::new(sink))
    });
    let link = link.map_err(|e| {
        shared.seats.free(rank);
        (Some(hello.clone()), e.to_string())
    })?;
    let _ = shared.arrivals.send(Arrival::Joined { rank, id, hello, address, link });
    Ok(())
}
