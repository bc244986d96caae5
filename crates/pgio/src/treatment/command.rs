//! `command = { apply = …, verify = …, undo = …, … }`: a change that no other treatment makes, by the
//! user's own commands.
//!
//! `verify` is required, since it proves that the change is in force: exit status 0 and, with `expect`,
//! this output; undo succeeds only if it fails again. What `probe` prints before is the prior value: undo finds it in
//! PGIO_PRIOR, and succeeds only if `probe` prints it again as well. The undo command is in the journal, which only
//! its owner can read. A command is a list of words, or text for `sh`. The apply or undo command of a run that
//! was killed may still be running: the next undo waits for it, and fails if it does not end.
//!
//! A command line may contain a password, so messages show the `name` only. Next: [`step`].

mod line;
mod step;

use std::time::Duration;

use self::line::Line;
use self::step::{CommandStep, Commands, NAME};
use super::body::Body;
use super::context::Context;
use super::contract::{Declared, InForce, Kind, Prepared, Preview, Treatment};
use super::error::TreatmentError;
use super::journal::Journal;
use super::record::Label;
use super::resource::{Resource, Touch};
use super::step::carry_out;
use crate::config::experiment::TreatmentSpec;
use crate::host::Host;
use pgio_results::change::{Change, Subject};
use pgio_results::model::{Evidence, When};

pub(super) const KIND: Kind = Kind {
    name: NAME,
    help: "your own commands: { name = \"…\", apply = [..] or \"shell line\", verify = …, undo = … }; expect = \"what verify prints\", probe = a command that prints the prior value, which undo finds in PGIO_PRIOR, host = \"…\", timeout = \"60s\"",
    parse,
    read: step::read,
};

const KEYS: &[&str] = &["name", "apply", "verify", "undo", "probe", "expect", "host", "timeout"];
const EXAMPLE: &str = "{ name = \"swap off\", apply = \"swapoff -a\", verify = \"! grep -q ^/ /proc/swaps\", undo = \"swapon -a\" }";

const TIMEOUT: Duration = Duration::from_secs(60);

/// The commands, the same in all phases.
#[derive(Debug, Clone)]
struct Command {
    apply: Line,
    /// None means the server's host.
    host: Option<String>,
    commands: Commands,
}

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    Ok(Box::new(Command::new(spec)?))
}

impl Command {
    fn new(spec: &TreatmentSpec) -> Result<Command, TreatmentError> {
        let body = Body::table(spec, KEYS, EXAMPLE)?;
        let line = |key: &str, why: &str| match Line::read(&body, key)? {
            Some(line) => Ok(line),
            None => Err(body.error(key, format!("is missing: {why}"))),
        };
        let name = body.required("name", "the name for reports, such as \"swap off\"")?;
        if name.contains(['=', '\n']) {
            return Err(body.error("name", "must be one line without `=`"));
        }
        let timeout = match body.text("timeout")? {
            None => TIMEOUT,
            Some(text) => pgio_results::units::parse_duration(text)
                .ok()
                .filter(|limit| !limit.is_zero())
                .ok_or_else(|| body.error("timeout", "must be a duration such as \"60s\""))?,
        };
        Ok(Command {
            apply: line("apply", "the command that applies the change")?,
            host: body.text("host")?.map(str::to_owned),
            commands: Commands {
                name: name.to_owned(),
                verify: line("verify", "a command that succeeds only if the change is in force")?,
                undo: line("undo", "the command that undoes the change")?,
                probe: Line::read(&body, "probe")?,
                expect: body.text("expect")?.map(str::to_owned),
                seconds: timeout.as_secs_f64(),
                mark: None,
            },
        })
    }

    fn what(&self) -> String {
        format!("command `{}`", self.commands.name)
    }

    fn check_not_in_force(&self, host: &Host) -> Result<(), TreatmentError> {
        if self.commands.is_in_force(host)? {
            let why = "succeeds before apply: either it proves nothing, or undo would remove what existed before";
            return Err(self.commands.failed("verify", host, why));
        }
        Ok(())
    }

    fn step(&self, host: &Host) -> Result<CommandStep, TreatmentError> {
        let prior = self.commands.run_probe(host)?;
        let mark = Some(line::new_mark(host)?);
        let commands = Commands { mark, ..self.commands.clone() };
        Ok(CommandStep { label: Label::on_host(self.what(), host.name()), prior, commands })
    }
}

impl Treatment for Command {
    fn declared(&self) -> Declared {
        let name = Change::new(self.host.as_deref(), Subject::Command, &self.commands.name, "");
        let how = "by your commands: probe, apply, verify and, after the trial, undo";
        Declared {
            intents: vec![format!("{name} = in force {how}")],
            changes: vec![name],
            ..Declared::default()
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let host = context.host(self.host.as_deref())?;
        Ok(vec![Preview {
            what: format!("{} on host {}", self.what(), host.name()),
            now: "unknown, since finding out would run a command".to_owned(),
            then: "in force".to_owned(),
            how: "by your commands",
        }])
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        // Only the user knows what the commands change.
        let host = context.host(self.host.as_deref())?;
        Ok(vec![Touch::Resource(Resource::on(&host, "whatever commands change"))])
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        let host = context.host(self.host.as_deref())?;
        self.check_not_in_force(&host)?;
        self.commands.run_probe(&host)?;
        Ok(Box::new(self.clone()))
    }
}

impl Prepared for Command {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let host = context.host(self.host.as_deref())?;
        self.check_not_in_force(&host)?;
        let step = self.step(&host)?;
        carry_out(journal, &step, || {
            step.commands.run("apply", &self.apply, &host, step.prior.as_deref())
        })?;
        match self.commands.run_verify(&host)? {
            Ok(_) => Ok(Box::new(self.clone())),
            Err(why) => {
                let why = format!("{why}, after apply succeeded");
                Err(self.commands.failed("verify", &host, &why))
            }
        }
    }
}

impl InForce for Command {
    /// Reads nothing inside the window, which would measure a command of unknown cost.
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        if when == When::During {
            return Vec::new();
        }
        let verified = context
            .host(self.host.as_deref())
            .and_then(|host| self.commands.run_verify(&host))
            .unwrap_or_else(|error| Err(error.to_string()));
        let expected = "in force".to_owned();
        let found =
            verified.map_or_else(|why| format!("not in force: {why}"), |_| expected.clone());
        vec![Evidence { when, what: self.what(), found, expected: Some(expected) }]
    }
}

#[cfg(test)]
mod tests;
