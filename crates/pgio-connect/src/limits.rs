//! Limits on what a server may make this process keep or wait for.
//!
//! Until it has authenticated itself, and with `trust` for ever, a server is whoever listens at the
//! address. The `postgres` crate buffers a message by the length its header claims, queues notices
//! and parameters until the login is over, and collects the rows of an answer; so a [`Guard`]
//! follows the frames of the stream below it and ends the session at the first that is too much.
//! It keeps no more than the header and the name of a parameter.
//!
//! The numbers are far above anything PostgreSQL sends to pgio's own statements.
//!
//! Next: `guarded` puts it under the `postgres` crate, `wire` under the sessions of our own.

use std::collections::BTreeSet;
use std::io;

/// libpq takes no longer error either before the login is over (MAX_ERRLEN in fe-connect.c).
const LOGIN_MESSAGE: usize = 30_000;
/// Of all messages until the login is over.
const LOGIN_BYTES: usize = 1 << 20;
/// Before the first ReadyForQuery; `client_min_messages = debug5` remains below it.
const LOGIN_NOTICES: usize = 1_000;
/// Different names; PostgreSQL 18 reports 16.
const PARAMETERS: usize = 200;
/// Of a parameter's name and value together.
const PARAMETER_BYTES: usize = 16 << 10;
/// pgio listens to no channel, and the crate keeps notifications until they are asked for.
const NOTIFICATIONS: usize = 100;
/// One message after the login.
pub(super) const MESSAGE: usize = 16 << 20;
/// All messages between two ReadyForQuery.
pub(super) const ANSWER_BYTES: usize = 32 << 20;
const ANSWER_MESSAGES: usize = 200_000;

/// What was too much.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    #[error("it sent the header of a message of {length} bytes (limit {limit})")]
    Message { length: u32, limit: usize },
    #[error("it sent more than {limit} bytes {}", .during.words())]
    Bytes { during: During, limit: usize },
    #[error("it sent more than {limit} messages {}", .during.words())]
    Messages { during: During, limit: usize },
    #[error("it sent more than {limit} notices before the login was over")]
    Notices { limit: usize },
    #[error("it reported more than {limit} parameters")]
    Parameters { limit: usize },
    #[error("it sent more than {limit} notifications, though nothing listens")]
    Notifications { limit: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum During {
    Login,
    Answer,
}

impl During {
    fn words(self) -> &'static str {
        match self {
            During::Login => "before the login was over",
            During::Answer => "in answer to one statement",
        }
    }
}

impl From<Excess> for io::Error {
    fn from(excess: Excess) -> io::Error {
        io::Error::other(excess)
    }
}

/// Follows the messages of a server and counts.
#[derive(Debug)]
pub(super) struct Guard {
    during: During,
    header: [u8; 5],
    /// Bytes of `header` that have come.
    have: usize,
    /// Bytes of the message's body that are still to come.
    left: usize,
    bytes: usize,
    messages: usize,
    notices: usize,
    notifications: usize,
    parameters: BTreeSet<Vec<u8>>,
    /// The name of the parameter that is being read; `None` once it has ended.
    name: Option<Vec<u8>>,
}

impl Guard {
    pub(super) fn new() -> Guard {
        Guard {
            during: During::Login,
            header: [0; 5],
            have: 0,
            left: 0,
            bytes: 0,
            messages: 0,
            notices: 0,
            notifications: 0,
            parameters: BTreeSet::new(),
            name: None,
        }
    }

    pub(super) fn is_login(&self) -> bool {
        self.during == During::Login
    }

    /// Takes the next bytes of the server, in pieces of any size.
    pub(super) fn watch(&mut self, mut bytes: &[u8]) -> Result<(), Excess> {
        while !bytes.is_empty() {
            if self.have < self.header.len() {
                let taken = bytes.len().min(self.header.len() - self.have);
                self.header[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
                self.have += taken;
                bytes = &bytes[taken..];
                if self.have < self.header.len() {
                    return Ok(());
                }
                self.begin()?;
            }
            let taken = bytes.len().min(self.left);
            self.read_name(&bytes[..taken])?;
            self.left -= taken;
            bytes = &bytes[taken..];
            if self.left == 0 {
                self.end();
            }
        }
        Ok(())
    }

    /// Judges a message by its header, before any of its body is kept.
    fn begin(&mut self) -> Result<(), Excess> {
        let [tag, a, b, c, d] = self.header;
        let length = u32::from_be_bytes([a, b, c, d]);
        let limit = match (tag, self.during) {
            (b'S', _) => PARAMETER_BYTES,
            (_, During::Login) => LOGIN_MESSAGE,
            (_, During::Answer) => MESSAGE,
        };
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size > limit {
            return Err(Excess::Message { length, limit });
        }
        // A length below 4 is no message; whoever reads it refuses it.
        self.left = size.saturating_sub(4);
        self.name = (tag == b'S').then(Vec::new);
        let during = self.during;
        let (most_bytes, most_messages) = match during {
            During::Login => (LOGIN_BYTES, usize::MAX),
            During::Answer => (ANSWER_BYTES, ANSWER_MESSAGES),
        };
        count(&mut self.bytes, size + 1, most_bytes)
            .map_err(|limit| Excess::Bytes { during, limit })?;
        count(&mut self.messages, 1, most_messages)
            .map_err(|limit| Excess::Messages { during, limit })?;
        match tag {
            b'N' if self.is_login() => count(&mut self.notices, 1, LOGIN_NOTICES)
                .map_err(|limit| Excess::Notices { limit })?,
            b'A' => count(&mut self.notifications, 1, NOTIFICATIONS)
                .map_err(|limit| Excess::Notifications { limit })?,
            _ => {}
        }
        Ok(())
    }

    fn read_name(&mut self, body: &[u8]) -> Result<(), Excess> {
        let Some(name) = &mut self.name else { return Ok(()) };
        let ends = body.iter().position(|byte| *byte == 0);
        name.extend_from_slice(&body[..ends.unwrap_or(body.len())]);
        if ends.is_none() {
            return Ok(());
        }
        self.parameters.extend(self.name.take());
        match self.parameters.len() > PARAMETERS {
            true => Err(Excess::Parameters { limit: PARAMETERS }),
            false => Ok(()),
        }
    }

    fn end(&mut self) {
        self.have = 0;
        if self.header[0] == b'Z' {
            (self.during, self.bytes, self.messages) = (During::Answer, 0, 0);
        }
    }
}

/// Adds, and gives the limit when it is passed.
fn count(counter: &mut usize, more: usize, limit: usize) -> Result<(), usize> {
    *counter = counter.saturating_add(more);
    if *counter > limit { Err(limit) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    fn ready() -> Vec<u8> {
        message(b'Z', b"I")
    }

    /// However the bytes are cut, the verdict is the same.
    fn verdict(bytes: &[u8]) -> Result<(), Excess> {
        let whole = Guard::new().watch(bytes);
        for piece in [1, 3, 7] {
            let mut guard = Guard::new();
            let cut = bytes.chunks(piece).try_for_each(|chunk| guard.watch(chunk));
            assert_eq!(cut, whole, "in pieces of {piece}");
        }
        whole
    }

    #[test]
    fn a_length_is_refused_by_its_header_alone() {
        let huge = [b'E', 0x7f, 0xff, 0xff, 0xff];
        let excess = verdict(&huge).unwrap_err();
        assert_eq!(excess, Excess::Message { length: 0x7fff_ffff, limit: LOGIN_MESSAGE });
        assert!(verdict(&[b'E', 0xff, 0xff, 0xff, 0xff]).is_err());
        let later = [ready(), huge.to_vec()].concat();
        let limit = MESSAGE;
        assert_eq!(verdict(&later), Err(Excess::Message { length: 0x7fff_ffff, limit }));
    }

    #[test]
    fn more_is_allowed_once_the_login_is_over() {
        let row = message(b'D', &[0; LOGIN_MESSAGE]);
        assert!(verdict(&row).is_err());
        assert_eq!(verdict(&[ready(), row].concat()), Ok(()));
    }

    #[test]
    fn notices_parameters_and_notifications_are_counted() {
        let notices = message(b'N', b"\0").repeat(LOGIN_NOTICES + 1);
        assert_eq!(verdict(&notices), Err(Excess::Notices { limit: LOGIN_NOTICES }));
        assert_eq!(verdict(&[ready(), notices].concat()), Ok(()), "the crate keeps none of these");
        let known: Vec<u8> = message(b'S', b"TimeZone\0UTC\0").repeat(PARAMETERS + 1);
        assert_eq!(verdict(&known), Ok(()), "one name again and again");
        let names = (0..=PARAMETERS).flat_map(|n| message(b'S', format!("p{n}\0on\0").as_bytes()));
        let names: Vec<u8> = names.collect();
        assert_eq!(verdict(&names), Err(Excess::Parameters { limit: PARAMETERS }));
        let heard = [ready(), message(b'A', b"\0\0\0\x01c\0\0")].concat();
        assert_eq!(
            verdict(&heard.repeat(NOTIFICATIONS + 1)),
            Err(Excess::Notifications { limit: NOTIFICATIONS })
        );
    }

    #[test]
    fn an_answer_is_bounded_and_the_next_begins_anew() {
        let row = message(b'D', &[0; 1 << 20]);
        let answer = [row.repeat(ANSWER_BYTES / row.len()), ready()].concat();
        let mut guard = Guard::new();
        guard.watch(&ready()).unwrap();
        for _ in 0..3 {
            guard.watch(&answer).unwrap();
        }
        guard.watch(&row.repeat(ANSWER_BYTES / row.len())).unwrap();
        let during = During::Answer;
        assert_eq!(guard.watch(&row), Err(Excess::Bytes { during, limit: ANSWER_BYTES }));
        let mut guard = Guard::new();
        guard.watch(&ready()).unwrap();
        let small = message(b'D', b"\0\0").repeat(ANSWER_MESSAGES + 1);
        let limit = ANSWER_MESSAGES;
        assert_eq!(guard.watch(&small), Err(Excess::Messages { during, limit }));
    }
}
