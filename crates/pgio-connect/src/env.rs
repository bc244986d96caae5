//! The process environment as a value, so that the other modules do not read it and tests can fake
//! it.
//!
//! Next: `resolve`, the only reader.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

/// Facts about the process and its machine that connection parameters depend on.
#[derive(Clone, Default)]
pub struct Env {
    /// The `PG*` variables.
    pub vars: BTreeMap<String, OsString>,
    /// The home directory, with `.pgpass`, `.pg_service.conf` and `.postgresql/`.
    pub home: Option<PathBuf>,
    /// The operating system user; empty if unknown.
    pub user: String,
    /// The directory of the server's socket if no host is given.
    pub socket_dir: PathBuf,
    /// Directories to search for `pg_service.conf`, in this order, unless PGSYSCONFDIR is set.
    pub sysconf_dirs: Vec<PathBuf>,
}

/// The directory is compiled into libpq, so it differs between packages.
const SYSCONF_DIRS: [&str; 4] =
    ["/etc/postgresql-common", "/etc/sysconfig/pgsql", "/etc/postgresql", "/usr/local/pgsql/etc"];

impl Env {
    pub fn from_process() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let passwd = fs::read("/etc/passwd");
        // An account that cannot be read is unknown: another's name in LOGNAME would be the wrong role.
        let unreadable = matches!(&passwd, Err(error) if error.kind() != ErrorKind::NotFound);
        let (name, home) = find_account(&passwd.unwrap_or_default(), uid).unzip();
        // LDAP users are not in /etc/passwd, but their login sets these variables.
        let login = || env::var("LOGNAME").or_else(|_| env::var("USER")).ok();
        Env {
            vars: env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
                .filter(|(name, _)| name.starts_with("PG"))
                .collect(),
            home: env::var_os("HOME").filter(|h| !h.is_empty()).map(PathBuf::from).or(home),
            user: name.or_else(|| login().filter(|_| !unreadable)).unwrap_or_default(),
            socket_dir: default_socket_dir(Path::new("/var/run/postgresql")),
            sysconf_dirs: SYSCONF_DIRS.map(PathBuf::from).into(),
        }
    }

    pub(super) fn var(&self, name: &str) -> Option<&OsStr> {
        self.vars.get(name).map(OsString::as_os_str)
    }
}

/// Packages use /var/run/postgresql; a server compiled from source uses /tmp.
fn default_socket_dir(packaged: &Path) -> PathBuf {
    if packaged.is_dir() { packaged.to_owned() } else { PathBuf::from("/tmp") }
}

/// Name and home directory of this user in /etc/passwd, which is bytes, as libpq reads it.
fn find_account(passwd: &[u8], uid: u32) -> Option<(String, PathBuf)> {
    passwd.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<_> = line.split(|byte| *byte == b':').collect();
        let [name, _, id, _, _, home, ..] = fields[..] else { return None };
        let is_users = std::str::from_utf8(id).is_ok_and(|id| id.parse() == Ok(uid));
        let name = String::from_utf8_lossy(name);
        is_users.then(|| (name.into_owned(), PathBuf::from(OsStr::from_bytes(home))))
    })
}

/// Shows only names, because PGPASSWORD is among the variables.
impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("vars", &self.vars.keys())
            .field("home", &self.home)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_account_by_uid() {
        let passwd = b"+::::::\nbob:x:10:10:Bob M\xfcller:/home/b\xfcro:/bin/sh\n\
                       postgres:x:107:112:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\n";
        let found = Some(("postgres".to_owned(), PathBuf::from("/var/lib/postgresql")));
        assert_eq!(find_account(passwd, 107), found);
        let home = PathBuf::from(OsStr::from_bytes(b"/home/b\xfcro"));
        assert_eq!(find_account(passwd, 10), Some(("bob".to_owned(), home)));
        assert_eq!(find_account(passwd, 0), None);
    }

    #[test]
    fn debug_shows_no_values() {
        let vars = BTreeMap::from([("PGPASSWORD".to_owned(), "hush".into())]);
        let shown = format!("{:?}", Env { vars, ..Env::default() });
        assert!(shown.contains("PGPASSWORD") && !shown.contains("hush"), "{shown}");
    }
}
