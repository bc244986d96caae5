//! A session that owns its socket. The client-side engine needs it to wait for a thousand sessions
//! in one place and to send messages directly.
//!
//! It connects by the route that [`super::reach`] found, with the same parameters, TLS and
//! password, and uses PostgreSQL's protocol 3.0. It blocks until [`Wire::set_nonblocking`]; the
//! caller composes requests and interprets answers.
//!
//! Next: `startup` for passwords, `pipe` for the socket with or without TLS.

mod pipe;
mod startup;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use super::cancel::Canceller;
use super::error::ConnectError;
use super::limits::{self, During, Excess};
use super::open::Route;
use super::params::{ConnectParams, NoticeHandler};
use pipe::Pipe;
use printable::{self, MAX_MESSAGE, truncate};
pub(super) use startup::cancel;

/// An error or notice of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", .hint.as_ref().map_or(String::new(), |h| format!(" ({})", h.trim_end_matches('.'))))]
pub struct Refusal {
    /// SQLSTATE.
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the connection to the server was lost")]
    Lost(#[from] io::Error),
    #[error("the server closed the connection")]
    Ended,
    #[error("malformed protocol message from the server")]
    Malformed,
    #[error("pgio closed the session")]
    Excess(#[from] Excess),
}

/// One message of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    pub tag: u8,
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first message in `bytes` and the bytes after it; `None` while it is incomplete.
    #[inline]
    pub fn first(bytes: &'a [u8]) -> Result<Option<(Message<'a>, &'a [u8])>, WireError> {
        let Some((head, rest)) = bytes.split_first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let size = length as usize;
        if size > limits::MESSAGE {
            return Err(Excess::Message { length, limit: limits::MESSAGE }.into());
        }
        let body = size.checked_sub(4).ok_or(WireError::Malformed)?;
        let split = rest.split_at_checked(body);
        Ok(split.map(|(body, rest)| (Message { tag: head[0], body }, rest)))
    }
}

impl Refusal {
    /// Parses an ErrorResponse or a NoticeResponse; texts become one line and are truncated.
    pub fn read(body: &[u8]) -> Refusal {
        let mut refusal = Refusal::default();
        for field in body.split(|byte| *byte == 0) {
            let Some((kind, text)) = field.split_first() else { continue };
            let text = String::from_utf8_lossy(text);
            let text = printable::line(&truncate(&text, MAX_MESSAGE)).into_owned();
            match kind {
                b'C' => refusal.code = text,
                b'M' => refusal.message = text,
                b'H' => refusal.hint = Some(text),
                _ => {}
            }
        }
        refusal
    }
}

/// Parses the columns of a DataRow in text format.
pub fn texts(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut columns = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (value, after) = after.split_at_checked(length)?;
                columns.push(Some(String::from_utf8_lossy(value).into_owned()));
                rest = after;
            }
            // -1 means NULL.
            Err(_) => {
                columns.push(None);
                rest = after;
            }
        }
    }
    Some(columns)
}

/// Rows in text format.
pub(super) type Rows = Vec<Vec<Option<String>>>;

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
    /// Opens a session by the route that [`super::reach`] found.
    ///
    /// # Errors
    ///
    /// Same as [`super::connect`], for this one address.
    pub fn open(params: &ConnectParams, route: &Route) -> Result<Wire, ConnectError> {
        let (pipe, inbox, pid, key) = startup::open(params, route)?;
        let canceller = Canceller::for_wire(params, route, pid, key);
        Ok(Wire { pipe, inbox, pid, canceller, on_notice: params.on_notice.0.clone() })
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
                            handler(&Refusal::read(message.body).message);
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
            if bytes > limits::ANSWER_BYTES {
                let (during, limit) = (During::Answer, limits::ANSWER_BYTES);
                return Err(Excess::Bytes { during, limit }.into());
            }
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Send Terminate; if that fails, closing the socket has the same effect.
        let _ = self.pipe.send(&mut vec![b'X', 0, 0, 0, 4]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_incomplete_message_is_none() {
        let bytes = [b'Z', 0, 0, 0, 5, b'I', b'C'];
        for cut in 0..6 {
            assert!(Message::first(&bytes[..cut]).unwrap().is_none(), "{cut}");
        }
        let (message, rest) = Message::first(&bytes).unwrap().unwrap();
        assert_eq!((message, rest), (Message { tag: b'Z', body: b"I" }, &b"C"[..]));
        assert!(matches!(Message::first(b"Z\0\0\0\x03I"), Err(WireError::Malformed)));
        assert!(matches!(Message::first(b"Z\x7f\0\0\0I"), Err(WireError::Excess(_))));
    }

    #[test]
    fn a_refusal_shows_the_servers_message_and_hint() {
        let body = b"SERROR\0VERROR\0C40P01\0Mdeadlock detected\0HSee server log.\0\0";
        let refusal = Refusal::read(body);
        assert_eq!(refusal.code, "40P01");
        assert_eq!(refusal.to_string(), "deadlock detected (See server log)");
    }

    #[test]
    fn columns_are_texts_or_null() {
        let body = b"\0\x02\0\0\0\x02on\xff\xff\xff\xff";
        assert_eq!(texts(body), Some(vec![Some("on".to_owned()), None]));
        assert_eq!(texts(&body[..7]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Message::first(&bytes);
            let _ = Refusal::read(&bytes);
            let _ = texts(&bytes);
        }
    }
}
