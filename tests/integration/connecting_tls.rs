//! Every sslmode, certificates of server and client, and messages if they do not fit; compared
//! with psql where a check must be as strict as libpq's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use pgio_connect::{ConnectError, Env};

use crate::connecting::{has_tls, one, open, refusal, write};
use crate::tls_server::{self, TlsServer, shared};

#[test]
fn sslmode_decides_between_tls_and_plain() {
    let Some(server) = shared() else { return };
    let env = server.env(&[]);
    let try_as = |user: &str, mode: &str| {
        let port = server.port;
        let text = format!(
            "host=localhost hostaddr=127.0.0.1 port={port} dbname=postgres user={user} sslmode={mode}"
        );
        open(&text, &env).map(|mut client| has_tls(&mut client))
    };
    for (user, mode, tls) in [
        ("postgres", "disable", Some(false)),
        ("postgres", "allow", Some(false)),
        ("postgres", "prefer", Some(true)),
        ("postgres", "require", Some(true)),
        ("tls_only", "disable", None),
        ("tls_only", "allow", Some(true)),
        ("tls_only", "prefer", Some(true)),
        ("tls_only", "require", Some(true)),
        ("plain_only", "disable", Some(false)),
        ("plain_only", "allow", Some(false)),
        ("plain_only", "prefer", Some(false)),
        ("plain_only", "require", None),
    ] {
        assert_eq!(try_as(user, mode).ok(), tls, "{user} {mode}");
    }
    let socket = format!("host={} port={} user=postgres", server.socket_dir(), server.port);
    let mut client = open(&format!("{socket} sslmode=verify-full"), &env).unwrap();
    assert!(!has_tls(&mut client), "TLS is for TCP only");
}

#[test]
fn tls_versions_and_channel_binding_follow_the_conninfo() {
    let Some(server) = shared() else { return };
    let at = format!("host=localhost hostaddr=127.0.0.1 port={} dbname=postgres", server.port);
    let version = |rest: &str| {
        let mut client = open(&format!("{at} user=tls_only {rest}"), &server.env(&[])).unwrap();
        one(&mut client, "select version from pg_stat_ssl where pid = pg_backend_pid()")
    };
    assert_eq!(version("ssl_max_protocol_version=TLSv1.2"), "TLSv1.2");
    assert_eq!(version("ssl_min_protocol_version=TLSv1.3 sslsni=0"), "TLSv1.3");

    let bound = format!("{at} user=keen password='s3cr:et\\\\word' channel_binding=require");
    assert!(open(&format!("{bound} sslmode=require"), &server.env(&[])).is_ok());
    let unbound = refusal(&format!("{bound} sslmode=disable"), &server.env(&[]));
    assert!(unbound.to_string().contains("channel binding"), "{unbound}");
}

fn by_tcp(server: &TlsServer) -> String {
    format!("hostaddr=127.0.0.1 port={} dbname=postgres user=postgres", server.port)
}

/// Whether the session got TLS, `None` if there is none; and psql must agree.
fn tls_as_psql(server: &TlsServer, rest: &str) -> Option<bool> {
    let text = format!("{} {rest}", by_tcp(server));
    let env = server.env(&[]);
    let ours = open(&text, &env).ok().map(|mut client| has_tls(&mut client));
    let sql = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    let output = server.psql(&env.vars).args(["-At", "-c", sql, "-d", &text]).output().unwrap();
    let psqls = String::from_utf8(output.stdout).unwrap();
    assert_eq!(psqls.trim(), ours.map_or("", |tls| if tls { "t" } else { "f" }), "{rest}");
    ours
}

#[test]
fn certificates_are_checked_as_psql_checks_them() {
    let Some(server) = shared() else { return };
    let port = server.port;
    // A certificate names the host; hostaddr is its address.
    let elsewhere = format!(
        "host=nowhere.invalid hostaddr=127.0.0.1 port={port} dbname=postgres user=tls_only"
    );
    assert!(open(&elsewhere, &server.env(&[])).is_ok());
    let (ca, other, own) =
        (server.text("ca.crt"), server.text("other_ca.crt"), server.text("server.crt"));
    for (host, mode, root, tls) in [
        ("localhost", "verify-ca", &ca, Some(true)),
        ("127.0.0.1", "verify-ca", &ca, Some(true)),
        ("localhost", "verify-ca", &other, None),
        ("localhost", "verify-full", &ca, Some(true)),
        ("127.0.0.1", "verify-full", &ca, None),
        ("localhost", "verify-full", &other, None),
        // With a root certificate, require means verify-ca, and prefer goes without TLS.
        ("127.0.0.1", "require", &ca, Some(true)),
        ("localhost", "require", &other, None),
        ("localhost", "prefer", &other, Some(false)),
        ("localhost", "require", &"/none".to_owned(), Some(true)),
        ("localhost", "verify-ca", &"/none".to_owned(), None),
    ] {
        let case = format!("{host} {mode} {root}");
        let rest = format!("host={host} sslmode={mode} sslrootcert={root}");
        assert_eq!(tls_as_psql(&server, &rest), tls, "{case}");
    }
    // The server's own certificate in place of an authority's.
    let text = format!(
        "host=localhost hostaddr=127.0.0.1 port={port} dbname=postgres user=postgres \
         sslmode=verify-full sslrootcert={own}"
    );
    assert!(open(&text, &server.env(&[])).is_ok());
}

#[test]
fn any_host_name_has_tls_as_with_psql() {
    let Some(server) = shared() else { return };
    let ca = server.text("ca.crt");
    let long = format!("{}.lan", "a".repeat(64));
    for (host, verified) in [
        ("db.lan", true),
        ("bücher.lan", true),
        (&long, true),
        ("db.corp.example", true),
        ("db_1.lan", true),
        ("a.db.lan", false),
        ("lan", false),
        ("bücher.example", false),
        ("db-.example", false),
    ] {
        for (mode, tls) in [
            ("prefer", Some(true)),
            ("require", Some(true)),
            ("verify-full", verified.then_some(true)),
        ] {
            let root = if mode == "verify-full" { &ca } else { "" };
            let rest = format!("host={host} sslmode={mode} sslrootcert={root}");
            assert_eq!(tls_as_psql(&server, &rest), tls, "{host} {mode}");
        }
    }
    // The engine's own sessions go the same way.
    let text = format!("{} host='a b' sslmode=verify-ca sslrootcert={ca}", by_tcp(&server));
    let params = pgio_connect::resolve(&text, &server.env(&[])).unwrap();
    let route = pgio_connect::connect(&params).unwrap().route().clone();
    let sql = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    let rows = pgio_connect::Wire::open(&params, &route).unwrap().query(sql).unwrap();
    assert_eq!(rows[0][0].as_deref(), Some("t"));
}

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn going_on_without_tls_is_said_once() {
    let Some(server) = shared() else { return };
    pgio_connect::on_warning(|warning| WARNINGS.lock().unwrap().push(warning.to_string()));
    for (name, rest) in [
        ("untrusted", format!("user=postgres sslrootcert={}", server.text("other_ca.crt"))),
        ("refused", "user=plain_only".to_owned()),
    ] {
        let text =
            format!("hostaddr=127.0.0.1 port={} dbname=postgres host={name} {rest}", server.port);
        for _ in 0..2 {
            assert!(!has_tls(&mut open(&text, &server.env(&[])).unwrap()), "{text}");
        }
        let told = WARNINGS.lock().unwrap().clone();
        let told: Vec<_> = told.iter().filter(|warning| warning.contains(name)).collect();
        assert!(told.len() == 1 && told[0].contains("has no TLS: "), "{told:?}");
    }
    let text = format!("{} host=localhost", by_tcp(&server));
    assert!(has_tls(&mut open(&text, &server.env(&[])).unwrap()));
}

#[test]
fn certificates_as_the_manual_makes_them_are_taken() {
    if !tls_server::possible() {
        return;
    }
    let with_cn = TlsServer::start(Some("basicConstraints=CA:FALSE"));
    let ca = with_cn.text("ca.crt");
    for (rest, tls) in [
        ("host=localhost sslmode=verify-full", Some(true)),
        ("host=LocalHost sslmode=verify-full", Some(true)),
        ("host=127.0.0.1 sslmode=verify-full", None),
        ("host=127.0.0.1 sslmode=verify-ca", Some(true)),
    ] {
        assert_eq!(tls_as_psql(&with_cn, &format!("{rest} sslrootcert={ca}")), tls, "{rest}");
    }
    drop(with_cn);

    let version_1 = TlsServer::start(None);
    for mode in ["prefer", "require"] {
        let rest = format!("host=localhost sslmode={mode}");
        assert_eq!(tls_as_psql(&version_1, &rest), Some(true), "{mode}");
    }
    let own = version_1.text("server.crt");
    let rest = format!("host=localhost sslmode=verify-ca sslrootcert={own}");
    assert_eq!(
        open(&format!("{} {rest}", by_tcp(&version_1)), &version_1.env(&[]))
            .ok()
            .map(|mut c| has_tls(&mut c)),
        Some(true)
    );
    // psql can check this but pgio cannot, so pgio must report an error.
    let ca = version_1.text("ca.crt");
    let text = format!("{} host=localhost sslmode=verify-ca sslrootcert={ca}", by_tcp(&version_1));
    let error = refusal(&text, &version_1.env(&[]));
    assert!(error.to_string().contains("version 3"), "{error}");
}

#[test]
fn tls_errors_say_what_to_do() {
    let Some(server) = shared() else { return };
    let env = server.env(&[]);
    let port = server.port;
    let (ca, other) = (server.text("ca.crt"), server.text("other_ca.crt"));
    let says = |rest: &str, expected: &str| {
        let text = format!("hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres {rest}");
        let error = refusal(&text, &env);
        assert!(error.to_string().contains(expected), "{error}");
    };
    says(&format!("host=localhost sslmode=verify-ca sslrootcert={other}"), &other);
    says(&format!("host=127.0.0.1 sslmode=verify-full sslrootcert={ca}"), "sslmode=verify-ca");
    says("host=localhost sslmode=verify-full", "give sslrootcert=FILE");
    says("host=localhost sslmode=verify-ca sslrootcert=/none", "/none: not found");
    says("host=localhost sslrootcert=system", "the system's trust store");
    says(&format!("host=localhost sslmode=require sslrootcert={}", server.text("ext")), "PEM");
}

#[test]
fn a_client_certificate_is_shown() {
    let Some(server) = shared() else { return };
    let at = format!(
        "host=localhost hostaddr=127.0.0.1 port={} dbname=postgres user=cert_only sslmode=require",
        server.port
    );
    let (cert, key) = (server.text("client.crt"), server.text("client.key"));
    let env = server.env(&[]);
    let given = format!("{at} sslcert={cert} sslkey={key}");
    let mut client = open(&given, &env).unwrap();
    let dn = "select client_dn from pg_stat_ssl where pid = pg_backend_pid()";
    assert_eq!(one(&mut client, dn), "/CN=cert_only");
    assert!(open(&at, &server.env(&[("PGSSLCERT", &cert), ("PGSSLKEY", &key)])).is_ok());

    let missing = refusal(&at, &env);
    assert!(matches!(missing, ConnectError::Authentication { .. }), "{missing}");
    assert!(open(&format!("{given} sslcertmode=disable"), &env).is_err());
    let no_key = refusal(&format!("{at} sslcert={cert}"), &env);
    assert!(matches!(no_key, ConnectError::TlsFile { .. }), "{no_key}");
    let wrong_key = format!("{at} sslcert={cert} sslkey={}", server.text("other_ca.key"));
    assert!(matches!(refusal(&wrong_key, &env), ConnectError::TlsFile { .. }));

    let home = tempfile::tempdir().unwrap();
    let own = home.path().join(".postgresql");
    fs::create_dir(&own).unwrap();
    fs::copy(&cert, own.join("postgresql.crt")).unwrap();
    write(&own.join("postgresql.key"), &fs::read_to_string(&key).unwrap(), 0o600);
    fs::copy(server.file("ca.crt"), own.join("root.crt")).unwrap();
    let env = Env { home: Some(home.path().to_owned()), ..server.env(&[]) };
    assert!(open(&at.replace("require", "verify-full"), &env).is_ok());
    fs::set_permissions(own.join("postgresql.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let exposed = refusal(&at, &env);
    assert!(exposed.to_string().contains("chmod 0600"), "{exposed}");
}
