//! Formats an error and its causes as one sentence, using the server's own message if there is one,
//! and truncates long messages.
//!
//! The driver repeats a server's message, once as `db error: ERROR: …` and once as `ERROR: …`; only
//! the message itself is kept. Nothing else is rewritten.

use std::error::Error;

use postgres::error::DbError;

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
    let db_error = error
        .downcast_ref::<DbError>()
        .or_else(|| error.downcast_ref::<postgres::Error>().and_then(postgres::Error::as_db_error));
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
