//! Quotes names and constants in SQL text, and fills templates with names in braces.
//!
//! Values are sent as parameters. Everything else (names, comments, statements assembled from
//! files) is quoted here and nowhere else.

/// A quoted identifier, for any name.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A schema-qualified table name, which neither search_path nor a temporary table can redirect.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

/// A quoted string constant, independent of standard_conforming_strings.
pub fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

/// Replaces each `{name}` in the template, in the given order, so that a value may contain names
/// that come later. The caller has quoted the values.
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
    fn fill_does_not_replace_placeholders_inside_values() {
        assert_eq!(fill("{a}-{b}", &[("a", "x{b}"), ("b", "y")]), "xy-y");
    }
}
