//! Resolves the ssl* keywords, with libpq's default files in ~/.postgresql.
//!
//! Checks only whether files exist; `tls` reads them when a connection needs TLS.

use std::path::{Path, PathBuf};

use super::settings::Settings;
use crate::{ClientCert, ConnectError, ConnectWarning, Env, RootCert, SslMode, SslParams};

/// The first value is the default.
const MODES: &[(&str, SslMode)] = &[
    ("prefer", SslMode::Prefer),
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

pub(super) fn resolve(
    settings: &Settings,
    env: &Env,
    warnings: &mut Vec<ConnectWarning>,
) -> Result<SslParams, ConnectError> {
    let root = root(settings, env);
    let mut mode = settings.choice("sslmode", MODES)?;
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
    let (tls12, tls13) = versions(settings)?;
    Ok(SslParams {
        mode,
        root,
        client: client(settings, env, warnings),
        revoked: in_home(env, "root.crl").filter(|path| path.exists()),
        sni: settings.choice("sslsni", &[("1", true), ("0", false)])?,
        tls12,
        tls13,
    })
}

fn in_home(env: &Env, file: &str) -> Option<PathBuf> {
    env.home.as_ref().map(|home| home.join(".postgresql").join(file))
}

fn root(settings: &Settings, env: &Env) -> RootCert {
    if settings.text("sslrootcert").as_deref() == Some("system") {
        return RootCert::System;
    }
    let default = || in_home(env, "root.crt").filter(|path| path.exists());
    settings.file("sslrootcert").or_else(default).map_or(RootCert::None, RootCert::File)
}

pub(super) fn no_client_cert(settings: &Settings) -> bool {
    settings.text("sslcertmode").as_deref() == Some("disable")
}

fn client(
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
fn versions(settings: &Settings) -> Result<(bool, bool), ConnectError> {
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
