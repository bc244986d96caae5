//! The coordinator's side: accepts drivers and gives each a seat.
//!
//! Everything that happens arrives on one channel: who joined, who was refused and why, and what each
//! driver says afterwards.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use rustls::{Connection, ServerConfig};

use super::deadline::{DeadlineStream, HANDSHAKE_TIMEOUT};
use super::error::LinkError;
use super::handshake::{Coordinator, Hello, MessageStream, Ranks, admit};
use super::identity::build_hash;
use super::link::{Event, Link, Role};
use super::offset::Clock;
use super::tls;
use super::token::Token;

/// Handshakes at a time; more wait in the kernel's queue, and then one may take no longer than [`CROWDED_TIMEOUT`]:
/// silent peers must not keep the drivers out.
pub(super) const MAX_HANDSHAKES: usize = 64;
/// A driver needs some round trips, and dials again.
pub(super) const CROWDED_TIMEOUT: Duration = Duration::from_secs(1);
/// Refusals that wait to be read. Nobody reads them for most of a run, and any host may be refused, as often
/// as it likes; further ones are not reported.
pub(super) const MAX_REFUSALS: usize = 64;

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
        /// Free for another refusal once this one has been read and dropped.
        place: Arc<Place>,
    },
    /// From the connection with this id; a driver that comes back has a new one.
    FromDriver {
        rank: u32,
        id: u64,
        event: Event,
    },
}

/// One of a limited number of places, free again when it is dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>, limit: usize) -> Option<Place> {
        let before = taken.fetch_add(1, Ordering::SeqCst);
        // Dropped, it takes back what was added.
        let place = Place(Arc::clone(taken));
        (before < limit).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A run whose drivers may connect.
#[derive(Debug)]
pub struct Run {
    pub id: String,
    pub token: Token,
    /// Compared with each driver's, as is the hash of the program file.
    pub version: String,
    pub ranks: Arc<Ranks>,
}

/// Listens until it is dropped; connections outlive it.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
}

struct Shared {
    run: Run,
    build: String,
    config: Arc<ServerConfig>,
    clock: Clock,
    arrivals: Sender<Arrival>,
    next: AtomicU64,
    handshakes: Arc<AtomicUsize>,
    refusals: Arc<AtomicUsize>,
    closing: Arc<AtomicBool>,
    /// Whether a peer waits for a handshake.
    is_crowded: AtomicBool,
}

impl Shared {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }
}

impl Listener {
    pub fn open(
        address: SocketAddr,
        run: Run,
        clock: Clock,
        arrivals: Sender<Arrival>,
    ) -> Result<Listener, LinkError> {
        let failed = |source| LinkError::Listen { address: address.to_string(), source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let closing = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            run,
            build: build_hash()?,
            config: tls::server()?,
            clock,
            arrivals,
            next: AtomicU64::new(1),
            handshakes: Arc::default(),
            refusals: Arc::default(),
            closing: Arc::clone(&closing),
            is_crowded: AtomicBool::new(false),
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
        if shared.is_closing() {
            return;
        }
        let Ok((stream, address)) = accepted else {
            // Out of descriptors, most likely: try again when some may be free.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(place) = wait_for_place(shared) else { return };
        let of_thread = Arc::clone(shared);
        let handshake = move || {
            receive(&stream, address, &of_thread);
            drop(place);
        };
        // Without a thread the connection is closed.
        let _ = thread::Builder::new().name("handshake".to_owned()).spawn(handshake);
    }
}

/// Waits until one more handshake may begin; returns none if the listener is closed first.
fn wait_for_place(shared: &Shared) -> Option<Place> {
    while !shared.is_closing() {
        let place = Place::take(&shared.handshakes, MAX_HANDSHAKES);
        shared.is_crowded.store(place.is_none(), Ordering::SeqCst);
        if place.is_some() {
            return place;
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

fn receive(stream: &TcpStream, address: SocketAddr, shared: &Arc<Shared>) {
    if let Err((hello, why)) = try_receive(stream, address, shared)
        && let Some(place) = Place::take(&shared.refusals, MAX_REFUSALS)
    {
        let place = Arc::new(place);
        // The receiver may be gone: the run ends.
        let _ = shared.arrivals.send(Arrival::Refused { address, hello, why, place });
    }
}

fn try_receive(
    stream: &TcpStream,
    address: SocketAddr,
    shared: &Arc<Shared>,
) -> Result<(), (Option<Hello>, String)> {
    let nobody = |why: String| (None, why);
    stream.set_nodelay(true).map_err(|e| nobody(e.to_string()))?;
    let begun = Instant::now();
    let gives_way =
        || begun.elapsed() > CROWDED_TIMEOUT && shared.is_crowded.load(Ordering::SeqCst);
    let stopped = || shared.is_closing() || gives_way();
    let mut socket = DeadlineStream::new(stream, HANDSHAKE_TIMEOUT, &stopped);
    let mut connection = tls::accept(&shared.config).map_err(|e| nobody(e.to_string()))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).map_err(|e| nobody(e.to_string()))?;
    }
    let exported = connection.export_keying_material([0; 32], tls::LABEL, None);
    let exported = exported.map_err(|e| nobody(e.to_string()))?;
    let coordinator = Coordinator {
        token: &shared.run.token,
        run_id: &shared.run.id,
        version: &shared.run.version,
        build: &shared.build,
        ranks: &shared.run.ranks,
    };
    let mut tls = rustls::Stream::new(&mut connection, &mut socket);
    let mut messages = MessageStream::new(&mut tls);
    let (hello, rank) = admit(&mut messages, &exported, &coordinator)?;
    let inbox = messages.inbox;
    let id = shared.next.fetch_add(1, Ordering::SeqCst);
    let of_link = Arc::clone(shared);
    let sink = move |event: Event| {
        let lost = matches!(event, Event::Lost(_));
        let _ = of_link.arrivals.send(Arrival::FromDriver { rank, id, event });
        // Free the rank after the loss is reported, so that no replacement joins before it.
        if lost {
            of_link.run.ranks.free(rank);
        }
    };
    let link = stream.try_clone().map_err(LinkError::from).and_then(|stream| {
        let connection = Connection::Server(connection);
        Link::start(connection, stream, inbox, Role::Coordinator, shared.clock, Box::new(sink))
    });
    let link = link.map_err(|e| {
        shared.run.ranks.free(rank);
        (Some(hello.clone()), e.to_string())
    })?;
    let _ = shared.arrivals.send(Arrival::Joined { rank, id, hello, address, link });
    Ok(())
}
