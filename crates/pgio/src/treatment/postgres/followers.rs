//! Refuses a setting that would stop or cut off what follows the server: its standbys, its WAL archive and its backups;
//! or that would delete what an undo cannot restore.
//!
//! A hot standby pauses or stops its recovery if the primary raises one of five settings above its own value,
//! and stays so after the undo until it is restarted with more. WAL of a lower `wal_level` ends what a
//! standby or a restore can replay; without `archive_mode` a segment is missing in the archive forever, and so is
//! what another `archive_command` archived during a trial. WAL that is kept for less long is gone before a standby or
//! a subscriber has fetched it. A private cluster is no exception: its standby would stay paused in all later trials.
//! Only its archive may go elsewhere, and its commit timestamps and WAL summaries may be lost, since all of them are
//! removed with it.

use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::setting::{RELOAD_SECONDS, RequestedSettings, STANDBY_NAMES, Setting, failed};
use crate::pg::replication::{self, Followers, Replication, StandbyNames};
use crate::pg::values::{SettingDescription, exceeds_current, is_current_value};
use crate::treatment::context::Context;
use crate::treatment::contract::failed_reading;
use crate::treatment::error::TreatmentError;
use pgio_results::model::{Evidence, When};

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

/// Limits on the WAL and the time for which slots are kept, each with the value that means no limit. A slot beyond
/// one is invalidated for good.
const SLOT_LIMITS: &[(&str, &str)] =
    &[("max_slot_wal_keep_size", "-1"), ("idle_replication_slot_timeout", "0")];

/// The minutes for which WAL summaries are kept; an incremental backup needs those since the backup before it.
const SUMMARY_LIMITS: &[(&str, &str)] = &[("wal_summary_keep_time", "0")];

/// `found` is the setting as the server has it now.
pub(super) fn check(
    setting: &Setting,
    found: &SettingDescription,
    context: &mut Context<'_>,
) -> Result<(), TreatmentError> {
    let (private, all) = (context.private, Followers { standby: true, archive: true, slot: true });
    if harm(setting, found, all, private).is_none() {
        return Ok(());
    }
    let followers = replication::followers(context.admin()?);
    let followers = followers.map_err(failed("query standbys and archiving"))?;
    let Some(why) = harm(setting, found, followers, private) else { return Ok(()) };
    let limits_summaries = SUMMARY_LIMITS.iter().any(|(limit, _)| *limit == setting.name);
    if limits_summaries && !may_have_summaries(context.admin()?) {
        return Ok(());
    }
    Err(TreatmentError::Refused(why))
}

/// Whether the server summarizes its WAL or has summaries from before. A role that may not list them cannot rule them
/// out.
fn may_have_summaries(client: &mut Client) -> bool {
    const SUMMARIES: &str = "SELECT current_setting('summarize_wal')::bool \
        OR EXISTS (SELECT FROM pg_available_wal_summaries())";
    client.query_one(SUMMARIES, &[]).and_then(|row| row.try_get(0)).unwrap_or(true)
}

/// Why it would harm one of them.
fn harm(
    setting: &Setting,
    found: &SettingDescription,
    followers: Followers,
    private: bool,
) -> Option<String> {
    let Setting { name, value } = setting;
    let now = &found.setting;
    let Followers { standby, archive, slot } = followers;
    // The archiver catches up after the undo.
    let pauses = name == "archive_command" && value.is_empty();
    let level = |text: &str| WAL_LEVELS.iter().position(|level| level.eq_ignore_ascii_case(text));
    match name.as_str() {
        raised if standby && AT_LEAST_AS_PRIMARY.contains(&raised) => {
            exceeds_current(found, value).then(|| {
                format!(
                    "{name} cannot be raised from {now} to {value}: a standby follows this server, and its recovery would stop until it is restarted with at least this value; raise the setting on the standby, then on this server, before the experiment, or use a server without standbys"
                )
            })
        }
        "wal_level" if (standby || archive) && level(value) < level(now) => {
            let who = if standby { "a standby follows this server" } else { "this server archives its WAL" };
            Some(format!(
                "wal_level cannot be lowered from {now} to {value}: {who}, and WAL of a lower level might lack what replay needs; use a server without standbys and archiving"
            ))
        }
        // With a physical slot there is a standby.
        "wal_level" if slot && level(value) < level(now) => Some(format!(
            "wal_level cannot be lowered from {now} to {value}: this server has logical replication slots, with which it would not start; use a server without slots"
        )),
        "track_commit_timestamp" if !private && turns_off(found, value) => Some(
            "track_commit_timestamp cannot be turned off: the server would delete the commit timestamps that it has; use a private server".to_owned(),
        ),
        "summarize_wal" if !private && turns_off(found, value) => Some(
            "summarize_wal cannot be turned off: the summaries of WAL would have a gap, and the next incremental backup would fail; use a private server".to_owned(),
        ),
        limit if !private && limits_more(SUMMARY_LIMITS, limit, found, value) => Some(format!(
            "{name} cannot be changed from {now} to {value}: the server would delete summaries of WAL, without which the next incremental backup would fail; use a private server"
        )),
        "archive_mode" if archive && !is_current_value(found, value) => Some(format!(
            "archive_mode cannot be changed from {now} to {value}: this server archives its WAL, and the archive would have a gap; use a server without archiving"
        )),
        // The values are not shown, since a command may hold a password.
        "archive_command" | "archive_library"
            if archive && !private && !pauses && !is_current_value(found, value) =>
        {
            Some(format!(
                "{name} cannot be changed: this server archives its WAL, and its archive would lack the segments of the trials; use a private server or one without archiving"
            ))
        }
        "wal_keep_size" if standby && is_lower(found, value) => Some(format!(
            "wal_keep_size cannot be lowered from {now} to {value}: a standby follows this server, and might not find the WAL that it needs next; use a server without standbys"
        )),
        limit if slot && limits_more(SLOT_LIMITS, limit, found, value) => Some(format!(
            "{name} cannot be changed from {now} to {value}: this server has replication slots, and a slot beyond the limit is invalidated permanently; use a server without slots"
        )),
        _ => None,
    }
}

fn is_lower(found: &SettingDescription, asked: &str) -> bool {
    !is_current_value(found, asked) && !exceeds_current(found, asked)
}

fn turns_off(found: &SettingDescription, asked: &str) -> bool {
    is_current_value(found, "on") && !is_current_value(found, asked)
}

/// Whether the setting is one of `limits`, and `asked` limits more than what the server has now.
fn limits_more(
    limits: &[(&str, &str)],
    name: &str,
    found: &SettingDescription,
    asked: &str,
) -> bool {
    let Some((_, unlimited)) = limits.iter().find(|(limit, _)| *limit == name) else {
        return false;
    };
    let without = SettingDescription { setting: (*unlimited).to_owned(), ..found.clone() };
    if is_current_value(&without, asked) || is_current_value(found, asked) {
        return false;
    }
    found.setting == *unlimited || is_lower(found, asked)
}

pub(crate) const SYNCHRONOUS: &str = "synchronous standby";

/// Refuses a condition whose commits would wait forever, or would not wait as requested.
pub(super) fn check_synchronous(
    requested: &RequestedSettings,
    admin: &mut Client,
) -> Result<(), TreatmentError> {
    let declared = requested.value_of(STANDBY_NAMES);
    if let Some(names) = declared {
        check_named(admin, names)?;
    }
    if requested.may_wait_for_standby(admin)? {
        check_standby(admin, requested.needs_standby(), declared)?;
    }
    Ok(())
}

/// The state of the standby, where commits may wait for one.
pub(super) fn evidence(
    requested: &RequestedSettings,
    admin: &mut Client,
    when: When,
) -> Option<Evidence> {
    match requested.may_wait_for_standby(admin) {
        Ok(false) => None,
        Ok(true) => Some(standby_evidence(admin, when, requested.needs_standby())),
        Err(_) => Some(failed_reading(when, SYNCHRONOUS)),
    }
}

fn standby_evidence(admin: &mut Client, when: When, needed: bool) -> Evidence {
    let Ok(replication) = replication::current(admin) else {
        return failed_reading(when, SYNCHRONOUS);
    };
    let waits = needed || replication.is_required();
    let found = replication.describe();
    // Several states are sufficient, so a sufficient state is its own expectation.
    let expected = match (waits, replication.has_synchronous() || replication.is_hidden()) {
        (false, _) => None,
        (true, true) => Some(found.clone()),
        (true, false) => Some("a standby in state sync or quorum".to_owned()),
    };
    Evidence { when, what: SYNCHRONOUS.to_owned(), found, expected }
}

fn replication(admin: &mut Client) -> Result<Replication, TreatmentError> {
    replication::current(admin).map_err(|e| TreatmentError::Refused(e.to_string()))
}

/// Refuses names set by the condition with which commits would wait forever.
fn check_named(admin: &mut Client, names: &str) -> Result<(), TreatmentError> {
    if names.trim().is_empty() {
        return Ok(());
    }
    let refused = |why: String| Err(TreatmentError::Refused(why));
    let Some(requested) = StandbyNames::parse(names) else {
        return refused(format!(
            "{STANDBY_NAMES} cannot be `{names}`: write a list of standbys, such as `ANY 1 (a, b)`"
        ));
    };
    let replication = replication(admin)?;
    let found = requested.connected(&replication).len();
    if found >= requested.wanted || replication.is_hidden() {
        return Ok(());
    }
    let all: Vec<&str> = replication.standbys.iter().map(|s| s.name.as_str()).collect();
    let connected = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    refused(match found {
        0 => format!(
            "`{names}` names no connected standby (connected: {connected}); start one, or correct the name"
        ),
        _ => format!(
            "`{names}` requires {} connected standbys, but names only {found} (connected: {connected}); start the others, or lower the number",
            requested.wanted
        ),
    })
}

/// Waits until a standby of the new names is synchronous.
pub(super) fn wait_for_standby(context: &mut Context<'_>) -> Result<(), TreatmentError> {
    let deadline = Instant::now() + Duration::from_secs(RELOAD_SECONDS);
    loop {
        let found = replication(context.admin()?)?;
        if found.has_synchronous() || found.is_hidden() || context.stop.requested() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(TreatmentError::NotInForce {
                what: STANDBY_NAMES.to_owned(),
                seconds: RELOAD_SECONDS,
                why: format!("no standby became synchronous ({})", found.describe()),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `declared` is the condition's synchronous_standby_names, which is checked already.
fn check_standby(
    admin: &mut Client,
    needed: bool,
    declared: Option<&str>,
) -> Result<(), TreatmentError> {
    if let Some(names) = declared {
        return if names.trim().is_empty() && needed {
            Err(TreatmentError::Refused(format!(
                "remote_write and remote_apply silently mean local if {STANDBY_NAMES} is empty, as in this condition: name a connected standby there"
            )))
        } else {
            Ok(())
        };
    }
    let replication = replication(admin)?;
    let configured = !replication.synchronous_standby_names.trim().is_empty();
    match (configured, replication.has_synchronous() || replication.is_hidden()) {
        (true, true) => Ok(()),
        (true, false) => {
            let why = replication.missing().unwrap_or_else(|| replication.describe());
            Err(TreatmentError::Refused(format!(
                "{why}: commits would wait forever; start the standby, or correct the name in synchronous_standby_names or the standby's application_name"
            )))
        }
        (false, _) if needed => Err(TreatmentError::Refused(
            "remote_write and remote_apply silently mean local because synchronous_standby_names is empty: name a connected standby there first".to_owned(),
        )),
        (false, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_connect::types::Type;

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
            harm(&setting, &described(vartype, now), of, false).is_some()
        };
        let none = Followers { standby: false, archive: false, slot: false };
        let standby = Followers { standby: true, ..none };
        let archive = Followers { archive: true, ..none };
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
        // A subscriber has a slot.
        let slot = Followers { slot: true, ..none };
        assert!(refused("wal_level", ("enum", "logical"), "replica", slot));
        assert!(!refused("wal_level", ("enum", "logical"), "logical", slot));
        assert!(refused("archive_mode", ("enum", "on"), "off", archive));
        assert!(!refused("archive_mode", ("enum", "on"), "yes", archive));
        assert!(!refused("archive_mode", ("enum", "off"), "on", standby));
    }

    #[test]
    fn what_an_undo_cannot_restore_is_not_deleted_unless_it_is_private() {
        let none = Followers { standby: false, archive: false, slot: false };
        let refused = |name: &str, vartype: &str, now: &str, value: &str| {
            let setting = Setting { name: name.to_owned(), value: value.to_owned() };
            let found = described(vartype, now);
            assert_eq!(harm(&setting, &found, none, true), None, "{name}: private");
            harm(&setting, &found, none, false).is_some()
        };
        for name in ["track_commit_timestamp", "summarize_wal"] {
            let case = |now: &str, value: &str| refused(name, "bool", now, value);
            assert!(case("on", "off") && case("on", "false"), "{name}");
            assert!(!case("on", "true") && !case("off", "on") && !case("off", "no"), "{name}");
        }
        let kept = |now: &str, value: &str| refused("wal_summary_keep_time", "integer", now, value);
        assert!(kept("14400", "60") && kept("0", "14400"), "0 is without limit");
        assert!(!kept("60", "14400") && !kept("60", "60") && !kept("60", "0") && !kept("0", "0"));
    }

    #[test]
    fn what_keeps_wal_for_others_is_not_reduced() {
        let none = Followers { standby: false, archive: false, slot: false };
        let refused = |name: &str, now: &str, value: &str, of: Followers, private: bool| {
            let setting = Setting { name: name.to_owned(), value: value.to_owned() };
            let number = name.contains("size") || name.contains("timeout");
            let found = described(if number { "integer" } else { "string" }, now);
            harm(&setting, &found, of, private).is_some()
        };
        let archive = Followers { archive: true, ..none };
        for name in ["archive_command", "archive_library"] {
            assert!(refused(name, "push %p", "true", archive, false), "{name}");
            assert!(!refused(name, "push %p", "push %p", archive, false), "{name}");
            assert!(!refused(name, "push %p", "true", archive, true), "{name}: private");
            assert!(!refused(name, "push %p", "true", none, false), "{name}: no archive");
        }
        assert!(refused("archive_command", "", "true", archive, false), "segments wait for it");
        assert!(!refused("archive_command", "push %p", "", archive, false), "a pause");
        assert!(refused("archive_library", "basic_archive", "", archive, false));

        let slot = Followers { slot: true, ..none };
        for (name, unlimited) in SLOT_LIMITS {
            let case = |now: &str, value: &str| refused(name, now, value, slot, false);
            assert!(case(unlimited, "100") && case("200", "100"), "{name}");
            assert!(!case("100", "200") && !case("100", "100") && !case("100", unlimited));
            assert!(!case(unlimited, unlimited), "{name}");
            assert!(!refused(name, unlimited, "100", none, false), "{name}");
        }
        let standby = Followers { standby: true, ..none };
        let kept = |value: &str, of: Followers| refused("wal_keep_size", "64", value, of, false);
        assert!(kept("0", standby) && !kept("128", standby) && !kept("64", standby));
        assert!(!kept("0", none));
    }
    /// Why a condition with this level and these names is refused on a server with those names, whose `standby` has
    /// this state.
    fn refusal(server: &str, state: Option<&str>, level: &str, names: Option<&str>) -> String {
        use pgio_connect::scripted::{Answer, Value, client};
        let row = |state| ["standby", "streaming", state].map(Value::from).to_vec();
        let standbys = Answer::Rows(vec![Type::TEXT; 3], state.map(row).into_iter().collect());
        let mut admin = client(vec![
            ("SELECT reset_val FROM pg_settings", Answer::row(vec!["on".into()])),
            ("SELECT coalesce(current_setting(", Answer::row(vec![server.into()])),
            ("SELECT coalesce(application_name", standbys),
        ]);
        let level = (!level.is_empty()).then_some(("synchronous_commit", level));
        let set = level.into_iter().chain(names.map(|names| (STANDBY_NAMES, names)));
        let setting = |(name, value): (&str, &str)| Setting {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let requested = RequestedSettings(set.map(setting).collect());
        check_synchronous(&requested, &mut admin).map_or_else(|e| e.to_string(), |()| String::new())
    }

    #[test]
    fn commits_that_would_wait_forever_or_not_as_requested_are_refused() {
        let (none, other) =
            ("`elsewhere` names no connected standby (connected: standby)", "async");
        let too_few = "requires 2 connected standbys, but names only 1 (connected: standby)";
        for (server, state, level, names, why) in [
            ("standby", None, "remote_write", None, "no standby is connected"),
            ("standby", None, "on", None, "commits would wait forever"),
            ("standby", None, "remote_apply", None, "commits would wait forever"),
            ("standby", None, "", None, "commits would wait forever"),
            ("standby", None, "local", None, ""),
            ("standby", Some("sync"), "remote_apply", None, ""),
            ("", None, "remote_write", None, "silently mean local because"),
            ("", None, "remote_apply", None, "silently mean local because"),
            ("", None, "on", None, ""),
            ("", Some(other), "remote_apply", Some("standby"), ""),
            ("", Some(other), "remote_apply", Some("ANY 1 (b, \"StandBy\")"), ""),
            ("", Some(other), "remote_apply", Some("elsewhere"), none),
            // Other sessions of the server would wait forever.
            ("", Some(other), "local", Some("elsewhere"), none),
            ("", Some(other), "remote_apply", Some("2 (standby, b)"), too_few),
            (
                "",
                Some(other),
                "remote_apply",
                Some("ANY 1 ("),
                "`ANY 1 (`: write a list of standbys",
            ),
            ("", Some(other), "remote_apply", Some(""), "silently mean local if"),
        ] {
            let found = refusal(server, state, level, names);
            let is_right = found.is_empty() == why.is_empty() && found.contains(why);
            assert!(is_right, "{level} {names:?}: {found}");
        }
    }
}
