//! Writes resolved parameters without the password, but with the path of its file: as a conninfo string, which the journal stores
//! to reconnect later and drivers get, and as libpq's environment variables, for external programs. The
//! password must come from libpq's other sources.
//!
//! A conninfo string names files only if the user gave them: another host has default files of its own. External
//! programs get those in use.

use std::net::SocketAddr;
use std::time::Duration;

use super::conninfo::quote;
use super::keywords::KEYWORDS;
use super::params::{ConnectParams, Keepalives, RootCert, SslMode};
use super::resolve::{CHANNEL_BINDING, SESSION_ATTRS};
use super::socket::Endpoint;

impl ConnectParams {
    /// A conninfo string for the same database, without the password.
    pub fn without_secrets(&self) -> String {
        let pairs = self.pairs().into_iter();
        let written: Vec<String> =
            pairs.map(|(key, value)| format!("{key}={}", quote(&value))).collect();
        written.join(" ")
    }

    /// The same parameters as environment variables.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let variable = |keyword| KEYWORDS.iter().find(|k| k.name == keyword)?.env;
        // Not every program looks for default files.
        let pairs = self.clone().with_default_files().pairs().into_iter();
        pairs.filter_map(|(keyword, value)| Some((variable(keyword)?, value))).collect()
    }

    fn pairs(&self) -> Vec<(&'static str, String)> {
        let (mut hosts, mut addresses, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        for endpoint in &self.hosts {
            let (host, address, port) = match endpoint {
                Endpoint::Socket { dir, port } => (dir.display().to_string(), String::new(), port),
                Endpoint::Tcp { host, addr, port } => {
                    (host.clone(), addr.map_or_else(String::new, |a| address(host, &a)), port)
                }
            };
            hosts.push(host);
            addresses.push(address);
            ports.push(port.to_string());
        }
        let mut pairs = vec![
            ("host", hosts.join(",")),
            ("port", ports.join(",")),
            ("user", self.user.clone()),
            ("dbname", self.dbname.clone()),
            ("sslmode", mode(self.ssl.mode).to_owned()),
        ];
        // Without them another server of the list, or one without its proof of identity, would do.
        if let Some(name) = named(SESSION_ATTRS, &self.session_attrs) {
            pairs.push(("target_session_attrs", name.to_owned()));
        }
        if let Some(name) = named(CHANNEL_BINDING, &self.channel_binding) {
            pairs.push(("channel_binding", name.to_owned()));
        }
        let passfile = self.given.passfile.iter();
        pairs.extend(passfile.map(|path| ("passfile", path.display().to_string())));
        pairs.extend(self.options.iter().map(|options| ("options", options.clone())));
        if addresses.iter().any(|a| !a.is_empty()) {
            pairs.push(("hostaddr", addresses.join(",")));
        }
        let timeout = self.given.connect_timeout;
        pairs.extend(timeout.map(|seconds| ("connect_timeout", seconds.to_string())));
        pairs.extend(keepalives(&self.keepalives));
        pairs.extend(self.tls_pairs());
        pairs
    }

    fn tls_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        if !self.ssl.sni {
            pairs.push(("sslsni", "0".to_owned()));
        }
        if !self.ssl.tls12 {
            pairs.push(("ssl_min_protocol_version", "TLSv1.3".to_owned()));
        }
        if !self.ssl.tls13 {
            pairs.push(("ssl_max_protocol_version", "TLSv1.2".to_owned()));
        }
        match &self.ssl.root {
            RootCert::File(path) if self.given.root => {
                pairs.push(("sslrootcert", path.display().to_string()));
            }
            RootCert::File(_) | RootCert::None => {}
            RootCert::System => pairs.push(("sslrootcert", "system".to_owned())),
        }
        let files = [("sslcert", &self.given.cert), ("sslkey", &self.given.key)];
        for (keyword, file) in files {
            pairs.extend(file.iter().map(|path| (keyword, path.display().to_string())));
        }
        if self.given.no_client_cert {
            pairs.push(("sslcertmode", "disable".to_owned()));
        }
        pairs
    }
}

/// Returns the address; one in a zone as the user named the zone, whose number a restart may change.
fn address(host: &str, address: &SocketAddr) -> String {
    match address {
        SocketAddr::V6(_) if host.contains('%') => host.to_owned(),
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        _ => address.ip().to_string(),
    }
}

fn keepalives(keep: &Keepalives) -> Vec<(&'static str, String)> {
    let seconds = |time: Duration| time.as_secs().to_string();
    let all = [
        ("keepalives", keep.disabled.then(|| "0".to_owned())),
        ("keepalives_idle", keep.idle.map(seconds)),
        ("keepalives_interval", keep.interval.map(seconds)),
        ("keepalives_count", keep.count.map(|count| count.to_string())),
        ("tcp_user_timeout", keep.user_timeout.map(|time| time.as_millis().to_string())),
    ];
    all.into_iter().filter_map(|(keyword, value)| Some((keyword, value?))).collect()
}

/// Returns the name of a choice unless it is the default, the first one.
fn named<T: PartialEq>(choices: &'static [(&str, T)], chosen: &T) -> Option<&'static str> {
    choices.iter().skip(1).find(|(_, choice)| choice == chosen).map(|(name, _)| *name)
}

/// All environment variables that affect libpq's connections.
pub fn variables() -> impl Iterator<Item = &'static str> {
    let services = ["PGSERVICE", "PGSERVICEFILE"];
    KEYWORDS.iter().filter_map(|keyword| keyword.env).chain(services)
}

fn mode(mode: SslMode) -> &'static str {
    match mode {
        SslMode::Disable => "disable",
        SslMode::Allow => "allow",
        SslMode::Prefer => "prefer",
        SslMode::Require => "require",
        SslMode::VerifyCa => "verify-ca",
        SslMode::VerifyFull => "verify-full",
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConnectParams, Env, RootCert, SslMode, resolve};
    use std::collections::BTreeMap;
    use std::fs;

    fn env() -> Env {
        Env { vars: BTreeMap::new(), home: None, user: "dba".to_owned(), ..Env::default() }
    }

    #[test]
    fn written_parameters_resolve_to_the_same_values() {
        for text in [
            "postgresql://u:secret@h1:5433,h2/my%20db?sslmode=require",
            "host=/tmp dbname='it''s' user=o\\'x password=secret",
            "host=db1,db2 target_session_attrs=read-write channel_binding=require password=secret",
            "host=h options='-c work_mem=64MB -c search_path=it\\\\ is' password=secret sslsni=0",
            "host=h ssl_max_protocol_version=TLSv1.2 password=secret",
            "host=h passfile='/etc/its pass'",
            "host=h sslcertmode=disable connect_timeout=7 password=secret",
            "host=h connect_timeout=0 sslrootcert=/no/ca sslcert=/no/cert sslkey=/no/key",
            "host=h keepalives_idle=9 keepalives_interval=3 keepalives_count=4 tcp_user_timeout=1500",
            "host=h keepalives=0 password=secret",
            "host=::1%1 password=secret",
            "host=h hostaddr=::1%1 password=secret",
        ] {
            let Ok(params) = resolve(text, &env()) else { continue };
            let conninfo = params.without_secrets();
            assert!(!conninfo.contains("secret"), "{conninfo}");
            let again = resolve(&conninfo, &env()).unwrap();
            assert_eq!(again.describe(), params.describe());
            assert_eq!((&again.hosts, &again.ssl), (&params.hosts, &params.ssl));
            let session = |p: &ConnectParams| {
                let ConnectParams { given, options, keepalives, .. } = p.clone();
                let sockets = (p.connect_timeout, keepalives);
                (p.session_attrs, p.channel_binding, options, given, sockets)
            };
            assert_eq!(session(&again), session(&params));

            let vars = params.environment();
            assert!(!vars.iter().any(|(_, v)| v.contains("secret")), "{vars:?}");
            assert!(vars.iter().all(|(k, _)| super::variables().any(|known| known == *k)));
            let vars = vars.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
            let again = resolve("", &Env { vars, ..env() }).unwrap();
            assert_eq!((again.describe(), again.ssl), (params.describe(), params.ssl));
        }
    }

    #[test]
    fn default_files_are_not_written_but_the_verification_by_them_is() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join(".postgresql");
        fs::create_dir(&own).unwrap();
        for file in ["root.crt", "postgresql.crt", "postgresql.key"] {
            fs::write(own.join(file), "").unwrap();
        }
        let here = Env { home: Some(dir.path().to_owned()), ..env() };
        let params = resolve("host=h sslmode=require", &here).unwrap();
        let conninfo = params.without_secrets();
        assert!(!conninfo.contains(".postgresql"), "{conninfo}");
        // A program on this host may look for none.
        let vars = params.environment();
        let root = own.join("root.crt").display().to_string();
        assert!(vars.contains(&("PGSSLROOTCERT", root)), "{vars:?}");
        let named = format!("{conninfo} sslrootcert={}", own.join("root.crt").display());
        let [one, other] = [&conninfo, &named]
            .map(|text| resolve(text, &here).unwrap().for_comparison().without_secrets());
        assert_eq!(one, other);
        // On a host without the file the connection fails instead of accepting any certificate.
        let there = resolve(&conninfo, &env()).unwrap();
        assert_eq!((there.ssl.mode, there.ssl.root), (SslMode::VerifyCa, RootCert::None));
    }

    #[test]
    fn given_files_are_written_with_absolute_paths() {
        let files = [("sslrootcert", "ca.crt"), ("sslcert", "me.crt"), ("sslkey", "me.key")];
        let given = files.map(|(keyword, file)| format!("{keyword}={file}")).join(" ");
        let params = resolve(&format!("host=h sslmode=require {given}"), &env()).unwrap();
        let conninfo = params.without_secrets();
        let here = std::env::current_dir().unwrap();
        for (keyword, file) in files {
            let expected = format!("{keyword}='{}'", here.join(file).display());
            assert!(conninfo.contains(&expected), "{conninfo}");
        }
    }
}
