//! Serves the page from a thread of its own, at the lowest priority: the work of the measurement comes first.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::address::{Endpoint, Token};
use super::answer::{Refusal, answer, check};
use super::priority;
use super::state::Shared;

/// A browser takes two or three; the rest is for people who watch together.
const MAX_CONNECTIONS: usize = 64;
/// A request must be complete by then.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection ends if its peer takes nothing of what is sent for so long; the kernel counts in milliseconds.
const STALL_TIMEOUT_MS: u32 = 60_000;
/// Changes within this time travel together.
const BATCH_INTERVAL: Duration = Duration::from_millis(250);
/// Without a change, a sign of life comes this often; it also finds browsers that are gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A wrong token is answered late, so that guessing takes long.
const WRONG_TOKEN_DELAY: Duration = Duration::from_secs(1);

/// Begins to listen and returns the address, whose port the system may have chosen.
pub(super) fn start(endpoint: Endpoint, shared: Arc<Shared>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(endpoint.address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let token = endpoint.token.map(Arc::new);
    let serve = move || {
        priority::lower();
        accept(&runtime, listener, token.as_ref(), &shared);
    };
    // The thread ends with the process.
    thread::Builder::new().name("pgio-live".to_owned()).spawn(serve)?;
    Ok(address)
}

fn accept(
    runtime: &Runtime,
    listener: TcpListener,
    token: Option<&Arc<Token>>,
    shared: &Arc<Shared>,
) {
    runtime.block_on(async {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        let mut places = Vec::new();
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    make_room(&mut places);
                    limit_stalls(&stream);
                    let (token, shared) = (token.cloned(), shared.clone());
                    let silent = Arc::new(AtomicBool::new(true));
                    let served = connection(stream, token, shared, Arc::clone(&silent));
                    let task = tokio::spawn(served).abort_handle();
                    places.push(Place { address: peer.ip(), silent, task });
                }
                // Out of descriptors, or the peer is gone already.
                Err(_) => sleep(BATCH_INTERVAL).await,
            }
        }
    });
}

/// An open connection.
struct Place {
    address: IpAddr,
    /// Nothing was asked yet.
    silent: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Ends a connection if there are too many: a silent one, or else one from where most are. A browser connects
/// again; whoever opens many keeps nobody out.
fn make_room(places: &mut Vec<Place>) {
    places.retain(|place| !place.task.is_finished());
    if places.len() < MAX_CONNECTIONS {
        return;
    }
    let oldest_silent = places.iter().position(|place| place.silent.load(Ordering::Relaxed));
    let from = |at: &usize| places.iter().filter(|p| p.address == places[*at].address).count();
    let most = || (0..places.len()).rev().max_by_key(from).unwrap_or(0);
    let ended = oldest_silent.unwrap_or_else(most);
    places.remove(ended).task.abort();
}

/// Has the kernel end a connection whose writes stall. Failure is harmless: the kernel's own, longer limit remains.
fn limit_stalls(stream: &impl AsFd) {
    let _ = sockopt::set_tcp_user_timeout(stream, STALL_TIMEOUT_MS);
}

async fn connection(
    stream: TcpStream,
    token: Option<Arc<Token>>,
    shared: Arc<Shared>,
    silent: Arc<AtomicBool>,
) {
    let service = service_fn(|request| {
        silent.store(false, Ordering::Relaxed);
        let (token, shared) = (token.clone(), shared.clone());
        async move {
            let checked = check(&request, token.as_deref());
            if checked == Err(Refusal::Token) {
                sleep(WRONG_TOKEN_DELAY).await;
            }
            let feed = || {
                let (sender, texts) = channel(1);
                tokio::spawn(send(shared.clone(), sender));
                texts
            };
            Ok::<_, Infallible>(answer(&request, checked, &shared, feed))
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    // An error is the browser's: it is gone, or sent no HTTP.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

/// Sends what changes until the browser is gone.
async fn send(shared: Arc<Shared>, to: Sender<Bytes>) {
    let mut changes = shared.changes();
    let mut seen = 0;
    loop {
        changes.mark_unchanged();
        let (text, now) = shared.read().events_since(seen);
        seen = now;
        if !text.is_empty() && to.send(Bytes::from(text)).await.is_err() {
            return;
        }
        sleep(BATCH_INTERVAL).await;
        if timeout(KEEP_ALIVE, changes.changed()).await.is_err()
            && to.send(Bytes::from_static(b": no change\n\n")).await.is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn serve() -> SocketAddr {
        let endpoint = Endpoint { address: SocketAddr::from(([127, 0, 0, 1], 0)), token: None };
        start(endpoint, Shared::new()).unwrap()
    }

    fn connect_to(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    fn connect() -> TcpStream {
        connect_to(serve())
    }

    /// Nothing else would end them: streams of events are kept alive.
    #[test]
    fn many_connections_keep_nobody_out() {
        let address = serve();
        let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = |path: &str| {
            let mut stream = connect_to(address);
            stream.write_all(request(path).as_bytes()).unwrap();
            let mut head = [0; 12];
            stream.read_exact(&mut head).unwrap();
            assert_eq!(&head, b"HTTP/1.1 200", "{path}");
            stream
        };
        let streams: Vec<_> = (0..=MAX_CONNECTIONS).map(|_| answer("/events")).collect();
        let silent: Vec<_> = (0..MAX_CONNECTIONS).map(|_| connect_to(address)).collect();
        answer("/");
        drop((streams, silent));
    }

    #[test]
    fn a_refused_peer_has_no_second_request() {
        let mut stream = connect();
        let request = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        // Both at once, so that the number of answers does not depend on time.
        stream.write_all(request.repeat(2).as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text.matches("HTTP/1.1 403 ").count(), 1, "{text}");
    }
}
