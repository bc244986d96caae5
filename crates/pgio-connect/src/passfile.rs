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
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::ConnectWarning;
use super::secret::Secret;
use super::socket::Endpoint;

/// The lines of a password file, and the socket directory that `localhost` matches.
#[derive(Clone, Default)]
pub(super) struct Passfile {
    pub(super) path: Option<PathBuf>,
    lines: Vec<Vec<u8>>,
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
        Ok(Passfile { path: Some(path.to_owned()), ..Self::parse(&text, default_socket_dir) })
    }

    /// Takes bytes: the encoding of a password is the server's affair.
    fn parse(text: &[u8], default_socket_dir: &Path) -> Self {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#"));
        let without_ends = lines.map(|line| match line.iter().rposition(|byte| *byte != b'\r') {
            Some(last) => line[..=last].to_vec(),
            None => Vec::new(),
        });
        Passfile {
            path: None,
            lines: without_ends.collect(),
            default_socket_dir: default_socket_dir.to_owned(),
        }
    }

    pub(super) fn find(&self, endpoint: &Endpoint, dbname: &str, user: &str) -> Option<Secret> {
        let (host, port) = match endpoint {
            Endpoint::Socket { dir, port } if *dir == self.default_socket_dir => {
                (&b"localhost"[..], port)
            }
            Endpoint::Socket { dir, port } => (dir.as_os_str().as_bytes(), port),
            Endpoint::Tcp { host, port, .. } => (host.as_bytes(), port),
        };
        let port = port.to_string();
        let wanted = [host, port.as_bytes(), dbname.as_bytes(), user.as_bytes()];
        self.lines.iter().find_map(|line| {
            let password =
                wanted.iter().try_fold(line.as_slice(), |rest, field| after(rest, field))?;
            Some(Secret::new(unescape(password)))
        })
    }
}

/// The rest of a line after its first field, if that field matches.
fn after<'a>(line: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    if let Some(rest) = line.strip_prefix(b"*:") {
        return Some(rest);
    }
    let mut wanted = wanted.iter();
    let mut written = line.iter();
    loop {
        let c = match (written.next()?, wanted.as_slice()) {
            (b':', []) => return Some(written.as_slice()),
            (b'\\', _) => written.next()?,
            // Like libpq, also accept an unescaped `:`, as in `::1`.
            (c, _) => c,
        };
        if wanted.next()? != c {
            return None;
        }
    }
}

/// Removes the escapes. The password ends at a `:`, which libpq reserves for further fields.
fn unescape(password: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut bytes = password.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b':' => break,
            b'\\' => plain.push(*bytes.next().unwrap_or(&b'\\')),
            byte => plain.push(*byte),
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
    use pgio_fuzz::fuzz;
    use proptest::prelude::*;

    fn find_bytes(text: &[u8], host: &str, dbname: &str, user: &str) -> Option<Vec<u8>> {
        let endpoint = match host.strip_prefix('/') {
            Some(_) => Endpoint::Socket { dir: host.into(), port: 5432 },
            None => Endpoint::Tcp { host: host.to_owned(), addr: None, port: 5432 },
        };
        let found = Passfile::parse(text, Path::new("/run/pg")).find(&endpoint, dbname, user);
        found.map(|secret| secret.expose().to_owned())
    }

    fn find(text: &str, host: &str, dbname: &str, user: &str) -> Option<String> {
        find_bytes(text.as_bytes(), host, dbname, user)
            .map(|found| String::from_utf8(found).unwrap())
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
    fn a_password_is_bytes() {
        let file = b"# M\xfcller\nh:*:d\xfc:u:other\nh:5432:d:u:p\xfcw\n";
        assert_eq!(find_bytes(file, "h", "d", "u").as_deref(), Some(&b"p\xfcw"[..]));
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
    }

    #[test]
    fn fuzzed_files_are_searched() {
        let samples = ["# mine\nh:5432:d:u:p\\:w\n/run/pg:*:*:u:*\r\n\nlocalhost:*:d\\\\:*:pw"];
        fuzz(&samples, |bytes| {
            for host in ["h", "/run/pg", "localhost"] {
                find_bytes(bytes, host, "d", "u");
            }
        });
    }
}
