//! Connecting to a real server: strings, environment and files compared with psql, passwords,
//! errors, and canceling.
//!
//! Next: `connecting_tls` for sslmode and certificates.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pgio_connect::Client;
use pgio_connect::{ConnectError, ConnectParams, ConnectWarning, Endpoint, Env, connect, resolve};

use crate::tls_server::{PASSWORD, TlsServer, shared, succeed};
use pgio_tests::workdir::{Workdir, experiment};

pub(crate) fn open(text: &str, env: &Env) -> Result<Client, ConnectError> {
    resolve(text, env).and_then(|params| connect(&params))
}

/// The error of an attempt that must fail, and which must not show the password.
pub(crate) fn refusal(text: &str, env: &Env) -> ConnectError {
    let error = open(text, env).err().unwrap_or_else(|| panic!("{text} must fail"));
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(PASSWORD) && !shown.contains("wrong-one"), "{shown}");
    error
}

pub(crate) fn one(client: &mut Client, sql: &str) -> String {
    client.query_one(sql, &[]).unwrap().get(0)
}

pub(crate) fn has_tls(client: &mut Client) -> bool {
    client
        .query_one("select ssl from pg_stat_ssl where pid = pg_backend_pid()", &[])
        .unwrap()
        .get(0)
}

pub(crate) fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// user, database, host and port as psql has them.
fn psqls_view(server: &TlsServer, text: &str, vars: &BTreeMap<String, OsString>) -> String {
    let mut psql = server.psql(vars);
    let shown = succeed(psql.args(["-At", "-c", r"\echo :USER :DBNAME :HOST :PORT", "-c"]).args([
        "select current_user || ' ' || current_database()",
        "-d",
        text,
    ]));
    let lines: Vec<_> = shown.lines().collect();
    // Resolved and in fact are the same thing for psql, so they had better be.
    assert!(lines[0].starts_with(lines[1]), "{shown}");
    lines[0].to_owned()
}

fn our_view(params: &ConnectParams) -> String {
    let (host, port) = match &params.hosts[0] {
        Endpoint::Socket { dir, port } => (dir.display().to_string(), port),
        Endpoint::Tcp { host, port, .. } => (host.clone(), port),
    };
    format!("{} {} {host} {port}", params.user, params.dbname)
}

#[test]
fn resolves_as_psql_does() {
    let Some(server) = shared() else { return };
    let (dir, port) = (server.socket_dir(), server.port);
    let encoded_dir = dir.replace('/', "%2F");
    let services = server.home.path().join("compared_services");
    let service = format!("[here]\nhost={dir}\nport={port}\ndbname=my db\nuser=postgres\n");
    write(&services, &service, 0o644);
    let port_text = port.to_string();
    let services = services.to_str().unwrap();
    let base: &[(&str, &str)] = &[("PGHOST", &dir), ("PGPORT", &port_text)];
    let named = [base, &[("PGUSER", "postgres")]].concat();
    let by_file = [("PGSERVICEFILE", services)];
    let in_service = [("PGSERVICEFILE", services), ("PGSERVICE", "here")];
    let contradicted =
        [&in_service[..], &[("PGHOST", "nowhere.invalid"), ("PGPORT", "1")], &[("PGUSER", "x")]]
            .concat();
    let password = [base, &[("PGUSER", "keen"), ("PGPASSWORD", PASSWORD)]].concat();
    let by_tcp = [("PGHOSTADDR", "127.0.0.1"), ("PGHOST", "localhost"), ("PGPORT", &port_text)];

    let cases: Vec<(String, &[(&str, &str)])> = vec![
        ("postgres".to_owned(), base),
        ("my db".to_owned(), &named),
        (String::new(), &named),
        (format!("host={dir} port={port} user=postgres dbname='my db'"), &[]),
        (format!("host = {dir}  port= '{port}' user =postgres dbname=my\\ db"), &[]),
        (r"dbname='a\'b=c\\d/e' user='a b'".to_owned(), base),
        ("user=postgres dbname=''".to_owned(), base),
        ("dbname=postgres user='' options='-c work_mem=1MB'".to_owned(), base),
        (format!("postgres://postgres@127.0.0.1:{port}/my%20db"), &[]),
        (format!("postgresql://{encoded_dir}:{port}/a%27b%3Dc%5Cd%2fe?user=a%20b"), &[]),
        (format!("postgresql:///postgres?host={dir}&port={port}"), &[]),
        (format!("postgres://keen:s3cr%3Aet%5Cword@localhost:{port}/postgres"), &[]),
        ("postgres://localhost/postgres?hostaddr=127.0.0.1".to_owned(), &named),
        ("dbname=postgres hostaddr=127.0.0.1 host=''".to_owned(), &by_tcp),
        ("postgres".to_owned(), &by_tcp),
        ("dbname=postgres".to_owned(), &password),
        ("service=here".to_owned(), &by_file),
        ("service=here dbname=postgres user='a b'".to_owned(), &by_file),
        ("postgres".to_owned(), &in_service),
        ("postgres://?dbname=postgres".to_owned(), &contradicted),
        ("postgres:///postgres?service=here&sslmode=disable".to_owned(), &contradicted),
        ("user=postgres dbname=postgres sslmode=allow connect_timeout=9".to_owned(), base),
    ];
    for (text, vars) in cases {
        let env = server.env(vars);
        let params = resolve(&text, &env).unwrap();
        assert_eq!(our_view(&params), psqls_view(&server, &text, &env.vars), "for {text}");
        let mut client = connect(&params).unwrap();
        let in_fact = one(&mut client, "select current_user || ' ' || current_database()");
        assert!(our_view(&params).starts_with(&in_fact), "for {text}: {in_fact}");
    }
}

#[test]
fn psqls_options_mean_the_same() {
    let Some(server) = shared() else { return };
    let (dir, port) = (server.socket_dir(), server.port);
    for text in [
        format!("-h {dir} -p {port} -U postgres postgres"),
        format!("-h127.0.0.1 -wp {port} -Upostgres -d postgres"),
        format!("--host={dir} --port {port} --no-password postgres postgres"),
        format!("postgres -p {port} -h {dir} -U keen"),
        format!("-h nowhere.invalid -p 1 -d postgresql://postgres@127.0.0.1:{port}/postgres"),
    ] {
        let env = server.env(&[("PGPASSWORD", PASSWORD)]);
        let params = resolve(&text, &env).unwrap();
        let sql = r"\echo :USER :DBNAME :HOST :PORT";
        let mut psql = server.psql(&env.vars);
        let psqls = succeed(psql.args(["-c", sql]).args(text.split(' ')));
        assert_eq!(our_view(&params), psqls.trim_end(), "{text}");
        assert!(connect(&params).is_ok(), "{text}");
    }
}

#[test]
fn a_password_is_sent_as_its_bytes() {
    let Some(server) = shared() else { return };
    let (dir, port) = (server.socket_dir(), server.port);
    let at = format!("host={dir} port={port}");
    let sql = server.home.path().join("latin.sql");
    for (database, text) in [
        ("postgres", &b"create database ascii encoding 'SQL_ASCII' template template0"[..]),
        ("ascii", b"create role latin login password 'p\xfcw'"),
    ] {
        fs::write(&sql, text).unwrap();
        let mut psql = server.psql(&BTreeMap::new());
        let target = format!("{at} user=postgres dbname={database}");
        succeed(psql.args(["-v", "ON_ERROR_STOP=1", "-d", &target, "-f"]).arg(&sql));
    }
    let exact = OsStr::from_bytes(b"p\xfcw");
    let latin = format!("{at} user=latin dbname=ascii");
    let mut env = server.env(&[]);
    env.vars.insert("PGPASSWORD".to_owned(), exact.to_owned());
    succeed(server.psql(&env.vars).args(["-c", "", "-d", &latin]));
    assert!(open(&latin, &env).is_ok(), "by PGPASSWORD");
    let uri = format!("postgresql://latin:p%FCw@/ascii?host={dir}&port={port}");
    assert!(open(&uri, &server.env(&[])).is_ok(), "by a URI");
    let file = server.home.path().join("latin.pgpass");
    fs::write(&file, b"*:*:ascii:latin:p\xfcw\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let by_file = server.env(&[("PGPASSFILE", file.to_str().unwrap())]);
    assert!(open(&latin, &by_file).is_ok(), "by a password file");
}

/// A setting (see `TlsServer`), and the names of a database without an encoding.
#[test]
fn text_of_the_server_that_is_not_utf8_is_only_shown() {
    let Some(server) = shared() else { return };
    let at = format!("host={} port={} user=postgres", server.socket_dir(), server.port);
    let work = Workdir::new();
    let file = work.path().join("names.sql");
    for (database, text) in [
        (
            "postgres",
            &b"create database names encoding 'SQL_ASCII' template template0; create database \"n\xfcmes\""[..],
        ),
        ("names", b"create table \"t\xfcr\" (i int); comment on table \"t\xfcr\" is 'B\xfcro'"),
    ] {
        fs::write(&file, text).unwrap();
        let target = format!("{at} dbname={database}");
        succeed(server.psql(&BTreeMap::new()).args(["-d", &target, "-f"]).arg(&file));
    }
    let names = format!("{at} dbname=names");
    let load = ["--scale", "8M", "--num-schemas", "1", "--num-threads", "1"];
    let server_args = ["--connect-string", &names];
    work.pgio(
        &[
            &["setup"][..],
            &server_args,
            &load,
            &["--create-base-table", "FALSE", "--classic-files", "."],
        ]
        .concat(),
    )
    .expect(0, &[]);
    let sizes = fs::read_to_string(work.path().join("pgio_data_load_table_sizes.out")).unwrap();
    assert!(sizes.contains("t\u{fffd}r"), "{sizes}");
    let small = ["--run-time", "300ms", "--work-unit", "8", "--scale", "8M"];
    work.pgio(&[&["run"][..], &server_args, &small].concat()).expect(0, &[]);
    let doctor = work.pgio(&[&["doctor"][..], &server_args].concat());
    assert!(doctor.out.contains("PostgreSQL 1"), "{doctor}");
    let conditions = [("a", ""), ("b", "wal_writer_delay = \"10ms\"")];
    let keys = "blocks = 1\nduration = \"300ms\"\naa = false\nburn_in = false";
    let experiment = experiment(&names, keys, "", &conditions);
    let ran = work.compare(&experiment).expect(0, &[]);
    assert!(!ran.err.contains("panicked"), "{ran}");
    let trials = fs::read_to_string(work.out().join("trials.jsonl")).unwrap();
    assert!(trials.contains("B\u{fffd}ro"), "{trials}");
    let conf = fs::read(server.file("data/postgresql.auto.conf")).unwrap();
    assert!(conf.windows(4).any(|part| part == b"B\xfcro"), "the undo keeps the bytes");
    work.pgio(&[&["destroy", "--yes"][..], &server_args].concat()).expect(0, &[]);
}

#[test]
fn refuses_what_psql_refuses() {
    let Some(server) = shared() else { return };
    for (text, vars) in [
        ("host=a port", vec![]),
        ("hots=a", vec![]),
        ("user='a", vec![]),
        ("postgres://h/%", vec![]),
        ("postgres://h?x=1", vec![]),
        ("postgres://[::1", vec![]),
        ("port=0", vec![]),
        ("host=a,b port=1,2,3", vec![]),
        ("sslmode=always", vec![]),
        ("sslmode=verify-full host=localhost sslrootcert=/none", vec![]),
        ("connect_timeout=soon", vec![]),
        ("target_session_attrs=best", vec![]),
        ("service=none", vec![]),
        ("service=none", vec![("PGSERVICEFILE", "/none")]),
        ("", vec![("PGPORT", "many")]),
        ("", vec![("PGSSLMODE", "maybe")]),
    ] {
        let mut vars = vars;
        let port = server.port.to_string();
        if !text.contains("port") && !vars.iter().any(|(name, _)| *name == "PGPORT") {
            vars.push(("PGPORT", &port));
        }
        let env = server.env(&vars);
        refusal(text, &env);
        let status = server.psql(&env.vars).args(["-c", "", "-d", text]).output().unwrap().status;
        assert!(!status.success(), "psql takes {text} {vars:?}");
    }
}

#[test]
fn each_variable_reaches_the_server() {
    let Some(server) = shared() else { return };
    let port = server.port.to_string();
    let dir = server.socket_dir();
    let base: &[(&str, &str)] = &[("PGHOST", &dir), ("PGPORT", &port), ("PGDATABASE", "postgres")];
    let shown = |more: &[(&str, &str)], sql: &str| {
        one(&mut open("", &server.env(&[base, more].concat())).unwrap(), sql)
    };
    assert_eq!(shown(&[("PGUSER", "a b")], "select current_user::text"), "a b");
    assert_eq!(shown(&[("PGAPPNAME", "an app")], "show application_name"), "an app");
    assert_eq!(shown(&[], "show application_name"), "pgio");
    assert_eq!(shown(&[("PGOPTIONS", "-c work_mem=77kB")], "show work_mem"), "77kB");
    assert_eq!(shown(&[("PGTARGETSESSIONATTRS", "primary")], "show in_hot_standby"), "off");
    let keen = [("PGUSER", "keen"), ("PGPASSWORD", PASSWORD), ("PGCONNECT_TIMEOUT", "20")];
    assert_eq!(shown(&keen, "select current_user::text"), "keen");

    let ca = server.text("ca.crt");
    let by_tls = [
        ("PGHOST", "localhost"),
        ("PGHOSTADDR", "127.0.0.1"),
        ("PGUSER", "tls_only"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", &ca),
    ];
    let by_tls = server.env(&[&by_tls[..], &base[1..]].concat());
    assert!(has_tls(&mut open("", &by_tls).unwrap()));

    let standby = server.env(&[base, &[("PGTARGETSESSIONATTRS", "standby")]].concat());
    assert!(matches!(refusal("", &standby), ConnectError::WrongSession { .. }));
    let read_only = "target_session_attrs=read-only options='-c default_transaction_read_only=on'";
    assert!(open(read_only, &server.env(base)).is_ok());
    let read_write =
        "target_session_attrs=read-write options='-c default_transaction_read_only=on'";
    let error = refusal(read_write, &server.env(base));
    assert!(error.to_string().contains("is not open for writing"), "{error}");
    assert!(open("target_session_attrs=prefer-standby", &server.env(base)).is_ok());
}

#[test]
fn database_and_application_name_override_the_conninfo() {
    let Some(server) = shared() else { return };
    let text = format!("host={} port={} user=postgres", server.socket_dir(), server.port);
    let params = resolve(&text, &server.env(&[])).unwrap();
    let params = params.with_dbname("my db").with_application_name("probe");
    let expected = format!("my db on {}:{} as postgres", server.socket_dir(), server.port);
    assert_eq!(params.describe(), expected);
    let mut client = connect(&params).unwrap();
    let sql = "select current_database() || ' ' || current_setting('application_name')";
    assert_eq!(one(&mut client, sql), "my db probe");
}

#[test]
fn the_password_file_is_used_and_its_errors_are_reported() {
    let Some(server) = shared() else { return };
    let passfile = server.file("passfile");
    let env = server.env(&[("PGPASSFILE", passfile.to_str().unwrap())]);
    let port = server.port;
    let by_tcp = format!("host=localhost hostaddr=127.0.0.1 port={port} user=keen dbname=postgres");
    let by_socket = format!("host={} port={port} user=keen dbname=postgres", server.socket_dir());
    let line = format!("localhost:{port}:postgres:keen:s3cr\\:et\\\\word\n");

    write(&passfile, &line, 0o600);
    assert!(open(&by_tcp, &env).is_ok());
    // env() says that the server's directory is the default one, for which localhost stands.
    assert!(open(&by_socket, &env).is_ok());
    write(&passfile, &line.replace("postgres", "other"), 0o600);
    let miss = refusal(&by_tcp, &env);
    assert!(matches!(miss, ConnectError::Authentication { .. }), "{miss}");
    assert!(miss.to_string().contains("no line of"), "{miss}");

    write(&passfile, &format!("*:*:*:keen:wrong-one\n{line}"), 0o600);
    let wrong = refusal(&by_tcp, &env);
    assert!(wrong.to_string().contains("the password is from"), "{wrong}");

    write(&passfile, &line, 0o644);
    let exposed = refusal(&by_tcp, &env);
    assert!(matches!(exposed, ConnectError::Passfile { .. }), "{exposed}");
    assert!(exposed.to_string().contains("chmod 0600"), "{exposed}");
    let params = resolve(&by_tcp, &env).unwrap();
    assert_eq!(params.warnings(), [ConnectWarning::PassfileExposed(passfile)]);
}

#[test]
fn errors_are_distinguished() {
    let Some(server) = shared() else { return };
    let env = server.env(&[]);
    let port = server.port;
    let at = format!("host=localhost hostaddr=127.0.0.1 port={port} dbname=postgres");

    for mode in ["disable", "allow", "prefer", "require"] {
        let text = format!("{at} user=keen password=wrong-one sslmode={mode}");
        let error = refusal(&text, &env);
        assert!(matches!(error, ConnectError::Authentication { .. }), "{error}");
        assert!(error.to_string().contains("`keen`"), "{error}");
    }
    // The refusal without TLS, which comes second, must not hide that the password was wrong.
    let error = refusal(&format!("{at} user=no_tls_password password=wrong-one"), &env);
    let ConnectError::Authentication { message, .. } = &error else { panic!("{error}") };
    assert!(message.contains("password authentication failed"), "{error}");

    let error = refusal(&format!("{at} user=keen"), &env);
    assert!(error.to_string().contains("requires a password, and none was given"), "{error}");
    let error = refusal(&format!("{at} user=nobody_knows"), &env);
    assert!(error.to_string().contains("role \"nobody_knows\" does not exist"), "{error}");
    let error = refusal(&format!("{at} user=limited"), &env);
    assert!(matches!(error, ConnectError::TooManyConnections { .. }), "{error}");
    let error = refusal(&format!("{at} user=postgres dbname=pgio"), &env);
    assert!(matches!(error, ConnectError::NoDatabase { .. }), "{error}");
    assert!(error.to_string().contains("createdb pgio"), "{error}");
    let error = refusal(&format!("{at} user=postgres options='-c no_such_thing=1'"), &env);
    assert!(matches!(error, ConnectError::Server { .. }), "{error}");
}

#[test]
fn unreachable_servers_are_named() {
    let Some(server) = shared() else { return };
    let env = server.env(&[]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = refusal(&format!("host=127.0.0.1 port={free}"), &env);
    assert!(matches!(refused, ConnectError::Unreachable { .. }), "{refused}");
    assert!(refused.to_string().contains(&format!("127.0.0.1:{free}")), "{refused}");
    assert!(refused.to_string().contains("listen_addresses"), "{refused}");

    let no_socket = refusal(&format!("host=/ port={free}"), &env);
    assert!(no_socket.to_string().contains("unix_socket_directories"), "{no_socket}");
    let unknown = refusal("host=nowhere.invalid", &env);
    assert!(unknown.to_string().contains("name resolution"), "{unknown}");

    let (dir, port) = (server.socket_dir(), server.port);
    let second = format!("host=127.0.0.1,/,{dir} port={free},{free},{port} user=postgres");
    assert!(open(&second, &env).is_ok());
    let none = refusal(&format!("host=127.0.0.1,/ port={free}"), &env);
    assert!(matches!(&none, ConnectError::NoneOf(tried) if tried.len() == 2), "{none}");
}

#[test]
fn a_silent_server_times_out() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let Some(server) = shared() else { return };
    let text = format!("host=127.0.0.1 port={port} connect_timeout=1");
    let error = refusal(&text, &server.env(&[]));
    assert!(matches!(error, ConnectError::TimedOut { seconds: 2, .. }), "{error}");
}

#[test]
fn a_statement_is_cancelled_from_another_thread() {
    let Some(server) = shared() else { return };
    let port = server.port;
    let ca = server.text("ca.crt");
    let by_tls = format!(
        "host=localhost hostaddr=127.0.0.1 port={port} sslmode=verify-full sslrootcert={ca}"
    );
    let by_socket = format!("host={} port={port}", server.socket_dir());
    let plain = format!("host=127.0.0.1 port={port} sslmode=disable");
    for (text, tls) in [(by_tls, true), (by_socket, false), (plain, false)] {
        let params =
            resolve(&format!("{text} user=postgres dbname=postgres"), &server.env(&[])).unwrap();
        let mut client = connect(&params).unwrap();
        assert_eq!(has_tls(&mut client), tls, "{text}");
        let handle = client.canceller();
        let (finished, done) = mpsc::channel();
        let sleeper = thread::spawn(move || {
            let result = client.batch_execute("select pg_sleep(60)");
            finished.send(()).unwrap();
            result
        });
        // The first may come before the statement has begun.
        while done.recv_timeout(Duration::from_millis(100)) == Err(mpsc::RecvTimeoutError::Timeout)
        {
            handle.cancel().unwrap();
        }
        let error = sleeper.join().unwrap().unwrap_err();
        assert_eq!(error.code(), Some(&pgio_connect::SqlState::QUERY_CANCELED), "{text}");
    }
}
