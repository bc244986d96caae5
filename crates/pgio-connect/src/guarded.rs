//! The stream below a session of the `postgres` crate: a socket with or without TLS, limited by a
//! [`Guard`].
//!
//! The crate opens its sockets itself and allows wrapping only for TLS. It is therefore configured
//! to start TLS immediately (`sslnegotiation = direct`), with [`Connector`] as the TLS
//! implementation: it requests TLS as PostgreSQL does, or not, and returns a stream that counts
//! what the server sends. Cancel requests use the same path.
//!
//! The crate does not use a TLS connector for Unix-domain sockets; see `open`.
//!
//! Next: `limits` for the counting.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BytesMut;
use postgres::Socket;
use postgres::config::SslMode as DriverSsl;
use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use postgres_protocol::message::frontend;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;

use super::error::TlsUnsupported;
use super::limits::Guard;
use super::tls;

/// The same text as the crate's, which `classify` recognizes.
const NO_TLS: &str = "server does not support TLS";

/// How to encrypt, or why that is impossible, which matters only if the server offers TLS.
pub(super) type Encryption = Result<rustls::ClientConfig, TlsUnsupported>;

/// How far a login came. Shared, because a login that fails returns no stream.
#[derive(Debug, Default)]
pub(super) struct Progress {
    encrypted: AtomicBool,
    authenticated: AtomicBool,
}

impl Progress {
    /// Whether the session has TLS.
    pub(super) fn is_encrypted(&self) -> bool {
        self.encrypted.load(Ordering::Relaxed)
    }

    /// Whether the server has accepted the client's authentication.
    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
pub(super) struct Connector {
    tls: Option<Result<TlsConnector, TlsUnsupported>>,
    ssl: DriverSsl,
    deadline: Option<Instant>,
    progress: Arc<Progress>,
}

impl Connector {
    /// Without a TLS configuration, TLS is never requested. The login must end by `deadline`.
    pub(super) fn new(
        tls: Option<Encryption>,
        ssl: DriverSsl,
        deadline: Option<Instant>,
        progress: Arc<Progress>,
    ) -> Connector {
        let tls = tls.map(|tls| tls.map(|config| TlsConnector::from(Arc::new(config))));
        Connector { tls, ssl, deadline, progress }
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Guarded;
    type TlsConnect = Connecting;
    type Error = Infallible;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Connecting, Infallible> {
        let tls = self.tls.clone().filter(|_| self.ssl != DriverSsl::Disable);
        let tls = tls.map(|tls| (tls, domain.to_owned()));
        let progress = Arc::clone(&self.progress);
        Ok(Connecting { tls, ssl: self.ssl, deadline: self.deadline, progress })
    }
}

pub(super) struct Connecting {
    /// With the name that the server's certificate is checked against.
    tls: Option<(Result<TlsConnector, TlsUnsupported>, String)>,
    ssl: DriverSsl,
    deadline: Option<Instant>,
    progress: Arc<Progress>,
}

impl TlsConnect<Socket> for Connecting {
    type Stream = Guarded;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Guarded>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let (deadline, progress) = (self.deadline, Arc::clone(&self.progress));
            let inner = self.negotiate(socket).await?;
            progress.encrypted.store(matches!(inner, Inner::Encrypted(_)), Ordering::Relaxed);
            Ok(Guarded { inner, guard: Guard::new(), deadline, progress })
        })
    }
}

impl Connecting {
    async fn negotiate(self, mut socket: Socket) -> io::Result<Inner> {
        let Some((tls, name)) = self.tls else { return Ok(Inner::Plain(socket)) };
        let mut request = BytesMut::new();
        frontend::ssl_request(&mut request);
        socket.write_all(&request).await?;
        // Read exactly one byte: data after a refusal belongs to the plain session, and unencrypted
        // data after an `S` must not be trusted (CVE-2021-23222).
        match (socket.read_u8().await?, self.ssl) {
            (b'S', _) => {
                let tls = tls.map_err(io::Error::other)?;
                let name = ServerName::try_from(name)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
                Ok(Inner::Encrypted(Box::new(tls.connect(name, socket).await?)))
            }
            (_, DriverSsl::Require) => Err(io::Error::other(NO_TLS)),
            _ => Ok(Inner::Plain(socket)),
        }
    }
}

enum Inner {
    Plain(Socket),
    Encrypted(Box<Encrypted<Socket>>),
}

/// A stream whose reads fail once the server has sent too much.
pub(super) struct Guarded {
    inner: Inner,
    guard: Guard,
    /// Deadline of the login, also for a server that sends a byte now and then.
    deadline: Option<Instant>,
    progress: Arc<Progress>,
}

impl AsyncRead for Guarded {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(match &mut this.inner {
            Inner::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Inner::Encrypted(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        })?;
        this.guard.watch(&buf.filled()[before..])?;
        if this.guard.is_login() && this.guard.is_authenticated() {
            this.progress.authenticated.store(true, Ordering::Relaxed);
        }
        let late = this.deadline.is_some_and(|deadline| Instant::now() > deadline);
        if late && this.guard.is_login() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().inner {
            Inner::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Inner::Encrypted(stream) => Pin::new(&mut **stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().inner {
            Inner::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Inner::Encrypted(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().inner {
            Inner::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Inner::Encrypted(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

impl TlsStream for Guarded {
    fn channel_binding(&self) -> ChannelBinding {
        match &self.inner {
            Inner::Plain(_) => ChannelBinding::none(),
            Inner::Encrypted(stream) => {
                let certificates = stream.get_ref().1.peer_certificates();
                certificates
                    .and_then(|certificates| tls::end_point(certificates.first()?))
                    .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
            }
        }
    }
}
