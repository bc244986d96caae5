//! `command = { apply = …, verify = …, undo = …, … }`: what no other treatment knows, by commands of
//! the user's.
//!
//! `verify` proves that it is in force, so it is required: exit status 0 and, with `expect`, this
//! output. With `probe`, what it prints before is the prior value: undo finds it in PGIO_PRIOR,
//! and is right only if `probe` prints it again. The undo stands in the journal itself, which only
//! its owner can read. A command is a list of words, or a text for `sh`. An apply or undo of a run that
//! was killed may be at work still: the next undo waits for it, and refuses while it goes on.
//!
//! A line may hold a password, so nothing here shows one: `name` is what people see.

mod line;

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;

use self::line::Line;
use super::body::Body;
use super::{
    Kind, Outlook, Resource, Step, Stranger, Touch, Treatment, TreatmentError, Undone, World,
};
use crate::config::experiment::TreatmentSpec;
use crate::host::Host;
use crate::results::change::{Change, Subject};
use crate::results::model::{Evidence, When};

pub(super) const KIND: Kind = Kind {
    name: "command",
    help: "commands of yours: { name = \"…\", apply = [..] or \"shell line\", verify = …, undo = … }; expect = \"what verify prints\", probe = a command that prints the prior value, which undo finds in PGIO_PRIOR, host = \"…\", timeout = \"60s\"",
    parse,
    undo,
};

const KEYS: &[&str] = &["name", "apply", "verify", "undo", "probe", "expect", "host", "timeout"];
const EXAMPLE: &str = "{ name = \"swap off\", apply = \"swapoff -a\", verify = \"! grep -q ^/ /proc/swaps\", undo = \"swapon -a\" }";

const POLL: Duration = Duration::from_millis(100);

const TIMEOUT: Duration = Duration::from_secs(60);

/// All that undo needs; a part of the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Commands {
    name: String,
    verify: Line,
    undo: Line,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probe: Option<Line>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expect: Option<String>,
    seconds: f64,
    /// Carried by what changes something, drawn for each time that it is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<String>,
}

#[derive(Debug)]
struct Command {
    apply: Line,
    /// Absent: the server's.
    host: Option<String>,
    commands: Commands,
}

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let body = Body::table(spec, KEYS, EXAMPLE)?;
    let line = |key: &str, why: &str| match Line::read(&body, key)? {
        Some(line) => Ok(line),
        None => Err(body.error(key, format!("is missing: {why}"))),
    };
    let name = body.required("name", "what reports call it, such as \"swap off\"")?;
    if name.contains(['=', '\n']) {
        return Err(body.error("name", "must be one line without `=`"));
    }
    let timeout = match body.text("timeout")? {
        None => TIMEOUT,
        Some(text) => crate::units::parse_duration(text)
            .ok()
            .filter(|limit| !limit.is_zero())
            .ok_or_else(|| body.error("timeout", "must be a duration such as \"60s\""))?,
    };
    Ok(Box::new(Command {
        apply: line("apply", "the command that puts it in force")?,
        host: body.text("host")?.map(str::to_owned),
        commands: Commands {
            name: name.to_owned(),
            verify: line("verify", "a command that succeeds when it is in force, and only then")?,
            undo: line("undo", "the command that takes it back")?,
            probe: Line::read(&body, "probe")?,
            expect: body.text("expect")?.map(str::to_owned),
            seconds: timeout.as_secs_f64(),
            mark: None,
        },
    }))
}

impl Commands {
    fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn failed(&self, which: &str, host: &Host, why: &str) -> TreatmentError {
        let name = &self.name;
        TreatmentError::Refused(format!(
            "{which} of command `{name}` on host {}: {why}",
            host.name()
        ))
    }

    /// In force, or why not.
    fn verified(&self, host: &Host) -> Result<Result<String, String>, TreatmentError> {
        let output = self
            .verify
            .output(host, self.limit(), None, None)?
            .map_err(|why| self.failed("verify", host, &why))?;
        let found = output.stdout.trim();
        Ok(match (&self.expect, output.status.success()) {
            (_, false) => Err(line::said(&output)),
            (Some(expect), true) if expect.trim() != found => {
                Err(format!("prints {}", line::short(found)))
            }
            _ => Ok(line::short(found)),
        })
    }

    fn is_in_force(&self, host: &Host) -> Result<bool, TreatmentError> {
        Ok(self.verified(host)?.is_ok())
    }

    /// What `probe` prints; None without one.
    fn probed(&self, host: &Host) -> Result<Option<String>, TreatmentError> {
        let Some(probe) = &self.probe else { return Ok(None) };
        let failed = |why: String| self.failed("probe", host, &why);
        let output = probe.output(host, self.limit(), None, None)?.map_err(failed)?;
        match output.status.success() {
            true => Ok(Some(output.stdout.trim_end_matches('\n').to_owned())),
            false => Err(failed(line::said(&output))),
        }
    }

    fn run(
        &self,
        which: &str,
        line: &Line,
        host: &Host,
        prior: Option<&str>,
    ) -> Result<(), TreatmentError> {
        let failed = |why: String| self.failed(which, host, &why);
        let mark = self.mark.as_deref();
        let output = line.output(host, self.limit(), prior, mark)?.map_err(failed)?;
        if output.status.success() { Ok(()) } else { Err(failed(line::said(&output))) }
    }

    /// What a killed run had started would come after us.
    fn wait_for_former(&self, host: &Host) -> Result<(), TreatmentError> {
        let Some(mark) = &self.mark else { return Ok(()) };
        let deadline = Instant::now() + self.limit();
        while let Some(process) = line::running(host, mark)?.first() {
            if Instant::now() > deadline {
                let why = format!(
                    "what was started before still runs (process {process}) after {} s: wait for it or end it, then `pgio undo` again",
                    self.seconds
                );
                return Err(self.failed("undo", host, &why));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Treatment for Command {
    fn changes(&self) -> Vec<Change> {
        vec![Change::new(self.host.as_deref(), Subject::Command, &self.commands.name, "")]
    }

    fn intents(&self) -> Vec<String> {
        let how = "by commands of yours: probe, apply, verify and, after the trial, undo";
        self.changes().into_iter().map(|name| format!("{name} = in force {how}")).collect()
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let host = world.host(self.host.as_deref())?;
        Ok(vec![Outlook {
            what: format!("command `{}` on host {}", self.commands.name, host.name()),
            now: "not asked, since that runs a command".to_owned(),
            then: "in force".to_owned(),
            how: "by commands of yours",
        }])
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(self.host.as_deref())?;
        if self.commands.is_in_force(&host)? {
            let why = "succeeds already, without apply: either it proves nothing, or undo would take away what was there before";
            return Err(self.commands.failed("verify", &host, why));
        }
        self.commands.probed(&host).map(drop)
    }

    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        // What they change is known to their author alone.
        let host = world.host(self.host.as_deref())?;
        Ok(vec![Touch::Of(Resource::on(&host, "whatever commands change"))])
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        self.check(world)?;
        let host = world.host(self.host.as_deref())?;
        Ok(vec![Step {
            kind: KIND.name.to_owned(),
            what: format!("command `{}`", self.commands.name),
            host: Some(host.name().to_owned()),
            prior: json!(self.commands.probed(&host)?),
            ours: json!(Commands { mark: Some(line::new_mark(&host)?), ..self.commands.clone() }),
        }])
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        let host = world.host(step.host.as_deref())?;
        commands_of(step)?.run("apply", &self.apply, &host, step.prior.as_str())
    }

    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let host = world.host(self.host.as_deref())?;
        match self.commands.verified(&host)? {
            Ok(_) => Ok(()),
            Err(why) => {
                Err(self.commands.failed("verify", &host, &format!("{why}, after apply succeeded")))
            }
        }
    }

    /// Not inside the window, where a command of unknown cost would be measured too.
    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence> {
        if when == When::During {
            return Vec::new();
        }
        let verified = world
            .host(self.host.as_deref())
            .and_then(|host| self.commands.verified(&host))
            .unwrap_or_else(|error| Err(error.to_string()));
        let expected = "in force".to_owned();
        let found =
            verified.map_or_else(|why| format!("not in force: {why}"), |_| expected.clone());
        let what = format!("command `{}`", self.commands.name);
        vec![Evidence { when, what, found, expected: Some(expected) }]
    }
}

fn commands_of(step: &Step) -> Result<Commands, TreatmentError> {
    serde_json::from_value(step.ours.clone()).map_err(|_| {
        TreatmentError::Config(format!("the journal's step {} cannot be understood", step.what))
    })
}

/// By the commands in the journal; the experiment file may be gone.
fn undo(world: &mut World<'_>, step: &Step, stranger: Stranger) -> Result<Undone, TreatmentError> {
    let host = world.host(step.host.as_deref())?;
    let commands = commands_of(step)?;
    commands.wait_for_former(&host)?;
    let prior = step.prior.as_str();
    let found = commands.probed(&host)?;
    if prior.is_some() && found.as_deref() == prior {
        return Ok(Undone::PutBack);
    }
    let in_force = commands.is_in_force(&host)?;
    // Only a probe tells a half applied state from someone's later change.
    if let (Some(prior), Some(found), false) = (prior, &found, in_force) {
        match stranger {
            Stranger::Keep => return Ok(Undone::Kept),
            Stranger::Restore => {}
            Stranger::Ask => {
                return Err(TreatmentError::ChangedSince {
                    what: format!("{} on host {}", step.what, host.name()),
                    found: format!("`{}`", line::short(found)),
                    ours: "one that verify accepts".to_owned(),
                    prior: format!("`{}`", line::short(prior)),
                });
            }
        }
    }
    if !in_force && stranger == Stranger::Keep {
        return Ok(Undone::Kept);
    }
    commands.run("undo", &commands.undo, &host, prior).map_err(|error| match in_force {
        true => error,
        // It may never have been applied, and an undo of nothing may fail.
        false => TreatmentError::Refused(format!(
            "{error} (it was not in force before: where nothing is left of it, `pgio undo --keep`)"
        )),
    })?;
    let still = match prior {
        Some(prior) => (commands.probed(&host)?.as_deref() != Some(prior))
            .then_some("probe does not print the prior value again"),
        None => commands.is_in_force(&host)?.then_some("verify still succeeds"),
    };
    match still {
        None => Ok(Undone::PutBack),
        Some(why) => Err(commands.failed("undo", &host, &format!("has no effect: {why}"))),
    }
}

#[cfg(test)]
mod tests;
