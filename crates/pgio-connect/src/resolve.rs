//! Resolves a connection string and an [`Env`] into [`ConnectParams`], in libpq's order of
//! precedence: string, service file, environment, defaults.
//!
//! The only module that reads the service file and the password file. It checks only whether
//! certificates exist; they are read when a connection is opened. Opens no connection.
//!
//! Next: `keywords` for the table of keywords, `open` for the use of the result.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::error::{BadText, ConnectError, ConnectWarning, Source};
use super::keywords::{KEYWORDS, Pair, Settings, names_secret};
use super::params::{
    ChannelBinding, ClientCert, ConnectParams, Given, Keepalives, OnNotice, RootCert, SessionAttrs,
    SslMode, SslParams,
};
use super::passfile::Passfile;
use super::secret::Secret;
use super::socket::{Endpoint, parse_address};
use super::{Env, conninfo, psql, service, uri};

/// Resolves a value that psql would accept as its database argument (a database name, a conninfo
/// string or a URI), or what follows `psql` on a command line (`-h db1 -p 5433 pgio`). With an empty string, all values come from the environment.
///
/// # Errors
///
/// For an invalid string, service file or value. An unusable password file is only a warning.
pub fn resolve(text: &str, env: &Env) -> Result<ConnectParams, ConnectError> {
    resolve_named(text, env, "pgio")
}

/// Like [`resolve`]; `default_name` is the application_name if nothing else names the session.
pub(crate) fn resolve_named(
    text: &str,
    env: &Env,
    default_name: &str,
) -> Result<ConnectParams, ConnectError> {
    let settings = gather(text, env)?;
    let mut warnings = Vec::new();

    let default_user = || Some(env.user.clone()).filter(|user| !user.is_empty());
    let user = settings.text("user").or_else(default_user).ok_or(ConnectError::NoUser)?;
    let password = settings.bytes("password").map(|value| Secret::new(value.into_vec()));
    let given = given(&settings)?;
    let default = || env.home.as_ref().map(|home| home.join(".pgpass"));
    let passfile = match (&password, given.passfile.clone().or_else(default)) {
        (None, Some(path)) => Passfile::read(&path, &env.socket_dir).unwrap_or_else(|warning| {
            warnings.push(warning);
            Passfile::default()
        }),
        _ => Passfile::default(),
    };
    Ok(ConnectParams {
        dbname: settings.text("dbname").unwrap_or_else(|| user.clone()),
        user,
        hosts: hosts(&settings, env)?,
        password,
        application_name: settings
            .text("application_name")
            .or_else(|| settings.text("fallback_application_name"))
            .unwrap_or_else(|| default_name.to_owned()),
        options: settings.text("options"),
        connect_timeout: connect_timeout(&settings)?,
        session_attrs: settings.choice("target_session_attrs", SESSION_ATTRS)?,
        channel_binding: settings.choice("channel_binding", CHANNEL_BINDING)?,
        keepalives: keepalives(&settings)?,
        ssl: ssl(&settings, env, &mut warnings)?,
        passfile,
        given,
        warnings,
        tls: Arc::default(),
        on_notice: OnNotice::default(),
    })
}

/// The secrets in a connection string, also those that [`resolve`] ignores, such as `sslpassword`; none if it is
/// invalid.
pub fn secrets(text: &str) -> Vec<Secret> {
    let pairs = parse(text).unwrap_or_default().into_iter();
    let secret = pairs.filter(|pair| names_secret(pair.keyword) && !pair.value.is_empty());
    secret.map(|pair| Secret::new(pair.value.into_vec())).collect()
}

/// The first value of each list is the default.
pub(super) const SESSION_ATTRS: &[(&str, SessionAttrs)] = &[
    ("any", SessionAttrs::Any),
    ("read-write", SessionAttrs::ReadWrite),
    ("read-only", SessionAttrs::ReadOnly),
    ("primary", SessionAttrs::Primary),
    ("standby", SessionAttrs::Standby),
    ("prefer-standby", SessionAttrs::PreferStandby),
];
pub(super) const CHANNEL_BINDING: &[(&str, ChannelBinding)] = &[
    ("prefer", ChannelBinding::Prefer),
    ("disable", ChannelBinding::Disable),
    ("require", ChannelBinding::Require),
];

fn gather(text: &str, env: &Env) -> Result<Settings, ConnectError> {
    let mut settings = Settings::default();
    for pair in parse(text).map_err(ConnectError::ConnectString)? {
        // Within a string the last value wins.
        settings.0.insert(pair.keyword, (pair.value, Source::ConnectString));
    }
    let variable = || env.var("PGSERVICE").map(|name| name.to_string_lossy().into_owned());
    let service = settings.text("service").or_else(variable);
    if let Some(name) = service.filter(|name| !name.is_empty()) {
        let (path, pairs) = service::find(&name, env)?;
        for pair in pairs {
            settings.add(pair.keyword, pair.value, Source::ServiceFile(path.clone()));
        }
    }
    for keyword in KEYWORDS {
        let set = keyword.env.and_then(|name| Some((name, env.var(name)?)));
        if let Some((name, value)) = set {
            settings.add(keyword.name, value.to_owned(), Source::Environment(name));
        }
    }
    // Predecessor of PGSSLMODE; like libpq, ignore any other value.
    if env.var("PGREQUIRESSL").is_some_and(|value| value.as_bytes().starts_with(b"1")) {
        settings.add("sslmode", "require".into(), Source::Environment("PGREQUIRESSL"));
    }
    for keyword in KEYWORDS {
        let Some((value, from)) = settings.0.get(keyword.name) else { continue };
        match value.to_str() {
            Some(value) => keyword.accept(value, from)?,
            None if names_secret(keyword.name) => {}
            // The protocol's texts and stored parameters are UTF-8.
            None => {
                return Err(settings.bad(keyword.name, "not UTF-8, as all but a password must be"));
            }
        }
    }
    Ok(settings)
}

pub(super) fn parse(text: &str) -> Result<Vec<Pair>, BadText> {
    if psql::has_options(text) {
        psql::parse(text, parse)
    } else if uri::is_uri(text) {
        uri::parse(text)
    } else if text.contains('=') {
        conninfo::parse(text)
    } else if text.is_empty() {
        Ok(Vec::new())
    } else {
        Ok(vec![Pair { keyword: "dbname", value: text.into() }])
    }
}

fn given(settings: &Settings) -> Result<Given, ConnectError> {
    Ok(Given {
        passfile: settings.file("passfile"),
        connect_timeout: settings.number("connect_timeout")?,
        root: settings.text("sslrootcert").is_some(),
        cert: settings.file("sslcert"),
        key: settings.file("sslkey"),
        no_client_cert: no_client_cert(settings),
    })
}

/// Default in seconds.
const CONNECT_TIMEOUT: i32 = 10;

fn connect_timeout(settings: &Settings) -> Result<Option<Duration>, ConnectError> {
    // Like libpq, treat 1 as 2, and zero or less as no timeout. Unlike libpq, use a timeout by
    // default.
    let seconds = settings.number("connect_timeout")?.unwrap_or(CONNECT_TIMEOUT);
    let seconds = u64::try_from(seconds).ok().filter(|s| *s > 0);
    Ok(seconds.map(|s| Duration::from_secs(s.max(2))))
}

fn keepalives(settings: &Settings) -> Result<Keepalives, ConnectError> {
    let positive = |keyword| {
        let number: Option<i32> = settings.number(keyword)?;
        Ok(number.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0))
    };
    let seconds = |n: u32| Duration::from_secs(n.into());
    Ok(Keepalives {
        disabled: settings.number::<i32>("keepalives")? == Some(0),
        idle: positive("keepalives_idle")?.map(seconds),
        interval: positive("keepalives_interval")?.map(seconds),
        count: positive("keepalives_count")?,
        user_timeout: positive("tcp_user_timeout")?.map(|ms| Duration::from_millis(ms.into())),
    })
}

const DEFAULT_PORT: u16 = 5432;

/// Combines the comma-separated lists of host, hostaddr and port as libpq does.
fn hosts(settings: &Settings, env: &Env) -> Result<Vec<Endpoint>, ConnectError> {
    let split = |keyword| {
        let text: Option<String> = settings.text(keyword);
        let parts = text.map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
        parts.unwrap_or_default()
    };
    let (names, addresses, ports) = (split("host"), split("hostaddr"), split("port"));

    let count = if addresses.is_empty() { names.len() } else { addresses.len() }.max(1);
    if !names.is_empty() && names.len() != count {
        let problem = format!("{count} addresses for {} hosts", names.len());
        return Err(settings.bad("hostaddr", problem));
    }
    if ports.len() > 1 && ports.len() != count {
        let problem =
            format!("{} ports for {count} hosts; specify one port, or one per host", ports.len());
        return Err(settings.bad("port", problem));
    }
    let at = |parts: &[String], i: usize| parts.get(i).filter(|part| !part.is_empty()).cloned();
    (0..count)
        .map(|i| {
            let port = at(&ports, if ports.len() == 1 { 0 } else { i });
            let port = port.map_or(Ok(DEFAULT_PORT), |port| parse_port(settings, &port))?;
            endpoint(settings, env, at(&names, i), at(&addresses, i), port)
        })
        .collect()
}

fn endpoint(
    settings: &Settings,
    env: &Env,
    name: Option<String>,
    address: Option<String>,
    port: u16,
) -> Result<Endpoint, ConnectError> {
    if let Some(address) = address {
        let problem = "not an IP address; use host for names";
        let addr =
            parse_address(&address, port).ok_or_else(|| settings.bad("hostaddr", problem))?;
        let host = name.unwrap_or(address);
        return Ok(Endpoint::Tcp { host, addr: Some(addr), port });
    }
    match name {
        None => Ok(Endpoint::Socket { dir: env.socket_dir.clone(), port }),
        Some(name) if name.starts_with('/') => {
            Ok(Endpoint::Socket { dir: PathBuf::from(name), port })
        }
        Some(name) if name.starts_with('@') => {
            Err(settings.bad("host", "sockets in the abstract namespace are not supported"))
        }
        Some(host) => {
            let addr = parse_address(&host, port);
            Ok(Endpoint::Tcp { host, addr, port })
        }
    }
}

fn parse_port(settings: &Settings, text: &str) -> Result<u16, ConnectError> {
    let port = text.trim().parse::<u16>().ok().filter(|port| *port != 0);
    port.ok_or_else(|| settings.bad("port", "not a number from 1 to 65535"))
}

/// The first value is the default.
const SSL_MODES: &[(&str, SslMode)] = &[
    ("prefer", SslMode::Prefer),
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

/// Resolves the ssl* keywords, with libpq's default files in ~/.postgresql.
fn ssl(
    settings: &Settings,
    env: &Env,
    warnings: &mut Vec<ConnectWarning>,
) -> Result<SslParams, ConnectError> {
    let root = root_cert(settings, env);
    let mut mode = settings.choice("sslmode", SSL_MODES)?;
    if root == RootCert::System && mode != SslMode::VerifyFull {
        // Anyone can get a certificate from a public CA, so the host name must be verified.
        if settings.text("sslmode").is_some() {
            return Err(settings.bad("sslmode", "sslrootcert=system requires verify-full"));
        }
        mode = SslMode::VerifyFull;
    }
    if let RootCert::File(path) = &root
        && mode == SslMode::Require
    {
        if path.exists() {
            // libpq verifies the chain then. As a mode, this also holds on a host without the file.
            mode = SslMode::VerifyCa;
        } else {
            warnings.push(ConnectWarning::RootCertMissing(path.clone()));
        }
    }
    let (tls12, tls13) = tls_versions(settings)?;
    Ok(SslParams {
        mode,
        root,
        client: client_cert(settings, env, warnings),
        revoked: in_home(env, "root.crl").filter(|path| path.exists()),
        sni: settings.choice("sslsni", &[("1", true), ("0", false)])?,
        tls12,
        tls13,
    })
}

fn in_home(env: &Env, file: &str) -> Option<PathBuf> {
    env.home.as_ref().map(|home| home.join(".postgresql").join(file))
}

fn root_cert(settings: &Settings, env: &Env) -> RootCert {
    if settings.text("sslrootcert").as_deref() == Some("system") {
        return RootCert::System;
    }
    let default = || in_home(env, "root.crt").filter(|path| path.exists());
    settings.file("sslrootcert").or_else(default).map_or(RootCert::None, RootCert::File)
}

fn no_client_cert(settings: &Settings) -> bool {
    settings.text("sslcertmode").as_deref() == Some("disable")
}

fn client_cert(
    settings: &Settings,
    env: &Env,
    warnings: &mut Vec<ConnectWarning>,
) -> Option<ClientCert> {
    if no_client_cert(settings) {
        return None;
    }
    let given = settings.file("sslcert");
    let cert = given.clone().or_else(|| in_home(env, "postgresql.crt"))?;
    if !cert.exists() {
        // Like libpq, continue without: the server may not request a certificate.
        warnings.extend(given.map(ConnectWarning::ClientCertMissing));
        return None;
    }
    let key = settings.file("sslkey").or_else(|| in_home(env, "postgresql.key"));
    Some(ClientCert { cert, key: key.unwrap_or_else(|| Path::new("postgresql.key").to_owned()) })
}

/// Whether TLS 1.2 and 1.3 may be used; rustls supports no older versions.
fn tls_versions(settings: &Settings) -> Result<(bool, bool), ConnectError> {
    let (lowest, highest) = ("ssl_min_protocol_version", "ssl_max_protocol_version");
    let tls12 = settings.choice(
        lowest,
        &[("TLSv1.2", true), ("TLSv1", true), ("TLSv1.1", true), ("TLSv1.3", false)],
    )?;
    let tls13 = settings.choice(highest, &[("TLSv1.3", true), ("TLSv1.2", false)])?;
    if !tls12 && !tls13 {
        return Err(settings.bad(highest, format!("below {lowest}")));
    }
    Ok((tls12, tls13))
}

#[cfg(test)]
mod tests {
    //! Precedence, defaults and files with a fake environment.

    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn env(vars: &[(&str, &str)]) -> Env {
        Env {
            vars: vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect(),
            home: None,
            user: "me".to_owned(),
            socket_dir: PathBuf::from("/run/pg"),
            sysconf_dirs: Vec::new(),
        }
    }

    fn described(text: &str, vars: &[(&str, &str)]) -> String {
        resolve(text, &env(vars)).unwrap().describe()
    }

    fn problem(text: &str, vars: &[(&str, &str)]) -> String {
        resolve(text, &env(vars)).unwrap_err().to_string()
    }

    fn write(path: &Path, text: &str, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn defaults_and_the_three_forms() {
        assert_eq!(described("", &[]), "me on /run/pg:5432 as me");
        assert_eq!(described("", &[("PGUSER", "u")]), "u on /run/pg:5432 as u");
        assert_eq!(described("mydb", &[]), "mydb on /run/pg:5432 as me");
        assert_eq!(described("host=h dbname=d", &[]), "d on h:5432 as me");
        assert_eq!(described("postgres://u@h:1,[::1]/d", &[]), "d on h:1,[::1]:5432 as u");
        assert_eq!(described("-h h -p1 -U u d", &[("PGPORT", "2")]), "d on h:1 as u");
        // A dbname inside a connection string is a name, not another string.
        assert_eq!(described("dbname='a=b'", &[]), "a=b on /run/pg:5432 as me");
    }

    #[test]
    fn the_string_wins_over_the_environment() {
        let vars = [("PGHOST", "eh"), ("PGPORT", "1"), ("PGDATABASE", "ed"), ("PGUSER", "eu")];
        assert_eq!(described("", &vars), "ed on eh:1 as eu");
        assert_eq!(described("port=2 user=su", &vars), "ed on eh:2 as su");
        assert_eq!(described("port=2 port=3", &vars), "ed on eh:3 as eu");
        // An empty value overrides the environment.
        assert_eq!(described("host='' port=''", &vars), "ed on /run/pg:5432 as eu");
    }

    #[test]
    fn lists_of_hosts_and_ports_are_combined() {
        assert_eq!(described("host=a,,/s port=1,,3", &[]), "me on a:1,/run/pg:5432,/s:3 as me");
        assert_eq!(described("host=a,b port=7", &[]), "me on a:7,b:7 as me");
        assert_eq!(described("hostaddr=10.0.0.1", &[]), "me on 10.0.0.1:5432 as me");
        let params = resolve("host=n hostaddr=::1", &env(&[])).unwrap();
        let addr = Some("[::1]:5432".parse().unwrap());
        assert_eq!(params.hosts, [Endpoint::Tcp { host: "n".to_owned(), addr, port: 5432 }]);

        assert!(problem("host=a,b port=1,2,3", &[]).contains("3 ports for 2 hosts"));
        assert!(problem("host=a,b hostaddr=::1", &[]).contains("1 addresses for 2 hosts"));
        assert!(problem("hostaddr=localhost", &[]).contains("not an IP address"));
        for port in ["0", "65536", "x", "-1", "5 6"] {
            let problem = problem("", &[("PGPORT", port)]);
            assert_eq!(problem, "invalid value of port from PGPORT: not a number from 1 to 65535");
        }
    }

    #[test]
    fn each_variable_has_its_effect() {
        let resolved = |name, value| resolve("", &env(&[(name, value)])).unwrap();
        assert_eq!(resolved("PGHOSTADDR", "::1").describe(), "me on [::1]:5432 as me");
        assert_eq!(resolved("PGPASSWORD", "hush").password.unwrap().expose(), b"hush");
        assert_eq!(resolved("PGOPTIONS", "-c a=b").options.as_deref(), Some("-c a=b"));
        assert_eq!(resolved("PGAPPNAME", "app").application_name, "app");
        assert_eq!(resolved("PGUSER", "x").application_name, "pgio");
        assert_eq!(resolved("PGSSLMODE", "verify-ca").ssl.mode, SslMode::VerifyCa);
        assert_eq!(resolved("PGREQUIRESSL", "1").ssl.mode, SslMode::Require);
        assert_eq!(resolved("PGREQUIRESSL", "0").ssl.mode, SslMode::Prefer);
        assert_eq!(resolved("PGSSLROOTCERT", "/r").ssl.root, RootCert::File("/r".into()));
        assert_eq!(
            resolved("PGTARGETSESSIONATTRS", "standby").session_attrs,
            SessionAttrs::Standby
        );
        assert_eq!(
            resolved("PGCHANNELBINDING", "require").channel_binding,
            ChannelBinding::Require
        );
        for (given, seconds) in [("5", Some(5)), ("1", Some(2)), ("0", None), ("-1", None)] {
            let timeout = resolved("PGCONNECT_TIMEOUT", given).connect_timeout;
            assert_eq!(timeout, seconds.map(Duration::from_secs), "for {given}");
        }
        let given_none = resolve("", &env(&[])).unwrap();
        assert_eq!(given_none.connect_timeout, Some(Duration::from_secs(10)));
        assert!(problem("", &[("PGSSLMODE", "always")]).contains("must be one of prefer, disable"));
        assert!(
            problem("", &[("PGSSLCRL", "/crl")]).contains("sslcrl from PGSSLCRL is not supported")
        );
    }

    #[test]
    fn the_service_file_ranks_between_string_and_environment() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("services");
        write(&file, "[s]\nhost=sh\nport=7\nuser=su\n[bad]\nhost = x\n", 0o644);
        let path = file.to_str().unwrap();
        let vars = [("PGSERVICEFILE", path), ("PGPORT", "1"), ("PGDATABASE", "ed")];
        assert_eq!(described("service=s", &vars), "ed on sh:7 as su");
        assert_eq!(described("service=s port=2", &vars), "ed on sh:2 as su");

        let by_variable = [("PGSERVICEFILE", path), ("PGSERVICE", "s")];
        assert_eq!(described("d", &by_variable), "d on sh:7 as su");
        assert_eq!(problem("service=none", &vars), format!("no service `none` in {path}"));
        assert!(problem("service=bad", &vars).contains("line 6: no spaces"));
        assert!(problem("service=s", &[("PGSERVICEFILE", "/none")]).contains("/none"));
        assert!(problem("service=s", &[]).contains("PGSERVICEFILE"));
    }

    #[test]
    fn the_users_service_file_comes_before_the_systems() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join(".pg_service.conf"), "[mine]\nhost=home\n", 0o644);
        write(
            &dir.path().join("etc/pg_service.conf"),
            "[mine]\nhost=etc\n[ours]\nhost=etc\n",
            0o644,
        );
        let mut env = env(&[]);
        env.home = Some(dir.path().to_owned());
        env.sysconf_dirs = vec![dir.path().join("none"), dir.path().join("etc")];
        let host =
            |env: &Env, name: &str| resolve(&format!("service={name}"), env).unwrap().describe();
        assert_eq!(host(&env, "mine"), "me on home:5432 as me");
        assert_eq!(host(&env, "ours"), "me on etc:5432 as me");

        env.sysconf_dirs.clear();
        env.vars.insert("PGSYSCONFDIR".to_owned(), dir.path().join("etc").into());
        assert_eq!(host(&env, "ours"), "me on etc:5432 as me");
    }

    #[test]
    fn the_password_file_is_searched_last_and_matches_the_database() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".pgpass");
        write(&file, "h:*:a:me:pa\nh:*:b:me:pb\n", 0o600);
        let mut env = env(&[]);
        env.home = Some(dir.path().to_owned());
        let password = |params: &ConnectParams| {
            params.password_for(&params.hosts[0]).map(|secret| secret.expose().to_owned())
        };
        let params = resolve("host=h dbname=a", &env).unwrap();
        assert_eq!(password(&params).as_deref(), Some(&b"pa"[..]));
        assert_eq!(password(&params.with_dbname("b")).as_deref(), Some(&b"pb"[..]));
        assert_eq!(password(&resolve("host=h dbname=c", &env).unwrap()), None);
        let given = resolve("host=h dbname=a password=given", &env).unwrap();
        assert_eq!(password(&given).as_deref(), Some(&b"given"[..]));

        write(&file, "h:*:a:me:pa\n", 0o640);
        let params = resolve("host=h dbname=a", &env).unwrap();
        assert_eq!(password(&params), None);
        assert_eq!(params.warnings(), [ConnectWarning::PassfileExposed(file.clone())]);

        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        write(&elsewhere, "h:*:a:me:pe\n", 0o600);
        env.vars.insert("PGPASSFILE".to_owned(), elsewhere.into());
        assert_eq!(
            password(&resolve("host=h dbname=a", &env).unwrap()).as_deref(),
            Some(&b"pe"[..])
        );
    }

    #[test]
    fn default_certificates_are_used_if_they_exist() {
        let dir = tempfile::tempdir().unwrap();
        let mut env = env(&[]);
        env.home = Some(dir.path().to_owned());
        let ssl = resolve("", &env).unwrap().ssl;
        assert_eq!((ssl.root, ssl.client), (RootCert::None, None));

        let own = dir.path().join(".postgresql");
        write(&own.join("root.crt"), "", 0o644);
        write(&own.join("postgresql.crt"), "", 0o644);
        let ssl = resolve("", &env).unwrap().ssl;
        assert_eq!(ssl.root, RootCert::File(own.join("root.crt")));
        assert_eq!(ssl.client.unwrap().key, own.join("postgresql.key"));
        assert_eq!(resolve("sslcertmode=disable", &env).unwrap().ssl.client, None);
        write(&own.join("root.crl"), "", 0o644);
        let ssl = resolve("", &env).unwrap().ssl;
        assert_eq!(ssl.revoked, Some(own.join("root.crl")));
    }

    #[test]
    fn a_root_certificate_makes_require_the_same_as_verify_ca() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("ca.crt");
        write(&root, "", 0o644);
        for (mode, expected) in [
            ("prefer", SslMode::Prefer),
            ("require", SslMode::VerifyCa),
            ("verify-full", SslMode::VerifyFull),
        ] {
            let text = format!("sslmode={mode} sslrootcert={}", root.display());
            assert_eq!(resolve(&text, &env(&[])).unwrap().ssl.mode, expected, "{mode}");
        }
        let missing = resolve("sslmode=require sslrootcert=/none", &env(&[])).unwrap();
        assert_eq!(missing.ssl.mode, SslMode::Require);
    }

    #[test]
    fn a_password_is_bytes_and_other_values_are_text() {
        let dir = tempfile::tempdir().unwrap();
        let mut env = env(&[]);
        env.home = Some(dir.path().to_owned());
        let file = b"# M\xfcller\n[s]\npassword=p\xfcw\n[u]\nuser=m\xfc\n";
        fs::write(dir.path().join(".pg_service.conf"), file).unwrap();
        let password = |text: &str, env: &Env| resolve(text, env).unwrap().password.unwrap();
        let exact = Secret::new(b"p\xfcw");
        assert_eq!(password("service=s", &env), exact);
        assert_eq!(password("postgresql://u:p%FCw@h/d", &env), exact);
        let refused = resolve("service=u", &env).unwrap_err().to_string();
        assert!(refused.contains("value of user") && refused.contains("not UTF-8"), "{refused}");
        assert!(problem("postgresql://m%FC@h/d", &[]).contains("not UTF-8"));

        let latin = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        env.vars.insert("PGPASSWORD".to_owned(), latin(b"p\xfcw"));
        assert_eq!(password("", &env), exact);
        env.vars.insert("PGDATABASE".to_owned(), latin(b"d\xfc"));
        let refused = resolve("", &env).unwrap_err().to_string();
        assert!(refused.contains("value of dbname from PGDATABASE"), "{refused}");
    }

    #[test]
    fn the_system_store_implies_verify_full() {
        assert_eq!(resolve("sslrootcert=system", &env(&[])).unwrap().ssl.mode, SslMode::VerifyFull);
        let problem = problem("sslrootcert=system", &[("PGSSLMODE", "require")]);
        assert_eq!(
            problem,
            "invalid value of sslmode from PGSSLMODE: sslrootcert=system requires verify-full"
        );
    }

    #[test]
    fn missing_certificate_files_are_warnings() {
        let params = resolve("sslmode=require sslrootcert=/none sslcert=/nor", &env(&[])).unwrap();
        let expected = [
            ConnectWarning::RootCertMissing("/none".into()),
            ConnectWarning::ClientCertMissing("/nor".into()),
        ];
        assert_eq!(params.warnings(), expected);
    }

    #[test]
    fn all_secrets_of_a_string_are_found() {
        let found = |text: &str| -> Vec<String> {
            let found = secrets(text);
            let text = |s: &Secret| String::from_utf8(s.expose().to_owned()).unwrap();
            found.iter().map(text).collect()
        };
        let text = "host=h password=a sslpassword='b c' oauth_client_secret=d passfile=/e sslkey=f";
        assert_eq!(found(text), ["a", "b c", "d"]);
        assert_eq!(found("postgres://u:p%40@h/d?ssl%70assword=x"), ["p@", "x"]);
        for text in ["", "mydb", "host=h password=''", "password='"] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn descriptions_contain_no_secrets() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join(".pgpass"), "*:*:*:*:hush\n", 0o600);
        let mut env = env(&[]);
        env.home = Some(dir.path().to_owned());
        for text in ["user=u password=hush", "postgres://u:hush@h/d", ""] {
            let params = resolve(text, &env).unwrap();
            assert!(params.password_for(&params.hosts[0]).is_some());
            let shown = format!("{params:?} {}", params.describe());
            assert!(!shown.contains("hush"), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(postgres://)?[a-z0-9=:,/?@ ']{0,30}|.*", port in ".*") {
            let _ = resolve(&text, &env(&[("PGPORT", &port)]));
        }
    }
}
