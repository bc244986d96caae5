//! Opens a session: tries the hosts in turn, with or without TLS, by libpq's rules.
//!
//! Next: `login` opens one session at one address.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::attempt::Attempt;
use super::client::Client;
use super::error::{ConnectError, ConnectWarning};
use super::login::Failed;
use super::params::{ConnectParams, SessionAttrs, SslMode};
use super::socket::{Encryption, Endpoint, Route};

/// Opens a session on the first suitable host.
///
/// # Errors
///
/// As in libpq, the next host is tried if a host is unreachable, is starting up or does not satisfy
/// `target_session_attrs`; any other error ends the search.
pub fn connect(params: &ConnectParams) -> Result<Client, ConnectError> {
    let passes: &[SessionAttrs] = match params.session_attrs {
        SessionAttrs::PreferStandby => &[SessionAttrs::Standby, SessionAttrs::Any],
        _ => &[params.session_attrs],
    };
    let mut failed = Vec::new();
    for wanted in passes {
        failed.clear();
        for endpoint in &params.hosts {
            match try_host(params, endpoint, *wanted, &mut failed) {
                Ok(Some(client)) => return Ok(client),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
    }
    match failed.len() {
        1 => Err(failed.remove(0)),
        _ => Err(ConnectError::NoneOf(failed)),
    }
}

fn try_host(
    params: &ConnectParams,
    endpoint: &Endpoint,
    wanted: SessionAttrs,
    failed: &mut Vec<ConnectError>,
) -> Result<Option<Client>, ConnectError> {
    let addresses = match addresses(endpoint) {
        Ok(addresses) => addresses,
        Err(error) => {
            failed.push(error);
            return Ok(None);
        }
    };
    for address in addresses {
        let opened = attempt_all_modes(params, endpoint, address);
        match opened.and_then(|client| check(client, params, wanted)) {
            Ok(client) => return Ok(Some(client)),
            Err(error) if tries_next_host(&error) => failed.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn tries_next_host(error: &ConnectError) -> bool {
    use ConnectError::{NotReady, TimedOut, Unreachable, WrongSession};
    matches!(error, Unreachable { .. } | TimedOut { .. } | NotReady { .. } | WrongSession { .. })
}

/// `None` means the socket.
fn addresses(endpoint: &Endpoint) -> Result<Vec<Option<SocketAddr>>, ConnectError> {
    let (host, port) = match endpoint {
        Endpoint::Socket { .. } => return Ok(vec![None]),
        Endpoint::Tcp { addr: Some(addr), .. } => return Ok(vec![Some(*addr)]),
        Endpoint::Tcp { host, port, .. } => (host.as_str(), *port),
    };
    let found = (host, port).to_socket_addrs().map_err(|e| ConnectError::Unreachable {
        at: endpoint.to_string(),
        problem: e.to_string(),
        check: "the spelling of the host name and name resolution on this machine",
        kind: None,
    })?;
    Ok(found.map(Some).collect())
}

/// Tries one address with TLS, without TLS, or both in turn.
fn attempt_all_modes(
    params: &ConnectParams,
    endpoint: &Endpoint,
    address: Option<SocketAddr>,
) -> Result<Client, ConnectError> {
    let mode = match endpoint {
        // PostgreSQL has no TLS on Unix-domain sockets, and libpq ignores sslmode there.
        Endpoint::Socket { .. } => SslMode::Disable,
        Endpoint::Tcp { .. } => params.ssl.mode,
    };
    let route = |encryption| Route { endpoint: endpoint.clone(), address, encryption };
    let open = |encryption| Client::open(params, &route(encryption));
    let opened = match mode {
        SslMode::Disable => open(Encryption::Off),
        SslMode::Allow => match open(Encryption::Off) {
            Err(plain) if plain.refused => open(Encryption::Required)
                .map_err(|tls| Failed::from(more_helpful(tls.error, plain.error))),
            other => other,
        },
        SslMode::Prefer => match open(Encryption::IfOffered) {
            Err(tls) if allows_plain(&tls) => match open(Encryption::Off) {
                Ok(client) => {
                    warn(client.route().to_string(), tls.error.to_string());
                    Ok(client)
                }
                Err(plain) => Err(Failed::from(more_helpful(tls.error, plain.error))),
            },
            other => other,
        },
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => open(Encryption::Required),
    };
    opened.map_err(|failed| failed.error)
}

/// Whether libpq goes on without TLS if TLS is only preferred. Not for what pgio does not support:
/// libpq would have TLS.
fn allows_plain(failed: &Failed) -> bool {
    let tls_failed =
        matches!(failed.error, ConnectError::Tls { .. } | ConnectError::TlsFile { .. });
    if failed.encrypted { failed.refused } else { tls_failed }
}

static ON_WARNING: OnceLock<fn(&ConnectWarning)> = OnceLock::new();

/// Calls `handler` for what is found only while connecting, once for each server. Global, because a
/// program connects in many places and tells its user in one.
pub fn on_warning(handler: fn(&ConnectWarning)) {
    // The first one stays.
    let _ = ON_WARNING.set(handler);
}

/// Says that a session has no TLS although the server offers it.
fn warn(at: String, why: String) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(at.clone());
    if let Some(handler) = ON_WARNING.get().filter(|_| is_new) {
        handler(&ConnectWarning::NoTls { at, why });
    }
}

/// Returns the more helpful of two errors: the server's error over TLS, or else both combined.
fn more_helpful(tls: ConnectError, mut plain: ConnectError) -> ConnectError {
    if !matches!(tls, ConnectError::Tls { .. }) {
        return tls;
    }
    if let ConnectError::Authentication { hint: text, .. }
    | ConnectError::Server { message: text, .. } = &mut plain
    {
        text.push_str(&format!("; and {tls}"));
    }
    plain
}

/// Checks that the session satisfies target_session_attrs.
fn check(
    mut client: Client,
    params: &ConnectParams,
    wanted: SessionAttrs,
) -> Result<Client, ConnectError> {
    if wanted == SessionAttrs::Any {
        return Ok(client);
    }
    let row = client.query_one(
        "SELECT pg_catalog.pg_is_in_recovery(), \
                pg_catalog.current_setting('transaction_read_only')::pg_catalog.bool",
        &[],
    );
    let row = row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let (standby, read_only): (bool, bool) =
        row.map_err(|error| Attempt { params, route: client.route() }.failed(error))?;
    let (satisfied, wanted) = match wanted {
        SessionAttrs::Any | SessionAttrs::PreferStandby => (true, "any server"),
        SessionAttrs::ReadWrite => (!read_only, "open for writing"),
        SessionAttrs::ReadOnly => (read_only, "read-only"),
        SessionAttrs::Primary => (!standby, "a primary"),
        SessionAttrs::Standby => (standby, "a standby"),
    };
    if satisfied {
        Ok(client)
    } else {
        Err(ConnectError::WrongSession { at: client.route().to_string(), wanted })
    }
}

#[cfg(test)]
mod tests {
    //! Whether an attempt is repeated with or without TLS, against a server with prepared answers.

    use std::io::{self, Read, Write};
    use std::net::{Ipv6Addr, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::{fs, thread};

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
    fn attempts(
        mode: &str,
        env: &Env,
        tls: u8,
        answer: Vec<u8>,
    ) -> (Vec<&'static str>, ConnectError) {
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
            assert_eq!(allows_plain(&failed), expected, "{failed:?}");
        }
    }
}
