//! `postgres = { NAME = VALUE, … }`: settings of the server.
//!
//! Each setting is changed in the least intrusive way: in the workload's own sessions if its
//! context allows and it acts there alone, which does not change the server; else by ALTER SYSTEM and a reload; else
//! by a restart, which needs a cluster of our own or `control` in the target. Next: [`step`] for the line of
//! postgresql.auto.conf that is journaled, [`standby`] for what commits wait for, [`step`] for what fsync = off leaves.

mod followers;
mod list;
mod setting;
mod step;

use pgio_connect::Client;
use serde_json::Value;

use self::list::{AutoConf, is_in_force};
use self::setting::{
    RequestedSettings, Route, STANDBY_NAMES, Setting, auto_conf, check_privileges, check_source,
    describe_setting, failed, failed_with_grant, reload, route, wait_for,
};
use self::step::{AppliedSetting, Restart, SettingStep};
use super::context::Context;
use super::contract::{
    Cost, Declared, InForce, Kind, Prepared, Preview, Treatment, failed_reading,
};
use super::error::TreatmentError;
use super::journal::Journal;
use super::resource::Touch;
use super::step::{Record, Step, carry_out};
use crate::config::experiment::TreatmentSpec;
use crate::feature::Feature;
use crate::pg::values::{SettingDescription, quoted, refusal, shown};
use pgio_results::change::Change;
use pgio_results::model::{Evidence, When};

pub(crate) use self::followers::SYNCHRONOUS;
pub(super) use self::step::{is_sync, waits_for_fsync};

/// Settings of the server, which every experiment reads.
pub(crate) static SETTING: Feature =
    Feature { name: "setting", treatments: &[KIND], ..Feature::NONE };

pub(super) const KIND: Kind = Kind {
    name: step::KIND,
    help: "settings of PostgreSQL, such as { synchronous_commit = \"local\" }",
    parse,
    read,
};

const HOW: &str =
    "in the workload's sessions if possible, else by ALTER SYSTEM and a reload or restart";

#[derive(Debug, Default)]
struct Postgres {
    requested: RequestedSettings,
}

/// The settings with the method of each.
#[derive(Debug, Clone)]
struct PreparedPostgres {
    requested: RequestedSettings,
    in_sessions: Vec<Setting>,
    /// Set by ALTER SYSTEM.
    by_alter_system: Vec<Setting>,
    needs_restart: bool,
}

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let at = |message: String| {
        TreatmentError::Config(format!("line {}: postgres: {message}", spec.line))
    };
    let Value::Object(map) =
        serde_json::to_value(&spec.body).map_err(|e| at(format!("cannot be read: {e}")))?
    else {
        return Err(at("must be a table, such as { synchronous_commit = \"local\" }".to_owned()));
    };
    let mut settings = Vec::new();
    for (name, value) in map {
        let value = match value {
            Value::String(text) => text,
            Value::Bool(yes) => if yes { "on" } else { "off" }.to_owned(),
            Value::Number(n) => n.to_string(),
            _ => return Err(at(format!("{name} must be a text, a number or true or false"))),
        };
        settings.push(Setting { name: name.to_ascii_lowercase(), value });
    }
    Ok(Box::new(Postgres { requested: RequestedSettings(settings) }))
}

/// A step on a host is a sync.
fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    match record.host {
        Some(_) => step::read_sync(record),
        None => step::read(record),
    }
}

/// All settings of a condition in one body, since two of them together decide what commits wait for.
/// A body that repeats a setting of an earlier one stays apart and is applied later.
pub(super) fn merge_specs(specs: &[TreatmentSpec]) -> Vec<TreatmentSpec> {
    let mut all: Vec<TreatmentSpec> = Vec::new();
    for spec in specs {
        let earlier = all.iter_mut().rfind(|s| s.kind == step::KIND && spec.kind == step::KIND);
        match (earlier.and_then(|s| s.body.as_table_mut()), spec.body.as_table()) {
            (Some(earlier), Some(more)) if more.keys().all(|key| !earlier.contains_key(key)) => {
                earlier.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            _ => all.push(spec.clone()),
        }
    }
    all
}

/// The treatment of a condition that changes no setting.
pub(super) fn unchanged() -> Box<dyn Treatment> {
    Box::new(Postgres::default())
}

impl Postgres {
    fn routes(&self, client: &mut Client) -> Result<Vec<(&Setting, Route)>, TreatmentError> {
        let settings = self.requested.0.iter();
        settings
            .map(|s| {
                let described = describe_setting(client, &s.name)?;
                Ok((s, route(&s.name, &described.context)?))
            })
            .collect()
    }
}

impl Treatment for Postgres {
    fn declared(&self) -> Declared {
        let settings = &self.requested.0;
        let changes: Vec<Change> =
            settings.iter().map(|s| Change::server(s.name.as_str(), s.value.as_str())).collect();
        let restarts = settings.iter().any(|s| setting::needs_restart(&s.name));
        Declared {
            intents: changes.iter().map(|setting| format!("{setting} {HOW}")).collect(),
            // Restoring the prior value needs a restart, too.
            costs: if restarts { vec![Cost::Restart, Cost::Restart] } else { Vec::new() },
            changes,
            round_trip: None,
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let admin = context.admin()?;
        let routed = self.routes(admin)?.into_iter();
        routed
            .map(|(setting, route)| {
                let found = describe_setting(admin, &setting.name)?;
                Ok(Preview {
                    what: setting.name.clone(),
                    now: format!(
                        "{}{}",
                        shown(&setting.name, &found.setting),
                        found.unit.as_deref().map_or(String::new(), |u| format!(" (unit {u})"))
                    ),
                    then: shown(&setting.name, &setting.value).to_owned(),
                    how: match route {
                        Route::Session => "in the workload's sessions",
                        Route::Reload => "by ALTER SYSTEM and a reload",
                        Route::Restart => "by ALTER SYSTEM and a restart",
                    },
                })
            })
            .collect()
    }

    /// A setting of a session ends with the session.
    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let routed = self.routes(context.admin()?)?;
        let changes_server = routed.iter().any(|(_, route)| *route != Route::Session);
        Ok(if changes_server { vec![Touch::Server] } else { Vec::new() })
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        let (mut in_sessions, mut by_alter_system) = (Vec::new(), Vec::new());
        let mut needs_restart = false;
        for (setting, route) in self.routes(context.admin()?)? {
            check_setting(setting, route, context)?;
            let list =
                if route == Route::Session { &mut in_sessions } else { &mut by_alter_system };
            list.push(setting.clone());
            needs_restart |= route == Route::Restart;
        }
        if !by_alter_system.is_empty() {
            context.refuse_pending(needs_restart)?;
        }
        followers::check_synchronous(&self.requested, context.admin()?)?;
        let settings = self.requested.0.iter().map(|s| (s.name.to_lowercase(), s.value.clone()));
        context.layout.settings.extend(settings);
        let requested = self.requested.clone();
        Ok(Box::new(PreparedPostgres { requested, in_sessions, by_alter_system, needs_restart }))
    }
}

fn check_setting(
    setting: &Setting,
    route: Route,
    context: &mut Context<'_>,
) -> Result<(), TreatmentError> {
    let Setting { name, value } = setting;
    let described = describe_setting(context.admin()?, name)?;
    if let Some(why) = refusal(&described, value) {
        return Err(TreatmentError::Refused(format!(
            "{name} cannot be {}: {why}",
            quoted(name, value)
        )));
    }
    match route {
        Route::Session => {
            let mut trial = context.admin()?.transaction().map_err(failed("begin"))?;
            // Dropping the transaction rolls it back.
            trial.execute("SELECT set_config($1, $2, true)", &[name, value]).map_err(failed_with_grant(
                format!("set {name} = {} in a session", shown(name, value)),
                format!("a superuser may, or from PostgreSQL 15 on: GRANT SET ON PARAMETER {name} TO ROLE"),
            ))?;
            Ok(())
        }
        Route::Restart if context.control.is_none() => Err(TreatmentError::Refused(format!(
            "{name} requires a restart, which pgio does only to a private cluster or if [target] sets control = \"pg_ctl\" or \"systemctl UNIT\""
        ))),
        Route::Reload | Route::Restart => {
            check_privileges(context.admin()?, name)?;
            followers::check(setting, &described, context)?;
            step::check(setting, &described, context)?;
            check_line(setting, &described, context)
        }
    }
}

/// Refuses a setting whose line could not be changed or not be restored, or would have no effect.
fn check_line(
    setting: &Setting,
    found: &SettingDescription,
    context: &mut Context<'_>,
) -> Result<(), TreatmentError> {
    let Setting { name, value } = setting;
    check_source(setting, found)?;
    let prior = auto_conf(context.admin()?, name)?;
    let mut values = [Some(value), prior.as_ref()].into_iter().flatten();
    values.try_for_each(|value| list::check(name, value))
}

impl Prepared for PreparedPostgres {
    fn session_settings(&self) -> Vec<(String, String)> {
        self.in_sessions.iter().map(|s| (s.name.clone(), s.value.clone())).collect()
    }

    fn changes_sessions_only(&self) -> bool {
        self.by_alter_system.is_empty()
    }

    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        if !self.by_alter_system.is_empty() {
            context.refuse_pending(self.needs_restart)?;
        }
        if let Some(step) = step::step(&self.by_alter_system, context)? {
            carry_out(journal, &step, || Ok(()))?;
        }
        for step in &self.steps(context)? {
            carry_out(journal, step, || step.apply(context))?;
        }
        if !self.by_alter_system.is_empty() {
            self.wait_until_effective(context)?;
        }
        Ok(Box::new(self.clone()))
    }
}

impl PreparedPostgres {
    fn steps(&self, context: &mut Context<'_>) -> Result<Vec<SettingStep>, TreatmentError> {
        if self.by_alter_system.is_empty() {
            return Ok(Vec::new());
        }
        let admin = context.admin()?;
        let file = AutoConf::read(admin)?;
        let mut step = |(at, Setting { name, value }): (usize, &Setting)| {
            // Undone last.
            let restart = match at {
                _ if !self.needs_restart => Restart::OfItsOwn,
                0 => Restart::ForAll,
                _ => Restart::Later,
            };
            let together = match restart {
                Restart::ForAll => self.by_alter_system.iter().map(|s| s.name.clone()).collect(),
                Restart::OfItsOwn | Restart::Later => Vec::new(),
            };
            let (value, file) = (value.clone(), Some(file.clone()));
            let ours = AppliedSetting { value, file, restart, together };
            Ok(SettingStep { name: name.clone(), prior: auto_conf(admin, name)?, ours })
        };
        self.by_alter_system.iter().enumerate().map(&mut step).collect()
    }

    fn wait_until_effective(&self, context: &mut Context<'_>) -> Result<(), TreatmentError> {
        if self.needs_restart {
            context.restart_server("a setting")?;
        } else {
            reload(context.admin()?)?;
        }
        for Setting { name, value } in &self.by_alter_system {
            let in_force = |found: &_| is_in_force(name, found, value);
            wait_for(context.admin()?, name, &in_force)?;
        }
        // A walsender notices a reload when it next does anything.
        if self.requested.value_of(STANDBY_NAMES).is_some_and(|names| !names.trim().is_empty()) {
            followers::wait_for_standby(context)
        } else {
            Ok(())
        }
    }
}

impl InForce for PreparedPostgres {
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        let Ok(admin) = context.admin() else {
            return vec![failed_reading(when, "settings")];
        };
        let evidence = |Setting { name, value }: &Setting| {
            let Ok(found) = describe_setting(admin, name) else {
                return failed_reading(when, name);
            };
            let in_force = is_in_force(name, &found, value);
            let found =
                if in_force { value.clone() } else { shown(name, &found.setting).to_owned() };
            Evidence { when, what: name.clone(), found, expected: Some(value.clone()) }
        };
        let mut all: Vec<Evidence> = self.by_alter_system.iter().map(evidence).collect();
        all.extend(followers::evidence(&self.requested, admin, when));
        all
    }
}
