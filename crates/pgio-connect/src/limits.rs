//! Limits on the memory and time that a server can make this process use.
//!
//! Before authentication, and always with `trust`, the server can be any program that listens at
//! the address. The `postgres` crate buffers a message of the length that its header claims, queues
//! notices and parameters until the login is complete, and collects the rows of an answer. A
//! [`Guard`] therefore follows the messages in the stream below the crate and ends the session at
//! the first one that exceeds a limit. It stores only the header, the name of a parameter and the kind
//! of an authentication request.
//!
//! The limits are far above anything that PostgreSQL sends in answer to pgio's statements.
//!
//! Next: `guarded` uses it below the `postgres` crate, `wire` in its own sessions.

use std::collections::BTreeSet;
use std::io;

/// One message during login; libpq accepts no longer error either (MAX_ERRLEN in fe-connect.c).
const MAX_LOGIN_MESSAGE_BYTES: usize = 30_000;
/// All messages until the login is complete.
const MAX_LOGIN_BYTES: usize = 1 << 20;
/// Notices before the first ReadyForQuery; `client_min_messages = debug5` stays below the limit.
const MAX_LOGIN_NOTICES: usize = 1_000;
/// Distinct parameter names; PostgreSQL 18 reports 16.
const MAX_PARAMETERS: usize = 200;
/// A parameter's name and value together.
const MAX_PARAMETER_BYTES: usize = 16 << 10;
/// pgio listens on no channel, and the crate stores notifications until they are fetched.
const MAX_NOTIFICATIONS: usize = 100;
/// One message after the login.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// All messages between two ReadyForQuery.
pub(super) const MAX_ANSWER_BYTES: usize = 32 << 20;
const MAX_ANSWER_MESSAGES: usize = 200_000;

/// The limit that the server exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    #[error("it sent the header of a message of {length} bytes (limit {limit})")]
    Message { length: u32, limit: usize },
    #[error("it sent more than {limit} bytes {}", .during.phrase())]
    Bytes { during: During, limit: usize },
    #[error("it sent more than {limit} messages {}", .during.phrase())]
    Messages { during: During, limit: usize },
    #[error("it sent more than {limit} notices before the login was complete")]
    Notices { limit: usize },
    #[error("it reported more than {limit} parameters")]
    Parameters { limit: usize },
    #[error("it sent more than {limit} notifications, although pgio listens on no channel")]
    Notifications { limit: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum During {
    Login,
    Answer,
}

impl During {
    fn phrase(self) -> &'static str {
        match self {
            During::Login => "before the login was complete",
            During::Answer => "in answer to one statement",
        }
    }
}

impl From<Excess> for io::Error {
    fn from(excess: Excess) -> io::Error {
        io::Error::other(excess)
    }
}

/// The kind of an authentication request comes first in its body.
const KIND_BYTES: usize = 4;
const AUTHENTICATION_OK: [u8; KIND_BYTES] = [0; KIND_BYTES];

/// Follows and counts the messages of a server.
#[derive(Debug)]
pub(super) struct Guard {
    during: During,
    header: [u8; 5],
    /// Bytes of `header` received so far.
    header_len: usize,
    /// Bytes of the message's body still to be received.
    left: usize,
    bytes: usize,
    messages: usize,
    notices: usize,
    notifications: usize,
    parameters: BTreeSet<Vec<u8>>,
    /// Name of the parameter being read; `None` once it is complete.
    name: Option<Vec<u8>>,
    /// Kind of the last authentication request, as far as received.
    kind: Vec<u8>,
    authenticated: bool,
}

impl Guard {
    pub(super) fn new() -> Guard {
        Guard {
            during: During::Login,
            header: [0; 5],
            header_len: 0,
            left: 0,
            bytes: 0,
            messages: 0,
            notices: 0,
            notifications: 0,
            parameters: BTreeSet::new(),
            name: None,
            kind: Vec::new(),
            authenticated: false,
        }
    }

    pub(super) fn is_login(&self) -> bool {
        self.during == During::Login
    }

    /// Whether the server has sent AuthenticationOk.
    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Processes the next bytes from the server, in pieces of any size.
    pub(super) fn watch(&mut self, mut bytes: &[u8]) -> Result<(), Excess> {
        while !bytes.is_empty() {
            if self.header_len < self.header.len() {
                let taken = bytes.len().min(self.header.len() - self.header_len);
                self.header[self.header_len..self.header_len + taken]
                    .copy_from_slice(&bytes[..taken]);
                self.header_len += taken;
                bytes = &bytes[taken..];
                if self.header_len < self.header.len() {
                    return Ok(());
                }
                self.begin()?;
            }
            let taken = bytes.len().min(self.left);
            self.read_kind(&bytes[..taken]);
            self.read_name(&bytes[..taken])?;
            self.left -= taken;
            bytes = &bytes[taken..];
            if self.left == 0 {
                self.end();
            }
        }
        Ok(())
    }

    /// Checks a message by its header, before any of its body is stored.
    fn begin(&mut self) -> Result<(), Excess> {
        let [tag, a, b, c, d] = self.header;
        let length = u32::from_be_bytes([a, b, c, d]);
        let limit = match (tag, self.during) {
            (b'S', _) => MAX_PARAMETER_BYTES,
            (_, During::Login) => MAX_LOGIN_MESSAGE_BYTES,
            (_, During::Answer) => MAX_MESSAGE_BYTES,
        };
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size > limit {
            return Err(Excess::Message { length, limit });
        }
        // A length below 4 is invalid; the reader of the message rejects it.
        self.left = size.saturating_sub(4);
        self.name = (tag == b'S').then(Vec::new);
        self.kind.clear();
        let during = self.during;
        let (max_bytes, max_messages) = match during {
            During::Login => (MAX_LOGIN_BYTES, usize::MAX),
            During::Answer => (MAX_ANSWER_BYTES, MAX_ANSWER_MESSAGES),
        };
        count(&mut self.bytes, size + 1, max_bytes)
            .map_err(|limit| Excess::Bytes { during, limit })?;
        count(&mut self.messages, 1, max_messages)
            .map_err(|limit| Excess::Messages { during, limit })?;
        match tag {
            b'N' if self.is_login() => count(&mut self.notices, 1, MAX_LOGIN_NOTICES)
                .map_err(|limit| Excess::Notices { limit })?,
            b'A' => count(&mut self.notifications, 1, MAX_NOTIFICATIONS)
                .map_err(|limit| Excess::Notifications { limit })?,
            _ => {}
        }
        Ok(())
    }

    fn read_kind(&mut self, body: &[u8]) {
        if self.header[0] == b'R' {
            let missing = KIND_BYTES - self.kind.len();
            self.kind.extend(body.iter().take(missing));
            self.authenticated |= self.kind == AUTHENTICATION_OK;
        }
    }

    fn read_name(&mut self, body: &[u8]) -> Result<(), Excess> {
        let Some(name) = &mut self.name else { return Ok(()) };
        let ends = body.iter().position(|byte| *byte == 0);
        name.extend_from_slice(&body[..ends.unwrap_or(body.len())]);
        if ends.is_none() {
            return Ok(());
        }
        self.parameters.extend(self.name.take());
        if self.parameters.len() > MAX_PARAMETERS {
            Err(Excess::Parameters { limit: MAX_PARAMETERS })
        } else {
            Ok(())
        }
    }

    fn end(&mut self) {
        self.header_len = 0;
        if self.header[0] == b'Z' {
            (self.during, self.bytes, self.messages) = (During::Answer, 0, 0);
        }
    }
}

/// Adds to the counter; `Err` is the limit if it is exceeded.
fn count(counter: &mut usize, more: usize, limit: usize) -> Result<(), usize> {
    *counter = counter.saturating_add(more);
    if *counter > limit { Err(limit) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use pgio_fuzz::{fuzz, print};

    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    fn ready() -> Vec<u8> {
        message(b'Z', b"I")
    }

    /// Checks that the verdict does not depend on how the bytes are split.
    fn verdict(bytes: &[u8]) -> Result<(), Excess> {
        let whole = Guard::new().watch(bytes);
        for piece in [1, 3, 7] {
            let mut guard = Guard::new();
            let split = bytes.chunks(piece).try_for_each(|chunk| guard.watch(chunk));
            assert_eq!(split, whole, "in pieces of {piece}");
        }
        whole
    }

    #[test]
    fn an_excessive_length_is_rejected_by_the_header_alone() {
        let huge = [b'E', 0x7f, 0xff, 0xff, 0xff];
        let excess = verdict(&huge).unwrap_err();
        assert_eq!(excess, Excess::Message { length: 0x7fff_ffff, limit: MAX_LOGIN_MESSAGE_BYTES });
        assert!(verdict(&[b'E', 0xff, 0xff, 0xff, 0xff]).is_err());
        let later = [ready(), huge.to_vec()].concat();
        let limit = MAX_MESSAGE_BYTES;
        assert_eq!(verdict(&later), Err(Excess::Message { length: 0x7fff_ffff, limit }));
    }

    #[test]
    fn longer_messages_are_allowed_after_the_login() {
        let row = message(b'D', &[0; MAX_LOGIN_MESSAGE_BYTES]);
        assert!(verdict(&row).is_err());
        assert_eq!(verdict(&[ready(), row].concat()), Ok(()));
    }

    #[test]
    fn notices_parameters_and_notifications_are_counted() {
        let notices = message(b'N', b"\0").repeat(MAX_LOGIN_NOTICES + 1);
        assert_eq!(verdict(&notices), Err(Excess::Notices { limit: MAX_LOGIN_NOTICES }));
        assert_eq!(verdict(&[ready(), notices].concat()), Ok(()), "the crate does not store these");
        let known: Vec<u8> = message(b'S', b"TimeZone\0UTC\0").repeat(MAX_PARAMETERS + 1);
        assert_eq!(verdict(&known), Ok(()), "one name repeatedly");
        let names =
            (0..=MAX_PARAMETERS).flat_map(|n| message(b'S', format!("p{n}\0on\0").as_bytes()));
        let names: Vec<u8> = names.collect();
        assert_eq!(verdict(&names), Err(Excess::Parameters { limit: MAX_PARAMETERS }));
        let notification = [ready(), message(b'A', b"\0\0\0\x01c\0\0")].concat();
        assert_eq!(
            verdict(&notification.repeat(MAX_NOTIFICATIONS + 1)),
            Err(Excess::Notifications { limit: MAX_NOTIFICATIONS })
        );
    }

    #[test]
    fn only_its_ok_completes_the_authentication() {
        let (ok, password) = (message(b'R', &[0; 4]), message(b'R', &[0, 0, 0, 3]));
        let sasl = message(b'R', b"\0\0\0\x0bdata\0\0\0\0");
        let error = message(b'E', &[0; 4]);
        for (bytes, complete) in [
            (ok.clone(), true),
            (password.clone(), false),
            (sasl.clone(), false),
            (error.clone(), false),
            ([password, sasl, ok, error].concat(), true),
        ] {
            for piece in [1, 3, 7, 100] {
                let mut guard = Guard::new();
                bytes.chunks(piece).try_for_each(|chunk| guard.watch(chunk)).unwrap();
                assert_eq!(guard.is_authenticated(), complete, "{bytes:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn fuzzed_streams_are_judged_alike_in_pieces_of_any_size() {
        let login = [
            message(b'R', &[0, 0, 0, 3]),
            message(b'R', &[0; 4]),
            message(b'S', b"TimeZone\0UTC\0"),
            message(b'K', &[0; 8]),
            message(b'N', b"MWelcome\0\0"),
            ready(),
        ];
        let answer = [message(b'D', b"\0\x01\0\0\0\x01a"), message(b'C', b"SELECT 1\0"), ready()];
        fuzz(&[login.concat(), [login.concat(), answer.concat()].concat()], |bytes| {
            if let Err(excess) = verdict(bytes) {
                print(&excess);
            }
        });
    }

    #[test]
    fn limits_apply_to_each_answer_separately() {
        let row = message(b'D', &[0; 1 << 20]);
        let answer = [row.repeat(MAX_ANSWER_BYTES / row.len()), ready()].concat();
        let mut guard = Guard::new();
        guard.watch(&ready()).unwrap();
        for _ in 0..3 {
            guard.watch(&answer).unwrap();
        }
        guard.watch(&row.repeat(MAX_ANSWER_BYTES / row.len())).unwrap();
        let during = During::Answer;
        assert_eq!(guard.watch(&row), Err(Excess::Bytes { during, limit: MAX_ANSWER_BYTES }));
        let mut guard = Guard::new();
        guard.watch(&ready()).unwrap();
        let small = message(b'D', b"\0\0").repeat(MAX_ANSWER_MESSAGES + 1);
        let limit = MAX_ANSWER_MESSAGES;
        assert_eq!(guard.watch(&small), Err(Excess::Messages { during, limit }));
    }
}
