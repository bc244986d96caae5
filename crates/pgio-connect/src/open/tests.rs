//! Tests when an attempt is repeated with or without TLS, against a server with prepared answers.

use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};

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
    serve_at(("127.0.0.1", 0), tls, answer)
}

fn serve_at(address: (&str, u16), tls: u8, answer: Vec<u8>) -> (u16, Asked) {
    let listener = TcpListener::bind(address).unwrap();
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
fn a_limit_of_connections_is_named_by_who_has_it() {
    for (routine, hint) in [
        ("InitializeSessionUserId", "the CONNECTION LIMIT of role `u`"),
        ("CheckMyDatabase", "the CONNECTION LIMIT of database `d`"),
        ("InitProcess", "raise max_connections"),
    ] {
        let sent = message(b'E', format!("SFATAL\0C53300\0Mno\0R{routine}\0\0").as_bytes());
        let (_, error) = attempts("disable", &Env::default(), b'N', sent);
        assert!(error.to_string().contains(hint), "{error}");
    }
}

/// A link-local address of this machine with its zone, if it has one.
fn link_local() -> Option<String> {
    let interfaces = fs::read_to_string("/proc/net/if_inet6").ok()?;
    interfaces.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, _, "20", _, name] = words[..] else { return None };
        let bits = u128::from_str_radix(address, 16).ok()?;
        Some(format!("{}%{name}", Ipv6Addr::from(bits)))
    })
}

#[test]
fn an_address_is_reached_in_its_zone() {
    let Some(address) = link_local() else { return };
    let _alone = CUTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (plain, escaped) = (address.clone(), address.replace('%', "%25"));
    for how in [0, 1, 2] {
        let (port, asked) = serve_at((&*address, 0), b'N', refusal("28000"));
        let text = match how {
            0 => format!("host={plain} port={port} user=u dbname=d"),
            1 => format!("host=h hostaddr={plain} port={port} user=u dbname=d"),
            _ => format!("postgresql://u@[{escaped}]:{port}/d"),
        };
        let params = resolve(&text, &Env::default()).unwrap();
        let error = connect(&params).err().unwrap();
        assert!(matches!(error, ConnectError::Authentication { .. }), "{text}: {error}");
        assert_eq!(asked.lock().unwrap()[..2], ["TLS", "login"], "{text}");
        assert!(dial_zone(&params).unwrap().is_some(), "requests to cancel go there too");
    }
}

#[test]
fn prefer_goes_on_without_tls_as_libpq_does() {
    let (asked, error) = attempts("prefer", &Env::default(), b'N', refusal("28P01"));
    assert_eq!(asked, ["TLS", "login"], "the login had no TLS: {error}");

    let tls = || ConnectError::Tls { at: "h".to_owned(), problem: "alert".to_owned() };
    let sent = || ConnectError::TooManyConnections {
        at: "h".to_owned(),
        message: String::new(),
        raise: String::new(),
    };
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
