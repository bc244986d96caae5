//! `sync` on the server's host when fsync is on again, for a condition that turns it off.
//!
//! A checkpoint flushes the files that were written since the last one. With fsync off it forgets them instead, and
//! no later one flushes them: a power failure could corrupt the database although fsync is on again. PostgreSQL's
//! documentation of fsync asks for `sync`. It is a step of its own on the host, journaled before the setting and undone
//! after it, so that fsync is on again also while the host cannot be reached. A private cluster, which is removed at
//! the end, needs none.

use std::time::Duration;

use super::setting::{Setting, describe_setting, wait_for};
use super::step::KIND;
use crate::host::exec::{CommandLine, Exec};
use crate::pg::values::{SettingDescription, is_current_value};
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;
use crate::treatment::step::{Label, OnConflict, Record, Step, Undone};
use pgio_connect::interrupt;

const FSYNC: &str = "fsync";
const WHAT: &str = "files written without fsync";
const PRIOR: &str = "on disk";
const SYNC: &str = "sync";
/// Time limit of the checkpoint, and of the command: writing back dirty pages can take long.
const LIMIT: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub(super) struct SyncStep {
    host: String,
}

/// Refuses to turn fsync off where nothing could flush the files afterwards. `found` is the setting as the server has
/// it now.
pub(super) fn check(
    setting: &Setting,
    found: &SettingDescription,
    context: &Context<'_>,
) -> Result<(), TreatmentError> {
    if !is_needed(setting, found, context) || context.host(None).is_ok() {
        return Ok(());
    }
    Err(TreatmentError::Refused(
        "fsync cannot be turned off: what is written meanwhile must be flushed by `sync` on the server's host, which is unknown; set host in [target]".to_owned(),
    ))
}

/// The step for these settings, if one is needed.
pub(super) fn step(
    settings: &[Setting],
    context: &mut Context<'_>,
) -> Result<Option<SyncStep>, TreatmentError> {
    let Some(setting) = settings.iter().find(|setting| setting.name == FSYNC) else {
        return Ok(None);
    };
    let found = describe_setting(context.admin()?, FSYNC)?;
    if !is_needed(setting, &found, context) {
        return Ok(None);
    }
    Ok(Some(SyncStep { host: context.host(None)?.name().to_owned() }))
}

fn is_needed(setting: &Setting, found: &SettingDescription, context: &Context<'_>) -> bool {
    let turns_off = is_current_value(found, "on") && !is_current_value(found, &setting.value);
    !context.private && setting.name == FSYNC && turns_off
}

pub(super) fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    let host = record.host.clone().ok_or_else(|| record.misread("it names no host"))?;
    record.ours_as::<String>()?;
    Ok(Box::new(SyncStep { host }))
}

pub(crate) fn is_sync(step: &Record) -> bool {
    step.kind == KIND && step.host.is_some()
}

/// Whether `step` is a sync, and `later` the setting that must be restored first.
pub(crate) fn waits_for_fsync(step: &Record, later: &Record) -> bool {
    is_sync(step) && later.kind == KIND && later.host.is_none() && later.what == FSYNC
}

impl Step for SyncStep {
    fn record(&self) -> Record {
        Record::new(KIND, &Label::on_host(WHAT, &self.host), PRIOR, SYNC)
    }

    fn prior(&self) -> String {
        PRIOR.to_owned()
    }

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        // A server that is down reads the restored line when it starts.
        if context.admin().is_ok() {
            let is_on = context.within_limit(|context| {
                wait_for(context.admin()?, FSYNC, &|found| is_current_value(found, "on"))
            });
            // Kept is also what someone else set, which may be off.
            if on_conflict != OnConflict::Keep {
                is_on?;
            }
            // A checkpoint that began without fsync may still write. A role without the privilege cannot wait for its
            // end; `sync` flushes all but the last of it.
            let admin = context.admin()?;
            let _ = interrupt::within(LIMIT, || admin.batch_execute("CHECKPOINT"));
        }
        flush(&*context.host(Some(self.host.as_str()))?)?;
        Ok(Undone::Restored)
    }
}

fn flush(host: &dyn Exec) -> Result<(), TreatmentError> {
    host.run(&CommandLine::new(SYNC).timeout(LIMIT))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;
    use std::sync::Mutex;

    use super::*;
    use crate::host::LOCAL;
    use crate::host::exec::{ExecError, Output};
    use crate::treatment::test_support::in_context_of;

    /// A host that keeps what it is asked to run.
    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);

    impl Exec for Recorder {
        fn output(&self, command: &CommandLine) -> Result<Output, ExecError> {
            self.0.lock().unwrap().push(command.to_string());
            let (stdout, stderr) = (String::new(), String::new());
            Ok(Output { status: ExitStatus::default(), stdout, stderr })
        }
    }

    #[test]
    fn files_are_flushed_by_sync() {
        let host = Recorder::default();
        flush(&host).unwrap();
        assert_eq!(*host.0.lock().unwrap(), ["sync"]);
    }

    #[test]
    fn fsync_is_turned_off_only_where_the_files_can_be_flushed() {
        let checked = |now: &str, value: &str, host: Option<&str>, private: bool| {
            let setting = Setting { name: FSYNC.to_owned(), value: value.to_owned() };
            let found = SettingDescription {
                setting: now.to_owned(),
                vartype: "bool".to_owned(),
                ..SettingDescription::default()
            };
            in_context_of(&[LOCAL], host, |context| {
                context.private = private;
                check(&setting, &found, context).map_err(|error| error.to_string())
            })
        };
        let why = checked("on", "off", None, false).unwrap_err();
        assert!(why.starts_with("fsync cannot be turned off"), "{why}");
        assert!(why.ends_with("set host in [target]"), "{why}");
        assert_eq!(checked("on", "off", Some(LOCAL), false), Ok(()));
        assert_eq!(checked("on", "off", None, true), Ok(()), "it is removed at the end");
        assert_eq!(checked("off", "off", None, false), Ok(()), "the user's own");
        assert_eq!(checked("on", "true", None, false), Ok(()));
    }
}
