//! A PostgreSQL server with TLS, certificates and users of each kind, for the tests of connecting.
//!
//! One server is shared by the tests that run at the same time; the last one stops it.
//!
//! | user | may connect |
//! |---|---|
//! | `postgres`, `a b`, the OS user | always |
//! | `limited` | never, having a connection limit of 0 |
//! | `keen` | always, by password `s3cr:et\word` |
//! | `latin` | by the socket, by a password that is not UTF-8 |
//! | `tls_only` | by TCP with TLS |
//! | `plain_only` | by TCP without TLS |
//! | `cert_only` | by TCP with TLS and the client certificate |
//! | `no_tls_password` | as `keen`, but by TCP with TLS only |

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, Weak};

use pgio_connect::Env;
use tempfile::TempDir;

use pgio_tests::timing;

pub(crate) const PASSWORD: &str = r"s3cr:et\word";

const HBA: &str = "\
local all keen,latin scram-sha-256
local all all trust
hostssl all tls_only all trust
host all tls_only all reject
hostnossl all plain_only all trust
host all plain_only all reject
hostssl all cert_only all cert
hostssl all no_tls_password all scram-sha-256
host all no_tls_password all reject
host all keen all scram-sha-256
host all all all trust
";

pub(crate) struct TlsServer {
    /// Root of everything: `data`, the socket, the certificates.
    pub(crate) dir: TempDir,
    /// A home directory with nothing in it.
    pub(crate) home: TempDir,
    pub(crate) port: u16,
    bin: PathBuf,
    owner: Option<(u32, u32)>,
}

/// The server all tests share, started if it does not run.
pub(crate) fn shared() -> Option<Arc<TlsServer>> {
    if !possible() {
        return None;
    }
    timing::begin();
    static SHARED: Mutex<Weak<TlsServer>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap();
    Some(shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(TlsServer::start(Some(
            "subjectAltName=DNS:localhost,DNS:*.lan,DNS:*.corp.example",
        )));
        *shared = Arc::downgrade(&server);
        server
    }))
}

impl TlsServer {
    /// Starts a server whose certificate, for CN localhost, has this X.509 version 3 extension;
    /// without one, it is of version 1.
    pub(crate) fn start(extension: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let owner = unprivileged();
        if let Some((uid, gid)) = owner {
            chown(dir.path(), Some(uid), Some(gid)).unwrap();
        }
        // Every user may connect to the socket.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let home = tempfile::tempdir().unwrap();
        let server =
            TlsServer { dir, home, port, bin: find_bin().expect("asked by `possible`"), owner };
        server.make_certificates(extension);
        server.make_cluster();
        let (data, log) = (server.text("data"), server.text("log"));
        server.run("pg_ctl", &["start", "--wait", "-D", &data, "--log", &log]);
        server.make_roles();
        server
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn socket_dir(&self) -> String {
        self.dir.path().to_str().unwrap().to_owned()
    }

    /// An environment with nothing in it but these variables.
    pub(crate) fn env(&self, vars: &[(&str, &str)]) -> Env {
        Env {
            vars: vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect(),
            home: Some(self.home.path().to_owned()),
            user: Env::from_process().user,
            socket_dir: self.dir.path().to_owned(),
            sysconf_dirs: Vec::new(),
        }
    }

    /// psql in that environment, without the user's settings.
    pub(crate) fn psql(&self, vars: &BTreeMap<String, OsString>) -> Command {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-X", "-w", "-q"]).env_clear().env("HOME", self.home.path()).envs(vars);
        psql
    }

    fn make_cluster(&self) {
        let data = self.text("data");
        let arguments =
            ["-D", &data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"];
        self.run("initdb", &arguments);
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n\
             max_connections = 60\nssl = on\nssl_cert_file = '{}'\n\
             ssl_key_file = '{}'\nssl_ca_file = '{}'\n",
            self.port,
            self.socket_dir(),
            self.text("server.crt"),
            self.text("server.key"),
            self.text("ca.crt"),
        );
        // A byte of Latin-1, which PostgreSQL and psql accept.
        let settings = [settings.as_bytes(), b"log_line_prefix = '%m B\xfcro '\n"].concat();
        fs::write(self.file("data/postgresql.auto.conf"), settings).unwrap();
        fs::write(self.file("data/pg_hba.conf"), HBA).unwrap();
    }

    fn make_roles(&self) {
        let os_user = Env::from_process().user;
        let sql = format!(
            r#"create database "my db"; create database "a'b=c\d/e";
            create role keen login password '{PASSWORD}';
            create role no_tls_password login password '{PASSWORD}';
            create role tls_only login; create role plain_only login; create role cert_only login;
            create role limited login connection limit 0; create role "a b" login;
            select 'create role "{os_user}" login'
             where not exists (select from pg_roles where rolname = '{os_user}') \gexec
            "#
        );
        fs::write(self.file("roles.sql"), sql).unwrap();
        let (roles, dir, port) = (self.text("roles.sql"), self.socket_dir(), self.port.to_string());
        let mut psql = self.psql(&BTreeMap::new());
        psql.args([
            "-h",
            &dir,
            "-p",
            &port,
            "-U",
            "postgres",
            "-v",
            "ON_ERROR_STOP=1",
            "-f",
            &roles,
        ]);
        succeed(&mut psql);
    }

    /// Creates an authority, an untrusted one, and certificates of server and client.
    fn make_certificates(&self, server_extension: Option<&str>) {
        for ca in ["ca", "other_ca"] {
            self.openssl(&format!(
                "req -x509 -nodes -days 3650 -newkey ec -pkeyopt ec_paramgen_curve:P-256 \
                 -subj /CN={ca} -keyout {ca}.key -out {ca}.crt"
            ));
        }
        for (name, cn, extension) in [
            ("server", "localhost", server_extension),
            ("client", "cert_only", Some("extendedKeyUsage=clientAuth")),
        ] {
            fs::write(self.file("ext"), extension.unwrap_or_default()).unwrap();
            let extend = extension.map_or("", |_| "-extfile ext");
            self.openssl(&format!(
                "req -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 \
                 -subj /CN={cn} -keyout {name}.key -out {name}.csr"
            ));
            self.openssl(&format!(
                "x509 -req -days 3650 -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial \
                 {extend} -out {name}.crt"
            ));
            let key = self.file(&format!("{name}.key"));
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        }
        if let Some((uid, gid)) = self.owner {
            chown(self.file("server.key"), Some(uid), Some(gid)).unwrap();
        }
    }

    fn openssl(&self, arguments: &str) {
        let mut openssl = Command::new("openssl");
        succeed(openssl.args(arguments.split_whitespace()).current_dir(self.dir.path()));
    }

    /// A server program, run as the server's owner.
    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(self.bin.join(program));
        if let Some((uid, gid)) = self.owner {
            command.uid(uid).gid(gid);
        }
        // The owner may not be allowed into the directory we are in.
        succeed(command.args(arguments).current_dir(self.dir.path()));
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        if self.file("data/postmaster.pid").exists() {
            self.run("pg_ctl", &["stop", "--mode=immediate", "-D", &self.text("data")]);
        }
    }
}

pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// PostgreSQL refuses to run as root: then the user postgres owns the server.
fn unprivileged() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.starts_with("postgres:"))?;
    let fields: Vec<_> = line.split(':').collect();
    Some((fields[2].parse().unwrap(), fields[3].parse().unwrap()))
}

/// The newest installed server that has psql beside it, to compare with.
fn find_bin() -> Option<PathBuf> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<_> = installed.map(|entry| entry.path().join("bin")).collect();
    let by_pg_config = Command::new("pg_config").arg("--bindir").output().ok();
    versions.extend(by_pg_config.map(|o| String::from_utf8_lossy(&o.stdout).trim().into()));
    versions.retain(|bin| bin.join("initdb").exists() && bin.join("psql").exists());
    versions.sort();
    versions.pop()
}

/// Whether these tests can run here: they need what a machine with Rust alone does not have.
pub(crate) fn possible() -> bool {
    let openssl = Command::new("openssl").arg("version").output().is_ok();
    let owned = !rustix::process::geteuid().is_root() || unprivileged().is_some();
    let possible = openssl && owned && find_bin().is_some();
    if !possible {
        pgio_tests::skipped("needs an installed PostgreSQL with psql, its user, and openssl");
    }
    possible
}
