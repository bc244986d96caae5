//! Downloads one file over HTTP into memory. A broken download starts over: a build has some 20 MB.
//!
//! The caller checks the hash of the content. Proxies come from the usual environment variables (HTTPS_PROXY,
//! ALL_PROXY, NO_PROXY).

use std::io::{self, Read};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::crypto::ring;
use ureq::Agent;
use ureq::http::{StatusCode, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use pgio_connect::interrupt;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for a server that sends nothing; then the request is repeated.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Ten times the largest build; a server must not fill the memory.
const MAX_BYTES: u64 = 200_000_000;

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot fetch {url}")]
    Request { url: String, source: Box<ureq::Error> },
    #[error("cannot fetch {url}: the server answered {status}")]
    Status { url: String, status: StatusCode },
    #[error("the transfer of {url} was interrupted after {received} bytes")]
    Cut { url: String, received: u64, source: io::Error },
    #[error("{url} is larger than any build of PostgreSQL ({MAX_BYTES} bytes)")]
    TooLarge { url: String },
    #[error("the download was stopped")]
    Stopped,
}

impl HttpError {
    /// Whether another attempt may succeed.
    fn is_transient(&self) -> bool {
        match self {
            HttpError::Request { source, .. } => match &**source {
                // A failed TLS handshake, such as a certificate that is not trusted.
                ureq::Error::Io(error) => error.kind() != io::ErrorKind::InvalidData,
                other => matches!(
                    other,
                    ureq::Error::Timeout(_)
                        | ureq::Error::Protocol(_)
                        | ureq::Error::ConnectionFailed
                ),
            },
            HttpError::Status { status, .. } => {
                status.is_server_error()
                    || matches!(
                        *status,
                        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
                    )
            }
            HttpError::Cut { .. } => true,
            HttpError::TooLarge { .. } | HttpError::Stopped => false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    pause: Duration,
    /// Whether the user has asked pgio to stop.
    is_stopped: fn() -> bool,
}

impl Client {
    pub(super) fn new() -> Client {
        Client::with_pause(FIRST_PAUSE)
    }

    /// Sets the pause before the second attempt; each further pause is twice as long.
    pub(super) fn with_pause(pause: Duration) -> Client {
        // Same trust store as `sslrootcert=system`. If it is empty, https fails with an unknown issuer.
        let roots = rustls_native_certs::load_native_certs().certs;
        let roots: Vec<_> = roots.iter().map(|c| Certificate::from_der(c).to_owned()).collect();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&roots))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .user_agent(concat!("pgio/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // With a limit of its own ureq looks up in a thread, and panics if none may start.
            .timeout_resolve(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(READ_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT))
            .build();
        Client { agent: config.new_agent(), pause, is_stopped: interrupt::must_end_wait }
    }

    /// Returns the file. `count` receives the bytes so far and the size of the whole file.
    pub(super) fn fetch(
        &self,
        url: &str,
        count: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Vec<u8>, HttpError> {
        let mut pause = self.pause;
        for _ in 1..ATTEMPTS {
            match self.attempt(url, count) {
                Err(error) if error.is_transient() => thread::sleep(pause),
                done => return done,
            }
            pause *= 2;
        }
        self.attempt(url, count)
    }

    fn attempt(
        &self,
        url: &str,
        count: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Vec<u8>, HttpError> {
        if (self.is_stopped)() {
            return Err(HttpError::Stopped);
        }
        let failed = |e| HttpError::Request { url: shown(url), source: Box::new(e) };
        let mut response = self.agent.get(url).call().map_err(failed)?;
        if response.status() != StatusCode::OK {
            return Err(HttpError::Status { url: shown(url), status: response.status() });
        }
        let total = response.body().content_length();
        let mut body = response.body_mut().as_reader();
        let mut file = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let received = file.len() as u64;
            if received.max(total.unwrap_or(0)) > MAX_BYTES {
                return Err(HttpError::TooLarge { url: shown(url) });
            }
            count(received, total);
            if (self.is_stopped)() {
                return Err(HttpError::Stopped);
            }
            let cut = |source| HttpError::Cut { url: shown(url), received, source };
            match body.read(&mut buffer) {
                Ok(0) if total.is_some_and(|total| received < total) => {
                    return Err(cut(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(0) => return Ok(file),
                Ok(length) => file.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(cut(error)),
            }
        }
    }
}

/// Returns the address without user and query, which may hold a secret.
fn shown(url: &str) -> String {
    let uri = url.parse::<Uri>().ok();
    let parts = uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.host()?, uri)));
    let Some((scheme, host, uri)) = parts else {
        return "the address in PGIO_DOWNLOAD_URL".to_owned();
    };
    let port = uri.port().map_or_else(String::new, |port| format!(":{port}"));
    format!("{scheme}://{host}{port}{}", uri.path())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::fetch_tests::{Reply, TestServer};
    use super::*;

    fn content() -> Vec<u8> {
        (0..200_000_u32).map(|n| (n % 251) as u8).collect()
    }

    fn fetch(url: &str) -> Result<Vec<u8>, HttpError> {
        Client::with_pause(Duration::ZERO).fetch(url, &mut |_, _| {})
    }

    #[test]
    fn a_broken_transfer_starts_over() {
        let server =
            TestServer::start(&content(), &[Reply::Cut(70_000), Reply::Cut(0), Reply::Whole]);
        assert!(fetch(&server.url).unwrap() == content());
        assert_eq!(server.paths().len(), 3);
    }

    #[test]
    fn attempts_are_limited() {
        let server = TestServer::start(&content(), &[Reply::Cut(70_000)]);
        let error = fetch(&server.url).unwrap_err();
        assert!(matches!(error, HttpError::Cut { received: 70_000, .. }), "{error:?}");
        assert!(error.to_string().contains(&server.url), "{error}");
        assert_eq!(server.paths().len(), 4);
    }

    #[test]
    fn a_stop_ends_the_transfer() {
        static CHECKS: AtomicU32 = AtomicU32::new(0);
        // The checks before the request and before the first read let it go on.
        let stops_in_the_body = || CHECKS.fetch_add(1, Ordering::Relaxed) >= 2;
        let server = TestServer::start(&content(), &[Reply::Whole]);
        let client = Client { is_stopped: stops_in_the_body, ..Client::with_pause(Duration::ZERO) };
        let mut received = 0;
        let stopped = client.fetch(&server.url, &mut |so_far, _| received = so_far);
        assert!(matches!(stopped, Err(HttpError::Stopped)), "{stopped:?}");
        assert!(0 < received && received < content().len() as u64, "{received}");
        // Asked again after the stop, it does not even connect.
        let stopped = client.fetch(&server.url, &mut |_, _| {});
        assert!(matches!(stopped, Err(HttpError::Stopped)), "{stopped:?}");
        assert_eq!(server.paths().len(), 1);
    }

    #[test]
    fn addresses_are_shown_without_user_and_query() {
        let url = "https://me:geheim@mirror:8443/maven/pg.jar?key=geheim";
        assert_eq!(shown(url), "https://mirror:8443/maven/pg.jar");
        for invalid in ["//me:geheim@mirror/pg.jar", "me:geheim@mirror/pg.jar"] {
            assert!(!shown(invalid).contains("geheim"), "{}", shown(invalid));
        }
    }

    #[test]
    fn only_transient_errors_are_retried() {
        let server = TestServer::start(&content(), &[Reply::Status(503), Reply::Whole]);
        fetch(&server.url).unwrap();
        assert_eq!(server.paths().len(), 2);

        let server = TestServer::start(&content(), &[Reply::Status(404), Reply::Whole]);
        let error = fetch(&server.url).unwrap_err().to_string();
        assert!(error.contains("404") && error.contains(&server.url), "{error}");
        assert_eq!(server.paths().len(), 1);
    }

    #[test]
    fn errors_name_an_unreachable_server() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = fetch(&format!("http://{free}/x")).unwrap_err();
        assert!(matches!(error, HttpError::Request { .. }), "{error:?}");
        assert!(error.to_string().contains(&free.to_string()), "{error}");
    }

    #[test]
    fn a_failed_handshake_is_not_retried() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (connected, connections) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                connected.send(()).unwrap();
                let _ = connection.read(&mut [0; 4096]);
                let _ = connection.write_all(b"this is no TLS\r\n");
            }
        });
        let error = fetch(&url).unwrap_err();
        assert!(matches!(error, HttpError::Request { .. }), "{error:?}");
        assert_eq!(connections.try_iter().count(), 1, "{error:?}");
    }
}
