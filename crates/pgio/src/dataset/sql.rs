//! The statements, and how names get into them.
//!
//! Values travel as parameters; only names and comments, which cannot, are filled in, quoted here
//! and nowhere else.

pub(super) const PREFLIGHT: &str = include_str!("sql/preflight.sql");
pub(super) const NAMED: &str = include_str!("sql/named.sql");
pub(super) const SESSION: &str = include_str!("sql/session.sql");
pub(super) const CREATE_TABLE: &str = include_str!("sql/create_table.sql");
pub(super) const CREATE_BASE: &str = include_str!("sql/create_base.sql");
pub(super) const COPY: &str = include_str!("sql/copy.sql");
pub(super) const INDEX: &str = include_str!("sql/index.sql");
pub(super) const PAGES: &str = include_str!("sql/pages.sql");
pub(super) const SETTLE: &str = include_str!("sql/settle.sql");
pub(super) const CANCEL: &str = include_str!("sql/cancel.sql");
pub(super) const SESSION_ID: &str = include_str!("sql/session_id.sql");
pub(super) const RUNNING: &str = include_str!("sql/running.sql");
pub(super) const LOCK: &str = include_str!("sql/lock.sql");
pub(super) const UNLOCK: &str = include_str!("sql/unlock.sql");
pub(super) const SERVER_PLACE: &str = include_str!("sql/server_place.sql");
pub(super) const TABLE_STATE: &str = include_str!("sql/table_state.sql");
pub(super) const COUNT_ROWS: &str = include_str!("sql/count_rows.sql");
pub(super) const DROP_TABLE: &str = include_str!("sql/drop_table.sql");
pub(super) const DROP_ROUTINE: &str = include_str!("sql/drop_routine.sql");
pub(super) const COMMENT_TABLE: &str = include_str!("sql/comment_table.sql");
pub(super) const LOCK_TIMEOUT: &str = include_str!("sql/lock_timeout.sql");
pub(super) const HELPERS: &str = include_str!("sql/helpers.sql");
pub(super) const TABLE_SIZES: &str = include_str!("sql/table_sizes.sql");

/// The statement with each `{name}` replaced; the replacements are quoted already.
pub(super) fn fill(statement: &str, names: &[(&str, &str)]) -> String {
    let filled = names.iter().fold(statement.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    });
    debug_assert!(names.iter().all(|(n, _)| statement.contains(&format!("{{{n}}}"))));
    filled
}

pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table of ours, qualified, so that neither search_path nor a temporary table can stand in.
pub(super) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

/// Our comments hold neither quotes nor backslashes by construction; quoting costs nothing.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_filled() {
        let table = qualified("My\"schema", "pgio1");
        assert_eq!(
            fill(DROP_TABLE, &[("table", &table)]).trim(),
            r#"DROP TABLE "My""schema"."pgio1""#
        );
        assert_eq!(literal("it's"), "'it''s'");
    }
}
