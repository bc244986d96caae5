//! `postgres = { NAME = VALUE, … }`: settings of the server.
//!
//! Each setting takes the mildest way that works: in the workload's own sessions where its
//! context allows, which leaves the server alone; else by ALTER SYSTEM and a reload; else by a
//! restart, which a cluster of our own gets and one whose target has `control`. What is journaled is the line of
//! postgresql.auto.conf, or its absence.
//!
//! For synchronous_commit the setting alone proves nothing: without a synchronous standby
//! remote_write, on and remote_apply silently mean local, so the standby's state is evidence too.

mod auto_conf;
mod setting;

use std::time::{Duration, Instant};

use postgres::Client;
use serde_json::{Value, json};

use self::auto_conf::AutoConf;
use self::setting::{
    RELOAD_SECONDS, Route, alter_system, auto_conf, check_privileges, denied, describe_setting,
    failed, reload, route, same_line, wait_for,
};
use super::values::{agree, refusal};
use super::{Cost, Kind, Outlook, Step, Stranger, Touch, Treatment, TreatmentError, Undone, World};
use crate::config::experiment::TreatmentSpec;
use crate::pg::server::{self, Replication};
use crate::pg::standby_names::StandbyNames;
use crate::results::change::Change;
use crate::results::model::{Evidence, When};

pub(super) const KIND: Kind = Kind {
    name: "postgres",
    help: "settings of PostgreSQL, such as { synchronous_commit = \"local\" }",
    parse,
    undo,
};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    name: String,
    value: String,
}

#[derive(Debug, Default)]
struct Postgres {
    settings: Vec<Setting>,
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
    Ok(Box::new(Postgres { settings }))
}

/// All that a condition says of settings in one place: what commits wait for is decided by two of them
/// together. A body that says a setting otherwise than an earlier one stays apart and is applied later.
pub(super) fn as_one(specs: &[TreatmentSpec]) -> Vec<TreatmentSpec> {
    let mut all: Vec<TreatmentSpec> = Vec::new();
    for spec in specs {
        let earlier = all.iter_mut().rfind(|s| s.kind == KIND.name && spec.kind == KIND.name);
        match (earlier.and_then(|s| s.body.as_table_mut()), spec.body.as_table()) {
            (Some(earlier), Some(more)) if more.keys().all(|key| !earlier.contains_key(key)) => {
                earlier.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            _ => all.push(spec.clone()),
        }
    }
    all
}

/// A condition that leaves the server's settings alone.
pub(super) fn unchanged() -> Box<dyn Treatment> {
    Box::new(Postgres::default())
}

impl Postgres {
    fn routed(&self, client: &mut Client) -> Result<Vec<(&Setting, Route)>, TreatmentError> {
        self.settings
            .iter()
            .map(|s| {
                let described = describe_setting(client, &s.name)?;
                Ok((s, route(&s.name, &described.context)?))
            })
            .collect()
    }

    fn value_of(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|s| s.name == name).map(|s| s.value.as_str())
    }

    /// Whether the condition means nothing without a synchronous standby.
    fn needs_standby(&self) -> bool {
        let level = self.value_of("synchronous_commit").map(str::to_ascii_lowercase);
        matches!(level.as_deref(), Some("remote_write" | "remote_apply"))
    }

    /// All but `local` and `off` wait for a standby where one is asked for; what a condition does
    /// not say is what a new session has.
    fn may_wait_for_standby(&self, client: &mut Client) -> Result<bool, TreatmentError> {
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

impl Treatment for Postgres {
    fn changes(&self) -> Vec<Change> {
        self.settings.iter().map(|s| Change::server(s.name.as_str(), s.value.as_str())).collect()
    }

    fn costs(&self) -> Vec<Cost> {
        let restarts = self.settings.iter().any(|s| setting::needs_restart(&s.name));
        // The former value comes back the same way.
        if restarts { vec![Cost::Restart, Cost::Restart] } else { Vec::new() }
    }

    fn intents(&self) -> Vec<String> {
        let how = "in the workload's sessions where that is possible, else by ALTER SYSTEM and a reload or restart";
        self.changes().into_iter().map(|setting| format!("{setting} {how}")).collect()
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let admin = world.admin()?;
        let routed = self.routed(admin)?.into_iter();
        routed
            .map(|(setting, route)| {
                let found = describe_setting(admin, &setting.name)?;
                Ok(Outlook {
                    what: setting.name.clone(),
                    now: format!(
                        "{}{}",
                        found.setting,
                        found.unit.as_deref().map_or(String::new(), |u| format!(" (unit {u})"))
                    ),
                    then: setting.value.clone(),
                    how: match route {
                        Route::Session => "in the workload's sessions",
                        Route::Reload => "by ALTER SYSTEM and a reload",
                        Route::Restart => "by ALTER SYSTEM and a restart",
                    },
                })
            })
            .collect()
    }

    fn session_settings(
        &self,
        admin: &mut Client,
    ) -> Result<Vec<(String, String)>, TreatmentError> {
        let routed = self.routed(admin)?;
        let by_session = routed.into_iter().filter(|(_, route)| *route == Route::Session);
        Ok(by_session.map(|(s, _)| (s.name.clone(), s.value.clone())).collect())
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        for (setting, route) in self.routed(world.admin()?)? {
            let described = describe_setting(world.admin()?, &setting.name)?;
            if let Some(why) = refusal(&described, &setting.value) {
                return Err(TreatmentError::Refused(format!(
                    "{} cannot be `{}`: {why}",
                    setting.name, setting.value
                )));
            }
            match route {
                Route::Session => {
                    let Setting { name, value } = setting;
                    let mut trial = world.admin()?.transaction().map_err(failed("begin"))?;
                    // Rolled back with the transaction, which is dropped here.
                    trial.execute("SELECT set_config($1, $2, true)", &[name, value]).map_err(denied(
                        format!("set {name} = {value} in a session"),
                        format!("a superuser may, or from PostgreSQL 15 on: GRANT SET ON PARAMETER {name} TO the role"),
                    ))?;
                }
                Route::Reload => {
                    check_privileges(world.admin()?, &setting.name)?;
                    auto_conf(world.admin()?, &setting.name)?;
                }
                Route::Restart if world.control.is_none() => {
                    return Err(TreatmentError::Refused(format!(
                        "{} needs a restart, which pgio does only to a cluster of its own or where [target] says control = \"pg_ctl\" or \"systemctl UNIT\"",
                        setting.name
                    )));
                }
                Route::Restart => {}
            }
        }
        let declared = self.value_of(NAMES);
        if let Some(names) = declared {
            check_named(world.admin()?, names)?;
        }
        if self.may_wait_for_standby(world.admin()?)? {
            check_standby(world.admin()?, self.needs_standby(), declared)?;
        }
        Ok(())
    }

    /// A session's setting goes with the session.
    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let routed = self.routed(world.admin()?)?;
        let lasts = routed.iter().any(|(_, route)| *route != Route::Session);
        Ok(if lasts { vec![Touch::Server] } else { Vec::new() })
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        let (mut steps, mut file) = (Vec::new(), None);
        for (setting, route) in self.routed(world.admin()?)? {
            if route == Route::Session {
                continue;
            }
            if file.is_none() {
                file = Some(AutoConf::read(world.admin()?)?);
            }
            steps.push(Step {
                kind: KIND.name.to_owned(),
                what: setting.name.clone(),
                host: None,
                prior: json!(auto_conf(world.admin()?, &setting.name)?),
                ours: json!({ "value": setting.value, "file": file }),
            });
        }
        Ok(steps)
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        alter_system(world.admin()?, &step.what, value_of(step))
    }

    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let routed = self.routed(world.admin()?)?;
        if routed.iter().any(|(_, route)| *route == Route::Restart) {
            world.restart("a setting")?;
        } else {
            reload(world.admin()?)?;
        }
        for (setting, route) in routed {
            if route != Route::Session {
                wait_for(world.admin()?, &setting.name, &|found| agree(found, &setting.value))?;
            }
        }
        // A walsender hears of a reload when it next does anything.
        match self.value_of(NAMES).is_some_and(|names| !names.trim().is_empty()) {
            true => wait_for_standby(world),
            false => Ok(()),
        }
    }

    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence> {
        let mut evidence = Vec::new();
        let Ok(admin) = world.admin() else {
            return vec![unreadable(when, "settings")];
        };
        let Ok(routed) = self.routed(admin) else {
            return vec![unreadable(when, "settings")];
        };
        for (setting, route) in routed {
            if route == Route::Session {
                continue;
            }
            let found = describe_setting(admin, &setting.name);
            evidence.push(match found {
                Ok(found) if agree(&found, &setting.value) => Evidence {
                    when,
                    what: setting.name.clone(),
                    found: setting.value.clone(),
                    expected: Some(setting.value.clone()),
                },
                Ok(found) => Evidence {
                    when,
                    what: setting.name.clone(),
                    found: found.setting,
                    expected: Some(setting.value.clone()),
                },
                Err(_) => unreadable(when, &setting.name),
            });
        }
        match self.may_wait_for_standby(admin) {
            Ok(false) => {}
            Ok(true) => evidence.push(standby_evidence(admin, when, self.needs_standby())),
            Err(_) => evidence.push(unreadable(when, SYNCHRONOUS)),
        }
        evidence
    }
}

fn unreadable(when: When, what: &str) -> Evidence {
    Evidence {
        when,
        what: what.to_owned(),
        found: "unreadable".to_owned(),
        expected: Some("readable".to_owned()),
    }
}

const SYNCHRONOUS: &str = "synchronous standby";
const NAMES: &str = "synchronous_standby_names";

fn standby_evidence(admin: &mut Client, when: When, needed: bool) -> Evidence {
    let Ok(replication) = server::replication(admin) else {
        return unreadable(when, SYNCHRONOUS);
    };
    let waits = needed || !replication.synchronous_standby_names.trim().is_empty();
    let found = replication.describe();
    // What is found is the expectation itself when it is good enough: several names may be.
    let expected = match (waits, replication.has_synchronous() || replication.is_hidden()) {
        (false, _) => None,
        (true, true) => Some(found.clone()),
        (true, false) => Some("a standby in state sync or quorum".to_owned()),
    };
    Evidence { when, what: SYNCHRONOUS.to_owned(), found, expected }
}

fn replication(admin: &mut Client) -> Result<Replication, TreatmentError> {
    server::replication(admin).map_err(|e| TreatmentError::Refused(e.to_string()))
}

/// Refuses names of the condition's own that would let commits wait for ever.
fn check_named(admin: &mut Client, names: &str) -> Result<(), TreatmentError> {
    if names.trim().is_empty() {
        return Ok(());
    }
    let refused = |why: String| Err(TreatmentError::Refused(why));
    let Some(asked) = StandbyNames::parse(names) else {
        return refused(format!(
            "{NAMES} cannot be `{names}`: write a list of standbys, such as `ANY 1 (a, b)`"
        ));
    };
    let replication = replication(admin)?;
    let found = asked.connected(&replication).len();
    if found >= asked.wanted || replication.is_hidden() {
        return Ok(());
    }
    let all: Vec<&str> = replication.standbys.iter().map(|s| s.name.as_str()).collect();
    let connected = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    refused(match found {
        0 => format!("`{names}` names no connected standby (connected: {connected})"),
        _ => format!(
            "`{names}` asks for {} standbys and {found} of them is connected (connected: {connected})",
            asked.wanted
        ),
    })
}

/// Until one that the new names ask for is synchronous.
fn wait_for_standby(world: &mut World<'_>) -> Result<(), TreatmentError> {
    let deadline = Instant::now() + Duration::from_secs(RELOAD_SECONDS);
    loop {
        let found = replication(world.admin()?)?;
        if found.has_synchronous() || found.is_hidden() || world.stop.requested() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(TreatmentError::NotInForce {
                what: NAMES.to_owned(),
                seconds: RELOAD_SECONDS,
                why: format!("no standby became synchronous ({})", found.describe()),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `declared` is what the condition makes of synchronous_standby_names, checked already.
fn check_standby(
    admin: &mut Client,
    needed: bool,
    declared: Option<&str>,
) -> Result<(), TreatmentError> {
    if let Some(names) = declared {
        return match names.trim().is_empty() && needed {
            true => Err(TreatmentError::Refused(format!(
                "remote_write and remote_apply silently mean local where {NAMES} is empty, as the condition makes it: name a connected standby there"
            ))),
            false => Ok(()),
        };
    }
    let replication = replication(admin)?;
    let asked = !replication.synchronous_standby_names.trim().is_empty();
    match (asked, replication.has_synchronous() || replication.is_hidden()) {
        (true, true) => Ok(()),
        (true, false) => {
            let why = replication.missing().unwrap_or_else(|| replication.describe());
            Err(TreatmentError::Refused(format!(
                "{why}: commits would wait for ever; start the standby, or correct the name in synchronous_standby_names or the standby's application_name"
            )))
        }
        (false, _) if needed => Err(TreatmentError::Refused(
            "remote_write and remote_apply silently mean local here, since synchronous_standby_names is empty: name a connected standby there first".to_owned(),
        )),
        (false, _) => Ok(()),
    }
}

/// A journal of an earlier version has the value alone.
fn value_of(step: &Step) -> Option<&str> {
    step.ours.as_str().or_else(|| step.ours["value"].as_str())
}

/// Puts the line of postgresql.auto.conf back, or its absence.
fn undo(world: &mut World<'_>, step: &Step, stranger: Stranger) -> Result<Undone, TreatmentError> {
    world.wake()?;
    let undone = world.briefly(|world| undo_line(world, step, stranger))?;
    let described = describe_setting(world.admin()?, &step.what)?;
    let restarts = route(&step.what, &described.context)? == Route::Restart;
    if undone == Undone::Kept || !restarts || world.control.is_none() {
        return Ok(undone);
    }
    world.restart("a setting").map(|()| undone)
}

fn undo_line(
    world: &mut World<'_>,
    step: &Step,
    stranger: Stranger,
) -> Result<Undone, TreatmentError> {
    let name = &step.what;
    let found = auto_conf(world.admin()?, name)?;
    let (prior, ours) = (step.prior.as_str(), value_of(step));
    let is_ours = same_line(found.as_deref(), ours);
    let is_prior = same_line(found.as_deref(), prior);
    if !is_ours && !is_prior {
        match stranger {
            Stranger::Keep => return Ok(Undone::Kept),
            Stranger::Restore => {}
            Stranger::Ask => {
                let shown = |v: Option<&str>| v.map_or("absent".to_owned(), |v| format!("`{v}`"));
                return Err(TreatmentError::ChangedSince {
                    what: format!("{name} in postgresql.auto.conf"),
                    found: shown(found.as_deref()),
                    ours: shown(ours),
                    prior: shown(prior),
                });
            }
        }
    }
    if !is_prior {
        alter_system(world.admin()?, name, prior)?;
    }
    let file: Option<AutoConf> = serde_json::from_value(step.ours["file"].clone()).ok();
    let same = file.map(|file| file.restore_order(world.admin()?)).transpose()?;
    let undone = if same == Some(false) { Undone::Rewritten } else { Undone::PutBack };
    let described = describe_setting(world.admin()?, name)?;
    if route(name, &described.context)? == Route::Restart && world.control.is_some() {
        return Ok(undone);
    }
    // Also where the line was right already: a crash may have come between it and the reload.
    reload(world.admin()?)?;
    match prior {
        // Without a line the value comes from elsewhere: any but a pending one is right.
        None => {}
        Some(prior) => wait_for(world.admin()?, name, &|found| agree(found, prior))?,
    }
    Ok(undone)
}
