//! Tests when an attempt is repeated with or without TLS, against a server that answers as it is told.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use super::*;
use crate::interrupt::tests::CUTS;
use crate::{Env, resolve};

/// What clients began with, in order, over all connections: a request for TLS, or a login.
type Asked = Arc<Mutex<Vec<&'static str>>>;

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag][..], &length, body].concat()
}

fn refusal(code: &str) -> Vec<u8> {
    message(b'E', format!("SFATAL\0C{code}\0Mno\0\0").as_bytes())
}

/// Starts a server that answers a request for TLS by `tls` and a login by `answer`.
fn serve(tls: u8, answer: Vec<u8>) -> (u16, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    // Ends with the process.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // An error means that the client has left.
            let _ = converse(&mut stream, tls, &answer, &seen);
        }
    });
    (port, asked)
}

fn converse(stream: &mut TcpStream, tls: u8, answer: &[u8], asked: &Asked) -> io::Result<()> {
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        let (length, code) = head.split_at(4);
        if code == 80_877_103_u32.to_be_bytes() {
            asked.lock().unwrap().push("TLS");
            stream.write_all(&[tls])?;
            continue;
        }
        asked.lock().unwrap().push("login");
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        stream.read_exact(&mut vec![0; length - 8])?;
        stream.write_all(answer)?;
        return stream.read_to_end(&mut Vec::new()).map(drop);
    }
}

/// Connects to such a server; returns what it was asked for, and the error.
fn attempts(mode: &str, env: &Env, tls: u8, answer: Vec<u8>) -> (Vec<&'static str>, ConnectError) {
    let _alone = CUTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (port, asked) = serve(tls, answer);
    let text = format!("host=127.0.0.1 port={port} user=u dbname=d sslmode={mode}");
    let error = connect(&resolve(&text, env).unwrap()).err().unwrap();
    let asked = asked.lock().unwrap().clone();
    (asked, error)
}

#[test]
fn prefer_does_not_go_on_without_tls_for_what_pgio_does_not_support() {
    let home = tempfile::tempdir().unwrap();
    let own = home.path().join(".postgresql");
    fs::create_dir(&own).unwrap();
    for file in ["root.crt", "root.crl"] {
        fs::write(own.join(file), "").unwrap();
    }
    let env = Env { home: Some(home.path().to_owned()), ..Env::default() };
    let (asked, error) = attempts("prefer", &env, b'S', refusal("28000"));
    assert!(matches!(error, ConnectError::TlsUnsupported(_)), "{error}");
    assert_eq!(asked, ["TLS"]);

    // Without TLS there is no certificate that the list could revoke.
    let (asked, error) = attempts("prefer", &env, b'N', refusal("28000"));
    assert!(matches!(error, ConnectError::Authentication { .. }), "{error}");
    assert_eq!(asked[..2], ["TLS", "login"]);
}
