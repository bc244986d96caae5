//! Messages of the server: framing, errors and notices, rows in text format.
//!
//! Opens nothing and sends nothing; every length that the server claims is checked.

use std::io;

use printable::{self, MAX_MESSAGE, truncate};

use crate::limits::{self, Excess};

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
        if size > limits::MAX_MESSAGE_BYTES {
            return Err(Excess::Message { length, limit: limits::MAX_MESSAGE_BYTES }.into());
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

/// Returns the function of the server that sent an ErrorResponse or a NoticeResponse; unlike the message,
/// its name is not translated.
pub fn routine(body: &[u8]) -> &str {
    let name = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"R"));
    name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_fuzz::{fuzz, print};

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
    fn the_routine_of_a_translated_notice_is_known() {
        let body = b"SWARNUNG\0VWARNING\0MReplikation\0Fsyncrep.c\0RSyncRepWaitForLSN\0\0";
        assert_eq!(routine(body), "SyncRepWaitForLSN");
        for without in [&b"SNOTICE\0MRead\0\0"[..], b"R\xff\0", b""] {
            assert_eq!(routine(without), "");
        }
    }

    #[test]
    fn columns_are_texts_or_null() {
        let body = b"\0\x02\0\0\0\x02on\xff\xff\xff\xff";
        assert_eq!(texts(body), Some(vec![Some("on".to_owned()), None]));
        assert_eq!(texts(&body[..7]), None);
    }

    #[test]
    fn fuzzed_messages_are_read_or_refused() {
        let samples: [&[u8]; 3] = [
            b"E\0\0\0\x42SFATAL\0C28P01\0Mpassword authentication failed\0Htry\0Rauth_failed\0\0",
            b"T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0D\0\0\0\x10\0\x02\0\0\0\x02on\xff\xff\xff\xffZ\0\0\0\x05I",
            b"\0\x02\0\0\0\x02on\xff\xff\xff\xff",
        ];
        fuzz(&samples, |bytes| {
            let (mut rest, mut read) = (bytes, 0);
            loop {
                match Message::first(rest) {
                    Ok(Some((message, after))) => {
                        let _ = (
                            Refusal::read(message.body),
                            routine(message.body),
                            texts(message.body),
                        );
                        read += 5 + message.body.len();
                        rest = after;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        print(&error);
                        break;
                    }
                }
            }
            assert_eq!(read + rest.len(), bytes.len());
            let _ = (Refusal::read(bytes), routine(bytes), texts(bytes));
        });
    }
}
