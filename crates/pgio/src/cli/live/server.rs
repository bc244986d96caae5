//! Serves the page from a thread of its own, at the lowest priority: the work of the measurement comes first.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Sender, channel};
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
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    limit_stalls(&stream);
                    let (token, shared) = (token.cloned(), shared.clone());
                    tokio::spawn(async move {
                        connection(stream, token, shared).await;
                        drop(place);
                    });
                }
                // Out of descriptors, or the peer is gone already.
                Err(_) => sleep(BATCH_INTERVAL).await,
            }
        }
    });
}

/// Has the kernel end a connection whose writes stall. Failure is harmless: the kernel's own, longer limit remains.
fn limit_stalls(stream: &impl AsFd) {
    let _ = sockopt::set_tcp_user_timeout(stream, STALL_TIMEOUT_MS);
}

async fn connection(stream: TcpStream, token: Option<Arc<Token>>, shared: Arc<Shared>) {
    let service = service_fn(|request| {
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

    fn connect() -> TcpStream {
        let endpoint = Endpoint { address: SocketAddr::from(([127, 0, 0, 1], 0)), token: None };
        let stream = TcpStream::connect(start(endpoint, Shared::new()).unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
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
