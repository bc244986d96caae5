//! A local HTTP server for the tests of downloads: on demand it interrupts or refuses.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The reply to one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    Whole,
    /// The connection ends after this number of bytes.
    Cut(usize),
    /// The file claims to be larger than any build.
    Huge,
    Status(u16),
}

/// Serves until the test's process ends.
pub(super) struct TestServer {
    pub(super) url: String,
    paths: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    /// One reply per request; the last one is repeated.
    pub(super) fn start(file: &[u8], replies: &[Reply]) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let paths = Arc::new(Mutex::new(Vec::new()));
        let (file, replies, seen) = (file.to_owned(), replies.to_owned(), paths.clone());
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let path = requested_path(&connection);
                let reply = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(path);
                    replies[(seen.len() - 1).min(replies.len() - 1)]
                };
                // The client may have hung up.
                let _ = connection.write_all(&answer(&file, reply));
            }
        });
        TestServer { url, paths }
    }

    /// The paths of all requests so far.
    pub(super) fn paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }
}

fn requested_path(connection: &TcpStream) -> String {
    let mut lines = BufReader::new(connection).lines().map(Result::unwrap);
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    path
}

fn answer(file: &[u8], reply: Reply) -> Vec<u8> {
    let (status, length, sent) = match reply {
        Reply::Whole => (200, file.len(), file.len()),
        Reply::Cut(sent) => (200, file.len(), sent.min(file.len())),
        Reply::Huge => (200, 1 << 40, 0),
        Reply::Status(status) => (status, 0, 0),
    };
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    [head.as_bytes(), &file[..sent]].concat()
}
