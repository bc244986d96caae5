//! Resolved connection parameters: plain values, without reference to a driver.
//!
//! Passwords stay in [`Secret`], which can be neither shown nor stored.
//!
//! Next: `resolve` makes them, `open` and `tls` use them.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::error::ConnectWarning;
use super::passfile::Passfile;

/// Everything needed to open a session. Made by [`super::resolve()`].
#[derive(Debug, Clone)]
pub struct ConnectParams {
    pub user: String,
    pub dbname: String,
    /// Tried in this order; never empty.
    pub hosts: Vec<Endpoint>,
    /// From string, service or environment; [`Self::password_for`] also looks in the passfile.
    pub password: Option<Secret>,
    pub application_name: String,
    pub options: Option<String>,
    /// For each address and the whole login; `None` waits for ever.
    pub connect_timeout: Option<Duration>,
    pub session_attrs: SessionAttrs,
    pub channel_binding: ChannelBinding,
    pub keepalives: Keepalives,
    pub ssl: SslParams,
    pub(super) passfile: Passfile,
    pub(super) warnings: Vec<ConnectWarning>,
    /// Made once for all sessions with these parameters, since it reads files.
    pub(super) tls: Arc<OnceLock<rustls::ClientConfig>>,
    pub(super) on_notice: OnNotice,
}

/// Who hears what the server says beside its answers; nobody, unless said.
#[derive(Clone, Default)]
pub(super) struct OnNotice(pub(super) Option<Hear>);

pub(super) type Hear = Arc<dyn Fn(&str) + Send + Sync>;

impl fmt::Debug for OnNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "heard" } else { "ignored" })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Socket {
        dir: PathBuf,
        port: u16,
    },
    /// `host` is what a certificate must name; `addr` spares looking it up.
    Tcp {
        host: String,
        addr: Option<IpAddr>,
        port: u16,
    },
}

/// target_session_attrs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionAttrs {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding {
    Disable,
    Prefer,
    Require,
}

/// TCP settings; `None` leaves the operating system's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keepalives {
    pub disabled: bool,
    pub idle: Option<Duration>,
    pub interval: Option<Duration>,
    pub count: Option<u32>,
    pub user_timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SslParams {
    pub mode: SslMode,
    pub root: RootCert,
    pub client: Option<ClientCert>,
    pub sni: bool,
    pub tls12: bool,
    pub tls13: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootCert {
    /// Not given, and the default file is not there.
    None,
    /// Given or the default; it may have vanished, or never have been there if given.
    File(PathBuf),
    /// The operating system's trust store.
    System,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCert {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// A password. It has no Display and no Serialize, and Debug redacts.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The text itself, for the wire only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl ConnectParams {
    /// Without secrets: `pgio on /var/run/postgresql:5432 as postgres`.
    pub fn describe(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(ToString::to_string).collect();
        format!("{} on {} as {}", self.dbname, hosts.join(","), self.user)
    }

    pub fn with_dbname(mut self, dbname: impl Into<String>) -> Self {
        self.dbname = dbname.into();
        self
    }

    pub fn with_application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = name.into();
        self
    }

    /// For sessions whose notices and warnings matter.
    pub fn with_notices(mut self, hear: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_notice = OnNotice(Some(Arc::new(hear)));
        self
    }

    /// So on this machine.
    pub fn is_by_socket(&self) -> bool {
        self.hosts.iter().all(|endpoint| matches!(endpoint, Endpoint::Socket { .. }))
    }

    /// What resolving passed over although it was probably not meant so.
    pub fn warnings(&self) -> &[ConnectWarning] {
        &self.warnings
    }

    /// The password for one host. Looked up late, since the passfile also matches the database.
    pub fn password_for(&self, endpoint: &Endpoint) -> Option<Secret> {
        self.password.clone().or_else(|| self.passfile.find(endpoint, &self.dbname, &self.user))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Socket { dir, port } => write!(f, "{}:{port}", dir.display()),
            Endpoint::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}
