//! Formats an error and its causes as one sentence, using the server's own message if there is one,
//! and truncates long messages.
//!
//! The driver repeats a server's message, once as `db error: ERROR: …` and once as `ERROR: …`; only
//! the message itself is kept. Nothing else is rewritten.

use std::error::Error;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pgio_connect::types::{FromSql, Type};
use pgio_connect::{DbError, SqlState};

use printable::{self, MAX_MESSAGE, truncate};

/// The error and each of its causes, without repetitions.
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut text = message(error);
    let mut cause = error.source();
    while let Some(inner) = cause {
        let cause_text = message(inner);
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        cause = inner.source();
    }
    // Each part is already truncated; limit the total as well.
    truncate(&text, 4 * MAX_MESSAGE).into_owned()
}

/// The error without its causes.
pub fn message(error: &(dyn Error + 'static)) -> String {
    let db_error = error.downcast_ref::<DbError>().or_else(|| {
        error.downcast_ref::<pgio_connect::Error>().and_then(pgio_connect::Error::as_db_error)
    });
    let text = match db_error {
        // A line break in the server's message could look like the end of ours.
        Some(db) => match db.hint() {
            Some(hint) => {
                let text = format!("{} ({})", db.message(), hint.trim_end_matches('.'));
                printable::line(&text).into_owned()
            }
            None => printable::line(db.message()).into_owned(),
        },
        None => error.to_string(),
    };
    truncate(&text, MAX_MESSAGE).into_owned()
}

/// Whether the role lacks a privilege. The server sends the same SQLSTATE if the operating system
/// refuses it a file; then the message, in any language, ends with the system's words after a colon.
pub fn is_denied(error: &pgio_connect::Error) -> bool {
    error.as_db_error().is_some_and(|db| {
        *db.code() == SqlState::INSUFFICIENT_PRIVILEGE
            && (db.file() == Some("aclchk.c") || !db.message().contains(": "))
    })
}

/// Text of the server for people: what is not UTF-8 (a setting with a byte of Latin-1, a name in a
/// SQL_ASCII database) becomes U+FFFD. A `String` is exact and has an error instead.
#[derive(Debug)]
pub struct Shown(pub String);

impl<'a> FromSql<'a> for Shown {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Shown, Box<dyn Error + Sync + Send>> {
        Ok(Shown(String::from_utf8_lossy(raw).into_owned()))
    }

    fn accepts(ty: &Type) -> bool {
        <&str as FromSql>::accepts(ty)
    }
}

impl From<Shown> for String {
    fn from(shown: Shown) -> String {
        shown.0
    }
}

/// A path on the server's machine, which is bytes.
#[derive(Debug)]
pub struct ServerPath(pub PathBuf);

impl<'a> FromSql<'a> for ServerPath {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<ServerPath, Box<dyn Error + Sync + Send>> {
        Ok(ServerPath(PathBuf::from(OsStr::from_bytes(raw))))
    }

    fn accepts(ty: &Type) -> bool {
        <&str as FromSql>::accepts(ty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_each_cause_once() {
        let inner = anyhow::anyhow!("no route to host");
        let outer = inner.context("cannot connect").context("run: cannot connect");
        assert_eq!(sentence(outer.as_ref()), "run: cannot connect: no route to host");
    }

    #[test]
    fn a_long_message_loses_its_middle() {
        let message = format!("{}: run `pgio undo`", "x".repeat(52_428_783));
        let error = anyhow::anyhow!(message).context("the server refused");
        let text = sentence(error.as_ref());
        assert!(text.starts_with("the server refused: xxx"), "{}", &text[..80]);
        assert!(text.ends_with("run `pgio undo`"), "the advice stands at the end");
        assert!(
            text.len() < 2 * MAX_MESSAGE && text.contains("... (52428800 bytes)"),
            "{}",
            text.len()
        );
    }
}
