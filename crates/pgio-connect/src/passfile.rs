//! The password file: lines `host:port:database:user:password`; the first match wins.
//!
//! Matching follows libpq: `*` matches anything, a backslash escapes `:` and `\`, and `localhost`
//! matches the default socket directory. A file that other users may read is ignored, with a
//! warning.
//!
//! Next: `params` looks up the password of a host.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::endpoint::Endpoint;
use super::error::ConnectWarning;
use super::secret::Secret;

/// The lines of a password file, and the socket directory that `localhost` matches.
#[derive(Clone, Default)]
pub(super) struct Passfile {
    pub(super) path: Option<PathBuf>,
    lines: Vec<String>,
    default_socket_dir: PathBuf,
}

impl Passfile {
    /// A missing file is not an error: libpq always looks for ~/.pgpass.
    pub(super) fn read(path: &Path, default_socket_dir: &Path) -> Result<Self, ConnectWarning> {
        let unreadable =
            |e: std::io::Error| ConnectWarning::PassfileUnreadable(path.to_owned(), e.to_string());
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Passfile::default());
            }
            Err(e) => return Err(unreadable(e)),
        };
        if !meta.is_file() {
            return Err(ConnectWarning::PassfileNotPlain(path.to_owned()));
        }
        if meta.permissions().mode() & 0o077 != 0 {
            return Err(ConnectWarning::PassfileExposed(path.to_owned()));
        }
        let text = fs::read(path).map_err(unreadable)?;
        Ok(Passfile {
            path: Some(path.to_owned()),
            ..Self::parse(&String::from_utf8_lossy(&text), default_socket_dir)
        })
    }

    fn parse(text: &str, default_socket_dir: &Path) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Passfile {
            path: None,
            lines: lines.map(|line| line.trim_end_matches('\r').to_owned()).collect(),
            default_socket_dir: default_socket_dir.to_owned(),
        }
    }

    pub(super) fn find(&self, endpoint: &Endpoint, dbname: &str, user: &str) -> Option<Secret> {
        let (host, port) = match endpoint {
            Endpoint::Socket { dir, port } if *dir == self.default_socket_dir => {
                ("localhost".into(), port)
            }
            Endpoint::Socket { dir, port } => (dir.to_string_lossy(), port),
            Endpoint::Tcp { host, port, .. } => (host.as_str().into(), port),
        };
        let wanted = [&*host, &port.to_string(), dbname, user];
        self.lines.iter().find_map(|line| {
            let password =
                wanted.iter().try_fold(line.as_str(), |rest, field| after(rest, field))?;
            Some(Secret::new(unescape(password)))
        })
    }
}

/// The rest of a line after its first field, if that field matches.
fn after<'a>(line: &'a str, wanted: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let mut wanted = wanted.chars();
    let mut written = line.chars();
    loop {
        let c = match (written.next()?, wanted.as_str()) {
            (':', "") => return Some(written.as_str()),
            ('\\', _) => written.next()?,
            // Like libpq, also accept an unescaped `:`, as in `::1`.
            (c, _) => c,
        };
        if wanted.next()? != c {
            return None;
        }
    }
}

/// Removes the escapes. The password ends at a `:`, which libpq reserves for further fields.
fn unescape(password: &str) -> String {
    let mut plain = String::new();
    let mut chars = password.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' => break,
            '\\' => plain.push(chars.next().unwrap_or('\\')),
            c => plain.push(c),
        }
    }
    plain
}

impl fmt::Debug for Passfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Passfile({:?}, {} lines)", self.path, self.lines.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn find(text: &str, host: &str, dbname: &str, user: &str) -> Option<String> {
        let endpoint = match host.strip_prefix('/') {
            Some(_) => Endpoint::Socket { dir: host.into(), port: 5432 },
            None => Endpoint::Tcp { host: host.to_owned(), addr: None, port: 5432 },
        };
        let found = Passfile::parse(text, Path::new("/run/pg")).find(&endpoint, dbname, user);
        found.map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn matches_like_libpq() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(find("h:5432:d:u:pw", "h", "d", "u"), some("pw"));
        assert_eq!(find("h:5433:d:u:pw\n*:*:*:u:other", "h", "d", "u"), some("other"));
        assert_eq!(find("*:*:*:*:first\nh:5432:d:u:second", "h", "d", "u"), some("first"));
        assert_eq!(find("h:5432:d:u2:pw", "h", "d", "u"), None);
        assert_eq!(find("hh:5432:d:u:pw", "h", "d", "u"), None);
        assert_eq!(find("h:5432:d:u:pw", "hh", "d", "u"), None);
        assert_eq!(find(r"h:5432:a\:b\\c:u:p\:w\\:x", "h", r"a:b\c", "u"), some(r"p:w\"));
        assert_eq!(find("# h:5432:d:u:pw", "h", "d", "u"), None);
        assert_eq!(find("h:5432:d:u:pw\r\n", "h", "d", "u"), some("pw"));
        assert_eq!(find("h:5432:d:u:", "h", "d", "u"), some(""));
        assert_eq!(find("h:5432:d:u", "h", "d", "u"), None);
        assert_eq!(find("::1:5432:d:u:pw", "::1", "d", "u"), some("pw"));
        // Only the whole field `*` is a wildcard.
        assert_eq!(find("h*:5432:d:u:pw", "hh", "d", "u"), None);
        assert_eq!(find(r"\*:5432:d:u:pw", "h", "d", "u"), None);
    }

    #[test]
    fn localhost_is_also_the_default_socket_directory() {
        assert_eq!(find("localhost:*:*:*:pw", "/run/pg", "d", "u"), Some("pw".to_owned()));
        assert_eq!(find("localhost:*:*:*:pw", "/tmp", "d", "u"), None);
        assert_eq!(find("/tmp:*:*:*:pw", "/tmp", "d", "u"), Some("pw".to_owned()));
    }

    fn escape(field: &str) -> String {
        field.replace('\\', r"\\").replace(':', r"\:")
    }

    proptest! {
        #[test]
        fn escaping_round_trips(db in "[^\n\r]{1,8}", user in "[^\n\r]{1,8}", pw in "[^\n\r]{0,8}") {
            prop_assume!(db != "*" && user != "*");
            let line = format!("h:5432:{}:{}:{}", escape(&db), escape(&user), escape(&pw));
            prop_assert_eq!(find(&line, "h", &db, &user), Some(pw));
        }

        #[test]
        fn never_panics(text in "[a-c:*\\\\#\n]{0,40}|.*", db in ".*") {
            let _ = find(&text, "a", &db, "b");
        }
    }
}
