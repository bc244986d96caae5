//! Refuses a setting that would stop or cut off what follows the server: its standbys and its WAL archive.
//!
//! A hot standby pauses or stops its recovery if the primary raises one of five settings above its own value,
//! and stays so after the undo until it is restarted with more. WAL of a lower `wal_level` ends what a
//! standby or a restore can replay; without `archive_mode` a segment is missing in the archive forever. A
//! private cluster is no exception: its standby would stay paused in all later trials.

use super::setting::{Setting, failed};
use crate::pg::server::{self, Followers};
use crate::pg::values::{SettingDescription, exceeds_current, is_current_value};
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;

/// A standby must have at least the primary's value of these.
const AT_LEAST_AS_PRIMARY: &[&str] = &[
    "max_connections",
    "max_locks_per_transaction",
    "max_prepared_transactions",
    "max_wal_senders",
    "max_worker_processes",
];

/// From the one that logs least.
const WAL_LEVELS: &[&str] = &["minimal", "replica", "logical"];

/// `found` is the setting as the server has it now.
pub(super) fn check(
    setting: &Setting,
    found: &SettingDescription,
    context: &mut Context<'_>,
) -> Result<(), TreatmentError> {
    if harm(setting, found, Followers { standby: true, archive: true }).is_none() {
        return Ok(());
    }
    let followers = server::followers(context.admin()?);
    let followers = followers.map_err(failed("ask for standbys and an archive"))?;
    harm(setting, found, followers).map_or(Ok(()), |why| Err(TreatmentError::Refused(why)))
}

/// Why it would harm one of them.
fn harm(setting: &Setting, found: &SettingDescription, followers: Followers) -> Option<String> {
    let Setting { name, value } = setting;
    let now = &found.setting;
    let Followers { standby, archive } = followers;
    let level = |text: &str| WAL_LEVELS.iter().position(|level| level.eq_ignore_ascii_case(text));
    match name.as_str() {
        raised if standby && AT_LEAST_AS_PRIMARY.contains(&raised) => {
            exceeds_current(found, value).then(|| {
                format!(
                    "{name} cannot be raised from {now} to {value}: a standby follows this server, and its recovery would stop until it is restarted with as much; raise it on the standby and then here before the experiment, or use a server without standbys"
                )
            })
        }
        "wal_level" if (standby || archive) && level(value) < level(now) => {
            let who = if standby { "a standby follows this server" } else { "this server archives its WAL" };
            Some(format!(
                "wal_level cannot be lowered from {now} to {value}: {who}, which could not be replayed beyond that; use a server without standbys and archiving"
            ))
        }
        "archive_mode" if archive && !is_current_value(found, value) => Some(format!(
            "archive_mode cannot be changed from {now} to {value}: this server archives its WAL, and the archive would have a gap; use a server without archiving"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(vartype: &str, setting: &str) -> SettingDescription {
        SettingDescription {
            setting: setting.to_owned(),
            vartype: vartype.to_owned(),
            ..SettingDescription::default()
        }
    }

    #[test]
    fn only_what_a_follower_cannot_replay_is_refused() {
        let refused = |name: &str, (vartype, now): (&str, &str), value: &str, of: Followers| {
            let setting = Setting { name: name.to_owned(), value: value.to_owned() };
            harm(&setting, &described(vartype, now), of).is_some()
        };
        let none = Followers { standby: false, archive: false };
        let standby = Followers { standby: true, archive: false };
        let archive = Followers { standby: false, archive: true };
        for name in AT_LEAST_AS_PRIMARY {
            let case = |value, of| refused(name, ("integer", "100"), value, of);
            assert!(case("101", standby) && !case("100", standby) && !case("99", standby));
            assert!(!case("101", none) && !case("101", archive), "{name}");
        }
        assert!(!refused("shared_buffers", ("integer", "100"), "200", standby));
        for of in [standby, archive] {
            let case = |now, value| refused("wal_level", ("enum", now), value, of);
            assert!(case("replica", "MINIMAL") && case("logical", "replica"));
            assert!(!case("replica", "logical") && !case("replica", "replica"));
        }
        assert!(!refused("wal_level", ("enum", "replica"), "minimal", none));
        assert!(refused("archive_mode", ("enum", "on"), "off", archive));
        assert!(!refused("archive_mode", ("enum", "on"), "yes", archive));
        assert!(!refused("archive_mode", ("enum", "off"), "on", standby));
    }
}
