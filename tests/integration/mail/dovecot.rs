//! A Dovecot of the test's own, started by the script that pgio ships for that.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::disk;
use crate::examples::libpq_environment;
use pgio_tests::workdir::wait_until;

#[derive(Debug)]
pub(crate) struct Dovecot {
    dir: PathBuf,
    port: u16,
    /// Absent where the directory is the test's.
    _temporary: Option<TempDir>,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/dovecot.sh")
}

/// A port that nothing listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Says so where it is missing, instead of passing in silence.
pub(crate) fn is_installed(sql: bool) -> bool {
    let module = "/usr/lib/dovecot/modules/auth/libdriver_pgsql.so";
    let needed = ["/usr/sbin/dovecot", "/usr/lib/dovecot/lmtp", module];
    let needed = &needed[..if sql { 3 } else { 2 }];
    let missing = needed.iter().find(|path| !Path::new(path).exists());
    if let Some(missing) = missing {
        eprintln!(
            "mail: skipped, {missing} is missing: apt-get install dovecot-core dovecot-lmtpd dovecot-pgsql"
        );
    }
    missing.is_none()
}

impl Dovecot {
    /// With its users in a file, or in a table of this database.
    pub(crate) fn start(conninfo: Option<&str>) -> Option<Dovecot> {
        if !is_installed(conninfo.is_some()) {
            return None;
        }
        let temporary = tempfile::tempdir_in("/var/tmp").unwrap();
        // It runs as another user than root.
        fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut dovecot = Dovecot::start_in(temporary.path(), conninfo);
        dovecot._temporary = Some(temporary);
        Some(dovecot)
    }

    pub(crate) fn start_in(dir: &Path, conninfo: Option<&str>) -> Dovecot {
        let port = free_port();
        let mut arguments = vec![script(), "start".into(), dir.to_owned(), port.to_string().into()];
        arguments.extend(conninfo.map(PathBuf::from));
        let mut command = Command::new("sh");
        command.args(arguments);
        if let Some(owner) = conninfo.and_then(owner_of_socket) {
            command.env("MAIL_RUN_AS", owner);
        }
        let result = command.output().unwrap();
        assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
        wait_until("dovecot listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Dovecot { dir: dir.to_owned(), port, _temporary: None }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn workload(&self) -> String {
        format!(
            "server = \"127.0.0.1:{}\"\nmaildir = {:?}\nrecipients = \"user{{1..100}}@localhost\"",
            self.port,
            self.maildir()
        )
    }

    pub(crate) fn maildir(&self) -> String {
        self.dir.join("mail/{user}").to_str().unwrap().to_owned()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("dovecot/run/lmtp")
    }

    pub(crate) fn leave_foreign_mail(&self, user: &str) {
        let new = self.dir.join("mail").join(user).join("new");
        fs::create_dir_all(&new).unwrap();
        fs::write(new.join("1.foreign"), "Subject: not yours\n\nX-Pgio-Sha256: 1\n").unwrap();
        // As Dovecot would have made it.
        disk::run("chmod", &["-R", "a+rwX", self.dir.join("mail").to_str().unwrap()]);
    }

    pub(crate) fn files(&self) -> usize {
        files(&self.dir.join("mail"))
    }
}

/// Nobody else may enter the directory of a private cluster's socket.
fn owner_of_socket(conninfo: &str) -> Option<String> {
    let environment = libpq_environment(conninfo);
    let (_, host) =
        environment.iter().find(|(name, value)| *name == "PGHOST" && value.starts_with('/'))?;
    Some(disk::run("stat", &["-c", "%U", host]).trim().to_owned())
}

/// Messages in all mail directories below.
pub(crate) fn files(base: &Path) -> usize {
    let users = fs::read_dir(base).into_iter().flatten().flatten();
    let parts = users.flat_map(|user| ["new", "cur"].map(|part| user.path().join(part)));
    parts.filter_map(|part| fs::read_dir(part).ok()).map(Iterator::count).sum()
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        let _ = Command::new("sh").arg(script()).arg("stop").arg(&self.dir).status();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.join("dovecot/log")).unwrap_or_default();
            let last = log.lines().rev().take(15).collect::<Vec<_>>();
            eprintln!("dovecot's log, the last line first:\n{}", last.join("\n"));
        }
    }
}
