//! A slow way to a server: a relay that delays its answers, from the start or from the moment when a text passes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Serves until the process ends.
pub(super) struct Relay {
    pub(super) dsn: String,
}

impl Relay {
    /// Delays answers by these milliseconds, from when a client sends `after`.
    pub(super) fn start(dsn: &str, milliseconds: u64, after: Option<&'static [u8]>) -> Relay {
        let value = |key: &str| {
            let pair = dsn.split_whitespace().find_map(|pair| pair.strip_prefix(key));
            pair.unwrap_or_else(|| panic!("no {key} in {dsn}")).trim_matches('\'').to_owned()
        };
        let socket = format!("{}/.s.PGSQL.{}", value("host="), value("port="));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let slow = Arc::new(AtomicBool::new(after.is_none()));
        let delay = Duration::from_millis(milliseconds);
        thread::spawn(move || {
            for client in listener.incoming() {
                let server = UnixStream::connect(&socket).unwrap();
                pass(client.unwrap(), server, delay, (after, Arc::clone(&slow)));
            }
        });
        let rest: Vec<&str> = dsn
            .split_whitespace()
            .filter(|pair| !pair.starts_with("host=") && !pair.starts_with("port="))
            .collect();
        Relay { dsn: format!("host=127.0.0.1 port={port} sslmode=disable {}", rest.join(" ")) }
    }
}

fn pass(
    mut client: TcpStream,
    mut server: UnixStream,
    delay: Duration,
    (after, slow): (Option<&'static [u8]>, Arc<AtomicBool>),
) {
    client.set_nodelay(true).unwrap();
    let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let is_slow = Arc::clone(&slow);
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            if after.is_some_and(|text| buffer[..count].windows(text.len()).any(|w| w == text)) {
                slow.store(true, Ordering::SeqCst);
            }
            if server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(std::net::Shutdown::Write);
    });
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(count @ 1..) = answers.read(&mut buffer) {
            if is_slow.load(Ordering::SeqCst) {
                thread::sleep(delay);
            }
            if to_client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(std::net::Shutdown::Both);
    });
}
