//! Downloads one file over HTTP into a partial file, and resumes where an earlier attempt ended.
//!
//! Received bytes stay in the partial file in any case: after a lost connection, this module or the next
//! run of pgio resumes with a Range request. The caller checks the hash of the content, so no
//! If-Range is needed.
//!
//! Proxies come from the usual environment variables (HTTPS_PROXY, ALL_PROXY, NO_PROXY).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::crypto::ring;
use ureq::http::{Response, StatusCode, Uri, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Body};

use pgio_connect::interrupt;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for a server that sends nothing; then the request is repeated.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of consecutive attempts without a byte, after the first.
const MAX_RETRIES: u32 = 3;
/// Maximum number of attempts in total.
const MAX_ATTEMPTS: u32 = 50;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Ten times the largest build; a server must not fill the disk.
const MAX_BYTES: u64 = 200_000_000;

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot fetch {url}")]
    Request { url: String, source: Box<ureq::Error> },
    #[error("cannot fetch {url}: the server answered {status}")]
    Status { url: String, status: StatusCode },
    #[error("the transfer of {url} was interrupted after {received} bytes")]
    Cut { url: String, received: u64, source: io::Error },
    #[error("cannot fetch {url}: the server sent another part of the file than requested")]
    WrongRange { url: String },
    #[error("{url} is larger than any build of PostgreSQL ({MAX_BYTES} bytes)")]
    TooLarge { url: String },
    #[error("cannot write the downloaded file")]
    Write(#[source] io::Error),
    #[error("the download was stopped; the next run resumes it")]
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
                        StatusCode::REQUEST_TIMEOUT
                            | StatusCode::TOO_MANY_REQUESTS
                            | StatusCode::RANGE_NOT_SATISFIABLE
                    )
            }
            HttpError::Cut { .. } => true,
            HttpError::WrongRange { .. }
            | HttpError::TooLarge { .. }
            | HttpError::Write(_)
            | HttpError::Stopped => false,
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

    /// Completes the partial file. `count` receives its size so far and the size of the whole file.
    pub(super) fn fetch(
        &self,
        url: &str,
        part: &mut File,
        count: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<(), HttpError> {
        let mut silent = 0;
        for _ in 0..MAX_ATTEMPTS {
            if (self.is_stopped)() {
                return Err(HttpError::Stopped);
            }
            let held = part.seek(SeekFrom::End(0)).map_err(HttpError::Write)?;
            let failed = match self.attempt(url, held, part, count) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let now = part.metadata().map_err(HttpError::Write)?.len();
            silent = if now > held { 0 } else { silent + 1 };
            if !failed.is_transient() || silent > MAX_RETRIES {
                return Err(failed);
            }
            thread::sleep(self.pause * 2_u32.pow(silent.saturating_sub(1)));
        }
        Err(HttpError::Cut {
            url: shown(url),
            received: part.metadata().map_err(HttpError::Write)?.len(),
            source: io::ErrorKind::UnexpectedEof.into(),
        })
    }

    fn attempt(
        &self,
        url: &str,
        held: u64,
        part: &mut File,
        count: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<(), HttpError> {
        let mut request = self.agent.get(url);
        if held > 0 {
            request = request.header(header::RANGE, format!("bytes={held}-"));
        }
        let failed = |e| HttpError::Request { url: shown(url), source: Box::new(e) };
        let mut response = request.call().map_err(failed)?;
        let start = match response.status() {
            StatusCode::PARTIAL_CONTENT if first_byte(&response) == Some(held) => held,
            StatusCode::PARTIAL_CONTENT => {
                return Err(HttpError::WrongRange { url: shown(url) });
            }
            // A server without ranges sends the whole file again.
            StatusCode::OK => {
                start_over(part)?;
                0
            }
            status => {
                // The partial file is not the beginning of that file.
                if status == StatusCode::RANGE_NOT_SATISFIABLE {
                    start_over(part)?;
                }
                return Err(HttpError::Status { url: shown(url), status });
            }
        };
        let total = response.body().content_length().and_then(|rest| start.checked_add(rest));
        let mut body = response.body_mut().as_reader();
        let mut go_on = |received, total| {
            count(received, total);
            !(self.is_stopped)()
        };
        copy(url, &mut body, part, (start, total), &mut go_on)
    }
}

fn start_over(part: &mut File) -> Result<(), HttpError> {
    part.set_len(0).and_then(|()| part.rewind()).map_err(HttpError::Write)
}

/// Parses `Content-Range: bytes 500-999/1000`.
fn first_byte(response: &Response<Body>) -> Option<u64> {
    let range = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
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

fn copy(
    url: &str,
    body: &mut dyn Read,
    part: &mut File,
    (start, total): (u64, Option<u64>),
    go_on: &mut dyn FnMut(u64, Option<u64>) -> bool,
) -> Result<(), HttpError> {
    let too_large = |bytes| if bytes > MAX_BYTES { Err(()) } else { Ok(()) };
    let limit = |bytes| too_large(bytes).map_err(|()| HttpError::TooLarge { url: shown(url) });
    limit(total.unwrap_or(start))?;
    let mut received = start;
    let mut buffer = vec![0; 64 << 10];
    loop {
        if !go_on(received, total) {
            return Err(HttpError::Stopped);
        }
        let cut = |source| HttpError::Cut { url: shown(url), received, source };
        let length = match body.read(&mut buffer) {
            Ok(0) if total.is_some_and(|total| received < total) => {
                return Err(cut(io::ErrorKind::UnexpectedEof.into()));
            }
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(cut(error)),
        };
        part.write_all(&buffer[..length]).map_err(HttpError::Write)?;
        received += length as u64;
        limit(received)?;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::test_server::{Reply, TestServer};
    use super::*;

    fn content() -> Vec<u8> {
        (0..200_000_u32).map(|n| (n % 251) as u8).collect()
    }

    /// Returns the result and the content of the partial file, which began with `part`.
    fn fetch(url: &str, part: &[u8]) -> (Result<(), HttpError>, Vec<u8>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(part).unwrap();
        let fetched = Client::with_pause(Duration::ZERO).fetch(url, &mut file, &mut |_, _| {});
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        (fetched, bytes)
    }

    #[test]
    fn an_interrupted_transfer_is_resumed_where_it_ended() {
        let server = TestServer::start(
            &content(),
            &[Reply::Cut(70_000), Reply::Cut(0), Reply::Cut(30_000), Reply::Range],
        );
        let (fetched, bytes) = fetch(&server.url, b"");
        fetched.unwrap();
        assert!(bytes == content());
        assert_eq!(server.ranges(), [None, Some(70_000), Some(70_000), Some(100_000)]);
    }

    #[test]
    fn the_partial_file_of_an_earlier_run_is_not_fetched_again() {
        let server = TestServer::start(&content(), &[Reply::Range]);
        let (fetched, bytes) = fetch(&server.url, &content()[..150_000]);
        fetched.unwrap();
        assert!(bytes == content());
        assert_eq!(server.ranges(), [Some(150_000)]);
    }

    #[test]
    fn a_server_without_ranges_sends_the_whole_file_again() {
        let server = TestServer::start(&content(), &[Reply::WholeCut(70_000), Reply::Whole]);
        let (fetched, bytes) = fetch(&server.url, b"");
        fetched.unwrap();
        assert!(bytes == content());
        assert_eq!(server.ranges(), [None, Some(70_000)]);
    }

    #[test]
    fn attempts_without_progress_are_limited() {
        let server = TestServer::start(&content(), &[Reply::WholeCut(70_000)]);
        let (fetched, bytes) = fetch(&server.url, b"");
        let error = fetched.unwrap_err();
        assert!(matches!(error, HttpError::Cut { received: 70_000, .. }), "{error:?}");
        assert!(error.to_string().contains(&server.url), "{error}");
        assert_eq!(bytes.len(), 70_000, "kept for the next run");
        assert_eq!(server.ranges().len(), 5);
    }

    #[test]
    fn a_partial_file_longer_than_the_file_is_discarded() {
        let server = TestServer::start(&content(), &[Reply::Range]);
        let (fetched, bytes) = fetch(&server.url, &[0; 300_000]);
        fetched.unwrap();
        assert!(bytes == content());
        assert_eq!(server.ranges(), [Some(300_000), None]);
    }

    #[test]
    fn a_range_that_was_not_requested_is_refused() {
        let server = TestServer::start(&content(), &[Reply::WrongRange]);
        let (fetched, bytes) = fetch(&server.url, &content()[..150_000]);
        assert!(matches!(fetched, Err(HttpError::WrongRange { .. })), "{fetched:?}");
        assert!(bytes == content()[..150_000]);
    }

    #[test]
    fn a_stop_ends_the_transfer_and_keeps_what_was_received() {
        static CHECKS: AtomicU32 = AtomicU32::new(0);
        // The check before the request and that before the first read let it go on.
        let stops_in_the_body = || CHECKS.fetch_add(1, Ordering::Relaxed) >= 2;
        let server = TestServer::start(&content(), &[Reply::Range]);
        let mut file = tempfile::tempfile().unwrap();
        let client = Client { is_stopped: stops_in_the_body, ..Client::with_pause(Duration::ZERO) };
        let stopped = client.fetch(&server.url, &mut file, &mut |_, _| {});
        assert!(matches!(stopped, Err(HttpError::Stopped)), "{stopped:?}");
        let held = file.metadata().unwrap().len();
        assert!(0 < held && held < content().len() as u64, "{held}");
        // Asked again after the stop, it does not even connect.
        let stopped = client.fetch(&server.url, &mut file, &mut |_, _| {});
        assert!(matches!(stopped, Err(HttpError::Stopped)), "{stopped:?}");
        assert_eq!(server.ranges(), [None]);
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
        let server = TestServer::start(&content(), &[Reply::Status(503), Reply::Range]);
        fetch(&server.url, b"").0.unwrap();
        assert_eq!(server.ranges().len(), 2);

        let server = TestServer::start(&content(), &[Reply::Status(404), Reply::Range]);
        let error = fetch(&server.url, b"").0.unwrap_err().to_string();
        assert!(error.contains("404") && error.contains(&server.url), "{error}");
        assert_eq!(server.ranges().len(), 1);
    }

    #[test]
    fn errors_name_an_unreachable_server() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = fetch(&format!("http://{free}/x"), b"").0.unwrap_err();
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
        let error = fetch(&url, b"").0.unwrap_err();
        assert!(matches!(error, HttpError::Request { .. }), "{error:?}");
        assert_eq!(connections.try_iter().count(), 1, "{error:?}");
    }
}
