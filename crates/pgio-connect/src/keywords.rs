//! The connection keywords of libpq (up to version 18) and how pgio treats each.
//!
//! Every libpq keyword is accepted, so that a working connection string keeps working. A keyword
//! that pgio does not implement and that must not be ignored, such as a revocation list, is an
//! error. The table also lists the environment variables. [`Settings`] has the values by keyword.
//!
//! Next: `resolve` uses this table; `params` defines the result.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{self, PathBuf};
use std::str::FromStr;

use super::error::{ConnectError, Source};

pub(super) struct Keyword {
    pub(super) name: &'static str,
    pub(super) env: Option<&'static str>,
    pub(super) support: Support,
}

pub(super) enum Support {
    /// Read by `resolve`.
    Used,
    /// Irrelevant for pgio; ignored.
    Harmless,
    /// Not implemented and unsafe to ignore, except with these values.
    Only(&'static [&'static str]),
}

use Support::{Harmless, Only, Used};

const fn with_env(name: &'static str, env: &'static str, support: Support) -> Keyword {
    Keyword { name, env: Some(env), support }
}

const fn without_env(name: &'static str, support: Support) -> Keyword {
    Keyword { name, env: None, support }
}

pub(super) const KEYWORDS: &[Keyword] = &[
    // PGSERVICE is read before all other variables and therefore has no variable here.
    without_env("service", Used),
    with_env("user", "PGUSER", Used),
    with_env("password", "PGPASSWORD", Used),
    with_env("passfile", "PGPASSFILE", Used),
    with_env("dbname", "PGDATABASE", Used),
    with_env("host", "PGHOST", Used),
    with_env("hostaddr", "PGHOSTADDR", Used),
    with_env("port", "PGPORT", Used),
    with_env("options", "PGOPTIONS", Used),
    with_env("application_name", "PGAPPNAME", Used),
    without_env("fallback_application_name", Used),
    with_env("connect_timeout", "PGCONNECT_TIMEOUT", Used),
    with_env("target_session_attrs", "PGTARGETSESSIONATTRS", Used),
    with_env("channel_binding", "PGCHANNELBINDING", Used),
    without_env("keepalives", Used),
    without_env("keepalives_idle", Used),
    without_env("keepalives_interval", Used),
    without_env("keepalives_count", Used),
    without_env("tcp_user_timeout", Used),
    with_env("sslmode", "PGSSLMODE", Used),
    with_env("sslrootcert", "PGSSLROOTCERT", Used),
    with_env("sslcert", "PGSSLCERT", Used),
    with_env("sslkey", "PGSSLKEY", Used),
    with_env("sslcertmode", "PGSSLCERTMODE", Only(&["allow", "disable"])),
    with_env("sslsni", "PGSSLSNI", Used),
    with_env("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", Used),
    with_env("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", Used),
    with_env("sslnegotiation", "PGSSLNEGOTIATION", Only(&["postgres"])),
    with_env("sslcrl", "PGSSLCRL", Only(&[])),
    with_env("sslcrldir", "PGSSLCRLDIR", Only(&[])),
    without_env("sslkeylogfile", Only(&[])),
    with_env("requirepeer", "PGREQUIREPEER", Only(&[])),
    with_env("require_auth", "PGREQUIREAUTH", Only(&[])),
    without_env("scram_client_key", Only(&[])),
    without_env("scram_server_key", Only(&[])),
    with_env("gssencmode", "PGGSSENCMODE", Only(&["disable", "allow", "prefer"])),
    without_env("replication", Only(&["false", "off", "no", "0"])),
    with_env("load_balance_hosts", "PGLOADBALANCEHOSTS", Only(&["disable"])),
    // The driver always uses UTF-8 and protocol 3.0, without compression and GSSAPI. Reading an
    // encrypted key fails later, and so does a server that requires OAuth.
    with_env("client_encoding", "PGCLIENTENCODING", Harmless),
    with_env("min_protocol_version", "PGMINPROTOCOLVERSION", Only(&["3.0", "latest"])),
    with_env("max_protocol_version", "PGMAXPROTOCOLVERSION", Harmless),
    with_env("sslcompression", "PGSSLCOMPRESSION", Harmless),
    without_env("sslpassword", Harmless),
    with_env("krbsrvname", "PGKRBSRVNAME", Harmless),
    with_env("gsslib", "PGGSSLIB", Harmless),
    with_env("gssdelegation", "PGGSSDELEGATION", Harmless),
    without_env("oauth_issuer", Harmless),
    without_env("oauth_client_id", Harmless),
    without_env("oauth_client_secret", Harmless),
    without_env("oauth_scope", Harmless),
    without_env("authtype", Harmless),
    without_env("tty", Harmless),
];

/// Keywords whose values are secrets, by what their names contain.
const SECRETS: [&str; 3] = ["password", "secret", "scram_"];

/// Whether a connection string may contain a secret: it names a keyword that holds one.
pub fn names_secret(text: &str) -> bool {
    let text = text.to_lowercase();
    SECRETS.iter().any(|name| text.contains(name))
}

/// A keyword and its value from a string or a service file.
pub(super) struct Pair {
    pub(super) keyword: &'static str,
    /// Bytes: only a password may be other than UTF-8, which `resolve` checks.
    pub(super) value: OsString,
}

/// Converts a written keyword into a [`Pair`]; `Err` is the most similar keyword.
pub(super) fn pair(written: &str, value: impl Into<OsString>) -> Result<Pair, &'static str> {
    let value = value.into();
    if written == "requiressl" {
        // Predecessor of sslmode; libpq still translates it.
        let value = if value.as_bytes().starts_with(b"1") { "require" } else { "prefer" };
        return Ok(Pair { keyword: "sslmode", value: value.into() });
    }
    match KEYWORDS.iter().find(|k| k.name == written) {
        Some(keyword) => Ok(Pair { keyword: keyword.name, value }),
        None => Err(nearest(written)),
    }
}

fn nearest(written: &str) -> &'static str {
    let written = written.to_lowercase();
    let similarity = |k: &&Keyword| strsim::jaro_winkler(&written, k.name);
    let best = KEYWORDS.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    best.map_or("host", |k| k.name)
}

impl Keyword {
    /// Rejects a value that pgio does not implement and must not ignore.
    pub(super) fn accept(&self, value: &str, from: &Source) -> Result<(), ConnectError> {
        match self.support {
            Only(values) if !value.is_empty() && !values.contains(&value) => {
                let otherwise = match values {
                    [] => "remove it".to_owned(),
                    some => format!("remove it or set it to {}", some.join(" or ")),
                };
                let from = from.clone();
                Err(ConnectError::Unsupported { keyword: self.name, from, otherwise })
            }
            _ => Ok(()),
        }
    }
}

/// Values by keyword, each with its source. No Debug, because it contains passwords.
#[derive(Default)]
pub(super) struct Settings(pub(super) BTreeMap<&'static str, (OsString, Source)>);

impl Settings {
    /// Earlier sources win.
    pub(super) fn add(&mut self, keyword: &'static str, value: OsString, from: Source) {
        self.0.entry(keyword).or_insert((value, from));
    }

    /// The value, if given and not empty. An empty value overrides later sources and means the
    /// default.
    pub(super) fn bytes(&self, keyword: &str) -> Option<OsString> {
        self.0.get(keyword).map(|(value, _)| value.clone()).filter(|value| !value.is_empty())
    }

    /// Like [`Self::bytes`], for all but passwords, which `resolve` has found to be UTF-8.
    pub(super) fn text(&self, keyword: &str) -> Option<String> {
        self.bytes(keyword).map(|value| value.to_string_lossy().into_owned())
    }

    /// A file, as an absolute path: the parameters may be used again from another directory.
    pub(super) fn file(&self, keyword: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.text(keyword)?);
        Some(path::absolute(&path).unwrap_or(path))
    }

    pub(super) fn number<T: FromStr>(
        &self,
        keyword: &'static str,
    ) -> Result<Option<T>, ConnectError> {
        let Some(text) = self.text(keyword) else { return Ok(None) };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.bad(keyword, "not a whole number")),
        }
    }

    /// The meaning of the value, or the first meaning of the list if none is given.
    pub(super) fn choice<T: Copy>(
        &self,
        keyword: &'static str,
        meanings: &[(&str, T)],
    ) -> Result<T, ConnectError> {
        let wanted = self.text(keyword);
        let wanted = wanted.as_deref().unwrap_or(meanings[0].0);
        meanings.iter().find(|(name, _)| *name == wanted).map(|(_, meaning)| *meaning).ok_or_else(
            || {
                let names: Vec<_> = meanings.iter().map(|(name, _)| *name).collect();
                self.bad(keyword, format!("must be one of {}", names.join(", ")))
            },
        )
    }

    /// Does not quote the value, which may be part of a misplaced password.
    pub(super) fn bad(&self, keyword: &'static str, problem: impl Into<String>) -> ConnectError {
        let from = self.0.get(keyword).map_or(Source::ConnectString, |(_, from)| from.clone());
        ConnectError::BadValue { keyword, from, problem: problem.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_nearest_keyword() {
        for (written, meant) in [
            ("hots", "host"),
            ("database", "dbname"),
            ("username", "user"),
            ("pasword", "password"),
            ("ssl_mode", "sslmode"),
            ("Port", "port"),
        ] {
            let found = pair(written, "").err();
            assert_eq!(found, Some(meant), "for {written}");
        }
    }

    #[test]
    fn rejects_only_values_that_must_not_be_ignored() {
        let keyword = |name| KEYWORDS.iter().find(|k| k.name == name).unwrap();
        let from = Source::ConnectString;
        assert!(keyword("sslcrl").accept("/crl.pem", &from).is_err());
        assert!(keyword("sslcrl").accept("", &from).is_ok());
        assert!(keyword("gssencmode").accept("prefer", &from).is_ok());
        assert!(keyword("gssencmode").accept("require", &from).is_err());
        assert!(keyword("krbsrvname").accept("postgres", &from).is_ok());
    }
}
