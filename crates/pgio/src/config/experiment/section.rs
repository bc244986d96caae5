//! Typed access to one table of a TOML file, with line numbers in every error.
//!
//! Only this module uses the TOML crate's spans. Callers interpret the keys and list the valid
//! ones, so that unknown keys are errors.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{Key, SectionDef, Takes, WithDefault};
use crate::config::keys::{self, Layer};
use crate::config::value::{ConfigError, nearest};

pub(crate) type Item<'a> = Spanned<DeValue<'a>>;

/// The file; converts offsets to line numbers.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

impl<'a> Document<'a> {
    pub(crate) fn parse(&self) -> Result<Spanned<DeTable<'a>>, ConfigError> {
        // The crate's Display output contains the line, and thus perhaps a password; its message does not.
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, None, error.message().replace('\n', ", "))
        })
    }

    fn error(&self, at: usize, key: Option<String>, message: String) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line: self.line(at), key, message }
    }

    fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|b| *b == b'\n').count() + 1
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Section<'a> {
    document: &'a Document<'a>,
    /// The title in the file: `workload`, `targets.a`; empty for the top level.
    title: String,
    table: &'a DeTable<'a>,
    at: usize,
}

impl<'a> Section<'a> {
    pub(crate) fn root(document: &'a Document<'a>, table: &'a DeTable<'a>) -> Self {
        Self { document, title: String::new(), table, at: 0 }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Returns the keys in the order of the file.
    pub(crate) fn keys(&self) -> Vec<&'a str> {
        let mut keys: Vec<_> =
            self.table.keys().map(|key| (key.span().start, key.get_ref().as_ref())).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, key)| key).collect()
    }

    pub(crate) fn line_of(&self, key: &str) -> usize {
        self.document.line(self.offset_of(key))
    }

    /// The line of the section header.
    pub(crate) fn line(&self) -> usize {
        self.document.line(self.at)
    }

    /// Returns an error at a key, or at the section header if the key is absent.
    pub(crate) fn error(&self, key: &str, message: impl Into<String>) -> ConfigError {
        self.document.error(self.offset_of(key), Some(self.path(key)), message.into())
    }

    /// Returns an error at the section header.
    pub(crate) fn header_error(&self, message: impl Into<String>) -> ConfigError {
        let key = Some(self.title.clone()).filter(|title| !title.is_empty());
        self.document.error(self.at, key, message.into())
    }

    pub(crate) fn refuse_unknown_keys(&self, valid: &[&str]) -> Result<(), ConfigError> {
        match self.keys().into_iter().find(|key| !valid.contains(key)) {
            Some(key) => {
                Err(self.error(key, format!("is an unknown key; {}", nearest(key, valid))))
            }
            None => Ok(()),
        }
    }

    /// Refuses every key that is not in the table of sections.
    pub(crate) fn refuse_keys_outside(&self, table: &SectionDef) -> Result<(), ConfigError> {
        self.refuse_unknown_keys(table.names)
    }

    pub(crate) fn section(&self, key: &str) -> Result<Option<Section<'a>>, ConfigError> {
        self.table.get(key).map(|item| self.subsection(key, item)).transpose()
    }

    /// Returns the sections of `[[key]]`; a single `[key]` counts as one.
    pub(crate) fn sections(&self, key: &str) -> Result<Vec<Section<'a>>, ConfigError> {
        let Some(item) = self.table.get(key) else { return Ok(Vec::new()) };
        match item.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| self.subsection(key, item)).collect(),
            _ => Ok(vec![self.subsection(key, item)?]),
        }
    }

    /// Like [`Self::sections`], but refuses more than `limit`.
    pub(crate) fn sections_within(
        &self,
        key: &str,
        limit: usize,
    ) -> Result<Vec<Section<'a>>, ConfigError> {
        let items = self.table.get(key).and_then(|item| item.get_ref().as_array());
        let count = items.map_or(0, |items| items.len());
        if count > limit {
            return Err(self.error(key, format!("has {count} tables; the maximum is {limit}")));
        }
        self.sections(key)
    }

    /// Returns the number of values of a key: the length of a list, else one.
    pub(crate) fn count(&self, key: &str) -> usize {
        let items = self.table.get(key).and_then(|item| item.get_ref().as_array());
        items.map_or(1, |items| items.len())
    }

    /// Refuses more than `limit` keys.
    pub(crate) fn limit_entries(&self, limit: usize) -> Result<(), ConfigError> {
        match self.table.len() {
            count if count > limit => {
                Err(self.header_error(format!("has {count} entries; the maximum is {limit}")))
            }
            _ => Ok(()),
        }
    }

    fn subsection(&self, key: &str, item: &'a Item<'a>) -> Result<Section<'a>, ConfigError> {
        let table = item.get_ref().as_table().ok_or_else(|| self.wrong_type(key, "a table"))?;
        Ok(Section { document: self.document, title: self.path(key), table, at: item.span().start })
    }

    /// Reads a key; absent if the file does not set it.
    pub(crate) fn read<K: Takes>(&self, key: &Key<K>) -> Result<Option<K::Value>, ConfigError> {
        key.takes.read(self, key.name)
    }

    /// Reads a key, or returns its default.
    pub(crate) fn get<K: Takes<Value: Clone>>(
        &self,
        key: &WithDefault<K>,
    ) -> Result<K::Value, ConfigError> {
        Ok(self.read(key)?.unwrap_or_else(|| key.default.clone()))
    }

    /// Reads a key as one of the types that it takes.
    pub(crate) fn read_as<K: Takes>(
        &self,
        key: &str,
        takes: &K,
    ) -> Result<Option<K::Value>, ConfigError> {
        takes.read(self, key)
    }

    /// Reads a workload key according to the table of keys.
    pub(crate) fn set(&self, key: &keys::Key, layer: &mut Layer) -> Result<(), ConfigError> {
        let Some(item) = self.table.get(key.name) else { return Ok(()) };
        let value = item.get_ref();
        let text = match value {
            _ if !key.kind.toml_types().contains(&value.type_str()) => {
                let expected = key.kind.toml_types().join(" or ");
                return Err(self.wrong_type(key.name, &format!("of type {expected}")));
            }
            DeValue::String(text) => text.to_string(),
            DeValue::Boolean(switch) => switch.to_string(),
            DeValue::Float(number) => number.as_str().to_owned(),
            other => integer_text(other).unwrap_or_default(),
        };
        key.set(layer, &text).map_err(|message| self.error(key.name, message))
    }

    /// Returns the raw value, for callers that interpret it.
    pub(crate) fn value(&self, key: &str) -> Result<toml::Value, ConfigError> {
        let item = self.table[key].clone();
        toml::Value::deserialize(toml::de::ValueDeserializer::from(item))
            .map_err(|error| self.error(key, error.message().replace('\n', ", ")))
    }

    pub(crate) fn is_list(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|item| item.get_ref().is_array())
    }

    /// Returns the raw values of a list; refuses more than `limit`.
    pub(crate) fn items(&self, key: &str, limit: usize) -> Result<Vec<toml::Value>, ConfigError> {
        let items = self.table.get(key).and_then(|item| item.get_ref().as_array());
        if let Some(count) = items.map(|items| items.len()).filter(|count| *count > limit) {
            return Err(self.error(key, format!("has {count} values; the maximum is {limit}")));
        }
        match self.value(key)? {
            toml::Value::Array(items) => Ok(items),
            _ => Err(self.wrong_type(key, "a list")),
        }
    }

    pub(super) fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(item) = self.table.get(key) else { return Ok(None) };
        read(item.get_ref()).map(Some).ok_or_else(|| self.wrong_type(key, expected))
    }

    fn wrong_type(&self, key: &str, expected: &str) -> ConfigError {
        let actual = self.table.get(key).map_or("none", |item| item.get_ref().type_str());
        self.error(key, format!("must be {expected}, but is of type {actual}"))
    }

    fn offset_of(&self, key: &str) -> usize {
        self.table.get_key_value(key).map_or(self.at, |(key, _)| key.span().start)
    }

    fn path(&self, key: &str) -> String {
        if self.title.is_empty() { key.to_owned() } else { format!("{}.{key}", self.title) }
    }
}

/// Converts an integer of any base to decimal; a number of more than 64 bits stays unchanged.
pub(super) fn integer_text(value: &DeValue<'_>) -> Option<String> {
    let integer = value.as_integer()?;
    let decimal = u64::from_str_radix(integer.as_str(), integer.radix()).map(|n| n.to_string());
    Some(decimal.unwrap_or_else(|_| integer.as_str().to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::config::experiment::parse;
    use crate::config::experiment::tests::{
        CHECKS, TREATMENTS, condition_error, error, error_of, read,
    };

    #[test]
    fn invalid_toml_names_its_line() {
        assert_eq!(
            error("[experiment]\nname = unquoted\n"),
            "x.toml:2: string values must be quoted, expected literal string"
        );
        assert_eq!(error("a = 1\na = 2\n"), "x.toml:2: duplicate key");
        let secret = error("[target]\ndsn = 'host=h password=hunter2\n");
        assert!(secret.starts_with("x.toml:2: ") && !secret.contains("hunter2"), "{secret}");
    }

    #[test]
    fn unknown_keys_suggest_the_nearest_key() {
        for (lines, message) in cases! {
            "[experimnt]" => "1: experimnt: is an unknown key; the nearest valid one is `experiment`";
            "[experiment]\nblocs = 6" => "2: experiment.blocs: is an unknown key; the nearest valid one is `blocks`";
            "[target]\ndns = ''" => "2: target.dns: is an unknown key; the nearest valid one is `dsn`";
            "[workload]\n\nupdate_pc = 1"
                => "3: workload.update_pc: is an unknown key; the nearest valid one is `update_pct`";
        } {
            assert_eq!(error_of(lines), format!("x.toml:{message}"));
        }
        assert_eq!(
            condition_error("name = 'b'\npostgers = {}"),
            "x.toml:5: condition.postgers: is an unknown key; the nearest valid one is `postgres`"
        );
    }

    #[test]
    fn values_of_a_wrong_type_are_refused() {
        for (lines, message) in cases! {
            "experiment = 1" => "1: experiment: must be a table, but is of type integer";
            "[experiment]\nname = 1" => "2: experiment.name: must be a string, but is of type integer";
            "[experiment]\naa = 'yes'" => "2: experiment.aa: must be true or false, but is of type string";
            "[experiment]\nblocks = '6'" => "2: experiment.blocks: must be a whole number, but is of type string";
            "[experiment]\nwarmup = 1.5"
                => "2: experiment.warmup: must be a duration such as \"10s\", but is of type float";
            "[workload]\nupdate_pct = '10'" => "2: workload.update_pct: must be of type integer, but is of type string";
            "[workload]\nscale = 1.5" => "2: workload.scale: must be of type string or integer, but is of type float";
            "[workload]\nconditions = ['a', 1]"
                => "2: workload.conditions: must be an array of strings, but is of type array";
        } {
            assert_eq!(error_of(lines), format!("x.toml:{message}"));
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (lines, message) in cases! {
            "blocks = 0" => "blocks: must be a whole number from 1 to 10000, not `0`";
            "blocks = -6" => "blocks: must be a whole number from 1 to 10000, not `-6`";
            "duration = 0" => "duration: must be above zero";
            "duration = 'long'"
                => "duration: `long` is not a duration: use a whole number with ms, s, m or h, for example 500ms or 2s";
            "name = ' '" => "name: must be one line of text without leading or trailing spaces";
            "name = \"a\\nb\"" => "name: must be one line of text without leading or trailing spaces";
        } {
            assert_eq!(
                error_of(&format!("[experiment]\n{lines}")),
                format!("x.toml:2: experiment.{message}")
            );
        }
        assert_eq!(
            error_of("[workload]\nupdate_pct = 101"),
            "x.toml:2: workload.update_pct: must be a whole number from 0 to 100, not `101`"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_keys_and_values_do_not_panic(lines in prop::collection::vec(
            prop::sample::select(&[
                "[experiment]", "[target]", "[targets.a]", "[workload]", "[[workload]]",
                "[[condition]]", "[condition.drbd]", "name = 'a'", "name = 'b'", "name = ''",
                "blocks = 1", "seed = -1", "seed = 0x", "baseline = 'b'", "target = 'a'", "dsn = 'x'",
                "private = true", "kind = 'commit'", "conditions = []", "conditions = 1",
                "scale = 1", "warmup = ''", "experiment = []", "workload = [1]", "condition = 'é'",
                "condition.name = 'a'", "targets = { é = {} }",
            ]), 0..12))
        {
            let _ = parse(&lines.join("\n"), "x", "x", TREATMENTS, CHECKS);
        }

        #[test]
        fn quoted_names_round_trip(name in "[^\\pC\\s]([^\\pC]*[^\\pC\\s])?") {
            prop_assume!(!name.ends_with("(A/A)"));
            let quoted = toml::Value::String(name.clone());
            prop_assert_eq!(&read(&format!("[[condition]]\nname = {quoted}\n")).baseline, &name);
        }
    }
}
