//! One request and its answer: what is served, to whom, and with which headers.
//!
//! Nothing can be changed from here: GET and HEAD are all there is. Without a token, only requests that name
//! this machine by an IP address or as localhost are answered; a page of another site that made its own name
//! point here (DNS rebinding) names itself.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use std::convert::Infallible;
use tokio::sync::mpsc::Receiver;

use super::address::Token;
use super::state::{Shared, Viewer};

const PAGE: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/live.css");
const SCRIPT: &str = include_str!("assets/live.js");

/// The page loads its own files alone and cannot be put into a page of others.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                           frame-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'";
/// A report loads nothing. Its styles and scripts are inside it.
const REPORT_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                             img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// What every answer has.
const COMMON_HEADERS: [(HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// What a path is answered with.
enum PageResource {
    Text { kind: &'static str, policy: &'static str, text: Bytes },
    Events,
}

/// The body of an answer: a text, or events for as long as both sides stay.
#[derive(Debug)]
pub(super) enum Answer {
    Text(Option<Bytes>),
    Events { texts: Receiver<Bytes>, _viewer: Viewer },
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Answer::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Answer::Events { texts, .. } => {
                texts.poll_recv(context).map(|text| text.map(|text| Ok(Frame::data(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answer::Text(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, Bytes::len) as u64),
            Answer::Events { .. } => SizeHint::default(),
        }
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Method,
    Host,
    Token,
    Path,
}

impl Refusal {
    fn answer(self) -> Response<Answer> {
        let (status, text) = match self {
            Refusal::Method => (StatusCode::METHOD_NOT_ALLOWED, "this page is read-only\n"),
            Refusal::Host => (
                StatusCode::FORBIDDEN,
                "open this page by the machine's IP address or by localhost\n",
            ),
            Refusal::Token => (StatusCode::UNAUTHORIZED, "the token is missing or wrong\n"),
            Refusal::Path => (StatusCode::NOT_FOUND, "there is no such page\n"),
        };
        let mut answer = Response::new(Answer::Text(Some(Bytes::from_static(text.as_bytes()))));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        let mut add = |name, value| headers.insert(name, HeaderValue::from_static(value));
        add(header::CONTENT_TYPE, "text/plain; charset=utf-8");
        add(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
        match self {
            Refusal::Method => drop(add(header::ALLOW, "GET, HEAD")),
            // A refused connection is closed, so that its place is free.
            Refusal::Host => drop(add(header::CONNECTION, "close")),
            Refusal::Token => {
                add(header::CONNECTION, "close");
                add(header::WWW_AUTHENTICATE, "Basic realm=\"pgio\"");
            }
            Refusal::Path => {}
        }
        answer
    }
}

/// What is answered, before anything is done for it.
pub(super) fn check<B>(request: &Request<B>, token: Option<&Token>) -> Result<(), Refusal> {
    let headers = request.headers();
    match token {
        Some(token) if !is_authorized(headers, token) => return Err(Refusal::Token),
        None if !is_of_this_machine(headers) => return Err(Refusal::Host),
        Some(_) | None => {}
    }
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    if reads { Ok(()) } else { Err(Refusal::Method) }
}

fn is_authorized(headers: &HeaderMap, token: &Token) -> bool {
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    sent.is_some_and(|sent| token.is_in(sent))
}

/// Ignores the port, which may be that of a tunnel.
fn is_of_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// Answers a request; `feed` begins a stream of events.
pub(super) fn answer<B>(
    request: &Request<B>,
    checked: Result<(), Refusal>,
    shared: &Arc<Shared>,
    feed: impl FnOnce() -> Receiver<Bytes>,
) -> Response<Answer> {
    let found =
        checked.and_then(|()| find_resource(request.uri().path(), shared).ok_or(Refusal::Path));
    let head = request.method() == Method::HEAD;
    let (kind, policy, body) = match found {
        Ok(PageResource::Text { kind, policy, text }) => (kind, policy, Answer::Text(Some(text))),
        Ok(PageResource::Events) if head => ("text/event-stream", PAGE_POLICY, Answer::Text(None)),
        Ok(PageResource::Events) => {
            let body = Answer::Events { texts: feed(), _viewer: Viewer::new(shared) };
            ("text/event-stream", PAGE_POLICY, body)
        }
        Err(refusal) => return with_common_headers(refusal.answer()),
    };
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    with_common_headers(answer)
}

fn with_common_headers(mut answer: Response<Answer>) -> Response<Answer> {
    for (name, value) in COMMON_HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn find_resource(path: &str, shared: &Shared) -> Option<PageResource> {
    let asset = |kind, text: &'static str| {
        let text = Bytes::from_static(text.as_bytes());
        Some(PageResource::Text { kind, policy: PAGE_POLICY, text })
    };
    match path {
        "/" => asset("text/html; charset=utf-8", PAGE),
        "/live.css" => asset("text/css; charset=utf-8", STYLE),
        "/live.js" => asset("text/javascript; charset=utf-8", SCRIPT),
        "/events" => Some(PageResource::Events),
        path => {
            // The version after it only tells the browser that this is another page.
            let number = path.strip_prefix("/report/")?.split('/').next()?.parse().ok()?;
            let html = shared.read().report(number)?;
            let kind = "text/html; charset=utf-8";
            Some(PageResource::Text {
                kind,
                policy: REPORT_POLICY,
                text: Bytes::from_owner(Html(html)),
            })
        }
    }
}

/// A rendered report, shared by all who read it.
struct Html(Arc<str>);

impl AsRef<[u8]> for Html {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn refused(request: &Request<()>) -> Option<Refusal> {
        check(request, None).err()
    }

    #[test]
    fn a_host_is_an_address_or_localhost() {
        for host in
            ["127.0.0.1", "127.0.0.1:8080", "localhost:9000", "LOCALHOST", "[::1]:8080", "[::1]"]
        {
            assert_eq!(refused(&asked("GET", "/", &[("host", host)])), None, "{host}");
        }
        for host in
            ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "localhost.evil:1"]
        {
            assert_eq!(
                refused(&asked("GET", "/", &[("host", host)])),
                Some(Refusal::Host),
                "{host}"
            );
        }
        assert_eq!(refused(&asked("GET", "/", &[])), Some(Refusal::Host));
        let two = asked("GET", "/", &[("host", "127.0.0.1"), ("host", "evil.example")]);
        assert_eq!(refused(&two), Some(Refusal::Host));
    }

    fn answered(request: &Request<()>) -> Response<Answer> {
        let shared = Shared::new();
        answer(request, check(request, None), &shared, || tokio::sync::mpsc::channel(1).1)
    }

    #[test]
    fn only_get_and_head_of_known_paths_are_answered() {
        let host = [("host", "127.0.0.1:8080")];
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"] {
            let answer = answered(&asked(method, "/", &host));
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
            assert_eq!(answer.headers()[header::ALLOW], "GET, HEAD");
        }
        for (path, status) in [("/", 200), ("/live.js", 200), ("/live.css", 200), ("/events", 200)]
        {
            assert_eq!(answered(&asked("GET", path, &host)).status(), status, "{path}");
        }
        for path in ["/report/0", "/report/", "/report/x", "/../etc/passwd", "/report.html", "/%2e"]
        {
            assert_eq!(answered(&asked("GET", path, &host)).status(), 404, "{path}");
        }
    }

    #[test]
    fn connections_that_are_not_let_in_are_closed() {
        for (refusal, expected) in [
            (Refusal::Token, Some("close")),
            (Refusal::Host, Some("close")),
            (Refusal::Method, None),
            (Refusal::Path, None),
        ] {
            let answer = refusal.answer();
            let connection = answer.headers().get(header::CONNECTION);
            assert_eq!(connection.map(|value| value.to_str().unwrap()), expected, "{refusal:?}");
        }
    }

    #[test]
    fn every_answer_has_the_security_headers() {
        let host = [("host", "localhost")];
        for path in ["/", "/events", "/nothing"] {
            let answer = answered(&asked("GET", path, &host));
            for (name, value) in COMMON_HEADERS {
                assert_eq!(answer.headers()[&name], value, "{path}");
            }
            let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
            assert!(policy.ends_with("frame-ancestors 'none'"), "{path}: {policy}");
            assert!(!policy.contains("unsafe"), "{path}: {policy}");
        }
    }
}
