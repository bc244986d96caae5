//! A session that is logged in, as the stream of an asynchronous client.
//!
//! `tokio_postgres` begins each stream with a login of its own. Ours is done, by `login`: the stream takes
//! the request and repeats the server's answer.
//!
//! Nothing here waits: [`Readiness`] tells what to wait for, and `client` does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::limits::Guard;
use super::login::Login;
use super::socket::Pipe;

/// State that the stream and the futures above it set for the thread that runs them.
#[derive(Debug)]
pub(super) struct Readiness {
    /// A future can proceed without the server.
    woken: AtomicBool,
    /// The socket may have bytes to read; set by who waits.
    readable: AtomicBool,
    /// The socket took less than there was to send.
    is_full: AtomicBool,
}

impl Readiness {
    pub(super) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_readable(&self) {
        self.readable.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

impl Wake for Readiness {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Stream {
    pipe: Pipe,
    guard: Guard,
    /// What the server said in the login, as far as it is not repeated yet.
    answer: BytesMut,
    /// The client has sent its request to log in.
    has_asked: bool,
    out: Vec<u8>,
    readiness: Arc<Readiness>,
}

impl Stream {
    pub(super) fn new(login: Login) -> io::Result<(Stream, Arc<Readiness>)> {
        login.pipe.set_nonblocking(true)?;
        let readiness = Arc::new(Readiness {
            woken: AtomicBool::new(false),
            readable: AtomicBool::new(true),
            is_full: AtomicBool::new(false),
        });
        let stream = Stream {
            pipe: login.pipe,
            guard: login.guard,
            answer: login.answer,
            has_asked: false,
            out: Vec::new(),
            readiness: Arc::clone(&readiness),
        };
        Ok((stream, readiness))
    }

    /// Whether all is sent.
    fn send(&mut self) -> io::Result<bool> {
        let all = self.pipe.send(&mut self.out)?;
        self.readiness.is_full.store(!all, Ordering::Relaxed);
        Ok(all)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.answer.is_empty() {
            let length = this.answer.len().min(buf.remaining());
            buf.put_slice(&this.answer[..length]);
            this.answer.advance(length);
            return Poll::Ready(Ok(()));
        }
        if !this.readiness.readable.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let into = buf.initialize_unfilled();
        let room = into.len();
        match this.pipe.read(into) {
            Ok(read) => {
                this.guard.watch(&into[..read])?;
                buf.advance(read);
                // More would have come with it, except what TLS holds.
                let may_have_more = read == room || this.pipe.tls.is_some();
                this.readiness.readable.store(may_have_more || read == 0, Ordering::Relaxed);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                this.readiness.readable.store(false, Ordering::Relaxed);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.has_asked {
            this.has_asked = true;
        } else if this.send()? {
            this.out.extend_from_slice(bytes);
            this.send()?;
        } else {
            return Poll::Pending;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.get_mut().send()? { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Closing the socket is enough.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
