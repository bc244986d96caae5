//! Resolves a connection string and an [`Env`] into [`ConnectParams`], in libpq's order of
//! precedence: string, service file, environment, defaults.
//!
//! The only module that reads the service file and the password file. It checks only whether
//! certificates exist; they are read when a connection is opened. Opens no connection.
//!
//! Next: `keywords` for the table of keywords, `open` for the use of the result.

mod hosts;
mod settings;
mod ssl;

use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::error::{BadText, ConnectError, Source};
use super::keywords::{KEYWORDS, Pair, names_secret};
use super::params::{ChannelBinding, ConnectParams, Given, Keepalives, OnNotice, SessionAttrs};
use super::passfile::Passfile;
use super::secret::Secret;
use super::{Env, conninfo, psql, service, uri};
use settings::Settings;

/// Resolves a value that psql would accept as its database argument (a database name, a conninfo
/// string or a URI), or what follows `psql` on a command line (`-h db1 -p 5433 pgio`). With an empty string, all values come from the environment.
///
/// # Errors
///
/// For an invalid string, service file or value. An unusable password file is only a warning.
pub fn resolve(text: &str, env: &Env) -> Result<ConnectParams, ConnectError> {
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
        hosts: hosts::resolve(&settings, env)?,
        password,
        application_name: settings
            .text("application_name")
            .or_else(|| settings.text("fallback_application_name"))
            .unwrap_or_else(|| "pgio".to_owned()),
        options: settings.text("options"),
        connect_timeout: connect_timeout(&settings)?,
        session_attrs: settings.choice("target_session_attrs", SESSION_ATTRS)?,
        channel_binding: settings.choice("channel_binding", CHANNEL_BINDING)?,
        keepalives: keepalives(&settings)?,
        ssl: ssl::resolve(&settings, env, &mut warnings)?,
        passfile,
        given,
        warnings,
        tls: Arc::default(),
        zone: Arc::default(),
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
        let (path, pairs) = find_service(&name, env)?;
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

/// Searches the user's service file, then the system's.
fn find_service(name: &str, env: &Env) -> Result<(PathBuf, Vec<Pair>), ConnectError> {
    let given = env.var("PGSERVICEFILE").map(PathBuf::from);
    let user_file = || env.home.as_ref().map(|home| home.join(".pg_service.conf"));
    let system_dirs = match env.var("PGSYSCONFDIR") {
        Some(dir) => vec![PathBuf::from(dir)],
        None => env.sysconf_dirs.clone(),
    };
    let system_files = system_dirs.into_iter().map(|dir| dir.join("pg_service.conf"));
    let must_exist = given.clone();

    let mut looked_in = Vec::new();
    for path in given.or_else(user_file).into_iter().chain(system_files) {
        if must_exist.as_ref() != Some(&path) && !path.exists() {
            continue;
        }
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(source) => return Err(ConnectError::ServiceFileUnreadable { path, source }),
        };
        match service::find(&text, name) {
            Ok(Some(pairs)) => return Ok((path, pairs)),
            Ok(None) => looked_in.push(path),
            Err(bad) => {
                return Err(ConnectError::ServiceFile { path, line: bad.at, problem: bad.problem });
            }
        }
    }
    Err(ConnectError::ServiceNotFound { name: name.to_owned(), looked_in })
}

fn given(settings: &Settings) -> Result<Given, ConnectError> {
    Ok(Given {
        passfile: settings.file("passfile"),
        connect_timeout: settings.number("connect_timeout")?,
        root: settings.text("sslrootcert").is_some(),
        cert: settings.file("sslcert"),
        key: settings.file("sslkey"),
        no_client_cert: ssl::no_client_cert(settings),
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

#[cfg(test)]
mod tests;
