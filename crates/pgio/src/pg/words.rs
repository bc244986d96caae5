//! An error and its causes as one sentence, in the server's own words where it had any.
//!
//! The driver spells a server's message once as `db error: ERROR: …` and once as `ERROR: …`; neither
//! tells a person more than the message itself. Nothing else is rewritten here.

use std::error::Error;

use postgres::error::DbError;

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
    text
}

/// One error alone.
pub fn said(error: &(dyn Error + 'static)) -> String {
    let of_server = error
        .downcast_ref::<DbError>()
        .or_else(|| error.downcast_ref::<postgres::Error>().and_then(postgres::Error::as_db_error));
    match of_server {
        Some(db) => match db.hint() {
            Some(hint) => format!("{} ({})", db.message(), hint.trim_end_matches('.')),
            None => db.message().to_owned(),
        },
        None => error.to_string(),
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
}
