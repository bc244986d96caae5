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
use std::net::{self, Ipv4Addr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BytesMut;
use postgres::Socket;
use postgres::config::SslMode as DriverSsl;
use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::TlsUnsupported;
use super::limits::Guard;
use super::tls;
use super::tls::verifier::Tls;

/// The same text as the crate's, which `classify` recognizes.
const NO_TLS: &str = "server does not support TLS";

/// How to encrypt, or why that is impossible, which matters only if the server offers TLS.
pub(super) type Encryption = Result<Tls, TlsUnsupported>;

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
    tls: Option<Encryption>,
    ssl: DriverSsl,
    deadline: Option<Instant>,
    progress: Arc<Progress>,
    /// What to use instead of the socket that the crate has connected.
    instead: Option<Arc<net::TcpStream>>,
}

impl Connector {
    /// Without a TLS configuration, TLS is never requested. The login must end by `deadline`.
    pub(super) fn new(
        tls: Option<Encryption>,
        ssl: DriverSsl,
        deadline: Option<Instant>,
        progress: Arc<Progress>,
    ) -> Connector {
        Connector { tls, ssl, deadline, progress, instead: None }
    }

    /// Uses this socket, while the crate connects to a [`detour`].
    pub(super) fn over(self, socket: Option<net::TcpStream>) -> Connector {
        Connector { instead: socket.map(Arc::new), ..self }
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Guarded;
    type TlsConnect = Connecting;
    type Error = Infallible;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Connecting, Infallible> {
        let tls = self.tls.clone().filter(|_| self.ssl != DriverSsl::Disable);
        let tls = tls.map(|tls| (tls, domain.to_owned()));
        let (progress, instead) = (Arc::clone(&self.progress), self.instead.clone());
        Ok(Connecting { tls, ssl: self.ssl, deadline: self.deadline, progress, instead })
    }
}

pub(super) struct Connecting {
    /// With the name that the server's certificate is checked against.
    tls: Option<(Encryption, String)>,
    ssl: DriverSsl,
    deadline: Option<Instant>,
    progress: Arc<Progress>,
    instead: Option<Arc<net::TcpStream>>,
}

impl TlsConnect<Socket> for Connecting {
    type Stream = Guarded;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Guarded>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let (deadline, progress) = (self.deadline, Arc::clone(&self.progress));
            let socket: Box<dyn Stream> = match &self.instead {
                None => Box::new(socket),
                Some(own) => {
                    drop(socket);
                    // It is in the queue of the listener, which would otherwise fill.
                    let _ = detour()?.accept();
                    own.set_nonblocking(true)?;
                    Box::new(TcpStream::from_std(own.try_clone()?)?)
                }
            };
            let (stream, binding) = self.negotiate(socket).await?;
            Ok(Guarded { stream, binding, guard: Guard::new(), deadline, progress })
        })
    }
}

impl Connecting {
    async fn negotiate(
        self,
        mut socket: Box<dyn Stream>,
    ) -> io::Result<(Box<dyn Stream>, Option<Vec<u8>>)> {
        let Some((tls, name)) = self.tls else { return Ok((socket, None)) };
        let mut request = BytesMut::new();
        frontend::ssl_request(&mut request);
        socket.write_all(&request).await?;
        // Read exactly one byte: data after a refusal belongs to the plain session, and unencrypted
        // data after an `S` must not be trusted (CVE-2021-23222).
        match (socket.read_u8().await?, self.ssl) {
            (b'S', _) => {
                let (config, name) = tls.map_err(io::Error::other)?.for_host(name);
                let stream = TlsConnector::from(config).connect(name, socket).await?;
                self.progress.encrypted.store(true, Ordering::Relaxed);
                let certificates = stream.get_ref().1.peer_certificates();
                let binding = certificates.and_then(|all| tls::end_point(all.first()?));
                Ok((Box::new(stream), binding))
            }
            (_, DriverSsl::Require) => Err(io::Error::other(NO_TLS)),
            _ => Ok((socket, None)),
        }
    }
}

/// A listener to which the crate connects where it could not connect to the server: it drops the
/// zone of an address.
pub(super) fn detour() -> io::Result<&'static TcpListener> {
    static DETOUR: OnceLock<TcpListener> = OnceLock::new();
    if let Some(listener) = DETOUR.get() {
        return Ok(listener);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    Ok(DETOUR.get_or_init(|| listener))
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A stream whose reads fail once the server has sent too much.
pub(super) struct Guarded {
    stream: Box<dyn Stream>,
    /// The server's certificate, for the channel binding.
    binding: Option<Vec<u8>>,
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
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
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
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl TlsStream for Guarded {
    fn channel_binding(&self) -> ChannelBinding {
        let binding = self.binding.clone();
        binding.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}
