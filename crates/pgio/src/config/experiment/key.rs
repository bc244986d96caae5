//! Sections of the file and their keys: one table for parser and documentation.
//!
//! `section!` defines a section beside the code that reads it: a constant for each of its keys, and the record of
//! which docs/KEYS.md is made. [`Section`] reads a value by the constant, so that a key that is read is documented,
//! and the compiler warns of one that nothing reads. Workload keys, which are also valid in pgio.conf and as flags,
//! are in [`crate::config::keys`]; each treatment defines its own keys.
//!
//! To add a key, add one line to its section and read it there; to add a section, add its record to `SECTIONS` of
//! [`super`], or to the [`super::part`] of a feature. It may have types of value of its own: they implement [`Takes`].

use std::ops::{Deref, RangeInclusive};
use std::time::Duration;

use toml::de::DeValue;

use super::section::{Section, integer_text};
use crate::config::value::{self, ConfigError, Kind, MAX_DURATION, nearest};
use pgio_results::store::MAX_NAME_BYTES;
use pgio_results::units;

/// A section and its keys.
#[derive(Debug, Clone, Copy)]
pub struct SectionDef {
    /// The section header as written in a file.
    pub title: &'static str,
    pub about: &'static str,
    pub(crate) names: &'static [&'static str],
    /// The documentation of its keys.
    pub keys: fn() -> Vec<SectionKey>,
}

#[derive(Debug, Clone)]
pub struct SectionKey {
    pub name: &'static str,
    /// The values that the key takes.
    pub value: String,
    pub default: String,
    pub help: &'static str,
}

/// A section: the module of its keys, its title and description, and its keys.
///
/// A key is `name: type of value, help;`. Before the comma stands `= DEFAULT` if the default is a value, or
/// `or "sentence"` if it is not; otherwise there is none.
macro_rules! section {
    ($keys:ident, $title:literal, $about:literal;
     $($key:ident: $takes:ident $(<$of:ty>)? $(($($arg:expr),*))?
       $(or $sentence:literal)? $(= $default:expr)?, $help:literal;)*) => {
        #[allow(non_upper_case_globals)]
        pub(crate) mod $keys {
            use super::*;
            #[allow(unused_imports)]
            use $crate::config::experiment::key::{
                ABOVE_ZERO, Key, OneOf, Parsed, Raw, SectionDef, SectionKey, Share, Switch,
                Takes, Texts, Time, WithDefault, Whole, ZERO, label, text,
            };

            pub(crate) const SECTION: SectionDef = SectionDef {
                title: $title,
                about: $about,
                names: &[$(stringify!($key)),*],
                keys: || vec![$({
                    // Not the constant: the compiler warns of one that only the documentation uses.
                    let takes = $takes $(::<$of>)? $(($($arg),*))?;
                    SectionKey {
                        name: stringify!($key),
                        value: takes.text(),
                        default: section!(@shown takes $(, or $sentence)? $(, = $default)?),
                        help: $help,
                    }
                }),*],
            };
            $(section! { @key $key, $takes $(<$of>)?, $takes $(::<$of>)? $(($($arg),*))? $(, = $default)? })*
        }
    };
    (@shown $takes:ident) => { "none".to_owned() };
    (@shown $takes:ident, or $sentence:literal) => { $sentence.to_owned() };
    (@shown $takes:ident, = $default:expr) => { $takes.show(&$default) };
    (@key $key:ident, $type:ty, $takes:expr) => {
        pub(crate) const $key: Key<$type> = Key { name: stringify!($key), takes: $takes };
    };
    (@key $key:ident, $type:ty, $takes:expr, = $default:expr) => {
        pub(crate) const $key: WithDefault<$type> =
            WithDefault { key: Key { name: stringify!($key), takes: $takes }, default: $default };
    };
}
pub(crate) use section;

/// A key by its name and the values that it takes.
pub(crate) struct Key<K> {
    pub(crate) name: &'static str,
    pub(crate) takes: K,
}

/// A key whose default is a value; [`Section::get`] reads it.
pub(crate) struct WithDefault<K: Takes> {
    pub(crate) key: Key<K>,
    pub(crate) default: K::Value,
}

// A key stands for its name where one is wanted, as in errors.
impl<K> Deref for Key<K> {
    type Target = str;

    fn deref(&self) -> &str {
        self.name
    }
}

impl<K: Takes> Deref for WithDefault<K> {
    type Target = Key<K>;

    fn deref(&self) -> &Key<K> {
        &self.key
    }
}

/// A type of value.
pub(crate) trait Takes {
    type Value;

    /// Returns the values as the documentation names them.
    fn text(&self) -> String;

    fn read(&self, section: &Section<'_>, key: &str) -> Result<Option<Self::Value>, ConfigError>;

    /// Returns a value as a file has it, for the documentation of a default. A test refuses an empty one.
    fn show(&self, _: &Self::Value) -> String {
        String::new()
    }
}

/// A value that the section's code reads: a table, a list, or one of several types.
pub(crate) struct Raw(pub(crate) &'static str);

impl Takes for Raw {
    type Value = toml::Value;

    fn text(&self) -> String {
        self.0.to_owned()
    }

    fn read(&self, section: &Section<'_>, key: &str) -> Result<Option<toml::Value>, ConfigError> {
        section.has(key).then(|| section.value(key)).transpose()
    }
}

/// A string that becomes a value. The error completes a sentence that begins with the key.
pub(crate) struct Parsed<T>(pub(crate) &'static str, pub(crate) fn(&str) -> Result<T, String>);

impl<T> Takes for Parsed<T> {
    type Value = T;

    fn text(&self) -> String {
        self.0.to_owned()
    }

    fn read(&self, section: &Section<'_>, key: &str) -> Result<Option<T>, ConfigError> {
        let text = section.typed(key, "a string", DeValue::as_str)?;
        text.map(self.1).transpose().map_err(|message| section.error(key, message))
    }
}

/// For a value of several types, one of which is a string.
pub(crate) const TEXT: Parsed<String> = Parsed("", text);

pub(crate) fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// One line of text for display in reports.
pub(crate) fn label(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.trim() != text || text.chars().any(char::is_control) {
        return Err("must be one line of text without leading or trailing spaces".to_owned());
    }
    if text.len() > MAX_NAME_BYTES {
        return Err(format!("must have at most {MAX_NAME_BYTES} bytes"));
    }
    Ok(text.to_owned())
}

pub(crate) struct Texts(pub(crate) &'static str);

impl Takes for Texts {
    type Value = Vec<String>;

    fn text(&self) -> String {
        self.0.to_owned()
    }

    fn read(&self, section: &Section<'_>, key: &str) -> Result<Option<Vec<String>>, ConfigError> {
        section.typed(key, "an array of strings", |value| {
            let items = value.as_array()?.iter();
            items.map(|item| item.get_ref().as_str().map(str::to_owned)).collect()
        })
    }
}

/// A percentage such as `"5%"`, read as a fraction, with the largest one if there is one.
pub(crate) struct Share(pub(crate) Option<f64>);

impl Takes for Share {
    type Value = f64;

    fn text(&self) -> String {
        let end = self.0.map_or("below 100%".to_owned(), |most| format!("{}%", most * 100.0));
        format!("a share from 0.1% to {end}")
    }

    fn read(&self, section: &Section<'_>, key: &str) -> Result<Option<f64>, ConfigError> {
        let Some(text) = section.read_as(key, &TEXT)? else { return Ok(None) };
        let fits = |share: &f64| self.0.is_none_or(|most| *share <= most);
        value::share(&text).filter(fits).map(Some).ok_or_else(|| {
            section.error(key, format!("must be {} such as \"5%\", not `{text}`", self.text()))
        })
    }
}

pub(crate) struct Switch;

impl Takes for Switch {
    type Value = bool;

    fn text(&self) -> String {
        "true or false".to_owned()
    }

    fn read(&self, section: &Section<'_>, key: &str) -> Result<Option<bool>, ConfigError> {
        section.typed(key, &self.text(), DeValue::as_bool)
    }

    fn show(&self, value: &bool) -> String {
        value.to_string()
    }
}

pub(crate) struct Whole<T>(pub(crate) RangeInclusive<T>);

impl<T: Copy + Into<u64> + TryFrom<u64>> Takes for Whole<T> {
    type Value = T;

    fn text(&self) -> String {
        match ((*self.0.start()).into(), (*self.0.end()).into()) {
            (0, end) if end >= u64::from(u32::MAX) => "a whole number".to_owned(),
            (start, end) => Kind::Whole(start..=end).to_string(),
        }
    }

    fn read(&self, section: &Section<'_>, key: &str) -> Result<Option<T>, ConfigError> {
        let Some(text) = section.typed(key, "a whole number", integer_text)? else {
            return Ok(None);
        };
        let range = (*self.0.start()).into()..=(*self.0.end()).into();
        let number = text.parse().ok().filter(|n| range.contains(n));
        number.and_then(|n| T::try_from(n).ok()).map(Some).ok_or_else(|| {
            section.error(key, format!("must be {}, not `{text}`", Kind::Whole(range.clone())))
        })
    }

    fn show(&self, value: &T) -> String {
        (*value).into().to_string()
    }
}

/// A duration, and whether it may be zero.
pub(crate) struct Time(pub(crate) bool);

pub(crate) const ZERO: bool = true;
pub(crate) const ABOVE_ZERO: bool = false;

impl Takes for Time {
    type Value = Duration;

    fn text(&self) -> String {
        if self.0 { "a duration" } else { "a duration above zero" }.to_owned()
    }

    fn read(&self, section: &Section<'_>, key: &str) -> Result<Option<Duration>, ConfigError> {
        let text = section.typed(key, "a duration such as \"10s\"", |value| match value {
            DeValue::String(text) => Some(text.to_string()),
            other => integer_text(other),
        })?;
        let Some(text) = text else { return Ok(None) };
        match units::parse_duration(&text) {
            Ok(duration) if duration.is_zero() && !self.0 => {
                Err(section.error(key, "must be above zero"))
            }
            Ok(duration) if duration > MAX_DURATION => {
                let limit = units::exact_duration(MAX_DURATION);
                Err(section.error(key, format!("must be at most {limit}")))
            }
            Ok(duration) => Ok(Some(duration)),
            Err(error) => Err(section.error(key, error.to_string())),
        }
    }

    fn show(&self, value: &Duration) -> String {
        if value.is_zero() { "0s".to_owned() } else { units::exact_duration(*value) }
    }
}

/// One of several names, each with what it stands for.
pub(crate) struct OneOf<T: 'static>(pub(crate) &'static [(&'static str, T)]);

impl<T: Clone + PartialEq> Takes for OneOf<T> {
    type Value = T;

    fn text(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        let (last, others) = names.split_last().expect("a choice has names");
        format!("{} or {last}", others.join(", "))
    }

    fn read(&self, section: &Section<'_>, key: &str) -> Result<Option<T>, ConfigError> {
        let Some(text) = section.read_as(key, &TEXT)? else { return Ok(None) };
        let named = self.0.iter().find(|(name, _)| *name == text);
        named.map(|(_, value)| Some(value.clone())).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
            section.error(key, format!("cannot be `{text}`; {}", nearest(&text, &names)))
        })
    }

    fn show(&self, value: &T) -> String {
        let named = self.0.iter().find(|(_, named)| named == value);
        named.map_or("", |(name, _)| name).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::experiment::tests::{CHECKS, TREATMENTS, read};
    use crate::config::experiment::*;

    const CONDITION: &str = "[[condition]]\nname = 'a'\n";

    /// A valid file for every section, or several: the section as header and lines, and what else the file needs.
    #[rustfmt::skip]
    fn files() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
        let target = "[target]\ndsn = 'x'\n[workload]\nkind = 'commit'\n";
        let command = "[workload]\nkind = 'command'\nrun = 'work {seconds}'\n";
        let metrics = "kind = 'command'\nrun = 'x'\nmetric = [{ name = 'm', unit = 's', better = 'lower', regex = 'x' }]";
        let factor = "name = 'f'\nlow = {}\nhigh = { postgres = { a = 1 } }";
        vec![
            (keys::SECTION.title, "[experiment]", "", ""),
            (target::keys::SECTION.title, "[target]", "dsn = 'x'", ""),
            (target::keys::SECTION.title, "[target]", "private = true", ""),
            (private::keys::SECTION.title, "[[target.standbys]]", "name = 's'", "[target]\nprivate = true\n"),
            (hosts::keys::SECTION.title, "[hosts.h]", "ssh = 'x'", ""),
            (condition::keys::SECTION.title, "[[condition]]", "name = 'b'", ""),
            ("[[factor]]", "[[factor]]", factor, "[[factor]]\nname = 'g'\nsetting = [1, 2]\n"),
            ("[drivers]", "[drivers]", "", ""),
            ("[[axis]]", "[[axis]]", "name = 'd'\nvalues = [1, 2]\npostgres = { a = '{d}' }", ""),
            (workload::keys::SECTION.title, "[workload]", "kind = 'commit'", ""),
            ("[[background]]", "[[background]]", "target = 'target'\nconditions = ['a']", target),
            (command::keys::SECTION.title, "[workload]", metrics, ""),
            (limits::keys::SECTION.title, "[[workload.metric]]", "name = 'm'\nunit = 's'\nbetter = 'lower'\nregex = 'x'", command),
            (limits::keys::SECTION.title, "[[workload.metric]]", "name = 'm'\nunit = 's'\nbetter = 'lower'\njson = '/x'", command),
        ]
    }

    /// Returns the file with another line in the section, which replaces the section's own line of that key.
    fn with(
        (title, header, lines, rest): &(&str, &str, &str, &str),
        key: &str,
        line: &str,
    ) -> String {
        let own = lines.lines().filter(|line| line.split(' ').next() != Some(key));
        let own = own.collect::<Vec<_>>().join("\n");
        // Factors take the place of conditions.
        let conditions = if *title == "[[factor]]" { "" } else { CONDITION };
        format!("{rest}{conditions}{header}\n{own}\n{line}\n")
    }

    /// The compiler finds a key that no code names. The parser also reads each: it refuses a value that no key takes,
    /// and names the key.
    #[test]
    fn every_section_reads_its_keys_and_refuses_others() {
        for section in part::documented() {
            let files = files();
            let files = files.iter().filter(|file| file.0 == section.title);
            let refused = |key: &str| -> Vec<ConfigError> {
                let text = |file| with(file, key, &format!("{key} = 1979-05-27T07:32:00Z"));
                let parsed = |text: String| parse(&text, "x.toml", "x", TREATMENTS, CHECKS);
                let error = |file| parsed(text(file)).expect_err(&format!("{key}: {}", text(file)));
                files.clone().map(error).collect()
            };
            assert!(files.clone().count() > 0, "{}", section.title);
            files.clone().for_each(|file| drop(read(&with(file, "", ""))));
            for key in section.keys {
                let place = format!("{} {}", section.title, key.name);
                assert!(!key.help.contains('\n') && !key.help.ends_with('.'), "{place}");
                assert!(!key.value.is_empty() && !key.default.is_empty(), "{place}");
                let named = |error: &ConfigError| {
                    let path = error.key.as_deref().unwrap_or_default();
                    path.rsplit('.').next() == Some(key.name)
                        && !error.message.contains("unknown key")
                };
                let errors = refused(key.name);
                assert!(errors.iter().any(named), "{place}: {errors:?}");
            }
            for error in refused("no_such_key") {
                assert!(error.message.contains("unknown key"), "{}: {error}", section.title);
            }
        }
    }
}
