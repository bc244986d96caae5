//! A session that owns its socket. The client-side engine needs it to wait for a thousand sessions
//! in one place and to send messages directly.
//!
//! It connects by the route that [`super::connect`] found, with the same parameters, TLS and
//! password, and uses PostgreSQL's protocol 3.0. It blocks until [`Wire::set_nonblocking`]; the
//! caller composes requests and interprets answers.
//!
//! Next: `login` for passwords, `message` for what the server sends, `socket` for TLS.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use super::error::ConnectError;
use super::limits::{self, During, Excess};
use super::login::{self, Canceller};
use super::message::{Message, Refusal, WireError, routine, texts};
use super::params::{ConnectParams, NoticeHandler};
use super::socket::{Pipe, Route};

/// Rows in text format.
type Rows = Vec<Vec<Option<String>>>;

/// An open session.
pub struct Wire {
    pipe: Pipe,
    inbox: BytesMut,
    pid: i32,
    canceller: Canceller,
    on_notice: Option<NoticeHandler>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl Wire {
    /// Opens a session by the route that [`super::connect`] found.
    ///
    /// # Errors
    ///
    /// Same as [`super::connect`], for this one address.
    pub fn open(params: &ConnectParams, route: &Route) -> Result<Wire, ConnectError> {
        let login = login::open(params, route).map_err(|failed| failed.error)?;
        Ok(Wire {
            pipe: login.pipe,
            inbox: login.rest,
            pid: login.process.0,
            canceller: Canceller::new(params, route, login.process),
            on_notice: params.on_notice.0.clone(),
        })
    }

    /// Backend process id, as sent by the server at login; meaningless behind a pooler.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    pub fn set_nonblocking(&mut self, yes: bool) -> io::Result<()> {
        self.pipe.set_nonblocking(yes)
    }

    /// Sets the timeout of blocking reads.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.pipe.set_read_timeout(timeout)
    }

    /// Reads available bytes, at most as many as fit; 0 means the connection is closed.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.pipe.read(into)
    }

    /// Sends as much of `out` as the socket accepts and removes it from `out`. `false` means that
    /// some is left: call again when the socket is writable.
    pub fn send(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        self.pipe.send(out)
    }

    /// Runs one or more queries, blocking, and returns the rows of all of them.
    pub fn query(&mut self, sql: &str) -> Result<Rows, WireError> {
        let mut message = BytesMut::new();
        frontend::query(sql, &mut message)?;
        self.exchange(message.to_vec())
    }

    /// Creates prepared statements from name, text and parameter types.
    pub fn prepare(&mut self, statements: &[(String, String, Vec<u32>)]) -> Result<(), WireError> {
        let mut messages = BytesMut::new();
        for (name, sql, types) in statements {
            frontend::parse(name, sql, types.iter().copied(), &mut messages)?;
        }
        frontend::sync(&mut messages);
        self.exchange(messages.to_vec()).map(drop)
    }

    /// Sends the messages and reads until the next ReadyForQuery.
    fn exchange(&mut self, mut out: Vec<u8>) -> Result<Rows, WireError> {
        self.pipe.send(&mut out)?;
        let mut rows = Rows::new();
        let mut refused = None;
        let mut bytes = self.inbox.len();
        loop {
            while let Some((message, rest)) = Message::first(&self.inbox)? {
                match message.tag {
                    b'D' => rows.push(texts(message.body).ok_or(WireError::Malformed)?),
                    b'E' => {
                        refused.get_or_insert(Refusal::read(message.body));
                    }
                    b'N' => {
                        if let Some(handler) = &self.on_notice {
                            handler(routine(message.body));
                        }
                    }
                    _ => {}
                }
                let (ready, left) = (message.tag == b'Z', rest.len());
                let read = self.inbox.len() - left;
                let _ = self.inbox.split_to(read);
                if ready {
                    return match refused {
                        Some(refusal) => Err(refusal.into()),
                        None => Ok(rows),
                    };
                }
            }
            let received = self.pipe.fill(&mut self.inbox)?;
            if received == 0 {
                // No ReadyForQuery follows a FATAL error.
                return Err(refused.map_or(WireError::Ended, WireError::Refused));
            }
            bytes += received;
            if bytes > limits::MAX_ANSWER_BYTES {
                let (during, limit) = (During::Answer, limits::MAX_ANSWER_BYTES);
                return Err(Excess::Bytes { during, limit }.into());
            }
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.socket.as_fd()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Send Terminate; if that fails, closing the socket has the same effect.
        let _ = self.pipe.send(&mut vec![b'X', 0, 0, 0, 4]);
    }
}
