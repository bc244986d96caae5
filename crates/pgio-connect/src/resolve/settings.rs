//! Values by keyword with their sources, in libpq's order of precedence, and the checks of one value.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{self, PathBuf};
use std::str::FromStr;

use crate::error::{ConnectError, Source};

/// Values by keyword, each with its source. No Debug, because it contains passwords.
#[derive(Default)]
pub(super) struct Settings(pub(super) BTreeMap<&'static str, (OsString, Source)>);

impl Settings {
    /// Earlier sources win.
    pub(super) fn add(&mut self, keyword: &'static str, value: OsString, from: Source) {
        self.0.entry(keyword).or_insert((value, from));
    }

    /// The value, if given and not empty. An empty value overrides later sources and means the
    /// default.
    pub(super) fn bytes(&self, keyword: &str) -> Option<OsString> {
        self.0.get(keyword).map(|(value, _)| value.clone()).filter(|value| !value.is_empty())
    }

    /// Like [`Self::bytes`], for all but passwords, which `resolve` has found to be UTF-8.
    pub(super) fn text(&self, keyword: &str) -> Option<String> {
        self.bytes(keyword).map(|value| value.to_string_lossy().into_owned())
    }

    /// A file, as an absolute path: the parameters may be used again from another directory.
    pub(super) fn file(&self, keyword: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.text(keyword)?);
        Some(path::absolute(&path).unwrap_or(path))
    }

    pub(super) fn number<T: FromStr>(
        &self,
        keyword: &'static str,
    ) -> Result<Option<T>, ConnectError> {
        let Some(text) = self.text(keyword) else { return Ok(None) };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.bad(keyword, "not a whole number")),
        }
    }

    /// The meaning of the value, or the first meaning of the list if none is given.
    pub(super) fn choice<T: Copy>(
        &self,
        keyword: &'static str,
        meanings: &[(&str, T)],
    ) -> Result<T, ConnectError> {
        let wanted = self.text(keyword);
        let wanted = wanted.as_deref().unwrap_or(meanings[0].0);
        meanings.iter().find(|(name, _)| *name == wanted).map(|(_, meaning)| *meaning).ok_or_else(
            || {
                let names: Vec<_> = meanings.iter().map(|(name, _)| *name).collect();
                self.bad(keyword, format!("must be one of {}", names.join(", ")))
            },
        )
    }

    /// Does not quote the value, which may be part of a misplaced password.
    pub(super) fn bad(&self, keyword: &'static str, problem: impl Into<String>) -> ConnectError {
        let from = self.0.get(keyword).map_or(Source::ConnectString, |(_, from)| from.clone());
        ConnectError::BadValue { keyword, from, problem: problem.into() }
    }
}
