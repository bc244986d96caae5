//! Reads the body of a treatment by type, for all kinds: an error names line and key, and
//! for an unknown key the nearest known one.
//!
//! Reads the file only; `check` decides whether a value is possible.

// Each kind uses some of these.
#![allow(dead_code)]

use std::ops::RangeInclusive;

use toml::{Table, Value};

use super::error::TreatmentError;
use crate::config::experiment::TreatmentSpec;
use crate::config::nearest;
use pgio_results::units;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Body<'a> {
    spec: &'a TreatmentSpec,
    table: &'a Table,
}

impl<'a> Body<'a> {
    /// The body of a kind that takes a table with these keys; errors show `example`.
    pub(crate) fn table(
        spec: &'a TreatmentSpec,
        keys: &[&str],
        example: &str,
    ) -> Result<Self, TreatmentError> {
        let Value::Table(table) = &spec.body else {
            return Err(error(spec, &spec.kind, &format!("must be a table, such as {example}")));
        };
        let body = Self { spec, table };
        match table.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(key) => Err(body.error(key, format!("is an unknown key; {}", nearest(key, keys)))),
            None => Ok(body),
        }
    }

    /// An error at a key, which may be missing.
    pub(crate) fn error(&self, key: &str, message: impl AsRef<str>) -> TreatmentError {
        error(self.spec, &format!("{}.{key}", self.spec.kind), message.as_ref())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(crate) fn is_text(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(Value::is_str)
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, TreatmentError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// Never empty.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, TreatmentError> {
        self.typed(key, "a text", |value| value.as_str().filter(|text| !text.trim().is_empty()))
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, TreatmentError> {
        self.typed(key, "a list of texts", |value| {
            let items = value.as_array().filter(|items| !items.is_empty())?;
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        })
    }

    /// `what` completes the sentence where it is missing, such as `the block device`.
    pub(crate) fn required(&self, key: &str, what: &str) -> Result<&'a str, TreatmentError> {
        self.text(key)?.ok_or_else(|| self.error(key, format!("is missing: {what}")))
    }

    pub(crate) fn one_of(
        &self,
        key: &str,
        names: &[&'static str],
    ) -> Result<Option<&'static str>, TreatmentError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match names.iter().find(|name| **name == text) {
            Some(name) => Ok(Some(name)),
            None => Err(self.error(key, format!("cannot be `{text}`; {}", nearest(text, names)))),
        }
    }

    pub(crate) fn integer(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, TreatmentError> {
        let expected = match (*range.start(), *range.end()) {
            (low, u64::MAX) => format!("a whole number of at least {low}"),
            (low, high) => format!("a whole number from {low} to {high}"),
        };
        let number = |value: &Value| u64::try_from(value.as_integer()?).ok();
        self.typed(key, &expected, |value| number(value).filter(|n| range.contains(n)))
    }

    /// A size, as a number of bytes or a text such as `512M`.
    pub(crate) fn bytes(&self, key: &str) -> Result<Option<u64>, TreatmentError> {
        let bytes = |value: &Value| match value {
            Value::String(text) => units::parse_bytes(text).ok(),
            other => u64::try_from(other.as_integer()?).ok(),
        };
        self.typed(key, "a size in bytes or such as \"512M\"", bytes)
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, TreatmentError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(self.error(key, format!("must be {expected}, not {value}"))),
        }
    }
}

/// Also for a body that is not a table.
pub(crate) fn error(spec: &TreatmentSpec, key: &str, message: &str) -> TreatmentError {
    TreatmentError::Config(format!("line {}: {key}: {message}", spec.line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::treatment::test_support;

    fn spec(body: &str) -> TreatmentSpec {
        test_support::spec("ballast", body)
    }

    const KEYS: &[&str] = &["leave_free", "host", "times", "hard"];

    #[test]
    fn body_reads_values_of_every_type() {
        let spec = spec("{ leave_free = '1G', host = 'db', times = 3, hard = true }");
        let body = Body::table(&spec, KEYS, "{ .. }").unwrap();
        assert_eq!(body.bytes("leave_free").unwrap(), Some(1 << 30));
        assert_eq!(body.bytes("times").unwrap(), Some(3));
        assert_eq!(body.required("host", "the machine").unwrap(), "db");
        assert_eq!(body.one_of("host", &["pg", "db"]).unwrap(), Some("db"));
        assert_eq!(body.integer("times", 1..=u64::MAX).unwrap(), Some(3));
        assert_eq!(body.boolean("hard").unwrap(), Some(true));
        assert_eq!(body.text("absent").unwrap(), None);
        assert!(body.has("hard") && !body.has("absent"));
    }

    #[test]
    fn errors_name_line_and_key() {
        let shown = |body: &str, read: fn(Body<'_>) -> Result<(), TreatmentError>| {
            let spec = spec(body);
            Body::table(&spec, KEYS, "{ leave_free = \"1G\" }")
                .and_then(read)
                .unwrap_err()
                .to_string()
        };
        let nothing: fn(Body<'_>) -> Result<(), TreatmentError> = |_| Ok(());
        for (body, read, expected) in [
            ("3", nothing, "line 7: ballast: must be a table, such as { leave_free = \"1G\" }"),
            (
                "{ hots = 1 }",
                nothing,
                "line 7: ballast.hots: is an unknown key; the nearest valid one is `host`",
            ),
            (
                "{}",
                |b| b.required("host", "a machine").map(drop),
                "line 7: ballast.host: is missing: a machine",
            ),
            (
                "{ host = '' }",
                |b| b.text("host").map(drop),
                "line 7: ballast.host: must be a text, not \"\"",
            ),
            (
                "{ host = 'x' }",
                |b| b.one_of("host", &["a", "b"]).map(drop),
                "line 7: ballast.host: cannot be `x`; the nearest valid one is `a`",
            ),
            (
                "{ times = 0 }",
                |b| b.integer("times", 1..=9).map(drop),
                "line 7: ballast.times: must be a whole number from 1 to 9, not 0",
            ),
            (
                "{ times = -1 }",
                |b| b.integer("times", 1..=u64::MAX).map(drop),
                "line 7: ballast.times: must be a whole number of at least 1, not -1",
            ),
            (
                "{ leave_free = '1X' }",
                |b| b.bytes("leave_free").map(drop),
                "line 7: ballast.leave_free: must be a size in bytes or such as \"512M\", not \"1X\"",
            ),
            (
                "{ hard = 1 }",
                |b| b.boolean("hard").map(drop),
                "line 7: ballast.hard: must be true or false, not 1",
            ),
        ] {
            assert_eq!(shown(body, read), expected);
        }
    }
}
