//! Tests when an attempt is repeated with or without TLS, against a server with prepared answers.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

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

fn authentication(kind: u32) -> Vec<u8> {
    message(b'R', &kind.to_be_bytes())
}

#[test]
fn allow_tries_tls_after_every_refusal_before_the_authentication_is_complete() {
    for code in ["28000", "28P01", "08P01", "53300"] {
        let (asked, error) = attempts("allow", &Env::default(), b'N', refusal(code));
        assert_eq!(asked, ["login", "TLS"], "{code}: {error}");
    }
    let (_, error) = attempts("allow", &Env::default(), b'N', refusal("08P01"));
    assert!(error.to_string().contains("does not support TLS"), "{error}");

    let too_late = [authentication(0), refusal("28000")].concat();
    // Kind 3 asks for a password, and there is none.
    for answer in [too_late, refusal("57P03"), authentication(3)] {
        let (asked, error) = attempts("allow", &Env::default(), b'N', answer);
        assert_eq!(asked, ["login"], "{error}");
    }
}

#[test]
fn prefer_goes_on_without_tls_as_libpq_does() {
    let (asked, error) = attempts("prefer", &Env::default(), b'N', refusal("28P01"));
    assert_eq!(asked, ["TLS", "login"], "the login had no TLS: {error}");

    let tls = || ConnectError::Tls { at: "h".to_owned(), problem: "alert".to_owned() };
    let sent = || ConnectError::TooManyConnections { at: "h".to_owned(), message: "no".to_owned() };
    for (error, encrypted, refused, expected) in [
        (tls(), false, false, true),
        // After the handshake: the server does not accept the client's certificate.
        (tls(), true, false, false),
        (sent(), true, true, true),
        (sent(), true, false, false),
        (sent(), false, true, false),
    ] {
        let failed = Failed { error, encrypted, refused };
        assert_eq!(failed.allows_plain(), expected, "{failed:?}");
    }
}
