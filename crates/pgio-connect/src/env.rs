//! The process environment as a value, so that the other modules do not read it and tests can fake
//! it.
//!
//! Next: `resolve`, the only reader.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

/// Facts about the process and its machine that connection parameters depend on.
#[derive(Clone, Default)]
pub struct Env {
    /// The `PG*` variables.
    pub vars: BTreeMap<String, String>,
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
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let account = passwd.lines().find_map(|line| account(line, uid));
        let (name, home) = account.unzip();
        // LDAP users are not in /etc/passwd, but their login sets these variables.
        let login = || env::var("LOGNAME").or_else(|_| env::var("USER")).ok();
        Env {
            vars: env::vars_os()
                .map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned()))
                .filter(|(name, _)| name.starts_with("PG"))
                .collect(),
            home: env::var_os("HOME").filter(|h| !h.is_empty()).map(PathBuf::from).or(home),
            user: name.or_else(login).unwrap_or_default(),
            socket_dir: default_socket_dir(Path::new("/var/run/postgresql")),
            sysconf_dirs: SYSCONF_DIRS.map(PathBuf::from).into(),
        }
    }

    pub(super) fn var(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str)
    }
}

/// Packages use /var/run/postgresql; a server compiled from source uses /tmp.
fn default_socket_dir(packaged: &Path) -> PathBuf {
    if packaged.is_dir() { packaged.to_owned() } else { PathBuf::from("/tmp") }
}

/// Name and home directory from a line of /etc/passwd, if it is the line of this user.
fn account(line: &str, uid: u32) -> Option<(String, PathBuf)> {
    let fields: Vec<_> = line.split(':').collect();
    let [name, _, id, _, _, home, ..] = fields[..] else { return None };
    (id.parse() == Ok(uid)).then(|| (name.to_owned(), PathBuf::from(home)))
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
        let line = "postgres:x:107:112:PostgreSQL,,,:/var/lib/postgresql:/bin/bash";
        let found = Some(("postgres".to_owned(), PathBuf::from("/var/lib/postgresql")));
        assert_eq!(account(line, 107), found);
        assert_eq!(account(line, 10), None);
        assert_eq!(account("+::::::", 0), None);
    }

    #[test]
    fn debug_shows_no_values() {
        let vars = BTreeMap::from([("PGPASSWORD".to_owned(), "hush".to_owned())]);
        let shown = format!("{:?}", Env { vars, ..Env::default() });
        assert!(shown.contains("PGPASSWORD") && !shown.contains("hush"), "{shown}");
    }
}
