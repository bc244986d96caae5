//! Renders the sections as text, in the style of a report, and as JSON.

use serde::Serialize;

use crate::experiment::doctor::Section;
use pgio_report::report::table::{Column, Document, Table};
use pgio_report::report::text;
use pgio_results::{Check, CheckVerdict};

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

pub(super) fn text(sections: &[Section]) -> String {
    let tables = sections.iter().map(table).collect();
    let text = text::render(&Document { tables, ..Document::default() });
    format!("{text}\n{}\n", summary(sections))
}

fn table(section: &Section) -> Table {
    let row = |check: &Check| {
        let mut found = check.message.clone();
        if check.verdict != CheckVerdict::Ok && !check.remedy.is_empty() {
            found += &format!("\n→ {}", check.remedy);
        }
        vec![word(check.verdict).to_owned(), check.id.clone(), found]
    };
    Table {
        title: section.title.clone(),
        columns: ["", "check", "found"].map(Column::left).to_vec(),
        rows: section.checks.iter().map(row).collect(),
        notes: Vec::new(),
    }
}

fn word(verdict: CheckVerdict) -> &'static str {
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

pub(super) fn json(sections: &[Section]) -> String {
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
        insta::assert_snapshot!(text(&sections()), @r"
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
        let found: serde_json::Value = serde_json::from_str(&json(&sections())).unwrap();
        assert_eq!(found["verdict"], "invalid");
        assert_eq!(found["sections"][0]["checks"][1]["id"], "steal");
    }
}
