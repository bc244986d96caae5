//! `pgio doctor`: checks what is missing or would spoil a measurement, each with a remedy.
//!
//! `experiment::doctor` examines; [`rendering`] shows what it found.

mod rendering;

pub use rendering::{DOCTOR_SCHEMA, DoctorDocument};

use std::path::PathBuf;

use clap::ValueEnum;

use super::exit::{Failure, Outcome, REFUSED, USAGE};
use super::flags::{ForDoctor, Source};
use super::{connection, jobs, output};
use crate::experiment::doctor::{Scope, examine};
use pgio_results::CheckVerdict;

#[derive(Debug, clap::Args)]
#[command(after_help = "Exits with 0 if no check is invalid, else with 4.")]
pub(super) struct Args {
    /// Check what this experiment needs; without it, what `pgio run` would use
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
            "--config and flags for keys have no effect with an experiment file: omit either the flags or the file",
        ));
    }
    let scope = match &args.experiment {
        Some(file) => Scope::from_experiment(&jobs::read(file)?, &mut output::warn)?,
        None => Scope::from_keys(connection::read_keys(&args.source)?, &mut output::warn)?,
    };
    let sections = examine(&scope);
    match args.format {
        Format::Text => output::print(&rendering::text(&sections)),
        Format::Json => output::document(&printable::json(&rendering::json(&sections))),
    }
    let found = sections.iter().flat_map(|s| &s.checks);
    match found.filter(|c| c.verdict == CheckVerdict::Invalid).count() {
        0 => Ok(()),
        1 => Err(Failure::message(REFUSED, "1 check is invalid: fix it before you measure")),
        n => Err(Failure::message(
            REFUSED,
            format!("{n} checks are invalid: fix them before you measure"),
        )),
    }
}
