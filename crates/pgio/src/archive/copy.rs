//! Rows in the text format of COPY.

/// A row under construction, ended by [`Row::end`].
#[derive(Debug, Default)]
pub(super) struct Rows {
    text: String,
    in_row: bool,
}

impl Rows {
    pub(super) fn text(&mut self, value: &str) -> &mut Rows {
        self.separate();
        for c in value.chars() {
            match c {
                '\\' => self.text.push_str("\\\\"),
                '\t' => self.text.push_str("\\t"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                // PostgreSQL stores no NUL.
                '\0' => self.text.push(char::REPLACEMENT_CHARACTER),
                c => self.text.push(c),
            }
        }
        self
    }

    /// A number or a boolean.
    pub(super) fn plain(&mut self, value: impl std::fmt::Display) -> &mut Rows {
        self.separate();
        self.text.push_str(&value.to_string());
        self
    }

    pub(super) fn null(&mut self) -> &mut Rows {
        self.separate();
        self.text.push_str("\\N");
        self
    }

    /// Null also for a number that is not finite.
    pub(super) fn number(&mut self, value: Option<f64>) -> &mut Rows {
        match value.filter(|v| v.is_finite()) {
            Some(value) => self.plain(value),
            None => self.null(),
        }
    }

    pub(super) fn optional(&mut self, value: Option<&str>) -> &mut Rows {
        match value {
            Some(value) => self.text(value),
            None => self.null(),
        }
    }

    pub(super) fn end(&mut self) {
        self.text.push('\n');
        self.in_row = false;
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    fn separate(&mut self) {
        if self.in_row {
            self.text.push('\t');
        }
        self.in_row = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped() {
        let mut rows = Rows::default();
        rows.text("a\tb\\c\nd\0").number(Some(0.1)).number(Some(f64::NAN)).optional(None).end();
        rows.plain(7).plain(true).end();
        assert_eq!(rows.as_str(), "a\\tb\\\\c\\nd\u{fffd}\t0.1\t\\N\t\\N\n7\ttrue\n");
    }
}
