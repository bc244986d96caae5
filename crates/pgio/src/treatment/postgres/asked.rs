//! The settings that a condition asks for, and what they mean for commits.

use postgres::Client;

use super::setting::failed;
use crate::treatment::error::TreatmentError;

pub(super) const NAMES: &str = "synchronous_standby_names";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Asked(pub(super) Vec<Setting>);

impl Asked {
    pub(super) fn value_of(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|s| s.name == name).map(|s| s.value.as_str())
    }

    /// Whether the condition means nothing without a synchronous standby.
    pub(super) fn needs_standby(&self) -> bool {
        let level = self.value_of("synchronous_commit").map(str::to_ascii_lowercase);
        matches!(level.as_deref(), Some("remote_write" | "remote_apply"))
    }

    /// All levels but `local` and `off` wait for a standby if one is configured. A level that the
    /// condition does not set is that of a new session.
    pub(super) fn may_wait_for_standby(&self, client: &mut Client) -> Result<bool, TreatmentError> {
        let mut by_default = || {
            client
                .query_one(
                    "SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'",
                    &[],
                )
                .map(|row| row.get::<_, String>(0))
                .map_err(failed("read the setting synchronous_commit"))
        };
        let level = match self.value_of("synchronous_commit") {
            Some(level) => level.to_ascii_lowercase(),
            None => by_default()?,
        };
        Ok(!matches!(level.as_str(), "local" | "off" | "false" | "no" | "0"))
    }
}
