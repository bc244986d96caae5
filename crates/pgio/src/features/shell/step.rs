//! The user's commands as a step: run, verified, undone from the journal alone.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Line;
use crate::host::Host;
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;
use crate::treatment::guard::processes_with;
use crate::treatment::step::{OnConflict, StepOf, Undo, Undone};

pub(super) const NAME: &str = "command";

const POLL: Duration = Duration::from_millis(100);

/// Everything that undo needs, since the experiment file may no longer exist.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Commands {
    pub(super) name: String,
    pub(super) verify: Line,
    pub(super) undo: Line,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) probe: Option<Line>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expect: Option<String>,
    pub(super) seconds: f64,
    /// A mark among the arguments of commands that change something; new for each trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mark: Option<String>,
}

/// The commands are in force, or about to be; the prior value is what `probe` printed.
pub(super) type CommandStep = StepOf<Option<String>, Commands>;

impl Undo for CommandStep {
    const KIND: &'static str = NAME;

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let host = context.host(self.label.host())?;
        let commands = &self.ours;
        commands.wait_for_leftovers(&host)?;
        let prior = self.prior.as_deref();
        let found = commands.run_probe(&host)?;
        let in_force = commands.is_in_force(&host)?;
        // The probe may print what the change does not affect.
        if prior.is_some() && found.as_deref() == prior && !in_force {
            return Ok(Undone::Restored);
        }
        // Only a probe distinguishes a half-applied state from a later change of someone else.
        if let (Some(prior), Some(found), false) = (prior, &found, in_force) {
            let [found, prior] = [found, prior].map(|text| format!("`{}`", super::shorten(text)));
            let ours = "a value that verify accepts";
            let conflict = || TreatmentError::changed_since(&self.label, found, ours, prior);
            if !on_conflict.overwrites(conflict)? {
                return Ok(Undone::Kept);
            }
        }
        if !in_force && on_conflict == OnConflict::Keep {
            return Ok(Undone::Kept);
        }
        let failed = |error: TreatmentError| {
            if in_force {
                return error;
            }
            // The change may never have been applied; then undo may fail.
            TreatmentError::Refused(format!(
                "{error} (the change was not in force before; if none of it remains, run `pgio undo --keep`)"
            ))
        };
        commands.run("undo", &commands.undo, &host, prior).map_err(failed)?;
        let no_effect =
            |why: &str| Err(commands.failed("undo", &host, &format!("has no effect: {why}")));
        if prior.is_some() && commands.run_probe(&host)?.as_deref() != prior {
            return no_effect("probe does not print the prior value");
        }
        if commands.is_in_force(&host)? {
            return no_effect("verify still succeeds");
        }
        Ok(Undone::Restored)
    }
}

impl Commands {
    fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub(super) fn failed(&self, which: &str, host: &Host, why: &str) -> TreatmentError {
        let name = &self.name;
        TreatmentError::Refused(format!(
            "{which} of command `{name}` on host {}: {why}",
            host.name()
        ))
    }

    /// Returns the output of verify, or why the change is not in force.
    pub(super) fn run_verify(&self, host: &Host) -> Result<Result<String, String>, TreatmentError> {
        let output = self
            .verify
            .output(host, self.limit(), None, None)?
            .map_err(|why| self.failed("verify", host, &why))?;
        let found = output.stdout.trim();
        Ok(match (&self.expect, output.status.success()) {
            (_, false) => Err(super::describe_failure(&output)),
            (Some(expect), true) if expect.trim() != found => {
                Err(format!("prints {}", super::shorten(found)))
            }
            _ => Ok(super::shorten(found)),
        })
    }

    pub(super) fn is_in_force(&self, host: &Host) -> Result<bool, TreatmentError> {
        Ok(self.run_verify(host)?.is_ok())
    }

    /// Returns the output of `probe`; none without a probe.
    pub(super) fn run_probe(&self, host: &Host) -> Result<Option<String>, TreatmentError> {
        let Some(probe) = &self.probe else { return Ok(None) };
        let failed = |why: String| self.failed("probe", host, &why);
        let output = probe.output(host, self.limit(), None, None)?.map_err(failed)?;
        if output.status.success() {
            Ok(Some(output.stdout.trim_end_matches('\n').to_owned()))
        } else {
            Err(failed(super::describe_failure(&output)))
        }
    }

    pub(super) fn run(
        &self,
        which: &str,
        line: &Line,
        host: &Host,
        prior: Option<&str>,
    ) -> Result<(), TreatmentError> {
        let failed = |why: String| self.failed(which, host, &why);
        let mark = self.mark.as_deref();
        let output = line.output(host, self.limit(), prior, mark)?.map_err(failed)?;
        if output.status.success() { Ok(()) } else { Err(failed(super::describe_failure(&output))) }
    }

    /// Waits for commands that a killed run had started, which would run after the undo.
    fn wait_for_leftovers(&self, host: &Host) -> Result<(), TreatmentError> {
        let Some(mark) = &self.mark else { return Ok(()) };
        let deadline = Instant::now() + self.limit();
        while let Some(process) = processes_with(host, mark)?.first() {
            if Instant::now() > deadline {
                let why = format!(
                    "a command of an interrupted run is still running (process {process}) after {} s: wait for it or end it, then rerun `pgio undo`",
                    self.seconds
                );
                return Err(self.failed("undo", host, &why));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}
