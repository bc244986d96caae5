//! The page and its events over HTTP, from a thread of its own at the lowest priority.
//!
//! Nothing can be changed from here: GET and HEAD are all there is, one request a connection. Without a token, only
//! requests that name this machine by an IP address or as localhost are answered; a page of another site that made its
//! own name point here (DNS rebinding) names itself.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use Answer::Refused;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::net::sockopt;
use rustix::process::setpriority_process;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::{Endpoint, Token};
use pgio_report::report::html;

/// A browser takes two or three; the rest is for people who watch together.
const MAX_CONNECTIONS: usize = 64;
const MAX_HEADERS: usize = 64;
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// A request must be complete by then.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection ends if its peer takes nothing of what is sent for so long; the kernel counts in milliseconds.
const STALL_TIMEOUT_MS: u32 = 60_000;
/// A peer has this long to take the end of an answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Changes within this time travel together.
const BATCH_INTERVAL: Duration = Duration::from_millis(250);
/// Without a change, a sign of life comes this often; it also finds browsers that are gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A wrong token is answered late, so that guessing takes long.
const WRONG_TOKEN_DELAY: Duration = Duration::from_secs(1);

const STYLE: &str = include_str!("live.css");
const SCRIPT: &str = include_str!("live.js");

/// How far the run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    #[default]
    Starting,
    Running,
    /// No more trials follow.
    Complete,
    /// It ended early; `--resume` may continue it.
    Stopped,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Status {
    pub(super) phase: Phase,
    pub(super) experiment: String,
    pub(super) workload: String,
    /// The number of the current trial, and how many there are as known now.
    pub(super) trial: usize,
    pub(super) trials: usize,
    pub(super) condition: String,
    /// Such as `preparing` or `3,300/s`.
    pub(super) doing: String,
    pub(super) seconds_left: Option<u64>,
    /// Whether more blocks than planned may follow.
    pub(super) open_ended: bool,
    /// Why it stopped, or why there is no report.
    pub(super) reason: String,
}

/// What browsers see, shared by the run, the server and the thread that renders.
#[derive(Debug)]
pub(super) struct Page {
    state: Mutex<State>,
    /// Its further owners are the browsers that are connected.
    viewers: Arc<()>,
}

#[derive(Debug)]
struct State {
    status: Status,
    html: Arc<str>,
    /// How often the report has changed.
    reports: u64,
}

impl Page {
    pub(super) fn new(experiment: String) -> Arc<Page> {
        let html = served(&html::empty(&experiment));
        let status = Status { experiment, ..Status::default() };
        let state = Mutex::new(State { status, html, reports: 0 });
        Arc::new(Page { state, viewers: Arc::new(()) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.state().status);
    }

    pub(super) fn set_report(&self, report: &str) {
        let html = served(report);
        let mut state = self.state();
        (state.html, state.reports) = (html, state.reports + 1);
    }

    /// Counts a browser for as long as it keeps what this returns.
    pub(super) fn watch(&self) -> Arc<()> {
        self.viewers.clone()
    }

    pub(super) fn is_watched(&self) -> bool {
        Arc::strong_count(&self.viewers) > 1
    }

    /// Returns what differs from what was sent before, as server-sent events. JSON has no line break of its own, so one
    /// line of data is enough. The status comes last: a browser knows of the last report when the run is complete.
    fn events(&self, sent: &mut (u64, String)) -> String {
        let state = self.state();
        let status = serde_json::to_string(&state.status).expect("plain data always serializes");
        let now = (state.reports, format!("event: status\ndata: {status}\n\n"));
        let mut events = String::new();
        if now.0 != sent.0 {
            events += &format!("event: report\ndata: {}\n\n", now.0);
        }
        if now.1 != sent.1 {
            events += &now.1;
        }
        *sent = now;
        events
    }
}

fn served(report: &str) -> Arc<str> {
    let top = format!("{}<script>{SCRIPT}</script>", include_str!("status.html"));
    html::served(report, &format!("<style>{STYLE}</style>"), &top).into()
}

/// Lowers the priority of the calling thread as `nice -n 19` does. On Linux a priority belongs to a thread, and no
/// process id means the calling thread. Failure is harmless: the thread then competes as an ordinary one.
pub(super) fn lower_priority() {
    let _ = setpriority_process(None, 19);
}

/// Begins to listen and returns the address, whose port the system may have chosen.
pub(super) fn start(endpoint: Endpoint, page: Arc<Page>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(endpoint.address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let serve = move || {
        lower_priority();
        runtime.block_on(accept(listener, endpoint.token.map(Arc::new), page));
    };
    // The thread ends with the process.
    thread::Builder::new().name("pgio-live".to_owned()).spawn(serve)?;
    Ok(address)
}

async fn accept(listener: TcpListener, token: Option<Arc<Token>>, page: Arc<Page>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut places = Vec::new();
    loop {
        // An error: out of descriptors, or the peer is gone already.
        let Ok((mut stream, peer)) = listener.accept().await else {
            sleep(BATCH_INTERVAL).await;
            continue;
        };
        make_room(&mut places);
        // The kernel's own, longer limit remains if this fails.
        let _ = sockopt::set_tcp_user_timeout(&stream, STALL_TIMEOUT_MS);
        let silent = Arc::new(AtomicBool::new(true));
        let (token, page, is_silent) = (token.clone(), page.clone(), silent.clone());
        // An error is the browser's: it is gone, or sent no HTTP.
        let serve = async move { serve(&mut stream, token.as_deref(), &page, &is_silent).await };
        places.push(Place { address: peer.ip(), silent, task: tokio::spawn(serve).abort_handle() });
    }
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

async fn serve(
    stream: &mut TcpStream,
    token: Option<&Token>,
    page: &Page,
    silent: &AtomicBool,
) -> io::Result<()> {
    let head = timeout(HEADER_TIMEOUT, read_head(stream)).await??;
    silent.store(false, Ordering::Relaxed);
    let (answer, wants_body) = answer(&head, token);
    if answer == WRONG_TOKEN {
        sleep(WRONG_TOKEN_DELAY).await;
    }
    let (headers, body) = reply(answer, page);
    stream.write_all(headers.as_bytes()).await?;
    match answer {
        _ if !wants_body => {}
        Answer::Events => send_events(stream, page).await?,
        Answer::Page | Refused(..) => stream.write_all(body.as_bytes()).await?,
    }
    // A connection that is closed with something unread is reset, and the peer may lose the answer.
    stream.shutdown().await?;
    let drain = async { while stream.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {} };
    Ok(timeout(CLOSE_TIMEOUT, drain).await?)
}

/// Reads to the empty line after the headers.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(1024);
    while head.len() < MAX_HEAD_BYTES {
        let known = head.len().saturating_sub(3);
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if head[known..].windows(4).any(|four| four == b"\r\n\r\n") {
            break;
        }
    }
    Ok(head)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Page,
    Events,
    /// Status, further header, text.
    Refused(&'static str, &'static str, &'static str),
}

const BAD_REQUEST: Answer = Refused("400 Bad Request", "", "this is no request of HTTP\n");
const WRONG_TOKEN: Answer = Refused("401 Unauthorized", BASIC, "the token is missing or wrong\n");
const WRONG_HOST: Answer =
    Refused("403 Forbidden", "", "open this page by IP address or localhost\n");
const NOT_FOUND: Answer = Refused("404 Not Found", "", "there is no such page\n");
const WRONG_METHOD: Answer = Refused("405 Method Not Allowed", READS, "this page is read-only\n");
const BASIC: &str = "WWW-Authenticate: Basic realm=\"pgio\"\r\n";
const READS: &str = "Allow: GET, HEAD\r\n";

/// Returns what a request is answered with, and whether it asks for more than headers.
fn answer(head: &[u8], token: Option<&Token>) -> (Answer, bool) {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let complete = request.parse(head).is_ok_and(|status| status.is_complete());
    let (true, Some(method), Some(path)) = (complete, request.method, request.path) else {
        return (BAD_REQUEST, true);
    };
    let sent = |name: &'static str| {
        let named = request.headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(name));
        named.map(|header| str::from_utf8(header.value).unwrap_or_default())
    };
    let is_token_sent =
        |token: &Token| sent("authorization").next().is_some_and(|sent| token.is_in(sent));
    let answer = match (method, path.split('?').next().unwrap_or_default()) {
        _ if token.is_some_and(|token| !is_token_sent(token)) => WRONG_TOKEN,
        _ if token.is_none() && !is_of_this_machine(sent("host")) => WRONG_HOST,
        ("GET" | "HEAD", "/") => Answer::Page,
        ("GET" | "HEAD", "/events") => Answer::Events,
        ("GET" | "HEAD", _) => NOT_FOUND,
        _ => WRONG_METHOD,
    };
    (answer, method != "HEAD")
}

/// Ignores the port, which may be a tunnel's.
fn is_of_this_machine<'a>(mut hosts: impl Iterator<Item = &'a str>) -> bool {
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// What every answer has.
const COMMON_HEADERS: &str = "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
    X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\nConnection: close\r\n";

/// Returns headers and body. Events have no end, so they have no length.
fn reply(answer: Answer, page: &Page) -> (String, Arc<str>) {
    let (status, kind, more, body) = match answer {
        Answer::Page => ("200 OK", "text/html; charset=utf-8", "", page.state().html.clone()),
        Answer::Events => ("200 OK", "text/event-stream", "", "".into()),
        Refused(status, more, text) => (status, "text/plain; charset=utf-8", more, text.into()),
    };
    let length = format!("Content-Length: {}\r\n", body.len());
    let length = if answer == Answer::Events { "" } else { &length };
    let policy = if answer == Answer::Page { PAGE_POLICY.as_str() } else { "" };
    let headers = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{length}{COMMON_HEADERS}{more}\
         Content-Security-Policy: default-src 'none'; {policy}frame-ancestors 'none'\r\n\r\n"
    );
    (headers, body)
}

/// The page has our own scripts and styles alone, and cannot be put into a page of others.
static PAGE_POLICY: LazyLock<String> = LazyLock::new(|| {
    let digests = |all: &[&str], own| {
        let all = all.iter().chain([own]).map(|text| STANDARD.encode(Sha256::digest(text)));
        all.map(|digest| format!(" 'sha256-{digest}'")).collect::<String>()
    };
    let (scripts, styles) = (digests(&html::SCRIPTS, &SCRIPT), digests(&html::STYLES, &STYLE));
    format!(
        "script-src{scripts}; style-src{styles}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; "
    )
});

/// Sends what changes until the browser is gone.
async fn send_events(stream: &mut TcpStream, page: &Page) -> io::Result<()> {
    let _viewer = page.watch();
    let (mut sent, mut last) = ((0, String::new()), Instant::now());
    // Browsers wait this long before they connect again.
    stream.write_all(b"retry: 1000\n\n").await?;
    loop {
        let mut events = page.events(&mut sent);
        if events.is_empty() && last.elapsed() >= KEEP_ALIVE {
            events += ": no change\n\n";
        }
        if !events.is_empty() {
            stream.write_all(events.as_bytes()).await?;
            last = Instant::now();
        }
        // A browser sends no more than its request, so whatever comes is the end.
        if timeout(BATCH_INTERVAL, stream.read(&mut [0; 1])).await.is_ok() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn asked(method: &str, path: &str, headers: &str) -> Answer {
        answer(format!("{method} {path} HTTP/1.1\r\n{headers}\r\n").as_bytes(), None).0
    }

    #[test]
    fn a_host_is_an_address_or_localhost() {
        let with = |host: &str| asked("GET", "/", &format!("host: {host}\r\n"));
        for host in
            ["127.0.0.1", "127.0.0.1:8080", "localhost:9000", "LOCALHOST", "[::1]:8080", "[::1]"]
        {
            assert_eq!(with(host), Answer::Page, "{host}");
        }
        for host in
            ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "localhost.evil:1"]
        {
            assert_eq!(with(host), WRONG_HOST, "{host}");
        }
        assert_eq!(asked("GET", "/", ""), WRONG_HOST);
        assert_eq!(with("127.0.0.1\r\nHost: evil.example"), WRONG_HOST);
    }

    #[test]
    fn only_get_and_head_of_known_paths_are_answered() {
        let host = "Host: 127.0.0.1:8080\r\n";
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"] {
            assert_eq!(asked(method, "/", host), WRONG_METHOD, "{method}");
        }
        for path in ["/report/0", "/../etc/passwd", "/report.html", "/%2e", "http://localhost/"] {
            assert_eq!(asked("GET", path, host), NOT_FOUND, "{path}");
        }
        assert_eq!(asked("HEAD", "/?a", host), Answer::Page);
        assert_eq!(asked("GET", "/events", host), Answer::Events);
        let many = format!("{host}{}", "A: b\r\n".repeat(MAX_HEADERS));
        for head in [asked("GET", "/", &many), asked("GET", " ", host), asked("\0", "/", host)] {
            assert_eq!(head, BAD_REQUEST);
        }
    }

    #[test]
    fn every_answer_has_the_security_headers() {
        let page = Page::new("test".to_owned());
        for answer in [Answer::Page, Answer::Events, WRONG_TOKEN, NOT_FOUND] {
            let (headers, body) = reply(answer, &page);
            assert!(headers.contains(COMMON_HEADERS), "{headers}");
            assert!(headers.contains("-Policy: default-src 'none'; "), "{headers}");
            assert!(headers.ends_with("frame-ancestors 'none'\r\n\r\n"), "{headers}");
            assert!(!headers.contains("unsafe"), "{headers}");
            assert_eq!(answer == Answer::Page, body.contains("</head><body><div id=\"run\""));
        }
    }

    #[test]
    fn a_browser_gets_all_at_first_and_then_what_changed() {
        let (page, mut sent) = (Page::new("test".to_owned()), (0, String::new()));
        let first = page.events(&mut sent);
        assert!(first.starts_with("event: status\ndata: {\"phase\":\"starting\","), "{first}");
        assert_eq!(page.events(&mut sent), "");
        page.update(|status| status.doing = "a\n\nevent: report\ndata: 7".to_owned());
        let forged = page.events(&mut sent);
        assert_eq!(forged.lines().count(), 3, "{forged}");
        page.set_report("");
        page.update(|status| status.phase = Phase::Complete);
        let events = page.events(&mut sent);
        assert!(events.starts_with("event: report\ndata: 1\n\nevent: status\n"), "{events}");
    }

    #[test]
    fn lower_priority_affects_only_the_calling_thread() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let lowered = thread::spawn(move || {
            lower_priority();
            priority()
        });
        assert_eq!((lowered.join().unwrap(), priority()), (19, before));
    }

    fn listen() -> SocketAddr {
        let endpoint = Endpoint { address: SocketAddr::from(([127, 0, 0, 1], 0)), token: None };
        start(endpoint, Page::new("test".to_owned())).unwrap()
    }

    fn connect_to(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Nothing else would end them: streams of events are kept alive.
    #[test]
    fn many_connections_keep_nobody_out() {
        let address = listen();
        let answer = |path: &str| {
            let mut stream = connect_to(address);
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
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
    fn a_connection_has_one_answer() {
        let mut stream = connect_to(listen());
        let request = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        // Both at once, so that the number of answers does not depend on time.
        stream.write_all(request.repeat(2).as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text.matches("HTTP/1.1 403 ").count(), 1, "{text}");
    }
}
