//! `pgio doctor`: what is here, what is missing, what would spoil a measurement, each with its remedy.
//!
//! Looks and changes nothing: no session is ended, no table made. What can only be seen in a trial is
//! judged there (`experiment::trial_checks`). One file a subject, in one shape: facts are gathered
//! first, then each check is a function of the facts.

mod command;
mod data;
mod here;
mod machine;
mod server;
mod storage;
mod subject;
mod telling;

pub use telling::{DOCTOR_SCHEMA, DoctorDocument};

use std::path::PathBuf;

use clap::ValueEnum;

use super::exit::{Failure, Outcome, REFUSED, USAGE};
use super::flags::{ForDoctor, Source};
use super::output;
use crate::printable;
use crate::results::CheckVerdict;

#[derive(Debug, clap::Args)]
#[command(after_help = "Exits with 0 when nothing is invalid, else with 4.")]
pub(super) struct Args {
    /// Look at what this experiment needs; without it, at what `pgio run` would use
    experiment: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    source: Source<ForDoctor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub(super) fn run(args: &Args) -> Outcome {
    if args.experiment.is_some() && !args.source.is_empty() {
        return Err(Failure::message(
            USAGE,
            "--config and flags for keys have no effect beside an experiment file, which says them itself: leave one of the two out",
        ));
    }
    let scope = subject::scope(args.experiment.as_deref(), &args.source)?;
    let (machines, hosts) = machine::look(&scope.hosts);
    let mut sections = vec![here::look()];
    sections.extend(machines);
    sections.extend(command::look(&scope.commands, &hosts));
    sections.extend(scope.subjects.iter().map(|subject| server::look(subject, &hosts)));
    match args.format {
        Format::Text => output::print(&telling::text(&sections)),
        Format::Json => output::document(&printable::json(&telling::json(&sections))),
    }
    let found = sections.iter().flat_map(|s| &s.checks);
    match found.filter(|c| c.verdict == CheckVerdict::Invalid).count() {
        0 => Ok(()),
        1 => Err(Failure::message(REFUSED, "1 check says that nothing could be measured so")),
        n => Err(Failure::message(
            REFUSED,
            format!("{n} checks say that nothing could be measured so"),
        )),
    }
}
