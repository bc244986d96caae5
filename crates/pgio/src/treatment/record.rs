//! A step as the journal keeps it: JSON that only the treatment of its kind reads back.
//!
//! The fields are a stored format. Next:
//! [`super::step`], the typed side.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One reversible change as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The kind of treatment that made the change and can undo it.
    pub kind: String,
    /// Description, such as `synchronous_standby_names`.
    pub what: String,
    /// The host's name; none if the change is made on the server, through its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The prior value, `null` for absence.
    pub(super) prior: Value,
    pub(super) ours: Value,
}

/// Description of what a step changes and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) what: String,
    /// Absent: on the server, through its session.
    pub(super) host: Option<String>,
}

/// A record that this version does not understand.
#[derive(Debug, thiserror::Error)]
#[error(
    "the journal's step `{what}` cannot be parsed ({why}); use the version of pgio that wrote it"
)]
pub(super) struct RecordError {
    pub(super) what: String,
    pub(super) why: String,
}

impl Label {
    pub(super) fn on_server(what: impl Into<String>) -> Label {
        Label { what: what.into(), host: None }
    }

    pub(super) fn on_host(what: impl Into<String>, host: &str) -> Label {
        Label { what: what.into(), host: Some(host.to_owned()) }
    }

    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }
}

impl Record {
    pub(super) fn new(
        kind: &str,
        label: &Label,
        prior: impl Serialize,
        ours: impl Serialize,
    ) -> Record {
        let Label { what, host } = label.clone();
        let (prior, ours) = (json(prior), json(ours));
        Record { kind: kind.to_owned(), what, host, prior, ours }
    }

    pub(super) fn label(&self) -> Label {
        Label { what: self.what.clone(), host: self.host.clone() }
    }

    pub(super) fn prior_as<T: DeserializeOwned>(&self) -> Result<T, RecordError> {
        self.read(&self.prior)
    }

    pub(super) fn ours_as<T: DeserializeOwned>(&self) -> Result<T, RecordError> {
        self.read(&self.ours)
    }

    pub(super) fn misread(&self, why: impl Into<String>) -> RecordError {
        RecordError { what: self.what.clone(), why: why.into() }
    }

    /// Describes the prior value if a treatment has no better description.
    pub(super) fn prior_in_words(&self) -> String {
        match &self.prior {
            Value::Null => "absent".to_owned(),
            Value::String(text) => format!("`{text}`"),
            other => other.to_string(),
        }
    }

    fn read<T: DeserializeOwned>(&self, value: &Value) -> Result<T, RecordError> {
        T::deserialize(value).map_err(|error| self.misread(error.to_string()))
    }
}

fn json(value: impl Serialize) -> Value {
    serde_json::to_value(value).expect("plain data always serializes")
}

fn in_words(f: &mut fmt::Formatter<'_>, what: &str, host: Option<&str>) -> fmt::Result {
    match host {
        None => f.write_str(what),
        Some(host) => write!(f, "{what} on host {host}"),
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_words(f, &self.what, self.host.as_deref())
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_words(f, &self.what, self.host.as_deref())
    }
}
