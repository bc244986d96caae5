//! Resolved connection parameters: plain values, independent of a driver.
//!
//! Passwords are [`Secret`]s, which can be neither displayed nor serialized.
//!
//! Next: `resolve` creates them, `open` and `tls` use them.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::error::ConnectWarning;
use super::passfile::Passfile;
use super::secret::Secret;
use super::socket::Endpoint;
use super::tls::Tls;

/// Everything needed to open a session. Created by [`super::resolve()`].
#[derive(Debug, Clone)]
pub struct ConnectParams {
    pub user: String,
    pub dbname: String,
    /// Tried in this order; never empty.
    pub hosts: Vec<Endpoint>,
    /// From the string, the service file or the environment; [`Self::password_for`] also searches
    /// the password file.
    pub password: Option<Secret>,
    pub application_name: String,
    pub options: Option<String>,
    /// Timeout per address for the whole login; `None` waits forever.
    pub connect_timeout: Option<Duration>,
    pub session_attrs: SessionAttrs,
    pub channel_binding: ChannelBinding,
    pub keepalives: Keepalives,
    pub ssl: SslParams,
    pub(super) passfile: Passfile,
    pub(super) given: Given,
    pub(super) warnings: Vec<ConnectWarning>,
    /// Created once for all sessions with these parameters, because it reads files.
    pub(super) tls: Arc<OnceLock<Tls>>,
    pub(super) on_notice: OnNotice,
}

/// What the user gave, where the resolved value does not tell it from a default. Written for another host, the
/// parameters contain no defaults of this one: that host has its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) passfile: Option<PathBuf>,
    /// In seconds, as written.
    pub(super) connect_timeout: Option<i32>,
    /// Whether `sslrootcert` was given; its value is in [`SslParams`].
    pub(super) root: bool,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    /// sslcertmode=disable.
    pub(super) no_client_cert: bool,
}

/// Callback for the server's notices; none by default.
#[derive(Clone, Default)]
pub(super) struct OnNotice(pub(super) Option<NoticeHandler>);

pub(super) type NoticeHandler = Arc<dyn Fn(&str) + Send + Sync>;

impl fmt::Debug for OnNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "handled" } else { "ignored" })
    }
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

/// TCP settings; `None` means the operating system's default.
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
    /// The default list of revoked certificates, if it exists.
    pub revoked: Option<PathBuf>,
    pub sni: bool,
    pub tls12: bool,
    pub tls13: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootCert {
    /// Not given, and the default file does not exist.
    None,
    /// Given, or the default. The file may be missing.
    File(PathBuf),
    /// The operating system's trust store.
    System,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCert {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl ConnectParams {
    /// A description without secrets: `pgio on /var/run/postgresql:5432 as postgres`.
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

    /// Forgets what does not decide which server is reached, and how securely: the password file, timeouts and
    /// keepalives. For a comparison of servers. A default file that another string names is no difference.
    pub fn for_comparison(mut self) -> Self {
        self.given.passfile = None;
        self.given.connect_timeout = None;
        self.keepalives = Keepalives::default();
        self.with_default_files()
    }

    /// Takes the default files of this host for given ones.
    pub(super) fn with_default_files(mut self) -> Self {
        self.given.root = self.ssl.root != RootCert::None;
        self.given.cert = self.ssl.client.as_ref().map(|client| client.cert.clone());
        self.given.key = self.ssl.client.as_ref().map(|client| client.key.clone());
        self
    }

    /// Calls `handler` for each notice and warning with the function of the server that sent it: unlike the
    /// message, its name is not translated.
    pub fn with_notices(mut self, handler: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_notice = OnNotice(Some(Arc::new(handler)));
        self
    }

    /// Whether all hosts are Unix-domain sockets, so that the server is on this machine.
    pub fn is_by_socket(&self) -> bool {
        self.hosts.iter().all(|endpoint| matches!(endpoint, Endpoint::Socket { .. }))
    }

    /// Problems that libpq would ignore silently.
    pub fn warnings(&self) -> &[ConnectWarning] {
        &self.warnings
    }

    /// The password for one host. Looked up late, because the password file also matches the
    /// database.
    pub fn password_for(&self, endpoint: &Endpoint) -> Option<Secret> {
        self.password.clone().or_else(|| self.passfile.find(endpoint, &self.dbname, &self.user))
    }
}
