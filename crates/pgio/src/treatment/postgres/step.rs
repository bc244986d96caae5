//! A line of postgresql.auto.conf, or its absence: changed by ALTER SYSTEM, and restored.

use std::time::Duration;

use pgio_connect::interrupt;
use serde::{Deserialize, Serialize};

use super::list::{AutoConf, is_in_force, same_line};
use super::setting::{
    Route, Setting, alter_system, auto_conf, describe_setting, overrides_files, pending_restart,
    reload, route, wait_for,
};
use crate::host::exec::{CommandLine, Exec};
use crate::pg::control::Line;
use crate::pg::values::{SettingDescription, is_current_value, quoted};
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;
use crate::treatment::step::{Label, OnConflict, Record, Step, Undone};

pub(super) const KIND: &str = "postgres";

#[derive(Debug)]
pub(super) struct SettingStep {
    pub(super) name: String,
    /// The prior line.
    pub(super) prior: Option<String>,
    pub(super) ours: AppliedSetting,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AppliedSetting {
    pub(super) value: String,
    /// The file as it was before the first step; unknown in journals of early versions.
    pub(super) file: Option<AutoConf>,
    #[serde(default, skip_serializing_if = "Restart::is_of_its_own")]
    pub(super) restart: Restart,
    /// The settings of the condition, with [`Restart::ForAll`]; empty in journals of early versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) together: Vec<String>,
}

/// Whether the undo of a line restarts the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Restart {
    /// If the setting needs it.
    #[default]
    OfItsOwn,
    /// If any setting needs it, after all lines of the condition: with only some of them the server might not start.
    ForAll,
    /// No, a step that is undone later does.
    Later,
}

impl Restart {
    fn is_of_its_own(&self) -> bool {
        *self == Restart::OfItsOwn
    }
}

/// How a line compares with what this step did.
#[derive(Debug, PartialEq, Eq)]
enum LineOwner {
    Pgio,
    Prior,
    /// Someone else's, to be kept.
    Foreign,
}

/// Describes a line, without a secret.
fn in_words(name: &str, value: Option<&str>) -> String {
    value.map_or("absent".to_owned(), |value| quoted(name, value))
}

pub(super) fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    // Early versions stored the value alone.
    let ours = match record.ours_as::<String>() {
        Ok(value) => {
            let restart = Restart::OfItsOwn;
            AppliedSetting { value, file: None, restart, together: Vec::new() }
        }
        Err(_) => record.ours_as()?,
    };
    Ok(Box::new(SettingStep { name: record.what.clone(), prior: record.prior_as()?, ours }))
}

impl Step for SettingStep {
    fn record(&self) -> Record {
        Record::new(KIND, &Label::on_server(&self.name), &self.prior, &self.ours)
    }

    fn prior(&self) -> String {
        format!("{} in postgresql.auto.conf", in_words(&self.name, self.prior.as_deref()))
    }

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        if let Err(down) = context.ensure_running() {
            return self.undo_while_down(context, on_conflict, down);
        }
        let undone = context.within_limit(|context| self.restore_line(context, on_conflict))?;
        let (pending, foreign) = self.pending(context, undone)?;
        if pending.is_empty() {
            return Ok(undone);
        }
        if let Some(why) = context.restart_obstacle() {
            let hint = format!("pgio cannot do ({why}): restart it, then rerun `pgio undo`");
            return Err(self.not_in_force(&pending, &hint));
        }
        if !foreign.is_empty() && !context.private {
            let restarts = on_conflict.overwrites(|| {
                let hint = format!(
                    "would also put in force what someone prepared in its configuration files ({}): restart it or revert that, then rerun `pgio undo`; `pgio undo --restore` restarts it, `pgio undo --keep` leaves the restart to you",
                    foreign.join(", ")
                );
                self.not_in_force(&pending, &hint)
            })?;
            if !restarts {
                return Ok(Undone::RestartLeft);
            }
        }
        context.restart_server("a setting").map(|()| undone)
    }
}

impl SettingStep {
    pub(super) fn apply(&self, context: &mut Context<'_>) -> Result<(), TreatmentError> {
        alter_system(context.admin()?, &self.name, Some(&self.ours.value))
    }

    /// The settings for which this step must restart the server: none if it never ran with the changed lines, because
    /// ALTER SYSTEM failed, or if someone restarted it since. And what else that restart would put in force.
    fn pending(
        &self,
        context: &mut Context<'_>,
        undone: Undone,
    ) -> Result<(Vec<String>, Vec<String>), TreatmentError> {
        let restarts = match self.ours.restart {
            Restart::ForAll => true,
            Restart::Later => false,
            Restart::OfItsOwn => undone != Undone::Kept && self.needs_restart(context)?,
        };
        if !restarts {
            return Ok(Default::default());
        }
        let pending = context.within_limit(|context| pending_restart(context.admin()?))?;
        Ok(self.split_pending(pending))
    }

    /// Separates the settings that this step restarts the server for from those that someone else prepared.
    fn split_pending(&self, pending: Vec<String>) -> (Vec<String>, Vec<String>) {
        let AppliedSetting { restart, together, .. } = &self.ours;
        if *restart == Restart::ForAll && together.is_empty() {
            return (pending, Vec::new());
        }
        let is_ours = |name: &String| {
            let mut ours = [&self.name].into_iter().chain(together);
            ours.any(|ours| ours.eq_ignore_ascii_case(name))
        };
        pending.into_iter().partition(is_ours)
    }

    fn needs_restart(&self, context: &mut Context<'_>) -> Result<bool, TreatmentError> {
        let described = describe_setting(context.admin()?, &self.name)?;
        Ok(route(&self.name, &described.context)? == Route::Restart)
    }

    /// The line is restored, but the server still runs with another value, which only a restart would change: the
    /// step then stays, and is done once someone restarted the server. `hint` continues "which ...".
    fn not_in_force(&self, pending: &[String], hint: &str) -> TreatmentError {
        TreatmentError::Refused(format!(
            "{} in postgresql.auto.conf is restored, but the server runs with the former value of {} until it is restarted, which {hint}",
            self.name,
            pending.join(", ")
        ))
    }

    /// Restores the line of a server that does not start, probably because of it, and starts it; or of one that
    /// must stay down. `down` says why.
    fn undo_while_down(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
        down: TreatmentError,
    ) -> Result<Undone, TreatmentError> {
        let Some(control) = &mut context.control else { return Err(down) };
        let found = match control.line_while_down(&self.name) {
            Ok(Line::Absent) => None,
            Ok(Line::Value(value)) => Some(value),
            Ok(Line::Unknown) | Err(_) => return Err(down),
        };
        let found = self.compare(found.as_deref(), on_conflict)?;
        if found == LineOwner::Pgio {
            let set = control.set_line_while_down(&self.name, self.prior.as_deref());
            set.map_err(TreatmentError::Restart)?;
        }
        if self.ours.restart == Restart::Later {
            // Further lines of the condition may keep it from starting.
            let is_kept = found == LineOwner::Foreign;
            return Ok(if is_kept { Undone::Kept } else { Undone::Restored });
        }
        // A session was refused on purpose: another server, such as a promoted standby, may have replaced this one.
        if let TreatmentError::Refused(why) = down {
            return Err(TreatmentError::Refused(format!(
                "{why}; {} in postgresql.auto.conf of the changed server, which is down, is as before, but pgio does not start that server: start it yourself if no other server has replaced it, then rerun `pgio undo`",
                self.name
            )));
        }
        context.start_stopped_server()?;
        context.within_limit(|context| self.restore_line(context, on_conflict))
    }

    /// Compares the line that was found. Someone else's counts as ours if it is to be overwritten.
    fn compare(
        &self,
        found: Option<&str>,
        on_conflict: OnConflict,
    ) -> Result<LineOwner, TreatmentError> {
        let (prior, ours) = (self.prior.as_deref(), Some(self.ours.value.as_str()));
        // The two may be one list in two spellings.
        if found == prior {
            return Ok(LineOwner::Prior);
        }
        if found == ours {
            return Ok(LineOwner::Pgio);
        }
        if same_line(&self.name, found, prior) {
            return Ok(LineOwner::Prior);
        }
        if same_line(&self.name, found, ours) {
            return Ok(LineOwner::Pgio);
        }
        let label = Label::on_server(format!("{} in postgresql.auto.conf", self.name));
        let overwrites = on_conflict.overwrites(|| {
            let shown = |value| in_words(&self.name, value);
            TreatmentError::changed_since(&label, shown(found), shown(ours), shown(prior))
        })?;
        Ok(if overwrites { LineOwner::Pgio } else { LineOwner::Foreign })
    }

    fn restore_line(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let (name, prior) = (&self.name, self.prior.as_deref());
        let found = auto_conf(context.admin()?, name)?;
        match self.compare(found.as_deref(), on_conflict)? {
            LineOwner::Foreign => return Ok(Undone::Kept),
            LineOwner::Pgio => alter_system(context.admin()?, name, prior)?,
            LineOwner::Prior => {}
        }
        let file = self.ours.file.as_ref();
        let same = file.map(|file| file.restore_order(context.admin()?)).transpose()?;
        let undone = if same == Some(false) { Undone::Rewritten } else { Undone::Restored };
        if self.needs_restart(context)? {
            return Ok(undone);
        }
        // Reload even if the line was right already: a crash may have come between it and the reload.
        reload(context.admin()?)?;
        // Without a line the value comes from elsewhere: any but a pending one is right.
        if let Some(prior) = prior {
            wait_for(context.admin()?, name, &|found| self.is_undone(found, prior))?;
        }
        Ok(undone)
    }

    /// Whether the server has loaded the restored line, whose value it may not show: the command line may override it,
    /// and some values are shown in another spelling (`UTC`), or not at all (`archive_command` without archiving).
    fn is_undone(&self, found: &SettingDescription, prior: &str) -> bool {
        is_current_value(found, prior)
            || !is_in_force(&self.name, found, &self.ours.value)
            || overrides_files(found)
    }
}

// `sync` on the server's host when fsync is on again, for a condition that turns it off. A checkpoint flushes the
// files that were written since the last one. With fsync off it forgets them instead, and no later one flushes them:
// a power failure could corrupt the database although fsync is on again. PostgreSQL's documentation of fsync asks
// for `sync`. It is a step of its own on the host, journaled before the setting and undone after it, so that fsync
// is on again also while the host cannot be reached. A private cluster, which is removed at the end, needs none.

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

pub(super) fn read_sync(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
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
    use super::*;
    use crate::host::LOCAL;
    use crate::host::exec::{ExecError, Output};
    use crate::treatment::context::Control;
    use crate::treatment::test_support::{in_context_of, in_context_of_refused};
    use std::process::ExitStatus;
    use std::sync::Mutex;

    /// A server that is down.
    struct DownServer {
        line: Option<String>,
        started: bool,
    }

    impl Control for DownServer {
        fn stop(&mut self) -> Result<(), String> {
            Ok(())
        }

        fn start(&mut self) -> Result<(), String> {
            self.started = true;
            Ok(())
        }

        fn line_while_down(&mut self, _: &str) -> Result<Line, String> {
            Ok(self.line.clone().map_or(Line::Absent, Line::Value))
        }

        fn set_line_while_down(&mut self, _: &str, value: Option<&str>) -> Result<(), String> {
            self.line = value.map(str::to_owned);
            Ok(())
        }
    }

    fn step(name: &str, prior: Option<&str>, ours: &str, restart: Restart) -> SettingStep {
        let value = ours.to_owned();
        let ours = AppliedSetting { value, file: None, restart, together: Vec::new() };
        SettingStep { name: name.to_owned(), prior: prior.map(str::to_owned), ours }
    }

    /// The undo of `max_connections = 50` while sessions are refused.
    fn undo(server: &mut DownServer, accepts_any_timeline: bool) -> Result<Undone, TreatmentError> {
        let step = step("max_connections", None, "50", Restart::ForAll);
        in_context_of_refused(server, |context| {
            context.changed.accepts_any_timeline = accepts_any_timeline;
            step.undo(context, OnConflict::Ask)
        })
    }

    #[test]
    fn a_line_of_ours_is_not_taken_for_a_prior_one_with_other_blanks() {
        let owner = |name: &str, [prior, ours]: [&str; 2], found: &str| {
            let step = step(name, Some(prior), ours, Restart::OfItsOwn);
            step.compare(Some(found), OnConflict::Keep).unwrap()
        };
        let prefix = |found: &str| owner("log_line_prefix", ["%m [%p] ", "%m[%p]"], found);
        assert_eq!(prefix("%m[%p]"), LineOwner::Pgio);
        assert_eq!(prefix("%m [%p] "), LineOwner::Prior);
        assert_eq!(prefix("%m [%p]"), LineOwner::Foreign);
        let name = "shared_preload_libraries";
        let spelled = |found: &str| owner(name, ["a,b", "a, b"], found);
        assert_eq!(spelled("a, b"), LineOwner::Pgio);
        assert_eq!(spelled("\"a\", \"b\""), LineOwner::Prior);
        assert_eq!(owner(name, ["a", "a,c"], "a, c"), LineOwner::Pgio, "as it is stored");
    }

    #[test]
    fn neither_an_undo_nor_a_conflict_shows_a_value_that_may_hold_a_password() {
        let step = step("archive_command", Some("scp me:geheim@h"), "", Restart::OfItsOwn);
        assert!(step.prior().contains("not shown"), "{}", step.prior());
        let conflict = step.compare(Some("curl -u me:geheim"), OnConflict::Ask).unwrap_err();
        let text = conflict.to_string();
        assert!(text.contains("archive_command") && !text.contains("geheim"), "{text}");
    }

    #[test]
    fn a_line_is_undone_although_its_value_is_not_shown() {
        let step = step("checkpoint_timeout", Some("10min"), "5min", Restart::OfItsOwn);
        let is_undone = |setting: &str, source: &str| {
            let found = SettingDescription {
                setting: setting.to_owned(),
                unit: Some("s".to_owned()),
                vartype: "integer".to_owned(),
                source: source.to_owned(),
                ..SettingDescription::default()
            };
            step.is_undone(&found, "10min")
        };
        assert!(is_undone("600", "configuration file"));
        assert!(!is_undone("300", "configuration file"), "not loaded yet");
        assert!(is_undone("1800", "command line") && is_undone("300", "command line"));
    }

    #[test]
    fn what_someone_else_prepared_is_told_from_the_settings_of_the_condition() {
        let names = |all: &[&str]| -> Vec<String> { all.iter().map(|s| (*s).into()).collect() };
        let pending = || names(&["max_connections", "max_worker_processes", "wal_level"]);
        let mut step = step("wal_level", None, "logical", Restart::ForAll);
        assert_eq!(step.split_pending(pending()), (pending(), Vec::new()), "unknown");
        step.ours.together = names(&["wal_level", "max_connections"]);
        let ours = names(&["max_connections", "wal_level"]);
        let foreign = names(&["max_worker_processes"]);
        assert_eq!(step.split_pending(pending()), (ours, foreign.clone()));
        assert_eq!(step.split_pending(foreign.clone()), (Vec::new(), foreign));
    }

    #[test]
    fn a_server_whose_sessions_are_refused_gets_its_line_back_and_stays_down() {
        let mut server = DownServer { line: Some("50".to_owned()), started: false };
        // The second undo finds the prior line.
        for _ in 0..2 {
            let error = undo(&mut server, false).unwrap_err();
            assert_eq!((server.line.as_deref(), server.started), (None, false));
            let TreatmentError::Refused(why) = error else { panic!("{error:?}") };
            assert!(why.contains("max_connections in postgresql.auto.conf"), "{why}");
            assert!(why.contains("does not start that server: start it yourself"), "{why}");
        }
        server.line = Some("60".to_owned());
        let error = undo(&mut server, false).unwrap_err();
        assert!(matches!(error, TreatmentError::ChangedSince { .. }), "{error:?}");
        assert_eq!((server.line.as_deref(), server.started), (Some("60"), false));
        undo(&mut server, true).unwrap_err();
        assert!(server.started, "by `pgio undo --restore`");
    }

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
