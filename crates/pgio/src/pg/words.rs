//! An error and its causes as one sentence, in the server's own words where it had any, and cut
//! where a server says more than a person reads.
//!
//! The driver spells a server's message once as `db error: ERROR: …` and once as `ERROR: …`; neither
//! tells a person more than the message itself. Nothing else is rewritten here.

use std::error::Error;

use postgres::error::DbError;

use crate::printable::{self, MAX_MESSAGE, truncate};

/// Each cause once, without repeating itself.
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut text = said(error);
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = said(inner);
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    // Each part is cut by itself, and there are few.
    truncate(&text, 4 * MAX_MESSAGE).into_owned()
}

/// One error alone.
pub fn said(error: &(dyn Error + 'static)) -> String {
    let of_server = error
        .downcast_ref::<DbError>()
        .or_else(|| error.downcast_ref::<postgres::Error>().and_then(postgres::Error::as_db_error));
    let text = match of_server {
        // A line break of the server's could pass for the end of our sentence.
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
    fn a_server_cannot_fill_the_screen() {
        let error = anyhow::anyhow!("x".repeat(50 << 20)).context("the server refused");
        let text = sentence(error.as_ref());
        assert!(text.starts_with("the server refused: xxx"), "{}", &text[..80]);
        assert!(
            text.len() < 2 * MAX_MESSAGE && text.contains("... (52428800 bytes)"),
            "{}",
            text.len()
        );
    }
}
