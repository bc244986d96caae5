//! Names and constants in SQL text, and templates with names in braces.
//!
//! Values travel as parameters; what cannot (names, comments, statements put together from files)
//! is quoted here and nowhere else.

/// An identifier, quoted whatever it holds.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table, qualified, so that neither search_path nor a temporary table can stand in.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

/// A string constant, quoted whatever it holds and however the server reads backslashes.
pub fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

/// The template with each `{name}` replaced, in the order given, so that what is filled in may hold
/// names that come after it. The values are quoted already.
pub fn fill(template: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_kept() {
        assert_eq!(qualified("My\"schema", "pgio1"), "\"My\"\"schema\".\"pgio1\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'b"), "E'a\\\\''b'");
    }

    #[test]
    fn what_is_filled_in_may_hold_later_names() {
        assert_eq!(fill("{a}-{b}", &[("a", "x{b}"), ("b", "y")]), "xy-y");
    }
}
