//! A local HTTP server for the tests of downloads: on demand it interrupts, ignores ranges or refuses.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The reply to one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    /// The requested part.
    Range,
    /// The requested part, but the connection ends after this number of bytes.
    Cut(usize),
    /// The whole file, as from a server without support for ranges.
    Whole,
    /// Like `Whole`, but the connection ends after this number of bytes.
    WholeCut(usize),
    /// A part from another offset than requested.
    WrongRange,
    /// The requested part, which claims to be larger than any build.
    Huge,
    Status(u16),
}

/// A client's request.
#[derive(Debug, Clone)]
struct Request {
    path: String,
    /// The first byte of the range; `None` for the whole file.
    first: Option<usize>,
}

/// Serves until the test's process ends.
pub(super) struct TestServer {
    pub(super) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl TestServer {
    /// One reply per request; the last one is repeated.
    pub(super) fn start(file: &[u8], replies: &[Reply]) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (file, replies, seen) = (file.to_owned(), replies.to_owned(), requests.clone());
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let request = read_request(&connection);
                let first = request.first;
                let reply = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request);
                    replies[(seen.len() - 1).min(replies.len() - 1)]
                };
                // The client may have hung up.
                let _ = connection.write_all(&answer(&file, first, reply));
            }
        });
        TestServer { url, requests }
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.path.clone()).collect()
    }

    /// The first byte asked for by each request; `None` for the whole file.
    pub(super) fn ranges(&self) -> Vec<Option<usize>> {
        self.requests.lock().unwrap().iter().map(|request| request.first).collect()
    }
}

fn read_request(connection: &TcpStream) -> Request {
    let mut lines = BufReader::new(connection).lines().map(Result::unwrap);
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let mut first = None;
    for line in lines.take_while(|line| !line.is_empty()) {
        if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            first = range.strip_suffix('-').map(|first| first.parse().unwrap());
        }
    }
    Request { path, first }
}

fn answer(file: &[u8], first: Option<usize>, reply: Reply) -> Vec<u8> {
    let partial = |from: usize| {
        let (rest, last, all) = (&file[from..], file.len() - 1, file.len());
        (format!("206 Partial\r\nContent-Range: bytes {from}-{last}/{all}"), rest)
    };
    let whole = || ("200 OK".to_owned(), file);
    let asked = || first.map_or_else(whole, partial);
    let ((status, body), sent) = match reply {
        Reply::Range if first.is_some_and(|first| first >= file.len()) => {
            (("416 Range Not Satisfiable".to_owned(), [].as_slice()), usize::MAX)
        }
        Reply::Range => (asked(), usize::MAX),
        Reply::Cut(sent) => (asked(), sent),
        Reply::Whole => (whole(), usize::MAX),
        Reply::WholeCut(sent) => (whole(), sent),
        Reply::WrongRange => (partial(1), usize::MAX),
        Reply::Huge => (asked(), 0),
        Reply::Status(code) => ((format!("{code} Status"), [].as_slice()), usize::MAX),
    };
    let length = if matches!(reply, Reply::Huge) { 1 << 40 } else { body.len() };
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), &body[..sent.min(body.len())]].concat()
}
