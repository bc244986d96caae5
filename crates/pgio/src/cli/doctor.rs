//! `pgio doctor`: checks what is missing or would spoil a measurement, each with a remedy.
//!
//! `experiment::doctor` examines; this file shows what it found.

use std::path::PathBuf;

use clap::ValueEnum;
use pgio_report::report::table::{Column, Document, Table};
use pgio_report::report::text;
use pgio_results::{Check, CheckVerdict};
use serde::Serialize;

use super::exit::{Failure, Outcome, REFUSED, USAGE};
use super::flags::{self, ForDoctor, Source};
use super::{jobs, output};
use crate::experiment::doctor::{Scope, Section, examine};

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
        None => Scope::from_keys(flags::read_keys(&args.source)?, &mut output::warn)?,
    };
    let sections = examine(&scope);
    match args.format {
        Format::Text => output::print(&render_text(&sections)),
        Format::Json => output::document(&printable::json(&render_json(&sections))),
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

pub const DOCTOR_SCHEMA: &str = "pgio.doctor/1";

/// What `pgio doctor --format json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorDocument {
    schema: String,
    /// The worst verdict of all checks.
    verdict: CheckVerdict,
    sections: Vec<DoctorSection>,
}

/// The checks of one subject: this machine, a host, a server.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct DoctorSection {
    title: String,
    checks: Vec<Check>,
}

fn render_text(sections: &[Section]) -> String {
    let tables = sections.iter().map(section_table).collect();
    let text = text::render(&Document { tables, ..Document::default() });
    format!("{text}\n{}\n", summary(sections))
}

fn section_table(section: &Section) -> Table {
    let row = |check: &Check| {
        let mut found = check.message.clone();
        if check.verdict != CheckVerdict::Ok && !check.remedy.is_empty() {
            found += &format!("\n→ {}", check.remedy);
        }
        vec![verdict_word(check.verdict).to_owned(), check.id.clone(), found]
    };
    Table {
        title: section.title.clone(),
        columns: ["", "check", "found"].map(Column::left).to_vec(),
        rows: section.checks.iter().map(row).collect(),
        notes: Vec::new(),
    }
}

fn verdict_word(verdict: CheckVerdict) -> &'static str {
    match verdict {
        CheckVerdict::Ok => "ok",
        CheckVerdict::Warning => "warning",
        CheckVerdict::Invalid => "INVALID",
    }
}

fn summary(sections: &[Section]) -> String {
    let count =
        |verdict| sections.iter().flat_map(|s| &s.checks).filter(|c| c.verdict == verdict).count();
    let warnings = count(CheckVerdict::Warning);
    format!(
        "{} ok, {warnings} warning{}, {} invalid.",
        count(CheckVerdict::Ok),
        if warnings == 1 { "" } else { "s" },
        count(CheckVerdict::Invalid)
    )
}

fn render_json(sections: &[Section]) -> String {
    let all = sections.iter().flat_map(|s| &s.checks);
    let part = |s: &Section| DoctorSection { title: s.title.clone(), checks: s.checks.clone() };
    let document = DoctorDocument {
        schema: DOCTOR_SCHEMA.to_owned(),
        verdict: all.map(|c| c.verdict).max().unwrap_or(CheckVerdict::Ok),
        sections: sections.iter().map(part).collect(),
    };
    serde_json::to_string_pretty(&document).expect("plain data always serializes") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> Vec<Section> {
        let checks = vec![
            Check::ok("tools", "all there"),
            Check::warning("steal", "7 % of the time", "measure elsewhere"),
            Check::invalid("durability", "fsync is off", "turn it on"),
        ];
        vec![Section { title: "This machine".to_owned(), checks }]
    }

    #[test]
    fn each_check_has_its_remedy_below_it() {
        insta::assert_snapshot!(render_text(&sections()), @r"
        This machine
                 check       found
        -------  ----------  -------------------
        ok       tools       all there
        warning  steal       7 % of the time
                             → measure elsewhere
        INVALID  durability  fsync is off
                             → turn it on

        1 ok, 1 warning, 1 invalid.
        ");
    }

    #[test]
    fn the_worst_verdict_stands_for_all() {
        let found: serde_json::Value = serde_json::from_str(&render_json(&sections())).unwrap();
        assert_eq!(found["verdict"], "invalid");
        assert_eq!(found["sections"][0]["checks"][1]["id"], "steal");
    }
}
