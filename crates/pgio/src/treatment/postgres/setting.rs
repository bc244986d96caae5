//! The settings that a condition requests, and one setting on the server: where it can be changed, its line
//! in postgresql.auto.conf, its value.
//!
//! Every error about a missing privilege names the GRANT that would help. Next: the treatment
//! itself, in the parent module.

use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::list;
use crate::pg::values::{self, SettingDescription, is_current_value, shown};
use crate::pg::{identifier, words};
use crate::treatment::error::TreatmentError;

/// How long a reload may take to reach this session.
pub(super) const RELOAD_SECONDS: u64 = 5;

pub(super) const STANDBY_NAMES: &str = "synchronous_standby_names";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: String,
}

/// All settings that a condition requests.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestedSettings(pub(super) Vec<Setting>);

impl RequestedSettings {
    pub(super) fn value_of(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|s| s.name == name).map(|s| s.value.as_str())
    }

    /// Whether the condition has no effect without a synchronous standby.
    pub(super) fn needs_standby(&self) -> bool {
        let level = self.value_of("synchronous_commit").map(str::to_ascii_lowercase);
        matches!(level.as_deref(), Some("remote_write" | "remote_apply"))
    }

    /// All levels but `local` and `off` wait for a standby if one is configured. A level that the
    /// condition does not set is a new session's.
    pub(super) fn may_wait_for_standby(&self, client: &mut Client) -> Result<bool, TreatmentError> {
        let mut by_default = || {
            client
                .query_one(
                    "SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'",
                    &[],
                )
                .and_then(|row| row.try_get::<_, String>(0))
                .map_err(failed("read the setting synchronous_commit"))
        };
        let level = match self.value_of("synchronous_commit") {
            Some(level) => level.to_ascii_lowercase(),
            None => by_default()?,
        };
        Ok(!matches!(level.as_str(), "local" | "off" | "false" | "no" | "0"))
    }
}

/// Where a setting can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Session,
    Reload,
    Restart,
}

/// Settings that a session may change, although other processes act by them too, or they alone: these read the
/// configuration files.
const OF_OTHER_PROCESSES: &[&str] = &[
    // The checkpointer recycles segments of WAL.
    "wal_recycle",
    // Whatever process needs a new segment creates it: the walwriter and the checkpointer as well.
    "wal_init_zero",
    // Walsenders.
    "logical_decoding_work_mem",
    "wal_sender_timeout",
    // Autovacuum's workers. No vacuum_cost_delay, of which they have their own by default.
    "vacuum_buffer_usage_limit",
    "vacuum_cost_limit",
    "vacuum_cost_page_dirty",
    "vacuum_cost_page_hit",
    "vacuum_cost_page_miss",
    "vacuum_failsafe_age",
    "vacuum_freeze_min_age",
    "vacuum_freeze_table_age",
    "vacuum_max_eager_freeze_failure_rate",
    "vacuum_multixact_failsafe_age",
    "vacuum_multixact_freeze_min_age",
    "vacuum_multixact_freeze_table_age",
    "vacuum_truncate",
];

pub(super) fn route(name: &str, context: &str) -> Result<Route, TreatmentError> {
    match context {
        "user" | "superuser" if OF_OTHER_PROCESSES.contains(&name) => Ok(Route::Reload),
        "user" | "superuser" => Ok(Route::Session),
        "sighup" => Ok(Route::Reload),
        "backend" | "superuser-backend" => Err(TreatmentError::Refused(format!(
            "{name} takes effect only in new connections, where pgio cannot read it back: set it by hand and compare two runs"
        ))),
        "postmaster" => Ok(Route::Restart),
        _ => Err(TreatmentError::Refused(format!(
            "{name} is fixed when the server is built or initialized and cannot be a treatment"
        ))),
    }
}

/// Settings of context `postmaster` in PostgreSQL 13 to 18 that a condition may reasonably set. For
/// estimates only; the server's own pg_settings decides.
const NEED_RESTART: &[&str] = &[
    "archive_mode",
    "autovacuum_freeze_max_age",
    "autovacuum_max_workers",
    "autovacuum_multixact_freeze_max_age",
    "autovacuum_worker_slots",
    "commit_timestamp_buffers",
    "data_sync_retry",
    "dynamic_shared_memory_type",
    "hot_standby",
    "huge_page_size",
    "huge_pages",
    "io_max_concurrency",
    "io_max_combine_limit",
    "io_method",
    "max_connections",
    "max_files_per_process",
    "max_locks_per_transaction",
    "max_logical_replication_workers",
    "max_notify_queue_pages",
    "max_pred_locks_per_transaction",
    "max_prepared_transactions",
    "max_replication_slots",
    "max_wal_senders",
    "max_worker_processes",
    "min_dynamic_shared_memory",
    "multixact_member_buffers",
    "multixact_offset_buffers",
    "notify_buffers",
    "old_snapshot_threshold",
    "serializable_buffers",
    "shared_buffers",
    "shared_memory_type",
    "shared_preload_libraries",
    "subtransaction_buffers",
    "track_activity_query_size",
    "track_commit_timestamp",
    "transaction_buffers",
    "wal_buffers",
    "wal_decode_buffer_size",
    "wal_level",
    "wal_log_hints",
];

pub(super) fn needs_restart(name: &str) -> bool {
    NEED_RESTART.contains(&name)
}

/// Sources of a value that come after all configuration files. `override` is not among them: the server computes the
/// default of wal_buffers so, which a file replaces.
const AFTER_FILES: &[&str] = &[
    "command line",
    "global",
    "database",
    "user",
    "database user",
    "client",
    "interactive",
    "session",
];

/// Whether no line of postgresql.auto.conf can change the value.
pub(super) fn overrides_files(found: &SettingDescription) -> bool {
    AFTER_FILES.contains(&found.source.as_str())
}

/// Refuses a setting that ALTER SYSTEM would change without effect.
pub(super) fn check_source(
    setting: &Setting,
    found: &SettingDescription,
) -> Result<(), TreatmentError> {
    let Setting { name, value } = setting;
    // A value that is in force already needs no line to be so.
    if !overrides_files(found) || is_current_value(found, value) {
        return Ok(());
    }
    let (source, remedy) = match found.source.as_str() {
        "command line" => (
            "the server's command line",
            "start the server without it, and set it in postgresql.conf",
        ),
        _ => (
            "the role, the database or the connection",
            "reset it there (ALTER ROLE, ALTER DATABASE, options in the connection string)",
        ),
    };
    Err(TreatmentError::Refused(format!(
        "{name} cannot be changed by ALTER SYSTEM: {source} sets it, which overrides configuration files; {remedy}"
    )))
}

pub(super) fn failed(
    doing: impl Into<String>,
) -> impl FnOnce(pgio_connect::Error) -> TreatmentError {
    TreatmentError::postgres(doing)
}

/// Like [`failed`]; if a privilege is missing, names the `grant` that would help.
pub(super) fn failed_with_grant(
    doing: impl Into<String>,
    grant: impl Into<String>,
) -> impl FnOnce(pgio_connect::Error) -> TreatmentError {
    let (doing, grant) = (doing.into(), grant.into());
    move |source| {
        let doing = if words::is_denied(&source) { format!("{doing} ({grant})") } else { doing };
        TreatmentError::Postgres { doing, source }
    }
}

pub(super) fn alter_system_hint(name: &str) -> String {
    format!(
        "a superuser may, or from PostgreSQL 15 on: GRANT ALTER SYSTEM ON PARAMETER {name} TO ROLE"
    )
}

pub(super) fn describe_setting(
    client: &mut Client,
    name: &str,
) -> Result<SettingDescription, TreatmentError> {
    let row = client
        .query_opt(
            "SELECT coalesce(setting, ''), unit, vartype, context, min_val::float8, max_val::float8, \
                    coalesce(enumvals, '{}'), coalesce(source, '') \
             FROM pg_settings WHERE name = $1",
            &[&name],
        )
        .map_err(failed(format!("read the setting {name}")))?;
    match row {
        Some(row) => Ok(SettingDescription {
            setting: row.try_get(0)?,
            unit: row.try_get(1)?,
            vartype: row.try_get(2)?,
            context: row.try_get(3)?,
            range: row.try_get::<_, Option<f64>>(4)?.zip(row.try_get(5)?),
            choices: row.try_get(6)?,
            source: row.try_get(7)?,
        }),
        None => Err(TreatmentError::Refused(unknown_setting(client, name))),
    }
}

pub(super) fn unknown_setting(client: &mut Client, name: &str) -> String {
    let nearest = client
        .query("SELECT name FROM pg_settings", &[])
        .ok()
        .and_then(|rows| {
            let names = rows.iter().flat_map(|r| r.try_get::<_, String>(0));
            names.min_by_key(|known| strsim::osa_distance(known, name))
        })
        .map_or_else(String::new, |known| format!("; the nearest one is `{known}`"));
    format!("the server has no setting `{name}`, or hides it from this role{nearest}")
}

/// The setting's value in postgresql.auto.conf, if it has a line there.
pub(super) fn auto_conf(client: &mut Client, name: &str) -> Result<Option<String>, TreatmentError> {
    let row = client
        .query_opt(
            "SELECT setting FROM pg_file_settings \
             WHERE name = $1 AND sourcefile LIKE '%/postgresql.auto.conf' \
             ORDER BY seqno DESC LIMIT 1",
            &[&name],
        )
        .map_err(failed_with_grant(
            format!("read postgresql.auto.conf for {name}"),
            "GRANT SELECT ON pg_file_settings TO ROLE; GRANT EXECUTE ON FUNCTION pg_show_all_file_settings() TO ROLE; or use a superuser",
        ))?;
    // Exact: an undo writes it back.
    row.map_or(Ok(None), |row| row.try_get(0))
        .map_err(failed(format!("read {name} in postgresql.auto.conf")))
}

pub(super) fn alter_system(
    client: &mut Client,
    name: &str,
    value: Option<&str>,
) -> Result<(), TreatmentError> {
    let identifier = identifier(name);
    let sql = match value {
        None => format!("ALTER SYSTEM RESET {identifier}"),
        Some(text) => {
            format!("ALTER SYSTEM SET {identifier} = {}", list::constants(name, text)?)
        }
    };
    client.batch_execute(&sql).map_err(failed_with_grant(
        format!("change {name} by ALTER SYSTEM"),
        alter_system_hint(name),
    ))
}

/// Refuses a role that could read the settings but not change this one.
pub(super) fn check_privileges(client: &mut Client, name: &str) -> Result<(), TreatmentError> {
    let asking = || failed(format!("check the privilege to change {name}"));
    // Privileges on parameters exist since 15; before that only superusers may.
    let row = client
        .query_one(
            "SELECT current_setting('is_superuser') = 'on', \
                    current_setting('server_version_num')::int >= 150000, \
                    has_function_privilege('pg_reload_conf()', 'EXECUTE')",
            &[],
        )
        .map_err(asking())?;
    let (superuser, by_parameter, reload): (bool, bool, bool) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let alter = superuser
        || by_parameter
            && client
                .query_one("SELECT has_parameter_privilege($1, 'ALTER SYSTEM')", &[&name])
                .map_err(asking())?
                .try_get::<_, bool>(0)?;
    match (alter, reload) {
        (false, _) => Err(TreatmentError::Refused(format!(
            "the role may not change {name} by ALTER SYSTEM ({})",
            alter_system_hint(name)
        ))),
        (_, false) => Err(TreatmentError::Refused(
            "the role may not reload the configuration (GRANT EXECUTE ON FUNCTION pg_reload_conf() TO ROLE)".to_owned(),
        )),
        _ => Ok(()),
    }
}

pub(super) fn reload(client: &mut Client) -> Result<(), TreatmentError> {
    client.execute("SELECT pg_reload_conf()", &[]).map(drop).map_err(failed_with_grant(
        "reload the configuration",
        "GRANT EXECUTE ON FUNCTION pg_reload_conf() TO ROLE",
    ))
}

/// Reloads the configuration; returns the settings with which the server would run after a restart, but not now. Fails
/// if the server does not load its files, since nothing is known then.
pub(super) fn pending_restart(client: &mut Client) -> Result<Vec<String>, TreatmentError> {
    const LOADED: &str = "SELECT pg_conf_load_time()::text";
    let doing = || failed("query settings that wait for a restart");
    let loaded = |client: &mut Client| {
        client.query_one(LOADED, &[]).and_then(|row| row.try_get::<_, String>(0)).map_err(doing())
    };
    let before = loaded(client)?;
    reload(client)?;
    // A session learns what is pending when it reads the files itself.
    let deadline = Instant::now() + Duration::from_secs(RELOAD_SECONDS);
    while loaded(client)? == before {
        if Instant::now() > deadline {
            return Err(TreatmentError::NotInForce {
                what: "the reload of the configuration".to_owned(),
                seconds: RELOAD_SECONDS,
                why: "the configuration files may have an error; see the server's log".to_owned(),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // The server's own mark stays on a line that was removed before the server ran with it.
    values::for_restart(client).map_err(doing())
}

/// Waits until the value is as wanted.
pub(super) fn wait_for(
    client: &mut Client,
    name: &str,
    in_force: &dyn Fn(&SettingDescription) -> bool,
) -> Result<(), TreatmentError> {
    let deadline = Instant::now() + Duration::from_secs(RELOAD_SECONDS);
    loop {
        let described = describe_setting(client, name)?;
        if in_force(&described) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(TreatmentError::NotInForce {
                what: name.to_owned(),
                seconds: RELOAD_SECONDS,
                why: format!(
                    "it is {}; a command line option or another file may come after postgresql.auto.conf",
                    shown(name, &described.setting)
                ),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_processes_act_by_is_not_set_in_sessions() {
        for name in ["wal_recycle", "wal_init_zero"] {
            assert_eq!(route(name, "superuser").unwrap(), Route::Reload, "{name}");
        }
        for name in [
            "vacuum_cost_limit",
            "wal_sender_timeout",
            "vacuum_truncate",
            "vacuum_max_eager_freeze_failure_rate",
        ] {
            assert_eq!(route(name, "user").unwrap(), Route::Reload, "{name}");
        }
        for (name, context) in [("wal_compression", "superuser"), ("synchronous_commit", "user")] {
            assert_eq!(route(name, context).unwrap(), Route::Session, "{name}");
        }
        assert_eq!(route("max_wal_size", "sighup").unwrap(), Route::Reload);
        assert_eq!(route("shared_buffers", "postmaster").unwrap(), Route::Restart);
    }

    #[test]
    fn a_value_that_no_file_can_change_is_refused() {
        let asking = |source: &str, asked: &str| {
            let [name, value] = ["checkpoint_timeout", asked].map(str::to_owned);
            let found = SettingDescription {
                source: source.to_owned(),
                setting: "300".to_owned(),
                vartype: "integer".to_owned(),
                ..SettingDescription::default()
            };
            check_source(&Setting { name, value }, &found).map_err(|error| error.to_string())
        };
        let check = |source: &str| asking(source, "600");
        assert_eq!(asking("command line", "300"), Ok(()), "it is in force already");
        let why = check("command line").unwrap_err();
        assert!(why.starts_with("checkpoint_timeout cannot be changed"), "{why}");
        assert!(why.contains("command line") && why.contains("start the server without"), "{why}");
        assert!(check("user").unwrap_err().contains("ALTER ROLE"));
        for source in ["default", "environment variable", "configuration file", "override"] {
            assert_eq!(check(source), Ok(()), "{source}");
        }
    }
}
